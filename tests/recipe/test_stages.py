"""`stages:` one recipe, several runs that follow one another."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from cloze.changes import matched_rows
from cloze.checkpoint.bound import BoundCheckpoints
from cloze.checkpoint.build import load_checkpoint
from cloze.errors import CheckpointError, CorpusError
from cloze.recipe.load import load_recipe, recipe_from_data
from cloze.runs.run import pretrain
from tests.small_recipe import Write, message_of

STAGED = """\
name: staged
text: {normalise: {lower: true}, tokenizer: {wordpiece: {size: 300}}}
sources: {general: {passages: {length: 32}}, domain: {passages: {length: 16}}}
exercise: [{frame: "[CLS] {A} [SEP]"}, {mask: {}}, {corrupt: {}}, {predict: masked}]
objectives: [token_prediction: {tie: true}]
training: {optimizer: adamw, rate: {linear: {peak: 1e-3}}, batch: 4}
reading: {single: "[CLS] {A} [SEP]"}
stages:
  general: {source: general, network: {transformer: {layers: 1, width: 16, heads: 2}}, share: 3}
  domain: {source: domain, network: {from: general}, training: {optimizer: adamw, rate: {linear: {peak: 0.0}}, batch: 4}}
"""


def test_a_stage_takes_whole_keys_from_the_top_and_its_network_from_an_earlier_stage(write: Write) -> None:
    general, domain = load_recipe(write(text=STAGED)).stages
    assert (general.name, domain.name) == ("general", "domain")
    assert (general.share, domain.share) == (0.75, 0.25)
    assert list(general.recipe.sources) == ["general"] and list(domain.recipe.sources) == ["domain"]
    assert domain.recipe.exported.part == general.recipe.exported.part
    assert (general.recipe.exported.origin, domain.recipe.exported.origin) == (None, "general")
    assert domain.recipe.training.rate.arguments["peak"] == 0.0
    assert domain.recipe.texts == general.recipe.texts


def test_a_network_of_an_earlier_stage_keeps_the_architecture_of_its_folder_or_names_another(write: Write) -> None:
    first = ("heads: 2}}", "heads: 2}, architecture: xlm}")
    for own, found in (("from: general", "xlm"), ("from: general, architecture: flaubert", "flaubert")):
        general, domain = load_recipe(write(first, ("from: general", own), text=STAGED)).stages
        assert domain.recipe.exported.part == general.recipe.exported.part
        assert (general.recipe.exported.architecture, domain.recipe.exported.architecture) == ("xlm", found)


def test_the_canonical_form_of_stages_is_the_same_recipe(write: Write) -> None:
    recipe = load_recipe(write(text=STAGED))
    again = recipe_from_data(recipe.canonical())
    assert again.canonical() == recipe.canonical() and again.hash == recipe.hash
    assert recipe.hash != recipe.stages[-1].recipe.hash


def test_a_value_is_set_in_every_stage_or_in_one(write: Write) -> None:
    recipe = load_recipe(write(text=STAGED), overrides=["training.batch=8", "stages.domain.training.batch=2"])
    assert [stage.recipe.training.batch for stage in recipe.stages] == [8, 2]


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("from: general", "from: genral", "stages.domain.networks.main.from: there is no stage or checkpoint named "
         "'genral'.\n  Earlier stages: general. Did you mean 'general'?"),
        ("source: domain, n", "source: domian, n", "stages.domain.source: there is no source 'domian'."),
        ("share: 3", "share: 0", "stages.general.share: got 0, expected a share of the budget above 0."),
        ("share: 3", "name: other", "stages.general.name: name belongs to the whole recipe."),
        ("batch: 4}}\n", "bach: 4}}\n", "stage 'domain':"),
    ],
)
def test_a_fault_in_a_stage_is_told_with_its_place(write: Write, old: str, new: str, told: str) -> None:
    text = STAGED[: STAGED.rindex("stages:")] + STAGED[STAGED.rindex("stages:") :].replace(old, new)
    assert told in message_of(lambda: load_recipe(write(text=text), checkpoints=BoundCheckpoints({})))


def test_the_second_run_begins_with_the_weights_and_the_tokenizer_of_the_first(
    write: Write, little_text: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"

    def run() -> None:
        pretrain(write(text=STAGED), corpus=little_text, binds=[f"domain={little_text}"], out=out, budget="8steps", seed=1,
                 report=lambda text: None)

    run()
    first, last = load_checkpoint(out / "cloze" / "stages" / "general"), load_checkpoint(out)
    assert first.tokenizer.hash == last.tokenizer.hash
    for name, tensor in first.network.state_dict().items():  # the rate of the last stage is 0
        torch.testing.assert_close(last.network.state_dict()[name], tensor, rtol=0, atol=0)
    for folder, steps in ((out / "cloze" / "stages" / "general", 6), (out, 2)):
        log = [json.loads(line) for line in (folder / "cloze" / "log.jsonl").read_text().splitlines()]
        assert (log[-1]["event"], log[-1]["step"]) == ("stop", steps)
    run()  # nothing is left to do
    assert not list(out.rglob(".*.new"))


def test_a_change_of_vocabulary_keeps_the_rows_of_pieces_that_both_know(
    write: Write, little_text: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other.txt"
    other.write_text(little_text.read_text().replace("e", "é"), encoding="utf-8")
    text = STAGED.replace("{from: general}", "{from: general, change: [vocabulary]}").replace("lower: true", "lower: false")
    said: list[str] = []
    pretrain(write(text=text), corpus=little_text, binds=[f"domain={other}"], out=tmp_path / "run", budget="4steps",
             report=said.append)
    first, last = load_checkpoint(tmp_path / "run" / "cloze" / "stages" / "general"), load_checkpoint(tmp_path / "run")
    rows = matched_rows(first.tokenizer, last.tokenizer)
    assert 10 < (rows >= 0).sum() < len(rows)
    old, new = (loaded.network.token_tables["tokens"].weight.detach() for loaded in (first, last))
    known = torch.from_numpy(rows >= 0)
    torch.testing.assert_close(new[known], old[torch.from_numpy(rows)[known]], rtol=0, atol=0)
    torch.testing.assert_close(new[~known], old.mean(0).expand(int((~known).sum()), -1), rtol=0, atol=1e-7)
    assert any(" ids; the embeddings of the others start" in line for line in said)


def test_a_stage_without_a_corpus_is_refused_before_anything_is_trained(
    write: Write, little_text: Path, tmp_path: Path
) -> None:
    with pytest.raises(CorpusError, match="the source 'domain' has no corpus. Give it with --bind domain=PATH."):
        pretrain(write(text=STAGED), corpus=little_text, out=tmp_path / "run", budget="4steps")
    assert not (tmp_path / "run").exists()


def test_text_of_a_later_stage_that_is_not_there_is_told_before_the_first_is_trained(
    write: Write, little_text: Path, tmp_path: Path
) -> None:
    gone = tmp_path / "gone.txt"
    with pytest.raises(CorpusError, match="gone.txt: no such file or folder"):
        pretrain(write(text=STAGED), corpus=little_text, binds=[f"domain={gone}"], out=tmp_path / "run", budget="4steps")
    assert not (tmp_path / "run").exists()


def test_a_folder_of_another_recipe_is_refused_before_a_corpus_is_opened(write: Write, tmp_path: Path) -> None:
    (tmp_path / "run" / "cloze").mkdir(parents=True)
    record = {"recipe_hash": "0", "recipe": {"notes": "none", "name": "other"}, "seed": 0, "budget": "4steps"}
    (tmp_path / "run" / "cloze" / "run.json").write_text(json.dumps(record), encoding="utf-8")
    with pytest.raises(CheckpointError, match=r"run: holds a run of a different recipe \(name: then \"other\""):
        pretrain("bert", corpus=tmp_path / "gone.txt", out=tmp_path / "run", budget="4steps")
    with pytest.raises(CheckpointError, match=r"run\.json: is a file; expected the folder of a run"):
        pretrain("bert", corpus=tmp_path / "gone.txt", out=tmp_path / "run" / "cloze" / "run.json", budget="4steps")


def test_the_share_of_a_stage_can_be_set(write: Write) -> None:
    recipe = load_recipe(write(text=STAGED), overrides=["stages.general.share=7", "stages.domain.training.batch=2"])
    assert [(stage.name, stage.share) for stage in recipe.stages] == [("general", 0.875), ("domain", 0.125)]
    assert "--set stages.general.share=0: stages.general.share: got 0, expected a share of the budget above 0." in message_of(
        lambda: load_recipe(write(text=STAGED), overrides=["stages.general.share=0"])
    )
    told = message_of(lambda: load_recipe(write(text=STAGED), overrides=["stages.general.share=0"]))
    assert told.count("stages.general") == 2 and "no stage or checkpoint" not in told
    told = message_of(lambda: load_recipe(write(text=STAGED), overrides=["stages.genral.share=2"]))
    assert "there is no stage 'genral'. Did you mean 'general'?" in told
