"""Prompts: a template with places for texts and an answer, filled in, after demonstrations."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from cloze.errors import TaskError, propose

TEXT, SECOND, ANSWER = "text", "text_b", "answer"
#: What separates demonstrations from each other and from the text that is asked about: one or two newlines in
#: Brown et al., 2020, §2.4.
BETWEEN = "\n"
_PLACE = re.compile(r"\{(\w*)\}")

Span = tuple[int, int]  # in characters


class FilledPrompt(NamedTuple):
    """A prompt as text, and the characters of its answer and of the texts that it asks about."""

    text: str
    answer: Span
    texts: tuple[Span, ...]


@dataclass(frozen=True)
class Template:
    """Text with `{text}`, `{text_b}` and `{answer}`; without `{answer}` the answer follows it after a space."""

    text: str

    def __post_init__(self) -> None:
        places = _PLACE.findall(self.text)
        fields = (TEXT, SECOND, ANSWER)
        for field in places:
            if field not in fields:
                expected = "a template has {text}, {text_b} and {answer}."
                raise TaskError(f"--template {self.text!r}: {{{field}}} is no place; {expected} {propose(field, fields)}")
        if TEXT not in places:
            raise TaskError(f"--template {self.text!r}: no {{text}}; expected for example '{{text}} It was {{answer}}.'")
        twice = next((name for name in fields if places.count(name) > 1), None)
        if twice is not None:
            raise TaskError(f"--template {self.text!r}: has {{{twice}}} twice; expected it once.")
        if ANSWER not in places:
            object.__setattr__(self, "text", f"{self.text} {{{ANSWER}}}")

    @property
    def pair(self) -> bool:
        """Whether it is about two texts."""
        return f"{{{SECOND}}}" in self.text

    def fill(self, texts: Sequence[str], answer: str, *, before: str = "") -> FilledPrompt:
        """The template with texts and an answer, after other text."""
        replacements = {ANSWER: answer, **dict(zip((TEXT, SECOND), texts, strict=False))}
        spans: dict[str, Span] = {}
        text, last = before, 0
        for match in _PLACE.finditer(self.text):
            text += self.text[last : match.start()]
            spans[match[1]] = len(text), len(text) + len(replacements[match[1]])
            text, last = text + replacements[match[1]], match.end()
        places = tuple(spans[name] for name in (TEXT, SECOND) if name in spans)
        return FilledPrompt(text + self.text[last:], spans[ANSWER], places)

    def demonstrated(self, examples: Sequence[tuple[Sequence[str], str]]) -> str:
        """Examples with their answers, each followed by a newline."""
        return "".join(self.fill(texts, answer).text + BETWEEN for texts, answer in examples)


def unconditional(context: str, answer: str) -> FilledPrompt:
    """An answer after a text that is about nothing, such as `Answer:` (Brown et al., 2020, §2.4)."""
    text = f"{context} {answer}" if context else answer
    return FilledPrompt(text, (len(text) - len(answer), len(text)), ())


def verbalisers(argument: str) -> Mapping[str, str]:
    """`positive=great,negative=terrible` as the answer for each label."""
    pairs = [item.partition("=") for item in argument.split(",")]
    for label, equals, answer in pairs:
        if not (equals and label.strip() and answer.strip()):
            raise TaskError(f"--verbalise {argument!r}: expected LABEL=ANSWER,…, such as positive=great,negative=terrible.")
    answers = {label.strip(): answer.strip() for label, _, answer in pairs}
    if len(answers) < 2 or len(answers) < len(pairs) or len(set(answers.values())) < len(answers):
        raise TaskError(f"--verbalise {argument!r}: expected two or more labels, each once and with an answer of its own.")
    return answers
