"""Reading a recipe: short forms, canonical form, hash, overrides, phases, sizes."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cloze.budget.facts import BudgetFacts
from cloze.budget.fit import fit
from cloze.checkpoint.build import plain_arguments
from cloze.checkpoint.checks.check import check_recipe
from cloze.document import read_yaml
from cloze.interop.arguments import flat
from cloze.networks.clock import Clock
from cloze.recipe.builders import build, place_edit
from cloze.recipe.canonical import to_yaml
from cloze.recipe.load import load_recipe, phase_recipes, recipe_from_data, recipe_names
from cloze.recipe.paths import split
from cloze.recipe.recipe import NetworkSpec
from cloze.registry import lookup
from tests.small_recipe import MINE, Write, message_of


def test_short_forms_mean_their_long_forms(write: Write) -> None:
    short = load_recipe(write())
    long = load_recipe(write(
        ("text: {", "texts:\n  main: {"), ("corpus: {passages", "sources: {main: {passages"), ("128}}", "128}}}"),
        ("network: {transformer", "networks: {main: {transformer"), ("heads: 2}}", "heads: 2}}}"),
        ('frame: "[CLS] {A} [SEP]"', 'frame: {template: "[CLS] {A} [SEP]", in: main}'),
        ("corrupt: {}", "corrupt"), ("predict: masked", "predict: {what: masked}"),
        ("optimizer: adamw", "optimizer: {adamw: {}}"),
        ("objectives:\n  - token_prediction: {transform: gelu, tie: true}",
         "passes:\n  - network: main\n    objectives: [token_prediction: {transform: gelu, tie: true, weight: 1}]"),
    ))
    assert short == long and short.hash == long.hash


def test_defaults_come_from_the_signature(write: Write) -> None:
    mask = load_recipe(write()).entries["main"].exercise[1].part
    assert mask.arguments["rounding"] == "nearest" and mask.arguments["most"] is None
    assert (mask.path, str(mask.where)) == ("exercise[1].mask", "mine.yaml:7")


@pytest.mark.parametrize(("network", "written", "expected"), [
    ("transformer_xl", {"feed_forward": {"plain": {"inner": 12}}}, {"feed_forward.activation": "relu"}),
    ("transformer_xl", {"dropout": {"hidden": 0.3}}, {"dropout.attention": 0.0}),
    ("two_stream", {"positions": "relative"}, {"positions.untie": True, "feed_forward.activation": "gelu"}),
])  # fmt: skip
def test_what_a_part_or_section_leaves_out_comes_from_the_default_of_its_network(
    network: str, written: dict[str, Any], expected: dict[str, Any], write: Write
) -> None:
    arguments = {"layers": 1, "width": 8, "heads": 2, **written}
    recipe = load_recipe(write(("{transformer: {layers: 2, width: 64, heads: 2}}", json.dumps({network: arguments}))))
    part = recipe.networks["main"].part
    assert part is not None
    for known in (plain_arguments(part.arguments), arguments):
        assert expected.items() <= flat(known, network).items()
    made = build(lookup("network", network), arguments, {"vocab_size": 9, "clock": Clock()})
    own = made.content_bias is None, made.layers[0].feed_forward.activation, made.layers[0].attention.dropout.rate
    assert own == ((True, "gelu", 0.1) if network == "two_stream" else (False, "relu", 0.0))


@pytest.mark.parametrize("name", recipe_names())
def test_the_canonical_form_is_a_recipe_that_means_the_same(name: str) -> None:
    recipe = load_recipe(name)
    text = to_yaml(recipe.canonical())
    assert read_yaml(text, "shown").plain() == recipe.canonical()
    again = recipe_from_data(read_yaml(text, "shown").plain())
    assert again == recipe and again.hash == recipe.hash


def test_a_mixture_inherits_whole_keys_and_survives_the_canonical_form(write: Write) -> None:
    mixture = """mixing: all
mixture:
  masked: {odds: 3}
  causal: {order: left_to_right, exercise: [frame: "[CLS] {A} [SEP]", predict: next]}
