"""What a prompt names: names, quoted texts, numbers, dates; found by plain patterns."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TypeVar

MAX_PROMPT_CHARACTERS = 4_000
"""How much of a prompt is looked at: a rule-based reader gains nothing from the rest."""

MAX_THINGS = 16
"""How many things of a kind are taken."""

SHORTEST_PLURAL = 4
"""Shorter words keep their `s`: "is", "gas"."""

LONGEST_PLACE = 3
"""Words after a preposition that may be one thing; longer ones are clauses."""

_QUOTED = re.compile(
    r"\"([^\"\n]{1,200})\"|“([^”\n]{1,200})”|`([^`\n]{1,200})`|(?<!\w)'([^'\n]{1,200})'(?!\w)"
)
_NAME = re.compile(
    r"[A-ZÀ-ÖØ-Þ][\w-]*(?: [A-ZÀ-ÖØ-Þ][\w-]*){0,4}|[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]{1,20}"
)
_NUMBER = re.compile(r"(?<![\w.,-])-?\d{1,15}(?:\.\d{1,10})?(?!\d|[.,]\d)")
_DATE = re.compile(r"\b\d{4}-\d{2}-\d{2}\b")
_EMAIL = re.compile(r"[\w.+-]{1,64}@[\w-]{1,64}(?:\.[\w-]{1,64}){1,5}")
_URL = re.compile(r"https?://[^\s<>\"'`]{1,500}")
_PATH = re.compile(r"[\w./~-]{0,200}\w\.[A-Za-z]\w{0,7}\b")
_EXPRESSION = re.compile(r"[\d(][\d\s.()+*/^%-]{1,80}[\d)]")
_PLACE = re.compile(r"\b(?:in|for|of|about|at|near|to|from|on)\s+(?:the\s+)?([^?.!;:\n]{1,120})")
# After a word that only begins the sentence: "Weather in …", "Convert the …".
_TAKES_OBJECT = re.compile(
    r"\s+(?:a|an|the|me|my|to|in|for|of|at|on|about|with|from|all|some|it|this|these)\b|:"
)
_WORD = re.compile(r"[^\W_]{1,40}")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")

# Words written with a capital that are not what a tool is asked about.
_NOT_NAMES = frozenset(
    """
    a add also and any april are ask august book buy c calculate call can celsius check compare
    compute convert could create december delete do does english f fahrenheit february fetch find
    for friday from get give go hello hey hi how i if in is it its january july june kelvin kimi let
    list look make march monday my no november now october of ok on open or plan please read
    remember remind run saturday save say search send september set should show so sum summarise
    summarize sunday take tell thank thanks that the then there these this thursday today tomorrow
    translate tuesday use using was we wednesday were what when where which who why will with would
    write yes you your
    """.split()  # noqa: SIM905 - a list of words reads best as words
)

STOP_WORDS = frozenset(
    """
    a about all also an and any are as at be by call can current do does fetch find for from
    function get give given has have how i if in into is it its let like look me my need new not of
    on one or our out please return run s should so some tell that the their them then there these
    this to tool up us use value want was we what when where which who will with would you your
    """.split()  # noqa: SIM905 - a list of words reads best as words
)


@dataclass(frozen=True, slots=True)
class Facts:
    """What there is to fill arguments with, each kind in order of appearance and once."""

    text: str = ""
    names: tuple[str, ...] = ()
    quoted: tuple[str, ...] = ()
    numbers: tuple[int | float, ...] = ()
    dates: tuple[str, ...] = ()
    emails: tuple[str, ...] = ()
    urls: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    expressions: tuple[str, ...] = ()
    words: frozenset[str] = frozenset()

    def about(self, thing: str | float) -> "Facts":
        """The same facts as if `thing` were all that was named."""
        if isinstance(thing, str):
            return replace(self, names=(thing,), quoted=(thing,) if thing in self.quoted else ())
        return replace(self, numbers=(thing,))


def facts_of(text: str) -> Facts:
    """What `text` names; only its first 4,000 characters are read."""
    text = text[:MAX_PROMPT_CHARACTERS].strip()
    bare = _URL.sub(" ", _EMAIL.sub(" ", text))
    return Facts(
        text=text,
        names=unique(names_in(bare)) or unique(places_in(bare)),
        quoted=unique([found[found.lastindex or 0] for found in _QUOTED.finditer(text)]),
        numbers=unique([number_of(found) for found in _NUMBER.findall(_DATE.sub(" ", bare))]),
        dates=unique(_DATE.findall(text)),
        emails=unique(_EMAIL.findall(text)),
        urls=unique(_URL.findall(text)),
        paths=unique(_PATH.findall(bare)),
        expressions=unique(
            [found for found in _EXPRESSION.findall(text) if re.search(r"\d\s*[+*/^%-]", found)]
        ),
        words=frozenset(words_of(text)),
    )


T = TypeVar("T")


def unique(things: Iterable[T]) -> tuple[T, ...]:
    """The first few of `things`, each once."""
    return tuple(dict.fromkeys(things))[:MAX_THINGS]


def words_of(text: str) -> Iterator[str]:
    """Words in lower case without a plural `s`; `getWeather` and `get_weather` are two words each."""
    for word in _WORD.findall(_CAMEL.sub(" ", text)):
        lower = word.lower()
        is_plural = len(lower) >= SHORTEST_PLURAL and not lower.endswith("ss")
        yield lower.removesuffix("s") if is_plural else lower


def names_in(text: str) -> Iterator[str]:
    """Capitalised words that do not only begin a sentence, and runs of CJK characters."""
    for found in _NAME.finditer(text):
        words = found[0].split(" ")
        while words and words[0].lower() in _NOT_NAMES:
            del words[0]
        begins = (
            not text[: found.start()].rstrip(" \"'“(").strip()
            or text[: found.start()].rstrip()[-1:] in ".!?:\n"
        )
        if not words or (len(words) == 1 and begins and _TAKES_OBJECT.match(text, found.end())):
            continue
        yield " ".join(words)


def places_in(text: str) -> Iterator[str]:
    """What follows a preposition, for prompts without capitals: `weather in oslo and lima`."""
    for found in _PLACE.finditer(text):
        for item in re.split(r",\s*(?:and\s+)?|\s+and\s+|\s+or\s+", found[1]):
            words = item.split()
            if 0 < len(words) <= LONGEST_PLACE and not {words[-1], words[0]} & (STOP_WORDS - {"new"}):
                yield " ".join(words)


def number_of(text: str) -> int | float:
    """`text` as an `int` where it is one."""
    return float(text) if "." in text else int(text)
