"""Server-sent events: bytes → the data of each event."""

from __future__ import annotations

import pytest

from kimi_agent._core.sse import SseDecoder
from kimi_agent.errors import ProtocolError


def decoded(*pieces: bytes, max_event_bytes: int = 1000) -> list[bytes]:
    decoder = SseDecoder(max_event_bytes=max_event_bytes)
    return [data for piece in pieces for data in decoder.feed(piece)] + decoder.close()


@pytest.mark.parametrize("newline", [b"\n", b"\r\n"])
def test_each_event_gives_its_data(newline: bytes) -> None:
    stream = b"data: a%b%bdata:b%b%b".replace(b"%b", newline)

    assert decoded(stream) == [b"a", b"b"]


def test_data_comes_as_soon_as_its_event_is_complete() -> None:
    decoder = SseDecoder(max_event_bytes=1000)

    assert decoder.feed(b"data: a\n") == []
    assert decoder.feed(b"\nda") == [b"a"]
    assert decoder.feed(b"ta: b") == []
    assert decoder.feed(b"\n\n") == [b"b"]


def test_comments_and_other_fields_are_passed_over() -> None:
    assert decoded(b": keep alive\n\nevent: x\nid: 7\nretry: 1\ndata: a\n\nid: 8\n\ndata\n\n") == [b"a"]


def test_several_lines_of_data_are_joined() -> None:
    assert decoded(b"data: a\ndata:\ndata: b\n\n") == [b"a\n\nb"]


def test_only_one_space_is_taken_off() -> None:
    assert decoded(b"data:  a \n\n") == [b" a "]


def test_the_last_event_may_lack_its_end() -> None:
    assert decoded(b"data: a\n\ndata: b") == [b"a", b"b"]
    assert decoded(b"data: a\r\n") == [b"a"]
    assert decoded(b"") == []


def test_a_line_end_may_be_cut_in_two() -> None:
    assert decoded(b"data: a\r", b"\n\r", b"\n") == [b"a"]


@pytest.mark.parametrize("stream", [b"x" * 200, b"data: " + b"x" * 200 + b"\n", b"data: x\n" * 200])
def test_an_event_larger_than_the_limit_is_refused(stream: bytes) -> None:
    with pytest.raises(ProtocolError, match=r"more than 100 bytes.*max_reply_bytes"):
        decoded(stream, max_event_bytes=100)


def test_data_that_is_empty_is_no_event() -> None:
    assert decoded(b"data:\n\ndata: a\n\ndata:\ndata:\n\n") == [b"a"]


@pytest.mark.parametrize("pieces", [[b"\xef\xbb\xbfdata: a\n\n"], [b"\xef", b"\xbb", b"\xbfdata: a\n\n"]])
def test_a_byte_order_mark_is_passed_over(pieces: list[bytes]) -> None:
    assert decoded(*pieces) == [b"a"]


def test_empty_lines_of_data_count_too() -> None:
    with pytest.raises(ProtocolError):
        decoded(b"data:\n" * 200, max_event_bytes=100)


def test_many_small_events_are_not_one_large_one() -> None:
    assert decoded(b"data: x\n\n" * 200, max_event_bytes=100) == [b"x"] * 200
