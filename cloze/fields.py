"""The ledger: every field that a block of rows or a batch may carry, with its shape and meaning. No torch.

A full name is `[view.]field[/set]`: `tokens`, `hole.tokens`, `targets/next`, `decoder.positions/main`. Fields are few and typed
by shape and kind; sets are free names chosen by the edit that gives them and matched by the objective that takes them. A second
sequence that a network reads is a view, such as `decoder`, and has the same fields as any other.
The site builds the tables of `docs/fields.md` from this file.

Shapes: B rows, L positions, M targets, T positions of a second sequence, D width, C characters, R items, P pairs or parts,
K columns, E examples, F numbers of a target; of states, N layers, S = N + 1 with the embeddings, H heads of width W.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, NamedTuple

from cloze.errors import RecipeError, propose

Kind = Literal["integer", "float", "boolean"]
#: What a value belongs to, which determines how `collate` lays it out in a batch:
#: a row or anything else that stays as it is; a token, padded, and moved by `Rows.splice`; a pair of tokens of one row, true for
#: all of them if the field is absent; a target, listed with its position; a column of its row, which becomes a flat position; a
#: link, whose column and item become flat positions; an item of its row, padded to the most items that a row of the batch has.
Per = Literal["row", "token", "pair", "target", "column", "link", "item"]


@dataclass(frozen=True)
class Field:
    """One family of names. `keyed`: takes a `/set`. `travels`: may reach a network or an objective."""

    name: str
    shape: str
    kind: Kind
    meaning: str
    keyed: bool = False
    travels: bool = True
    per: Per = "row"
    inserted: int = 0      # value of a token-aligned field at an inserted token
    binding: bool = False  # a network that reads the tokens must take it: without it, it would read another text

    @property
    def aligned(self) -> bool:
        """Whether there is one value per token."""
        return self.per == "token"


class FieldName(NamedTuple):
    """A full field name taken apart."""

    view: str
    field: str
    set: str


_ledger: dict[str, Field] = {}

#: What the rows of a view may consist of, (B, L, …): the first that the view has.
SEQUENCES = ("tokens", "vectors")


def add(field: Field) -> None:
    """Add a family of names to the ledger; a second definition that differs is an error."""
    old = _ledger.get(field.name)
    if old is not None and old != field:
        raise RecipeError(f"field {field.name!r} is already in the ledger with another meaning: {old.meaning}")
    _ledger[field.name] = field
    find.cache_clear()


def ledger() -> tuple[Field, ...]:
    """Every field in the order of definition."""
    return tuple(_ledger.values())


@lru_cache(maxsize=4096)
def split(name: str) -> FieldName:
    """`hole.targets/main` → (view, field, set); the view defaults to `main`, the set to the empty string."""
    head, _, chosen = name.partition("/")
    view, dot, field = head.rpartition(".")
    return FieldName(view if dot else "main", field, chosen)


def join(view: str, field: str, chosen: str = "") -> str:
    """The inverse of `split`: the view `main` is not written."""
    return ("" if view in ("", "main") else view + ".") + field + (f"/{chosen}" if chosen else "")


def sequence(fields: Collection[str]) -> str | None:
    """The field that the rows of a view consist of, None where it has no rows of positions (cells of a matrix)."""
    return next((name for name in SEQUENCES if name in fields), None)


@lru_cache(maxsize=4096)
def find(name: str) -> Field:
    """The ledger's entry for a full name; an illegal name is a `RecipeError` with the nearest names."""
    _, field, chosen = split(name)
    entry = _ledger.get(field)
    if entry is None:
        raise RecipeError(f"unknown field {name!r}. {propose(field, _ledger)}")
    if entry.keyed != bool(chosen):
        way_out = f"write {field}/<set>" if entry.keyed else f"write {field}"
        if field == "positions":  # what the positions of tokens are called elsewhere
            way_out += ", or position_ids for the position of each token"
        raise RecipeError(f"field {name!r}: {field} {'needs' if entry.keyed else 'does not take'} a set; {way_out}.")
    return entry