"""
    recipe = load_recipe(write(text=MINE + mixture))
    masked, causal = recipe.entries["masked"], recipe.entries["causal"]
    assert (masked.odds, masked.order, len(masked.exercise)) == (3.0, "open", 4)
    assert (causal.odds, causal.order, len(causal.exercise)) == (1.0, "left_to_right", 2)
    assert masked.passes == causal.passes
    assert recipe_from_data(recipe.canonical()) == recipe


def test_an_unknown_part_of_an_argument_is_one_fault(write: Write) -> None:
    message = message_of(lambda: load_recipe(write(("optimizer: adamw", "optimizer: adamx"))))
    assert "unknown optimizer 'adamx'" in message and message.count("training.optimizer") == 1


def test_the_hash_ignores_names_budget_and_bookkeeping_only(write: Write) -> None:
    plain = load_recipe(write()).hash
    for change in ("name=other", "notes=words", "training.steps=7", "training.workers=2", "training.keep=9"):
        assert load_recipe(write(), overrides=[change]).hash == plain, change
    for change in ("training.batch=33", "exercise.mask.rate=0.2", "network.dropout=0.0", "training.micro_batch=8"):
        assert load_recipe(write(), overrides=[change]).hash != plain, change


@pytest.mark.parametrize(
    "listening",
    [("optimizer: adamw", "optimizer: nt_asgd"), ("{linear: {peak: 1e-3, warmup: 0.1}}", "{plateau: {peak: 1.0}}")],
)
def test_when_the_held_out_loss_is_taken_is_hashed_where_it_is_listened_to(write: Write, listening: tuple[str, str]) -> None:
    def hashed(change: str, *edits: tuple[str, str]) -> str:
        return load_recipe(write(*edits), overrides=[change]).hash

    often, seldom = "training.evaluate_every=0.1", "training.evaluate_every=0.3"
    assert hashed(often) == hashed(seldom)
    assert hashed(often, listening) != hashed(seldom, listening)
    assert hashed(often, listening) == hashed("training.keep=9", listening)


def test_a_warmup_in_steps_enters_the_hash_as_the_share_that_it_is(write: Write) -> None:
    def hashed(steps: int, warmup: int) -> str:
        made = write(("warmup: 0.1", f"warmup_steps: {warmup}"), ("batch: 32", f"batch: 32\n  steps: {steps}"))
        return load_recipe(made).hash

    assert hashed(1000, 100) == hashed(2000, 200) != hashed(2000, 100)


def test_the_order_of_special_tokens_is_part_of_the_identity(write: Write) -> None:
    one, two = ('{"[UNK]": "<unk>", "[PAD]": "<pad>"}', '{"[PAD]": "<pad>", "[UNK]": "<unk>"}')
    hashes = {load_recipe(write(("size: 8000", f"size: 8000, special: {special}"))).hash for special in (one, two)}
    assert len(hashes) == 2


def test_overrides_reach_values_by_every_kind_of_path(write: Write) -> None:
    recipe = load_recipe(write(), overrides=[
        "training.batch=64", "exercise.mask.rate=0.2", "exercise[2].corrupt.keep=0.0", "exercise.2.random=0.2",
        "text.tokenizer.size=4000", "texts.main.normalise.lower=false", "networks.main.layers=3",
        "network.transformer.heads=4",
        "training.rate.peak=5e-4", "training.rate.linear.floor=1e-5", "corpus.length=64", "order=left_to_right",
        "objectives.token_prediction.weight=2", "training.optimizer.betas=[0.9, 0.98]", "reading.summary=last",
        "training.clip=1",
    ])
    entry = recipe.entries["main"]
    assert recipe.training.batch == 64 and recipe.training.clip == 1.0
    assert entry.exercise[1].part.arguments["rate"] == 0.2
    assert (entry.exercise[2].part.arguments["keep"], entry.exercise[2].part.arguments["random"]) == (0.0, 0.2)
    assert recipe.texts["main"].tokenizer.arguments["size"] == 4000
    assert recipe.texts["main"].normalise["lower"] is False
    assert recipe.networks["main"].part is not None
    assert [recipe.networks["main"].part.arguments[key] for key in ("layers", "heads")] == [3, 4]
    assert recipe.training.rate.arguments["peak"] == 5e-4 and recipe.training.rate.arguments["floor"] == 1e-5
    assert recipe.length == 64 and entry.order == "left_to_right" and recipe.reading.summary == "last"
    assert entry.passes[0].objectives[0].weight == 2.0
    assert recipe.training.optimizer.arguments["betas"] == (0.9, 0.98)


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("training.batch", "a value is set as path=value"),
        ("training.bach=64", "--set training.bach=64: training.bach: unknown argument \"bach\""),
        ("training.batch=many", 'training.batch: got "many", expected a whole number'),
        ("exercise.msk.rate=0.2", "exercise has no item 'msk'. Did you mean 'mask'?"),
        ("exercise[9].rate=0.2", "exercise has 4 items, the last is exercise[3]"),
        ("exercise.mask={rate: 0.2}", "is structure, not a value"),
        ("training.rate=cosine", "is structure, not a value"),
        ("exercise=[]", "is structure, not a value"),
        ("training.batch_warmup=0", "training.batch_warmup: expected one schedule, got 0"),
        ("training.average.decay=0.9", "training.average is null in this recipe"),
        ("training.batch.size=3", "training.batch is a value and has nothing inside"),
        ("networks.other.layers=2", "networks.other is not in the recipe. It has: main."),
        ("networ.dropout=0", "networ is not in the recipe. Did you mean 'network' or 'networks'? It has: name, "),
        ("dropout=0", "Did you mean 'network.dropout'?"),
        ("a..b=1", "is not a value path"),
        ("training.batch=|", "--set training.batch=|: '|' begins a block or a comment in YAML, not a value.\n  Close every"),
        ("training.batch=#", "--set 'training.batch=\"#\"'"),
        ("training.batch=64 # rows", "training.batch=64 # rows: YAML reads '# rows' as a comment and leaves it out.\n  Close"),
        (
            "training.batch=[1",
            "--set training.batch=[1: not YAML: while parsing a flow sequence did not find expected ',' or ']'.\n"
            "  Close every bracket and quote. Text that begins with punctuation needs quotes, which the shell must not remove:\n"
            "  --set 'training.batch=\"[1\"'",
        ),
    ],
)
def test_a_wrong_override_says_what_is_wrong(write: Write, override: str, expected: str) -> None:
    path = write()
    message = message_of(lambda: load_recipe(path, overrides=[override]))
    assert expected in message and message.count(f"--set {override}") == 1


def test_a_part_that_stands_twice_is_addressed_by_index(write: Write) -> None:
    path = write(("  - corrupt: {}", "  - mask: {rate: 0.1}\n  - corrupt: {}"))
    assert "Write exercise[1] or exercise[2]" in message_of(lambda: load_recipe(path, overrides=["exercise.mask.rate=0.2"]))
    assert load_recipe(path, overrides=["exercise[2].rate=0.2"]).entries["main"].exercise[2].part.arguments["rate"] == 0.2


def test_the_name_of_a_part_can_be_set_where_there_was_none(write: Write) -> None:
    path = write(("token_prediction: {transform: gelu, tie: true}", "classify: {}"))
    ((_, objective),) = load_recipe(path, overrides=["objectives[0].transform=relu"]).entries["main"].objectives()
    assert objective.part.arguments["transform"].name == "relu"
    wrong = message_of(lambda: load_recipe(path, overrides=["objectives[0].transform=rely"]))
    assert "unknown transform 'rely'. Did you mean 'relu'" in wrong


def test_phases_set_values_and_every_phase_is_checked(write: Write) -> None:
    phases = "schedule:\n  - {share: 0.9, set: {length: 64}}\n  - {share: 0.1, set: {length: 128, batch: 16}}\n"
    recipe = load_recipe(write((" {length: 128}", " {}"), text=MINE + phases))
    assert [(r.length, r.training.batch) for r in phase_recipes(recipe)] == [(64, 32), (128, 16)]
    assert recipe.length is None
    wrong = write(("batch: 16", "exercise.mask.rat: 0.3"), text=MINE + phases)
    assert 'unknown argument "rat"' in message_of(lambda: load_recipe(wrong))
    long = write(("{length: 128, batch", "{length: 1024, batch"), text=MINE + phases)
    assert "1024 tokens in schedule[1], but network 'main' has 512 positions" in message_of(lambda: load_recipe(long))


def test_two_budgets_are_refused_with_the_option_that_takes_one_out() -> None:
    told = message_of(lambda: load_recipe("elmo", overrides=["training.steps=4"]))
    assert "steps and epochs are both written; a recipe has one budget." in told and "--set training.epochs=null" in told
    assert load_recipe("elmo", overrides=["training.steps=4", "training.epochs=null"]).training.steps == 4


def test_a_fault_of_every_phase_is_told_once_and_without_lines_of_a_file_that_is_not_the_users() -> None:
    told = message_of(lambda: load_recipe("bert", overrides=["corpus.passages.length=1000"]))
    assert told == (
        "bert: sources.main.passages.length: 1000 tokens in schedule[0], but network 'main' has 512 positions.\n"
        "  Set networks.main.positions.max_length, or a shorter length."
    )


def test_a_network_may_name_the_type_of_its_folder_if_it_can_be_of_that_type(write: Write) -> None:
    network = "heads: 2"
    recipe = load_recipe(write((network, network + ", architecture: roberta")))
    assert recipe.exported.architecture == "roberta" and "architecture" not in recipe.networks["main"].part.arguments  # type: ignore[union-attr]
    again = recipe_from_data(recipe.canonical())
    assert again.networks == recipe.networks and again.hash == recipe.hash
    mistyped = write((network, network + ", architecture: robert"))
    assert "Did you mean 'roberta', 'bert' or" in message_of(lambda: load_recipe(mistyped))
    told = message_of(lambda: load_recipe(write((network, network + ", architecture: bart"))))
    assert "networks.main.architecture: there is no architecture 'bart'" in told  # that is an encoder_decoder


def test_a_type_that_does_not_fit_the_network_is_refused_with_the_reason(write: Write) -> None:
    check_recipe(load_recipe(write(("heads: 2", "heads: 2, architecture: roberta"))))
    told = message_of(lambda: check_recipe(load_recipe(write(("heads: 2", "heads: 2, architecture: gpt2")))))
    assert "mine.yaml:4: networks.main.architecture: gpt2 does not fit: " in told and told.count("does not fit") == 1
    assert "order is 'open', transformers' GPT-2 has 'left_to_right'" in told and "Leave `architecture` out" in told


def test_an_override_also_replaces_what_phases_set() -> None:
    recipe = load_recipe("bert", overrides=["length=64", "training.batch=8"])
    assert [(r.length, r.training.batch) for r in phase_recipes(recipe)] == [(64, 8), (64, 8)]


@pytest.mark.parametrize("size", ["tiny", "small"])
@pytest.mark.parametrize("name", recipe_names())
def test_a_size_rescales_networks_and_nothing_else(name: str, size: str) -> None:
    full, scaled = (replace(load_recipe(name, size=one), stages=()).canonical() for one in (None, size))
    assert {k for k in full if full[k] != scaled[k]} <= {"networks"}
    for network, before in zip(scaled["networks"].values(), full["networks"].values(), strict=True):
        numbers, old = (next(iter(written.values())) for written in (network, before))
        if "heads" in numbers:
            assert numbers["width"] == 64 * numbers["heads"]
        if "heads" in numbers and numbers.get("inner"):  # in the same ratio to the width as before
            assert numbers["inner"] == round(old["inner"] * numbers["width"] / old["width"])


def numbers(network: NetworkSpec) -> dict[str, Any]:
    """The arguments of a network's part."""
    assert network.part is not None
    return dict(network.part.arguments)


