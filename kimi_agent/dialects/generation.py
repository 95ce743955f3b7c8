"""Model generations: what each was trained on and what its servers let a caller choose. Data only."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """What one generation of Kimi models expects."""

    name: str

    text_format: Literal["k2", "k3"] = "k2"
    """The grammar of its raw text."""

    thinking: Literal["never", "always", "optional"] = "never"
    """Whether it reasons before it answers, and whether a caller chooses."""

    template_switch: bool = False
    """Whether the open weights stop thinking if their chat template is told so, hosted or not."""

    starts_in_thought: bool = False
    """Whether its prompt ends inside the thought, so that raw text brings only its end."""

    temperature: float | None = None
    """The recommended temperature, sent where the server does not fix it."""

    instant_temperature: float | None = None
    """The recommended temperature with thinking switched off."""

    fixed_sampling: bool = False
    """Whether Moonshot's own server refuses other sampling values than its own."""

    keep_reasoning: Literal["no", "loop", "optional", "always"] = "no"
    """Which earlier reasoning the model sees again: none, the running tool loop's, by choice all, all."""

    efforts: tuple[str, ...] = ()
    """The words for how much to reason, where it can be chosen."""

    dynamic_tools: bool = False
    """Whether a system message may bring tools of its own."""

    context_tokens: int = 262_144

    names: str = ""
    """A pattern for the model ids, hosted and open-weights, lower case."""


# Sources, read October 2026: the model cards and `config.json` of the moonshotai repositories; the
# platform's pages on Kimi K2.6, K2.7-Code and K3; golden renders of the official chat templates.
K2 = Generation(
    name="k2",
    temperature=0.6,  # model card of Kimi-K2-Instruct
    context_tokens=262_144,  # 131,072 for the first release, July 2025
    names=r"kimi[-_ ]?k2(?![.p]?\d)|^k2$|^k2-(?:instruct|base|turbo|0711|0905)",
)
K2_THINKING = Generation(
    name="k2-thinking",
    thinking="always",
    temperature=1.0,  # model card of Kimi-K2-Thinking
    keep_reasoning="loop",
    names=r"k2[-_ ]?thinking",
)
K2_5 = Generation(
    name="k2.5",
    thinking="optional",
    starts_in_thought=True,
    instant_temperature=0.6,
    fixed_sampling=True,
    keep_reasoning="loop",
    names=r"k2[.p_-]?5(?![\da-z])",
)
K2_6 = Generation(
    name="k2.6",
    thinking="optional",
    starts_in_thought=True,
    instant_temperature=0.6,
    fixed_sampling=True,
    keep_reasoning="optional",
    names=r"k2[.p_-]?6(?![\da-z])",
)
K2_7 = Generation(
    name="k2.7",
    thinking="always",
    starts_in_thought=True,
    fixed_sampling=True,
    keep_reasoning="always",
    names=r"k2[.p_-]?7(?![\da-z])|kimi-for-coding",
)
K3 = Generation(
    name="k3",
    text_format="k3",
    thinking="always",
    template_switch=True,
    starts_in_thought=True,
    fixed_sampling=True,
    keep_reasoning="always",
    efforts=("low", "high", "max"),
    dynamic_tools=True,
    context_tokens=1_048_576,
    names=r"kimi[-_ ]?k3|^k3",
)
UNKNOWN = Generation(name="unknown", thinking="optional", keep_reasoning="optional")
"""A model whose name tells nothing: nothing special is sent, and its replies are read with every grammar."""

# The narrower names come first: `kimi-k2-thinking` is no K2-Instruct.
_BY_NAME = (K2_THINKING, K2_5, K2_6, K2_7, K3, K2)
GENERATIONS = {generation.name: generation for generation in (K2, K2_THINKING, K2_5, K2_6, K2_7, K3)}
NEWEST = K3

_VERSION = re.compile(r"kimi[-_ ]?k(\d{1,3})(?:[.p_](\d{1,3}))?(?!\d)")


def generation_of(model: str) -> Generation:
    """The generation a model id tells; newer Kimi names than are known here count as the newest."""
    whole = model.lower().rstrip("/")
    name = whole.rpartition("/")[2]
    # The last part first; a cache's path has the name further up.
    for text in (name, whole):
        for generation in _BY_NAME:
            if re.search(generation.names, text):
                return generation
    version = _VERSION.search(name)
    if version and (int(version[1]), int(version[2] or 0)) > (2, 7):
        return NEWEST
    return UNKNOWN
