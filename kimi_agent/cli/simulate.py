"""`kimi-agent simulate`: a simulated engine to point a client at."""

import argparse
import errno
import sys
import threading
from typing import TYPE_CHECKING

from kimi_agent.testing import KimiServer
from kimi_agent.testing.engines import DIALECTS
from kimi_agent.testing.replies import DEFAULT_MODEL

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]  # noqa: SLF001 - argparse has no public name

MAX_PORT = 65535


def add_to(subparsers: "Subparsers") -> None:
    """Add the command's arguments."""
    parser = subparsers.add_parser(
        "simulate",
        help="serve a simulated Kimi model on this machine",
        description=(
            "Serve a simulated Kimi model: rules and no neural network, behind a real HTTP server that "
            "speaks the dialect of the engine you name. Stop it with Ctrl-C."
        ),
        epilog=(
            "example:\n"
            "  kimi-agent simulate --engine vllm --port 8000\n"
            "  KIMI_BASE_URL=http://127.0.0.1:8000/v1 python examples/quickstart.py"
        ),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--engine", choices=list(DIALECTS), default="vllm", help="whose dialect (default: vllm)"
    )
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: 127.0.0.1)")
    parser.add_argument("--port", type=port_number, default=8000, help="0 takes a free one (default: 8000)")
    parser.add_argument("--model", default=DEFAULT_MODEL, help=f"served model id (default: {DEFAULT_MODEL})")
    parser.add_argument("--no-parser", action="store_true", help="as if started without a tool-call parser")
    parser.add_argument("--thinking", action="store_true", help="reason before answering")
    parser.add_argument(
        "--chunk-delay-ms", type=milliseconds, default=0.0, metavar="N", help="pause between streamed pieces"
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Serve until Ctrl-C; the exit status is 1 if the address cannot be had."""
    server = KimiServer(
        arguments.engine,
        parser=not arguments.no_parser,
        model=arguments.model,
        host=arguments.host,
        port=arguments.port,
        thinking=arguments.thinking,
        chunk_delay_s=arguments.chunk_delay_ms / 1000,
        keep_requests=0,  # nobody asks, and a server may run for days
    )
    try:
        with server:
            print(f"simulated {arguments.engine} on {server.base_url} (Ctrl-C stops it)")
            print(f"export KIMI_BASE_URL={server.base_url}", flush=True)
            threading.Event().wait()
    except KeyboardInterrupt:
        return 0
    except OSError as error:
        address = f"{arguments.host}:{arguments.port}"
        reason = f"cannot listen on {address}: {error.strerror or error}"
        if error.errno == errno.EADDRINUSE:
            reason = f"{address} is in use; choose another with --port (0 takes a free one)"
        print(f"kimi-agent simulate: {reason}", file=sys.stderr)
        return 1
    return 0


def port_number(text: str) -> int:
    """A port from 0 to 65535."""
    is_short_number = text.isascii() and text.isdigit() and len(text) <= len(str(MAX_PORT))
    if not is_short_number or int(text) > MAX_PORT:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port; give a number from 0 to {MAX_PORT}")
    return int(text)


def milliseconds(text: str) -> float:
    """A number of milliseconds, 0 or more."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of milliseconds, 0 or more")
    return value
