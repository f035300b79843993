"""Link prediction by text: networks that read the texts of a graph score triples or tell relations (KG-BERT), or encode entities
(KEPLER)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cloze.corpus.stores.graph import Graph
from cloze.decoding.bound_head import bind_head
from cloze.decoding.layout import Framed, Layout
from cloze.decoding.reader import Reader, evaluating
from cloze.errors import TaskError
from cloze.exercises.frame import Frame, split_template
from cloze.knowledge.triple_files import read_graph
from cloze.knowledge.triple_texts import TripleTexts
from cloze.objectives.distances.triple_contrast import TripleContrast
from cloze.objectives.labels.relation_prediction import RelationClassification
from cloze.registry import recorded_parts
from cloze.tasks.intrinsic.link_prediction import Column, LinkScorer, Translations, scorer_of

Int64 = NDArray[np.int64]

_PLACES = ("A", "relation", "tail")  # what the template of training calls the columns of a triple
_BATCH = 64


class _TextScorer(LinkScorer):
    """Reads the texts of a triple in the `frame` of training, and scores them by the head of that name."""

    def __init__(self, loaded: Any, graph: Graph, frame: Mapping[str, Any], head: str) -> None:
        self.reader = Reader.of(loaded)
        self.entities, self.relations = graph.entities, graph.relations
        self.head = bind_head(loaded.heads[head], loaded.reads.get(head))
        template = frame["template"]
        self.placed = [column for column, name in enumerate(_PLACES) if f"{{{name}}}" in template]
        for letter, column in zip("ABC", self.placed, strict=False):
            template = template.replace(f"{{{_PLACES[column]}}}", f"{{{letter}}}")
        self.layout = Layout(template, loaded.tokenizer, frame.get("segments") or ())
        lengths = [arguments.get("length") for arguments in recorded_parts(loaded.recipe, "source", TripleTexts)]
        self.length = min([n for n in (*lengths, self.reader.max_length) if n is not None], default=None)
        ids = self.reader.ids(graph.texts)
        self.texts, self.links = ids[: len(graph.entities)], ids[len(graph.entities) :]

    @torch.no_grad()
    def read(self, triples: Int64, outputs: int) -> Tensor:
        """The scores of the head for triples (B, 3), (B, outputs)."""
        texts = (self.texts, self.links, self.texts)
        rows = [
            self.layout([texts[column][triple[column]] for column in self.placed], max_length=self.length)
            for triple in triples.tolist()
        ]
        scores = torch.empty(len(rows), outputs)
        for index, states, batch in _read(self.reader, rows, self.head.reads):
            everything = torch.arange(len(index), device=self.reader.device)
            scores[torch.from_numpy(index)] = self.reader.scores(self.head, states, batch, everything).float().cpu()
        return scores


class TripleReader(_TextScorer):
    """Scores triples by reading each of them: the log-odds that it is a fact (KG-BERT).

    Differs: the authors' code ranks by the output for a fact alone (`run_bert_link_prediction.py`); log-odds have the order of
    the paper's score.

    Every candidate is a forward pass, so by default only 100 entities are ranked.
    """

    default_candidates, decides = 100, True
    at_once = 16 * (default_candidates + 1)

    def scores(self, triples: Int64, column: Column, candidates: Int64 | None) -> Tensor:
        """The log-odds, (B, C)."""
        chosen = np.tile(np.arange(len(self.names(column))), (len(triples), 1)) if candidates is None else candidates
        candidate_triples = np.repeat(triples, chosen.shape[1], axis=0)
        candidate_triples[:, column] = chosen.reshape(-1)
        scores = self.read(candidate_triples, 2)
        return (scores[:, 1] - scores[:, 0]).view(chosen.shape)


class RelationReader(_TextScorer):
    """Scores the relations between two entities whose texts it reads (KG-BERT for relation prediction). It knows the relations
    that it was trained on."""

    columns: ClassVar[frozenset[Column]] = frozenset({1})

    def __init__(self, loaded: Any, graph: Graph, frame: Mapping[str, Any], head: str) -> None:
        super().__init__(loaded, graph, frame, head)
        self.relations = loaded.heads[head].relations

    def scores(self, triples: Int64, column: Column, candidates: Int64 | None) -> Tensor:
        """The scores of relations, (B, C)."""
        scores = self.read(triples, len(self.relations))
        return scores if candidates is None else scores.gather(1, torch.from_numpy(candidates))


class DescriptionReader(Translations):
    """Scores triples by the summaries of their entities' texts and the vectors of relations, or the summaries of their texts
    (KEPLER).

    Each text is read once, whether training has seen it or not.
    """

    def __init__(self, loaded: Any, graph: Graph) -> None:
        name = next(name for name, head in loaded.heads.items() if isinstance(head, TripleContrast))
        self.head, self.reader = loaded.heads[name], Reader.of(loaded)
        self.entities, self.norm = graph.entities, float(self.head.norm)
        self.relations = graph.relations if self.head.describe else self.head.relations
        self.reads, count = bind_head(self.head, loaded.reads.get(name)).reads, len(graph.entities)
        vectors = self.summaries(graph.texts if self.head.describe else graph.texts[:count])
        self.vectors = vectors[:count]
        self.steps = vectors[count:] if self.head.describe else self.head.head.weight.detach().float()

    def summaries(self, texts: Sequence[str], second_texts: Sequence[str] | None = None) -> Tensor:
        """The summaries of texts, or of pairs of texts, (N, D)."""
        rows = self.reader.encode(texts, second_texts)
        vectors = torch.empty(len(rows), self.head.width)
        for index, states, _ in _read(self.reader, rows, self.reads):
            vectors[torch.from_numpy(index)] = states[self.reads[0]].float().cpu()
        return vectors.to(self.reader.device)


class ConditionedReader(DescriptionReader):
    """Scores triples by the summary of one entity's text with that of the relation, the relation's vector, and the summary of the
    other entity's text, which is ranked (KEPLER-Cond)."""

    columns: ClassVar[frozenset[Column]] = frozenset({0, 2})

    def __init__(self, loaded: Any, graph: Graph) -> None:
        super().__init__(loaded, graph)
        self.texts = graph.texts[: len(graph.entities)]
        texts = dict(zip(graph.relations, graph.texts[len(graph.entities) :], strict=True))
        self.relation_texts = [texts.get(name, name) for name in self.relations]

    def targets(self, triples: Tensor, column: Column) -> Tensor:
        """From the entity that is not ranked, read with the relation."""
        steps, known = triples[:, 1], triples[:, 2 - column].tolist()
        vectors = self.summaries([self.texts[number] for number in known], [self.relation_texts[n] for n in steps.tolist()])
        return vectors + self.steps[steps] if column == 2 else vectors - self.steps[steps]


