"""KnowBERT's archives, unpacked: network, heads and vectors of entities from the weights, candidates of names from files next to
them (allenai/kb, kb/knowbert.py, kb/wiki_linking_util.py and kb/wordnet.py)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from cloze.corpus.readers.wordnet import forms_of
from cloze.errors import CheckpointError
from cloze.interop import encoder
from cloze.interop.architecture import Architecture
from cloze.interop.architectures.bert import NEXT_SENTENCE
from cloze.interop.architectures.visual_bert import settings
from cloze.interop.mapping import STACKED, MappingLine
from cloze.interop.model import PortableTable
from cloze.interop.released.bert_system import FIXED, TABLE, BertBased, Files, stack, words_head
from cloze.interop.released.words import lines_of
from cloze.knowledge.surfaces import NULL, surfaces_of
from cloze.untrusted import parse_json

Candidates = Mapping[str, Mapping[str, float]]  # names → their entities, with counts or priors
_MOST = 30  # candidates of a name, `max_candidates` and `max_number_candidates`
_UNKNOWN = "@@UNKNOWN@@"
_BERT, _HEADS = "pretrained_bert.bert.", "pretrained_bert.cls."
#: The linkers of an archive → the recipe that trains such a network, and for each linker its set of names and its table there.
_RECIPES: Mapping[frozenset[str], tuple[str, Mapping[str, tuple[str, str]]]] = MappingProxyType({
    frozenset({"wiki"}): ("knowbert-staged", {"wiki": ("surface", "surfaces")}),
    frozenset({"wordnet"}): ("knowbert-wordnet", {"wordnet": ("surface", "surfaces")}),
    frozenset({"wiki", "wordnet"}): ("knowbert-w-w", {"wiki": ("surface", "surfaces"), "wordnet": ("word", "synsets")}),
})  # fmt: skip
_PARTS = MappingProxyType({"n": "noun", "v": "verb", "a": "adj", "s": "adj", "r": "adv"})


@dataclass(frozen=True)
class _Linker:
    """A linker of an archive: its name there, its set of names and table in the recipe, and the network's arguments for it.
    `namespace` is that of the vocabulary of its entities."""

    name: str
    set_name: str
    table: str
    namespace: str
    arguments: Mapping[str, Any]

    @property
    def lead(self) -> str:
        """How the names of its tensors begin."""
        return f"{self.name}_soldered_kg."

    def lines(self) -> tuple[MappingLine, ...]:
        """The lines of its table, with sizes of its own for the width of entities and the inner width of layers and scorer."""
        ours, inside, outside = f"linkers.{self.set_name}.", f"{self.lead}entity_linker.disambiguator.", self.lead
        width, inner, scorer = (f"{letter}{self.name.upper()}" for letter in "WKA")
        reading, scoring = f"{outside}span_attention_layer.", f"{inside}dot_attention_with_prior."
        return (
            MappingLine(f"{ours}inward.*", f"{inside}bert_to_kg_projector.*", f"{width} D"),
            MappingLine(f"{ours}pool.weight", f"{inside}span_extractor._global_attention._module.weight", f"1 {width}"),
            MappingLine(f"{ours}span_norm.*", f"{inside}projected_span_layer_norm.*", width),
            MappingLine(f"{ours}entity_norm.*", f"{inside}kg_layer_norm.*", width),
            *stack(f"{ours}encoder.", f"{inside}span_encoder.layer.0.", width=width, inner=inner),
            MappingLine(f"{ours}score_inner.*", f"{scoring}out_layer_1.*", f"{scorer} 2"),
            MappingLine(f"{ours}score_outer.*", f"{scoring}out_layer_2.*", f"1 {scorer}"),
            MappingLine(f"{ours}mixed_norm.*", f"{outside}weighted_entity_layer_norm.*", width),
            MappingLine(f"{ours}reader.attention.query.*", f"{reading}attention.attention.query.*", f"{width} {width}"),
            MappingLine(f"{ours}reader.attention.memory.*", tuple(
                f"{reading}attention.attention.{part}.*" for part in ("key", "value")
            ), f"2{width} {width}", STACKED),
            MappingLine(f"{ours}reader.attention.out.*", f"{reading}attention.output.dense.*", f"{width} {width}"),
            MappingLine(f"{ours}reader.attention_norm.*", f"{reading}attention.output.LayerNorm.*", width),
            MappingLine(f"{ours}reader.inner.*", f"{reading}intermediate.dense.*", f"{inner} {width}"),
            MappingLine(f"{ours}reader.outer.*", f"{reading}output.dense.*", f"{width} {inner}"),
            MappingLine(f"{ours}reader.inner_norm.*", f"{reading}output.LayerNorm.*", width),
            MappingLine(f"{ours}outward.*", f"{outside}kg_to_bert_projection.*", f"D {width}"),
            MappingLine(f"{ours}norm.*", f"{outside}output_layer_norm.*", "D"),
        )  # fmt: skip


def _linkers(config: Mapping[str, Any]) -> list[_Linker]:
    """The linkers that the archive's config.json describes. Errors: `ValueError` with a message for users."""
    model = config.get("archive_model", {})
    if not isinstance(model, Mapping) or model.get("type") != "knowbert":
        raise ValueError("the archive is not one of KnowBERT alone, but of a model for a task. Use one from before fine-tuning.")
    try:
        names = frozenset(model["soldered_kgs"])
        if names not in _RECIPES:
            raise ValueError(f"the linkers are {', '.join(sorted(names))}; expected wiki, wordnet or both.")
        return [_linker(name, model, *_RECIPES[names][1][name]) for name in sorted(names)]
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"model is not the description of a KnowBERT ({error!r}). Copy the archive again.") from None


