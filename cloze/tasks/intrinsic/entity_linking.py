"""Entity linking with E-BERT-MLM: the links of texts in rounds, and how well they agree with gold links."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from cloze.batch import Batch
from cloze.batching.collate import flat_links
from cloze.decoding.reader import Checkpoint, Reader, evaluating
from cloze.errors import CheckpointError
from cloze.exercises.facts import TokenFacts
from cloze.exercises.knowledge.ask_mention import AskMention, MatchedNames, MentionCandidates
from cloze.exercises.knowledge.match import Match
from cloze.objectives.tokens.candidate_prediction import CandidatePrediction
from cloze.registry import parameters, recorded_parts
from cloze.rng import Draw
from cloze.rows import Rows
from cloze.tasks.task import Report, silent
from cloze.text.annotation.mentions import Mentions
from cloze.text.matching import read_text

Int64 = NDArray[np.int64]

ROUNDS = 3
_TEXTS = 64  # texts that are decided together
_ALL = 1 << 30
_NEAR = 5  # tokens from the end of a text at which it is not cut


class EntityLink(NamedTuple):
    """A mention, from character `start` to before `end` of its text, the id of its entity, and the probability of this."""

    start: int
    end: int
    id: str
    score: float


class Proposal(NamedTuple):
    """A mention in a row, from token `start` to before `stop`: the probability of `none`, and the best candidate: its token and
    its probability, which is not above that of `none` where the mention means no entity."""

    start: int
    stop: int
    none: float
    token: int
    score: float


def without_overlap(proposals: Sequence[Proposal]) -> list[Proposal]:
    """The proposals that link: of those that overlap, the one whose probability of no entity is lowest decides (NPoe/ebert,
    code/run_aida.py, `_predict_sentence`)."""
    linked_positions: set[int] = set()
    links = []
    for proposal in sorted(proposals, key=lambda proposal: proposal.none):
        covered = range(proposal.start, proposal.stop)
        if linked_positions.isdisjoint(covered):
            linked_positions.update(covered)
            if proposal.score > proposal.none:
                links.append(proposal)
    return links


def surest(links: Sequence[Proposal], before: int, number: int, rounds: int) -> list[Proposal]:
    """The links that the round `number` (0, 1, …) keeps, after `before` of earlier rounds: as many as bring all of them to the
    share (number + 1) / rounds of those known by now, at least one, the most probable first; in the last round all.

    Differs: the authors' code (NPoe/ebert, code/run_aida.py, `predict_sentence`) sorts them by the place of the candidate in its
    list instead, which is its prior's rank.
    """
    most = len(links) if number + 1 == rounds else max((number + 1) * (before + len(links)) // rounds - before, 1)
    return sorted(links, key=lambda link: -link.score)[:most]


@dataclass(frozen=True)
class TextPiece:
    """A stretch of the text `text` that is read in one row: tokens (L,), where words begin, and the place of each token in the
    text, from character `begin` to before `end`. `links` are those found so far; their tokens are among the others."""

    text: int
    ids: NDArray[np.int32]
    word_start: NDArray[np.bool_]
    begin: Int64
    end: Int64
    links: tuple[EntityLink, ...] = ()

    def part(self, start: int, stop: int) -> TextPiece:
        """Some of its tokens."""
        span = slice(start, stop)
        return TextPiece(self.text, self.ids[span], self.word_start[span], self.begin[span], self.end[span])

    def linked(self, links: Sequence[Proposal], names: Mapping[int, str]) -> TextPiece:
        """The piece with the tokens of these entities in place of their mentions; `names` are the ids of their tokens."""
        columns: list[NDArray[Any]] = [self.ids, self.word_start, self.begin, self.end]
        new_links = list(self.links)
        for start, stop, _, token, score in sorted(links, reverse=True):
            first, last = int(columns[2][start]), int(columns[3][stop - 1])
            new_links.append(EntityLink(first, last, names[token], score))
            columns = [
                np.concatenate([column[:start], np.array([value], column.dtype), column[stop:]])
                for column, value in zip(columns, (token, True, first, last), strict=True)
            ]
        ids, starts, begin, end = columns
        return replace(self, ids=ids, word_start=starts, begin=begin, end=end, links=tuple(new_links))


def halved(piece: TextPiece, most: int, stop_id: int | None) -> list[TextPiece]:
    """The piece, or while one has more than `most` tokens its halves, cut behind the full stop nearest to the middle, unless that
    is near an end, else at the word there (NPoe/ebert, code/run_aida.py, `read_aida_file`)."""
    size = len(piece.ids)
    if size <= most:
        return [piece]
    middle = size // 2
    stops = np.flatnonzero(piece.ids == stop_id)
    stops = stops[np.abs(stops - middle) < middle - _NEAR]
    words = np.flatnonzero(piece.word_start[1:]) + 1
    cut = int(_nearest(stops, middle)) + 1 if len(stops) else int(_nearest(words, middle)) if len(words) else middle
    return [*halved(piece.part(0, cut), most, stop_id), *halved(piece.part(cut, size), most, stop_id)]


def _nearest(places: NDArray[np.integer], middle: int) -> Any:
    """The place that is nearest to the middle, of two the first."""
    return places[np.abs(places - middle).argmin()]


class EntityLinker:
    """Links the names that a trained E-BERT-MLM knows to entities, in texts of any length.

    `ask` puts a mask next to a mention, as in training; the `head` over the vocabulary and `candidates` score its candidates. In
    each of the `rounds` the surest links of a text are replaced by the tokens of their entities, before the others are decided.
    `rows` are read at once.
    """

    def __init__(
        self, reader: Reader, head: Any, candidates: CandidatePrediction, match: Match, ask: AskMention, *, rounds: int = ROUNDS,
        rows: int = 32,
    ) -> None:
        self.reader, self.head, self.candidates, self.match, self.ask = reader, head, candidates, match, ask
        self.rounds, self.rows = rounds, rows
        table = (ask.tables or {})[ask.table]
        self.ids = {int(token): table.ids[number - 1] for number, token in enumerate(ask.entity_tokens) if token}
        limit = reader.max_length
        self.most = _ALL if limit is None else ask.max_input(limit - reader.single_layout.added)

    @classmethod
    def of(cls, loaded: Checkpoint, *, rounds: int = ROUNDS, rows: int = 32) -> EntityLinker:
        """That of a checkpoint. Raises a `CheckpointError` for one that was not trained to choose the candidates of mentions."""
        name = next((name for name, head in loaded.heads.items() if isinstance(head, CandidatePrediction)), None)
        recorded: Any = loaded
        edits = [] if name is None else list(recorded_parts(recorded.recipe, "edit", AskMention))
        if name is None or not edits:
            raise CheckpointError(
                f"{loaded.folder}: this network was not trained to choose the candidates of mentions.\n"
                "  Train one with the recipe e-bert-mlm, or link names by a table: cloze link TEXT --entities FILE --out FILE"
            )
        tables = recorded.tables
        arguments = {key: value for key, value in edits[0].items() if key in parameters(AskMention)}
        ask = AskMention(**arguments, tables=tables, tokenizer=TokenFacts.of(loaded.tokenizer))
        match = Match(table=ask.table, most=_ALL, give=ask.of, tables=tables)
        candidates: Any = loaded.heads[name]
        return cls(Reader.of(loaded), loaded.heads[loaded.reads[name][""]], candidates, match, ask, rounds=rounds, rows=rows)

    def link(self, texts: Sequence[str], *, report: Report = silent) -> list[list[EntityLink]]:
        """The links of each text in order. Every text is reported once it is decided."""
        links: list[list[EntityLink]] = []
        for low in range(0, len(texts), _TEXTS):
            group = texts[low : low + _TEXTS]
            of_group: list[list[EntityLink]] = [[] for _ in group]
            for piece in self._linked(self.pieces(group)):
                of_group[piece.text] += [_without_space(group[piece.text], link) for link in piece.links]
            links += map(sorted, of_group)
            report(len(group))
        return links

    def document_mentions(self, sentences: Sequence[str]) -> list[list[dict[str, str | int | float]]]:
        """The mentions of each sentence of a document, which is read as a whole; none across sentences."""
        ends = np.cumsum([len(sentence) + 1 for sentence in sentences])
        mentions: list[list[dict[str, str | int | float]]] = [[] for _ in sentences]
        for start, end, identifier, score in self.link([" ".join(sentences)])[0]:
            number = int(np.searchsorted(ends, start, "right"))
            shift = int(ends[number]) - len(sentences[number]) - 1
            if end - shift <= len(sentences[number]):
                mentions[number].append({"start": start - shift, "end": end - shift, "id": identifier, "score": round(score, 4)})
        return mentions

    def without_mentions(self, sentences: int) -> str:
        """What may be the reason."""
        return (
            f"the network links nothing in {sentences:,} sentences. Nothing was written.\n"
            f"  Its table has {len(self.ids):,} entities; names are found as its tokenizer spells them."
        )

    def pieces(self, texts: Sequence[str]) -> list[TextPiece]:
        """The pieces of all texts that fit into a row with the template of a mention."""
        spelled, stop_id = self.reader.tokenizer.encode_spelled(list(texts)), self.reader.tokenizer.id(".")
        text = TextPiece(0, spelled.ids, spelled.word_start, spelled.begin, spelled.end)
        spans = enumerate(zip(spelled.offsets[:-1].tolist(), spelled.offsets[1:].tolist(), strict=True))
        parts = [replace(text.part(start, stop), text=number) for number, (start, stop) in spans if stop > start]
        return [piece for part in parts for piece in halved(part, self.most, stop_id)]

    def _linked(self, pieces: Sequence[TextPiece]) -> list[TextPiece]:
        """The pieces with their links."""
        state, open_pieces = list(pieces), list(range(len(pieces)))
        for number in range(self.rounds):
            proposals = self.proposals([state[index] for index in open_pieces])
            left = []
            for index, proposed in zip(open_pieces, proposals, strict=True):
                links = without_overlap(proposed)
                if links:
                    chosen = surest(links, len(state[index].links), number, self.rounds)
                    state[index] = state[index].linked(chosen, self.ids)
                    left.append(index)
            open_pieces = left
            if not left:
                break
        return state

    @torch.inference_mode()
    def proposals(self, pieces: Sequence[TextPiece]) -> list[list[Proposal]]:
        """What each mention of each piece may mean."""
        block = _block(pieces)
        names = self.match(block, Draw(np.zeros(len(pieces), np.uint64)))
        mentions = self.ask.mentions(names)
        candidates = self.ask.candidates(mentions)
        mentions, candidates = mentions.take(candidates.counts > 0), candidates.take(candidates.counts > 0)
        proposals: list[list[Proposal]] = [[] for _ in pieces]
        probabilities = np.zeros((len(mentions.row), 1 + candidates.tokens.shape[1]))
        lengths = block["length"][mentions.row].tolist()
        with evaluating(self.reader.network), evaluating(self.candidates), evaluating(self.head):
            for index in self.reader.batches(lengths, rows=self.rows) if lengths else ():
                probabilities[index] = self._probabilities(block, mentions.take(index), candidates.take(index))
        best = 1 + probabilities[:, 1:].argmax(1) if len(probabilities) else np.zeros(0, np.int64)
        for number, (row, start, stop, *_) in enumerate(zip(*mentions, strict=True)):
            token, score = candidates.tokens[number, best[number] - 1], probabilities[number, best[number]]
            none = float(probabilities[number, 0])
            proposals[row].append(Proposal(int(start), int(stop), none, int(token), float(score)))
        return proposals

    def _probabilities(self, block: Rows, mentions: MatchedNames, candidates: MentionCandidates) -> NDArray[np.float64]:
        """(N, 1 + R): no entity, then the candidates."""
        of_rows = mentions._replace(row=np.arange(len(mentions.row)))
        asking = self.ask.asked(block.take(mentions.row), of_rows, candidates)
        framed = [
            self.reader.single_layout([tokens[:length]])
            for tokens, length in zip(asking["tokens"], asking["length"].tolist(), strict=True)
        ]
        batch, shift = self.reader.batch(framed), len(self.reader.single_layout.opening)
        width, most = batch["tokens"].shape[1], candidates.tokens.shape[1]
        base = np.arange(len(framed), dtype=np.int64) * width + shift
        name, set_ = self.ask.give, self.ask.set
        fields = {
            **{field: asking[field] for field in (f"items/{name}", f"item_vectors/{name}", f"item_length/{name}")},
            f"links/{name}": flat_links(asking[f"links/{name}"], base, most),
            f"positions/{set_}": base + asking[f"positions/{set_}"][:, 0],
        }
        tensors = {field: torch.from_numpy(value).to(self.reader.device) for field, value in fields.items()}
        batch = Batch({**batch, **tensors}, checked=True)
        states = self.reader.states(batch, self.head.reads, positions=batch[f"positions/{set_}"])
        with self.reader.autocast():
            scores = self.candidates.scores({"scores": self.head.product(states, batch)}, batch)
        probabilities: NDArray[np.float64] = scores.double().softmax(1).cpu().numpy()
        return probabilities


def _block(pieces: Sequence[TextPiece]) -> Rows:
    """The pieces as a block of rows."""
    length = np.array([len(piece.ids) for piece in pieces], np.int32)
    shape = len(pieces), max(int(length.max(initial=0)), 1)
    tokens, word_start = np.zeros(shape, np.int32), np.zeros(shape, np.bool_)
    for number, piece in enumerate(pieces):
        tokens[number, : len(piece.ids)], word_start[number, : len(piece.ids)] = piece.ids, piece.word_start
    return Rows({"tokens": tokens, "length": length, "word_start": word_start})


def _without_space(text: str, link: EntityLink) -> EntityLink:
    """The link without the space that byte-level pieces begin with."""
    inside = text[link.start : link.end]
    return link._replace(start=link.end - len(inside.lstrip()), end=link.start + len(inside.rstrip()))


@dataclass(frozen=True)
class GoldText:
    """A text with the entity of each of its mentions, by the first character and the one after the last."""

    text: str
    spans: Mapping[tuple[int, int], str]


def read_gold(path: Path | str) -> list[GoldText]:
    """The texts of a file of mentions. Faults are a `CorpusError` with the file and lines."""
    content = read_text(str(path), "mentions")
    return [
        GoldText(record.text, {(start, stop): name for start, stop, name in record.units})
        for record in Mentions(file=str(path)).records(content)
    ]


def measure_links(linker: EntityLinker, gold: Sequence[GoldText], *, report: Report = silent) -> LinkingScores:
    """How well the links of a linker agree with those of these texts."""
    links = linker.link([text.text for text in gold], report=report)
    return LinkingScores.of(
        len(gold), {(number, *span): name for number, text in enumerate(gold) for span, name in text.spans.items()},
        {(number, link.start, link.end): link.id for number, several in enumerate(links) for link in several},
    )


Spans = Mapping[tuple[int, ...], str]  # the entity of every mention by its text and place


@dataclass(frozen=True)
class LinkingScores:
    """Precision, recall and F1 of links. A link is right if a gold mention has its first and last character and its entity.

    `micro_…` counts all mentions together. For `macro_…` precision and recall are computed for each entity and averaged over all
    that either side names; the F1 is that of both averages (NPoe/ebert, code/score_aida.py). Without links precision is 1,
    without gold mentions recall is 1.
    """

    texts: int
    gold: int
    links: int
    micro_precision: float
    micro_recall: float
    micro_f1: float
    macro_precision: float
    macro_recall: float
    macro_f1: float

    @classmethod
    def of(cls, texts: int, gold: Spans, links: Spans) -> LinkingScores:
        """Those of the links of some texts.

        Differs: in the code all gold entities that the network does not know count as one in the macro averages.
        """
        micro = _precision_and_recall(gold, links)
        by_entity: dict[str, tuple[dict[Any, str], dict[Any, str]]] = {}
        for side, spans in enumerate((gold, links)):
            for span, name in spans.items():
                by_entity.setdefault(name, ({}, {}))[side][span] = name
        entity_scores = [_precision_and_recall(*sides) for sides in by_entity.values()]
        macro = (sum(precision for precision, _ in entity_scores), sum(recall for _, recall in entity_scores))
        macro_precision, macro_recall = (total / max(len(by_entity), 1) for total in macro)
        return cls(
            texts, len(gold), len(links), *micro, _f1(*micro), macro_precision, macro_recall, _f1(macro_precision, macro_recall)
        )

    def record(self) -> dict[str, Any]:
        """Plain data, as `--json` prints it."""
        return dict(vars(self))


def _precision_and_recall(gold: Spans, links: Spans) -> tuple[float, float]:
    right = sum(gold.get(span) == entity for span, entity in links.items())
    return right / len(links) if links else 1.0, right / len(gold) if gold else 1.0


def _f1(precision: float, recall: float) -> float:
    return 2 * precision * recall / (precision + recall) if precision + recall else 0.0
