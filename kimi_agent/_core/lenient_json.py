"""Argument text → JSON value, forgiving what models are known to write."""

from __future__ import annotations

import ast
import json
import re
from dataclasses import dataclass
from typing import Any, Final

from kimi_agent.json_types import is_object

_DECODER = json.JSONDecoder(strict=False)  # raw control characters inside strings are let pass
_FENCE = re.compile(r"\A\s*```[\w-]*[ \t]*\n(.*?)\n?[ \t]*```\s*\Z", re.DOTALL)
_LITERAL_LIMIT: Final = 100_000
_OUTSIDE_STRINGS = re.compile(r'"(?:[^"\\]|\\.)*+"|,(?=\s*+[}\]])', re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """A value read from text."""

    value: Any
    leniency: str | None = None
    """What had to be forgiven, in words; `None` if the text was plain JSON."""


class UnreadableError(ValueError):
    """The text holds no value that can be read without guessing."""


def read_value(text: str) -> Reading:
    """The value that `text` holds; blank text and `null` are an empty object.

    Forgiven, each only if the rest is then plain JSON: control characters in strings, a code fence
    around, a comma before a closing bracket, one closing brace too many, Python literals. Nothing is
    completed or guessed.

    Raises:
        UnreadableError: with the reason, worded for the model.
    """
    if not text.strip():
        return Reading(value={})
    try:
        value = _plain(text)
    except UnreadableError as error:
        return _forgiving(text, error)
    return Reading(value={} if value is None else value, leniency=_control_characters(text))


def is_json_object(text: str) -> bool:
    """Whether `text` is one whole JSON object."""
    try:
        return is_object(_plain(text))
    except UnreadableError:
        return False


def split_object(text: str) -> tuple[str, str] | None:
    """The whole JSON object `text` starts with and what follows it, or `None`."""
    start = len(text) - len(text.lstrip())
    if not text.startswith("{", start):
        return None
    end = object_end(text, start)
    return None if end is None else (text[:end], text[end:])


def object_end(text: str, start: int) -> int | None:
    """Where the JSON object that begins at `start` ends, or `None` if there is no whole one."""
    try:
        value, end = _DECODER.raw_decode(text, start)
    except (ValueError, RecursionError):
        return None
    return end if is_object(value) else None


def _plain(text: str) -> Any:
    try:
        return json.loads(text, strict=False, parse_constant=_refuse_constant)
    except RecursionError:
        raise UnreadableError("the JSON is nested too deeply") from None
    except ValueError as error:
        raise UnreadableError(str(error)) from None


def _refuse_constant(name: str) -> float:
    message = f"{name} is not JSON"
    raise ValueError(message)


def _control_characters(text: str) -> str | None:
    return "control characters in a string" if not text.isprintable() and _has_raw_control(text) else None


def _has_raw_control(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return True
    return False


def _forgiving(text: str, error: UnreadableError) -> Reading:
    fenced = _FENCE.match(text)
    if fenced:
        return Reading(value=read_value(fenced[1]).value, leniency="a code fence around the JSON")
    stripped = text.strip()
    for leniency, candidate in (
        ("one closing brace too many", stripped[:-1] if stripped.endswith("}}") else None),
        ("a comma before a closing bracket", _OUTSIDE_STRINGS.sub(_without_comma, stripped)),
    ):
        if candidate is None or candidate == stripped:
            continue
        try:
            return Reading(value=_plain(candidate), leniency=leniency)
        except UnreadableError:
            continue
    return _python_literal(stripped, error)


def _without_comma(match: re.Match[str]) -> str:
    return "" if match[0] == "," else match[0]


def _python_literal(text: str, error: UnreadableError) -> Reading:
    if not text.startswith("{") or len(text) > _LITERAL_LIMIT:
        raise error
    try:
        value: object = ast.literal_eval(text)
        json_value: Any = json.loads(json.dumps(value, allow_nan=False))
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        raise error from None
    if not is_object(json_value):
        raise error
    return Reading(value=json_value, leniency="Python literals instead of JSON")
