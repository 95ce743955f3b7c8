"""The names under which callers ask for an engine, a generation and an API."""

from __future__ import annotations

from kimi_agent.dialects import ENGINES, GENERATIONS, Engine, Generation
from kimi_agent.errors import ConfigurationError


def engine_named(engine: str | Engine) -> Engine | None:
    """The engine meant; `None` for `auto`.

    Raises:
        ConfigurationError: no engine has that name.
    """
    if isinstance(engine, Engine):
        return engine
    if engine == "auto":
        return None
    if engine not in ENGINES:
        raise ConfigurationError(
            f"engine {engine!r} is not known; use 'auto', an Engine value, or one of {', '.join(ENGINES)}"
        )
    return ENGINES[engine]


def generation_named(generation: str | Generation) -> Generation | None:
    """The generation meant; `None` for `auto`.

    Raises:
        ConfigurationError: no generation has that name.
    """
    if isinstance(generation, Generation):
        return generation
    if generation == "auto":
        return None
    if generation not in GENERATIONS:
        raise ConfigurationError(
            f"generation {generation!r} is not known; use 'auto', a Generation value, or one of "
            f"{', '.join(GENERATIONS)}"
        )
    return GENERATIONS[generation]


def api_named(api: str) -> str:
    """The API meant.

    Raises:
        ConfigurationError: there is no such API.
    """
    if api not in ("chat", "completions"):
        raise ConfigurationError(f"api must be 'chat' or 'completions', got {api!r}")
    return api
