"""`Reader`: strings → a batch → states of a network → scores of a head. All commands that use a checkpoint read text with it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from cloze import fields
from cloze.batch import Batch
from cloze.decoding.bound_head import bind_head
from cloze.decoding.languages import language_id, require_language, speaking
from cloze.decoding.layout import Framed, Ids, Layout, Marks
from cloze.decoding.lengths import CPU_TOKENS, GPU_TOKENS, STATIC_TOKENS, by_length
from cloze.decoding.marks import padded_characters, padded_marks, spelled
from cloze.decoding.pictures import Pictures, most_items_of
from cloze.errors import CheckpointError, UserError
from cloze.exercises.knowledge.inject import Inject, SentenceTree
from cloze.exercises.targets.summarise import summary_columns
from cloze.networks import Cache
from cloze.networks.blocks.inputs.characters import Characters
from cloze.networks.routing import routed, takes_positions, worth_selecting
from cloze.objectives.objective import Kind
from cloze.reading import Reading, SummaryToken
from cloze.rng import Draw
from cloze.rows import Rows
from cloze.text import Annotations, retokenized
from cloze.text.roles import LANGUAGE_ROLES


class Checkpoint(Protocol):
    """The part of a loaded checkpoint that a `Reader` uses (`cloze.checkpoint.loaded.Loaded` is one)."""

    @property
    def network(self) -> Any: ...

    @property
    def heads(self) -> Mapping[str, Any]: ...

    @property
    def tokenizer(self) -> Any: ...

    @property
    def reading(self) -> Reading: ...

    @property
    def order(self) -> str: ...

    @property
    def precision(self) -> torch.dtype | None: ...

    @property
    def folder(self) -> Any: ...

    @property
    def network_arguments(self) -> Mapping[str, Any]: ...

    @property
    def reads(self) -> Mapping[str, Mapping[str, str]]: ...

    @property
    def input_edits(self) -> tuple[Any, ...]: ...

    @property
    def languages(self) -> tuple[str, ...]: ...

    @property
    def annotations(self) -> Annotations: ...

    @property
    def pictures(self) -> Pictures | None: ...

    @property
    def recipe(self) -> Mapping[str, Any] | None: ...

    @property
    def towers(self) -> Mapping[str, Mapping[str, str | None]]: ...

    def other(self, name: str) -> Checkpoint: ...


@dataclass(frozen=True)
class Reader:
    """Reads texts with a network: tokenises, lays out, pads, runs. The network keeps its mode.

    `input_edits` are edits that compute further inputs from the tokens (ZEN's n-grams) or from labelled layers (ERNIE's
    entities), add facts to the text (K-BERT), or choose the items that are read (UNITER). `annotations` make these layers.
    `inputs` is one id for all tokens in each further table of embeddings (XLM's language). `pictures` are those that rows may
    name, which it reads next to their texts.
    `readers_by_view` are the readers of other networks whose states this one reads, by the view in which it finds them
    (BERT-fused translation). `most_items`: of pictures with more items the first are read, as in training; None: all.
    """

    network: Any
    tokenizer: Any
    reading: Reading
    order: str = "open"
    precision: torch.dtype | None = None
    input_edits: tuple[Any, ...] = ()
    inputs: Mapping[str, int] = field(default_factory=dict)
    pictures: Pictures | None = None
    readers_by_view: Mapping[str, Reader] = field(default_factory=dict)
    annotations: Annotations = Annotations()
    most_items: int | None = None

    @classmethod
    def of(
        cls, loaded: Checkpoint, *, order: str | None = None, language: str | None = None, to: str | None = None
    ) -> Reader:
        """The reader of a loaded checkpoint, in its usual order or in `order`. `language` is the name or the number of the
        language of the texts, for networks with several, and `to` the language that is written; the defaults are the folder's.
        """
        tokenizer = speaking(loaded, language, to)
        by_input = language is not None and tokenizer is loaded.tokenizer
        return cls(
            loaded.network, tokenizer, loaded.reading, order or loaded.order, loaded.precision,
            loaded.input_edits, {"language": language_id(loaded, str(language))} if by_input else {}, loaded.pictures,
            {hook.view: cls.of(loaded.other(hook.reads)) for hook in loaded.network.outside if hook.reads},
            loaded.annotations, most_items_of(loaded.recipe),
        )

    @cached_property
    def single_layout(self) -> Layout:
        """The layout of one text."""
        return self._layout(self.reading.single)

    @cached_property
    def decoder_layout(self) -> Layout:
        """The layout of what a decoder writes."""
        return self.single_layout if self.reading.target is None else self._layout(self.reading.target)

    def _layout(self, template: str) -> Layout:
        for role in LANGUAGE_ROLES:
            if role in template:
                require_language(self.tokenizer, role)
        return Layout(template, self.tokenizer)

    @cached_property
    def pair_layout(self) -> Layout:
        """The layout of two texts; a `CheckpointError` if the system cannot read two."""
        if not self.reading.pair:
            raise CheckpointError(
                f"this checkpoint reads single texts only ({self.reading.single!r}); its recipe gives no reading.pair."
            )
        return Layout(self.reading.pair, self.tokenizer)

    @cached_property
    def continuation_layout(self) -> Layout:
        """The layout of a text and of the text that the network writes after it, in one row (order `source_to_target`); see
        `pair`."""
        return Layout(self.pair_layout.template, self.tokenizer, self.reading.segments)

    @property
    def shift(self) -> int:
        """How many positions to the left of a masked token its prediction is read."""
        return self.reading.shift

    @property
    def max_length(self) -> int | None:
        """The maximum number of tokens of a row, by the network and the reading; None if there is no limit."""
        limits = [None if self.network.unlimited else self.network.max_length, self.reading.max_length]
        return min((limit for limit in limits if limit is not None), default=None)

    @property
    def device(self) -> torch.device:
        """Where the network's parameters are."""
        return next(self.network.parameters()).device

    def batches(
        self, lengths: Sequence[int], *, rows: int | None = None, gpu_tokens: int = GPU_TOKENS
    ) -> Iterator[NDArray[np.int64]]:
        """Indices of rows of these lengths in batches of similar length, the longest first: at most `rows` rows, and as many
        tokens as suit the caches of a CPU, or `gpu_tokens` on a GPU; see `by_length`."""
        cpu_tokens = CPU_TOKENS if len(self.network.depth_groups()) > 1 else STATIC_TOKENS
        tokens = cpu_tokens if self.device.type == "cpu" else gpu_tokens
        return by_length(lengths, rows=rows or max(1, len(lengths)), tokens=tokens)

    def encode(
        self, texts: Sequence[str], second_texts: Sequence[str] | None = None, *, max_length: int | None = None
    ) -> list[Framed]:
        """Texts (or pairs of texts) as framed examples, cut to `max_length` or to what the network can read."""
        most = min((n for n in (max_length, self.max_length) if n is not None), default=None)
        first = self.ids(texts)
        max_tokens = self.max_tokens(most)
        if second_texts is None:
            framed, parts = [self.single_layout([a], max_length=max_tokens) for a in first], [texts]
        else:
            framed = [self.pair_layout([a, b], max_length=max_tokens) for a, b in zip(first, self.ids(second_texts), strict=True)]
            parts = [texts, second_texts]
        return self.with_facts(self._marked(framed, parts), most)

    def lay_out(self, texts: Sequence[Ids], *, max_length: int | None = None) -> Framed:
        """The ids of one text or two as one framed example, with the facts that belong to them."""
        layout = self.single_layout if len(texts) == 1 else self.pair_layout
        return self.with_facts([layout(texts, max_length=self.max_tokens(max_length))], max_length)[0]

    @cached_property
    def _fact_edit(self) -> Inject | None:
        """The edit that adds facts to a text, if there is one."""
        return next((edit for edit in self.input_edits if edit.adds), None)

    def max_tokens(self, limit: int | None) -> int | None:
        """How many of `limit` tokens a text and its template may take: those that are not kept free for facts."""
        return limit if limit is None or self._fact_edit is None else self._fact_edit.max_input(limit)

    def with_facts(self, rows: list[Framed], most: int | None) -> list[Framed]:
        """Framed rows with the facts that belong to their words, at most `most` tokens each."""
        if self._fact_edit is None:
            return rows
        edit = self._fact_edit if most is None else self._fact_edit.for_length(most)
        framed = []
        for row in rows:
            block, tree = edit.grow(Rows({"tokens": row.ids[None], "length": np.array([len(row)], np.int32)}))
            span = slice(0, int(block["length"][0]))
            framed.append(row.with_facts(block["tokens"][0, span], SentenceTree(*(x[0, span] for x in tree))))
        return framed

    def encode_whole(self, texts: Sequence[str]) -> list[Framed]:
        """Texts as framed examples at full length, even if longer than the network can read. They have no facts yet: cut them,
        then add these with `with_facts`."""
        return self._marked([self.single_layout([ids]) for ids in self.ids(texts)], [texts])

    @property
    def reads_marks(self) -> bool:
        """Whether the network reads something next to the tokens of a text: see `marks`."""
        return bool(self.annotations) or "characters" in self.network.takes

    def marks(self, texts: Sequence[str]) -> Sequence[Marks]:
        """What the network reads next to the tokens of each text: the labelled layers, (T,) each, by the names of their fields,
        and the `characters` (T, C) of unknown words; nothing for most networks."""
        marks = self.annotations.label_marks(self.tokenizer, texts) if self.annotations else [{} for _ in texts]
        if "characters" not in self.network.takes:
            return marks
        per_word = self.network.per_word or next(part.per_word for part in self.network.modules() if isinstance(part, Characters))
        return [{**layers, **letters} for layers, letters in zip(marks, spelled(texts, self.tokenizer, per_word), strict=True)]

    def _marked(self, framed: list[Framed], parts: Sequence[Sequence[str]]) -> list[Framed]:
        if not self.reads_marks:
            return framed
        marks = [self.marks(texts) for texts in parts]
        return [row.marked(row_marks) for row, *row_marks in zip(framed, *marks, strict=True)]

    def ids(self, texts: Sequence[str]) -> list[Ids]:
        """The ids of each text, without a frame."""
        return [np.asarray(encoded.ids, np.int32) for encoded in self.tokenizer.encode_batch(list(texts))]

    def batch(self, rows: Sequence[Framed]) -> Batch:
        """Framed rows as a batch, padded to one length: `tokens`, `segments`, the flat positions of the `summaries`, and what
        else the network takes. Only rows of different lengths have a `block`, which marks what is no padding."""
        least = 0 if self.network.of_words else 1  # an empty row is a padding token: attention to nothing is not a number
        lengths = np.array([max(len(row), least) for row in rows])
        width = max(1, int(lengths.max()))
        tokens = np.full((len(rows), width), self.tokenizer.roles.get("[PAD]", 0), np.int64)
        segments = np.zeros((len(rows), width), np.int64)
        for number, row in enumerate(rows):
            tokens[number, : len(row)] = row.ids
            segments[number, : len(row)] = row.segments
        arrays = {"tokens": tokens, "segments": segments, "summaries": self._summaries(tokens, lengths)}
        if lengths.min() < width:
            arrays["block"] = (np.arange(width) < lengths[:, None]).astype(np.int64)
        if any(row.characters is not None for row in rows):
            arrays["characters"] = padded_characters(rows, width)
        arrays.update({f"inputs/{name}": np.full_like(tokens, number) for name, number in self.inputs.items()})
        arrays.update(self._computed_inputs(tokens, lengths, padded_marks(rows, tokens, self.tokenizer.roles.get("[MASK]", -1))))
        arrays.update(self._tree_inputs(rows, width))
        if self.pictures is not None:
            first, second = np.array([(row.picture, row.picture_b) for row in rows]).T
            arrays.update(self.items_of(self.pictures, first, lengths, second=second))
        batch = Batch({name: torch.from_numpy(array) for name, array in arrays.items()}).to(self.device)
        for view, other in self.readers_by_view.items():
            batch = Batch({**batch, **other.fields_for_other(rows, self.tokenizer, view)}, checked=True)
        return batch

    def items_of(
        self, pictures: Pictures, first: NDArray[np.int64], lengths: NDArray[np.int64], *, second: NDArray[np.int64] | None = None
    ) -> dict[str, Any]:
        """The items of the pictures of rows with so many tokens (`lengths`), by the numbers (B,) of the first and of second ones,
        -1 for none: as many as the network read in training."""
        choosing = [edit for edit in self.input_edits if edit.selects]
        also: frozenset[str] = frozenset().union(*(edit.optional for edit in choosing))
        items = pictures.fields(self.network, first, also, second=second, most=self.most_items)
        for edit in choosing:
            if edit.takes - {"length"} <= items.keys():
                rows = Rows({**items, "length": lengths.astype(np.int32)})
                chosen = edit(rows, Draw(np.zeros(len(lengths), np.uint64)))
                items = {name: chosen[name].astype(value.dtype) for name, value in items.items()}
        return {name: value for name, value in items.items() if name in self.network.takes or name not in also}

    @torch.no_grad()
    def fields_for_other(self, rows: Sequence[Framed], tokenizer: Any, view: str) -> dict[str, Tensor]:
        """The fields of a view for another network that reads the states of this one: the tokens of this network of the texts of
        `rows`, which are ids of the other's `tokenizer`, and as `vectors` the top states."""
        ids = [retokenized(row.ids[row.part >= 0], tokenizer, self.tokenizer) for row in rows]
        batch = self.batch([self.single_layout([text_ids], max_length=self.max_length) for text_ids in ids])
        with evaluating(self.network):
            vectors = self.states(batch, ("hidden",))["hidden"]
        inputs = {name: batch[name] for name in ("tokens", "block") if name in batch}
        return {fields.join(view, name): value for name, value in {**inputs, "vectors": vectors}.items()}

    def _tree_inputs(self, rows: Sequence[Framed], width: int) -> dict[str, Any]:
        """By which fields a network reads the facts in rows; none if there are no facts. A masked word shows none of its own."""
        if not any(row.tree is not None and row.tree.branch.any() for row in rows):
            return {}
        mask = self.tokenizer.roles.get("[MASK]", -1)
        inputs: dict[str, Any] = {}
        for number, row in enumerate(rows):
            assert row.tree is not None and self._fact_edit is not None  # rows of one reader
            tree, span = row.tree, slice(0, len(row))
            hidden = tree.word[(row.ids == mask) & (tree.branch == 0) & (tree.word > 0)]
            tree = tree._replace(word=np.where(np.isin(tree.word, hidden), 0, tree.word))
            for name, value in self._fact_edit.describe(SentenceTree(*(x[None] for x in tree))).items():
                if name not in inputs:
                    empty = np.zeros((len(rows), width), np.int64)
                    inputs[name] = empty if value.ndim == 2 else np.tile(np.eye(width, dtype=np.bool_), (len(rows), 1, 1))
                inputs[name][number][(span,) * (value.ndim - 1)] = value[0]
        return inputs

    def _computed_inputs(self, tokens: Any, lengths: Any, marks: Mapping[str, NDArray[Any]]) -> dict[str, Any]:
        """The further inputs that `input_edits` compute from tokens (B, L) and their labelled layers, the same in any batch."""
        inputs: dict[str, Any] = {}
        arrays = {"tokens": tokens.astype(np.int32), "length": lengths.astype(np.int32), **marks}
        for edit in self.input_edits:
            if not (edit.adds or edit.selects) and edit.gives <= self.network.takes and edit.takes <= arrays.keys():
                rows = Rows(arrays)
                outputs = edit(rows, Draw(np.zeros(len(tokens), np.uint64)))
                inputs.update({name: outputs[name] for name in edit.gives})
        for name in [name for name in inputs if name.startswith("links/")]:
            items = inputs["items/" + name.removeprefix("links/")].shape[1]
            row, slot = np.nonzero(inputs[name][:, :, 0] >= 0)
            token, item = inputs[name][row, slot].T.astype(np.int64)
            inputs[name] = np.stack([row * tokens.shape[1] + token, row * items + item], axis=1)
        return inputs

    def prediction_inputs(self, head: Any, batch: Batch, positions: Tensor) -> tuple[Batch, Tensor]:
        """The batch to read so that `head` predicts the tokens at flat `positions` (M,), and the positions to read it at.

        A head on a state that does not see its own token (XLNet's query stream) gets an order in which all other tokens precede
        the predicted ones. A system may read its predictions some positions to the left (`shift`); `predictable` keeps those
        positions inside the row.
        """
        if any(self.network.gives[name].sees == "before" for name in head.reads if name in self.network.gives):
            last = torch.zeros_like(batch["tokens"]).flatten().index_fill(0, positions, 1)
            batch = Batch({**batch, "order": last.view_as(batch["tokens"])}, checked=True)
        return batch, positions - (self.shift if self.order == "open" else 0)

    def predictable(self, row: Framed) -> NDArray[np.bool_]:
        """Which tokens of a row can be predicted: those of the text whose prediction has a position in the row."""
        shift = self.shift if self.order == "open" else 0
        return np.asarray((row.part == 0) & (np.arange(len(row)) >= shift))

    def _summaries(self, tokens: NDArray[np.int64], lengths: Ids) -> Any:
        summary_tokens = get_args(SummaryToken)
        if self.reading.summary not in summary_tokens:
            raise CheckpointError(
                f"this checkpoint's summary is {self.reading.summary!r}; known: {', '.join(map(repr, summary_tokens))}."
            )
        column = summary_columns(self.reading.summary, tokens, lengths, self.tokenizer.roles.get("[MASK]", -1))
        return np.arange(len(lengths), dtype=np.int64) * tokens.shape[1] + column

    def states(
        self, batch: Batch, want: Iterable[str], *, positions: Tensor | None = None, cache: Any = None, order: str | None = None,
        carry: Any = None,
    ) -> dict[str, Any]:
        """The network's states for a batch; `want` names them.

        `positions` (M,) are the flat positions that will be read, if not all are; a network may skip the others. `cache` holds
        keys and values of earlier tokens, `carry` the recurrent state of that name from an earlier call. The order is that of the
        batch, else `order`, else the reader's.
        """
        fields = routed(self.network, batch, order or self.order)
        want = frozenset(want)
        if want == {"summary"} and cache is None:  # no state of a token is read
            positions = torch.zeros(0, dtype=torch.long, device=batch["tokens"].device)
        if positions is not None and takes_positions(self.network) and worth_selecting(positions, batch):
            fields["positions"] = positions
        if cache is not None:
            fields["cache"] = cache
        if carry is not None:
            fields["carry"] = carry
        with self.autocast():
            return dict(self.network(want=want, **fields))

    def autocast(self) -> torch.autocast:
        """Automatic casting to `precision`; none where that is None or fp32."""
        cast = self.precision not in (None, torch.float32)
        return torch.autocast(self.device.type, dtype=self.precision if cast else torch.bfloat16, enabled=cast)

    def new_cache(self) -> Any:
        """An empty cache for continuing texts."""
        cache = self.network.cache()
        return Cache(len(self.network.depth_groups()) - 1) if cache is None else cache

    def continued(
        self, tokens: Tensor, start: int, segment: int = 0, *, characters: NDArray[np.int16] | None = None
    ) -> Batch:
        """A batch of tokens (B, L) of one segment, at the positions from `start`; `characters` (L, C) or (B, L, C) spell them."""
        position_ids = torch.arange(start, start + tokens.shape[1], device=tokens.device).expand_as(tokens)
        further = {f"inputs/{name}": torch.full_like(tokens, number) for name, number in self.inputs.items()}
        if characters is not None:
            further["characters"] = torch.from_numpy(characters).long().to(tokens.device).expand(len(tokens), -1, -1)
        return Batch({"tokens": tokens, "position_ids": position_ids, "segments": torch.full_like(tokens, segment), **further})

    def scores(self, head: Any, states: Mapping[str, Tensor], batch: Batch, positions: Tensor) -> Tensor:
        """A head's scores (M, classes) in fp32 at flat positions (M,) of the state that it reads; of `summary`, the numbers of
        rows."""
        head_batch = Batch({**batch, f"positions/{head.set}": positions}, checked=True)
        with self.autocast():
            scores: Tensor = head.predict({name: states[name] for name in head.reads}, head_batch).float()
        return scores

    def token_scores(self, head: Any, states: Mapping[str, Tensor], batch: Batch, positions: Tensor) -> Tensor:
        """Scores (M, V) of a head over the vocabulary; rows that pad the table get -inf."""
        scores = self.scores(head, states, batch, positions)
        if scores.shape[1] > self.tokenizer.size:
            scores[:, self.tokenizer.size :] = -torch.inf
        return scores


def head_of_kind(loaded: Checkpoint, kind: Kind) -> Any:
    """The first head of this kind, with its readings bound, one that reads what the network writes before others; or None."""
    heads = [head for head, head_kind in _heads(loaded) if head_kind == kind]
    return next((head for head in heads if loaded.network.writes in head.reads), next(iter(heads), None))


def describe_heads(loaded: Checkpoint) -> str:
    """What the heads of a checkpoint predict of tokens, for messages; any other head is called by its name."""
    heads = zip(loaded.heads, _heads(loaded), strict=True)
    return ", ".join(sorted({name if kind in (None, "relation_prediction") else kind for name, (_, kind) in heads})) or "none"


def _heads(loaded: Checkpoint) -> Iterator[tuple[Any, Kind | None]]:
    """Every head with its readings bound, and its kind."""
    for name, part in loaded.heads.items():
        head = bind_head(part, loaded.reads.get(name))
        yield head, part.usable_as([loaded.network.gives[state].sees for state in head.reads if state in loaded.network.gives])


def orders_of(loaded: Checkpoint) -> tuple[str, ...]:
    """The orders that a checkpoint reads in, the usual one first."""
    return tuple(loaded.reading.orders) or (loaded.order,)


def prediction_head(loaded: Checkpoint, *, verb: str) -> Any:
    """The head that predicts tokens; without one a `CheckpointError` names the heads there are and what to do."""
    if verb not in ("generate", "score"):
        refuse_answering(loaded, verb=verb)
    head = head_of_kind(loaded, "token_prediction")
    if head is not None:
        return head
    way_out = "Use a checkpoint that was trained with token_prediction."
    generators = [path for path in sorted(Path(loaded.folder).glob("cloze/networks/*")) if path.is_dir()]
    if head_of_kind(loaded, "token_labelling") is not None and generators:
        way_out = f"A discriminator predicts no words, but its generator does: {generators[0]}"
    raise CheckpointError(
        f"{loaded.folder}: cloze {verb} needs a head that predicts tokens; this checkpoint has: "
        f"{describe_heads(loaded)}.\n  {way_out}"
    )


def refuse_answering(loaded: Checkpoint, *, verb: str) -> None:
    """A `UserError` for an encoder-decoder, whose predictions are about another sequence than the one it reads."""
    if loaded.network.writes is not None:
        raise UserError(
            f"{loaded.folder}: cloze {verb} predicts tokens of the text it reads; this network reads one text and writes "
            f"another.\n  To have it answer a text: cloze generate {loaded.folder} TEXT; to score an answer: cloze score "
            f"{loaded.folder} $'TEXT\\tANSWER'"
        )


def require_order(loaded: Checkpoint, *orders: str, verb: str, instead: str) -> str:
    """The first of `orders` that the checkpoint reads in; a `UserError` if there is none."""
    readable = orders_of(loaded)
    if (order := next((order for order in orders if order in readable), None)) is not None:
        return order
    raise UserError(
        f"{loaded.folder}: cloze {verb} needs a network that reads in the order {' or '.join(sorted(orders))}; this one reads in "
        f"the order {' or '.join(readable)}.\n  {instead}"
    )


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Eval mode inside the block; afterwards every part has its previous mode, which need not be that of the whole."""
    modes = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        yield
    finally:
        for part, mode in modes:
            part.training = mode
