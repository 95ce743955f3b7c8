"""The checks in order, and who carries them out."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import anyio

from kimi_agent.doctor import access_checks, agent_checks, answer_checks, call_checks, text_checks
from kimi_agent.doctor.case import Case
from kimi_agent.doctor.deployment import Deployment
from kimi_agent.doctor.finding import Finding, Report, fail, skip
from kimi_agent.doctor.patience import Patience
from kimi_agent.doctor.remedies import advice_on, start_command, told
from kimi_agent.errors import KimiAgentError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from kimi_agent.doctor.case import Asked
    from kimi_agent.transport import Transport

DEFAULT_TIMEOUT_S: Final = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One line of the report."""

    name: str
    title: str
    run: Callable[[Case], Awaitable[Finding]]
    needs_answer: bool = False
    """Whether it makes no sense while plain answers do not work."""
    chat_only: bool = False
    """Whether it is about `/chat/completions`, so that raw prompts have no use for it."""


CHECKS: Final = (
    Check(name="reachable", title="reachable", run=access_checks.reachable),
    Check(name="api_key", title="API key", run=access_checks.api_key),
    Check(name="model", title="model name", run=access_checks.model),
    Check(name="engine", title="engine", run=access_checks.engine),
    Check(name="generation", title="generation", run=access_checks.generation),
    Check(name="context_limit", title="context limit", run=access_checks.context_limit),
    Check(name="plain_answer", title="plain answer", run=answer_checks.plain_answer),
    Check(
        name="streamed_answer", title="streamed answer", run=answer_checks.streamed_answer, needs_answer=True
    ),
    Check(name="tool_call", title="tool call", run=call_checks.tool_call, needs_answer=True, chat_only=True),
    Check(
        name="streamed_call",
        title="streamed call",
        run=call_checks.streamed_call,
        needs_answer=True,
        chat_only=True,
    ),
    Check(
        name="parallel_calls",
        title="parallel calls",
        run=call_checks.parallel_calls,
        needs_answer=True,
        chat_only=True,
    ),
    Check(name="call_ids", title="call ids", run=call_checks.call_ids, needs_answer=True, chat_only=True),
    Check(
        name="finish_reasons",
        title="finish reasons",
        run=call_checks.finish_reasons,
        needs_answer=True,
        chat_only=True,
    ),
    Check(
        name="tool_choice",
        title="tool_choice",
        run=call_checks.tool_choice,
        needs_answer=True,
        chat_only=True,
    ),
    Check(
        name="reasoning_replay",
        title="reasoning replay",
        run=text_checks.reasoning_replay,
        needs_answer=True,
        chat_only=True,
    ),
    Check(
        name="reasoning_field",
        title="reasoning field",
        run=text_checks.reasoning_field,
        needs_answer=True,
        chat_only=True,
    ),
    Check(
        name="raw_markers",
        title="raw markers",
        run=text_checks.raw_markers,
        needs_answer=True,
        chat_only=True,
    ),
    Check(
        name="think_tags", title="think tags", run=text_checks.think_tags, needs_answer=True, chat_only=True
    ),
    Check(name="output_limit", title="output limit", run=answer_checks.output_limit, needs_answer=True),
    Check(name="usage", title="usage", run=answer_checks.usage, needs_answer=True),
    Check(name="cached_tokens", title="cached tokens", run=answer_checks.cached_tokens, needs_answer=True),
    Check(name="request_fields", title="request fields", run=answer_checks.request_fields, needs_answer=True),
    Check(name="agent_loop", title="agent, two turns", run=agent_checks.agent_loop, needs_answer=True),
    Check(name="raw_completions", title="raw completions", run=agent_checks.raw_completions),
)


async def examine(
    asked: Asked,
    connect: Callable[[str], Transport],
    base_url: str,
    *,
    timeout_s: float = DEFAULT_TIMEOUT_S,
    wait_s: float = 0.0,
    on_start: Callable[[str], None] = lambda _: None,
    on_finding: Callable[[Finding], None] = lambda _: None,
    on_waiting: Callable[[str, float], None] = lambda _state, _seconds: None,
) -> Report:
    """Everything that the checks found out about the server at `base_url`.

    `connect` makes the transport to a base URL. Each probe may take `timeout_s` seconds, and a server that
    is still starting is waited for `wait_s` seconds. `on_start` is told the title of each check, `on_finding`
    its finding, and `on_waiting` what the server does and for how many seconds it has been waited for.
    """
    transport = connect(base_url)
    deployment = Deployment(
        transport=transport, base_url=str(getattr(transport, "base_url", base_url)), timeout_s=timeout_s
    )
    case = Case(asked=asked, deployment=deployment, patience=Patience(wait_s, on_waiting), connect=connect)
    findings: list[Finding] = []
    try:
        for check in CHECKS:
            on_start(check.title)
            started = anyio.current_time()
            finding = await _outcome(check, case)
            finding = replace(
                finding, check=check.name, title=check.title, duration_s=anyio.current_time() - started
            )
            findings.append(finding)
            on_finding(finding)
    finally:
        with anyio.CancelScope(shield=True):
            await case.deployment.transport.aclose()
    return _report(case, findings)


async def _outcome(check: Check, case: Case) -> Finding:
    """The finding of one check; whatever goes wrong in it is a finding too."""
    if case.stopped:
        return skip(case.stopped)
    if check.chat_only and case.asked.api == "completions":
        return skip("about chat, which api='completions' does not use")
    if check.needs_answer and case.unanswered:
        return skip(case.unanswered)
    try:
        return await check.run(case)
    except KimiAgentError as error:
        return fail(told(error), advice_on(error))
    except Exception as error:  # noqa: BLE001 - one check gone wrong must not cost the others
        return fail(f"this check itself failed: {type(error).__name__}: {error}", "please report it")


def _report(case: Case, findings: list[Finding]) -> Report:
    deployment = case.deployment
    wants_flags = any(finding.wants_flags and finding.verdict == "fail" for finding in findings)
    command = ""
    if wants_flags:
        command = start_command(
            deployment.dialect,
            deployment.generation,
            case.weights,
            text_format=case.text_format,
            reasons=case.reasons,
        )
    return Report(
        base_url=deployment.base_url,
        api=case.asked.api,
        model=deployment.model,
        engine=deployment.engine.name if deployment.engine else None,
        generation=deployment.generation.name if deployment.model else None,
        context_tokens=deployment.context_tokens,
        findings=tuple(findings),
        start_command=command,
    )
