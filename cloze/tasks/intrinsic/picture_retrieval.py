"""Retrieval with pictures: at which rank the right picture of a text stands among pictures, and the right text of a picture.

`cloze evaluate RUN STORE --task retrieval` calls `matcher_of` and `evaluate_pictures`. A matcher scores pairs of a text and a
picture with what its network was trained on: a head that tells whether both belong together, vectors of both that must find each
other, or hidden words alone.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from cloze import rng
from cloze.batch import Batch
from cloze.corpus.items.links import LINKED
from cloze.corpus.records.record_store import RecordStore
from cloze.decoding.bound_head import bind_head
from cloze.decoding.layout import Framed, Layout
from cloze.decoding.lengths import by_length
from cloze.decoding.links import LABELS, exercises_of, link_of, with_links
from cloze.decoding.pictures import Pictures, require_items
from cloze.decoding.reader import Reader, evaluating, head_of_kind
from cloze.decoding.scores.scoring import log_probabilities
from cloze.errors import CheckpointError, TaskError
from cloze.exercises import TokenFacts
from cloze.exercises.frame import Frame
from cloze.exercises.items.link_items import LinkItems
from cloze.exercises.items.mismatch_items import MismatchItems
from cloze.exercises.items.write_items import WriteItems
from cloze.objectives.distances.contrast import Contrast
from cloze.objectives.distances.contrast_pairs import ContrastPairs
from cloze.objectives.distances.mil_nce import MilNce
from cloze.registry import recorded_parts
from cloze.rng import Draw
from cloze.rows import Rows
from cloze.tasks.task import Evaluation, Report, silent

Int64 = NDArray[np.int64]
Floats = NDArray[np.float64]

DEPTHS = (1, 5, 10)
_PAIRS = 1 << 20  # pairs whose scores are held together
_CLOSE = 1e-6  # scores that differ by less are equal


@dataclass(frozen=True)
class Captions:
    """Different texts as ids, pictures, and which belong together: pairs (M, 2) of a text and a picture.

    `linked` are the labels of the layer `linked` (T,), which say which words of a text mean which item, by text and picture.
    """

    texts: Sequence[NDArray[np.int32]]
    pictures: Pictures
    pairs: Int64
    linked: Mapping[tuple[int, int], NDArray[np.int32]] = field(default_factory=dict)

    @classmethod
    def of_store(cls, store: RecordStore) -> Captions:
        """Those of a store of texts with items. Equal texts are one, which belongs to all of their pictures."""
        assert store.items is not None  # the caller has refused other stores
        starts = store.begins(np.arange(store.documents), 1)[:, 0]
        stops = starts + store.lengths[:, 0]
        numbers: dict[bytes, int] = {}
        texts: list[NDArray[np.int32]] = []
        linked: dict[tuple[int, int], NDArray[np.int32]] = {}
        pairs = np.empty((store.documents, 2), np.int64)
        for record, (start, stop) in enumerate(zip(starts.tolist(), stops.tolist(), strict=True)):
            ids = np.asarray(store.tokens[start:stop], np.int32)
            number = numbers.setdefault(ids.tobytes(), len(texts))
            texts += [ids] if number == len(texts) else []
            pairs[record] = number, store.items.pictures[record]
            if LINKED in store.labels:
                linked[number, int(pairs[record, 1])] = np.asarray(store.labels[LINKED][start:stop])
        return cls(texts, Pictures.of_store(store.items), np.unique(pairs, axis=0), linked)

    def count(self, candidates: int | None) -> int:
        """About how many pairs are scored if so many wrong answers are ranked, or all."""
        texts, pictures = len(self.texts), len(self.pictures.keys)
        return texts * pictures + len(self.pairs) if candidates is None else candidates * (texts + pictures) + len(self.pairs)


class Matcher(ABC):
    """Scores pairs of a text and a picture.

    `how` says by what. `default_candidates` is how many random wrong answers are ranked unless the user says otherwise; None:
    all. `zero`: a score above 0 says that both belong together.
    """

    how: ClassVar[str]
    default_candidates: ClassVar[int | None] = 100
    zero: ClassVar[bool] = False

    def __init__(self, reader: Reader, head: Any, captions: Captions, rows: PairRows, *, size: int) -> None:
        self.reader, self.head, self.captions, self.rows, self.size = reader, head, captions, rows, size

    @torch.inference_mode()
    def scores(self, texts: Int64, pictures: Int64, report: Report = silent) -> Floats:
        """The scores of some pairs (N,); the higher, the more they belong together."""
        scores = np.empty(len(texts), np.float64)
        with evaluating(self.reader.network), evaluating(self.head_module):
            for index in by_length(self.rows.lengths(texts, pictures), rows=self.size):
                scores[index] = self.read(texts[index], pictures[index])
                report(len(index))
        return scores

    @property
    def head_module(self) -> Any:
        """The module of the head."""
        return self.head.head

    @abstractmethod
    def read(self, texts: Int64, pictures: Int64) -> Floats:
        """The scores of the pairs of one batch."""


class PairRows:
    """A text and a picture as the network reads them: the text in its frame, the picture as items next to it."""

    def __init__(self, reader: Reader, captions: Captions) -> None:
        self.reader, self.captions = reader, captions
        self.framed = [reader.lay_out([ids], max_length=reader.max_length) for ids in captions.texts]

    def lengths(self, texts: Int64, pictures: Int64) -> list[int]:
        """The number of tokens of each pair."""
        return [len(self.framed[number]) for number in texts.tolist()]

    def row(self, text: int, picture: int) -> Framed:
        """The tokens of a pair."""
        return self.framed[text]

    def batch(self, rows: Sequence[Framed], pictures: Int64) -> Batch:
        """Rows with their pictures."""
        batch = self.reader.batch(rows)
        fields = self.reader.items_of(self.captions.pictures, pictures, np.array([len(row) for row in rows]))
        items = Batch({name: torch.from_numpy(value) for name, value in fields.items()}).to(self.reader.device)
        return Batch({**batch, **items}, checked=True)


class LinkedRows(PairRows):
    """A text and a picture, where words of the text are linked with items of the picture (B2T2). Next to a picture that is not
    its own, a text has the links that it has next to the first one that is."""

    def __init__(self, reader: Reader, captions: Captions, link: LinkItems) -> None:
        super().__init__(reader, captions)
        self.link = link
        self.first = {text: (text, picture) for text, picture in sorted(captions.linked, reverse=True)}

    def row(self, text: int, picture: int) -> Framed:
        labels = self.captions.linked[(text, picture) if (text, picture) in self.captions.linked else self.first[text]]
        return self.framed[text].marked([{LABELS: labels}])

    def batch(self, rows: Sequence[Framed], pictures: Int64) -> Batch:
        """Rows with their pictures, and links of tokens with items."""
        return with_links(super().batch(rows, pictures), rows, self.link)


class WrittenRows(PairRows):
    """A text with the visual words of a film behind it, in the frame of training (VideoBERT)."""

    def __init__(self, reader: Reader, captions: Captions, *, write: WriteItems, layout: Layout) -> None:
        self.reader, self.captions, self.layout = reader, captions, layout
        films = captions.pictures.sets[write.set]
        fields = films.read(np.arange(len(films.spans)), [write.array], reader.most_items)
        arrays = write(Rows(fields), Draw(np.zeros(len(films.spans), np.uint64)))
        tokens, length = arrays[f"{write.to}.tokens"], arrays[f"{write.to}.length"]
        self.films = [tokens[number, :stop] for number, stop in enumerate(length.tolist())]

    def lengths(self, texts: Int64, pictures: Int64) -> list[int]:
        pairs = zip(texts.tolist(), pictures.tolist(), strict=True)
        return [len(self.captions.texts[text]) + len(self.films[film]) for text, film in pairs]

    def row(self, text: int, picture: int) -> Framed:
        return self.layout([self.captions.texts[text], self.films[picture]], max_length=self.reader.max_length)

    def batch(self, rows: Sequence[Framed], pictures: Int64) -> Batch:
        return self.reader.batch(rows)


class ByHead(Matcher):
    """The log-odds of the head that tells whether text and picture belong together."""

    how = "the head that tells whether text and picture belong together"
    zero = True

    def read(self, texts: Int64, pictures: Int64) -> Floats:
        rows = [self.rows.row(text, picture) for text, picture in zip(texts.tolist(), pictures.tolist(), strict=True)]
        batch = self.rows.batch(rows, pictures)
        every = torch.arange(len(rows), device=self.reader.device)
        scores = self.reader.scores(self.head, self.reader.states(batch, self.head.reads), batch, every)
        return _floats(scores[:, 1] - scores[:, 0])


class ByPairs(Matcher):
    """What `contrast_pairs` makes of a pair that the network has read."""

    how = "the score of pairs that were read together"

    def read(self, texts: Int64, pictures: Int64) -> Floats:
        rows = [self.rows.row(text, picture) for text, picture in zip(texts.tolist(), pictures.tolist(), strict=True)]
        batch = self.rows.batch(rows, pictures)
        pooled = self.reader.states(batch, ("pooled",))["pooled"]  # of each row's own pair, as pair_pooled has it
        return _floats(self.head.head(pooled)[:, 0])


class ByVectors(Matcher):
    """The product of the vectors of text and picture, each made once."""

    how = "the product of the vectors of text and picture"
    default_candidates = None

    def __init__(self, reader: Reader, head: Any, captions: Captions, rows: PairRows, *, size: int) -> None:
        super().__init__(reader, head, captions, rows, size=size)
        count = max(len(captions.texts), len(captions.pictures.keys))
        sides: dict[str, list[NDArray[np.float32]]] = {"query": [], "key": []}
        with torch.inference_mode(), evaluating(reader.network), evaluating(head.objective):
            for low in range(0, count, size):
                numbers = np.arange(low, min(low + size, count))
                texts, pictures = numbers % len(captions.texts), numbers % len(captions.pictures.keys)
                batch = rows.batch([rows.row(text, 0) for text in texts.tolist()], pictures)
                states = reader.states(batch, head.reads)
                readings = {name: states[state] for name, state in zip(head.objective.reads, head.reads, strict=True)}
                batch_vectors = head.objective.vectors(readings)
                for name, parts in sides.items():
                    parts.append(batch_vectors[name].float().cpu().numpy())
        vectors = {state: np.concatenate(sides[name]) for name, state in zip(("query", "key"), head.reads, strict=True)}
        self.text_vectors, self.item_vectors = vectors["text_mean"], vectors["item_mean"]

    def read(self, texts: Int64, pictures: Int64) -> Floats:
        return np.einsum("nd,nd->n", self.text_vectors[texts], self.item_vectors[pictures]).astype(np.float64)

    @property
    def head_module(self) -> Any:
        return self.head.objective


class ByWords(Matcher):
    """By how much a picture makes the words of a text more probable: each word is hidden alone, once with the picture and once
    without; the differences of the log-probabilities are added up."""

    how = "how much more probable a picture makes the words of a text"

    def __init__(self, reader: Reader, head: Any, captions: Captions, rows: PairRows, *, size: int) -> None:
        super().__init__(reader, head, captions, rows, size=size)
        self.alone: dict[int, float] = {}

    def read(self, texts: Int64, pictures: Int64) -> Floats:
        new = np.array([text for text in dict.fromkeys(texts.tolist()) if text not in self.alone], np.int64)
        if len(new):
            self.alone.update(zip(new.tolist(), self._likelihoods(new, None).tolist(), strict=True))
        return self._likelihoods(texts, pictures) - np.array([self.alone[text] for text in texts.tolist()])

    def _likelihoods(self, texts: Int64, pictures: Int64 | None) -> Floats:
        """The sum of the log-probabilities of each text's words, each hidden alone (N,)."""
        mask = self.reader.tokenizer.role("[MASK]")
        rows, owner, column = [], [], []
        for number, text in enumerate(texts.tolist()):
            row = self.rows.row(text, 0 if pictures is None else int(pictures[number]))
            for position in np.flatnonzero(self.reader.predictable(row)).tolist():
                rows.append(row.masked(np.array([position]), mask))
                owner.append(number)
                column.append(position)
        owners, at = np.array(owner, np.int64), np.array(column, np.int64)
        likelihoods = np.zeros(len(texts))
        for low in range(0, len(rows), self.size):
            span = slice(low, low + self.size)
            batch = self.reader.batch(rows[span]) if pictures is None else self.rows.batch(rows[span], pictures[owners[span]])
            places = np.arange(len(rows[span])) * batch["tokens"].shape[1] + at[span]
            right = np.array([
                self.rows.row(int(texts[n]), 0).ids[c] for n, c in zip(owners[span], at[span], strict=True)
            ], np.int64)  # fmt: skip
            positions, targets = (torch.from_numpy(x).to(self.reader.device) for x in (places, right))
            states = self.reader.states(batch, self.head.reads, positions=positions)
            word_scores = log_probabilities(self.reader, self.head, states, batch, positions, targets)
            np.add.at(likelihoods, owners[span], word_scores.double().cpu().numpy())
        return likelihoods


