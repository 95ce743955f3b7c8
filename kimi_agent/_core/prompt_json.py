"""JSON values as the official templates write them into a prompt."""

from __future__ import annotations

import json
from typing import Any

from kimi_agent.errors import ConfigurationError
from kimi_agent.json_types import is_array, is_object


def compact_json(value: object, *, place: str) -> str:
    """`value` without spaces, non-ASCII text as it is.

    Raises:
        ConfigurationError: it holds something JSON cannot; `place` says where it stands.
    """
    return _json(value, place, (",", ":"))


def spaced_json(value: object, *, place: str) -> str:
    """`value` with a space behind each comma and colon, non-ASCII text as it is.

    Raises:
        ConfigurationError: it holds something JSON cannot; `place` says where it stands.
    """
    return _json(value, place, (", ", ": "))


def deep_sorted(value: Any, *, place: str) -> Any:
    """A copy of `value` with the keys of every object in order; arrays keep theirs.

    Raises:
        ConfigurationError: it is nested too deeply, or keys are no strings; `place` says where it stands.
    """
    try:
        return _sorted(value)
    except (RecursionError, TypeError) as error:
        raise _not_json(place, error) from None


def _sorted(value: Any) -> Any:
    if is_object(value):
        return {key: _sorted(value[key]) for key in sorted(value)}
    if is_array(value):
        return [_sorted(item) for item in value]
    return value


def _json(value: object, place: str, separators: tuple[str, str]) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, separators=separators)
    except (TypeError, ValueError, RecursionError) as error:
        raise _not_json(place, error) from None


def _not_json(place: str, error: Exception) -> ConfigurationError:
    return ConfigurationError(f"{place} cannot be written as JSON: {error}; pass plain JSON values")