def _linker(name: str, model: Mapping[str, Any], set_name: str, table: str) -> _Linker:
    described = model["soldered_kgs"][name]
    linker, layer = described["entity_linker"], dict(described["span_attention_config"])
    if linker.get("span_encoder_config") != layer or layer.get("num_hidden_layers") != 1:
        raise ValueError(
            f"the linker {name}: span_encoder_config and span_attention_config differ, or have several layers; cloze has one "
            "layer for both."
        )
    by_margin = linker.get("loss_type", "margin") == "margin"
    arguments = {
        "after_layer": model["soldered_layers"][name], "table": table, "width": layer["hidden_size"],
        "heads": layer["num_attention_heads"], "inner": layer["intermediate_size"],
        "scorer": linker.get("output_feed_forward_hidden_dim", 100),
        "threshold": linker.get("decode_threshold", 0.0) if by_margin else None,
    }  # fmt: skip
    namespace = linker.get("namespace", "entity")
    if not str(namespace).isidentifier():
        raise ValueError(f"the linker {name} has the namespace {namespace!r}; expected a name, such as entity.")
    wrong = next((key for key, value in arguments.items() if key not in ("table", "threshold") and type(value) is not int), None)
    if wrong is not None:
        raise ValueError(f"the linker {name} has {arguments[wrong]!r} as its {wrong}; expected a whole number.")
    return _Linker(name, set_name, table, str(namespace), arguments)


def _variant(architecture: Architecture, config: Mapping[str, Any]) -> Architecture:
    """The table of a network with the linkers of an archive."""
    try:
        linkers = _linkers(config)
    except ValueError:  # `Architecture.read` reports it
        return architecture
    letters = {
        f"{letter}{linker.name.upper()}": linker.arguments[size] for linker in linkers
        for letter, size in (("W", "width"), ("K", "inner"), ("A", "scorer"))
    }
    return replace(
        architecture, further=lambda arguments: tuple(line for linker in linkers for line in linker.lines()),
        sizes=lambda arguments: {"P": arguments["max_length"], **letters},
        ignored=tuple(  # a number that is the same for all tokens of a name
            f"{linker.lead}entity_linker.disambiguator.span_extractor._global_attention._module.bias" for linker in linkers
        ),
        recipe=lambda model: _RECIPES[frozenset(linker.name for linker in linkers)][0],
    )