def test_a_companion_keeps_its_ratio_to_the_exported_network() -> None:
    networks = load_recipe("electra-base", size="mini").networks
    generator, discriminator = (numbers(networks[name]) for name in ("generator", "discriminator"))
    assert (discriminator["layers"], discriminator["width"], discriminator["embedding"].arguments["width"]) == (4, 256, 256)
    assert (generator["layers"], generator["width"], generator["heads"], generator["embedding"].arguments["width"]) == (4, 64, 1,
        256)
    small = load_recipe("electra-small", size="tiny").networks
    assert numbers(small["discriminator"])["embedding"].arguments["width"] == 64
    assert "has no such size. Did you mean 'tiny'?" in message_of(lambda: load_recipe("bert", size="tny"))


def test_unknown_recipes_and_files_name_the_nearest(tmp_path: Path) -> None:
    assert "unknown recipe 'robeta'. Did you mean 'roberta'" in message_of(lambda: load_recipe("robeta"))
    assert "there is no such file" in message_of(lambda: load_recipe(tmp_path / "none.yaml"))
    assert "is not a run of cloze" in message_of(lambda: load_recipe(tmp_path))
    (tmp_path / "odd.yaml").write_bytes(b"name: \xff\xfe")
    assert "not UTF-8 text (byte 6)" in message_of(lambda: load_recipe(tmp_path / "odd.yaml"))


