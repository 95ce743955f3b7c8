"""Which of a server's models is meant."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from kimi_agent.errors import ConfigurationError
from kimi_agent.json_types import is_object

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kimi_agent.json_types import JsonObject


def model_ids(entries: Sequence[JsonObject]) -> list[str]:
    """The ids of a server's list of models."""
    return [str(entry["id"]) for entry in entries]


def context_tokens(entries: Sequence[JsonObject], model: str) -> int | None:
    """The context length that a server's list of models tells for `model`."""
    for entry in entries:
        if entry.get("id") != model:
            continue
        meta: Any = entry.get("meta")
        for value in (
            entry.get("max_model_len"),
            entry.get("context_length"),
            meta.get("n_ctx") if is_object(meta) else None,
        ):
            if isinstance(value, int) and value > 0:
                return value
    return None


def only_model(available: Sequence[str], url: str) -> str:
    """The one model of a server.

    Raises:
        ConfigurationError: there is none, or there are several to choose from.
    """
    if len(available) == 1:
        return available[0]
    if not available:
        raise ConfigurationError(f"no model was given and {url} lists none; pass model= or set KIMI_MODEL")
    raise ConfigurationError(
        f"no model was given and {url} has several: {', '.join(available)}; pass model= or set KIMI_MODEL"
    )


def meant_model(wanted: str, available: Sequence[str]) -> str | None:
    """The available id that `wanted` probably means: a path for a short name, another case, a typo."""
    short = wanted.rstrip("/").rpartition("/")[2].lower()
    if not short:
        return None
    same_name = [name for name in available if name.rstrip("/").rpartition("/")[2].lower() == short]
    if len(same_name) == 1:
        return same_name[0]
    close = get_close_matches(wanted, available, n=1, cutoff=0.6)
    if close:
        return close[0]
    return available[0] if len(available) == 1 else None
