"""The simulated model: `Conversation` → `Plan`, by rules, the same every time.

prompt ─▶ tools whose words it shares ─▶ one call for each thing named ─▶ answer from the results
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass

from kimi_agent.testing.conversation import Conversation, MadeCall, OfferedTool
from kimi_agent.testing.facts import STOP_WORDS, Facts, facts_of, words_of
from kimi_agent.testing.json_values import JsonObject, as_list, as_object, decoded
from kimi_agent.testing.schema_filler import EXPRESSION_WORDS, TEXT_WORDS, SchemaFiller, kind_of, mentioned

MAX_TOOLS = 4
"""Different tools called in one turn."""

MAX_QUOTED_CHARACTERS = 300
"""How much of a result an answer quotes."""

IDENTITY_QUESTIONS = ({"who", "are", "you"}, {"what", "are", "you"}, {"your", "name"}, {"which", "model"})
"""Words that together ask what is answering."""

NAME_WEIGHT = 3
"""How much more a word of the tool's name counts than one of its description."""


@dataclass(frozen=True, slots=True)
class PlannedCall:
    """A call to make."""

    name: str
    arguments: JsonObject


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What the model says next: reasoning, text and calls."""

    reasoning: str = ""
    content: str = ""
    calls: tuple[PlannedCall, ...] = ()


@dataclass(frozen=True, slots=True)
class Candidate:
    """A tool, and the words of the prompt that speak for it."""

    tool: OfferedTool
    name_words: frozenset[str]
    other_words: frozenset[str]

    @property
    def score(self) -> int:
        """How well the tool fits."""
        return NAME_WEIGHT * len(self.name_words) + len(self.other_words)


def plan_for(conversation: Conversation, *, model: str, thinking: bool = False) -> Plan:
    """What the simulated model `model` says next."""
    facts = facts_of(conversation.prompt)
    tools = chosen_tools(conversation, facts)
    done = {call.name for call in conversation.calls}
    due = [tool for tool in tools if tool.name not in done]
    calls = calls_to_make(conversation, due, facts)
    if calls:
        content = f"I will look that up: {described(calls)}."
    elif conversation.answer_schema is not None:
        content = structured_answer(conversation, facts)
    else:
        content = answer_of(conversation, model)
    reasoning = reasoning_of(conversation, tools, calls) if thinking else ""
    return Plan(reasoning=reasoning, content=content, calls=calls)


def chosen_tools(conversation: Conversation, facts: Facts) -> list[OfferedTool]:
    """The tools this turn needs, the best fitting first."""
    if conversation.choice == "none":
        return []
    named = [tool for tool in conversation.tools if tool.name == conversation.named_tool]
    if conversation.choice == "named" and named:
        return named
    chosen = covering(conversation, facts)
    if not chosen and conversation.choice == "required":
        chosen = list(conversation.tools[:1])
    return chosen


def covering(conversation: Conversation, facts: Facts) -> list[OfferedTool]:
    """Tools picked one after the other, each for words of the prompt that no earlier one took."""
    left = facts.words - STOP_WORDS
    chosen: list[OfferedTool] = []
    while len(chosen) < MAX_TOOLS:
        candidates = [candidate_for(tool, facts, left) for tool in conversation.tools if tool not in chosen]
        best = max(candidates, key=lambda candidate: candidate.score, default=None)
        if best is None or not fits(best, facts, first=not chosen, alone=len(conversation.tools) == 1):
            break
        chosen.append(best.tool)
        left -= best.name_words | best.other_words
    return chosen or followed_up(conversation, facts)


def candidate_for(tool: OfferedTool, facts: Facts, left: frozenset[str]) -> Candidate:
    """What of the words in `left` speaks for `tool`."""
    names = frozenset(words_of(tool.name)) - STOP_WORDS
    others = set(words_of(tool.description[:1000]))
    for name, field in as_object(tool.parameters.get("properties")).items():
        others |= set(words_of(f"{name} {as_object(field).get('description', '')}"[:500]))
        if (option := mentioned(as_list(as_object(field).get("enum")), facts)) is not None:
            others |= {word for word in left if word.startswith(str(option).lower())}
    # A name of stop words only, such as `run`, is matched all the same.
    spoken = names & left if names else frozenset(words_of(tool.name)) & facts.words
    return Candidate(tool, spoken, (frozenset(others) - names - STOP_WORDS) & left)


def fits(candidate: Candidate, facts: Facts, *, first: bool, alone: bool) -> bool:
    """Whether enough speaks for the tool: its name, two other words, or one if there is no other tool."""
    if candidate.name_words or (
        facts.expressions and EXPRESSION_WORDS & set(required_of(candidate.tool, "string"))
    ):
        return True
    if first:
        return len(candidate.other_words) > (0 if alone else 1)
    # A conversion somebody asks for in passing: "the weather in Paris in Fahrenheit".
    return bool(candidate.other_words) and waits_for_a_number(candidate.tool, facts)


def followed_up(conversation: Conversation, facts: Facts) -> list[OfferedTool]:
    """The tool of the turn before, where the prompt only names another thing ("And in Rome?")."""
    before = conversation.earlier_calls[-1].name if conversation.earlier_calls else None
    short = len(facts.words - STOP_WORDS) <= 2 * len(facts.names)
    return [tool for tool in conversation.tools if tool.name == before and facts.names and short]


def waits_for_a_number(tool: OfferedTool, facts: Facts) -> bool:
    """Whether `tool` needs a number the prompt does not have, so that a result has to bring it."""
    return not facts.numbers and bool(required_of(tool, "integer", "number"))


def required_of(tool: OfferedTool, *kinds: str) -> list[str]:
    """The names of the required parameters of these kinds, enums aside."""
    properties = as_object(tool.parameters.get("properties"))
    fields = {
        name: as_object(properties.get(name)) for name in map(str, as_list(tool.parameters.get("required")))
    }
    return [name for name, field in fields.items() if kind_of(field) in kinds and "enum" not in field]


def calls_to_make(
    conversation: Conversation, due: list[OfferedTool], facts: Facts
) -> tuple[PlannedCall, ...]:
    """The calls of this step; a tool that waits for a number comes after the others."""
    ready = [tool for tool in due if not waits_for_a_number(tool, facts)]
    if conversation.results and not ready:
        ready = due
        facts = with_numbers_of(facts, conversation.results)
    calls = [call for tool in ready or due[:1] for call in calls_of(tool, facts)]
    return tuple(calls if conversation.parallel else calls[:1])


def with_numbers_of(facts: Facts, results: tuple[MadeCall, ...]) -> Facts:
    """`facts` with the first number of each result."""
    found = [facts_of(spaced(call.result or "")).numbers[:1] for call in results]
    return Facts(text=facts.text, words=facts.words, numbers=tuple(number for one in found for number in one))


def spaced(text: str) -> str:
    """JSON text without its punctuation, so that a number stands alone."""
    return text.translate(str.maketrans('{}[]":,', "       "))


def calls_of(tool: OfferedTool, facts: Facts) -> list[PlannedCall]:
    """One call for each thing the prompt names that fills the tool's one open parameter; else one."""
    properties = as_object(tool.parameters.get("properties"))
    texts = required_of(tool, "string") or [
        name for name in list(properties)[:1] if kind_of(as_object(properties[name])) == "string"
    ]
    numbers = required_of(tool, "integer", "number")
    things: tuple[str | int | float, ...] = ()
    if len(texts) == 1 and not required_of(tool, "array"):
        takes_text = bool(set(words_of(texts[0])) & TEXT_WORDS)
        things = facts.quoted if takes_text or len(facts.quoted) > 1 else facts.names
    elif not texts and len(numbers) == 1:
        things = facts.numbers
    each = [facts.about(thing) for thing in things] if len(things) > 1 else [facts]
    return [PlannedCall(tool.name, SchemaFiller(tool.parameters, one).arguments()) for one in each]


