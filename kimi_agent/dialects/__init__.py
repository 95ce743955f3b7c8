"""How each server and each model generation spells the same things. Data only."""

from kimi_agent.dialects.engine import ENGINES, Engine

__all__ = ["ENGINES", "Engine"]
