"""Engines: the software that serves the model, and how each spells the protocol. Data only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """How one server spells what differs between servers."""

    name: str

    output_limit_field: str = "max_tokens"
    """The request field for `ModelOptions.max_output_tokens`."""

    reasoning_fields: tuple[str, ...] = ("reasoning_content",)
    """The message fields under which the server reads earlier reasoning."""

    thinking_field: Literal["thinking", "chat_template_kwargs"] = "chat_template_kwargs"
    """How thinking is switched: Moonshot's own object, or arguments of the chat template."""

    hosts: tuple[str, ...] = ()
    """Host names that tell this engine from a base URL."""

    start_command: str = ""
    """How a person starts this engine with tool calls; shown in errors."""


# Source for the reasoning fields: vLLM PR 33402 (30 January 2026) reads only `reasoning`; SGLang,
# llama.cpp and Moonshot's own documentation name `reasoning_content`. Checked October 2026.
MOONSHOT = Engine(
    name="moonshot",
    output_limit_field="max_completion_tokens",
    thinking_field="thinking",
    hosts=("api.moonshot.ai", "api.moonshot.cn", "api.kimi.com"),
)
VLLM = Engine(
    name="vllm",
    reasoning_fields=("reasoning", "reasoning_content"),
    start_command="vllm serve MODEL --trust-remote-code --enable-auto-tool-choice --tool-call-parser kimi_k2",
)
SGLANG = Engine(
    name="sglang",
    start_command="python -m sglang.launch_server --model-path MODEL --trust-remote-code "
    "--tool-call-parser kimi_k2",
)
LLAMA_CPP = Engine(name="llama.cpp", start_command="llama-server --jinja -m MODEL.gguf")
KTRANSFORMERS = Engine(name="ktransformers", start_command=SGLANG.start_command)
TENSORRT_LLM = Engine(
    name="tensorrt-llm", start_command="trtllm-serve serve MODEL --trust_remote_code --tool_parser kimi_k2"
)
LMDEPLOY = Engine(name="lmdeploy", start_command="lmdeploy serve api_server MODEL --tool-call-parser kimi_k2")
OPENROUTER = Engine(name="openrouter", reasoning_fields=("reasoning",), hosts=("openrouter.ai",))
GENERIC = Engine(name="generic", reasoning_fields=("reasoning_content", "reasoning"))
"""A server nobody recognised: it is sent what most servers read."""

ENGINES = {
    engine.name: engine
    for engine in (
        MOONSHOT,
        VLLM,
        SGLANG,
        LLAMA_CPP,
        KTRANSFORMERS,
        TENSORRT_LLM,
        LMDEPLOY,
        OPENROUTER,
        GENERIC,
    )
}


def engine_of_host(host: str) -> Engine:
    """The engine a base URL's host tells, else `GENERIC`."""
    for engine in ENGINES.values():
        if any(host == known or host.endswith("." + known) for known in engine.hosts):
            return engine
    return GENERIC
