"""`cloze probe attention`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from cloze.errors import UserError
from cloze.probes.finding import Plot, Subject, Table, by_layer_and_step
from cloze.probes.probe import TextProbe
from cloze.registry import register

if TYPE_CHECKING:
    from cloze.corpus.readers.trees import Tree
    from cloze.decoding.reader import Checkpoint
    from cloze.probes.attention import AttentionHabits
    from cloze.probes.relations import RelationHeads

_ON = {
    "previous": "the previous token", "same": "the same token", "next": "the next token", "first": "the first token",
    "special": "other special tokens", "special, from special": "other special tokens, from these",
    "special, from others": "other special tokens, from all others", "punctuation": "punctuation",
}  # fmt: skip


class AttentionData(NamedTuple):
    """The texts whose attention is measured, and the trees on which heads are chosen and measured; none without --task."""

    texts: list[str]
    train: list[Tree]
    test: list[Tree]


class AttentionFigures(NamedTuple):
    """What heads attend to, and which find the heads of words."""

    habits: AttentionHabits
    relations: RelationHeads | None


@register("probe", "attention")
@dataclass(frozen=True, kw_only=True)
class AttentionProbe(TextProbe[AttentionData, AttentionFigures]):
    """What each head attends to, and which heads find dependency relations (CoNLL-U; Clark et al., 2019)."""

    title = "What do the heads attend to?"
    sentences = 500
    needs = {"rare": "task"}

    task: Annotated[str | None, typer.Option(help="TRAIN,TEST, CoNLL-U: heads are chosen on TRAIN and measured on TEST")] = None
    rare: Annotated[int, typer.Option(min=1, help="leave out relations with fewer words in TEST")] = 100
    all_heads: Annotated[bool, typer.Option("--all-heads", help="also show every head")] = False

    def read(self) -> AttentionData:
        from cloze.corpus.readers.text_files import require_files
        from cloze.probes.relations import read_relations

        if self.task is None:
            return AttentionData(self.texts(", or --task TRAIN,TEST with dependency trees"), [], [])
        paths = [path for path in self.task.split(",") if path]
        if len(paths) != 2:
            raise UserError(f"{self.name}: expected --task TRAIN,TEST, got {self.task!r}.")
        require_files(paths)
        train, test = (read_relations(path, most=self.limit) for path in paths)
        return AttentionData(self.texts() if self.text else [" ".join(tree.words) for tree in test], train, test)

    def measure(self, loaded: Checkpoint, material: AttentionData) -> AttentionFigures:
        from cloze.probes.attention import attention_habits
        from cloze.probes.relations import relation_heads

        habits = attention_habits(loaded, material.texts, length=self.length, size=self.batch)
        if not material.train:
            return AttentionFigures(habits, None)
        return AttentionFigures(habits, relation_heads(
            loaded, material.train, material.test, rare=self.rare, seed=self.seed, length=self.length, size=self.batch
        ))  # fmt: skip

    def tables(self, name: str, figures: AttentionFigures) -> list[Table]:
        habits = figures.habits
        measures = {**habits.shares, "entropy": habits.entropy, "first entropy": habits.first_entropy}
        means = [
            [str(n + 1), *(float(measures[key][n].mean()) for key in measures)] for n in reversed(range(len(habits.entropy)))
        ]
        tables = [
            Table(
                f"{name}: attention by layer", ["layer", *measures], means,
                f"Shares of the attention of all tokens, means over {habits.texts:,} texts and the heads of a layer. Special: "
                "what stands around a text, without the first token. Entropy in nats, of all tokens and of the first; if "
                f"attention were alike everywhere: {habits.uniform:.3f}.",
            ),
            Table(
                f"{name}: the head that attends most", ["to", "head", "share"],
                [[_ON[key], *_most(shares)] for key, shares in habits.shares.items() if (shares >= 0).any()],
                "Heads are called by layer and number, both from 1.",
            ),
        ]
        if figures.relations is not None:
            tables.append(_of_relations(name, figures.relations))
        if self.all_heads:
            columns = ["layer", *(str(h + 1) for h in range(habits.entropy.shape[1]))]
            tables += [
                Table(
                    f"{name}: {key} of every head", columns,
                    [[str(n + 1), *map(float, matrix[n])] for n in reversed(range(len(matrix)))], shaded=True,
                )
                for key, matrix in measures.items() if (matrix >= 0).any()
            ]  # fmt: skip
        return tables

    def plots(self, subjects: Sequence[Subject], results: Mapping[str, AttentionFigures]) -> list[Plot]:
        habits = {name: figures.habits for name, figures in results.items()}
        plots: list[Plot] = []
        for key, words in _ON.items():
            shares = {name: measures.shares[key] for name, measures in habits.items() if (measures.shares[key] >= 0).any()}
            means = {name: _from_layer_one(matrix.mean(1)) for name, matrix in shares.items()}
            most = {f"{name}, the most of a head": _from_layer_one(matrix.max(1)) for name, matrix in shares.items()}
            measured = [subject for subject in subjects if subject.name in shares]
            plots += by_layer_and_step(f"attention to {words}", means, measured, dashed=most) if shares else []
        entropy = {name: _from_layer_one(measures.entropy.mean(1)) for name, measures in habits.items()}
        dashed = {f"{name}, first token": _from_layer_one(measures.first_entropy.mean(1)) for name, measures in habits.items()}
        for name, measures in habits.items():
            dashed[f"{name}, alike"] = _from_layer_one([measures.uniform] * len(measures.entropy))
        return plots + by_layer_and_step("entropy of attention", entropy, subjects, dashed=dashed)

    def data(self, figures: AttentionFigures) -> dict[str, Any]:
        habits, relations = figures
        data = {**vars(habits)}
        if relations is not None:
            data |= {
                "relations": {name: asdict(score) for name, score in relations.scores.items()},
                "accuracy": dict(relations.accuracy), "uas": relations.uas, "uas_by_offset": relations.uas_by_offset,
            }  # fmt: skip
        return data

    def remarks(self, figures: AttentionFigures) -> Sequence[str]:
        return [] if figures.relations is None else figures.relations.remarks


def _from_layer_one(values: Iterable[float]) -> list[float]:
    """A value for every layer, after none for the input."""
    return [float("nan"), *map(float, values)]


def _most(shares: Any) -> list[Any]:
    """The head with the largest share, and this share."""
    import numpy as np

    layer, head = np.unravel_index(int(np.nanargmax(shares)), shares.shape)
    return [f"{layer + 1}-{head + 1}", float(shares[layer, head])]


def _of_relations(name: str, relations: RelationHeads) -> Table:
    """The best head of every relation next to the best offset."""
    rows = [
        [
            relation, score.words, score.accuracy, f"{score.layer + 1}-{score.head + 1}", score.direction, score.baseline,
            f"{score.offset:+}",
        ] for relation, score in relations.scores.items()
    ]  # fmt: skip
    columns = ["relation", "words", "accuracy", "head", "direction", "by offset", "offset"]
    return Table(
        f"{name}: heads that find the heads of words", columns, rows,
        f"Chosen on {relations.train:,} sentences, measured on {relations.test:,}. A word's head is the word that it attends to "
        "most, or that attends to it most; by offset, the word at a fixed distance. A linear map of the attention of all heads "
        f"finds {relations.uas:.3f} of all heads of words, the best offset {relations.uas_by_offset:.3f}, without punctuation.",
    )