def matcher_of(loaded: Any, captions: Captions, *, whose: str, size: int = 64) -> Matcher:
    """What scores the pairs of texts and pictures of `whose` with a checkpoint; an error if it reads no pictures."""
    reader, network = Reader.of(loaded), loaded.network
    exercises = list(exercises_of(loaded.recipe))
    matching = [(edits, next(recorded_parts(edits, "edit", MismatchItems), None)) for edits in exercises]
    word_edits = next(
        (edits for edits, match in matching if match is not None and any(recorded_parts(edits, "edit", WriteItems))), None
    )
    if word_edits is not None:
        recorded = next(recorded_parts(word_edits, "edit", WriteItems))
        arguments = {name: value for name, value in recorded.items() if name in ("set", "array", "to")}
        write = WriteItems(**arguments, tokenizer=TokenFacts.of(loaded.tokenizer))
        if write.set not in captions.pictures.sets or write.array not in captions.pictures.sets[write.set].kinds:
            raise TaskError(f"{whose}: has no items {write.set!r} with {write.array!r}, which the checkpoint reads as words.")
        frame = next(recorded_parts(word_edits, "edit", Frame))
        template = frame["template"].replace(f"{{{write.to}}}", "{B}")
        rows: PairRows = WrittenRows(reader, captions, write=write, layout=Layout(
            template, loaded.tokenizer, frame.get("segments") or ()
        ))  # fmt: skip
    else:
        require_items(loaded, captions.pictures.sets, whose)
        link = link_of(loaded.recipe)
        rows = PairRows(reader, captions) if link is None or not captions.linked else LinkedRows(reader, captions, link)
    sets = {match.get("set", MismatchItems.set) for _, match in matching if match is not None}
    for name, head in loaded.heads.items():
        if head.kind == "relation_prediction" and head.set in sets:
            return ByHead(reader, bind_head(head, loaded.reads.get(name)), captions, rows, size=size)
    for kind, matcher in ((Contrast, ByVectors), (MilNce, ByVectors), (ContrastPairs, ByPairs)):
        for name, head in loaded.heads.items():
            if isinstance(head, kind) and {"text_mean", "item_mean", "pair_pooled"} & network.gives.keys():
                return matcher(reader, bind_head(head, loaded.reads.get(name)), captions, rows, size=size)
    head = head_of_kind(loaded, "token_prediction")
    if head is None or network.writes == "hidden":
        raise CheckpointError(
            f"{loaded.folder}: has no head that compares texts with pictures or predicts words.\n"
            "  Train uniter, unicoder-vl, vilbert, lxmert or b2t2 for matching, or univilm for vectors."
        )
    return ByWords(reader, head, captions, rows, size=size)


