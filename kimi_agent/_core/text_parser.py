"""Which text parser reads a reply; one that finds out by itself where the generation is not known."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Protocol

from kimi_agent._core.k2_text import K2TextParser
from kimi_agent._core.k3_text import K3TextParser
from kimi_agent._core.lexer import Lexer
from kimi_agent.dialects.k2_format import K2Marker
from kimi_agent.dialects.k3_format import K3Marker

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kimi_agent._core.transcript import Output, ParsedText


class TextParser(Protocol):
    """Reads one text channel of a reply."""

    def feed(self, text: str) -> Sequence[Output]:
        """What can be shown after `text`."""
        ...

    def close(
        self, *, thought_closed: bool = False, cut: bool = False
    ) -> tuple[Sequence[Output], ParsedText]:
        """What is left to show, and the whole.

        `thought_closed` says that something outside this text ended the thought it began in, `cut` that
        the output limit ended the text.
        """
        ...


def text_parser(generation: str | None, *, start: Literal["answer", "reasoning"] = "answer") -> TextParser:
    """The parser for the texts of `generation`, e.g. `k2.5` or `k3`.

    `None`, or a name of neither family, is a generation nobody knows: the first marker that the text
    holds tells whose it is.
    """
    if generation is not None:
        if generation.startswith("k2"):
            return K2TextParser(start=start)
        if generation.startswith("k3"):
            return K3TextParser(start=start)
    return EitherTextParser(start=start)


class EitherTextParser:
    """Shows text as it is until a marker comes; then that marker's format is the text's, to the end."""

    def __init__(self, *, start: Literal["answer", "reasoning"] = "answer") -> None:
        self._start: Literal["answer", "reasoning"] = start
        self._kind: Literal["text", "reasoning"] = "reasoning" if start == "reasoning" else "text"
        self._lexer = Lexer((*K2Marker, *K3Marker))
        self._plain: list[str] = []
        self._parser: TextParser | None = None

    def feed(self, text: str) -> Sequence[Output]:
        """What can be shown after `text`."""
        if self._parser is not None:
            return self._parser.feed(text)
        return self._outputs(self._lexer.feed(text))

    def close(
        self, *, thought_closed: bool = False, cut: bool = False
    ) -> tuple[Sequence[Output], ParsedText]:
        """See `TextParser.close`."""
        if self._parser is not None:
            return self._parser.close(thought_closed=thought_closed, cut=cut)
        outputs = self._outputs(self._lexer.close())
        # No marker came, so the formats agree, and all there is has been shown.
        parser = K2TextParser(start=self._start)
        parser.feed("".join(self._plain))
        return outputs, parser.close(thought_closed=thought_closed, cut=cut)[1]

    def _outputs(self, tokens: Sequence[str]) -> Sequence[Output]:
        outputs: list[Output] = []
        for place, token in enumerate(tokens):
            if isinstance(token, K2Marker | K3Marker):
                outputs += self._decided(token, "".join(tokens[place:]) + self._lexer.held)
                break
            self._plain.append(token)
            outputs.append((self._kind, token))
        return outputs

    def _decided(self, marker: K2Marker | K3Marker, rest: str) -> Sequence[Output]:
        """Hand over to the parser of `marker`; it reads again what was shown already."""
        is_k3 = isinstance(marker, K3Marker)
        self._parser = K3TextParser(start=self._start) if is_k3 else K2TextParser(start=self._start)
        shown = "".join(self._plain)
        outputs = list(self._parser.feed(shown + rest))
        known = len(shown)
        while known:
            kind, text = outputs[0]
            outputs[:1] = [(kind, text[known:])] if len(text) > known else []
            known = max(0, known - len(text))
        return outputs
