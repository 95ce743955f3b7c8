"""Argument text → JSON value, forgiving what models are known to write."""

from __future__ import annotations

import ast
import json
import math
import re
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from kimi_agent.json_types import is_object

_LITERAL_LIMIT: Final = 100_000
# An unfinished string runs to the end of the text, so that no attempt starts inside it.
_OUTSIDE_STRINGS = re.compile(r'"(?:[^"\\]|\\.?)*+(?:"|\Z)|,(?=\s*+[}\]])', re.DOTALL)


def _finite(digits: str) -> float:
    number = float(digits)
    if math.isfinite(number):
        return number
    message = f"{digits[:40]} is too large a number"
    raise ValueError(message)


def _refuse_constant(name: str) -> float:
    message = f"{name} is not JSON"
    raise ValueError(message)


# Raw control characters inside strings are let pass.
_DECODER = json.JSONDecoder(strict=False, parse_float=_finite, parse_constant=_refuse_constant)


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
        return _DECODER.decode(text)
    except RecursionError:
        raise UnreadableError("the JSON is nested too deeply") from None
    except ValueError as error:
        raise UnreadableError(str(error)) from None


def _control_characters(text: str) -> str | None:
    return "control characters in a string" if not text.isprintable() and _has_raw_control(text) else None


def _has_raw_control(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return True
    return False


def _forgiving(text: str, error: UnreadableError) -> Reading:
    stripped = text.strip()
    fenced = _without_fence(stripped)
    if fenced is None:
        return _unfenced(stripped, error)
    leniency = "a code fence around the JSON"
    try:
        return Reading(value=_plain(fenced), leniency=leniency)
    except UnreadableError as inner:
        reading = _unfenced(fenced.strip(), inner)
        return Reading(value=reading.value, leniency=f"{leniency}, {reading.leniency}")


def _unfenced(text: str, error: UnreadableError) -> Reading:
    for leniency, candidate in (
        ("one closing brace too many", text[:-1] if text.endswith("}}") else text),
        ("a comma before a closing bracket", _OUTSIDE_STRINGS.sub(_without_comma, text)),
    ):
        if candidate != text:
            with suppress(UnreadableError):
                return Reading(value=_plain(candidate), leniency=leniency)
    return _python_literal(text, error)


def _without_fence(text: str) -> str | None:
    if not (text.startswith("```") and text.endswith("```")):
        return None
    return text[:-3].partition("\n")[2] or None


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
