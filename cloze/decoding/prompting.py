"""The probability of answers to a prompt: one method for each kind of network.

A network that reads from left to right predicts the answer's tokens in order (`InOrder`; Brown et al., "Language
Models are Few-Shot Learners", 2020, §2.4), one that fills gaps predicts them at as many [MASK]s (`InGaps`; Schick and Schütze,
"Exploiting Cloze Questions for Few Shot Text Classification", 2021, §3), and a decoder writes the answer (`DecoderPrompting`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from cloze.corpus.records.windows import shares
from cloze.decoding.generating.forms import ByDecoder
from cloze.decoding.generating.sequence import has_decoder
from cloze.decoding.layout import Framed, Ids, Marks
from cloze.decoding.marks import unlabelled
from cloze.decoding.prompts import FilledPrompt
from cloze.decoding.reader import Checkpoint, Reader, head_of_kind, orders_of, prediction_head
from cloze.decoding.scores.scoring import log_probabilities
from cloze.errors import CheckpointError, TaskError, UserError

Report = Callable[[int], None]
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class PromptWithAnswer:
    """A prompt with one answer as it is read, and the positions of the answer's tokens in the row or in the decoder's text.

    `cut` tokens of its texts did not fit.
    """

    source: Framed
    asked: NDArray[np.int64]
    target: Ids
    cut: int = 0


class Prompting(ABC):
    """Scores the answers to prompts by a network."""

    def __init__(self, reader: Reader, head: Any) -> None:
        self.reader, self.head = reader, head

    def candidates(self, filled: Sequence[FilledPrompt], answers: Sequence[str]) -> list[PromptWithAnswer]:
        """Prompts with their answers as they are read: the texts in them lose their ends if they do not fit.

        An answer without a token, and a prompt that is too long without these texts, is a `TaskError`.
        """
        texts = [self.shown(prompt).text for prompt in filled]
        spelled, marks = self.reader.tokenizer.encode_spelled(texts), self.reader.marks(texts)
        candidates = []
        for number, (prompt, answer) in enumerate(zip(filled, answers, strict=True)):
            tokens = slice(int(spelled.offsets[number]), int(spelled.offsets[number + 1]))
            begin, end = spelled.begin[tokens], spelled.end[tokens]
            ids, inside = spelled.ids[tokens], [(end > start) & (begin < stop) for start, stop in prompt.texts]
            mask = self._kept(len(ids), inside)
            own_marks = {name: values[mask] for name, values in marks[number].items()}
            candidates.append(self.candidate(ids, mask, begin, end, self.shown(prompt), answer, own_marks))
        return candidates

    def shown(self, prompt: FilledPrompt) -> FilledPrompt:
        """A prompt as the network reads it."""
        return prompt

    @abstractmethod
    def candidate(
        self, ids: Ids, keep: Bools, begin: NDArray[np.int64], end: NDArray[np.int64], prompt: FilledPrompt, answer: str,
        marks: Marks
    ) -> PromptWithAnswer:
        """One prompt of the tokens where `keep`, with their labelled layers; `begin` and `end` are the characters of all."""

    @abstractmethod
    def scores(self, candidates: Sequence[PromptWithAnswer], *, size: int, report: Report) -> NDArray[np.float64]:
        """log P(answer | prompt) of each (N,)."""

    #: The number of tokens of a row besides those of the prompt and its frame.
    extra = 0

    def _kept(self, length: int, texts: Sequence[Bools]) -> Bools:
        """Which of a prompt's tokens are read: those at the end of the longest text are dropped first."""
        mask = np.ones(length, bool)
        if self.reader.max_length is None:
            return mask
        excess = length - (self.reader.max_length - self.reader.single_layout.added - self.extra)
        if excess <= 0:
            return mask
        sizes = np.array([[int(text.sum()) for text in texts]])
        if sizes.sum() < excess:
            raise TaskError(
                f"a prompt takes {length - int(sizes.sum())} tokens without the text that it asks about; this network reads at "
                f"most {self.reader.max_length}.\n  Use fewer --shots, or a shorter --template."
            )
        for text, max_tokens in zip(texts, shares(sizes, int(sizes.sum()) - excess)[0], strict=True):
            mask[np.flatnonzero(text)[max_tokens:]] = False
        return mask


