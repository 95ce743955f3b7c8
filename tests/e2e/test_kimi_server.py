"""`KimiServer` over real HTTP: scripts, failures, leaving clients, hostile input, shutdown."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import threading
import time
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import anyio
import pytest

from kimi_agent.testing import (
    Close,
    Delay,
    Hang,
    KimiServer,
    ReceivedRequest,
    Reply,
    Reset,
    adaptive_reply,
    chunk,
    json_reply,
    sse_reply,
    stream_reply,
    text_reply,
)

if TYPE_CHECKING:
    from collections.abc import Generator

CHAT = "/v1/chat/completions"
HELLO: dict[str, Any] = {"model": "kimi-simulated", "messages": [{"role": "user", "content": "Hello"}]}


@contextlib.contextmanager
def connection_to(server: KimiServer) -> Generator[http.client.HTTPConnection]:
    address = urlsplit(server.base_url)
    client = http.client.HTTPConnection(address.hostname or "", address.port, timeout=10)
    try:
        yield client
    finally:
        client.close()


def ask(server: KimiServer, body: object = HELLO, path: str = CHAT) -> tuple[int, bytes]:
    with connection_to(server) as client:
        client.request("POST", path, json.dumps(body))
        response = client.getresponse()
        return response.status, response.read()


@contextlib.contextmanager
def raw_socket(server: KimiServer) -> Generator[socket.socket]:
    address = urlsplit(server.base_url)
    with socket.create_connection((address.hostname, address.port or 0), timeout=10) as plug:
        yield plug


def read_to_end(plug: socket.socket) -> bytes:
    received = b""
    while data := plug.recv(65536):
        received += data
    return received


def request_bytes(body: bytes = b"{}", *headers: str) -> bytes:
    lines = [f"POST {CHAT} HTTP/1.1", "Host: x", f"Content-Length: {len(body)}", *headers, "", ""]
    return "\r\n".join(lines).encode() + body


def test_replies_are_played_in_order_and_then_the_script_is_exhausted() -> None:
    with KimiServer(replies=[json_reply({"n": 1}), Reply(status=418, body=b"\xff\x00")]) as server:
        assert ask(server) == (200, b'{"n":1}')
        assert ask(server, path="/v1/completions") == (418, b"\xff\x00")
        status, body = ask(server)

    assert status == 500
    assert b"the script is exhausted: 2 replies were played" in body


def test_the_last_reply_can_be_repeated() -> None:
    with KimiServer(replies=[json_reply(1), json_reply(2)], repeat_last=True) as server:
        assert [ask(server)[1] for _ in range(4)] == [b"1", b"2", b"2", b"2"]


def test_replies_can_come_from_a_function_of_the_request() -> None:
    def reply(request: ReceivedRequest) -> Reply:
        return json_reply({"said": request.body["messages"][0]["content"]})

    with KimiServer(replies=reply) as server:
        assert ask(server) == (200, b'{"said":"Hello"}')


def test_a_path_can_have_a_script_of_its_own() -> None:
    with KimiServer(replies={"/v1/odd": [json_reply("odd")]}) as server:
        assert ask(server, path="/v1/odd") == (200, b'"odd"')
        assert ask(server)[0] == 200


def test_a_bug_in_a_script_is_a_500_that_names_it(caplog: pytest.LogCaptureFixture) -> None:
    with KimiServer(replies=lambda request: request.body["nothing"]) as server:
        status, body = ask(server)

    assert (status, b"KeyError" in body) == (500, True)
    assert "no reply to POST /v1/chat/completions" in caplog.text


def test_requests_are_kept_as_they_arrived() -> None:
    with KimiServer(replies=adaptive_reply("hi")) as server:
        ask(server)
        [request] = server.requests

    assert (request.method, request.path, request.body) == ("POST", CHAT, HELLO)
    assert request.raw == json.dumps(HELLO).encode()
    assert request.headers["content-length"] == str(len(request.raw))


def test_streamed_bytes_arrive_as_the_script_has_them() -> None:
    with KimiServer(replies=[sse_reply(["data: a\n\n", b"data: \xe2\x82", b"\xac\n\n"])]) as server:
        assert ask(server) == (200, "data: a\n\ndata: €\n\n".encode())


def test_one_connection_carries_many_requests_of_both_kinds() -> None:
    replies = [json_reply(1), text_reply("x"), json_reply(2)]
    with KimiServer(replies=replies) as server, connection_to(server) as client:
        for _ in replies:
            client.request("POST", CHAT, "{}")
            response = client.getresponse()
            assert response.status == 200
            response.read()

        assert len({id(client.sock)}) == 1
        assert len(server.requests) == 3


def test_pipelined_requests_are_answered_one_after_the_other() -> None:
    with KimiServer(replies=[json_reply(1), json_reply(2)]) as server, raw_socket(server) as plug:
        plug.sendall(request_bytes() + request_bytes(b"{}", "Connection: close"))
        received = read_to_end(plug)

    assert received.index(b"\r\n\r\n1") < received.index(b"\r\n\r\n2")
    assert received.count(b"HTTP/1.1 200 OK") == 2


def test_a_chunked_request_body_is_understood() -> None:
    with KimiServer(replies=adaptive_reply("hi")) as server, connection_to(server) as client:
        client.request("POST", CHAT, iter([b'{"a"', b":1}"]), encode_chunked=True)
        assert client.getresponse().status == 200

        assert server.requests[0].body == {"a": 1}


def test_a_client_that_waits_for_100_continue_gets_it() -> None:
    with KimiServer(replies=json_reply(1)) as server, raw_socket(server) as plug:
        head, body = request_bytes(b"{}", "Expect: 100-continue", "Connection: close").split(b"\r\n\r\n")
        plug.sendall(head + b"\r\n\r\n")
        assert plug.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        plug.sendall(body)

        assert read_to_end(plug).startswith(b"HTTP/1.1 200 OK")


def test_reset_and_close_end_a_stream_in_different_ways() -> None:
    first = chunk({"content": "x"})
    script = [stream_reply([first, Delay(0.05), Reset()]), stream_reply([first, Close()])]
    with KimiServer(replies=script) as server:
        with pytest.raises(ConnectionResetError):
            ask(server)
        with pytest.raises(http.client.IncompleteRead):
            ask(server)

        assert server.disconnects == 0


def test_an_action_before_the_reply_happens_ahead_of_the_status_line() -> None:
    with (
        KimiServer(replies=[Reply(before=(Close(),))]) as server,
        pytest.raises(http.client.RemoteDisconnected),
    ):
        ask(server)


def test_a_body_that_ends_with_the_connection_may_lie_about_its_length() -> None:
    lying = Reply(headers={"content-length": "100"}, body=["short"], framing="close")
    with KimiServer(replies=[lying]) as server, pytest.raises(http.client.IncompleteRead):
        ask(server)


@pytest.mark.parametrize("pause", [Hang(), Delay(60)])
def test_a_client_that_leaves_is_noticed_at_once_even_during_a_pause(pause: Hang | Delay) -> None:
    with KimiServer(replies=[stream_reply([chunk({"content": "x"}), pause])]) as server:
        with raw_socket(server) as plug:
            plug.sendall(request_bytes())
            plug.recv(10)
            server.wait_for(lambda: server.requests_open == 1)
        server.wait_for(lambda: server.disconnects == 1)

        assert server.requests_open == 0


def test_a_client_that_reads_to_the_end_has_not_left() -> None:
    with KimiServer(replies=text_reply("one two three", cuts=1), chunk_delay_s=0.001) as server:
        for _ in range(5):
            ask(server)
        server.wait_for(lambda: server.requests_open == 0)

        assert server.disconnects == 0


def test_a_large_body_is_sent_whole_to_a_slow_reader_and_given_up_for_one_that_left() -> None:
    body = b"x" * 30_000_000
    with KimiServer(replies=Reply(body=body)) as server:
        assert ask(server) == (200, body)
        with raw_socket(server) as plug:
            plug.sendall(request_bytes())
            plug.recv(10)
        server.wait_for(lambda: server.disconnects == 1)


def test_requests_sent_ahead_wait_their_turn_however_large() -> None:
    ahead = request_bytes(b"[" + b"1," * 1_500_000 + b"1]", "Connection: close")
    first = stream_reply([chunk({"content": "x"}), Delay(0.1)])
    with KimiServer(replies=[first, json_reply("second")]) as server, raw_socket(server) as plug:
        plug.sendall(request_bytes() + ahead)

        assert read_to_end(plug).endswith(b'"second"')
        assert len(server.requests[1].body) == 1_500_001


def test_a_head_request_gets_no_body() -> None:
    with KimiServer() as server, connection_to(server) as client:
        client.request("HEAD", "/v1/models")
        response = client.getresponse()

        assert (response.status, response.read()) == (405, b"")


def test_leaving_before_the_answer_begins_is_counted() -> None:
    with KimiServer(replies=Reply(before=(Hang(),))) as server:
        with raw_socket(server) as plug:
            plug.sendall(request_bytes())
            server.wait_for(lambda: server.requests_open == 1)
        server.wait_for(lambda: server.disconnects == 1)


def test_waiting_in_vain_says_what_was_seen() -> None:
    with KimiServer() as server, pytest.raises(TimeoutError, match="0 requests arrived, 0 are open"):
        server.wait_for(lambda: server.disconnects == 1, timeout_s=0.01)


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"\x16\x03\x01\x02\x00\x01\r\n\r\n", 400),
        (b"GET / HTTP/3.0\r\n\r\n", 505),
        (b"POST / HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n", 413),
        (b"GET / HTTP/1.1\r\nx: " + b" a" * 50_000, 431),
        (request_bytes(b"[" * 100_000, "Connection: close"), 400),
        (request_bytes(b"\xff\xfe\xfd", "Connection: close"), 400),
        (request_bytes(b"[1]", "Connection: close"), 400),
        (request_bytes(b'{"messages": 7, "tools": {"a": []}}', "Connection: close"), 200),
        (request_bytes(b'{"messages": ["\\ud800"], "model": "\\ud800"}', "Connection: close"), 404),
    ],
)
def test_hostile_bytes_get_an_error_and_the_server_goes_on(sent: bytes, status: int) -> None:
    with KimiServer() as server:
        with raw_socket(server) as plug:
            plug.sendall(sent)
            received = read_to_end(plug)

        assert received.startswith(f"HTTP/1.1 {status} ".encode())
        assert b"Traceback" not in received
        assert ask(server)[0] == 200


def test_a_refused_client_that_goes_on_sending_can_read_why() -> None:
    with KimiServer(max_body_bytes=1000) as server, raw_socket(server) as plug:
        plug.sendall(request_bytes(b"x" * 400_000))

        assert b"413" in read_to_end(plug)


def test_shutdown_is_immediate_and_leaves_no_thread() -> None:
    before = threading.active_count()
    with (
        contextlib.ExitStack() as plugs,
        KimiServer(replies=text_reply("x", cuts=1), chunk_delay_s=60) as server,
    ):
        for _ in range(20):
            plugs.enter_context(raw_socket(server)).sendall(request_bytes())
        plugs.enter_context(raw_socket(server))
        server.wait_for(lambda: server.requests_open == 20)
        started = time.monotonic()
        server.close()

        assert time.monotonic() - started < 5
        assert threading.active_count() == before
        assert (server.requests_open, server.disconnects) == (0, 0)


def test_a_port_in_use_is_an_error_where_the_server_is_started() -> None:
    with KimiServer() as server:
        port = urlsplit(server.base_url).port or 0
        with pytest.raises(OSError, match="in use"):
            KimiServer(port=port).start()


def test_misuse_is_told_plainly() -> None:
    with pytest.raises(ValueError, match="known engines are 'vllm'"):
        KimiServer("unknown")
    with pytest.raises(RuntimeError, match="not running"):
        _ = KimiServer().base_url
    with KimiServer() as server, pytest.raises(RuntimeError, match="running already"):
        server.start()


@pytest.mark.anyio
async def test_async_code_on_any_loop_can_use_the_server() -> None:
    with anyio.fail_after(10):
        async with KimiServer(replies=Reply(before=(Hang(),))) as server:
            address = urlsplit(server.base_url)
            async with await anyio.connect_tcp(address.hostname or "", address.port or 0) as stream:
                await stream.send(request_bytes())
                await server.wait_for_async(lambda: server.requests_open == 1)
            await server.wait_for_async(lambda: server.disconnects == 1)


@pytest.mark.anyio
async def test_hundreds_of_streams_run_side_by_side() -> None:
    count = 300
    arrived: list[bytes] = []

    async with KimiServer(replies=text_reply("one two three", cuts=3), chunk_delay_s=0.05) as server:
        address = urlsplit(server.base_url)

        async def read_one() -> None:
            async with await anyio.connect_tcp(address.hostname or "", address.port or 0) as stream:
                await stream.send(request_bytes(b"{}", "Connection: close"))
                received = b""
                async for data in stream:
                    received += data
                arrived.append(received)

        with anyio.fail_after(30):
            async with anyio.create_task_group() as group:
                for _ in range(count):
                    group.start_soon(read_one)
                await server.wait_for_async(lambda: server.requests_open == count)

    assert len(arrived) == count
    assert all(received.endswith(b"0\r\n\r\n") for received in arrived)
