"""One examination under way: the probes, what they brought, and what that rules out."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal
from urllib.parse import urlsplit

from kimi_agent._core.encode_completions import CompletionsEncoder
from kimi_agent._core.engine_signs import engine_of_host, engine_of_models, engine_of_reply
from kimi_agent._core.model_choice import context_tokens, meant_model, model_ids
from kimi_agent.dialects import generation_of
from kimi_agent.dialects.generation import K2, K2_THINKING, UNKNOWN
from kimi_agent.doctor.deployment import Deployment, with_tools
from kimi_agent.doctor.leaks import sightings
from kimi_agent.errors import (
    KimiAgentError,
    ModelNotFoundError,
    TransportConnectionError,
    TransportTimeoutError,
)
from kimi_agent.messages import ToolSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kimi_agent.dialects import Engine, Generation
    from kimi_agent.doctor.leaks import Sighting
    from kimi_agent.doctor.observed_reply import ObservedReply
    from kimi_agent.doctor.patience import Patience
    from kimi_agent.json_types import JsonObject
    from kimi_agent.transport import Transport

WHO: Final = "Who are you?"
ONE_CITY: Final = "What is the weather in Paris?"
OTHER_CITY: Final = "What is the weather in Tokyo?"
TWO_CITIES: Final = "What is the weather in Paris and Tokyo?"
WEATHER: Final = ToolSpec(
    name="get_weather",
    description="Get the weather in a city.",
    parameters={
        "type": "object",
        "properties": {"city": {"type": "string", "description": "City name"}},
        "required": ["city"],
    },
)
_UNREACHED_IN_A_ROW: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What the person asked to be examined; `None` is found out."""

    model: str | None = None
    engine: Engine | None = None
    generation: Generation | None = None
    api: Literal["chat", "completions"] = "chat"
    has_key: bool = True
    """Whether a key was given; else none is sent."""