def evaluate_pictures(
    matcher: Matcher, captions: Captions, *, candidates: int | None = None, seed: int = 0, report: Report = silent
) -> Evaluation:
    """Reciprocal rank and recall of the right picture of each text among all pictures, and of the right text of each picture
    among all texts, or among its own and so many random wrong ones (`candidates`). Several right answers do not count against
    each other, the best one counts, and a wrong one with the same score stands before it. The baseline is a random order.
    """
    ranking = PictureRanks(matcher, captions, candidates=candidates, seed=seed, report=report)
    sides = {"text to picture": 0, "picture to text": 1}
    every = {name: (ranking.ranks[side], ranking.right[side], ranking.wrong[side]) for name, side in sides.items()}
    rows: list[Mapping[str, Any]] = [
        {"direction": name, "questions": len(ranks), **figures(ranks), "random recall@1": chance(right, wrong)["recall@1"]}
        for name, (ranks, right, wrong) in every.items()
    ]
    ranks, right, wrong = (np.concatenate(parts) for parts in zip(*every.values(), strict=True))
    metrics = figures(ranks) | ({"matching": ranking.matching} if matcher.zero else {})
    remarks = [f"scored by {matcher.how}"]
    if candidates is not None:
        remarks.append(f"ranked among {candidates:,} random wrong ones, or all if there are fewer: --candidates all ranks all")
    baseline = {"always": "a random order", **chance(right, wrong), **({"matching": 0.5} if matcher.zero else {})}
    return Evaluation(len(ranks), metrics, baseline, tuple(remarks), by_class=rows)


