"""What fine-tuning writes and where it begins: folders, labels, heads that have layers of the checkpoint."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from cloze.checkpoint.build import build_step, load_checkpoint
from cloze.checkpoint.new_heads import MOST_GAIN
from cloze.checkpoint.warm_start import load_origin
from cloze.decoding.reader import Reader
from cloze.errors import CheckpointError, RecipeError
from cloze.runs.finetuning.finetune import finetune
from cloze.runs.finetuning.task_recipe import recipe_onto
from cloze.tasks.tuned_folder import load_tuned, read_task_json

Make = Callable[..., Any]
Folder = Callable[[str], Path]


def begun(folder: Path) -> tuple[Any, Any]:
    """The new head of a classifier, drawn at random, and as it begins on a checkpoint."""
    loaded = load_checkpoint(folder)
    recipe = recipe_onto("sentence_classification", loaded, overrides=["length=24", "training.new_heads=drawn"])
    drawn, put = (build_step(recipe, vocab_size=loaded.tokenizer.size, seed=1) for _ in range(2))
    load_origin(put, recipe, "main", folder, loaded.tokenizer)
    return drawn.objectives["classification"].head, put.objectives["classification"].head


def test_the_pretrained_pooler_is_taken_over(folder: Folder) -> None:
    drawn, put = begun(folder("bert"))
    pool: Any = load_checkpoint(folder("bert")).heads["nsp"]
    assert torch.equal(put.pool.weight, pool.head.pool.weight) and not torch.equal(drawn.pool.weight, pool.head.pool.weight)


def test_a_head_begins_with_the_layers_that_predicted_words_where_transformers_has_one_name_for_both(folder: Folder) -> None:
    drawn, put = begun(folder("modern"))
    words: Any = load_checkpoint(folder("modern")).heads["mlm"]
    assert torch.equal(put.dense.weight, words.head.dense.weight) and torch.equal(put.norm.weight, words.head.norm.weight)
    assert put.dense.bias is None and put.norm.bias is None and put.norm.eps == words.head.norm.eps
    assert not torch.equal(drawn.dense.weight, words.head.dense.weight)


@pytest.mark.parametrize(("system", "scaled"), [("electra", True), ("roberta", True), ("bert", False), ("modern", False)])
def test_the_first_map_of_a_drawn_head_starts_centred_and_scaled_on_the_first_rows(
    folder: Folder, tables: Path, tmp_path: Path, system: str, scaled: bool
) -> None:
    heads, found = {}, {}
    still = ["corpus.length=24", "training.epochs=1", "training.rate.peak=1e-9", "training.batch=8"]
    for kind in ("scaled", "drawn"):
        out = tmp_path / kind
        finetune(
            folder(system), train=[str(tables / "train.tsv")], dev=[str(tables / "dev.tsv")], out=out,
            overrides=[f"training.new_heads={kind}", *still], report=lambda line: None,
        )
        loaded = load_checkpoint(out)
        head = heads[kind] = loaded.heads["classification"].head
        reader, texts = Reader.of(loaded), [line.split("\t")[0] for line in (tables / "train.tsv").read_text().splitlines()[1:]]
        found[kind] = head.first(reader.states(reader.batch(reader.encode(texts)), {"summary"})["summary"])
    if not scaled:  # the pooler of the checkpoint, or a map before a norm
        assert torch.equal(heads["scaled"].first.weight, heads["drawn"].first.weight)
        return
    std = found["drawn"].std(0, correction=0)
    gain = (1 / std).clamp(max=MOST_GAIN)
    torch.testing.assert_close(heads["scaled"].first.weight, heads["drawn"].first.weight * gain[:, None], rtol=1e-3, atol=1e-5)
    torch.testing.assert_close(found["scaled"].std(0, correction=0), std * gain, rtol=1e-3, atol=1e-5)
    assert found["scaled"].mean(0).abs().max() < 1e-3 and found["scaled"].std(0).mean() > 4 * found["drawn"].std(0).mean()


@pytest.mark.parametrize("path", ["objectives.0.pool", "objectives[0].text_classification.pool"])
def test_a_value_of_the_tasks_objective_is_set_before_the_checkpoint_decides_its_head(folder: Folder, path: str) -> None:
    loaded = load_checkpoint(folder("bert"))
    made = recipe_onto("sentence_classification", loaded, overrides=[f"{path}=mean", "objectives.0.dropout=0.3"])
    head = made.canonical()["passes"][0]["objectives"][0]["classify"]
    assert head["reading"] == "mean" and head["transform"]["tanh"] is not None and head["dropout"] == 0.3
    with pytest.raises(RecipeError, match=r"--set objectives.0.pool=middle.*pool: got \"middle\", expected"):
        recipe_onto("sentence_classification", loaded, overrides=["objectives.0.pool=middle"])


def test_pairs_are_read_as_pairs(folder: Folder, tables: Path, tmp_path: Path) -> None:
    pairs = str(tables / "pairs.csv")
    values = ["corpus.text=one", "corpus.text_b=two", "training.epochs=1", "length=32"]
    finetune(
        folder("bert"), task="pair_classification", train=[pairs], dev=[pairs], out=tmp_path / "out", overrides=values,
        report=lambda line: None,
    )
    learner, _ = load_tuned(load_checkpoint(tmp_path / "out"))
    examples = learner.task.read(pairs)
    first: Any = learner.predict(examples)[0]
    assert first.text_b == examples.others[0] and sum(first.probabilities.values()) == pytest.approx(1, abs=1e-5)
    framed = learner.encode(examples)[0]  # type: ignore[operator]
    assert set(framed.part.tolist()) == {-1, 0, 1} and framed.segments[-1] == 1


def test_a_folder_that_is_no_classifier_says_how_to_make_one(folder: Any) -> None:
    with pytest.raises(CheckpointError, match="(?s)not fine-tuned.*cloze finetune"):
        load_tuned(load_checkpoint(folder("bert")))


def test_a_file_of_vectors_is_told_to_be_imported(tmp_path: Path) -> None:
    file = tmp_path / "v.vec"
    file.write_text("1 2\nrain 0.5 1\n")
    with pytest.raises(CheckpointError, match=r"v\.vec: not fine-tuned: it is a file.*\n  If .* fastText: cloze import"):
        read_task_json(file)


def write_rows(path: Path, labels: str) -> Path:
    path.write_text("text\tlabel\n" + "".join(f"the cat saw the {label}\t{label}\n" for label in 3 * labels))
    return path


@pytest.mark.parametrize(("labels", "note"), [
    ("abc", None), ("cab", None), ("xyz", None),
    ("ab", "it knows 3 classes, and the training rows have 2 of them. The new model will never answer c. "),
    ("bcd", "it knows 3 classes, and the training rows have 2 of them. The new model will never answer a. "),
])
def test_a_classifier_that_is_trained_on_new_rows_says_which_classes_it_loses(
    folder: Folder, tmp_path: Path, labels: str, note: str | None
) -> None:
    old, new, said = write_rows(tmp_path / "old.tsv", "abc"), write_rows(tmp_path / "new.tsv", labels), list[str]()
    for start, rows, out, peak in ((folder("bert"), old, "first", "1e-2"), (tmp_path / "first", new, "second", "1e-12")):
        finetune(
            start, train=[str(rows)], dev=[str(rows)], out=tmp_path / out, report=said.append,
            overrides=["corpus.length=24", "training.epochs=1", f"training.rate.peak={peak}", "training.new_heads=drawn"],
        )
    notes = [line for line in said if "never answer" in line]
    assert notes == ([] if note is None else [f"note: {tmp_path / 'first'}: {note}To keep them, train on rows of all classes."])
    first, second = (
        load_checkpoint(tmp_path / out).heads["classification"].head.output.weight.sort(0)[0] for out in ("first", "second")
    )
    continued = set(labels) in (set("abc"), set("xyz"))  # equally many, all of them the same or all renamed
    assert (first.shape == second.shape and torch.allclose(first, second, atol=1e-6)) == continued


def test_a_head_that_transformers_does_not_know_keeps_no_output_for_another_class(folder: Folder, tmp_path: Path) -> None:
    said, values = list[str](), ["training.epochs=1", "training.new_heads=drawn", "corpus.length=24"]
    for start, labels, out, peak in ((folder("bert"), "ab", "first", "1e-2"), (tmp_path / "first", "bc", "second", "1e-12")):
        rows = tmp_path / f"{out}.jsonl"
        rows.write_text("".join(f'{{"text": "the cat", "spans": [[0, 3]], "label": "{label}"}}\n' for label in 3 * labels))
        finetune(
            start, task="span_classification", train=[str(rows)], dev=[str(rows)], out=tmp_path / out, report=said.append,
            overrides=[*values, f"training.rate.peak={peak}"],
        )
    assert [line for line in said if "will never answer a." in line] != []
    first, second = (load_checkpoint(tmp_path / out).heads["classification"].head.output.weight for out in ("first", "second"))
    assert not torch.allclose(first, second, atol=1e-6)


def test_a_tagger_that_is_trained_further_keeps_its_head(folder: Folder, tmp_path: Path) -> None:
    rows = tmp_path / "rows.conll"
    rows.write_text("the\tD\ncat\tN\nsaw\tV\n\nthe\tD\ndog\tN\n\n" * 4)
    still = ["training.epochs=1", "training.rate.peak=1e-12"]
    for start, out in ((folder("modern"), "first"), (tmp_path / "first", "second")):
        finetune(
            start, task="token_labelling", train=[str(rows)], dev=[str(rows)], out=tmp_path / out, overrides=still,
            report=lambda line: None,
        )
    first, second = (load_checkpoint(tmp_path / out).heads["classification"].state_dict() for out in ("first", "second"))
    assert first.keys() == second.keys() and "head.dense.weight" in second
    assert all(torch.allclose(first[name], second[name], atol=1e-6) for name in first)


@pytest.mark.parity
@pytest.mark.parametrize("system", ["bert", "roberta", "electra", "gpt2", "modern"])
def test_transformers_gives_the_same_probabilities(folder: Folder, tables: Path, tmp_path: Path, system: str) -> None:
    transformers = pytest.importorskip("transformers")
    files = {"train": [str(tables / "train.tsv")], "dev": [str(tables / "dev.tsv")]}
    finetune(
        folder(system), **files, out=tmp_path / "out", overrides=["training.epochs=1", "length=24", "training.rate.peak=1e-3"],
        report=lambda line: None,
    )
    model = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "out").eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    texts = ["the cat saw the dog", "rain", "the mice dreamed of the garden"]
    encoded = tokenizer(texts, padding=True, return_tensors="pt")
    learner: Any = load_tuned(load_checkpoint(tmp_path / "out"))[0]
    with torch.inference_mode():
        theirs = model(**encoded).logits
        ours = learner.scores(learner.reader.encode(texts))
    assert torch.allclose(ours, theirs, atol=1e-4)
    assert list(model.config.id2label.values()) == ["animal", "weather"]


@pytest.mark.parity
def test_a_classifier_that_transformers_wrote_is_read(checkpoint: Make, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    system = checkpoint("bert")
    config = transformers.BertConfig(
        vocab_size=system.tokenizer.size, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=24,
        max_position_embeddings=40, id2label={0: "no", 1: "yes"}, label2id={"no": 0, "yes": 1},
    )
    model = transformers.BertForSequenceClassification(config).eval()
    model.save_pretrained(tmp_path)
    system.tokenizer.save(tmp_path, length=40, frame_single=system.reading.single, frame_pair=system.reading.pair)
    classifier, _ = load_tuned(load_checkpoint(tmp_path))
    assert classifier.labels == ("no", "yes")
    rows = classifier.reader.encode(["the cat"])
    with torch.inference_mode():
        theirs = model(torch.from_numpy(rows[0].ids[None]).long()).logits
    assert torch.allclose(classifier.scores(rows), theirs, atol=1e-5)
