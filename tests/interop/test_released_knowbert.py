"""`cloze import` reads an unpacked archive of KnowBERT: states equal the equations of allenai/kb at 4c37bbc on its tensors.

Sources: kb/knowbert.py (`EntityDisambiguator`, `DotAttentionWithPrior`, `SolderedKG`, `KnowBert`), kb/span_attention_layer.py,
kb/wordnet.py (`WordNetAllEmbedding`, `load_candidate_maps`), kb/wiki_linking_util.py (`prior_entity_candidates`), and AllenNLP's
`SelfAttentiveSpanExtractor` and `Vocabulary`.
"""

from __future__ import annotations

import json
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from tests.interop.released_files import (
    BLOCK,
    CONFIG,
    TOKENS,
    Names,
    State,
    attend,
    folder,
    imported,
    layer,
    linear,
    norm,
    refusal,
    text,
)

WIDTHS = {"wiki": 12, "wordnet": 8}
LAYERS = {"wiki": 0, "wordnet": 1}
INNER, SCORER, HEADS = 16, 100, 4
ENTITIES = {  # of vocabulary/*.txt; row 0 is the padding
    "wiki": ["@@UNKNOWN@@", "Dog", "Canis", "@@MASK@@", "@@NULL@@"],
    "wordnet": ["@@UNKNOWN@@", "dog.n.01", "run.v.01", "run.n.05", "@@MASK@@", "@@NULL@@"],
}
PARTS = [0, 8, 1, 2, 1, 6, 7]  # POS_MAP of the rows of WordNet's entities
NAMES = "prob_yago_crosswikis_wikipedia_p_e_m.txt"
WIKI = """a dog\t90\t7,0.6,Dog\t8,0.2,Canis\t9,0.2,Cat
A Dog\t5\t8,1.0,Canis
Dog\t3\t9,1.0,Cat
dog\t9\t7,1.0,Dog
dog\t4\t8,1.0,Canis
Run\t7\t8,1.0,Canis
"""
LEMMAS = [
    {"id": "dog.n.01", "pos": "n", "type": "synset"},
    {"id": "dog%1:05:00::", "pos": "n", "synset": "dog.n.01", "type": "lemma", "count": 42},
    {"id": "run%2:38:00::", "pos": "v", "synset": "run.v.01", "type": "lemma", "count": 5},
    {"id": "run%1:04:00::", "pos": "n", "synset": "run.n.05", "type": "lemma", "count": 1},
    {"id": "run%1:04:03::", "pos": "n", "synset": "unknown.n.01", "type": "lemma", "count": 9},
]


def archive_config(*linkers: str) -> dict[str, Any]:
    """config.json of an archive, as training_config/pretraining/ describes its model."""
    def soldered(name: str) -> dict[str, Any]:
        sizes = {
            "hidden_size": WIDTHS[name], "num_hidden_layers": 1, "num_attention_heads": HEADS, "intermediate_size": INNER,
        }  # fmt: skip
        linker = {"type": "entity_linking_with_candidate_mentions", "span_encoder_config": {**sizes}}
        spaces = {"namespace": f"entity_{name}"} if len(linkers) > 1 else {}
        loss = {"loss_type": "softmax"} if name == "wordnet" else {}
        return {"type": "soldered_kg", "entity_linker": {**linker, **spaces, **loss}, "span_attention_config": sizes}

    return {"model": {
        "type": "knowbert", "bert_model_name": "bert-base-uncased", "soldered_layers": {name: LAYERS[name] for name in linkers},
        "soldered_kgs": {name: soldered(name) for name in linkers},
    }}  # fmt: skip


