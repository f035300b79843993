"""Edits: pure functions that turn passages into examples. They mask and corrupt tokens, set the order, and set the targets.
May import: text, corpus and the foundation (fields, rows, rng, registry, errors); never torch, never networks.
To add an edit: a file in the folder whose docstring fits, with one frozen dataclass that inherits from `Edit`,
`@register("edit", name)`; its import line below.
Contract: tests/contracts/test_edits.py walks the registry.
"""

from cloze.exercises import (
    copy,
    cut,
    frame,
    mix_vocabularies,
    number_segments,
    order,
    paragraph,
    permutation,
    retokenize,
    show,
)
from cloze.exercises.companions import (
    answer,
    append,
    body_first,
    bring,
    close,
    dialogue,
    distance,
    inverse_cloze,
    mismatch,
    only,
    pair,
    pair_half,
    reference,
    separate,
    spread,
)
from cloze.exercises.edit import Edit
from cloze.exercises.exercise import Exercise
from cloze.exercises.facts import TokenFacts
from cloze.exercises.items import (
    ask_items,
    corrupt_items,
    limit_items,
    link_items,
    mask_items,
    mismatch_items,
    predict_items,
    speak,
    write_items,
)
from cloze.exercises.knowledge import ask_links, ask_mention, inject, link, match, replace_mentions
from cloze.exercises.noise import (
    corrupt,
    delete,
    favour,
    hide,
    join_words,
    mask,
    permute,
    resegment,
    rotate,
    shuffle,
    split_words,
    subsample,
)
from cloze.exercises.targets import (
    arcs,
    boundaries,
    chains,
    label,
    predict,
    predict_labels,
    predict_senses,
    reorder,
    summarise,
    unanswered,
    value,
    windows,
)

__all__ = [
    "Edit", "Exercise", "TokenFacts", "answer", "append", "arcs", "ask_items", "ask_links", "ask_mention",
    "body_first", "boundaries", "bring", "chains", "close", "copy", "corrupt", "corrupt_items", "cut", "delete",
    "dialogue", "distance", "favour", "frame", "hide", "inject", "inverse_cloze", "join_words", "label", "limit_items",
    "link", "link_items", "mask", "mask_items", "match", "mismatch", "mismatch_items", "mix_vocabularies", "number_segments",
    "only", "order", "pair", "pair_half", "paragraph", "permutation", "permute", "predict", "predict_items",
    "predict_labels", "predict_senses", "reference", "reorder", "replace_mentions", "resegment", "retokenize",
    "rotate", "separate", "show", "shuffle", "speak", "split_words", "spread", "subsample", "summarise", "unanswered",
    "value", "windows", "write_items",
]
