"""`kimi-agent`: one subcommand for each module in `COMMANDS`."""

import argparse
from collections.abc import Sequence
from types import ModuleType

from kimi_agent._version import __version__
from kimi_agent.cli import doctor, simulate

COMMANDS: tuple[ModuleType, ...] = (simulate, doctor)
"""Each has `add_to(subparsers)`, which sets `run`: from the parsed arguments to the exit status."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status; `None` reads the process's own arguments."""
    parser = argparse.ArgumentParser(
        prog="kimi-agent",
        description="Tools around Kimi tool-calling agents.",
        epilog="example:\n  kimi-agent simulate --engine vllm --port 8000",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"kimi-agent {__version__}")
    subparsers = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for command in COMMANDS:
        command.add_to(subparsers)
    parsed = parser.parse_args(arguments)
    status: int = parsed.run(parsed)
    return status