def knowbert(*linkers: str) -> State:
    """The state of `KnowBert`."""
    names = Names()
    names.bert("pretrained_bert.bert.")
    names.words("pretrained_bert.cls.", "pretrained_bert.bert.embeddings.word_embeddings.weight")
    names.linear("pretrained_bert.cls.seq_relationship", 2, 8)
    for name in [*names.state]:
        for whole, part in (("pretrained_bert.cls.", "pretraining_heads."), ("pretrained_bert.bert.pooler.", "pooler.")):
            if name.startswith(whole):
                names.state[name.replace(whole, part)] = names.state[name]
    for linker in linkers:
        width, lead = WIDTHS[linker], f"{linker}_soldered_kg."
        inside = f"{lead}entity_linker.disambiguator."
        names.linear(f"{inside}span_extractor._global_attention._module", 1, width)
        names.linear(f"{inside}bert_to_kg_projector", width, 8)
        names.linear(f"{inside}dot_attention_with_prior.out_layer_1", SCORER, 2)
        names.linear(f"{inside}dot_attention_with_prior.out_layer_2", 1, SCORER)
        names.layer(f"{inside}span_encoder.layer.0", width, INNER)
        reader = f"{lead}span_attention_layer."
        for part in ("attention.query", "attention.key", "attention.value", "output.dense"):
            part = f"attention.{part}"
            names.linear(f"{reader}{part}", width, width)
        names.linear(f"{reader}intermediate.dense", INNER, width)
        names.linear(f"{reader}output.dense", width, INNER)
        for part in (f"{inside}projected_span_layer_norm", f"{inside}kg_layer_norm", f"{lead}weighted_entity_layer_norm",
                     f"{reader}attention.output.LayerNorm", f"{reader}output.LayerNorm"):  # fmt: skip
            names.norm(part, width)
        names.norm(f"{lead}output_layer_norm", 8)
        names.linear(f"{lead}kg_to_bert_projection", 8, width)
        entities = f"{inside}entity_embeddings."
        if linker == "wiki":
            names.table(f"{entities}weight", 6, width)
            names.state[f"{inside}dot_attention_with_prior.null_embedding"] = names.state[f"{entities}weight"][5].clone()
        else:
            names.table(f"{entities}entity_embeddings.weight", 7, 10)
            names.table(f"{entities}pos_embeddings.weight", 9, 5)
            names.state[f"{entities}entity_id_to_pos_index"] = torch.tensor(PARTS)
            names.linear(f"{entities}proj_feed_forward", width, 15)
    return names.state


def knowbert_folder(place: Path, *linkers: str, state: State | None = None, config: dict[str, Any] | None = None) -> Path:
    source = folder(place, state or knowbert(*linkers), CONFIG, weights="weights.th", file="bert_config.json")
    (source / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "dog", "run", "##s"]) + "\n")
    (source / "config.json").write_text(json.dumps(config or archive_config(*linkers)))
    (source / "vocabulary").mkdir()
    for linker in linkers:
        space = f"entity_{linker}" if len(linkers) > 1 else "entity"
        (source / "vocabulary" / f"{space}.txt").write_text("\n".join(ENTITIES[linker]) + "\n")
    if "wiki" in linkers:
        (source / NAMES).write_text(WIKI)
    if "wordnet" in linkers:
        (source / "entities.jsonl").write_text("".join(json.dumps(lemma) + "\n" for lemma in LEMMAS))
    return source


def vectors_of(state: State, linker: str) -> Tensor:
    """`entity_embeddings` of all rows."""
    lead = f"{linker}_soldered_kg.entity_linker.disambiguator.entity_embeddings."
    if linker == "wiki":
        return state[f"{lead}weight"]
    parts = state[f"{lead}pos_embeddings.weight"][state[f"{lead}entity_id_to_pos_index"]]
    return linear(state, f"{lead}proj_feed_forward", torch.cat([state[f"{lead}entity_embeddings.weight"], parts], -1))


Mention = tuple[int, int, dict[str, float]]  # its first and last token, and its candidates


def soldered(state: State, linker: str, x: Tensor, mentions: list[Mention]) -> tuple[Tensor, Tensor]:
    """`SolderedKG` on one text (L, 8): its new states, and the linking scores of all candidates."""
    lead = f"{linker}_soldered_kg."
    inside = f"{lead}entity_linker.disambiguator."
    projected = linear(state, f"{inside}bert_to_kg_projector", x)
    spans = []
    for start, end, _ in mentions:
        rows = projected[start : end + 1]
        weights = linear(state, f"{inside}span_extractor._global_attention._module", rows).softmax(0)
        spans.append((weights * rows).sum(0))
    named = norm(state, f"{inside}projected_span_layer_norm", torch.stack(spans), 1e-5)
    named = layer(state, f"{inside}span_encoder.layer.0", named[None], torch.ones(1, len(spans)), HEADS)[0]
    table, mixed, told = vectors_of(state, linker), [], []
    for span, (_, _, candidates) in zip(named, mentions, strict=True):
        ids = [1 + ENTITIES[linker].index(name) for name in candidates]
        vectors = norm(state, f"{inside}kg_layer_norm", table[ids], 1e-5)
        product = (span * vectors).sum(-1) / WIDTHS[linker] ** 0.5
        both = torch.stack([product, torch.tensor([*candidates.values()])], -1)
        hidden = linear(state, f"{inside}dot_attention_with_prior.out_layer_1", both).relu()
        scores = linear(state, f"{inside}dot_attention_with_prior.out_layer_2", hidden)[:, 0]
        told.append(scores)
        mask = scores < 0.0 if linker == "wiki" else torch.zeros_like(scores, dtype=torch.bool)
        mixed.append(
            state[f"{inside}dot_attention_with_prior.null_embedding"] if bool(mask.all())
            else scores.masked_fill(mask, -10000.0).softmax(0) @ vectors
        )
    named = norm(state, f"{lead}weighted_entity_layer_norm", named + torch.stack(mixed), 1e-5)[None]
    reader, projected = f"{lead}span_attention_layer.", projected[None]
    query = linear(state, f"{reader}attention.attention.query", projected)
    key, value = (linear(state, f"{reader}attention.attention.{part}", named) for part in ("key", "value"))
    read = linear(state, f"{reader}attention.output.dense", attend(query, key, value, torch.ones(1, len(spans)), HEADS))
    read = norm(state, f"{reader}attention.output.LayerNorm", read + projected)
    inner = F.gelu(linear(state, f"{reader}intermediate.dense", read))
    read = norm(state, f"{reader}output.LayerNorm", linear(state, f"{reader}output.dense", inner) + read)
    output = linear(state, f"{lead}kg_to_bert_projection", read)[0]
    return norm(state, f"{lead}output_layer_norm", x + output, 1e-5), torch.cat(told)


