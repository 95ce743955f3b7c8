"""Messages, tools and options → the prompt text of a generation, for servers without a chat template."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kimi_agent._core.render_k2 import render_k2
from kimi_agent._core.render_k3 import render_k3
from kimi_agent.dialects.k2_framing import K2_FRAMINGS
from kimi_agent.errors import ConfigurationError, InvalidHistoryError
from kimi_agent.json_types import is_object

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kimi_agent.json_types import JsonObject
    from kimi_agent.messages import Message

K3_NAME: Final = "k3"

RENDERED_GENERATIONS: Final = (*K2_FRAMINGS, K3_NAME)
"""The generations whose prompts can be rendered."""


def render_prompt(  # noqa: PLR0913 the arguments of every generation's template
    messages: Sequence[Message],
    tools: Sequence[JsonObject] | None = None,
    *,
    generation: str,
    thinking: bool = True,
    preserve_thinking: bool = False,
    effort: str | None = None,
    tool_choice: object = None,
    response_format: object = None,
    add_generation_prompt: bool = True,
) -> str:
    """The prompt of `messages`, byte for byte as the official template of `generation` renders it.

    `generation` is one of `RENDERED_GENERATIONS`. What its template does not know is left aside:
    `thinking` before K2.5, `preserve_thinking` before K2.6, and the three after them before K3.

    Raises:
        ConfigurationError: an unknown generation or effort, or something the template cannot render.
        InvalidHistoryError: a message the template cannot render; the text says which.
    """
    for place, message in enumerate(messages):
        if not is_object(message):
            raise InvalidHistoryError(f"messages[{place}] is {type(message).__name__}; a message is a dict")
    if generation == K3_NAME:
        return render_k3(
            messages,
            tools or (),
            thinking=thinking,
            effort=effort,
            tool_choice=tool_choice,
            response_format=response_format,
            add_generation_prompt=add_generation_prompt,
        )
    framing = K2_FRAMINGS.get(generation)
    if framing is None:
        known = ", ".join(RENDERED_GENERATIONS)
        raise ConfigurationError(
            f"no prompt format is known for generation {generation!r}; known are {known}"
        )
    return render_k2(
        messages,
        tools or (),
        framing=framing,
        thinking=thinking,
        preserve_thinking=preserve_thinking,
        add_generation_prompt=add_generation_prompt,
    )
