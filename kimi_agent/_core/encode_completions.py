"""Messages, tools and options → the bytes of a raw completions request, its prompt rendered here."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Literal

from kimi_agent._core.control_tokens import control_tokens, neutralised_value
from kimi_agent._core.encode import LearningEncoder
from kimi_agent._core.json_bytes import to_json
from kimi_agent._core.render import render_prompt
from kimi_agent._core.request_fields import with_lessons
from kimi_agent.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kimi_agent.dialects import Engine
    from kimi_agent.json_types import JsonObject
    from kimi_agent.messages import Message

# What ends a reply, by text format. Servers stop at the token by themselves where it is the model's own
# end; the words help where it is not.
_STOPS: Final = {"k2": ["<|im_end|>"], "k3": ["<|end_of_msg|>"]}
_DEFAULT_OUTPUT_TOKENS: Final = 4096
_CHAT_ONLY: Final = (
    "tool_choice",
    "parallel_tool_calls",
    "response_format",
    "chat_template_kwargs",
    "thinking",
    "reasoning",
    "reasoning_effort",
)


class CompletionsEncoder(LearningEncoder):
    """Builds the raw completions requests of one conversation; it begins like `ChatEncoder`."""

    path: Literal["/chat/completions", "/completions"] = "/completions"

    def __init__(self, *, context_tokens: int | None = None, **parts: Any) -> None:
        self._context_tokens = context_tokens
        super().__init__(**parts)
        self._declared = [
            self._guarded(spec.to_json(), f"the tool {spec.name!r}") for spec in self._tools.values()
        ]

    @property
    def text_format(self) -> str | None:
        """See `Encoder.text_format`."""
        return self.generation.text_format

    @property
    def starts_in_thought(self) -> bool:
        """See `Encoder.starts_in_thought`."""
        return self.generation.starts_in_thought and self._thinks

    @property
    def _thinks(self) -> bool:
        always = self.generation.thinking == "always" and not self.generation.template_switch
        return always or self._options.thinking is not False

    def _reader(self) -> Engine:
        # The templates read the messages here, and they are the same whatever the server's chat API reads.
        return replace(self.engine, call_ids="k2", reasoning_fields=("reasoning_content",))

    def _forget(self) -> None:
        self._messages: list[Message] = []

    def _add(self, messages: Sequence[Message]) -> None:
        self._messages += [
            self._guarded(message, f"a message of role {message.get('role')!r}") for message in messages
        ]

    def _joined(self, messages: Sequence[Message], *, stream: bool, first: bool) -> bytes:
        del messages, first  # all are taken, and a forced call cannot be asked for in a prompt
        prompt = self._prompt()
        fields = {name: value for name, value in self._fields.items() if name not in _CHAT_ONLY}
        limit = fields.pop(self.engine.output_limit_field, None)
        fields["max_tokens"] = self._output_tokens(prompt) if limit is None else limit
        own = self._options.stop
        fields["stop"] = [
            *_STOPS[self.generation.text_format],
            *([own] if isinstance(own, str) else own or ()),
        ]
        fields.update(self.engine.raw_text_fields)
        if stream:
            fields.update(stream=True, stream_options={"include_usage": True})
        fields = with_lessons(fields, self._learned)
        self._sent.update(fields)
        return to_json({"model": self.model, "prompt": prompt, **fields})

    def _prompt(self) -> str:
        # K3 is told in words that it must not call; the others are not shown any tool.
        is_k2 = self.generation.text_format == "k2"
        offered = [] if is_k2 and self._options.tool_choice == "none" else self._declared
        return render_prompt(
            self._messages,
            offered or None,
            generation=self.generation.name,
            thinking=self._thinks,
            preserve_thinking=bool(self._options.keep_reasoning),
            effort=self._options.effort,
            tool_choice=self._options.tool_choice,
            response_format=self._options.response_format,
        )

    def _guarded(self, value: JsonObject, what: str) -> JsonObject:
        """`value` without control tokens in its texts: in one string with the rest they would be honoured.

        Raises:
            ConfigurationError: it holds some, and `ModelOptions.control_tokens` is `refuse`.
        """
        if self._options.control_tokens == "refuse" and (found := control_tokens(value)):
            raise ConfigurationError(
                f"{what} holds control tokens, which the model would take for structure: {', '.join(found)}; "
                "take them out, or let ModelOptions.control_tokens be 'neutralise'"
            )
        return neutralised_value(value)

    def _output_tokens(self, prompt: str) -> int:
        """A limit for the reply: raw completions have a very small one by default."""
        if self._context_tokens is None:
            return _DEFAULT_OUTPUT_TOKENS
        # Three bytes a token is a cautious guess for text; the server refuses what does not fit.
        left = self._context_tokens - len(prompt.encode()) // 3 - 1
        return max(16, min(_DEFAULT_OUTPUT_TOKENS, left))