def test_a_run_folder_is_read_by_its_canonical_recipe(tmp_path: Path) -> None:
    (tmp_path / "cloze").mkdir()
    recipe = load_recipe("gpt2", size="tiny")
    (tmp_path / "cloze" / "recipe.yaml").write_text(to_yaml(recipe.canonical()))
    assert load_recipe(tmp_path) == recipe


def test_user_files_register_parts(write: Write, tmp_path: Path) -> None:
    code = (
        "from cloze.exercises import Edit\n"
        "from cloze.registry import register\n"
        "@register('edit', 'nothing_at_all')\n"
        "class Nothing(Edit):\n"
        "    takes = gives = frozenset()\n"
        "    def __call__(self, rows, draw):\n        return rows\n"
    )
    (tmp_path / "my_parts.py").write_text(code)
    path = write(("  - corrupt: {}", "  - nothing_at_all\n  - corrupt: {}"))
    recipe = load_recipe(path, with_files=["my_parts.py"])
    assert recipe.entries["main"].exercise[2].part.name == "nothing_at_all"
    assert "takes no arguments, got 3" in message_of(
        lambda: load_recipe(write(("  - corrupt: {}", "  - nothing_at_all: 3\n  - corrupt: {}"))))
    (tmp_path / "broken.py").write_text("import no_such_module_anywhere\n")
    assert "importing it failed: ModuleNotFoundError" in message_of(lambda: load_recipe(path, with_files=["broken.py"]))
    assert "there is no such file" in message_of(lambda: load_recipe(path, with_files=["absent.py"]))


