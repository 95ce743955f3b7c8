"""Engines: the software that serves the model, and how each spells the protocol. Data only."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """How one server spells what differs between servers."""

    name: str

    output_limit_field: str = "max_tokens"
    """The request field for `ModelOptions.max_output_tokens`."""

    reasoning_fields: tuple[str, ...] = ("reasoning_content", "reasoning")
    """The message fields under which earlier reasoning is sent.

    Both names unless the host tells who reads which: servers pass over the one they do not know, and what
    was sent before the engine was recognised must not change after.
    """

    thinking_field: Literal["thinking", "chat_template_kwargs", "reasoning"] = "chat_template_kwargs"
    """How thinking is switched: Moonshot's object, arguments of the chat template, or OpenRouter's object."""

    fixes_sampling: bool = False
    """Whether the server refuses other sampling values than the model's own, where those are fixed."""

    call_ids: Literal["k2", "any"] = "k2"
    """Whether a K2 model behind it needs `functions.NAME:N` in the history, or the server sees to that."""

    images_in_results: bool = True
    """Whether a tool result may hold an image."""

    raw_text_fields: Mapping[str, object] = field(default_factory=dict[str, object])
    """Request fields that keep control tokens in raw text."""

    hosts: tuple[str, ...] = ()
    """Host names that tell this engine from a base URL."""

    owners: tuple[str, ...] = ()
    """What `owned_by` says in its list of models."""

    reply_fields: tuple[str, ...] = ()
    """Fields of a reply that no other engine sends."""

    parser_flags: Mapping[str, str] = field(default_factory=dict[str, str])
    """The flags that turn on tool calls, by the text format of the generation."""

    reasoning_flags: Mapping[str, str] = field(default_factory=dict[str, str])
    """The flags that turn on the reasoning field, by the text format of the generation."""

    start_command: str = ""
    """How a person starts it; MODEL stands for the model."""


# Sources: platform.moonshot.ai documentation, October 2026 (max_completion_tokens, thinking object, fixed
# sampling; its server renumbers the ids of a history by itself).
MOONSHOT = Engine(
    name="moonshot",
    reasoning_fields=("reasoning_content",),
    output_limit_field="max_completion_tokens",
    thinking_field="thinking",
    fixes_sampling=True,
    call_ids="any",
    hosts=("api.moonshot.ai", "api.moonshot.cn", "api.kimi.com"),
    owners=("moonshot",),
)
# Source: vLLM 0.32 recordings; PR 33402 (30 January 2026) reads only `reasoning`, releases before it
# `reasoning_content`. Flags: vLLM recipes for Kimi-K2 and K3, October 2026.
VLLM = Engine(
    name="vllm",
    raw_text_fields={"skip_special_tokens": False},
    owners=("vllm",),
    reply_fields=("kv_transfer_params", "prompt_logprobs", "prompt_token_ids"),
    parser_flags={
        "k2": "--enable-auto-tool-choice --tool-call-parser kimi_k2",
        "k3": "--enable-auto-tool-choice --tool-call-parser kimi_k3",
    },
    reasoning_flags={"k2": "--reasoning-parser kimi_k2", "k3": "--reasoning-parser kimi_k3"},
    start_command="vllm serve MODEL --trust-remote-code",
)
# Source: SGLang 0.5.23 recordings and its server arguments, October 2026.
SGLANG = Engine(
    name="sglang",
    raw_text_fields={"skip_special_tokens": False},
    owners=("sglang",),
    reply_fields=("matched_stop", "metadata"),
    parser_flags={"k2": "--tool-call-parser kimi_k2", "k3": "--tool-call-parser kimi_k3"},
    reasoning_flags={"k2": "--reasoning-parser kimi_k2", "k3": "--reasoning-parser kimi_k3"},
    start_command="python -m sglang.launch_server --model-path MODEL --trust-remote-code",
)
# Source: llama.cpp recordings, October 2026; its chat parser needs the template only.
LLAMA_CPP = Engine(
    name="llama.cpp",
    owners=("llamacpp",),
    reply_fields=("timings",),
    parser_flags={"k2": "--jinja", "k3": "--jinja --chat-template-file Kimi-K3.jinja"},
    start_command="llama-server -m MODEL.gguf",
)
# Source: kvcache-ai's sglang-kt documentation; it is SGLang with other kernels, so nothing tells it apart.
KTRANSFORMERS = Engine(
    name="ktransformers",
    raw_text_fields=SGLANG.raw_text_fields,
    parser_flags=SGLANG.parser_flags,
    reasoning_flags=SGLANG.reasoning_flags,
    start_command="python -m sglang.launch_server --model MODEL --kt-weight-path WEIGHTS --trust-remote-code",
)
# Source: TensorRT-LLM PRs 12199, 13801 and 17845.
TENSORRT_LLM = Engine(
    name="tensorrt-llm",
    raw_text_fields={"skip_special_tokens": False},
    owners=("tensorrt_llm",),
    parser_flags={"k2": "--tool_parser kimi_k2", "k3": "--tool_parser kimi_k3"},
    reasoning_flags={"k2": "--reasoning_parser kimi_k2", "k3": "--reasoning_parser kimi_k3"},
    start_command="trtllm-serve serve MODEL --trust_remote_code",
)
# Source: LMDeploy PR 4846.
LMDEPLOY = Engine(
    name="lmdeploy",
    raw_text_fields={"skip_special_tokens": False},
    owners=("lmdeploy",),
    parser_flags={"k2": "--tool-call-parser kimi_k2"},
    reasoning_flags={"k2": "--reasoning-parser default"},
    start_command="lmdeploy serve api_server MODEL",
)
# Source: OpenRouter's reasoning-token documentation; what lies behind it varies.
OPENROUTER = Engine(
    name="openrouter",
    reasoning_fields=("reasoning",),
    thinking_field="reasoning",
    hosts=("openrouter.ai",),
)
GENERIC = Engine(name="generic")
"""A server nobody recognised: it is sent what most servers read."""

ENGINES = {
    engine.name: engine
    for engine in (
        MOONSHOT,
        SGLANG,
        VLLM,
        LLAMA_CPP,
        KTRANSFORMERS,
        TENSORRT_LLM,
        LMDEPLOY,
        OPENROUTER,
        GENERIC,
    )
}
