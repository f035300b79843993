"""Interop of a network that has neither attention heads nor a feed-forward, such as an LSTM."""

from __future__ import annotations

from pathlib import Path

from cloze.interop import read
from cloze.interop.architecture import Architecture, ModelClass, Setting
from cloze.interop.arguments import derived, flat
from cloze.interop.mapping import MappingLine, entries
from cloze.reading import Reading

#: An architecture that transformers could have: the table and the layers of `lstm`.
RECURRENT = Architecture(
    name="recurrent", title="Recurrent", part="lstm", orders=("left_to_right",),
    settings=(Setting("layers", "n_layer", 3), Setting("width", "n_embd", 8)),
    fixed={}, assumed={}, legal={}, base="model.",
    body=(
        MappingLine("embeddings.tokens.weight", "{base}wte.weight", "V D"),
        MappingLine("layers.{i}.hidden.weight", "{base}h.{i}.weight", "G D"),
    ),
    sizes=lambda arguments: {"G": 4 * arguments["width"]},
    heads=(), classes=(ModelClass("RecurrentModel", frozenset(), "AutoModel"),), tokenizer_class="GPT2Tokenizer",
    reading=Reading("{A}", None, "last"), recipe=lambda model: "lstm",
)  # fmt: skip


def test_a_table_takes_its_letters_from_the_architecture() -> None:
    arguments = derived(flat({"layers": 2, "width": 8}, "lstm"))
    sizes = RECURRENT.table_sizes(arguments, 11, base="", pad=None)
    shapes = {entry.theirs[0]: entry.shape for entry in entries(RECURRENT.lines(arguments), sizes)}
    assert shapes == {"wte.weight": (11, 8), "h.0.weight": (32, 8), "h.1.weight": (32, 8)}
    assert "I" not in sizes.letters


def test_an_architecture_can_express_it() -> None:
    arguments = derived(flat({"layers": 2, "width": 8}, "lstm"))
    assert RECURRENT.objections(arguments, "left_to_right", None) == []
    assert RECURRENT.objections(arguments, "open", None) == ["order is 'open', transformers' Recurrent has 'left_to_right'"]


def test_its_config_is_read() -> None:
    arguments = read.config_arguments(Path("folder"), {"n_layer": 2, "n_embd": 6, "vocab_size": 11}, RECURRENT)
    assert (arguments["layers"], arguments["width"]) == (2, 6) and "heads" not in arguments