def described(calls: tuple[PlannedCall, ...]) -> str:
    """The calls in words, such as `get_weather for Paris and Tokyo, then get_time`."""
    subjects: dict[str, list[str]] = {}
    for call in calls:
        subjects.setdefault(call.name, []).append(subject_of(call.arguments))
    each = [f"{name} for {spoken_list(said)}" if any(said) else name for name, said in subjects.items()]
    return ", then ".join(each)


def subject_of(arguments: JsonObject) -> str:
    """The values that tell one call from another, in short."""
    values = [str(value)[:60] for value in arguments.values() if isinstance(value, str | int | float)]
    # A single letter is a unit or a flag.
    return ", ".join([value for value in values if len(value) > 1 or value.isdigit()][:2])


def spoken_list(parts: Iterable[str]) -> str:
    """The parts as `a, b and c`."""
    *head, last = list(parts) or [""]
    return f"{', '.join(head)} and {last}" if head else last


def reasoning_of(conversation: Conversation, tools: list[OfferedTool], calls: tuple[PlannedCall, ...]) -> str:
    """Why the plan is what it is."""
    asked = f"The user wrote: {conversation.prompt[:120]}"
    if calls:
        fitting = spoken_list(tool.name for tool in tools)
        return f"{asked} That fits {fitting}, so I make {len(calls)} call(s) now."
    if conversation.results:
        return f"{asked} I have {len(conversation.results)} result(s) and can answer."
    return f"{asked} I need no tool for that."