def test_importing_the_loader_and_listing_need_no_torch() -> None:
    code = (
        "import sys; import cloze.recipe.load, cloze.cli.main\n"
        "from cloze.recipe.family import outlines; assert len(outlines()) >= 5\n"
        "assert 'torch' not in sys.modules and 'pydantic' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@given(st.lists(st.one_of(st.integers(0, 99), st.from_regex(r"[a-z_]{1,8}", fullmatch=True)), min_size=1, max_size=6))
def test_value_paths_split_into_their_steps(steps: list[str | int]) -> None:
    path = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps).lstrip(".")
    assert split(path) == steps


scalars = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=12))
trees = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=60, deadline=None)
@given(st.dictionaries(st.text(min_size=1, max_size=6), trees, min_size=1, max_size=4))
@example({"<<": 1})
def test_written_yaml_reads_back_equal(data: dict[str, object]) -> None:
    assert read_yaml(to_yaml(data), "x").plain() == data


@pytest.mark.parametrize(("name", "words"), [
    ("robertta.yaml", "Did you mean 'roberta'"), ("bert.yaml", "cloze has a recipe of this name: write bert."),
    ("o", "No recipe of cloze has a similar name."),
])  # fmt: skip
def test_a_missing_recipe_file_names_the_recipe_that_was_perhaps_meant(tmp_path: Path, name: str, words: str) -> None:
    first, second = message_of(lambda: load_recipe(tmp_path / name)).splitlines()
    assert first.startswith(f"{tmp_path / name}: there is no such file. {words}")
    assert second == "  `cloze list` shows the recipes that come with cloze; their names have no .yaml."


def test_numbers_of_edits_follow_schedules_and_a_whole_number_stays_whole(write: Write) -> None:
    recipe = load_recipe(write(("mask: {", "mask: {unit: ngram, count: {linear: {start: 4, end: 1}}, power: 0, ")))
    check_recipe(recipe)
    spec = recipe.entries["main"].exercise[1]
    found = [place_edit(spec, {}).when(share).edit.count for share in (0.0, 0.3, 0.5, 1.0)]
    assert found == [4, 3, 2, 1] and {type(one) for one in found} == {int}


