"""How each server and each model generation spells the same things. Data only."""

from kimi_agent.dialects.engine import ENGINES, Engine
from kimi_agent.dialects.generation import GENERATIONS, Generation, generation_of

__all__ = ["ENGINES", "GENERATIONS", "Engine", "Generation", "generation_of"]
