"""Which engine a server is, from what it shows anyway: its host, its list of models, its replies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kimi_agent.dialects.engine import ENGINES, LLAMA_CPP, VLLM
from kimi_agent.json_types import is_array, is_object

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kimi_agent.dialects import Engine
    from kimi_agent.json_types import JsonObject


def engine_of_host(host: str) -> Engine | None:
    """The engine that a base URL's host tells."""
    for engine in ENGINES.values():
        if any(host == known or host.endswith("." + known) for known in engine.hosts):
            return engine
    return None


def engine_of_models(entries: Sequence[JsonObject]) -> Engine | None:
    """The engine that the entries of `/v1/models` tell."""
    for entry in entries:
        owner = entry.get("owned_by")
        for engine in ENGINES.values():
            if isinstance(owner, str) and owner.lower() in engine.owners:
                return engine
    return None


def engine_of_reply(chunk: JsonObject) -> Engine | None:
    """The engine that a chunk or a whole reply tells."""
    fingerprint = chunk.get("system_fingerprint")
    if isinstance(fingerprint, str):
        if fingerprint.startswith("vllm"):
            return VLLM
        if fingerprint.startswith("b") and "-" in fingerprint and "token_ids" not in chunk:
            return LLAMA_CPP
    choices: Any = chunk.get("choices")
    first: Any = choices[0] if is_array(choices) and choices else None
    for engine in ENGINES.values():
        for field in engine.reply_fields:
            if field in chunk or (is_object(first) and field in first):
                return engine
    return None
