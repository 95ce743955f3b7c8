"""Bytes a client sends, read as requests."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kimi_agent.testing.http_parser import RequestParser, RequestRefusedError

if TYPE_CHECKING:
    from kimi_agent.testing.received import ReceivedRequest

PLAIN = (
    b"POST /v1/completions?a=b HTTP/1.1\r\nHost: x\r\nX-Two: a\r\nx-two: b\r\nContent-Length: 7\r\n\r\n"
    b'{"a":1}'
)
CHUNKED = (
    b"POST /v1/completions HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
    b'3;note=x\r\n{"a\r\n04\r\n":1}\r\n0\r\nTrailer: y\r\n\r\n'
)
STREAM = PLAIN + CHUNKED + b"\r\n" + PLAIN


def read_all(pieces: list[bytes]) -> list[tuple[ReceivedRequest, bool]]:
    parser = RequestParser()
    found: list[tuple[ReceivedRequest, bool]] = []
    for piece in pieces:
        parser.feed(piece)
        while (whole := parser.next_request()) is not None:
            found.append(whole)
    return found


def refused(data: bytes, max_body_bytes: int = 1000) -> RequestRefusedError:
    parser = RequestParser(max_body_bytes)
    parser.feed(data)
    with pytest.raises(RequestRefusedError) as caught:
        parser.next_request()
    return caught.value


def test_a_request_is_read_with_its_query_headers_and_json() -> None:
    [(request, keep_alive)] = read_all([PLAIN])

    assert (request.method, request.path, request.query) == ("POST", "/v1/completions", "a=b")
    assert request.headers == {"host": "x", "x-two": "a, b", "content-length": "7"}
    assert (request.body, request.raw, keep_alive) == ({"a": 1}, b'{"a":1}', True)


def test_a_chunked_body_is_joined_and_its_trailer_dropped() -> None:
    [(request, _)] = read_all([CHUNKED])

    assert (request.body, request.raw) == ({"a": 1}, b'{"a":1}')


@given(cuts=st.lists(st.integers(0, len(STREAM)), max_size=30))
def test_cutting_the_bytes_elsewhere_changes_nothing(cuts: list[int]) -> None:
    edges = [0, *sorted(cuts), len(STREAM)]

    assert read_all([STREAM[a:b] for a, b in pairwise(edges)]) == read_all([STREAM])
    assert len(read_all([STREAM])) == 3


@given(st.binary(max_size=300), st.sampled_from([b"", PLAIN[:-7], CHUNKED[:-20], b"GET / HTTP/1.1\r\n"]))
def test_any_bytes_are_a_request_an_unfinished_one_or_refused(data: bytes, start: bytes) -> None:
    statuses: set[int] = set()
    try:
        read_all([start + data])
    except RequestRefusedError as refusal:
        statuses.add(refusal.status)

    assert statuses <= {400, 413, 431, 501, 505}


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"NONSENSE\r\n\r\n", 400),
        (b"GET  / HTTP/1.1\r\n\r\n", 400),
        (b"GET / HTTP/2.0\r\n\r\n", 505),
        (b"GET / HTTP/1.1\r\nno colon\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\n folded: x\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nName : x\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nname: a\0b\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nContent-Length: +7\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", 501),
        (b"POST / HTTP/1.1\r\nContent-Length: 1001\r\n\r\n", 413),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3e9\r\n", 413),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", 400),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nabc", 400),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n" + b"0" * 2000, 400),
        (b"GET / HTTP/1.1\r\nx: " + b"a" * 70_000, 431),
    ],
)
def test_malformed_and_oversized_requests_are_refused_with_their_status(head: bytes, status: int) -> None:
    assert refused(head).status == status


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", True),
        (b"GET / HTTP/1.1\r\nConnection: close\r\n\r\n", False),
        (b"GET / HTTP/1.0\r\n\r\n", False),
        (b"GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n", True),
    ],
)
def test_a_connection_stays_open_as_the_client_asked(head: bytes, expected: bool) -> None:
    [(_, keep_alive)] = read_all([head])

    assert keep_alive is expected


def test_a_body_that_is_no_json_is_kept_raw() -> None:
    for raw in (b"\xff\xfe", b"[" * 50_000, b"{", b""):
        [(request, _)] = read_all([b"POST / HTTP/1.1\r\nContent-Length: %d\r\n\r\n%b" % (len(raw), raw)])

        assert (request.body, request.raw) == (None, raw)
