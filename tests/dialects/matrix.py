"""Writes what is sent for one fixed conversation to every engine by every generation.

    python -m tests.dialects.matrix

One file a pair, `<generation>/<engine>.json`. Its entry `plain` holds the whole body that a server received
and what the run reported; of the other ways to ask it holds what differs from that body, and whole again the
body of raw completions. Read the changes before you keep them.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import openai

from kimi_agent import KimiAgent, ModelOptions, RunResult, Tool
from kimi_agent.dialects import ENGINES, GENERATIONS
from kimi_agent.testing import KimiServer, ReceivedRequest, Reply, adaptive_reply, json_reply

HERE = Path(__file__).parent
LONGEST_S = 60
MODELS = {
    "k2": "moonshotai/Kimi-K2-Instruct-0905",
    "k2-thinking": "moonshotai/Kimi-K2-Thinking",
    "k2.5": "moonshotai/Kimi-K2.5",
    "k2.6": "moonshotai/Kimi-K2.6",
    "k2.7": "moonshotai/Kimi-K2.7-Code",
    "k3": "moonshotai/Kimi-K3",
}
HOSTED_MODELS = {
    "k2": "kimi-k2-0905-preview",
    "k2-thinking": "kimi-k2-thinking",
    "k2.5": "kimi-k2.5",
    "k2.6": "kimi-k2.6",
    "k2.7": "kimi-k2.7-code",
    "k3": "kimi-k3",
}

# A history that another client might have kept: ids of its own, results in the wrong order, a name on one.
HISTORY: list[dict[str, Any]] = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Weather in Oslo and Lima?"},
    {
        "role": "assistant",
        "content": None,
        "reasoning_content": "Two cities, so two calls.",
        "tool_calls": [
            {
                "id": "call_a1",
                "type": "function",
                "function": {"name": "weather.now", "arguments": '{"city": "Oslo"}'},
            },
            {
                "id": "call_b2",
                "type": "function",
                "function": {"name": "weather.now", "arguments": '{"city": "Lima"}'},
            },
        ],
    },
    {"role": "tool", "tool_call_id": "call_b2", "content": "19 C", "name": "weather.now"},
    {"role": "tool", "tool_call_id": "call_a1", "content": "4 C"},
    {"role": "assistant", "content": "Oslo 4 C, Lima 19 C.", "reasoning": "Now I know both."},
]
PROMPT = "And in Rome?"


def _weather(_: dict[str, Any]) -> str:
    return "21 C"


TOOL = Tool(
    name="weather.now",
    description="Weather of a city.",
    parameters={
        "type": "object",
        "properties": {"city": {"type": "string", "description": "Its name."}},
        "required": ["city"],
    },
    function=_weather,
)


@dataclass(frozen=True, kw_only=True)
class Variant:
    """One way to ask."""

    options: ModelOptions
    streamed: bool = False
    api: str = "chat"


VARIANTS = {
    "plain": Variant(options=ModelOptions()),
    "streamed": Variant(options=ModelOptions(), streamed=True),
    "limit": Variant(options=ModelOptions(max_output_tokens=1000)),
    "thinking": Variant(options=ModelOptions(thinking=True)),
    "thinking, all kept": Variant(options=ModelOptions(thinking=True, keep_reasoning=True)),
    "no thinking": Variant(options=ModelOptions(thinking=False)),
    "effort": Variant(options=ModelOptions(effort="high")),
    "sampling": Variant(options=ModelOptions(temperature=0.2, top_p=0.9, seed=7)),
    "forced call": Variant(options=ModelOptions(tool_choice="weather.now", parallel_tool_calls=False)),
    "completions": Variant(options=ModelOptions(max_output_tokens=1000), api="completions"),
}


def main() -> None:
    """Write all files."""
    for (generation, engine), text in anyio.run(matrix).items():
        path = path_of(generation, engine)
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
        sys.stdout.write(f"{path.relative_to(HERE)}\n")


def path_of(generation: str, engine: str) -> Path:
    """Where the bodies of a pair are kept."""
    return HERE / generation / f"{engine}.json"


async def matrix() -> dict[tuple[str, str], str]:
    """The text of the file for every generation and engine."""
    with anyio.fail_after(LONGEST_S):
        async with (
            KimiServer(replies=_answer) as server,
            openai.AsyncOpenAI(base_url=server.base_url, api_key="none", max_retries=0) as client,
        ):
            return {
                (generation, engine): await _page(server, client, generation, engine)
                for generation in GENERATIONS
                for engine in ENGINES
            }


async def _page(server: KimiServer, client: openai.AsyncOpenAI, generation: str, engine: str) -> str:
    page: dict[str, Any] = {}
    for name, variant in VARIANTS.items():
        model = (HOSTED_MODELS if engine == "moonshot" else MODELS)[generation]
        options: dict[str, Any] = {"api": variant.api, "options": variant.options, "engine": engine}
        agent = KimiAgent(model, tools=[TOOL], client=client, **options)
        result = await _asked(agent, streamed=variant.streamed)
        page[name] = _entry(server.requests[-1], result, page.get("plain"))
    return json.dumps(page, indent=2, ensure_ascii=False) + "\n"


async def _asked(agent: KimiAgent, *, streamed: bool) -> RunResult:
    if not streamed:
        return await agent.run(PROMPT, history=HISTORY)
    async with agent.stream(PROMPT, history=HISTORY) as run:
        async for _ in run:
            pass
    return run.result


def _entry(sent: ReceivedRequest, result: RunResult, plain: dict[str, Any] | None) -> dict[str, Any]:
    repairs = [f"{repair.kind}, {repair.where}: {repair.detail}" for repair in result.repairs]
    if plain is None or plain["path"] != sent.path:
        return {"path": sent.path, "body": sent.body, "repairs": repairs}
    before: dict[str, Any] = plain["body"]
    entry: dict[str, Any] = {
        "with": {name: value for name, value in sent.body.items() if before.get(name, sent) != value},
        "without": [name for name in before if name not in sent.body],
        "more repairs": [repair for repair in repairs if repair not in plain["repairs"]],
    }
    assert [repair for repair in plain["repairs"] if repair not in repairs] == []
    return {name: value for name, value in entry.items() if value}


def bodies(page: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The whole body of every entry of a file."""
    plain = page["plain"]["body"]
    return {name: entry.get("body") or _changed(plain, entry) for name, entry in page.items()}


def _changed(plain: dict[str, Any], entry: dict[str, Any]) -> dict[str, Any]:
    gone = entry.get("without", [])
    return {**{name: value for name, value in plain.items() if name not in gone}, **entry.get("with", {})}


def _answer(request: ReceivedRequest) -> Reply:
    """An answer in the form that was asked for."""
    if "prompt" not in request.body:
        return adaptive_reply("21 C.")(request)
    k3, thinks = "<|open|>" in request.body["prompt"], request.body["prompt"].endswith("<think>")
    text = f"{'</think>' if thinks else ''}21 C."
    if k3:
        text = "<|close|>think<|sep|><|open|>response<|sep|>21 C.<|close|>response<|sep|>"
    choice = {"index": 0, "text": text, "finish_reason": "stop"}
    return json_reply({"object": "text_completion", "choices": [choice]})


if __name__ == "__main__":
    main()