for _field in (
    Field("tokens", "B L", "integer", "token ids that the network reads", per="token"),
    Field("position_ids", "B L", "integer", "position of each token, from 0 in each packed text; absent: 0, 1, 2, … in every row",
          per="token"),
    Field("segments", "B L", "integer", "segment of each token", per="token"),
    Field("order", "B L", "integer", "token i sees token j if order[j] <= order[i]; absent: the order is constant and known "
          "to the pass", per="token"),
    Field("visible", "B L L", "boolean", "token i may see token j, as far as order and block let it; absent: it may see all",
          binding=True, per="pair"),
    Field("block", "B L", "integer", "1, 2, … the packed example a token belongs to, 0 for padding; absent: no padding, "
          "one example per row", per="token"),
    Field("restarts", "B", "boolean", "the row starts a new stream: recurrent memory is cut"),
    Field("reversed", "B", "boolean", "the row was read from its end: distances between its tokens are negated"),
    Field("summaries", "E", "integer", "flat position of each example's summary token; absent: the first token of each row"),
    Field("crossing", "B L", "boolean", "false: hidden from the decoder although the encoder sees it", per="token"),
    Field("characters", "B L C", "integer", "characters of each token or word", per="token"),
    Field("inputs", "B L", "integer", "further ids summed into the embedding: language, task, …", keyed=True, per="token"),
    Field("vectors", "B L D", "float", "used instead of the token embedding; a view without tokens has them alone", per="token"),
    Field("condition", "B D", "float", "the vector that a decoder writes a row from"),
    Field("items", "B R", "integer", "items of the row: entities and n-grams, which are linked to tokens; of items with vectors, "
          "such as regions of a picture, an array of whole numbers, such as items/regions/class; items/regions/masked is 1 where "
          "`mask_items` has chosen the item, and items/regions/picture for those of the second of two pictures", keyed=True,
          per="item"),
    Field("item_vectors", "B R D", "float", "vectors of the items of the row, such as features of the regions of a picture, "
          "item_vectors/regions; further arrays of numbers are item_vectors/regions/boxes (B, R, 5: x1 y1 x2 y2 and area, as "
          "shares of the picture), item_vectors/regions/score (B, R, 1)", keyed=True, per="item"),
    Field("item_length", "B", "integer", "how many items of a set the row has; what follows is padding", keyed=True),
    Field("links", "E 2", "integer", "pairs (position of a token, position of an item)", keyed=True, per="link"),
    Field("targets", "M", "integer", "what an objective must predict, as ids", keyed=True, per="target"),
    Field("positions", "M", "integer", "where each target stands: flat index into the state that is read; of spans (M, K), the "
          "first and the last token of each", keyed=True, per="target"),
    Field("values", "M F", "float", "targets that are numbers: one or several for each position", keyed=True, per="target"),
    Field("paragraph", "B", "integer", "the number of the row's document in the store, for networks with a vector of each"),
    Field("owner", "B", "integer", "the record that a row was made from, where one record makes several rows: 0, 1, …"),
    Field("film", "B 2", "integer", "the number of the film of the row's picture, and which of the clips of that film that were "
          "drawn together the row is, counted from the middle one"),
    Field("triple", "B 3", "integer", "a triple about the rows of an owner: which is the head, the number of the relation, "
          "which is the tail; -1 in a row that holds none"),
    Field("relation_row", "B", "integer", "of the same triple: which row of the owner is the text of the relation; -1 for none"),
    Field("answers", "B K", "integer", "the texts that answer the question of a row: 1 + the id of each token, 0 after each "
          "text"),
    Field("retrieved", "B K", "integer", "which texts of a table were retrieved for a row, the nearest first"),
    Field("weights", "M", "float", "weight of each target; padding has weight 0", keyed=True, per="target"),
    Field("centers", "P", "integer", "flat position of the centre word of each pair (word, word near it)", per="column"),
    Field("contexts", "P", "integer", "flat position of the other word of each pair", per="column"),
    Field("cell", "P 2", "integer", "the ids of a word and of one near it: a cell of the matrix of co-occurrences"),
    Field("cell_count", "P", "float", "the count in that cell"),
    # Between edits only: these never reach a network or an objective.
    Field("length", "B", "integer", "tokens in the row; what follows is padding", travels=False),
    Field("border", "B", "integer", "the first sentence of the second part of the passage, if the source draws the parts",
          travels=False),
    Field("apart", "B", "boolean", "whether another text replaces that part, which then begins the next passage",
          travels=False),
    Field("target_length", "B", "integer", "tokens that the passage was cut for: a full row, or a shorter one",
          travels=False),
    Field("parts", "B P 2", "integer", "start and stop of each part of the row, before it is framed", travels=False),
    Field("special", "B L", "boolean", "inserted by the frame, not part of the text", travels=False, per="token", inserted=1),
    Field("masked", "B L", "boolean", "chosen by `mask`", travels=False, per="token"),
    Field("mismatched", "B", "boolean", "a text or the items of the row are those of another row", travels=False),
    Field("item_originals", "B R D", "float", "item_vectors before `mask_items`", keyed=True, travels=False, per="item"),
    Field("item_positions", "B K", "integer", "item_positions/<items>/<set>: which item of its row each target of the set is "
          "about, -1 for none; it becomes positions/<set>", keyed=True, travels=False),
    Field("favour", "B L", "float", "how many times as often as others a token is masked", travels=False, per="token",
          inserted=1),
    Field("original", "B L", "integer", "the ids before corruption", travels=False, per="token"),
    Field("word_start", "B L", "boolean", "the token starts a word", travels=False, per="token", inserted=1),
    Field("sentence", "B L", "integer", "ordinal of the token's sentence in its passage, -1 for none", travels=False,
          per="token", inserted=-1),
    Field("layers", "B L", "integer", "an annotation layer of the store: one value per token, 0 for nothing", keyed=True,
          travels=False, per="token"),
    Field("labels", "B L", "integer", "of an annotation layer whose units have labels: the number of the unit's label + 1 at "
          "each of its tokens, 0 outside", keyed=True, travels=False, per="token"),
    Field("document", "B", "integer", "document that the passage comes from", travels=False),
    Field("language", "B", "integer", "language of the row, in the order of the store's list", travels=False),
    Field("column", "B", "integer", "the label of a record: one for the row, or (B, K) one for each word, -1 for none",
          keyed=True, travels=False),
    Field("numbers", "B F", "float", "the label of a record where it is a number, or several", keyed=True,
          travels=False),
    Field("choices", "B", "integer", "how many texts the list of a record has: its last parts", travels=False),
    Field("summary", "B", "integer", "column of the row's summary token; absent: the first. It becomes `summaries`",
          travels=False),
    Field("spans", "B K", "integer", "columns of the first and the last token of each span that a record marks, one span after "
          "another, -1 where it is not read", travels=False),
    Field("words", "B K", "integer", "column of the first token of each labelled word, -1 where no token of it is read",
          travels=False),
):
    add(_field)
