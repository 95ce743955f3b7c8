"""The rules a conversation keeps before it is sent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kimi_agent.errors import ConfigurationError, InvalidHistoryError
from kimi_agent.json_types import is_object

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kimi_agent.messages import ContentPart, Message

_ROLES: Final = frozenset({"system", "user", "assistant", "tool", "developer"})


def prompt_messages(
    prompt: str | Sequence[ContentPart] | None, *, history: Sequence[Message], instructions: str | None
) -> tuple[list[Message], list[Message]]:
    """The messages that precede the turn and the ones it begins with.

    Instructions become the first message unless the history begins with a system message of its own.

    Raises:
        ConfigurationError: there is nothing to answer.
        InvalidHistoryError: the history breaks a rule.
    """
    if not (prompt is None or isinstance(prompt, str | list | tuple)):
        raise ConfigurationError(
            f"prompt must be a text, a list of content parts or None, got {prompt!r:.80}"
        )
    if not isinstance(history, list | tuple):
        raise InvalidHistoryError(f"history must be a list of messages, got {type(history).__name__}")
    check_history(history, has_prompt=prompt is not None)
    before = list(history)
    if instructions is not None and not (before and before[0].get("role") in ("system", "developer")):
        before.insert(0, {"role": "system", "content": instructions})
    if prompt is None:
        if not history:
            raise ConfigurationError("prompt is None and history is empty: there is nothing to answer")
        return before, []
    if not prompt:
        raise ConfigurationError("prompt is empty; pass a text, content parts, or None to go on from history")
    content: Any = prompt if isinstance(prompt, str) else list(prompt)
    return before, [{"role": "user", "content": content}]


def check_history(history: Sequence[Message], *, has_prompt: bool = True) -> None:
    """Refuse a history that no server can make sense of.

    Raises:
        InvalidHistoryError: naming the message and the way out.
    """
    open_calls: dict[str, int] = {}
    for position, message in enumerate(history):
        role = _role_of(message, position)
        if role == "tool":
            open_calls.pop(_result_id(message, position), None)
            continue
        if open_calls:
            raise _unanswered(open_calls, f"history[{position}] (role {role!r}) comes before the results of")
        if role == "assistant":
            open_calls = {_call_id(call, position): position for call in message.get("tool_calls") or ()}
    if open_calls:
        what = "the prompt comes" if has_prompt else "the next request comes"
        raise _unanswered(open_calls, f"{what} before the results of")


def _role_of(message: Any, position: int) -> str:
    role: Any = message.get("role") if is_object(message) else None
    if role not in _ROLES:
        raise InvalidHistoryError(
            f"history[{position}] must be a Chat Completions message, a dict whose role is one of "
            f"{', '.join(sorted(_ROLES))}; got {str(message)[:120]}"
        )
    return role


def _result_id(message: Message, position: int) -> str:
    call_id = message.get("tool_call_id")
    if not isinstance(call_id, str) or not call_id:
        raise InvalidHistoryError(
            f"history[{position}] is a tool message without tool_call_id; set it to the id of the call it "
            "answers"
        )
    return call_id


def _call_id(call: Any, position: int) -> str:
    call_id: Any = call.get("id") if is_object(call) else None
    if not isinstance(call_id, str):
        raise InvalidHistoryError(f"history[{position}] holds a tool call without id: {str(call)[:120]}")
    return call_id


def _unanswered(open_calls: dict[str, int], what: str) -> InvalidHistoryError:
    position = next(iter(open_calls.values()))
    ids = ", ".join(open_calls)
    return InvalidHistoryError(
        f"{what} the calls {ids} of history[{position}]; add one tool message for each, or drop the calls"
    )
