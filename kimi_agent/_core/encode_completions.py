"""Messages, tools and options → the bytes of a raw completions request, its prompt rendered here."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final, Literal

from kimi_agent._core.control_tokens import neutralised_value
from kimi_agent._core.json_bytes import to_json
from kimi_agent._core.lessons import Learned, learn
from kimi_agent._core.render import render_prompt
from kimi_agent._core.request_fields import request_fields, with_lessons
from kimi_agent._core.wire_history import WireHistory
from kimi_agent._core.wire_names import wire_names

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kimi_agent._core.lessons import Lesson
    from kimi_agent.dialects import Engine, Generation
    from kimi_agent.errors import KimiAgentError
    from kimi_agent.json_types import JsonObject
    from kimi_agent.messages import Message, ToolSpec
    from kimi_agent.options import ModelOptions

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


class CompletionsEncoder:
    """Builds the raw completions requests of one conversation."""

    path: Literal["/chat/completions", "/completions"] = "/completions"

    def __init__(  # noqa: PLR0913 - everything that shapes a request, each part named
        self,
        *,
        model: str,
        tools: Mapping[str, ToolSpec],
        options: ModelOptions,
        engine: Engine,
        generation: Generation,
        learned: Learned | None = None,
        mended: Sequence[Message] = (),
        replaced: int = 0,
        context_tokens: int | None = None,
    ) -> None:
        self.model = model
        self.engine = engine
        self.generation = generation
        self._options = options
        self._learned = Learned() if learned is None else learned
        self._names = wire_names(tools)
        self._tools = [self._declaration(spec) for spec in tools.values()]
        self._fields, self.repairs = request_fields(options, engine, generation)
        self._mended = mended
        self._replaced = replaced
        self._context_tokens = context_tokens
        self._sent: set[str] = set()
        self._wire = WireHistory(
            engine=engine, generation=generation, learned=self._learned, names=self._names
        )
        self._messages = [wire for message in mended for wire in self._wire.add(message)]
        self._seen = replaced

    @property
    def text_format(self) -> str | None:
        """See `Encoder.text_format`."""
        return self.generation.text_format

    @property
    def starts_in_thought(self) -> bool:
        """See `Encoder.starts_in_thought`."""
        return self.generation.starts_in_thought and self._thinks

    def body(self, messages: Sequence[Message], *, stream: bool, first: bool = True) -> bytes:
        """See `Encoder.body`."""
        del first  # a forced call cannot be asked for in a prompt
        for message in messages[self._seen :]:
            self._messages += self._wire.add(message)
        self._seen = max(self._seen, len(messages))
        self._messages += self._wire.flush()
        prompt = self._prompt()
        fields = {name: value for name, value in self._fields.items() if name not in _CHAT_ONLY}
        limit = fields.pop(self.engine.output_limit_field, None)
        fields["max_tokens"] = self._output_tokens(prompt) if limit is None else limit
        fields.setdefault("stop", _STOPS[self.generation.text_format])
        fields.update(self.engine.raw_text_fields)
        if stream:
            fields.update(stream=True, stream_options={"include_usage": True})
        fields = with_lessons(fields, self._learned)
        self._sent = set(fields)
        return to_json({"model": self.model, "prompt": prompt, **fields})

    def learn(self, error: KimiAgentError) -> Lesson | None:
        """See `Encoder.learn`."""
        return learn(error, self._learned, sent=self._sent)

    def warn_once(self, subject: str) -> bool:
        """See `Encoder.warn_once`."""
        return self._learned.warn_once(subject)

    @property
    def _thinks(self) -> bool:
        return self._options.thinking is not False or self.generation.thinking == "always"

    def _prompt(self) -> str:
        offered = self._tools if self._options.tool_choice != "none" else []
        messages = [self._safe(message) for message in self._messages]
        return render_prompt(
            messages,
            offered or None,
            generation=self.generation.name,
            thinking=self._thinks,
            preserve_thinking=bool(self._options.keep_reasoning),
            effort=self._options.effort,
            tool_choice=self._options.tool_choice,
            response_format=self._options.response_format,
        )

    def _safe(self, message: Message) -> Message:
        """`message` with control tokens in its texts broken up: in one string they would be honoured."""
        safe = {key: neutralised_value(value) for key, value in message.items() if key != "tool_calls"}
        if "tool_calls" in message:
            safe["tool_calls"] = neutralised_value(message["tool_calls"])
        return safe

    def _output_tokens(self, prompt: str) -> int:
        """A limit for the reply: raw completions have a very small one by default."""
        if self._context_tokens is None:
            return _DEFAULT_OUTPUT_TOKENS
        # Three bytes a token is a cautious guess for text; the server refuses what does not fit.
        left = self._context_tokens - len(prompt.encode()) // 3 - 1
        return max(16, min(_DEFAULT_OUTPUT_TOKENS, left))

    def _declaration(self, spec: ToolSpec) -> JsonObject:
        declaration: JsonObject = json.loads(json.dumps(spec.to_json()))
        declaration["function"]["name"] = self._names[spec.name]
        return declaration
