"""`look`: everything that a network computes for one input, by layer: attention, predictions, and the nearest vectors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cloze.batch import Batch
from cloze.decoding.generating.forms import ByDecoder
from cloze.decoding.generating.search import Continuation
from cloze.decoding.generating.sequence import Manner, has_decoder, start_id
from cloze.decoding.layout import Framed, Ids
from cloze.decoding.marks import marks_around
from cloze.decoding.reader import Checkpoint, Reader, head_of_kind
from cloze.errors import UserError
from cloze.probes.attribution import Attribution, attributions
from cloze.probes.pieces import shown

STATES = ("attention", "content", "keys")
#: Of a network with a stack of items, how the names of further states begin, with the name of what they are, of whose rows and of
#: whose columns.
_OF_ITEMS = {
    "crossing_": ("text to items", "text", "items"), "item_crossing_": ("items to text", "items", "text"),
    "item_": ("items", "items", "items"),
}  # fmt: skip
ANSWER = 32  # tokens that an encoder-decoder writes if it is given no second text
_ROWS = 16  # texts that are read at once
_BLOCK = 1 << 24  # cosines with the vocabulary that are held at once


@dataclass(frozen=True)
class ShownTokens:
    """The tokens of a sequence: `ids`, how they are shown, and `parts`: 0 and 1 the texts, -1 what the template inserts."""

    name: str
    ids: tuple[int, ...]
    pieces: tuple[str, ...]
    parts: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True)
class AttentionMap:
    """One kind of attention: `shares` (N, H, Lq, Lk), whose rows sum to one, from the tokens of `rows` to those of `columns`.

    `neurons`: the scaled queries (N, H, Lq, W) and the keys (N, H, Lk, W), whose products are the scores, apart from what
    relative positions add; None where each row of shares comes from a pass of its own.
    """

    name: str
    rows: str
    columns: str
    shares: NDArray[np.float32]
    neurons: tuple[NDArray[np.float32], NDArray[np.float32]] | None = None


@dataclass(frozen=True)
class Lens:
    """What the network's own head predicts from each layer: the best `ids` and their probabilities, both (N + 1, L, K).

    `final` (N + 1, L) is the probability of the top layer's best token, `actual` (N + 1, L) that of the token that is there: the
    next one if `predicts` is "next". `actual` is NaN where there is none, and at masks.
    """

    rows: str
    predicts: str
    ids: NDArray[np.int64]
    shares: NDArray[np.float32]
    final: NDArray[np.float32]
    actual: NDArray[np.float32]


@dataclass(frozen=True)
class Near:
    """The nearest vectors of every token's at every layer, by their cosines, each (N + 1, L, K).

    `tokens` are positions in the same sequence, `words` ids of the vocabulary; None if the token table has another width.
    """

    rows: str
    tokens: NDArray[np.int64]
    cosines: NDArray[np.float32]
    words: NDArray[np.int64] | None
    word_cosines: NDArray[np.float32] | None


@dataclass(frozen=True)
class Seen:
    """What `look` found: the texts, their sequences by name, and of every panel what the network has."""

    texts: tuple[str, ...]
    sequences: Mapping[str, ShownTokens]
    attention: tuple[AttentionMap, ...]
    lens: Lens | None
    near: tuple[Near, ...]
    attributions: tuple[Attribution, ...]
    vocabulary: Mapping[int, str]
    remarks: tuple[str, ...]


@dataclass(frozen=True)
class _Row:
    source: Framed
    target: Ids


@torch.inference_mode()
def look(loaded: Checkpoint, text: str, other: str | None = None, *, length: int | None = None, top: int = 5) -> Seen:
    """Run a network over a text, or over a pair of texts, and keep what it computes at every layer.

    An encoder-decoder reads `text` and writes `other`; if that is None, it writes an answer first. `[MASK]` in a text is a
    mask. Texts are cut to what the network can read, or to `length` tokens, which `remarks` then say. `top` is the number of
    predictions and of neighbours for each token. The items of the usual picture of `loaded` follow the text, if they are
    positions of the network's rows; if they have a stack of their own, they are a sequence of their own, with what each sequence
    attends to in the other.

    Raises:
        UserError: A text is empty, the network is a table of words, or it cannot read two texts.
    """
    if not text.strip() or (other is not None and not other.strip()):
        raise UserError(f"the {'second ' if text.strip() else ''}text is empty. Give one that the network can read.")
    reader = Reader.of(loaded)
    if reader.network.of_words:
        raise UserError(
            f"{loaded.folder}: a table of word vectors has no layers to look into.\n  The nearest words: cloze neighbours "
            f"{loaded.folder} WORD"
        )
    head = head_of_kind(loaded, "token_prediction")
    if has_decoder(reader):
        return _both(reader, head, text, other, length, top)
    framed = _framed(reader, text, other, length)
    record = _Found(reader, top)
    record.cut(framed.cut, "text")
    batch = reader.batch([framed])
    shows_items = any(f"item_vectors/{name}" in batch for name in reader.network.item_sets)
    prefixes = ("", *(_OF_ITEMS if shows_items else ()))
    names = {prefix + name for prefix in prefixes for name in STATES}
    states = reader.states(batch, {"layers", *names} & set(reader.network.gives))
    width = states["attention"].shape[-1] if "attention" in states else len(framed)
    record.add(_with_items(reader, batch, _shown(reader, "text", framed.ids, framed.part), width))
    record.attend("attention", "text", "text", states)
    if "item_attention" in states:
        record.add(_items(reader, batch, states["item_attention"].shape[-1]))
        for prefix, (name, rows, columns) in _OF_ITEMS.items():
            record.attend(name, rows, columns, states, prefix)
    if "query_attention" in reader.network.gives:
        record.attend("query stream", "text", "text", {"attention": _query_attention(reader, framed)})
    record.read("text", states["layers"], head, "hidden", batch)
    with torch.inference_mode(mode=False):
        record.attributions = attributions(loaded, framed)
    return record.seen(text, other)


def _both(reader: Reader, head: Any, text: str, other: str | None, length: int | None, top: int) -> Seen:
    """What an encoder-decoder computes for a text and what it writes."""
    form, record = ByDecoder(reader), _Found(reader, top)
    source = form.source(_ids(reader, text), max_length=length)
    record.cut(source.cut, "text")
    if other is None and head is not None:
        continuation: Continuation = form.write(head, [source], Manner(ANSWER))[0]
        target = np.asarray(continuation.ids, np.int32)
        other = str(reader.tokenizer.decode(target))
        record.remarks.append("The second text is what the network writes for the first one.")
    else:
        other_ids = np.asarray(reader.tokenizer.targets.encode_template(other or "").ids, np.int32)
        target, cut = form.target(other_ids, most=length)
        record.cut(cut, "second text")
    target = target if len(target) else np.array([start_id(reader)], np.int32)
    record.add(_shown(reader, "source", source.ids, source.part))
    read = np.concatenate([[start_id(reader)], target[:-1]])
    record.add(_shown(reader, "target", read, np.r_[-1, np.zeros(len(read) - 1, np.int64)], following=target))
    batch = form.with_targets([_Row(source, target)], "any")
    names = {"layers", "decoder_layers", *(prefix + name for prefix in ("", "decoder_", "crossing_") for name in STATES)}
    states = reader.states(batch, names & set(reader.network.gives))
    record.attend("encoder", "source", "source", states)
    record.attend("decoder", "target", "target", states, "decoder_")
    record.attend("decoder to encoder", "target", "source", states, "crossing_")
    if "decoder_layers" in states:
        record.read("target", states["decoder_layers"], head, str(reader.network.writes), batch)
    record.read("source", states["layers"], None, "", batch)
    return record.seen(text, other)


class _Found:
    """Collects the panels."""

    def __init__(self, reader: Reader, top: int) -> None:
        self.reader, self.top = reader, top
        self.sequences: dict[str, ShownTokens] = {}
        self.following: dict[str, Ids] = {}
        self.attention: list[AttentionMap] = []
        self.lens: Lens | None = None
        self.near: list[Near] = []
        self.attributions: list[Attribution] = []
        self.remarks: list[str] = []

    def cut(self, lost: int, name: str) -> None:
        if lost:
            self.remarks.append(f"The last {lost:,} tokens of the {name} do not fit and were cut.")

    def add(self, tokens: tuple[ShownTokens, Ids]) -> None:
        sequence, following = tokens
        self.sequences[sequence.name], self.following[sequence.name] = sequence, following

    def attend(self, name: str, rows: str, columns: str, states: Mapping[str, Tensor], prefix: str = "") -> None:
        shares, queries, keys = (
            states[prefix + state][:, 0].float().cpu().numpy() if prefix + state in states else None for state in STATES
        )
        if shares is not None:
            neurons = None if queries is None or keys is None else (queries, keys)
            self.attention.append(AttentionMap(name, rows, columns, shares, neurons))

    def read(self, name: str, layers: Tensor, head: Any, state: str, batch: Batch) -> None:
        """The nearest vectors of the layers (N + 1, 1, L, D), and what the head predicts from each if it reads `state` alone."""
        layers = layers[:, 0].float()
        self.near.append(_near(name, layers, self.reader, self.top))
        if head is None:
            return
        if len(head.reads) != 1 or head.reads[0] not in (state, "query"):
            self.remarks.append(f"Its head reads {' and '.join(head.reads)}, not one layer: there are no predictions by layer.")
            return
        if head.reads[0] == "query":
            self.remarks.append(
                "In training, the head reads a second stream that does not see its own token. Here it reads the first stream, "
                "which does."
            )
        self.lens = _lens(name, layers, self.reader, head, batch, self.following[name], self.top)

    def seen(self, *texts: str | None) -> Seen:
        ids = {int(i) for sequence in self.sequences.values() for i in sequence.ids}
        ids |= set() if self.lens is None else set(self.lens.ids.ravel().tolist())
        ids |= {i for neighbours in self.near if neighbours.words is not None for i in neighbours.words.ravel().tolist()}
        vocabulary = {i: shown(self.reader.tokenizer, i) for i in sorted(ids) if 0 <= i < self.reader.tokenizer.size}
        return Seen(
            tuple(text for text in texts if text), self.sequences, tuple(self.attention), self.lens, tuple(self.near),
            tuple(self.attributions), vocabulary, tuple(self.remarks),
        )


def _item_names(reader: Reader, batch: Batch) -> list[str]:
    """How the items of a batch of one row are called."""
    return [
        f"{name} {number + 1}" for name in reader.network.item_sets if f"item_vectors/{name}" in batch
        for number in range(batch[f"item_vectors/{name}"].shape[1])
    ]


def _items(reader: Reader, batch: Batch, width: int) -> tuple[ShownTokens, Ids]:
    """The items of a picture as a sequence of their own; what else a network puts in front of them is the whole picture."""
    names = _item_names(reader, batch)
    names = [*["picture"] * (width - len(names)), *names]
    return ShownTokens("items", (-1,) * width, tuple(names), (1,) * width), np.full(width, -1, np.int32)


def _with_items(reader: Reader, batch: Batch, shown_text: tuple[ShownTokens, Ids], width: int) -> tuple[ShownTokens, Ids]:
    """The tokens of a text, and after them, as a second part, the items of its picture that are positions of the row."""
    text, following = shown_text
    names = [*_item_names(reader, batch), *["end"] * width][: width - len(text)]
    if not names:
        return shown_text
    ids, parts = (*text.ids, *[-1] * len(names)), (*text.parts, *[1] * len(names))
    return ShownTokens(text.name, ids, (*text.pieces, *names), parts), np.append(following, [-1] * len(names)).astype(np.int32)


def _query_attention(reader: Reader, framed: Framed) -> Tensor:
    """The attention (N, 1, H, L, L) of the query stream from every token, when that token alone is to be predicted from all
    others."""
    length, rows = len(framed), []
    for columns in torch.arange(length).split(_ROWS):
        batch = reader.batch([framed] * len(columns))
        order = torch.zeros_like(batch["tokens"])
        order[torch.arange(len(columns)), columns] = 1
        attention = reader.states(Batch({**batch, "order": order}, checked=True), {"query_attention"})["query_attention"]
        rows.append(attention[:, torch.arange(len(columns)), :, columns.to(attention.device)])  # (K, N, H, L)
    return torch.cat(rows).permute(1, 2, 0, 3)[:, None]


def _ids(reader: Reader, text: str) -> Ids:
    """The ids of a text in which [MASK] and other literals mean special tokens."""
    return np.asarray(reader.tokenizer.encode_template(text).ids, np.int32)


def _framed(reader: Reader, text: str, other: str | None, length: int | None) -> Framed:
    """One text or two as the network reads them."""
    texts = [text] if other is None else [text, other]
    literals = [*reader.tokenizer.literals, *reader.tokenizer.literals.values()]
    if not any(literal in string for literal in literals for string in texts):
        return reader.encode(texts[:1], None if other is None else texts[1:], max_length=length)[0]
    most = min((n for n in (length, reader.max_length) if n is not None), default=None)
    ids = [_ids(reader, string) for string in texts]
    marks = [marks_around(reader, row, string) for row, string in zip(ids, texts, strict=True)]
    return reader.lay_out(ids, max_length=most).marked(marks)


def _shown(reader: Reader, name: str, ids: Any, parts: Any, *, following: Ids | None = None) -> tuple[ShownTokens, Ids]:
    """The tokens of a sequence, and the token that follows each; -1 where none does."""
    sequence = ShownTokens(
        name, tuple(int(i) for i in ids), tuple(shown(reader.tokenizer, int(i)) for i in ids), tuple(int(p) for p in parts)
    )
    after = np.append(np.asarray(ids)[1:], -1) if following is None else following
    return sequence, np.asarray(after, np.int32)


def _lens(name: str, layers: Tensor, reader: Reader, head: Any, batch: Batch, following: Ids, top: int) -> Lens:
    """The best tokens of every layer by the head, after what the network does before its head reads."""
    network, (number, length, _) = reader.network, layers.shape
    forward = has_decoder(reader) or reader.order == "left_to_right"
    predicts = "next" if forward else "own"
    tokens = batch["tokens"][0].cpu().numpy()
    true = following if forward else np.where(tokens == reader.tokenizer.roles.get("[MASK]", -1), -1, tokens)
    positions = torch.arange(length, device=reader.device)
    ids, shares = np.zeros((number, length, top), np.int64), np.zeros((number, length, top), np.float32)
    final, actual = np.zeros((number, length), np.float32), np.full((number, length), np.nan, np.float32)
    target_ids = torch.from_numpy(np.maximum(true, 0).astype(np.int64)).to(reader.device)
    winners = None
    for layer in reversed(range(number)):
        state = layers[layer] if layer == number - 1 else network.finish(layers[layer])  # the top one is finished already
        scores = reader.token_scores(head, {head.reads[0]: state[None]}, batch, positions).softmax(-1)
        best = scores.topk(min(top, scores.shape[1]), dim=-1)
        count = best.values.shape[1]
        winners = best.indices[:, :1] if winners is None else winners
        final[layer] = scores.gather(1, winners)[:, 0].cpu().numpy()
        ids[layer, :, :count], shares[layer, :, :count] = best.indices.cpu().numpy(), best.values.cpu().numpy()
        probabilities = scores.gather(1, target_ids[:, None])[:, 0].cpu().numpy()
        actual[layer] = np.where(true >= 0, probabilities, np.nan)
    return Lens(name, predicts, ids, shares, final, actual)


def _near(name: str, layers: Tensor, reader: Reader, top: int) -> Near:
    """The nearest tokens of the sequence and rows of the token table, by the cosine with every token's vector."""
    unit = torch.nn.functional.normalize(layers, dim=-1)
    cosines = unit @ unit.transpose(-2, -1)
    cosines.diagonal(dim1=-2, dim2=-1).fill_(-torch.inf)
    best = cosines.topk(min(top, max(layers.shape[1] - 1, 0)), dim=-1)
    neighbours = Near(name, best.indices.cpu().numpy(), best.values.cpu().numpy(), None, None)
    module = reader.network.token_tables.get("tokens")
    table = None if module is None else dict(module.named_parameters(recurse=False)).get("weight")
    if table is None or table.dim() != 2 or table.shape[1] != layers.shape[-1]:
        return neighbours
    rows = torch.nn.functional.normalize(table[: reader.tokenizer.size].float(), dim=-1)
    flat, count = unit.flatten(0, 1), min(top, len(rows))
    blocks = [(part @ rows.T).topk(count, dim=-1) for part in flat.split(max(1, _BLOCK // len(rows)))]
    near, words = (torch.cat(parts).unflatten(0, layers.shape[:2]).cpu().numpy() for parts in zip(*blocks, strict=True))
    return Near(name, neighbours.tokens, neighbours.cosines, words, near)
