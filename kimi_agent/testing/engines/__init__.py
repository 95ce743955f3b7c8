"""The engines `KimiServer` can speak like."""

from kimi_agent.testing.engines.dialect import Dialect, EngineSettings
from kimi_agent.testing.engines.llama_cpp import LlamaCpp
from kimi_agent.testing.engines.moonshot import Moonshot
from kimi_agent.testing.engines.sglang import Sglang
from kimi_agent.testing.engines.vllm import Vllm

DIALECTS: dict[str, type[Dialect]] = {dialect.name: dialect for dialect in (Vllm, Sglang, LlamaCpp, Moonshot)}
"""Each dialect by the name it is asked for."""

__all__ = ["DIALECTS", "Dialect", "EngineSettings"]
