"""Reading JSON nobody checked: each function gives a value of the wanted kind, empty if it is another."""

import json
from typing import Any, TypeAlias, cast

JsonObject: TypeAlias = dict[str, Any]


def as_object(value: object) -> JsonObject:
    """`value` if it is an object, else `{}`."""
    return cast("JsonObject", value) if isinstance(value, dict) else {}


def as_list(value: object) -> list[Any]:
    """`value` if it is an array, else `[]`."""
    return cast("list[Any]", value) if isinstance(value, list) else []


def as_text(value: object) -> str:
    """The text of a message's `content`: a string, or the text parts of a list, else `""`."""
    if isinstance(value, str):
        return value
    return "".join(
        part["text"] for part in map(as_object, as_list(value)) if isinstance(part.get("text"), str)
    )


def as_count(value: object) -> int | None:
    """`value` if it is a whole number above 0, else `None`."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def decoded(text: str) -> Any:
    """The JSON value of `text`, or `text` itself if it is none."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


# One encoder for all: `json.dumps` makes a new one each time, which costs as much as a chunk.
encoded = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
"""A value as compact JSON, the way the engines write it."""
