"""Decoded JSON and how to look into it."""

from __future__ import annotations

from typing import Any, TypeAlias

from typing_extensions import TypeIs

JsonObject: TypeAlias = dict[str, Any]
"""A decoded JSON object."""


def is_object(value: object) -> TypeIs[JsonObject]:
    """Whether a decoded JSON value is an object."""
    return isinstance(value, dict)


def is_array(value: object) -> TypeIs[list[Any]]:
    """Whether a decoded JSON value is an array."""
    return isinstance(value, list)
