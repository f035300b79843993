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

from cloze.corpus.graph import Graph
from cloze.corpus.readers.triples import read_graph
from cloze.corpus.triple_texts import TripleTexts
from cloze.decoding.layout import Framed, Layout
from cloze.decoding.reader import Reader, bound, evaluating
from cloze.errors import TaskError
from cloze.exercises.frame import Frame, split_template
from cloze.objectives.relation_prediction import RelationClassification
from cloze.objectives.triple_contrast import TripleContrast
from cloze.registry import recorded_parts
from cloze.tasks.link_prediction import Column, LinkScorer, Translations, scorer_of

Int64 = NDArray[np.int64]

_PLACES = ("A", "relation", "tail")  # what the template of training calls the columns of a triple
_BATCH = 64


class _TextScorer(LinkScorer):
    """Reads the texts of a triple in the `frame` of training, and scores them by the head of that name."""

    def __init__(self, loaded: Any, graph: Graph, frame: Mapping[str, Any], head: str) -> None:
        self.reader = Reader.of(loaded)
        self.entities, self.relations = graph.entities, graph.relations
        self.head = bound(loaded.heads[head], loaded.reads.get(head))
        template = frame["template"]
        self.placed = [column for column, name in enumerate(_PLACES) if f"{{{name}}}" in template]
        for letter, column in zip("ABC", self.placed, strict=False):
            template = template.replace(f"{{{_PLACES[column]}}}", f"{{{letter}}}")
        self.layout = Layout(template, loaded.tokenizer, frame.get("segments") or ())
        lengths = [one.get("length") for one in recorded_parts(loaded.recipe, "source", TripleTexts)]
        self.length = min([n for n in (*lengths, self.reader.max_length) if n is not None], default=None)
        ids = self.reader.ids(graph.texts)
        self.texts, self.links = ids[: len(graph.entities)], ids[len(graph.entities) :]

    @torch.no_grad()
    def read(self, triples: Int64, outputs: int) -> Tensor:
        """The scores of the head for triples (B, 3), (B, outputs)."""
        known = (self.texts, self.links, self.texts)
        rows = [
            self.layout([known[column][triple[column]] for column in self.placed], max_length=self.length)
            for triple in triples.tolist()
        ]
        found = torch.empty(len(rows), outputs)
        for some, states, batch in _read(self.reader, rows, self.head.reads):
            everything = torch.arange(len(some), device=self.reader.device)
            found[torch.from_numpy(some)] = self.reader.scores(self.head, states, batch, everything).float().cpu()
        return found


class TripleReader(_TextScorer):
    """Scores triples by reading each of them: the log-odds that it is a fact (KG-BERT).

    Every candidate is a forward pass, so by default only 100 entities are ranked.
    """

    usual = 100
    at_once = 16 * (usual + 1)

    def scores(self, triples: Int64, column: Column, candidates: Int64 | None) -> Tensor:
        """The log-odds, (B, C)."""
        chosen = np.tile(np.arange(len(self.names(column))), (len(triples), 1)) if candidates is None else candidates
        asked = np.repeat(triples, chosen.shape[1], axis=0)
        asked[:, column] = chosen.reshape(-1)
        found = self.read(asked, 2)
        return (found[:, 1] - found[:, 0]).view(chosen.shape)


class RelationReader(_TextScorer):
    """Scores the relations between two entities whose texts it reads (KG-BERT for relation prediction). It knows the relations
    that it was trained on."""

    columns: ClassVar[frozenset[Column]] = frozenset({1})

    def __init__(self, loaded: Any, graph: Graph, frame: Mapping[str, Any], head: str) -> None:
        super().__init__(loaded, graph, frame, head)
        self.relations = loaded.heads[head].relations

    def scores(self, triples: Int64, column: Column, candidates: Int64 | None) -> Tensor:
        """The scores of relations, (B, C)."""
        found = self.read(triples, len(self.relations))
        return found if candidates is None else found.gather(1, torch.from_numpy(candidates))


class DescriptionReader(Translations):
    """Scores triples by the summaries of their entities' texts and the vectors of relations, or the summaries of their texts
    (KEPLER).

    Each text is read once, whether training has seen it or not.
    """

    def __init__(self, loaded: Any, graph: Graph) -> None:
        name = next(name for name, head in loaded.heads.items() if isinstance(head, TripleContrast))
        self.head, reader = loaded.heads[name], Reader.of(loaded)
        self.entities, self.norm = graph.entities, float(self.head.norm)
        self.relations = graph.relations if self.head.describe else self.head.relations
        reads, count = bound(self.head, loaded.reads.get(name)).reads, len(graph.entities)
        rows = reader.encode(graph.texts if self.head.describe else graph.texts[:count])
        found = torch.empty(len(rows), self.head.width)
        for some, states, _ in _read(reader, rows, reads):
            found[torch.from_numpy(some)] = states[reads[0]].float().cpu()
        self.vectors = found[:count].to(reader.device)
        self.steps = found[count:].to(reader.device) if self.head.describe else self.head.head.weight.detach().float()


def scorer_of_any(loaded: Any, graph: str | Path | None) -> LinkScorer:
    """The scorer of a checkpoint. `graph` names the entities that are ranked and their texts, for a network that reads texts."""
    describes = any(isinstance(head, TripleContrast) for head in loaded.heads.values())
    frame, head = _framed(loaded), _judge(loaded)
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
    found = read_graph([graph])
    if frame is None or head is None:
        return DescriptionReader(loaded, found)
    tells = isinstance(loaded.heads[head], RelationClassification)
    return (RelationReader if tells else TripleReader)(loaded, found, frame, head)


@torch.no_grad()
def _read(reader: Reader, rows: Sequence[Framed], want: Sequence[str]) -> Iterator[tuple[Int64, Mapping[str, Tensor], Any]]:
    """Which rows were read together, rows of similar length, with the states and the batch."""
    order = np.argsort([len(row) for row in rows], kind="stable")
    with evaluating(reader.network):
        for low in range(0, len(rows), _BATCH):
            some = order[low : low + _BATCH]
            batch = reader.batch([rows[place] for place in some.tolist()])
            yield some, reader.states(batch, want), batch


def _framed(loaded: Any) -> Mapping[str, Any] | None:
    """The frame around head, relation and tail, or head and tail, that the checkpoint was trained with."""
    for frame in recorded_parts(loaded.recipe, "edit", Frame):
        named = {text for kind, text in split_template(str(frame.get("template", ""))) if kind == "part"}
        if named in (set(_PLACES), {"A", "tail"}):
            return frame
    return None


def _judge(loaded: Any) -> str | None:
    """The name of the head that says whether a triple is a fact, or which relation it has."""
    return next((name for name, head in loaded.heads.items() if head.kind == "relation_prediction"), None)
