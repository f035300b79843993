"""`cloze probe cka`: how similar layers are, in one network and across two.

Source: "Similarity of Neural Network Representations Revisited" (Kornblith, Norouzi, Lee and Hinton, 2019, §3).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cloze.errors import UserError
from cloze.probes.finding import Finding, Plot, Subject, Table, by_layer_and_step, layer_name
from cloze.probes.probe import TextProbe
from cloze.registry import register

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from cloze.decoding.reader import Checkpoint

WORDS = 2000  # that are compared, at most


@dataclass(frozen=True)
class LayerSimilarity:
    """Linear CKA (N + 1, N' + 1) of two networks' layers over so many `words`; `shuffled` is that of shuffled top layers."""

    cka: NDArray[np.float64]
    shuffled: float
    words: int


def linear_cka(x: NDArray[np.floating[Any]], y: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
    """Linear centred kernel alignment (N, N') of the layers of `x` (N, M, D) and of `y` (N', M, D') over the same M examples.

    ‖YᵀX‖² / (‖XᵀX‖ ‖YᵀY‖) of centred vectors, in Frobenius norms; NaN where all vectors of a layer are equal.
    """
    import numpy as np

    def scaled(vectors: NDArray[Any]) -> list[NDArray[np.float64]]:
        centred = vectors.astype(np.float64) - vectors.mean(1, keepdims=True, dtype=np.float64)
        return [layer / (np.linalg.norm(layer.T @ layer) ** 0.5 or np.nan) for layer in centred]

    columns = scaled(y)
    return np.array([[np.linalg.norm(b.T @ a) ** 2 for b in columns] for a in scaled(x)])


@register("probe", "cka")
@dataclass(frozen=True, kw_only=True)
class CkaProbe(TextProbe[list[str], Any]):
    """How similar the layers of a network are, and those of two networks (linear CKA; Kornblith et al., 2019)."""

    title = "How similar are the layers?"
    sentences = 1000

    def read(self) -> list[str]:
        return self.texts()

    def measure(self, loaded: Checkpoint, material: list[str]) -> dict[tuple[int, int], NDArray[np.float32]]:
        """The vectors (N + 1, D) of some words, drawn by the seed, by the numbers of the text and of the word in it."""
        import numpy as np

        from cloze.decoding.reader import Reader
        from cloze.probes.words import word_rows, word_states, words_of

        spans = [words_of(text) for text in material]
        words = [(text, word) for text, places in enumerate(spans) for word in range(len(places))]
        drawn = {words[n] for n in np.random.default_rng(self.seed).permutation(len(words))[:WORDS]}
        reader = Reader.of(loaded)
        rows = word_rows(reader, material, spans, length=self.length)
        vectors = {
            (text, word): states[:, word].copy()
            for text, states in word_states(reader, rows, size=self.batch)
            for word in range(len(spans[text])) if (text, word) in drawn and rows[text].columns[word, 0] >= 0
        }
        if len(vectors) < 2:
            raise UserError(f"{self.name} compares words, and this network read {len(vectors)}. Give more text with --text.")
        return vectors

    def finding(self, subjects: Sequence[Subject], results: Mapping[str, Any]) -> Finding:
        """Each network with itself, and with the last one."""
        *earlier, last = results
        pairs = {name: self._compare(vectors, vectors) for name, vectors in results.items()}
        pairs |= {f"{name}, {last}": self._compare(results[name], results[last]) for name in earlier}
        return super().finding(subjects, pairs)

    def _compare(self, a: Mapping[tuple[int, int], Any], b: Mapping[tuple[int, int], Any]) -> LayerSimilarity:
        """The similarities over the words that both networks read."""
        import numpy as np

        words = sorted(a.keys() & b.keys())
        if len(words) < 2:
            raise UserError(f"{self.name} compares words that both networks read, and these have {len(words)}. Give more text.")
        x, y = (np.stack([vectors[word] for word in words], axis=1) for vectors in (a, b))
        order = np.random.default_rng(self.seed).permutation(len(words))
        return LayerSimilarity(linear_cka(x, y), float(linear_cka(x[-1:], y[-1:, order]).mean()), len(words))

    def tables(self, name: str, figures: LayerSimilarity) -> list[Table]:
        rows = [[layer_name(n), *map(float, row)] for n, row in enumerate(figures.cka)]
        columns = ["layer", *map(layer_name, range(figures.cka.shape[1]))]
        note = (
            f"Over {figures.words:,} words; of two networks, the first has the rows. With the words of one top layer shuffled, "
            f"CKA is {figures.shuffled:.3f}: the more words, the less."
        )
        return [Table(f"{name}: linear CKA of layers", columns, rows[::-1], note, shaded=True)]

    def plots(self, subjects: Sequence[Subject], results: Mapping[str, LayerSimilarity]) -> list[Plot]:
        below = {s.name: [float("nan"), *results[s.name].cka.diagonal(1).tolist()] for s in subjects}
        plots = by_layer_and_step("similarity to the layer below", below, subjects)
        *earlier, last = subjects
        same = {s.name: results[f"{s.name}, {last.name}"].cka.diagonal().tolist() for s in earlier}
        return plots + (by_layer_and_step(f"similarity to the same layer of {last.name}", same, earlier) if earlier else [])
