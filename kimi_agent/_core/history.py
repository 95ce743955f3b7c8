"""The rules a conversation keeps before it is sent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kimi_agent._core.mending import has_content
from kimi_agent.errors import ConfigurationError, InvalidHistoryError
from kimi_agent.json_types import is_array, is_object

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
    if not has_content({"content": prompt}):
        raise ConfigurationError("prompt is empty; pass a text, content parts, or None to go on from history")
    content: Any = prompt if isinstance(prompt, str) else list(prompt)
    return before, [{"role": "user", "content": content}]


def check_history(history: Sequence[Message], *, has_prompt: bool = True) -> None:
    """Refuse what cannot be put right on the way out.

    Raises:
        InvalidHistoryError: naming the message and the way out.
    """
    open_calls: list[str] = []
    strays = 0
    for position, message in enumerate(history):
        role = _role_of(message, position)
        if role == "tool":
            result_id = _result_id(message, position)
            if result_id in open_calls:
                open_calls.remove(result_id)
            else:
                strays += 1
        elif role == "assistant":
            strays = 0
            calls: Any = message.get("tool_calls")
            open_calls = [str(call.get("id")) for call in calls if is_object(call)] if is_array(calls) else []
        else:
            open_calls = []
    # As many results with other ids are paired by place on the way out.
    if len(open_calls) > strays and not has_prompt:
        raise InvalidHistoryError(
            f"history ends before the results of the calls {', '.join(open_calls)}; add one tool message for "
            "each, give a prompt to go on without them, or drop the calls"
        )


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
