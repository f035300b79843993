"""Classify texts by the answers to a prompt, without training anything: zero and few shots (Brown et al., 2020, §2)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from cloze.corpus.records.answer import label_names
from cloze.decoding.prompting import Prompting, PromptWithAnswer, prompting_of
from cloze.decoding.prompts import Template, unconditional, verbalisers
from cloze.decoding.reader import Checkpoint, evaluating
from cloze.errors import TaskError, counted
from cloze.rng import permutation
from cloze.tasks.kinds.classification import Classification, Classifier
from cloze.tasks.task import Report, silent
from cloze.tasks.texts import Examples, label_ids

AMONG = "among the labels that have an answer"


@dataclass(frozen=True)
class Prompt:
    """A prompt for texts: a template, the answer for each label, and the `demonstrations` of which `shots` are
    drawn by a seed for every text.

    With `context` an answer's probability is divided by its probability behind this text alone, such as `Answer:`, so that
    answers that are frequent anyway are not preferred (Brown et al., 2020, §2.4, for ARC, OpenBookQA and RACE).
    """

    template: Template
    answers: Mapping[str, str]
    shots: int = 0
    demonstrations: Examples | None = None
    seed: int = 0
    context: str | None = None

    @classmethod
    def of(
        cls, template: str, *, verbalise: str | None = None, shots: int = 0, demonstrations: Path | str | None = None,
        seed: int = 0, context: str | None = None, text: str | None = None, text_b: str | None = None, label: str | None = None,
    ) -> Prompt:
        """What the options say, and the columns of the file of demonstrations; faults are `TaskError`s.

        Without `verbalise` the labels of the demonstrations are their own answers.
        """
        prompt_template = Template(template)
        if shots and demonstrations is None:
            raise TaskError(f"--shots {shots}: name the labelled text that they are drawn from: --demonstrations FILE")
        examples = None if demonstrations is None else task_for(
            prompt_template, text=text, text_b=text_b, label=label
        ).read(demonstrations)  # fmt: skip
        if examples is not None and shots > len(examples):
            raise TaskError(f"{examples.path}: {len(examples)} examples; expected at least {shots} to draw --shots {shots} from.")
        if demonstrations is not None and verbalise is not None and not shots:
            raise TaskError(f"--demonstrations {demonstrations}: none is shown. Say how many, such as --shots 4, or omit it.")
        if verbalise is None and examples is None:
            raise TaskError("give the answer for each label: --verbalise positive=great,negative=terrible")
        names = label_names(examples.labels or ()) if examples is not None else ()
        answers = {name: name for name in names} if verbalise is None else verbalisers(verbalise)
        if len(answers) < 2:
            count = counted(len(answers), "distinct label")
            raise TaskError(f"{examples.path if examples else ''}: {count}; expected at least two.")
        if examples is not None:
            label_ids(examples, tuple(answers), AMONG)
        return cls(prompt_template, answers, shots, examples, seed, context)

    def before(self, number: int, texts: tuple[str, ...] = ()) -> str:
        """The demonstrations before the text of this number; none has the same `texts`, whose answer it would tell."""
        if not self.shots or self.demonstrations is None:
            return ""
        order = permutation(len(self.demonstrations), self.seed, "shots", number).tolist()
        chosen = [i for i in order if _texts(self.demonstrations, i) != texts][: self.shots]
        labels = self.demonstrations.labels or []
        return self.template.demonstrated([(_texts(self.demonstrations, i), self.answers[labels[i]]) for i in chosen])


def task_for(template: Template, *, text: str | None, text_b: str | None, label: str | None) -> Classification:
    """The task for one text or two, as the template has."""
    second = (text_b or "text_b") if template.pair else None
    name = "pair_classification" if template.pair else "sentence_classification"
    return Classification(text or "text", second, label or "label", name=name)


def _texts(examples: Examples, number: int) -> tuple[str, ...]:
    text = examples.texts[number]
    return (text,) if examples.others is None else (text, examples.others[number])


class Prompted(Classifier):
    """An untrained use of a network: a text gets the label whose answer to the prompt is the most probable.

    The probabilities of the labels are those of their answers, divided by their sum. With a `context` those of the answers are
    first divided by what they are behind it.
    """

    def __init__(self, prompting: Prompting, prompt: Prompt, task: Classification) -> None:
        super().__init__(prompting.reader, torch.nn.Identity(), task, length=None, labels=tuple(prompt.answers))
        self.prompting, self.prompt = prompting, prompt

    def texts_of(self, examples: Examples) -> Sequence[str]:
        """None, because words that the network does not know are no fault of a prompt."""
        return ()

    def truth(self, examples: Examples) -> NDArray[np.int64]:
        """The numbers of the labels among those that have an answer."""
        return label_ids(examples, self.label_names, AMONG)

    def encode(self, examples: Examples) -> list[list[PromptWithAnswer]]:
        """The prompt of every example with each of the answers."""
        answers = list(self.prompt.answers.values())
        filled = []
        for number in range(len(examples)):
            texts = _texts(examples, number)
            before = self.prompt.before(number, texts)
            filled += [self.prompt.template.fill(texts, answer, before=before) for answer in answers]
        candidates = self.prompting.candidates(filled, answers * len(examples))
        return [candidates[i : i + len(answers)] for i in range(0, len(candidates), len(answers))]

    def row_outputs(
        self, rows: Sequence[Sequence[PromptWithAnswer]], size: int = 64, report: Report = silent
    ) -> NDArray[np.floating]:
        """The probability of each label for every example: (N, C)."""
        every = [candidate for candidates in rows for candidate in candidates]
        per_example = _PerExample(report, len(self.label_names))
        with evaluating(self):
            scores = self.prompting.scores(every, size=size, report=per_example).reshape(len(rows), len(self.label_names))
            scores = scores - self._unconditional(size)
        shares = np.exp(scores - scores.max(axis=1, keepdims=True, initial=-np.inf))
        return np.asarray(shares / shares.sum(axis=1, keepdims=True))

    def _unconditional(self, size: int) -> NDArray[np.float64]:
        """log P(answer | context) of each label (C,); 0 without a context."""
        context, answers = self.prompt.context, list(self.prompt.answers.values())
        if context is None:
            return np.zeros(len(answers))
        filled = [unconditional(context, answer) for answer in answers]
        return self.prompting.scores(self.prompting.candidates(filled, answers), size=size, report=silent)

    def cut_tokens(self, row: Sequence[PromptWithAnswer]) -> int:
        """How many tokens of the text did not fit."""
        return row[0].cut

    def baseline(self, constant_answer: str | None, examples: Examples) -> dict[str, Any]:
        """The metrics of always giving the label that is the most frequent among the examples."""
        most_frequent = int(np.bincount(self.truth(examples), minlength=len(self.label_names)).argmax())
        baseline = super().baseline(self.label_names[most_frequent], examples)
        assert baseline is not None  # an answer is given
        return baseline


class _PerExample:
    """Reports examples when as many candidates are done as they have."""

    def __init__(self, report: Report, prompts_per_example: int) -> None:
        self.report, self.each, self.done = report, prompts_per_example, 0

    def __call__(self, candidates: int) -> None:
        """Some more candidates are done."""
        before = self.done // self.each
        self.done += candidates
        if self.done // self.each > before:
            self.report(self.done // self.each - before)


def prompted(loaded: Checkpoint, prompt: Prompt, task: Classification) -> Prompted:
    """A checkpoint that answers a prompt."""
    return Prompted(prompting_of(loaded), prompt, task).eval()
