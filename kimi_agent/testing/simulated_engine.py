"""One simulated server: HTTP request → reply, in the dialect of its engine."""

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

from kimi_agent.testing.conversation import Conversation, conversation_of
from kimi_agent.testing.engines import Dialect
from kimi_agent.testing.generation import Generation, cut, prompt_tokens_in, tokens_of
from kimi_agent.testing.json_values import JsonObject, as_count, as_list, as_object, as_text, encoded
from kimi_agent.testing.k2_prompt import conversation_of_prompt, starts_thinking
from kimi_agent.testing.planner import Plan, plan_for
from kimi_agent.testing.received import ReceivedRequest
from kimi_agent.testing.replies import Reply, event

MAX_STOPS = 16
"""How many stop strings of a request are looked for."""


class SimulatedEngine:
    """Answers each path as the engine of `dialect` does, with what the planner says."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._settings = dialect.settings
        self._routes: dict[str, tuple[str, Callable[[ReceivedRequest], Reply]]] = {
            "/v1/models": ("GET", lambda _: dialect.models(int(time.time()))),
            "/v1/chat/completions": ("POST", self._chat),
            "/v1/completions": ("POST", self._completion),
            "/health": ("GET", lambda _: dialect.health()),
            "/version": ("GET", lambda _: dialect.version()),
        }

    def reply_to(self, request: ReceivedRequest) -> Reply:
        """The engine's reply."""
        key = self._settings.api_key
        sent = request.headers.get("authorization", "")
        if key is not None and request.path not in self._dialect.open_paths and sent != f"Bearer {key}":
            return self._dialect.unauthorized()
        route = self._routes.get(request.path)
        if route is None:
            return self._dialect.not_found()
        method, answer = route
        return answer(request) if request.method == method else self._dialect.wrong_method(method)

    def _chat(self, request: ReceivedRequest) -> Reply:
        body = as_object(request.body)
        if refused := self._refusal(request, chat=True):
            return refused
        conversation = conversation_of(body)
        if conversation.choice == "none":
            # The model does not know about the choice: either it sees no tools, or it calls them.
            hidden = self._dialect.choice_none_hides_tools
            conversation = replace(conversation, choice="auto", tools=() if hidden else conversation.tools)
        if not self._dialect.obeys_parallel:
            conversation = replace(conversation, parallel=True)
        plan = plan_for(conversation, model=self._settings.model, thinking=self._thinks(body))
        if conversation.choice != "auto" and plan.calls and not self._dialect.forced_call_has_text:
            plan = replace(plan, content="")
        prompt_tokens = prompt_tokens_in(prompt_characters(body))
        if prompt_tokens > self._settings.context_length:
            return self._dialect.too_long(prompt_tokens)
        generation = self._generation(body, conversation, plan, prompt_tokens)
        return self._sent(body, self._seen(generation, body), chat=True)

    def _completion(self, request: ReceivedRequest) -> Reply:
        body = as_object(request.body)
        if refused := self._refusal(request, chat=False):
            return refused
        prompt = next(iter(as_list(body["prompt"])), body["prompt"])
        if not isinstance(prompt, str):
            return self._dialect.error(400, "the simulated engine reads prompts as text, not as token ids")
        prompt_tokens = prompt_tokens_in(len(prompt))
        if prompt_tokens > self._settings.context_length:
            return self._dialect.too_long(prompt_tokens)
        conversation = conversation_of_prompt(prompt)
        opened = starts_thinking(prompt)
        thinking = self._settings.thinking if opened is None else opened
        plan = plan_for(conversation, model=self._settings.model, thinking=thinking)
        generation = self._generation(body, conversation, plan, prompt_tokens, opens_thought=not opened)
        return self._sent(body, generation, chat=False)

    def _refusal(self, request: ReceivedRequest, *, chat: bool) -> Reply | None:
        body = as_object(request.body)
        if not body and request.body != {}:
            return self._dialect.error(400, "request body is not a JSON object")
        return self._dialect.refusal(body, chat=chat)

    def _thinks(self, body: JsonObject) -> bool:
        template = as_object(body.get("chat_template_kwargs"))
        switched_off = template.get("thinking") is False or template.get("enable_thinking") is False
        disabled = as_object(body.get("thinking")).get("type") == "disabled"
        return self._settings.thinking and not switched_off and not disabled

    def _generation(
        self,
        body: JsonObject,
        conversation: Conversation,
        plan: Plan,
        prompt_tokens: int,
        *,
        opens_thought: bool = True,
    ) -> Generation:
        numbered = enumerate(plan.calls, start=conversation.call_count)
        call_ids = [f"functions.{call.name}:{number}" for number, call in numbered]
        arguments = [json.dumps(call.arguments, ensure_ascii=False) for call in plan.calls]
        tokens, finish, stop_string = cut(
            tokens_of(plan, call_ids, arguments, opens_thought=opens_thought),
            max_tokens=as_count(body.get("max_completion_tokens")) or as_count(body.get("max_tokens")),
            stops=stops_of(body.get("stop")),
        )
        options = as_object(body.get("stream_options"))
        return Generation(
            tokens=tokens,
            finish=finish,
            stop_string=stop_string,
            model=as_text(body.get("model")) or self._dialect.default_model,
            created=int(time.time()),
            prompt_tokens=prompt_tokens,
            choice=conversation.choice,
            offered_tools=bool(conversation.tools),
            include_usage=options.get("include_usage") is True,
            continuous_usage=options.get("continuous_usage_stats") is True,
        )

    def _seen(self, generation: Generation, body: JsonObject) -> Generation:
        """What is left of a generation after the engine's parsers."""
        if self._dialect.has_parser_flag and not self._settings.parser:
            if generation.choice != "auto" and generation.calls():
                return generation.as_text(self._dialect.forced_json(generation))
            return generation.unparsed()
        if body.get("tool_choice") == "none" and generation.calls():
            if self._dialect.choice_none_parses:
                return generation.without_calls()
            return generation.unparsed(reasoning=False)
        return generation

    def _sent(self, body: JsonObject, generation: Generation, *, chat: bool) -> Reply:
        if body.get("stream") is not True:
            return self._dialect.json(
                self._dialect.chat(generation) if chat else self._dialect.text(generation)
            )
        chunks = self._dialect.chat_chunks(generation) if chat else self._dialect.text_chunks(generation)
        return Reply(headers=self._dialect.stream_headers, body=events(chunks), framing="chunked")


def events(chunks: Iterator[JsonObject]) -> Iterator[str]:
    """The server-sent events of a stream, the closing one included."""
    yield from map(event, chunks)
    yield "data: [DONE]\n\n"


def stops_of(stop: object) -> list[str]:
    """The stop strings of a request."""
    stops = [stop] if isinstance(stop, str) else as_list(stop)
    return [text for text in stops[:MAX_STOPS] if isinstance(text, str)]


def prompt_characters(body: JsonObject) -> int:
    """Characters the chat template would make a prompt of, its own markers aside."""
    count = len(encoded(body["tools"])) if body.get("tools") else 0
    for message in map(as_object, as_list(body.get("messages"))):
        count += len(as_text(message.get("content")))
        for call in map(as_object, as_list(message.get("tool_calls"))):
            count += len(as_text(as_object(call.get("function")).get("arguments")))
    return count