def _read(config: Mapping[str, Any]) -> dict[str, Any]:
    return {
        f"linkers.{linker.set_name}.{key}": value for linker in _linkers(config) for key, value in linker.arguments.items()
    }


# ---- entities -------------------------------------------------------------------------------------------------------------


def _vectors(tensors: dict[str, Tensor], linker: _Linker, path: Path) -> Tensor:
    """The vectors (rows, W) that a linker reads for entities: those of its table, or what it maps them to, with the part of
    speech (`WordNetAllEmbedding`)."""
    lead = f"{linker.lead}entity_linker.disambiguator.entity_embeddings."
    embedder = {name.removeprefix(lead): tensors.pop(name) for name in [*tensors] if name.startswith(lead)}
    try:
        if "weight" in embedder:
            return embedder["weight"]
        parts = embedder["pos_embeddings.weight"][embedder["entity_id_to_pos_index"].long()]
        both = torch.cat([embedder["entity_embeddings.weight"], parts], dim=1)
        return F.linear(both, embedder["proj_feed_forward.weight"], embedder["proj_feed_forward.bias"])
    except (KeyError, RuntimeError, IndexError) as error:
        raise CheckpointError(
            f"{path}: no whole vectors of entities of the linker {linker.name} ({error}). Copy the archive again."
        ) from None


def _knowledge(files: Files) -> dict[str, Any]:
    """The tables of names with the vectors of their entities, and the edits that find names in a text. Errors: as `_table`."""
    linkers = _linkers(files.config)
    return {
        "tables": {linker.table: _table(linker, files) for linker in linkers},
        "input_edits": tuple(
            ("match", {"table": linker.table, "most": 128, "give": linker.set_name}) for linker in linkers
        ),
    }  # fmt: skip


def _table(linker: _Linker, files: Files) -> PortableTable:
    """The names of a linker, their candidates and vectors. Errors: a file that is missing, damaged or of another archive is a
    `CheckpointError`."""
    names = lines_of(files.folder / "vocabulary" / f"{linker.namespace}.txt")
    rows = {name: number for number, name in enumerate(names, 1)}  # AllenNLP's row 0 is the padding
    vectors = _vectors(files.tensors, linker, files.folder)
    if vectors.shape != (len(names) + 1, linker.arguments["width"]):
        raise CheckpointError(
            f"{files.folder}: the vectors of entities of the linker {linker.name} are {tuple(vectors.shape)}; expected "
            f"{(len(names) + 1, linker.arguments['width'])}, a row for each name in the vocabulary and one more.\n"
            "  The files belong to different archives: unpack one again."
        )
    null = files.tensors.pop(f"{linker.lead}entity_linker.disambiguator.dot_attention_with_prior.null_embedding", None)
    if null is not None and NULL in rows:
        vectors = vectors.index_copy(0, torch.tensor([rows[NULL]]), null[None])
    file, read = _FILES[linker.name]
    by_form = _candidates(files.folder / file, read, rows)
    bound = surfaces_of(by_form, files.tokenizer, most=_MOST, matrix_of=lambda names: _matrix(vectors, rows, names))
    if bound is None:
        raise CheckpointError(
            f"{files.folder / file}: the tokenizer reads none of the names. Put vocab.txt of bert-base-uncased next to it."
        )
    return PortableTable("surfaces", {name: torch.from_numpy(array) for name, array in bound.arrays.items()})


def _matrix(vectors: Tensor, rows: Mapping[str, int], names: Sequence[str]) -> NDArray[np.float32]:
    """The vectors of entities below a row of zeros; that of an unknown one for a name without a row."""
    unknown = rows.get(_UNKNOWN, 0)
    below: NDArray[np.float32] = vectors[torch.tensor([rows.get(name, unknown) for name in names])].float().numpy()
    return np.concatenate([np.zeros((1, below.shape[1]), np.float32), below])


