"""Checks with the agent itself: two turns with a tool, by chat and by raw prompts."""

from __future__ import annotations

from collections import Counter
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, Literal

import anyio

from kimi_agent.agent import KimiAgent
from kimi_agent.doctor.case import ONE_CITY, OTHER_CITY, WEATHER
from kimi_agent.doctor.deployment import MAX_REPLY_BYTES
from kimi_agent.doctor.finding import fail, ok, skip, warn
from kimi_agent.doctor.remedies import cut, quoted, told
from kimi_agent.errors import KimiAgentError, TransportStatusError
from kimi_agent.options import RunLimits
from kimi_agent.tools import Tool

if TYPE_CHECKING:
    from kimi_agent.doctor.case import Case
    from kimi_agent.doctor.finding import Finding
    from kimi_agent.json_types import JsonObject
    from kimi_agent.results import RunResult

_MAX_STEPS: Final = 4
# All that raw prompts bring is raw text.
_EXPECTED: Final = {"chat": frozenset[str](), "completions": frozenset({"raw_tool_calls"})}
_NOT_OFFERED: Final = frozenset(
    {HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED, HTTPStatus.NOT_IMPLEMENTED, HTTPStatus.GONE}
)


async def agent_loop(case: Case) -> Finding:
    """Two turns of the agent with a tool, the first one streamed, the second with the first as history."""
    first, second = await _two_turns(case, case.asked.api)
    return _judged(first, second, expected=_EXPECTED[case.asked.api])


async def raw_completions(case: Case) -> Finding:
    """Whether the agent works by raw prompts too, as a way out where chat does not."""
    if case.asked.api == "completions":
        return skip("it is what was checked above")
    try:
        first, second = await _two_turns(case, "completions")
    except KimiAgentError as error:
        is_absent = isinstance(error, TransportStatusError) and error.status_code in _NOT_OFFERED
        if is_absent and case.tools_work:
            return skip(f"not offered here ({told(error)}), and not needed")
        return warn(f"api='completions' does not work: {told(error)}")
    found = _judged(first, second, expected=_EXPECTED["completions"])
    is_guess = case.rendered is not case.deployment.generation
    guess = f", with prompts as for {case.rendered.name}" if is_guess else ""
    if found.verdict == "fail":
        return warn(f"api='completions' does not work: {found.seen}")
    return ok(f"api='completions' works: {found.seen}{guess}")


async def _two_turns(case: Case, api: Literal["chat", "completions"]) -> tuple[RunResult, RunResult]:
    """The results of both turns.

    Raises:
        KimiAgentError: a turn could not be finished.
    """
    deployment = case.deployment
    agent = KimiAgent(
        deployment.model,
        tools=[
            Tool(
                name=WEATHER.name,
                description=WEATHER.description,
                parameters=WEATHER.parameters,
                function=_report,
            )
        ],
        transport=deployment.transport,
        engine=deployment.dialect,
        generation=deployment.generation if api == "chat" else case.rendered,
        api=api,
        options=deployment.options,
        limits=RunLimits(
            max_steps=_MAX_STEPS,
            max_retries=1,
            max_retry_delay_s=deployment.timeout_s,
            loading_timeout_s=deployment.timeout_s,
            request_timeout_s=deployment.timeout_s,
            max_reply_bytes=MAX_REPLY_BYTES,
        ),
    )
    try:
        with anyio.fail_after(2 * deployment.timeout_s):
            async with agent.stream(ONE_CITY) as run:
                async for _ in run:
                    pass
            first = run.result
            return first, await agent.run(OTHER_CITY, history=first.messages)
    except TimeoutError:
        raise deployment.late() from None


def _report(arguments: JsonObject) -> JsonObject:
    """The weather, the same everywhere."""
    del arguments
    return {"temp_c": 18, "sky": "cloudy"}


def _judged(first: RunResult, second: RunResult, *, expected: frozenset[str]) -> Finding:
    """The finding about two turns, `expected` being the kinds of repair that are no fault."""
    calls = [*first.tool_calls, *second.tool_calls]
    if not first.tool_calls:
        seen = f"answered without its tool: {quoted(first.text)}"
        return fail(seen, "see what is said about tool calls above")
    requests = first.usage.requests + second.usage.requests
    seen = f"2 turns, {len(calls)} call{'s' * (len(calls) != 1)}, {requests} requests"
    repairs = [*first.repairs, *second.repairs]
    kinds = Counter(repair.kind for repair in repairs if repair.kind not in expected)
    if kinds:
        listed = ", ".join(f"{count} {kind}" for kind, count in kinds.items())
        seen = f"{seen}; works with repairs: {listed}"
        return warn(seen, "put right what is wrong above, and none is needed")
    wrong = next((call for call in calls if call.is_error), None)
    if wrong is not None:
        return warn(f"{seen}, one of them wrong: {cut(wrong.result, 80)}", "nothing to do: the model is told")
    return ok(f"{seen}, no repairs")
