"""How well a checkpoint predicts a text, in figures that can be compared between vocabularies: bits per byte, tokens per word."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from types import MappingProxyType
from typing import Any

from cloze.decoding.reader import Checkpoint
from cloze.decoding.reader_and_head import to_score
from cloze.decoding.scores.perplexity import Perplexity
from cloze.decoding.scores.scoring import Method, score
from cloze.decoding.scores.windows import Windows
from cloze.errors import ClozeError
from cloze.text.vocabularies.vocabulary import fit_of

#: How the bits of a method are called: only figures of one method can be compared.
BITS: Mapping[Method, str] = MappingProxyType({
    "log_probability": "bits per byte", "pseudo_log_likelihood": "pseudo-bits per byte",
})  # fmt: skip
PSEUDO = (
    "Pseudo-bits per byte are those of the pseudo-likelihood: each word is predicted from all others, its pieces from left to "
    "right. That is no probability of the text; compare it with other masked language models only."
)
Documents = Sequence[Sequence[str]]


@dataclass(frozen=True)
class TextFigures:
    """The figures of a text under a checkpoint.

    Attributes:
        bytes: Bytes of the text in UTF-8.
        words: Its words, as the tokenizer separates them.
        tokens: Its tokens, without those of the template.
        unknown: How many of them are [UNK]: their letters cost nothing, so that a large number flatters the bits.
        bits_per_byte: -log2 P of the text, divided by its bytes; None if the network gives a text no probability.
        method: How P was computed (`scoring.score`); None like `bits_per_byte`.
        why: Why there are no bits.
        longest: The tokens of the longest text that was scored as one.
    """

    bytes: int
    words: int
    tokens: int
    unknown: int
    bits_per_byte: float | None = None
    method: Method | None = None
    why: str = ""
    longest: int = 0

    @property
    def tokens_per_word(self) -> float:
        """The fertility of the vocabulary on this text (Rust et al., 2021, §3)."""
        return self.tokens / max(self.words, 1)

    def record(self) -> dict[str, Any]:
        """All figures by name."""
        return {**asdict(self), "tokens_per_word": self.tokens_per_word}


def figures_of(
    loaded: Checkpoint, documents: Documents, *, windows: Windows = Windows(),  # noqa: B008
    report: Callable[[int], None] = lambda done: None,
) -> TextFigures:
    """The figures of documents, each a list of sentences.

    A network that reads from left to right scores whole documents, so that a sentence is predicted from those before it. A
    masked language model scores sentence by sentence, because each token costs a pass over its text, and by whole words, because
    the more pieces a word has, the easier it is to guess one from the others. A discriminator and a network that answers give a
    text no probability. A text longer than one of the `windows` is scored in several. `report` gets the number of texts done.
    """
    sentences = [sentence for document in documents for sentence in document]
    fit = fit_of(loaded.tokenizer, sentences, counts_words=False)
    counted = TextFigures(fit.bytes, fit.words, fit.tokens, fit.unknown)
    try:
        reader, head, method = to_score(loaded)
    except ClozeError as error:
        return TextFigures(**{**asdict(counted), "why": str(error).partition("\n")[0]})
    if method is None or method == "originality":
        what = "scores answers to texts" if method is None else "judges tokens and predicts none"
        return TextFigures(**{**asdict(counted), "why": f"{loaded.folder}: this network {what}."})
    masked = method == "pseudo_log_likelihood"
    texts = sentences if masked else [_running(document) for document in documents]
    scores = score(reader, head, texts, method=method, windows=windows, whole_words=masked, report=report)
    perplexity = Perplexity.of(texts, scores)
    longest = max((score.tokens for score in scores), default=0)
    return TextFigures(**{**asdict(counted), "bits_per_byte": perplexity.bits("byte"), "method": method, "longest": longest})


def units_of(loaded: Checkpoint, documents: Documents) -> tuple[int, str]:
    """How many texts `figures_of` scores of these documents, and what they are."""
    try:
        _, _, method = to_score(loaded)
    except ClozeError:
        method = None
    return (len(documents), "documents") if method == "log_probability" else (sum(map(len, documents)), "sentences")


def _running(document: Sequence[str]) -> str:
    """The sentences as one text: white space that a sentence begins with stays, others get a space."""
    return "".join(
        sentence if sentence[:1].isspace() or not number else f" {sentence}" for number, sentence in enumerate(document)
    )


def first_bytes(documents: Iterator[Sequence[str]], most: int | None) -> list[list[str]]:
    """The first documents, cut between sentences before `most` bytes are exceeded (None: all); at least one sentence."""
    selection: list[list[str]] = []
    left = float("inf") if most is None else most
    for document in documents:
        sentences: list[str] = []
        for sentence in document:
            size = len(sentence.encode("utf-8", "surrogatepass"))
            if size > left and (selection or sentences):
                return selection + [sentences] * bool(sentences)
            sentences.append(sentence)
            left -= size
        selection.append(sentences)
    return selection