def _candidates(
    path: Path, read: Callable[[Iterator[str], Mapping[str, int]], dict[str, dict[str, float]]], rows: Mapping[str, int]
) -> Candidates:
    """The names of a file with those of their candidates that have vectors."""
    try:
        with path.open(encoding="utf-8") as lines:
            by_form = read(lines, rows)
    except FileNotFoundError:
        raise CheckpointError(
            f"{path}: there is no such file. An archive of KnowBERT has the vectors of entities, but not their names in texts.\n"
            "  Put the file of that name into the folder; its authors publish it separately (see kb/wiki_linking_util.py)."
        ) from None
    except (OSError, ValueError, KeyError, TypeError, IndexError) as error:
        raise CheckpointError(f"{path}: cannot be read ({error!r}); expected the authors' file. Copy it again.") from None
    if not by_form:
        raise CheckpointError(f"{path}: no name of an entity in the vocabulary of the archive. Copy the authors' file again.")
    return by_form


def _of_wikipedia(lines: Iterator[str], rows: Mapping[str, int]) -> dict[str, dict[str, float]]:
    """Lines of a name, how often it occurs, and candidates (`id,prior,name`), with tabs. Of lines with one name that of the most
    frequent holds."""
    by_form, counts = dict[str, dict[str, float]](), dict[str, int]()
    for line in lines:
        form, count, *candidates = line.rstrip().split("\t")
        described = (candidate.split(",", 2) for candidate in candidates)
        priors = [(name.strip(), float(prior)) for _, prior, name in described if name.strip() in rows][:_MOST]
        if priors and int(count) > counts.get(form, -1):
            by_form[form], counts[form] = dict(priors), int(count)
    return by_form


def _of_wordnet(lines: Iterator[str], rows: Mapping[str, int]) -> dict[str, dict[str, float]]:
    """Lemmas of `entities.jsonl` and their regular forms, with the counts of their synsets + 1 (`count_smoothing`)."""
    by_form: dict[str, dict[str, float]] = {}
    for line in lines:
        entity = parse_json(line)
        if entity["type"] != "lemma" or entity["synset"] not in rows:
            continue
        lemma = str(entity["id"]).partition("%")[0].replace("_", " ").replace("-", " ")
        for form in forms_of(lemma, _PARTS[entity["pos"]]):
            counts = by_form.setdefault(form, {})
            counts[entity["synset"]] = counts.get(entity["synset"], 0.0) + int(entity["count"]) + 1
    return by_form


_FILES = MappingProxyType({
    "wiki": ("prob_yago_crosswikis_wikipedia_p_e_m.txt", _of_wikipedia), "wordnet": ("entities.jsonl", _of_wordnet),
})
# `KnowBert` names the heads and the pooler of its BERT once more.
_HEADS_TWICE = (
    "predictions.bias", "predictions.decoder.weight", *(
        f"{part}.{kind}" for part in ("predictions.transform.dense", "predictions.transform.LayerNorm", "seq_relationship")
        for kind in ("weight", "bias")
    ),
)  # fmt: skip
_POOLER_TWICE = {f"pooler.dense.{kind}": f"{_BERT}pooler.dense.{kind}" for kind in ("weight", "bias")}
KNOWBERT = BertBased(
    ".kg_to_bert_projection.weight", config="bert_config.json", bert="bert-base-uncased", stacks={"archive_": "config.json"},
    repeats={**{f"pretraining_heads.{name}": f"{_HEADS}{name}" for name in _HEADS_TWICE}, **_POOLER_TWICE},
    variant=_variant, knowledge=_knowledge,
    architecture=Architecture(
        name="knowbert", title="KnowBERT", part="linked", base=_BERT, recipe=lambda model: "knowbert-staged", legal={},
        from_config=_read, settings=settings(layers="num_hidden_layers"), fixed=FIXED, body=(*encoder.body(), encoder.SEGMENTS),
        heads=(
            words_head(_HEADS),
            replace(
                NEXT_SENTENCE, role="relation_prediction", sign=(f"{_HEADS}seq_relationship.weight",),
                lines=(NEXT_SENTENCE.lines[0], MappingLine("head.output.*", f"{_HEADS}seq_relationship.*", "2 D")),
            ),
        ),
        **TABLE,
    ),
)  # fmt: skip