def scorer_of_any(loaded: Any, graph: str | Path | None) -> LinkScorer:
    """The scorer of a checkpoint. `graph` names the entities that are ranked and their texts, for a network that reads texts."""
    describes = any(isinstance(head, TripleContrast) for head in loaded.heads.values())
    frame = _framed(loaded)
    head = next((name for name, head in loaded.heads.items() if head.kind == "relation_prediction"), None)
    if not describes and (frame is None or head is None):
        scorer = scorer_of(loaded)
        if graph is not None:
            raise TaskError(f"{loaded.folder}: ranks the entities that it was trained on: omit --graph.")
        return scorer
    if graph is None:
        raise TaskError(
            f"{loaded.folder}: reads the texts of entities; --graph GRAPH names the entities that are ranked.\n"
            "  Build one: cloze corpus build FACTS.tsv --format triples --entities ENTITIES.tsv --relations RELATIONS.tsv "
            "--out GRAPH"
        )
    entity_graph = read_graph([graph])
    if frame is None or head is None:
        conditioned = any(isinstance(head, TripleContrast) and head.conditioned for head in loaded.heads.values())
        return (ConditionedReader if conditioned else DescriptionReader)(loaded, entity_graph)
    tells = isinstance(loaded.heads[head], RelationClassification)
    return (RelationReader if tells else TripleReader)(loaded, entity_graph, frame, head)


@torch.no_grad()
def _read(reader: Reader, rows: Sequence[Framed], want: Sequence[str]) -> Iterator[tuple[Int64, Mapping[str, Tensor], Any]]:
    """Which rows were read together, rows of similar length, with the states and the batch."""
    order = np.argsort([len(row) for row in rows], kind="stable")
    with evaluating(reader.network):
        for low in range(0, len(rows), _BATCH):
            index = order[low : low + _BATCH]
            batch = reader.batch([rows[number] for number in index.tolist()])
            yield index, reader.states(batch, want), batch


def _framed(loaded: Any) -> Mapping[str, Any] | None:
    """The frame around head, relation and tail, or head and tail, that the checkpoint was trained with."""
    for frame in recorded_parts(loaded.recipe, "edit", Frame):
        parts = {text for kind, text in split_template(str(frame.get("template", ""))) if kind == "part"}
        if parts in (set(_PLACES), {"A", "tail"}):
            return frame
    return None