A_DOG = {"Canis": 1.2 / 1.8, "Dog": 0.6 / 1.8}  # the same tokens are "a dog" and "A Dog": 0.6 and 0.2, and 1.0
MENTIONS: dict[str, list[list[Mention]]] = {  # of TOKENS: [CLS] a dog [SEP], and [CLS] run [SEP]
    "wiki": [[(1, 2, A_DOG), (2, 2, {"Dog": 1.0})], [(1, 1, {"Canis": 1.0})]],
    "wordnet": [[(2, 2, {"dog.n.01": 1.0})], [(1, 1, {"run.v.01": 6 / 8, "run.n.05": 2 / 8})]],
}


def test_both_linkers_give_the_states_and_scores_of_the_authors_formulas(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    state = knowbert("wiki", "wordnet")
    state["wiki_soldered_kg.entity_linker.disambiguator.dot_attention_with_prior.out_layer_2.bias"] += 1.25
    loaded, told = imported(capsys, knowbert_folder(tmp_path / "kb", "wiki", "wordnet", state=state), tmp_path / "out")
    assert "linked: 2 layers, width 8" in told and "used by no part" not in told
    assert set(loaded.heads) == {"token_prediction", "relation_prediction"}
    assert [edit.give for edit in loaded.input_edits] == ["surface", "word"]
    wiki, wordnet = loaded.tables["surfaces"], loaded.tables["synsets"]
    assert wiki.ids == ("Dog", "Canis") and wordnet.ids == ("dog.n.01", "run.v.01", "run.n.05")

    numbers = {
        name: {places[:3]: places[3] for places in zip(*(found.tolist() for found in table.match(
            TOKENS.numpy(), BLOCK.sum(1).numpy()
        )), strict=True)}
        for name, table in (("surface", wiki), ("word", wordnet))
    }  # fmt: skip
    a_dog, dog, run = (numbers["surface"].pop(place) for place in ((0, 1, 2), (0, 2, 1), (1, 1, 1)))
    of_dog, of_run = (numbers["word"].pop(place) for place in ((0, 2, 1), (1, 1, 1)))
    assert not numbers["surface"] and not numbers["word"]
    states = loaded.network.eval()(
        want=frozenset({"hidden", "linking/surface", "linking/word"}), tokens=TOKENS, block=BLOCK,
        items={"surface": torch.tensor([[a_dog, dog], [run, 0]]), "word": torch.tensor([[of_dog], [of_run]])},
        links={"surface": torch.tensor([[1, 0], [2, 0], [2, 1], [5, 2]]), "word": torch.tensor([[2, 0], [5, 1]])},
    )  # fmt: skip
    scores: dict[str, list[Tensor]] = {"wiki": [], "wordnet": []}
    x = text(state, "pretrained_bert.bert.")
    for row in range(2):
        length = int(BLOCK[row].sum())
        y = x[row : row + 1, :length]
        for number, linker in enumerate(("wiki", "wordnet")):
            y = layer(state, f"pretrained_bert.bert.encoder.layer.{number}", y, torch.ones(1, length))
            new, told_scores = soldered(state, linker, y[0], MENTIONS[linker][row])
            y = new[None]
            scores[linker].append(told_scores)
        torch.testing.assert_close(states["hidden"][row, :length], y[0], atol=1e-5, rtol=0)
    torch.testing.assert_close(states["linking/surface"], torch.cat(scores["wiki"]), atol=1e-5, rtol=0)
    torch.testing.assert_close(states["linking/word"], torch.cat(scores["wordnet"]), atol=1e-5, rtol=0)
    below = [(row < 0).tolist() for row in scores["wiki"]]
    assert below == [[False, True, True], [True]]  # a name with a candidate below the threshold, and two with none above it
    pooled = linear(state, "pooler.dense", states["hidden"][:, 0]).tanh()
    expected = linear(state, "pretraining_heads.seq_relationship", pooled)
    torch.testing.assert_close(loaded.heads["relation_prediction"].head(states["hidden"][:, 0]), expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize(("linker", "recipe"), [("wiki", "knowbert-staged"), ("wordnet", "knowbert-wordnet")])
def test_an_archive_with_one_linker_becomes_a_model_of_its_recipe(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], linker: str, recipe: str
) -> None:
    loaded, _ = imported(capsys, knowbert_folder(tmp_path / "kb", linker), tmp_path / "out")
    assert f"that of the recipe {recipe}" in loaded.recipe["notes"]
    table = loaded.tables["surfaces"]
    rows = [1 + ENTITIES[linker].index(name) for name in (*table.ids, "@@NULL@@", "@@MASK@@")]
    expected = vectors_of(knowbert(linker), linker)[rows]
    torch.testing.assert_close(torch.from_numpy(table.matrix[1:]), expected, atol=1e-6, rtol=0)


def test_regular_forms_of_lemmas_are_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = imported(capsys, knowbert_folder(tmp_path / "kb", "wordnet"), tmp_path / "out")[0].tables["surfaces"]
    rows = torch.tensor([[2, 6, 8, 3]]).numpy()  # dogs
    start, size = (found.tolist() for found in table.match(rows, torch.tensor([4]).numpy())[1:3])
    assert sorted(zip(start, size, strict=True)) == [(1, 1), (1, 2)]


def changed(config: dict[str, Any], *path: str, value: Any) -> dict[str, Any]:
    """A config with another value at a path."""
    inner: Any = config
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    return config


@pytest.mark.parametrize(("config", "message"), [
    ({"model": {"type": "simple-classifier"}}, "a model for a task. Use one from before fine-tuning"),
    (changed(archive_config("wiki"), "model", "soldered_kgs", "wiki", "span_attention_config", "intermediate_size", value=8),
     "differ, or have several layers"),
    (changed(archive_config("wiki"), "model", "soldered_kgs", value={"yago": {}}), "the linkers are yago; expected wiki"),
    (changed(archive_config("wiki"), "model", "soldered_layers", value={}), "not the description of a KnowBERT (KeyError"),
    (changed(archive_config("wiki"), "model", "soldered_kgs", "wiki", "entity_linker", "namespace", value="../../etc"),
     "the namespace '../../etc'"),
])  # fmt: skip
def test_archives_of_other_models_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], config: dict[str, Any], message: str
) -> None:
    assert message in refusal(capsys, knowbert_folder(tmp_path / "kb", "wiki", config=config))


