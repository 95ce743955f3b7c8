"""Values → the bytes of compact JSON."""

from __future__ import annotations

import json

from kimi_agent.errors import ConfigurationError


def to_json(value: object, *, place: str = "request") -> bytes:
    """`value` as compact JSON.

    Raises:
        ConfigurationError: it holds something JSON cannot.
    """
    try:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigurationError(f"{place} cannot be written as JSON: {error}") from None
    # A lone surrogate cannot be sent; it stands for text that was lost before.
    return text.encode("utf-8", "replace")


def members(fields: dict[str, object]) -> bytes:
    """`fields` as further members of an object, each behind a comma."""
    return b"".join(
        b"," + to_json(name) + b":" + to_json(value, place=name) for name, value in fields.items()
    )
