"""The field cases about histories, dialects, refusals and K3, through the public API over HTTP.

The scripted server refuses as the case's server did, for as long as a request is what it refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from kimi_agent import KimiAgent, KimiAgentError, ModelOptions, RunLimits, errors
from kimi_agent.testing import KimiServer, adaptive_reply, error_reply, json_reply, tool_call
from tests.e2e.dialects import (
    ANSWER,
    ASKED,
    USER,
    Body,
    Refusing,
    agent_on,
    call,
    calling,
    exchange,
    holds_no_null,
    run_of,
    told,
    without,
)
from tests.e2e.field_cases import (
    ERRORS,
    PROMPT,
    RETRIES,
    Case,
    Outcome,
    Way,
    differences,
    load,
    options_of,
    tools_of,
    ways_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from kimi_agent.testing import Reply

pytestmark = pytest.mark.anyio

KINDS = frozenset(
    {"history_ids", "reasoning", "messages", "schema_tools", "errors_transport", "features", "k3_xtml"}
)
BY_ID = {case.id: case for case in load() if case.kind in KINDS}

LATER = (
    ("KF-J01", "rewriting schemas for Moonshot's dialect is the work of the tools change"),
    ("KF-M04", "images that tools return are the work of the tools change"),
)
"""Cases of these kinds that are not due yet, with the reason."""

TESTED: set[str] = set()
"""Cases that a test of this module names."""

STREAMED = pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
WEATHER = {
    "type": "function",
    "function": {"name": "get_weather", "parameters": {"type": "object", "properties": {}}},
}
DYNAMIC = {"role": "system", "tools": [WEATHER]}


@pytest.fixture
def anyio_backend() -> str:
    """One event loop is enough here: what is sent does not depend on it."""
    return "asyncio"


def the(name: str) -> Case:
    """A case, noted as tested."""
    return BY_ID[name]


def refusing(case: Case, is_refused: Callable[[Body], bool]) -> Refusing:
    """A server that answers the case's error to what the case's server refused."""
    answer = case.input["server_error"]
    return Refusing(is_refused, answer.get("message", "Bad Request"), answer["status"])


# --- replies: K3's text, ids that repeat, tools of messages, lost connections ----------------------------

REPLIES = [
    pytest.param(case, way, id=f"{case.id}-{way.name}")
    for case in BY_ID.values()
    if any(name in case.input for name in ("text", "message", "chunks"))
    for way in ways_of(case)
]
NAME_SENT = {"KF-C08": "r_d"}
"""Where a name goes by another one on the wire."""


@pytest.mark.parametrize(("case", "way"), REPLIES)
async def test_a_user_gets_from_a_reply_what_the_case_expects(case: Case, way: Way) -> None:
    outcome = Outcome()
    model = "kimi-k3" if case.kind in ("k3_xtml", "features") else "kimi-k2"
    limits = RunLimits(max_retries=RETRIES, max_retry_delay_s=0)
    async with agent_on(way.replies, repeat_last="error" in case.expected) as (server, _):
        agent = KimiAgent(
            model,
            tools=tools_of(case, outcome.executed) or tools_of(BY_ID["KF-C03"], outcome.executed)[:1],
            base_url=server.base_url,
            options=options_of(case),
            limits=limits,
        )
        async with agent:
            try:
                async with agent.stream(PROMPT) if way.streamed else _Whole(agent) as run:
                    async for each in run:
                        outcome.events.append(each)
                outcome.result, outcome.text = run.result, run.text
            except KimiAgentError as error:
                outcome.error = error
        outcome.requests = server.requests

    found = differences(case, way, outcome)
    if case.id in NAME_SENT:
        found = [each for each in found if not (each.startswith("names sent") and NAME_SENT[case.id] in each)]
    assert not found, "\n".join(["", *found])