class PictureRanks:
    """The ranks of the right answers of both sides, texts (0) and pictures (1).

    `ranks`, and the numbers of `right` and of `wrong` answers that were ranked, are by side, (questions,) each. `matching` is the
    share of pairs whose score has the right sign, where right and wrong pairs count by half each.
    """

    def __init__(
        self, matcher: Matcher, captions: Captions, *, candidates: int | None, seed: int, report: Report
    ) -> None:
        pairs = captions.pairs
        sizes = len(captions.texts), len(captions.pictures.keys)
        pair_scores = matcher.scores(pairs[:, 0], pairs[:, 1], report)
        questions = [np.unique(pairs[:, side]) for side in (0, 1)]
        best = [np.full(size, -np.inf) for size in sizes]
        for side in (0, 1):
            np.maximum.at(best[side], pairs[:, side], pair_scores)
        keys = np.unique(pairs[:, 0] * sizes[1] + pairs[:, 1])
        before = [np.zeros(size, np.int64) for size in sizes]
        wrong = [np.zeros(size, np.int64) for size in sizes]
        negative = total = 0
        for chosen, sides in _wrong_pairs(questions, sizes, keys, candidates, seed):
            scores = matcher.scores(chosen[:, 0], chosen[:, 1], report)
            negative, total = negative + int((scores < 0).sum()), total + len(scores)
            for side in sides:
                question = chosen[:, side]
                np.add.at(before[side], question, scores >= best[side][question] - _CLOSE)
                np.add.at(wrong[side], question, 1)
        self.ranks = [before[side][questions[side]] + 1 for side in (0, 1)]
        self.right = [np.bincount(pairs[:, side], minlength=sizes[side])[questions[side]] for side in (0, 1)]
        self.wrong = [wrong[side][questions[side]] for side in (0, 1)]
        self.matching = float(((pair_scores > 0).mean() + negative / max(total, 1)) / 2)