def test_an_edit_that_is_built_alone_has_the_last_values_of_its_schedules(write: Write) -> None:
    falling = "random: {linear: {start: 0.3, end: 0}}, keep: {linear: {start: 0.2, end: 0}}"
    recipe = load_recipe(write(("corrupt: {}", f"corrupt: {{mask: {{linear: {{start: 0.5, end: 1}}}}, {falling}}}")))
    part = recipe.entries["main"].exercise[2].part
    edit = build(lookup("edit", "corrupt"), plain_arguments(part.arguments), {})
    assert (edit.mask, edit.random, edit.keep) == (1.0, 0.0, 0.0)
    assert recipe_from_data(recipe.canonical()).hash == recipe.hash


@pytest.mark.parametrize(("change", "message"), [
    (("rate: 0.15", "rate: {linear: {start: 0.3, end: 1.5}}"), "mask.rate.linear.end: got 1.5, expected a number from 0 to 1."),
    (("predict: masked", "predict: {what: masked, shift: {linear: {start: 0, end: 1}}}"), "expected a whole number."),
])  # fmt: skip
def test_a_schedule_of_an_edit_is_refused_where_it_leaves_the_bounds_or_no_number_may_change(
    write: Write, change: tuple[str, str], message: str
) -> None:
    assert message in message_of(lambda: load_recipe(write(change)))


def test_optional_keys_leave_the_hash_as_it_was_until_they_are_written(write: Write) -> None:
    plain = load_recipe(write())
    assert not {"average", "batch_warmup", "keep_best", "lanes"} & plain.canonical()["training"].keys()
    mean = load_recipe(write(("batch: 32", "batch: 32\n  average: {decay: 0.999}")))
    best = load_recipe(write(("batch: 32", "batch: 32\n  keep_best: token_prediction")))
    often = load_recipe(write(("batch: 32", "batch: 32\n  keep_best: token_prediction\n  evaluate_every: 0.2")))
    assert len({plain.hash, mean.hash, best.hash, often.hash}) == 4
    assert recipe_from_data(mean.canonical()).hash == mean.hash


@pytest.mark.parametrize(("written", "message"), [
    ("average: {decay: 1.0}", "training.average.decay: got 1.0, expected a number of 0 or more and below 1."),
    ("keep_best: token_predicton", "training.keep_best: there is no objective 'token_predicton'."),
    ("keep_best: token_prediction\n  held_out: 0.0", "training.keep_best: no held-out loss is measured."),
])  # fmt: skip
def test_means_and_best_checkpoints_that_cannot_be_are_refused(write: Write, written: str, message: str) -> None:
    assert message in message_of(lambda: load_recipe(write(("batch: 32", f"batch: 32\n  {written}"))))


def test_an_optimizer_that_averages_takes_no_second_mean(write: Write) -> None:
    changes = ("optimizer: adamw", "optimizer: asgd"), ("batch: 32", "batch: 32\n  average: {decay: 0.9}")
    assert "training.average: asgd already exports a mean" in message_of(lambda: load_recipe(write(*changes)))


def test_a_batch_grows_by_a_schedule_of_its_part_and_a_fitted_one_need_not(write: Write) -> None:
    grown = "batch: 32\n  batch_warmup: {linear: {start: 0.25, end: 1.0}}\n  average: {decay: 0.999}\n  steps: 100000"
    recipe = load_recipe(write(("batch: 32", grown)))
    assert recipe_from_data(recipe.canonical()).hash == recipe.hash != load_recipe(write()).hash
    facts = BudgetFacts(budget_tokens=1e6, text_tokens=1e6)
    found = {change.path: change.fitted for change in fit(replace(recipe, name="bert"), facts)}
    assert found["training.batch_warmup.linear.start"] == 1.0 and 0 <= found["training.average.decay"] < 0.999


@pytest.mark.parametrize(("start", "end"), [(0.0, 1.0), (0.5, 2.0)])
def test_a_batch_without_rows_or_of_more_than_itself_is_refused(write: Write, start: float, end: float) -> None:
    written = f"batch: 32\n  batch_warmup: {{linear: {{start: {start}, end: {end}}}}}"
    recipe = load_recipe(write(("batch: 32", written)))
    assert "expected a part of the batch, above 0 and at most 1" in message_of(lambda: check_recipe(recipe))
