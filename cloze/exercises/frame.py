"""Put the parts of a row into a template such as `[CLS] {A} [SEP] {B} [SEP]`."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cloze.errors import RecipeError
from cloze.exercises.edit import Edit
from cloze.exercises.facts import TokenFacts, needed
from cloze.exercises.joined import with_companions
from cloze.reading import FROM_CHECKPOINT
from cloze.registry import Given, register
from cloze.rng import Draw
from cloze.rows import Inserted, Rows, columns_before

_TEMPLATE = re.compile(r"\{(?P<part>\w+)\}|(?P<role>\[[A-Z]+\])|(?P<text>\[[^\[\]{}]*\]|[^\[\{]+|[\[\{])")


class TemplatePieces(NamedTuple):
    """The I pieces of a template, parts and inserted ids, as arrays that serve all rows.

    A piece belongs to a part and has min(tokens of that part, `most`) · `size` tokens: `most` is 1 for an insertion, which
    disappears with its part, and `size` 1 for a part.
    """

    part_of: NDArray[np.int64]          # (I,) the part that each piece belongs to
    most: NDArray[np.int64]             # (I,)
    size: NDArray[np.int64]             # (I,)
    piece_of_part: list[int]            # the piece that is the part itself, for each part
    first_of_part: list[int]            # the first piece that belongs to each part
    piece_of_id: NDArray[np.int64]      # (S,) the piece of every inserted id
    offset: NDArray[np.int64]           # (S,) its position in the piece
    ids: NDArray[np.int32]              # (S,) the inserted ids

    @classmethod
    def of(cls, pieces: list[tuple[int, tuple[int, ...] | None]]) -> TemplatePieces:
        """From the part that each piece belongs to and the ids it inserts, None for the part itself."""
        part_of = [part for part, _ in pieces]
        marks = [(index, offset, i) for index, (_, ids) in enumerate(pieces) for offset, i in enumerate(ids or ())]
        piece_of_id, offset, token_ids = np.array(marks, np.int64).reshape(-1, 3).T
        return cls(
            part_of=np.array(part_of),
            most=np.array([np.iinfo(np.int64).max if ids is None else 1 for _, ids in pieces]),
            size=np.array([1 if ids is None else len(ids) for _, ids in pieces]),
            piece_of_part=[index for index, (_, ids) in enumerate(pieces) if ids is None],
            first_of_part=[part_of.index(part) for part in range(max(part_of) + 1)],
            piece_of_id=piece_of_id.copy(), offset=offset.copy(), ids=token_ids.astype(np.int32),
        )


def split_template(template: str) -> list[tuple[str, str]]:
    """A template as (kind, text) pieces; kind is `part`, `role` or `text` (blank text is dropped)."""
    pieces = [(str(m.lastgroup), str(m.group(str(m.lastgroup)))) for m in _TEMPLATE.finditer(template)]
    return [(kind, text.strip() if kind == "text" else text) for kind, text in pieces if text.strip()]


@register("edit", "frame")
@dataclass(frozen=True)
class Frame(Edit):
    """Lay out the parts of each row by a template: `{A}`, `{B}` are parts, `[CLS]` a role, all else literal text.

    A part of one letter is one of the row's own parts (`pair` makes two); a part with a longer name is the companion of that
    name, such as `{translation}`. An inserted token belongs to the part before it, the first ones to the first part; of two or
    more between parts, the last belongs to the part that follows. `segments` numbers the parts (default 0, 1, …); one more
    number is the segment of the token that ends the template, such as XLNet's last `[CLS]`. `restart` restarts position ids with
    every part. An empty part disappears together with its tokens, except in records (`keeps_empty`).

    `frame: reading` is the template of the checkpoint that the recipe starts from, for one text or two.

    `inputs` gives `inputs/<set>` (B, L), further ids: one id for all tokens, a list with one for each part, or, for `language`,
    `of_row` or `of_part`: the language of the row, or of each part's text.
    """

    frames: ClassVar[bool] = True

    template: str
    segments: list[int] | None = None
    restart: bool = False
    inputs: dict[str, Literal["of_row", "of_part"] | int | list[int]] | None = None
    tokenizer: Given[TokenFacts | None] = None
    limit: Given[int | None] = None
    keeps_empty: Given[bool] = False
    _pieces: TemplatePieces | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        parts = self.part_names
        if self.template == FROM_CHECKPOINT:
            return
        if not parts:
            raise RecipeError(f"frame: template {self.template!r} names no part such as {{A}}.")
        if self.segments is not None and len(self.segments) not in (len(parts), len(parts) + self._ends):
            raise RecipeError(f"frame: {len(self.segments)} segments for {len(parts)} parts in {self.template!r}.")
        for name, ids in (self.inputs or {}).items():
            if isinstance(ids, list) and len(ids) != len(parts):
                raise RecipeError(f"frame.inputs.{name}: {len(ids)} ids for {len(parts)} parts in {self.template!r}.")
            if isinstance(ids, str) and name != "language":
                raise RecipeError(f"frame.inputs.{name}: {ids} is only for language; write an id, or one for each part.")
        if self.tokenizer is not None and self._pieces is None:
            object.__setattr__(self, "_pieces", self._read(self.tokenizer))

    @cached_property
    def part_names(self) -> list[str]:
        """The names of the template's parts in order."""
        return [text for kind, text in split_template(self.template) if kind == "part"]

    @cached_property
    def joins(self) -> tuple[str, ...]:
        """The companions that are parts of the template."""
        return tuple(dict.fromkeys(name for name in self.part_names if len(name) > 1))

    @property
    def _ends(self) -> bool:
        """Whether the template ends with a token after a token: that one may have a segment of its own."""
        kinds = [kind for kind, _ in split_template(self.template)]
        return len(kinds) > 1 and kinds[-1] != "part" and kinds[-2] != "part"

    @property
    def takes(self) -> frozenset[str]:
        names = {"tokens", "length"} | {f"{name}.{field}" for name in self.joins for field in ("tokens", "length")}
        if sum(len(name) == 1 for name in self.part_names) > 1:
            names.add("parts")
        language = (self.inputs or {}).get("language")
        if isinstance(language, str):
            names.add("language")
            names |= {f"{name}.language" for name in self.joins if language == "of_part"}
        return frozenset(names)

    @property
    def gives(self) -> frozenset[str]:
        names = {"segments", "special"} | {f"inputs/{name}" for name in self.inputs or ()}
        return frozenset(names | ({"position_ids"} if self.restart else set()))

    def max_input(self, length: int) -> int:
        """The tokens left for the parts after all inserted tokens."""
        if self._pieces is not None:
            return length - len(self._pieces.ids)
        return length - sum(kind != "part" for kind, _ in split_template(self.template))

    def for_length(self, length: int) -> Frame:
        """The same edit with rows of at most `length` tokens."""
        return replace(self, limit=length)

    def _read(self, facts: TokenFacts) -> TemplatePieces:
        pieces = split_template(self.template)
        entries: list[tuple[int, tuple[int, ...] | None]] = []
        part = -1
        for index, (kind, text) in enumerate(pieces):
            if kind == "part":
                part += 1
                entries.append((part, None))
                continue
            before_part = index + 1 < len(pieces) and pieces[index + 1][0] == "part"
            after_special = index > 0 and pieces[index - 1][0] != "part"
            follows = before_part and (after_special or part < 0)
            entries.append((part + 1 if follows else max(part, 0), facts.literal(kind, text)))
        return TemplatePieces.of(entries)

    def __call__(self, rows: Rows, draw: Draw) -> Rows:
        if self.template == FROM_CHECKPOINT:
            raise RecipeError("frame: reading needs a checkpoint, and the recipe starts from none. Write the template itself.")
        needed(self.tokenizer, "frame")
        assert self._pieces is not None  # there is a tokenizer
        pieces = self._pieces
        begins, lengths = self._parts(rows)
        rows = rows.having_all(with_companions(rows, *self.joins)) if self.joins else rows
        widths = np.minimum(lengths.take(pieces.part_of, axis=1), pieces.most)
        if self.keeps_empty:
            widths[:, pieces.most == 1] = 1
        widths *= pieces.size
        starts = widths.cumsum(axis=1)
        total = starts[:, -1].copy()
        starts -= widths
        width = int(total.max())
        borders = [starts[:, first] for first in pieces.first_of_part[1:]]  # where the parts after the first begin
        beyond = [~columns_before(border, width) for border in borders]
        shifts = [begins[:, part] - starts[:, piece] for part, piece in enumerate(pieces.piece_of_part)]
        inserted = self._inserted(pieces, starts, widths, width)
        framed = rows.splice_stretches(width, shifts, beyond, total.astype(np.int32), inserted)
        special = np.zeros((len(total), width), bool)
        special.reshape(-1)[inserted.at] = True
        laid: dict[str, NDArray[Any]] = {"special": special, "segments": self._segments(starts, beyond, width)}
        for name, ids in (self.inputs or {}).items():
            laid[f"inputs/{name}"] = _by_part(self._inputs(rows, ids, len(shifts)), beyond).astype(np.int32)
        if self.restart:
            first = _by_part([np.zeros(len(total), np.int64), *borders], beyond)
            laid["position_ids"] = (np.arange(width) - first).astype(np.int32)
        if not beyond:
            laid = {name: np.broadcast_to(value, special.shape) for name, value in laid.items()}
        return framed.having_all(laid)

    def _segments(self, starts: NDArray[np.int64], beyond: list[NDArray[np.bool_]], width: int) -> NDArray[np.int32]:
        """The segment of each token, (B, L), or () where all have one; the token that ends the template may have one more."""
        numbers = self.segments or range(len(beyond) + 1)
        if len(numbers) > len(beyond) + 1:
            beyond = [*beyond, ~columns_before(starts[:, -1], width)]
        segments = np.array(numbers[0], np.int32)
        for (last, number), after in zip(pairwise(numbers), beyond, strict=True):
            segments = segments + after.astype(np.int32) * np.int32(number - last)
        return segments

    def _inputs(self, rows: Rows, ids: str | int | list[int], parts: int) -> list[NDArray[Any]]:
        """Per part the id of each row."""
        if isinstance(ids, str):
            languages = rows["language"]
            names = self.part_names if ids == "of_part" else ["A"] * parts
            return [languages if len(name) == 1 else rows[f"{name}.language"] for name in names]
        return [np.full(rows.count, number) for number in (ids if isinstance(ids, list) else [ids] * parts)]

    def _inserted(self, pieces: TemplatePieces, starts: NDArray[np.int64], widths: NDArray[np.int64], width: int) -> Inserted:
        """The positions of inserted ids, in every row that has the part they belong to."""
        at = starts.take(pieces.piece_of_id, axis=1)
        at += pieces.offset
        at += np.arange(len(at))[:, None] * width
        present = widths.take(pieces.piece_of_id, axis=1) > 0
        if present.all():
            return Inserted(at, pieces.ids)
        return Inserted(at[present], np.broadcast_to(pieces.ids, at.shape)[present])

    def _parts(self, rows: Rows) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """(B, P) the starts and lengths of the parts; tokens beyond the limit are cut from the last parts."""
        if "parts" in rows:
            begins, lengths = rows["parts"][:, :, 0], rows["parts"][:, :, 1] - rows["parts"][:, :, 0]
        else:
            lengths = rows["length"].astype(np.int64)[:, None]
            begins = np.zeros_like(lengths)
        letters = len(self.part_names) - len(self.joins)
        if lengths.shape[1] < letters:
            raise RecipeError(f"frame: template {self.template!r} names {letters} parts, the rows have {lengths.shape[1]}.")
        if self.joins:
            begins, lengths = self._with_companions(rows, begins, lengths)
        elif lengths.shape[1] > letters:
            begins, lengths = begins[:, :letters], lengths[:, :letters]
        if self.limit is None:
            return begins, lengths
        left = self.max_input(self.limit)
        if int(lengths.sum(axis=1).max(initial=0)) <= left:
            return begins, lengths
        before = np.cumsum(lengths, axis=1) - lengths
        return begins, np.minimum(np.maximum(left - before, 0), lengths)

    def _with_companions(
        self, rows: Rows, begins: NDArray[np.int64], lengths: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The same with the whole companions that the template names, appended to the row."""
        begin, parts = rows["tokens"].shape[1], iter(range(lengths.shape[1]))
        positions = {}
        for name in self.joins:
            positions[name] = begin
            begin += rows[f"{name}.tokens"].shape[1]
        bounds = []
        for name in self.part_names:
            if name in positions:
                length = rows[f"{name}.length"].astype(np.int64)
                bounds.append((np.full_like(length, positions[name]), length))
            else:
                part = next(parts)
                bounds.append((begins[:, part], lengths[:, part]))
        return np.stack([begin for begin, _ in bounds], axis=1), np.stack([length for _, length in bounds], axis=1)


def _by_part(values: list[NDArray[Any]], beyond: list[NDArray[np.bool_]]) -> NDArray[Any]:
    """(B, L) one value per part, from the column where the part begins."""
    chosen = values[0][:, None]
    for value, after in zip(values[1:], beyond, strict=True):
        chosen = np.where(after, value[:, None], chosen)
    return chosen