def answer_of(conversation: Conversation, model: str) -> str:
    """The answer, from the results where there are any."""
    if conversation.results:
        return " ".join(sentence_of(call) for call in conversation.results)
    words = set(words_of(conversation.prompt))
    if any(asked <= words for asked in IDENTITY_QUESTIONS):
        return (
            f"I am {model}, a simulated model: rules and no neural network. I choose tools by the words "
            "they share with your question and answer from what they return."
        )
    said = f"I am a simulated model and cannot really answer “{conversation.prompt[:80]}”."
    names = [tool.name for tool in conversation.tools[:8]]
    offered = (
        f"None of the tools I was offered seems to fit: {spoken_list(names)}."
        if names
        else "I was offered no tool."
    )
    return f"{said} {offered}"


def sentence_of(call: MadeCall) -> str:
    """One result as a sentence, such as `Paris: weather Sunny, temperature 21`, with its full stop."""
    text = (call.result or "").strip()
    subject = subject_of(call.arguments)
    if not any(letter.isalpha() for letter in subject):
        subject = f"{call.name or 'the tool'} {subject}".strip()
    value = decoded(text)
    if fields := as_object(value):
        asked = list(call.arguments.values())
        text = ", ".join(f"{key} {shown(field)}" for key, field in fields.items() if field not in asked)
    elif items := as_list(value):
        text = spoken_list(map(shown, items))
    quoted = text[:MAX_QUOTED_CHARACTERS].rstrip(" .") or "nothing came back"
    return f"{subject}: {quoted}."


def shown(value: object) -> str:
    """A value inside a sentence."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def structured_answer(conversation: Conversation, facts: Facts) -> str:
    """JSON that fits the schema the request asks for, filled from the results, then from the prompt."""
    if conversation.results:
        told = facts_of(" ".join(spaced(call.result or "") for call in conversation.results))
        facts = Facts(
            text=" ".join(sentence_of(call) for call in conversation.results),
            names=facts.names or told.names,
            numbers=told.numbers or facts.numbers,
            words=facts.words | told.words,
        )
    value = SchemaFiller(conversation.answer_schema or {}, facts).value(conversation.answer_schema)
    return json.dumps(value, ensure_ascii=False)