class _InPlace(Prompting):
    """The answer is part of the prompt."""

    def candidate(
        self, ids: Ids, keep: Bools, begin: NDArray[np.int64], end: NDArray[np.int64], prompt: FilledPrompt, answer: str,
        marks: Marks
    ) -> PromptWithAnswer:
        """The targets are the tokens of the answer and of the space before it, which may be a token of its own. A unit that holds
        one has no label."""
        start, stop = prompt.answer
        start = len(prompt.text[:start].rstrip(" "))
        answer_mask = ((end > start) & (begin < stop))[keep]
        if not answer_mask.any():
            raise TaskError(f"--verbalise: the answer {answer!r} has no token in this vocabulary. Choose another word for it.")
        row = self.reader.single_layout([ids[keep]]).marked([unlabelled(marks, answer_mask)])
        (framed,) = self.reader.with_facts([row], self.reader.max_length)
        positions = np.flatnonzero(framed.part == 0)[answer_mask]
        return PromptWithAnswer(framed, positions, framed.ids[positions], int((~keep).sum()))


class InOrder(_InPlace):
    """The sum of log P(token of the answer | everything before it); what follows the answer in the template is not read."""

    def candidate(
        self, ids: Ids, keep: Bools, begin: NDArray[np.int64], end: NDArray[np.int64], prompt: FilledPrompt, answer: str,
        marks: Marks
    ) -> PromptWithAnswer:
        """A row that begins with its answer gets [BOS] in front."""
        candidate = super().candidate(ids, keep, begin, end, prompt, answer, marks)
        source = candidate.source.take(np.arange(int(candidate.asked[-1]) + 1))
        if candidate.asked[0]:
            return replace(candidate, source=source)
        first = self.reader.tokenizer.roles.get("[BOS]")
        if first is None:
            raise TaskError("--template begins with {answer}, before which this network reads nothing. Put text before it.")
        return replace(candidate, source=source.with_first(first), asked=candidate.asked + 1)

    @torch.inference_mode()
    def scores(self, candidates: Sequence[PromptWithAnswer], *, size: int, report: Report) -> NDArray[np.float64]:
        """All tokens in one pass: none sees a later one."""
        sums = np.zeros(len(candidates))
        for index in self.reader.batches([len(candidate.source) for candidate in candidates], rows=size):
            group = [candidates[i] for i in index]
            batch = self.reader.batch([candidate.source for candidate in group])
            width = batch["tokens"].shape[1]
            positions = np.concatenate([candidate.asked - 1 + row * width for row, candidate in enumerate(group)])
            targets = np.concatenate([candidate.target for candidate in group]).astype(np.int64)
            at, target_ids = (torch.from_numpy(array).to(self.reader.device) for array in (positions, targets))
            states = self.reader.states(batch, self.head.reads, positions=at)
            log_probs = log_probabilities(self.reader, self.head, states, batch, at, target_ids).double().cpu().numpy()
            sums[index] = np.bincount(positions // width, log_probs, len(group))
            report(len(index))
        return sums


class InGaps(_InPlace):
    """The sum of log P(token of the answer | the prompt, the answer's tokens before it, and [MASK] for it and those after it).

    So the probabilities of all answers of one length add up to 1. Differs: of several tokens, Schick and Schütze ("It's Not
    Just Size That Matters", 2021, §3.1) predict the most probable one first.
    """

    @torch.inference_mode()
    def scores(self, candidates: Sequence[PromptWithAnswer], *, size: int, report: Report) -> NDArray[np.float64]:
        """One pass for each token of an answer."""
        sums = np.zeros(len(candidates))
        for step in range(max((len(candidate.asked) for candidate in candidates), default=0)):
            left = [number for number, candidate in enumerate(candidates) if len(candidate.asked) > step]
            for index in self.reader.batches([len(candidates[i].source) for i in left], rows=size):
                group = [left[i] for i in index]
                sums[group] += self._asked([candidates[i] for i in group], step)
                report(sum(len(candidates[i].asked) == step + 1 for i in group))
        return sums

    def _asked(self, candidates: Sequence[PromptWithAnswer], step: int) -> NDArray[np.float64]:
        mask = self.reader.tokenizer.role("[MASK]")
        rows = []
        for candidate in candidates:
            ids, spelled = candidate.source.ids.copy(), candidate.source.characters
            ids[candidate.asked[step:]] = mask
            if spelled is not None:  # a masked word has no characters
                spelled = spelled.copy()
                spelled[candidate.asked[step:]] = 0
            rows.append(replace(candidate.source, ids=ids, characters=spelled))
        batch = self.reader.batch(rows)
        width = batch["tokens"].shape[1]
        positions = torch.tensor(
            [row * width + int(candidate.asked[step]) for row, candidate in enumerate(candidates)], device=self.reader.device
        )
        targets = torch.tensor([int(candidate.target[step]) for candidate in candidates], device=self.reader.device)
        read, at = self.reader.prediction_inputs(self.head, batch, positions)
        states = self.reader.states(read, self.head.reads, positions=at)
        return log_probabilities(self.reader, self.head, states, read, at, targets).double().cpu().numpy()


class DecoderPrompting(Prompting):
    """The log-probability that a decoder writes the answer, its end included, for the prompt without it.

    If the vocabulary has sentinels, the first replaces the answer, and the decoder writes it before the answer, as in T5's
    training.
    """

    extra = 1

    def __init__(self, reader: Reader, head: Any) -> None:
        super().__init__(reader, head)
        self.form = ByDecoder(reader)
        sentinels = np.asarray(reader.tokenizer.sentinels, np.int32)
        self.lead = sentinels[:1]

    def shown(self, prompt: FilledPrompt) -> FilledPrompt:
        """The prompt without its answer."""
        start, stop = prompt.answer

        def moved(position: int) -> int:
            return position if position <= start else position - (stop - start)

        texts = tuple((moved(begin), moved(end)) for begin, end in prompt.texts)
        return FilledPrompt(prompt.text[:start] + prompt.text[stop:], (start, start), texts)

    def candidate(
        self, ids: Ids, keep: Bools, begin: NDArray[np.int64], end: NDArray[np.int64], prompt: FilledPrompt, answer: str,
        marks: Marks
    ) -> PromptWithAnswer:
        """The prompt with a sentinel in place of its answer, and the answer as the decoder writes it."""
        answer_ids = np.asarray(self.reader.tokenizer.targets.encode(answer).ids, np.int32)
        if not len(answer_ids):
            raise TaskError(f"--verbalise: the answer {answer!r} has no token in this vocabulary. Choose another word for it.")
        position = int((end <= prompt.answer[0])[keep].sum())
        around = {name: np.insert(values, [position] * len(self.lead), 0, axis=0) for name, values in marks.items()}
        row = self.reader.single_layout([np.insert(ids[keep], position, self.lead)]).marked([around])
        (framed,) = self.reader.with_facts([row], self.reader.max_length)
        target, _ = self.form.target(np.concatenate([self.lead, answer_ids]))
        return PromptWithAnswer(framed, np.zeros(0, np.int64), target, int((~keep).sum()))

    @torch.inference_mode()
    def scores(self, candidates: Sequence[PromptWithAnswer], *, size: int, report: Report) -> NDArray[np.float64]:
        """All tokens in one pass: the decoder sees no later one."""
        sums = np.zeros(len(candidates))
        for index in self.reader.batches([len(candidate.source) for candidate in candidates], rows=size):
            sums[index] = self.form.log_probabilities(self.head, [candidates[i] for i in index])
            report(len(index))
        return sums


def prompting_of(loaded: Checkpoint) -> Prompting:
    """How a checkpoint scores answers; an error if it predicts no tokens, or reads in both directions without a [MASK]."""
    reader = Reader.of(loaded)
    if has_decoder(reader):
        head = head_of_kind(loaded, "token_prediction")
        if head is None:
            raise CheckpointError(f"{loaded.folder}: prompts need a head that predicts tokens; this checkpoint has none.")
        return DecoderPrompting(reader, head)
    head = prediction_head(loaded, verb="predict --template")
    if orders_of(loaded)[0] == "left_to_right":
        return InOrder(reader, head)
    if "[MASK]" not in loaded.tokenizer.roles:
        raise UserError(
            f"{loaded.folder}: this network reads in both directions, and its tokenizer has no [MASK] for an answer's place.\n"
            "  Use a network that reads from left to right, one trained to fill in [MASK], or one that writes."
        )
    return InGaps(reader, head)
