"""`cloze show PATH`: what each kind of folder and file says of itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cloze.checkpoint.uses import CheckpointUses
from cloze.cli.main import main
from cloze.reports.about import about
from cloze.reports.about_run import next_step
from cloze.reports.fact import About

from .runs import write_run

BERT = CheckpointUses("transformer, 2 layers, width 16, 2 heads", 1234, ("token_prediction",), ("fill", "score", "neighbours"))
RECORD: dict[str, Any] = {
    "recipe_hash": "abc", "recipe": {"name": "bert"}, "budget": "300steps", "seed": 0,
    "inputs": {"corpus": {"main": {"given": ["a.txt"], "tokens": 5000}}, "held_out": None, "dev": {}, "init": None,
               "networks": {}},
    "fitted": ["training.batch=4"],
    "command": ["cloze", "pretrain", "bert", "--corpus", "a.txt", "--budget", "300steps", "--out", "elsewhere"],
}  # fmt: skip


def run(folder: Path, *, stop: dict[str, Any] | None, **changes: Any) -> Path:
    """A made-up run with a record, as `cloze pretrain` writes it; `stop` None: it was killed."""
    write_run(folder)
    (folder / "cloze" / "run.json").write_text(json.dumps({**RECORD, **changes}))
    (folder / "config.json").write_text('{"architectures": ["BertForMaskedLM"]}')
    log = folder / "cloze" / "log.jsonl"
    share = {"share": 1.0 if stop is None or stop.get("finished") else 0.5}
    events = [{"event": "start", "step": 0, "baselines": {"token_prediction": {"chance": 9.0, "single": 7.0, "pairs": 5.0}}}]
    events += [{**json.loads(line), **share} for line in log.read_text().splitlines()]
    held = {"event": "held_out", "step": 300, "loss": 3.5, "objectives": {"token_prediction": 3.5}, **share}
    events += [held, *([{"event": "stop", "step": 300, **share, **stop}] if stop else [])]
    log.write_text("".join(json.dumps(event) + "\n" for event in events))
    return folder


def told(found: About, name: str) -> Any:
    return next(fact.value for fact in found.facts if fact.name == name)


def test_a_finished_run_says_its_losses_and_what_uses_it(tmp_path: Path) -> None:
    found = about(run(tmp_path / "R", stop={"finished": True, "reason": "the budget is spent"}), lambda path: BERT)
    assert found.summary == "a pre-training run, finished"
    assert told(found, "held_out_loss") == {
        "token_prediction": {"loss": 3.5, "baseline": {"chance": 9.0, "single": 7.0, "pairs": 5.0}}
    }
    assert "token_prediction 3.500: 3.50 nats below single tokens (7.00); pairs 5.00" in str(found)
    assert (told(found, "budget"), told(found, "started_from")) == ("300steps", None)
    assert told(found, "trained_on") == {"main": ["a.txt"]}
    place = tmp_path / "R"
    assert found.next[0] == f"cloze fill {place} 'The capital of France is [MASK].'"
    assert f"cloze pretrain bert --corpus a.txt --budget 600steps --out {place} --extend" in found.next
    assert next_step(place) == f"Next: {found.next[0]}  (more: cloze show {place})"


@pytest.mark.parametrize(("words", "following"), [(True, "neighbours {} WORD"), (False, "embed {} TEXT")])
def test_paragraph_vectors_are_followed_by_what_they_can_do(words: bool, following: str, tmp_path: Path) -> None:
    place = run(tmp_path / "R", recipe={"name": "pv"}, stop={"finished": True, "reason": "the budget is spent"})
    log = place / "cloze" / "log.jsonl"
    log.write_text("".join(line for line in log.read_text().splitlines(keepends=True) if "samples" not in line))
    (place / "cloze" / "network.json").write_text(json.dumps({"part": "paragraph_vectors", "arguments": {"words": words}}))
    assert next_step(place).startswith("Next: cloze " + following.format(place))


def test_masks_are_filled_by_the_generator_of_a_discriminator(tmp_path: Path) -> None:
    place = run(tmp_path / "R", stop={"finished": True, "reason": "the budget is spent"})
    inner = place / "cloze" / "networks" / "generator"
    for folder, part in ((place, "token_labelling"), (inner, "token_prediction")):
        (folder / "cloze").mkdir(parents=True, exist_ok=True)
        (folder / "cloze" / "network.json").write_text(json.dumps({"heads": {"main": {"part": part}}}))
    assert next_step(place).startswith(f"Next: cloze fill {inner} ")
    assert next_step(place).endswith(f"  (more: cloze show {place})")


@pytest.mark.parametrize(
    ("stop", "summary"),
    [({"finished": False, "reason": "stopped by SIGTERM"}, "a pre-training run, stopped by SIGTERM after 50% of the budget"),
     (None, "a pre-training run, interrupted after 100% of the budget")],
)  # fmt: skip
def test_an_unfinished_run_says_how_to_resume_it(stop: dict[str, Any] | None, summary: str, tmp_path: Path) -> None:
    place = run(tmp_path / "a run", stop=stop)
    found = about(place, lambda path: BERT)
    resume = f"cloze pretrain bert --corpus a.txt --budget 300steps --out '{place}'"
    assert found.summary == summary and found.next == [resume, f"cloze report '{place}'"]
    assert next_step(place) == f"To resume: {resume}"


@pytest.mark.parametrize(("fitted", "text"), [(1, "1 value differs from"), (2, "2 values differ from")])
def test_the_number_of_fitted_values_agrees_with_its_verb(fitted: int, text: str, tmp_path: Path) -> None:
    place = run(tmp_path / "R", stop={"finished": True, "reason": "the budget is spent"}, fitted=["training.batch=4"] * fitted)
    assert f"fitted to the budget: {text} the published recipe" in str(about(place, lambda path: BERT))


def test_a_run_that_ended_early_by_its_own_rule_is_finished(tmp_path: Path) -> None:
    place = run(tmp_path / "R", stop={"finished": True, "reason": "the metric has stopped improving", "share": 0.4})
    assert about(place, lambda path: BERT).summary == "a pre-training run, finished"


def test_a_run_in_progress_is_told_from_one_that_was_killed(tmp_path: Path) -> None:
    from cloze.training.checkpoints.lock import alone_in

    place = run(tmp_path / "R", stop=None)
    with alone_in(place, first=True):
        found = about(place, lambda path: BERT)
    assert found.summary == "a pre-training run, in progress (100% of the budget spent)"
    assert not [command for command in found.next if command.startswith("cloze pretrain")]


def test_a_run_that_began_with_a_checkpoint_names_it(tmp_path: Path) -> None:
    inputs = {**RECORD["inputs"], "networks": {"main": {"from": "start", "given": "RUN", "files": []}}}
    found = about(run(tmp_path / "R", stop=None, inputs=inputs), lambda path: BERT)
    assert told(found, "started_from") == ["RUN"] and "main from RUN" in str(found)


def test_a_checkpoint_that_cannot_be_opened_says_why(tmp_path: Path) -> None:
    place = run(tmp_path / "R", stop={"finished": True})
    found = about(place, lambda path: CheckpointUses(fault="model.safetensors is missing.\n  Copy it again."))
    assert told(found, "fault") == "model.safetensors is missing.\n  Copy it again."
    assert not [command for command in found.next if command.startswith("cloze fill")]


def test_a_fine_tuned_run_shows_the_metrics_next_to_a_constant_answer(tmp_path: Path) -> None:
    dev = {"main": {"given": ["dev.tsv"], "tokens": 9}}
    place = run(tmp_path / "R", stop={"finished": True}, inputs={**RECORD["inputs"], "dev": dev})
    (place / "cloze" / "task.json").write_text(json.dumps({
        "task": "sentence_classification", "labels": ["a", "b"], "columns": {"text": "text", "text_b": None},
        "dev": {"accuracy": 0.75},
        "baseline": {"always": "a", "accuracy": 0.5},
    }))  # fmt: skip
    found = about(place, lambda path: BERT)
    assert found.summary == "a fine-tuning run, finished" and "accuracy 0.7500 (always 'a': 0.5000)" in str(found)
    assert found.next[:2] == [f"cloze evaluate {place} dev.tsv", f"cloze predict {place} dev.tsv --out predictions.jsonl"]
    assert next_step(place) == f"Next: cloze evaluate {place} dev.tsv  (more: cloze show {place})"


def test_word_vectors_that_transformers_cannot_open_have_commands_of_their_own(tmp_path: Path) -> None:
    place = run(tmp_path / "V", stop={"finished": True})
    (place / "config.json").rename(place / "cloze" / "network.json")
    found = about(place, lambda path: CheckpointUses("word_vectors, width 100", 2400, ("head",), ("neighbours",), of_words=True))
    assert found.next[:3] == [
        f"cloze neighbours {place} WORD", f"cloze evaluate {place} --similarity PAIRS.txt",
        f"cloze export {place} V.vec --to word2vec",
    ]


def test_stages_seeds_and_folders_of_runs_have_a_line_for_each_run(tmp_path: Path) -> None:
    place = run(tmp_path / "R", stop={"finished": True})
    run(place / "cloze" / "stages" / "domain", stop={"finished": True})
    found = about(place, lambda path: BERT)
    assert told(found, "started_from") == ["domain"]
    assert f"\n  {place}/cloze/stages/domain: bert, finished, held-out loss 3.5000" in str(found)
    (seed,) = [run(tmp_path / "S" / "cloze" / "seeds" / "1", stop=None)]
    several = about(tmp_path / "S", lambda path: BERT)
    assert several.parts[0].path == seed and several.next[0].startswith("cloze pretrain bert")
    both = about(tmp_path, lambda path: BERT)
    assert (both.kind, both.summary, len(both.parts)) == ("runs", "a folder of 2 runs", 2)


def test_a_folder_where_no_run_began_offers_the_text_that_was_read(tmp_path: Path) -> None:
    store = tmp_path / "R" / "cloze" / "corpus" / "main" / "store"
    store.mkdir(parents=True)
    (store / "store.json").write_text("{}")
    found = about(tmp_path / "R", lambda path: BERT)
    assert found.kind == "prepared" and found.next == [
        f"cloze pretrain quick --corpus {store} --budget 10m --out {tmp_path}/R"
    ]


def test_files_and_folders_that_are_something_else_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "notes.txt").write_text("some text\nand more\n")
    for path, said in (
        (tmp_path, f"{tmp_path}: holds notes.txt; expected a run, a checkpoint, a token store, a tokenizer or word vectors."),
        (tmp_path / "notes.txt", "notes.txt: expected a recipe (.yaml), a run, a checkpoint,"),
        (tmp_path / "note.txt", "there is no such file"),
    ):
        assert main(["show", str(path)]) == 2
        assert said in capsys.readouterr().err


def test_stores_tokenizers_and_vectors_say_what_they_are(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from cloze.corpus.stores.build import build_store, train_tokenizer_from
    from cloze.text.vocabularies.training import TextSpec

    text = tmp_path / "text.txt"
    text.write_text("rain falls on the roof.\n" * 30)
    tokenizer = train_tokenizer_from([text], TextSpec.of({}, "words", {"size": 20}))
    build_store([text], tokenizer, tmp_path / "a store")
    assert main(["show", str(tmp_path / "a store"), "--json"]) == 0
    store = json.loads(capsys.readouterr().out)
    assert (store["kind"], store["documents"], store["built_from"]) == ("token_store", 30, [str(text)])
    assert store["next"][0] == f"cloze pretrain quick --corpus '{tmp_path}/a store' --budget 10m --out RUN"
    assert main(["show", str(tmp_path / "a store" / "tokenizer"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["kind"], found["type"], found["vocabulary"]) == ("tokenizer", "words", tokenizer.size)
    vectors = tmp_path / "v.txt"
    vectors.write_text("2 3\nrain 1 2 3\nroof 3 2 1\n")
    assert main(["show", str(vectors)]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith(f"{vectors}: word vectors\n  words   2: rain, roof …\n  width   3\n  format  text\n")
    assert f"\nnext:\n  cloze neighbours {vectors} rain\n" in shown
