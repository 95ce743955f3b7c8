"""The parts of a message that every prompt format reads alike."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kimi_agent.errors import InvalidHistoryError
from kimi_agent.json_types import is_array, is_object

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kimi_agent.json_types import JsonObject
    from kimi_agent.messages import Message


def printed(value: object) -> str:
    """`value` as a template prints it: a string as it is, anything else as Python shows it."""
    return value if isinstance(value, str) else str(value)


def content_text(content: Any, where: str, part_text: Callable[[JsonObject, str], str]) -> str:
    """The text of a message's content; `part_text` gives that of one part and is told where it stands.

    Raises:
        InvalidHistoryError: it is neither text nor a list of parts nor nothing.
    """
    if content is None or isinstance(content, str):
        return content or ""
    if not is_array(content):
        raise InvalidHistoryError(f"{where} is {type(content).__name__}; pass a string or a list of parts")
    pieces: list[str] = []
    for position, part in enumerate(content):
        place = f"{where}[{position}]"
        if not is_object(part):
            raise InvalidHistoryError(f"{place} is {type(part).__name__}; a content part is an object")
        pieces.append(part_text(part, place))
    return "".join(pieces)


def calls_of(message: Message, place: int) -> Sequence[tuple[str, JsonObject]]:
    """The tool calls of a message, each behind the place it stands at.

    Raises:
        InvalidHistoryError: they are no list of objects.
    """
    calls: Any = message.get("tool_calls")
    where = f"messages[{place}].tool_calls"
    if not calls:
        return ()
    if not is_array(calls):
        raise InvalidHistoryError(f"{where} is {type(calls).__name__}; pass a list of calls")
    placed: list[tuple[str, JsonObject]] = []
    for position, call in enumerate(calls):
        if not is_object(call):
            raise InvalidHistoryError(f"{where}[{position}] is {type(call).__name__}; a call is an object")
        placed.append((f"{where}[{position}]", call))
    return placed
