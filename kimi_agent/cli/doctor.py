"""`kimi-agent doctor`: what works on a server, what does not, and what to do about it."""

import argparse
import io
import json
import logging
import math
import os
import sys
import time
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import anyio

from kimi_agent.dialects import ENGINES, GENERATIONS

if TYPE_CHECKING:
    from kimi_agent._runtime.connection import Connection
    from kimi_agent.doctor import Finding, Report
    from kimi_agent.transport import Transport

    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]  # noqa: SLF001 - argparse has no public name

DEFAULT_TIMEOUT_S = 120.0
NO_KEY = "none"
"""What is sent where no key is given, as `KimiAgent` does it."""
UNHEALTHY = 1
USAGE = 2
INTERRUPTED = 130  # as shells have it: 128 and the number of SIGINT
REPEAT_S = 15.0
"""Seconds between two lines that say the same about a server that is waited for."""


def add_to(subparsers: "Subparsers") -> None:
    """Add the command's arguments."""
    parser = subparsers.add_parser(
        "doctor",
        help="check a server as a person would by hand",
        description=(
            "Check a server that serves a Kimi model: some twenty-five small requests, and a look at\n"
            "what really comes back. Prints one line a check, and what to do where something is wrong.\n"
            "The exit status is 0 if all that matters works, 1 if something does not, and 2 if the\n"
            "command cannot be run as given."
        ),
        epilog=(
            "example:\n"
            "  kimi-agent doctor --base-url http://127.0.0.1:8000/v1 --wait 600\n\n"
            "Without --base-url, --model and --api-key the same environment variables are read as by\n"
            "KimiAgent: KIMI_BASE_URL, KIMI_MODEL, KIMI_API_KEY, then MOONSHOT_... and OPENAI_...\n"
            "Other users of this machine can see arguments; keys are better kept in KIMI_API_KEY."
        ),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--base-url", metavar="URL", help="root of the API, e.g. http://127.0.0.1:8000/v1")
    parser.add_argument("--model", metavar="ID", help="served model id (default: the server's only model)")
    parser.add_argument("--api-key", metavar="KEY", help="key to the server, if it wants one")
    for option, names, what in (
        ("--engine", ENGINES, "what serves the model"),
        ("--generation", GENERATIONS, "which Kimi the model is"),
    ):
        parser.add_argument(
            option,
            choices=["auto", *names],
            default="auto",
            metavar="NAME",
            help=f"{what}: auto, {', '.join(names)} (default: auto)",
        )
    parser.add_argument(
        "--api", choices=["chat", "completions"], default="chat", help="what you use it by (default: chat)"
    )
    parser.add_argument(
        "--wait", type=seconds, default=0.0, metavar="SECONDS", help="wait for a server that is starting"
    )
    parser.add_argument(
        "--timeout",
        type=seconds_above_zero,
        default=DEFAULT_TIMEOUT_S,
        metavar="SECONDS",
        help=f"what one request may take (default: {DEFAULT_TIMEOUT_S:g})",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of the table")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Examine the server, print what was found, and return the exit status."""
    # Late, here and below, so that the other commands start quickly.
    from kimi_agent._core.redaction import without_secrets  # noqa: PLC0415
    from kimi_agent._runtime.connection import connection  # noqa: PLC0415
    from kimi_agent.errors import ConfigurationError  # noqa: PLC0415

    try:
        target = connection(arguments.base_url, arguments.api_key)
    except ConfigurationError as error:
        told = str(error).replace("base_url=", "--base-url").replace("api_key=", "--api-key")
        print(f"kimi-agent doctor: {without_secrets(told)}", file=sys.stderr)
        return USAGE
    # What the agent would log is in the report.
    logging.getLogger("kimi_agent").addHandler(logging.NullHandler())
    accept_any_letter(sys.stdout)
    progress = Progress()
    try:
        report = anyio.run(partial(examined, arguments, target, progress))
    except KeyboardInterrupt:
        progress.clear()
        print("kimi-agent doctor: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        # The reader has seen enough; nothing may be flushed into the closed pipe at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return UNHEALTHY
    return 0 if report.is_healthy else UNHEALTHY


async def examined(arguments: argparse.Namespace, target: "Connection", progress: "Progress") -> "Report":
    """The report on the server at `target`, which is printed as well."""
    from kimi_agent._runtime.connection import model_from_environment  # noqa: PLC0415
    from kimi_agent._runtime.openai_transport import OpenAITransport  # noqa: PLC0415
    from kimi_agent.doctor import Asked, examine  # noqa: PLC0415
    from kimi_agent.doctor.table import Table  # noqa: PLC0415

    def connect(base_url: str) -> "Transport":
        return OpenAITransport.connect(base_url=base_url, api_key=target.api_key)

    table = Table(colour=shows_colour())

    def show(finding: "Finding") -> None:
        progress.clear()
        if not arguments.json:
            for line in table.rows(finding):
                print(line, flush=True)

    asked = Asked(
        model=arguments.model or model_from_environment(),
        engine=ENGINES.get(arguments.engine),
        generation=GENERATIONS.get(arguments.generation),
        api=arguments.api,
        has_key=target.api_key != NO_KEY,
    )
    report = await examine(
        asked,
        connect,
        target.base_url,
        timeout_s=arguments.timeout,
        wait_s=arguments.wait,
        on_start=progress.checking,
        on_finding=show,
        on_waiting=partial(progress.waiting, wait_s=arguments.wait),
    )
    if arguments.json:
        print(json.dumps(report.to_json(), indent=2))
    else:
        print("\n".join(table.closing(report)), flush=True)
    return report


class Progress:
    """What is going on, on standard error: one line that is overwritten, or now and then a line."""

    def __init__(self) -> None:
        self._is_terminal = sys.stderr.isatty()
        self._told = ""
        self._told_at = -math.inf

    def checking(self, title: str) -> None:
        """A check has begun."""
        if self._is_terminal:
            print(f"\r\x1b[K...   {title}", end="", file=sys.stderr, flush=True)

    def waiting(self, state: str, waited_s: float, *, wait_s: float) -> None:
        """The server is not there yet."""
        line = f"waiting for the server: {state} ({waited_s:.0f} of {wait_s:g} s)"
        now = time.monotonic()
        if self._is_terminal:
            print(f"\r\x1b[K{line}", end="", file=sys.stderr, flush=True)
        elif state != self._told or now - self._told_at >= REPEAT_S:
            self._told, self._told_at = state, now
            print(line, file=sys.stderr, flush=True)

    def clear(self) -> None:
        """Take the line off the terminal."""
        if self._is_terminal:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def accept_any_letter(stream: object) -> None:
    """Make `stream` write a question mark for letters it has not: a model may say anything."""
    if isinstance(stream, io.TextIOWrapper):
        wrapper = cast("io.TextIOWrapper[Any]", stream)
        wrapper.reconfigure(errors="replace")


def shows_colour() -> bool:
    """Whether standard output is a terminal whose user wants colours (https://no-color.org)."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def seconds(text: str) -> float:
    """A number of seconds, 0 or more."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds, 0 or more")
    return value


def seconds_above_zero(text: str) -> float:
    """A number of seconds above 0."""
    value = seconds(text)
    if not value:
        raise argparse.ArgumentTypeError(f"{text!r} seconds are too few")
    return value