@dataclass(slots=True, kw_only=True)
class Case:
    """Everything the checks share."""

    asked: Asked
    deployment: Deployment
    patience: Patience
    connect: Callable[[str], Transport]
    """Makes the transport to a base URL."""

    entries: Sequence[JsonObject] = ()
    """The server's list of models."""
    list_error: KimiAgentError | None = None
    """Why there is none."""

    first: ObservedReply | KimiAgentError | None = None
    """The answer to `WHO`, or why there is none."""
    refused_name: ModelNotFoundError | None = None
    """The server's answer to the name that was asked for, where another one had to be taken."""

    engine_how: str = ""
    generation_how: str = ""

    replies: dict[str, ObservedReply] = field(default_factory=dict[str, "ObservedReply"])
    """The replies that show how the server normally answers, by the title of the probe."""
    sightings: list[Sighting] = field(default_factory=list["Sighting"])
    """Markers seen where they should not be, over all probes."""

    tools_work: bool = False
    """Whether a tool call came as it should."""
    tools_refused: bool = False
    """Whether the server takes no tools unless it is told not to use them."""
    stopped: str = ""
    """Why nothing more can be checked."""
    unanswered: str = ""
    """Why nothing can be checked that needs an answer."""
    _unreached: int = 0

    @property
    def ids(self) -> list[str]:
        """The ids of the models the server lists."""
        return model_ids(self.entries)

    @property
    def reasons(self) -> bool:
        """Whether any reply so far held reasoning, wherever."""
        seen = any(reply.reasoning_text for reply in self.replies.values())
        return seen or any(each.leak.kind == "thought" for each in self.sightings)

    @property
    def text_format(self) -> str:
        """The grammar of the model's raw text, as its replies or its generation tell."""
        seen = next((each.leak.text_format for each in self.sightings if each.leak.kind != "framing"), None)
        return seen or self.deployment.generation.text_format

    @property
    def rendered(self) -> Generation:
        """The generation to write prompts for; a guess where it is not known."""
        if self.deployment.generation is not UNKNOWN:
            return self.deployment.generation
        return K2_THINKING if self.reasons else K2

    @property
    def weights(self) -> str:
        """What the server was started with, for a command: the path of the weights, if it tells."""
        entry = self._entry(self.deployment.model)
        root = entry.get("root")
        return root if isinstance(root, str) and root else self.deployment.model or "MODEL"

    async def probe(
        self,
        title: str,
        fields: JsonObject,
        *,
        path: Literal["/chat/completions", "/completions"] = "/chat/completions",
        learns: bool = True,
        may_leak: bool = False,
    ) -> ObservedReply:
        """The reply to one request; it is kept under `title`, and its leaks are noted, unless it `may_leak`.

        Raises:
            KimiAgentError: there was none.
        """
        try:
            reply = await self.deployment.ask(fields, path=path, learns=learns)
        except (TransportConnectionError, TransportTimeoutError):
            self._unreached += 1
            if self._unreached >= _UNREACHED_IN_A_ROW:
                self.stopped = "the server stopped answering"
            raise
        self._unreached = 0
        if not may_leak:
            self.replies[title] = reply
            if path == "/chat/completions":
                # No engine looks for calls where no tools were offered.
                found = sightings(reply, title)
                self.sightings += [each for each in found if each.leak.kind != "call" or "tools" in fields]
        return reply

    def question(self, text: str, **more: Any) -> JsonObject:
        """The fields of a chat request that offers the weather tool."""
        messages = [{"role": "user", "content": text}]
        return with_tools({**self.deployment.fields(), "messages": messages}, [WEATHER.to_json()], **more)

    def plain(
        self, *, system: str = "", max_tokens: int | None = None, stream: bool = False
    ) -> tuple[JsonObject, Literal["/chat/completions", "/completions"]]:
        """A request without tools, and its path: a chat, or a prompt rendered here."""
        messages = [{"role": "system", "content": system}] if system else []
        messages.append({"role": "user", "content": WHO})
        ending: JsonObject = {"stream": True, "stream_options": {"include_usage": True}} if stream else {}
        if self.asked.api == "chat":
            fields = {**self.deployment.fields(max_tokens=max_tokens), "messages": messages}
            return {**fields, **ending}, "/chat/completions"
        encoder = CompletionsEncoder(
            model=self.deployment.model or "",
            tools={},
            options=self.deployment.options,
            engine=self.deployment.dialect,
            generation=self.rendered,
        )
        fields = json.loads(encoder.body(messages, stream=stream))
        if max_tokens is not None:
            fields["max_tokens"] = max_tokens
        return {**fields, **ending}, "/completions"

    async def meet(self) -> None:
        """Find out who is there: model, engine, generation, context, and the first answer."""
        self._find_engine()
        wanted = self.asked.model or (self.ids[0] if len(self.ids) == 1 else None)
        if wanted is None:
            return
        self._take(wanted)
        self.first = await self._first_answer()
        if isinstance(self.first, ModelNotFoundError):
            meant = meant_model(wanted, self.ids)
            if meant is not None and meant != wanted:
                self.refused_name = self.first
                self._take(meant)
                self.first = await self._first_answer()
        if isinstance(self.first, KimiAgentError):
            return
        if len(self.ids) == 1:
            # A server may take any name; the listed one tells more.
            self._take(self.ids[0])
        if self.deployment.engine is None:
            self.deployment.engine = engine_of_reply(self.first.first_chunk)
            self.engine_how = "by its reply"

    async def _first_answer(self) -> ObservedReply | KimiAgentError:
        async def attempt() -> ObservedReply:
            fields, path = self.plain()
            return await self.probe("plain answer", fields, path=path)

        try:
            return await self.patience.wait_out(attempt)
        except KimiAgentError as error:
            return error

    def _take(self, model: str) -> None:
        """Go on with `model`."""
        deployment = self.deployment
        deployment.model = model
        deployment.context_tokens = context_tokens(self.entries, model)
        if self.asked.generation is not None:
            deployment.generation, self.generation_how = self.asked.generation, "as you said"
            return
        deployment.generation, self.generation_how = generation_of(model), "by the model's name"
        root = self._entry(model).get("root")
        if deployment.generation is UNKNOWN and isinstance(root, str):
            deployment.generation, self.generation_how = generation_of(root), f"by the weights, {root}"

    def _find_engine(self) -> None:
        host = urlsplit(self.deployment.base_url).hostname or ""
        for engine, how in (
            (self.asked.engine, "as you said"),
            (engine_of_host(host), "by its host"),
            (engine_of_models(self.entries), "by its list of models"),
        ):
            if engine is not None:
                self.deployment.engine, self.engine_how = engine, how
                return

    def _entry(self, model: str | None) -> JsonObject:
        nothing: JsonObject = {}
        return next((entry for entry in self.entries if entry.get("id") == model), nothing)
