"""One call of K3's text format while it arrives: typed arguments → the text of a JSON object."""

from __future__ import annotations

import json
from typing import Final

from kimi_agent._core.transcript import RawCall

_STRING: Final = "string"


class K3Call:
    """Collects the values of one call; `ended` is the call, and the text in it that is none of its parts."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._arguments: dict[str, str] = {}
        """JSON text of each value, by key; the last of two with one key counts."""
        self._json: list[str] = []
        self._text: list[str] = []
        self._value: list[str] = []
        self._key: str | None = None
        """The key of the argument under way; `None` in a `json` block."""
        self._type = ""
        self._cut = ""
        """The argument that the text ended in, as far as it came."""

    def add_text(self, text: str) -> None:
        """Text inside the call, outside its arguments."""
        self._text.append(text)

    def begin_argument(self, key: str, type_name: str) -> None:
        """What is added next is the value of `key`."""
        self._key, self._type = key, type_name
        self._value = []

    def begin_json(self) -> None:
        """What is added next is the JSON text of all arguments."""
        self._key = None
        self._value = []

    def add_value(self, text: str) -> None:
        """More of the value under way."""
        self._value.append(text)

    def end_value(self, *, closed: bool) -> None:
        """The value is whole, or the text ended in it."""
        value = "".join(self._value)
        self._value = []
        if self._key is None:
            self._json.append(value)
        elif closed:
            self._arguments[self._key] = _json_value(value, self._type)
        else:
            shown = _json_string(value)[:-1] if self._type == _STRING else value
            self._cut = f"{_json_string(self._key)}: {shown}"

    def ended(self, *, closed: bool) -> tuple[RawCall | None, str]:
        """The call, and what stood in it beside its arguments.

        The arguments of a call that is not `closed` are no whole object, unless the model wrote them as
        one JSON text: whether more were to come, nobody knows. No call if all that came is prose.
        """
        whole, text = "".join(self._json), "".join(self._text)
        if self._arguments or self._cut:
            # Two forms of arguments at once are none that anybody writes; the typed ones count.
            arguments, text = self._typed(closed=closed), whole + text
        elif self._json:
            arguments = whole
        elif text.lstrip().startswith("{"):
            arguments, text = text, ""
        elif text.strip() and not closed:
            return None, text
        else:
            arguments = self._typed(closed=closed)
        return RawCall(header=self._name, arguments=arguments, closed=closed), text

    def _typed(self, *, closed: bool) -> str:
        pairs = [f"{_json_string(key)}: {value}" for key, value in self._arguments.items()]
        if self._cut:
            pairs.append(self._cut)
        return "{" + ", ".join(pairs) + ("}" if closed else "")


def _json_value(text: str, type_name: str) -> str:
    """The JSON text of a value: strings are raw; anything else is JSON, or was meant as a string."""
    if type_name == _STRING:
        return _json_string(text)
    try:
        json.loads(text, strict=False, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        return _json_string(text)
    return text.strip()


def _json_string(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")
