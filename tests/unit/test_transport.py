"""How bytes travel."""

from __future__ import annotations

from kimi_agent.transport import END_OF_REPLY, Request


def test_a_request_can_be_looked_into() -> None:
    assert Request(body=b'{"model":"kimi-k2"}').decoded() == {"model": "kimi-k2"}
    assert Request(body=b"{}").path == "/chat/completions"


def test_the_end_of_a_reply_is_no_chunk_of_any_server() -> None:
    assert "choices" not in END_OF_REPLY
