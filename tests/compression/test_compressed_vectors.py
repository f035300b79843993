"""Tables of vectors are rounded and pruned as linear maps are, and every verb on vectors works on the result."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import cloze as package
from cloze.changes import Quantise
from cloze.checkpoint.build import load_checkpoint
from cloze.compression.compress import changed_network, compress
from cloze.interop.vectors import open_vectors
from cloze.networks.blocks.computed import own_weight
from cloze.recipe.canonical import to_yaml
from cloze.recipe.load import load_recipe

SAMPLES = Path(package.__file__).parent / "samples"
#: Recipe, sample, further settings, and the tables that hold its vectors.
KINDS: dict[str, tuple[str, list[str], list[str]]] = {
    "word2vec-skipgram": ("english.txt", [], ["embeddings.weight"]),
    "fasttext": ("english.txt", ["network.buckets=200"], ["embeddings.weight"]),
    "glove": ("english.txt", [], ["embeddings.weight", "contexts.weight"]),
    "pv-dm": ("english.txt", [], ["embeddings.weight"]),
    "transe": ("facts.tsv", [], ["embeddings.weight"]),
}


@pytest.fixture(scope="module")
def vectors(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """`vectors("glove")`: a run of that recipe after a step of the loop."""
    made: dict[str, Path] = {}

    def run(name: str) -> Path:
        if name not in made:
            made[name] = tmp_path_factory.mktemp("vectors") / name
            sample, values, _ = KINDS[name]
            text = tmp_path_factory.mktemp("text") / sample
            text.write_text("".join((SAMPLES / sample).read_text(encoding="utf-8").splitlines(keepends=True)[:60]))
            package.pretrain(
                name, corpus=str(text), out=made[name], budget="1 steps", size="tiny",
                overrides=["training.engine=loop", "training.batch=8", "training.held_out=0.0", *values],
            )
        return made[name]

    return run


def tables_of(folder: Path, name: str) -> dict[str, Any]:
    """The tensors of the network in a folder that hold vectors, as arrays."""
    state = load_checkpoint(folder, plain_form=True).network.state_dict()
    return {table: state[table].numpy().copy() for table in KINDS[name][2]}


@pytest.mark.parametrize("name", KINDS)
def test_every_table_of_vectors_has_the_nearest_of_255_values_and_nothing_else_changes(
    name: str, vectors: Callable[[str], Path], tmp_path: Path
) -> None:
    made = compress(vectors(name), tmp_path / "out", [("quantise", {"bits": 8})])
    before, after = tables_of(vectors(name), name), tables_of(tmp_path / "out", name)
    for table, exact in before.items():
        step = np.abs(exact).max() / 127
        np.testing.assert_allclose(after[table], np.round(exact / step) * step, atol=1e-7)
        assert 100 < len(np.unique(after[table])) <= 255
    old, new = (load_checkpoint(folder).network.state_dict() for folder in (vectors(name), tmp_path / "out"))
    assert old.keys() == new.keys() and all(torch.equal(old[key], new[key]) for key in old if key not in before)
    assert made.after.parameters == made.before.parameters


@pytest.mark.parametrize("name", KINDS)
def test_the_smallest_half_of_every_table_of_vectors_is_zero_and_the_folder_opens_with_its_masks(
    name: str, vectors: Callable[[str], Path], tmp_path: Path
) -> None:
    compress(vectors(name), tmp_path / "out", [("sparsify", {"share": 0.5, "embeddings": True})])
    before, after = tables_of(vectors(name), name), tables_of(tmp_path / "out", name)
    for table, exact in before.items():
        pruned = np.argsort(np.abs(exact).ravel(), kind="stable")[: exact.size // 2]
        expected = exact.copy()
        expected.ravel()[pruned] = 0.0
        np.testing.assert_array_equal(after[table], expected)
    loaded = load_checkpoint(tmp_path / "out")
    assert [change for change, _ in loaded.imported.model.changes] == ["sparsify"]
    np.testing.assert_array_equal(loaded.network.embeddings.weight.detach().numpy(), after["embeddings.weight"])
    assert loaded.network.embeddings.changes["sparsify"].kept.shape == after["embeddings.weight"].shape


def test_with_a_group_for_each_row_every_vector_keeps_its_direction_with_four_bits(
    vectors: Callable[[str], Path], tmp_path: Path
) -> None:
    exact = tables_of(vectors("word2vec-skipgram"), "word2vec-skipgram")["embeddings.weight"]
    scaled = exact * np.logspace(0, -3, len(exact), dtype=np.float32)[:, None]  # rows of very different lengths
    start = load_checkpoint(vectors("word2vec-skipgram"))
    with torch.no_grad():
        start.network.embeddings.weight.copy_(torch.from_numpy(scaled))

    def worst(groups: int) -> float:
        network, _ = changed_network(start, [Quantise(bits=4, groups=groups)])
        found: Any = network.state_dict()["embeddings.weight"].numpy()
        lengths = np.linalg.norm(found, axis=1) * np.linalg.norm(scaled, axis=1)
        return float(np.min((found * scaled).sum(1) / np.maximum(lengths, 1e-30)))

    assert worst(1) == 0.0 and worst(len(scaled)) > 0.97


def test_neighbours_similarity_texts_and_files_are_those_of_the_rounded_and_pruned_vectors(
    vectors: Callable[[str], Path], tmp_path: Path, cloze: Callable[..., Any]
) -> None:
    small, start = tmp_path / "small", vectors("fasttext")
    said = cloze("compress", start, "--bits", "8", "--magnitude", "0.5", "--embeddings", "--out", small)
    assert said.code == 0 and "zero, " in said.out and "holds the masks" in said.out, said.err
    assert "sparsify embeddings=true share=0.5; quantise" in " ".join(cloze("show", small).out.split())
    table = tables_of(small, "fasttext")["embeddings.weight"]
    loaded, found = load_checkpoint(small), open_vectors(small)
    assert (table == 0).mean() == pytest.approx(0.5, abs=0.01)
    np.testing.assert_allclose(loaded.network.vectors()[loaded.tokenizer.id("the")].numpy(), found.vector("the"), atol=1e-6)

    said = cloze("neighbours", small, "the", "--count", "1", "--json")
    assert said.code == 0, said.err
    cosine = found.matrix @ found.vector("the") / np.linalg.norm(found.matrix, axis=1).clip(1e-12)
    cosine[found.row("the")] = -9.0
    assert found.words[int(cosine.argmax())] in said.out
    (tmp_path / "pairs.txt").write_text("the of 3\nof and 2\nthe and 1\n")
    assert "3 of 3" in cloze("evaluate", small, "--similarity", tmp_path / "pairs.txt").out
    assert cloze("embed", small, "the", "--out", tmp_path / "one.npy").code == 0
    np.testing.assert_allclose(np.load(tmp_path / "one.npy")[0], found.vector("the"), atol=1e-5)
    assert cloze("export", small, tmp_path / "small.bin", "--to", "fasttext").code == 0
    np.testing.assert_allclose(open_vectors(tmp_path / "small.bin").vector("unheard"), found.vector("unheard"), atol=1e-6)


def test_rounded_vectors_take_little_more_than_half_the_room_in_a_packed_file(
    vectors: Callable[[str], Path], tmp_path: Path, cloze: Callable[..., Any]
) -> None:
    compress(vectors("word2vec-skipgram"), tmp_path / "small", [("quantise", {"bits": 8})])
    sizes = []
    for folder in (vectors("word2vec-skipgram"), tmp_path / "small"):
        assert cloze("export", folder, tmp_path / f"{folder.name}.bin.gz", "--to", "word2vec-binary").code == 0
        sizes.append((tmp_path / f"{folder.name}.bin.gz").stat().st_size)
    assert sizes[1] < 0.55 * sizes[0]


def test_pruned_vectors_are_trained_further_by_the_loop_and_keep_their_zeros(
    vectors: Callable[[str], Path], tmp_path: Path, cloze: Callable[..., Any]
) -> None:
    name = "word2vec-skipgram"
    compress(vectors(name), tmp_path / "small", [("sparsify", {"share": 0.5, "embeddings": True})])
    before = tables_of(tmp_path / "small", name)["embeddings.weight"]
    recipe = load_recipe(vectors(name)).canonical()
    recipe["networks"]["main"] = {"from": "start"}
    recipe["training"]["engine"] = "auto"
    (tmp_path / "more.yaml").write_text(to_yaml(recipe), encoding="utf-8")
    said = cloze(
        "pretrain", tmp_path / "more.yaml", "--bind", f"start={tmp_path / 'small'}", "--corpus", SAMPLES / "english.txt",
        "--budget", "1 steps", "--out", tmp_path / "more",
    )
    assert said.code == 0 and "The compiled engine does not fit: a change computes weights of the network." in said.err, said.err
    after = tables_of(tmp_path / "more", name)["embeddings.weight"]
    assert (after != before).any() and not after[before == 0].any() and after[before != 0].all()


def test_entities_stay_as_long_as_one_while_a_pruned_graph_is_trained_further(
    vectors: Callable[[str], Path], tmp_path: Path
) -> None:
    compress(vectors("transe"), tmp_path / "small", [("sparsify", {"share": 0.5, "embeddings": True})])
    network: Any = load_checkpoint(tmp_path / "small").network
    with torch.no_grad():
        own_weight(network.embeddings).mul_(3.0)
    network.train()
    hidden = network(want=frozenset({"hidden"}), tokens=torch.tensor([[1, int(network.first_relation), 2]]))["hidden"]
    lengths = torch.linalg.vector_norm(hidden[0], dim=1)
    assert lengths[[0, 2]].tolist() == pytest.approx([1.0, 1.0], abs=1e-5) and lengths[1] > 2.0


@pytest.mark.parametrize(("options", "said"), [
    (["--magnitude", "0.5"], "has no linear maps above its embeddings. It has tables of vectors: write `sparsify"),
    (["--bits", "8", "--no-embeddings"], "or cloze compress … --embeddings"),
    (["--bits", "8", "--groups", "99999"], "99999 groups are more than the rows of its table of vectors ("),
    (["--layers", "0"], "word_vectors has no stack of layers, so there are none to choose from.\n  Leave this out;"),
    (["--heads", "0.5", "--text", "F"], "WordVectors has no attention, and therefore no heads."),
])  # fmt: skip
def test_what_a_table_of_vectors_cannot_lose_is_refused_with_what_it_can(
    vectors: Callable[[str], Path], tmp_path: Path, cloze: Callable[..., Any], options: list[str], said: str
) -> None:
    refused = cloze("compress", vectors("word2vec-skipgram"), *options, "--out", tmp_path / "out")
    assert refused.code == 2 and said in refused.err and not list(tmp_path.iterdir())


def test_a_look_up_of_word_vectors_is_timed_and_int8_says_that_they_have_no_maps(
    vectors: Callable[[str], Path], cloze: Callable[..., Any]
) -> None:
    said = cloze(
        "speed", vectors("word2vec-skipgram"), vectors("fasttext"), "--lengths", "4", "--batch", "2", "--as", "fp32,int8",
        "--rounds", "2", "--json",
    )
    assert said.code == 0, said.err
    rows = json.loads(said.out)["rows"]
    assert [row["checkpoint"] for row in rows[::2]] == ["word2vec-skipgram", "fasttext"]
    for row in rows[::2]:
        assert row["median"] > 0 and row["flops"] == 0 and 4 * row["parameters"] < row["bytes"] < 5 * row["parameters"]
    assert rows[1]["fault"] == "not in int8: WordVectors has no linear maps that int8 could make faster."


def test_a_graph_is_not_timed_on_texts(vectors: Callable[[str], Path], cloze: Callable[..., Any]) -> None:
    refused = cloze("speed", vectors("transe"), "--lengths", "4", "--rounds", "2")
    assert refused.code == 2 and "reads triples" in refused.err


def test_a_rounded_classifier_of_fasttext_predicts_and_becomes_a_file_of_fasttext(
    tables: Path, tmp_path: Path, cloze: Callable[..., Any]
) -> None:
    said = cloze(
        "finetune", "fasttext-supervised", "--train", tables / "train.tsv", "--dev", tables / "dev.tsv",
        "--out", tmp_path / "big", "--set", "training.engine=loop", "--set", "training.epochs=2",
        "--set", "training.rate.linear.peak=1.0",
    )
    assert said.code == 0, said.err
    said = cloze("compress", tmp_path / "big", "--bits", "8", "--out", tmp_path / "small")
    assert said.code == 0, said.err
    assert len(load_checkpoint(tmp_path / "small").network.embeddings.weight.unique()) <= 255
    assert "accuracy" in cloze("evaluate", tmp_path / "small", tables / "dev.tsv").out
    assert cloze("export", tmp_path / "small", tmp_path / "small.bin", "--to", "fasttext").code == 0