def _wrong_pairs(
    questions: Sequence[Int64], sizes: tuple[int, int], known_pairs: Int64, candidates: int | None, seed: int
) -> Iterator[tuple[Int64, tuple[int, ...]]]:
    """Pairs (N, 2) that do not belong together, some at a time, with the sides for which they are wrong answers."""
    if candidates is None:
        step = max(1, _PAIRS // len(questions[1]))
        for low in range(0, len(questions[0]), step):
            texts = questions[0][low : low + step]
            pairs = np.stack([np.repeat(texts, len(questions[1])), np.tile(questions[1], len(texts))], 1)
            yield pairs[~np.isin(pairs[:, 0] * sizes[1] + pairs[:, 1], known_pairs)], (0, 1)
        return
    for side in (0, 1):
        step = max(1, _PAIRS // candidates)
        for low in range(0, len(questions[side]), step):
            drawn = [
                (question, answer) for question in questions[side][low : low + step].tolist()
                for answer in _drawn(question, side, questions[1 - side], sizes[1], known_pairs, candidates, seed)
            ]
            pairs = np.array(drawn, np.int64).reshape(-1, 2)
            yield pairs if side == 0 else pairs[:, ::-1], (side,)


def _drawn(
    question: int, side: int, answers: Int64, pictures: int, known_pairs: Int64, count: int, seed: int
) -> list[int]:
    """So many random wrong answers to a question, or all if there are fewer."""
    key = question * pictures + answers if side == 0 else answers * pictures + question
    free = answers[~np.isin(key, known_pairs)]
    negatives: list[int] = free[rng.permutation(len(free), seed, "pictures", side, question)[:count]].tolist()
    return negatives


def figures(ranks: Int64) -> dict[str, float]:
    """The mean of the reciprocal ranks, and the share of right answers among the first 1, 5 and 10."""
    return {"mrr": float((1 / ranks).mean()), **{f"recall@{depth}": float((ranks <= depth).mean()) for depth in DEPTHS}}


def chance(right: Int64, wrong: Int64) -> dict[str, float]:
    """The same of a random order, with so many right and wrong answers (N,) to each question.

    The first right one stands behind at least j wrong ones with the probability ∏ (w − i) / (w + r − i) for i < j.
    """
    kinds, counts = np.unique(np.stack([right, wrong], 1), axis=0, return_counts=True)
    metrics = dict.fromkeys(("mrr", *(f"recall@{depth}" for depth in DEPTHS)), 0.0)
    for (r, w), count in zip(kinds.tolist(), counts.tolist(), strict=True):
        i = np.arange(w)
        behind = np.cumprod(np.append(1.0, (w - i) / (w + r - i)))  # at least j wrong ones stand before it, j = 0 … w
        exactly = behind - np.append(behind[1:], 0.0)
        share = count / len(right)
        metrics["mrr"] += share * float((exactly / (1 + np.arange(w + 1))).sum())
        for depth in DEPTHS:
            metrics[f"recall@{depth}"] += share * float(exactly[:depth].sum())
    return metrics


def _floats(x: torch.Tensor) -> Floats:
    array: Floats = x.double().cpu().numpy()
    return array