def without(name: str) -> Callable[[Path], Any]:
    return lambda source: (source / name).unlink()


@pytest.mark.parametrize(("change", "message"), [
    (without(NAMES), "but not their names in texts.\n  Put the file of that name into the"),
    (without("config.json"), "no config.json; KnowBERT needs several configs"),
    (without("vocabulary/entity.txt"), "there is no such file; it belongs to the model"),
    (lambda source: (source / "vocabulary" / "entity.txt").write_text("Dog\n"), "are (6, 12); expected (2, 12), a row for"),
    (lambda source: (source / NAMES).write_text("dog\tmany\t7,0.5,Dog\n"), "cannot be read"),
    (lambda source: (source / NAMES).write_text("cat\t2\t7,0.5,Cat\n"), "no name of an entity"),
    (lambda source: (source / NAMES).write_text("cat\t2\t7,0.5,Dog\n"), "reads none of the names"),
])  # fmt: skip
def test_files_that_are_missing_or_do_not_fit_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], change: Callable[[Path], Any], message: str
) -> None:
    source = knowbert_folder(tmp_path / "kb", "wiki")
    change(source)
    assert message in refusal(capsys, source)


def test_a_packed_archive_is_refused_with_the_command_that_unpacks_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = knowbert_folder(tmp_path / "kb", "wiki")
    with tarfile.open(tmp_path / "knowbert_wiki_model.tar.gz", "w:gz") as archive:
        for name in ("config.json", "weights.th", "vocabulary"):
            archive.add(source / name, arcname=name)
    told = refusal(capsys, tmp_path / "knowbert_wiki_model.tar.gz")
    assert "expected a folder with its files.\n  Unpack it, and import FOLDER: mkdir FOLDER && tar -xzf " in told
