"""Link prediction by text: networks that read the texts of a graph score triples (KG-BERT) or encode entities (KEPLER)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cloze.corpus.graph import Graph
from cloze.corpus.readers.triples import read_graph
from cloze.decoding.layout import Framed, Layout
from cloze.decoding.reader import Reader, bound, evaluating
from cloze.errors import TaskError
from cloze.exercises.frame import split_template
from cloze.objectives.triple_contrast import TripleContrast
from cloze.tasks.link_prediction import LinkScorer, scorer_of

Int64 = NDArray[np.int64]

_COMPANIONS = {"relation": "B", "tail": "C"}  # in the template that the network was trained with
_BATCH = 64


class TripleReader(LinkScorer):
    """Scores triples by reading each of them: the log-odds that it is a fact (KG-BERT).

    Every candidate is a forward pass, so by default only 100 are ranked.
    """

    usual = 100
    at_once = 16 * (usual + 1)

    def __init__(self, loaded: Any, graph: Graph) -> None:
        frame, head = _framed(loaded), _judge(loaded)
        assert frame is not None and head is not None  # `scorer_of_any` has seen them
        self.reader = Reader.of(loaded)
        self.entities, self.relations = graph.entities, graph.relations
        self.head = bound(loaded.heads[head], loaded.reads.get(head))
        template = frame["template"]
        for companion, letter in _COMPANIONS.items():
            template = template.replace(f"{{{companion}}}", f"{{{letter}}}")
        self.layout = Layout(template, loaded.tokenizer, frame.get("segments") or ())
        lengths = [one.get("length") for one in _parts(loaded.recipe, "triple_texts")]
        self.length = min([n for n in (*lengths, self.reader.max_length) if n is not None], default=None)
        ids = self.reader.ids(graph.texts)
        self.names, self.links = ids[: len(graph.entities)], ids[len(graph.entities) :]

    @torch.no_grad()
    def scores(self, triples: Int64, column: Literal[0, 2], candidates: Int64 | None) -> Tensor:
        """The log-odds, (B, C)."""
        chosen = np.tile(np.arange(len(self.entities)), (len(triples), 1)) if candidates is None else candidates
        asked = np.repeat(triples, chosen.shape[1], axis=0)
        asked[:, column] = chosen.reshape(-1)
        rows = [
            self.layout([self.names[head], self.links[relation], self.names[tail]], max_length=self.length)
            for head, relation, tail in asked.tolist()
        ]
        found = torch.empty(len(rows))
        for some, states, batch in _read(self.reader, rows, self.head.reads):
            everything = torch.arange(len(some), device=self.reader.device)
            scores = self.reader.scores(self.head, states, batch, everything)
            found[torch.from_numpy(some)] = (scores[:, 1] - scores[:, 0]).float().cpu()
        return found.view(chosen.shape)


class DescriptionReader(LinkScorer):
    """Scores triples by the summaries of their entities' texts and the vectors of relations: minus the distance (KEPLER).

    Each entity is read once, whether training has seen it or not.
    """

    def __init__(self, loaded: Any, graph: Graph) -> None:
        name = next(name for name, head in loaded.heads.items() if isinstance(head, TripleContrast))
        self.head, reader = loaded.heads[name], Reader.of(loaded)
        self.entities, self.relations = graph.entities, self.head.relations
        reads = bound(self.head, loaded.reads.get(name)).reads
        rows = reader.encode(graph.texts[: len(graph.entities)])
        vectors = torch.empty(len(rows), self.head.head.embedding_dim)
        for some, states, _ in _read(reader, rows, reads):
            vectors[torch.from_numpy(some)] = states[reads[0]].float().cpu()
        self.vectors = vectors.to(reader.device)

    @torch.no_grad()
    def scores(self, triples: Int64, column: Literal[0, 2], candidates: Int64 | None) -> Tensor:
        """Minus the distances, (B, C)."""
        head, relation, tail = torch.from_numpy(triples).to(self.vectors.device).unbind(1)
        step = self.head.head(relation).float()
        wanted = self.vectors[tail] - step if column == 0 else self.vectors[head] + step
        if candidates is None:
            norm = float(self.head.norm)
            return -torch.cdist(wanted, self.vectors, p=norm, compute_mode="donot_use_mm_for_euclid_dist")
        rows = self.vectors[torch.from_numpy(candidates).to(self.vectors.device)]
        return -torch.linalg.vector_norm(wanted[:, None] - rows, ord=self.head.norm, dim=2)


def scorer_of_any(loaded: Any, graph: str | Path | None) -> LinkScorer:
    """The scorer of a checkpoint. `graph` names the entities that are ranked and their texts, for a network that reads texts."""
    describes = any(isinstance(head, TripleContrast) for head in loaded.heads.values())
    if not describes and (_framed(loaded) is None or _judge(loaded) is None):
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
    return DescriptionReader(loaded, found) if describes else TripleReader(loaded, found)


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
    """The frame around head, relation and tail that the checkpoint was trained with."""
    for frame in _parts(loaded.recipe, "frame"):
        named = {text for kind, text in split_template(str(frame.get("template", ""))) if kind == "part"}
        if named == {"A", *_COMPANIONS}:
            return frame
    return None


def _judge(loaded: Any) -> str | None:
    """The name of the head that says whether a triple is a fact."""
    return next((name for name, head in loaded.heads.items() if head.kind == "relation_prediction"), None)


def _parts(tree: Any, name: str) -> Iterator[Mapping[str, Any]]:
    """The arguments of every part of this name in a recipe."""
    if isinstance(tree, Mapping):
        for key, value in tree.items():
            if key == name and isinstance(value, Mapping):
                yield value
            yield from _parts(value, name)
    elif isinstance(tree, list):
        for one in tree:
            yield from _parts(one, name)
