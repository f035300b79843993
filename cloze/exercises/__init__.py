"""Edits: pure functions that turn passages into examples. They mask and corrupt tokens, set the order, and set the targets.
May import: text, corpus and the foundation (fields, rows, rng, registry, errors); never torch, never networks.
Add one: a file with one frozen dataclass that inherits from `Edit`, `@register("edit", name)`; its import line below.
Contract: tests/contracts/test_edits.py walks the registry.
"""

from cloze.exercises import (
    answer,
    append,
    arcs,
    ask_items,
    ask_links,
    body_first,
    boundaries,
    bring,
    close,
    copy,
    corrupt,
    corrupt_items,
    cut,
    delete,
    distance,
    favour,
    frame,
    hide,
    inject,
    inverse_cloze,
    label,
    link,
    mask,
    mask_items,
    match,
    mismatch,
    mismatch_items,
    only,
    order,
    pair,
    pair_half,
    permutation,
    permute,
    predict,
    predict_items,
    predict_labels,
    predict_senses,
    reference,
    reorder,
    replace_mentions,
    retokenize,
    rotate,
    separate,
    show,
    shuffle,
    speak,
    split_words,
    spread,
    subsample,
    summarise,
    unanswered,
    value,
    windows,
    write_items,
)
from cloze.exercises.edit import Edit
from cloze.exercises.exercise import Exercise
from cloze.exercises.facts import TokenFacts

__all__ = [
    "Edit", "Exercise", "TokenFacts", "answer", "append", "arcs", "ask_items", "ask_links", "body_first", "boundaries", "bring",
    "close", "copy", "corrupt", "corrupt_items", "cut", "delete", "distance", "favour", "frame", "hide", "inject",
    "inverse_cloze", "label", "link", "mask", "mask_items", "match", "mismatch", "mismatch_items", "only", "order", "pair",
    "pair_half", "permutation", "permute", "predict", "predict_items", "predict_labels", "predict_senses", "reference",
    "reorder", "replace_mentions", "retokenize", "rotate", "separate", "show", "shuffle", "speak", "split_words", "spread",
    "subsample", "summarise", "unanswered", "value", "windows", "write_items",
]
