"""What to do about a deployment: flags by engine and generation, and words by error."""

from __future__ import annotations

import os
import shlex
from typing import TYPE_CHECKING, Final, cast

from kimi_agent._core.redaction import one_line
from kimi_agent.dialects import ENGINES
from kimi_agent.dialects.generation import UNKNOWN
from kimi_agent.errors import (
    AccessDeniedError,
    AuthenticationError,
    ContextTooLongError,
    EngineOverloadedError,
    KimiAgentError,
    ModelError,
    ProtocolError,
    QuotaExhaustedError,
    RateLimitedError,
    ServerLoadingError,
    TransportConnectionError,
    TransportStatusError,
    TransportTimeoutError,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kimi_agent.dialects import Engine, Generation

# Flags that show cached tokens in `usage`. Sources: server arguments of vLLM 0.32 and SGLang 0.5.23.
CACHE_FLAGS: Final = {"vllm": "--enable-prompt-tokens-details", "sglang": "--enable-cache-report"}
# Flags that set the context length. Sources as above, and llama-server's help, October 2026.
CONTEXT_FLAGS: Final = {"vllm": "--max-model-len", "sglang": "--context-length", "llama.cpp": "--ctx-size"}
# What the engines' own table of flags does not tell apart: TensorRT-LLM has a parser for prompts that end
# inside the thought (its PR 13801), and llama.cpp parses reasoning unless told otherwise.
_REASONING_FLAGS_IN_THOUGHT: Final = {"tensorrt-llm": "--reasoning_parser kimi_k25"}
_REASONING_FLAGS: Final = {"llama.cpp": "--jinja --reasoning-format auto"}

_SHOWN: Final = 230
_ADVICE: Final[tuple[tuple[type[KimiAgentError], str], ...]] = (
    (AuthenticationError, "pass the right key with --api-key or KIMI_API_KEY"),
    (AccessDeniedError, "ask whoever gave you the key what it may do"),
    (QuotaExhaustedError, "check the account's balance and plan"),
    (RateLimitedError, "wait a minute and run it again"),
    (EngineOverloadedError, "run it again when the server has less to do"),
    (ContextTooLongError, "serve the model with a larger context"),
    (ServerLoadingError, "the model is still being loaded: --wait 600 waits for it"),
    (TransportConnectionError, "see in the server's log whether it still runs"),
    (TransportTimeoutError, "give it more time with --timeout, or see in the server's log what it is doing"),
    (ModelError, "see what is wrong above"),
    (ProtocolError, "base_url should be the root of an OpenAI-compatible API, usually ending with /v1"),
)


def is_hosted(engine: Engine) -> bool:
    """Whether `engine` is somebody's service, which has no flags to set."""
    return bool(engine.hosts)


def tool_flags(engine: Engine, text_format: str) -> str:
    """The flags that turn on tool calls; `""` if the engine has none."""
    return engine.parser_flags.get(text_format, "")


def reasoning_flags(engine: Engine, text_format: str, generation: Generation) -> str:
    """The flags that turn on the reasoning field; `""` if the engine has none."""
    if generation.starts_in_thought and text_format == "k2" and engine.name in _REASONING_FLAGS_IN_THOUGHT:
        return _REASONING_FLAGS_IN_THOUGHT[engine.name]
    return engine.reasoning_flags.get(text_format) or _REASONING_FLAGS.get(engine.name, "")


def unwanted_flags(engine: Engine, text_format: str) -> str:
    """What a model that does not think is to be served without."""
    return engine.reasoning_flags.get(text_format, "a reasoning parser")


def tool_remedy(engine: Engine, text_format: str) -> str:
    """How to get tool calls parsed."""
    return _flags_told(engine, text_format, {each.name: tool_flags(each, text_format) for each in _all()})


def reasoning_remedy(engine: Engine, text_format: str, generation: Generation) -> str:
    """How to get reasoning into its own field."""
    flags = {each.name: reasoning_flags(each, text_format, generation) for each in _all()}
    return _flags_told(engine, text_format, flags)


def start_command(
    engine: Engine, generation: Generation, weights: str, *, text_format: str, reasons: bool
) -> str:
    """How to start `engine` so that calls and reasoning are parsed; `""` if that is not known.

    `text_format` is the grammar of the model's raw text, and `reasons` whether it was seen to reason.
    """
    calls = tool_flags(engine, text_format)
    if not engine.start_command or not calls:
        return ""
    # The server says what its weights are called, and the command is there to be copied into a shell.
    parts = [engine.start_command.replace("MODEL", shlex.quote(weights)), calls]
    thinks = reasons or (generation is not UNKNOWN and generation.thinking != "never")
    if thinks and engine.reasoning_flags.get(text_format):
        parts.append(reasoning_flags(engine, text_format, generation))
    return " ".join(parts)


def advice_on(error: KimiAgentError) -> str:
    """What to do about `error`."""
    return next((advice for kind, advice in _ADVICE if isinstance(error, kind)), "see the server's log")


def told(error: KimiAgentError) -> str:
    """`error` in one short line: the server's own words where it said any."""
    if isinstance(error, TransportStatusError):
        said = one_line(error.server_message) or "nothing"
        request = f" [request {error.request_id}]" if error.request_id else ""
        return f"{error.status_code}: {cut(said)}{request}"
    if isinstance(error, TransportConnectionError):
        return cut(one_line(_root_cause(error)))
    return cut(one_line(str(error).partition("; base_url should be")[0]))


def cut(text: str, longest: int = _SHOWN) -> str:
    """`text` on one line, cut to `longest` characters."""
    line = " ".join(text[: longest * 2].split())
    return line if len(line) <= longest else line[: longest - 3].rstrip() + "..."


def quoted(text: str, longest: int = 60) -> str:
    """The beginning of `text` in quotation marks."""
    return f'"{cut(text, longest)}"'


def _root_cause(error: BaseException) -> str:
    found: BaseException = error
    while cause := _cause(found):
        found = cause
    if isinstance(found, OSError) and found.errno is not None and found.errno > 0:
        return os.strerror(found.errno).lower()
    return str(found) or type(found).__name__


def _cause(error: BaseException) -> BaseException | None:
    if isinstance(error, BaseExceptionGroup):
        # The attempts to connect to each address of a host.
        group = cast("BaseExceptionGroup[BaseException]", error)
        return group.exceptions[0]
    return error.__cause__ or error.__context__


def _all() -> list[Engine]:
    return list(ENGINES.values())


def _flags_told(engine: Engine, text_format: str, flags: Mapping[str, str]) -> str:
    if is_hosted(engine):
        return "nothing can be set from here: report it to the service"
    if flags.get(engine.name):
        return f"start {engine.name} with {flags[engine.name]}"
    known = "; ".join(f"{name}: {flag}" for name, flag in flags.items() if flag)
    return f"start the server with its parser for {text_format.upper()} on ({known})"
