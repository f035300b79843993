"""What a wrong recipe is told: every fault, with file, line, value path and the way out."""

from __future__ import annotations

import pytest

from cloze.checkpoint.checks.check import check_recipe
from cloze.errors import RecipeError
from cloze.recipe.load import load_recipe
from cloze.runs.options import PretrainOptions
from cloze.runs.request import load_request
from tests.small_recipe import MINE, Write, message_of

UNREAD = [  # (replacement, what the message says): found while reading
    (("rate: 0.15", "ratio: 0.15"),
     'mine.yaml:7: exercise[1].mask.ratio: unknown argument "ratio".\n  mask accepts: unit, rate, of, most,'),
    (("rate: 0.15", "rat: 0.15"), "Did you mean 'rate'?"),
    (("batch: 32", "divide: answers"), "expected one of targets, rows, nothing"),
    (("rate: 0.15", 'rate: "0.15"'), 'mine.yaml:7: exercise[1].mask.rate: got "0.15", expected a number from 0 to 1.'),
    (("rate: 0.15", "rate: true"), "exercise[1].mask.rate: got true, expected a number from 0 to 1."),
    (("rate: 0.15", "most: 1.5"), "exercise[1].mask.most: got 1.5, expected a whole number of 1 or more or null."),
    (("rate: 0.15", "unit: tokens"),
     'got "tokens", expected one of token, whole_word, ngram, span, spaced, infill, alternating, partition, fragment or a list '
     "of texts.\n"
     "  Did you mean 'token'?"),
    (("predict: masked", "predict: maskd"), 'exercise[3].predict.what: got "maskd", expected one of masked,'),
    (("- corrupt: {}", "- corupt: {}"), "mine.yaml:8: exercise[2]: unknown edit 'corupt'. Did you mean 'corrupt'"),
    (("- corrupt: {}", "- {corrupt: {}, mask: {}}"), "exercise[2]: expected one edit, got the keys 'corrupt', 'mask'."),
    (("- corrupt: {}", "- 3"), "exercise[2]: expected one edit, got 3."),
    (("transformer", "transfomer"), "networks.main: unknown network 'transfomer'. Did you mean 'transformer'"),
    (("layers: 2, ", ""), 'networks.main.transformer: transformer needs "layers" (a whole number from 1 to 4,096).'),
    (("layers: 2", "layers: 2, vocab_size: 3"), 'unknown argument "vocab_size"'),
    (("wordpiece", "word_piece"), "unknown tokenizer 'word_piece'. Did you mean 'wordpiece'?"),
    (("lower: true", "lover: true"), 'texts.main.normalise.lover: unknown argument "lover".'),
    (("passages", "pasages"), "mine.yaml:3: sources.main: unknown source 'pasages'."),
    (("objectives:", "objectivs:"), 'mine.yaml:10: objectivs: unknown key "objectivs".'),
    (("name: mine", "name: mine\nbase: bert"), 'mine.yaml:2: base: unknown key "base".\n'
     "  A recipe builds on no other. Change a copy: cloze show NAME > mine.yaml; or values alone: --set PATH=VALUE"),
    (("batch: 32", "bach: 32"), 'mine.yaml:15: training.bach: unknown argument "bach".'),
    (("  batch: 32\n", ""), 'training needs "batch" (a whole number of 1 or more).'),
    (("linear", "linea"), "training.rate: unknown rate 'linea'. Did you mean 'linear'?"),
    (("peak: 1e-3, ", ""), 'training.rate.linear: linear needs "peak" (a number of 0 or more).'),
    (('reading: {single: "[CLS] {A} [SEP]"}', ""), "reading: is missing.\n  For example"),
    (("name: mine", "name: [mine]"), 'mine.yaml:1: name: got ["mine"], expected text.'),
    (("text:", "texts: {main: {tokenizer: wordpiece}}\ntext:"), "text: text and texts are both written."),
    (("exercise:", "order: sideways\nexercise:"), 'order: got "sideways", expected one of open, left_to_right'),
    (("gelu, tie: true", "gelu, tie: true, head: values"),
     "objectives[0].token_prediction.head: 'values' is reserved: torch.nn.ModuleDict has an attribute of this name.\n"
     "  Choose another name, such as my_values."),
    (("gelu, tie: true", "gelu, tie: true, weight: 0"), "objectives: every objective has weight 0: these rows teach nothing."),
    (("network: {transformer: {layers: 2, width: 64, heads: 2}}",
      "networks: {type: {transformer: {layers: 2, width: 64, heads: 2}}}"), "networks.type: 'type' is reserved"),
    (("network: {", "network: {frm: x, "), "expected one network, got the keys 'frm', 'transformer'."),
    (("transformer: {layers: 2, ", "encoder_decoder: {positions: rotary, layers: 2, "), "positions cannot be 'rotary' here"),
]
UNSOUND = [  # found by looking at names and numbers together
    (("length: 128", "short: 0.1"), "sources.main.passages.length: is missing"),
    (("length: 128", "length: 600"), "600 tokens, but network 'main' has 512 positions."),
    (("batch: 32", "batch: 0"), "mine.yaml:15: training.batch: got 0, expected a whole number of 1 or more."),
    (("batch: 32", "batch: 8\n  micro_batch: 16"), "got 16, more than the batch of 8."),
    (("batch: 32", "batch: 8\n  steps: 5\n  epochs: 2"), "steps and epochs are both written"),
    (("predict: masked", "predict: {what: masked, in: hole}"), "exercise[3].predict.in: there is no view 'hole'."),
    (("name: mine", "name: mine\nexport: man"), "mine.yaml:2: export: there is no network 'man'.\n  Did you mean 'main'?"),
    (("name: mine", "name: mine\ntie: [[main.embeddings]]"), "mine.yaml:2: tie[0]: ties one thing"),
    (("name: mine", "name: mine\ntie: [[man.a, main.b]]"), "'man.a' does not begin with the name of a network."),
    (("name: mine", "name: mine\nschedule: [{share: 0.5}, {share: 0.4}]"), "the shares add up to 0.9, expected 1."),
    (("name: mine", "name: mine\nschedule: [{share: 0.5, steps: 3}]"), "one of steps, share, epochs; this one has 2."),
    (("name: mine", "name: mine\nschedule: [{share: 0.5}, {steps: 4}]"), "the phases mix share and steps"),
    (("name: mine", "name: mine\nmixing: step\nmixture: {a: {odds: -1}}"), "mixture.a.odds: got -1"),
]
UNFIT = [  # found by matching fields and states
    (("  - corrupt: {}\n", ""), None),
    (("  - mask: {rate: 0.15}\n", ""),
     'exercise[1].corrupt: corrupt takes "masked", which nothing before it gives.\n  Edits that give masked: mask'),
    (('  - frame: "[CLS] {A} [SEP]"\n', ""), 'mask takes "special", which nothing before it gives.'),
    (("{A} [SEP]\"\n  - mask", "{A} [SEP] {B}\"\n  - mask"),
     'frame takes "parts", which nothing before it gives.\n  Edits that give parts: dialogue, distance, pair'),
    (("tie: true", "tie: true, read: query"),
     'token_prediction reads "query", but network "main" (transformer) gives: '
     "attention, content, hidden, keys, layers, parameters, queries, scores, summary, values.\n  Networks that give"),
    (("tie: true", "tie: true, set: other"),
     'token_prediction takes "positions/other", which no edit gives.\n  Sets of targets: main.'),
    (("tie: true", "tie: true, read: {scores: hidden}"), "token_prediction has no reading 'scores'."),
    (("rate: 0.15", "rate: 0.0"), "exercise[1].mask: mask: rate must be above 0 and at most 1, got 0.0."),
    (("corrupt: {}", "corrupt: {keep: 0.5}"), "corrupt: mask, random and keep must add up to 1"),
    (("[CLS] {A} [SEP]\"\n", "[CSL] {A} [SEP]\"\n"),
     "exercise[0].frame.template: [CSL] is not a role.\n  Did you mean '[CLS]'"),
    (('single: "[CLS] {A}', 'single: "[CLS]'), "reading.single: '[CLS] [SEP]' has no {A}."),
    (("length: 128", "length: 2"), "2 tokens leave no room for text in the frame."),
    (("heads: 2", "heads: 3"), "networks.main.transformer"),
    (("warmup: 0.1", "warmup: 0.1, warmup_steps: 3"), "give warmup_steps or warmup"),
]


@pytest.mark.parametrize(("change", "expected"), UNREAD + UNSOUND)
def test_a_wrong_recipe_is_told_where_and_how(write: Write, change: tuple[str, str], expected: str) -> None:
    path = write(change)
    assert expected in message_of(lambda: load_recipe(path))


@pytest.mark.parametrize(("change", "expected"), UNFIT)
def test_parts_that_do_not_fit_are_told_before_any_tensor(
    write: Write, change: tuple[str, str], expected: str | None
) -> None:
    recipe = load_recipe(write(change))
    if expected is None:
        check_recipe(recipe)
    else:
        assert expected in message_of(lambda: check_recipe(recipe))


def test_all_faults_are_reported_together_in_the_order_of_the_file(write: Write) -> None:
    wrong = (("lower", "lover"), ("rate: 0.15", "ratio: 0.15"), ("corrupt: {}", "corupt: {}"), ("batch: 32", "bach: 32"))
    path = write(*wrong)
    message = message_of(lambda: load_recipe(path))
    lines = [line.split(":")[1] for line in message.splitlines() if line.startswith("mine.yaml:")]
    assert lines == sorted(lines, key=int) and {"2", "7", "8", "15"} <= set(lines)


PASSES = """passes:
  - {network: generator, objectives: [token_prediction: {transform: gelu, tie: true}]}
  - network: discriminator
    take: {sample: {from: generator.token_prediction}}
    objectives: [token_labelling: {set: replaced, weight: 50.0}]
export: discriminator
tie: [[generator.embeddings, discriminator.embeddings]]
"""
TWO = MINE.replace(
    "network: {transformer: {layers: 2, width: 64, heads: 2}}",
    "networks:\n  generator: {transformer: {layers: 1, width: 64, heads: 1}}\n"
    "  discriminator: {transformer: {layers: 2, width: 64, heads: 2}}",
).replace("objectives:\n  - token_prediction: {transform: gelu, tie: true}\n", PASSES)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (("from: generator.", "from: generater."), "'generater.token_prediction' names no earlier pass and no view."),
        (("from: generator.token_prediction", "from: generator.logits"),
         'pass "generator" has no state "logits"; it has: attention, content, hidden, '),
        (("from: generator.token_prediction", "from: scores"), "got 'scores', expected `pass.state` or `view.field`."),
        (("sample:", "smaple:"), "unknown rewriter 'smaple'. Did you mean 'sample'?"),
        (("{sample:", "{segments: main.positions, sample:"), "or position_ids for the position of each token."),
        (("network: discriminator\n", "network: discriminatr\n"), "there is no network 'discriminatr'."),
        (("set: replaced, ", "set: swapped, "), 'token_labelling takes "targets/swapped", which no edit gives.'),
        (("export: discriminator\n", ""), "export: there are 2 networks: which is the result?"),
        (("layers: 1, width: 64", "layers: 1, width: 128"), "Tied parts must have equal shapes."),
        (("generator.embeddings, ", "generator.embedings, "), "embedings"),
        (("network: generator,", "network: generator, view: hole,"), "there is no view 'hole'."),
        (("network: discriminator\n", "network: discriminator\n    name: generator\n"),
         "there is already a pass 'generator'."),
        (("weight: 50.0", "weight: {cosine: {}}"), "unknown schedule 'cosine'."),
    ],
)
def test_passes_are_wired_by_names_that_exist(write: Write, change: tuple[str, str], expected: str) -> None:
    check_recipe(load_recipe(write(text=TWO)))
    path = write(change, text=TWO)
    assert expected in message_of(lambda: check_recipe(load_recipe(path)))


def test_one_head_cannot_have_two_settings(write: Write) -> None:
    mixture = """mixture:
  masked: {objectives: [token_prediction: {tie: true, head: words}]}
  other: {objectives: [token_prediction: {tie: true, head: words, bias: false}]}
"""
    text = MINE.replace("objectives:\n  - token_prediction: {transform: gelu, tie: true}\n", mixture)
    message = message_of(lambda: load_recipe(write(text=text)))
    assert "the head 'words' has bias True at mixture.masked.objectives[0].token_prediction and False here." in message
    shared = load_recipe(write((", bias: false", ", set: main"), text=text))
    assert {shared.head_name(run, o) for e in shared.entries.values() for run, o in e.objectives()} == {"words"}


def test_views_are_checked_like_rows_of_their_own(write: Write) -> None:
    masks = "  - copy: {to: hole}\n  - mask: {rate: 0.15}\n  - mask: {rate: 0.3, in: hole}"
    text = MINE.replace("  - mask: {rate: 0.15}", masks)
    text = text.replace("  - predict: masked", "  - predict: masked\n  - predict: {what: masked, in: hole}")
    run = "passes:\n  - network: main\n    name: hole\n    view: hole\n    objectives:\n    - token"
    text = text.replace("objectives:\n  - token", run)
    checked = check_recipe(load_recipe(write(text=text)))
    assert {"hole.targets/main", "targets/main", "hole.tokens"} <= checked.batch["main"]
    wrong = write(("mask: {rate: 0.3, in: hole}", "order: {in: hole}"), text=text)
    message = message_of(lambda: check_recipe(load_recipe(wrong)))
    assert 'predict takes "hole.masked", which nothing before it gives.' in message


BOTH = MINE.replace("transformer", "encoder_decoder").replace("  - mask:", "  - answer: {}\n  - mask:").replace(
    "transform: gelu, tie: true", "tie: true, read: decoder_hidden"
).replace("  - predict: masked\n", "")


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (("  - mask:", "  - predict: next\n  - mask:"),
         'there are "targets/main" and "decoder.targets/main"; an objective learns from one set.\n'
         "  Give one of the edits that make them another `set:`."),
        (("encoder_decoder:", "transformer:"),
         'token_prediction takes "targets/main", which no edit gives.\n  Targets in other views: decoder.targets/main.'),
        (("  - answer: {}\n", "  - answer: {set: whole}\n"), "Sets of targets: whole."),
        (("  - mask: {", "  - mask: {in: decodr, "), "there is no view 'decodr'.\n  Did you mean 'decoder'?"),
        (("objectives:\n  - token_prediction: {tie: true, read: decoder_hidden}",
          "passes: [{network: main, take: {second.tokens: decoder.tokens}, "
          "objectives: [token_prediction: {read: decoder_hidden}]}]"),
         'network "main" does not take "second.tokens".'),
        (("objectives:\n  - token_prediction: {tie: true, read: decoder_hidden}",
          "passes: [{network: main, take: {decoder_tokens: main.tokens}, objectives: [token_prediction: {}]}]"),
         "take.decoder_tokens: unknown field 'decoder_tokens'."),
    ],
)
def test_targets_are_those_of_one_of_two_sequences(write: Write, change: tuple[str, str], expected: str) -> None:
    checked = check_recipe(load_recipe(write(text=BOTH)))
    assert {"decoder.tokens", "decoder.targets/main"} <= checked.batch["main"]
    path = write(change, text=BOTH)
    assert expected in message_of(lambda: check_recipe(load_recipe(path)))


def test_edits_after_an_answer_may_change_the_view_that_it_makes(write: Write) -> None:
    further = "  - mask: {in: decoder, rate: 0.5, spare: none}\n  - corrupt: {in: decoder}\n"
    path = write(("  - mask:", f"{further}  - mask:"), text=BOTH)
    assert check_recipe(load_recipe(path)).edits["main"][2].gives == {"decoder.masked"}


def test_a_fault_that_every_phase_repeats_is_told_once_at_its_first_place() -> None:
    with pytest.raises(RecipeError) as caught:
        load_recipe("bert", overrides=["training.keep_best=foo"])
    assert str(caught.value) == (
        "--set training.keep_best=foo: training.keep_best: there is no objective 'foo'.\n"
        "  Known: relation_prediction, token_prediction."
    )


def test_an_edit_of_the_text_of_the_source_is_refused_behind_a_frame() -> None:
    recipe = load_recipe("quick").canonical()
    resegment = {"resegment": {"dropout": 0.1}}
    edits, told = recipe["exercise"], "resegment works on the text of the source, and an earlier edit has framed or masked it"
    for place in (1, 2):
        with pytest.raises(RecipeError, match=told) as caught:
            check_recipe(load_recipe({**recipe, "exercise": [*edits[:place], resegment, *edits[place:]]}))
        assert "exercise[" in str(caught.value) and "Put resegment first." in str(caught.value)
    check_recipe(load_recipe({**recipe, "exercise": [resegment, *edits]}))


def test_readings_that_could_not_differ_and_rows_without_others_are_refused() -> None:
    recipe = load_recipe("bert").canonical()
    frame = {"template": "[CLS] {A} [SEP]"}
    head = {"head": "map", "reading": "summary", "weight": 0}
    twins = {
        "name": "twins", "texts": recipe["texts"], "sources": {"main": {"sentences": {"length": 32}}},
        "networks": recipe["networks"], "reading": recipe["reading"],
        "exercise": [{"copy": {"to": "twin"}}, {"frame": frame}, {"frame": {**frame, "in": "twin"}}],
        "passes": [
            {"name": "one", "network": "main", "objectives": [{"embedding": head}]},
            {"name": "two", "network": "main", "view": "twin", "objectives": [
                {"embedding": head}, {"contrast": {"read": {"query": "one.map", "key": "two.map"}}}]},
        ],
        "training": {"batch": 8, "steps": 3, "rate": {"constant": {"peak": 1e-4}}, "optimizer": {"adamw": {}}},
    }
    check_recipe(load_recipe(twins))
    with pytest.raises(RecipeError, match="a step has 1 row, so nothing would be learned") as caught:
        check_recipe(load_recipe(twins, overrides=["training.batch=1"]))
    assert "Set training.batch to 2 or more" in str(caught.value)
    with pytest.raises(RecipeError, match="it reads each text and an unchanged copy of it, and has no dropout") as caught:
        check_recipe(load_recipe(twins, overrides=["networks.main.dropout=0"]))
    assert "--set networks.main.dropout=0.1" in str(caught.value)


def test_a_wrong_objective_is_not_also_reported_as_one_without_weight() -> None:
    with pytest.raises(RecipeError) as caught:
        load_recipe("bert", overrides=["objectives[0].token_prediction.tie=7", "objectives[1].relation_prediction.weight=0"])
    assert "objectives[0].token_prediction.tie" in str(caught.value) and "weight 0" not in str(caught.value)


def test_a_recipe_for_fine_tuning_is_not_pre_trained() -> None:
    with pytest.raises(RecipeError, match="simcse-supervised: this recipe is for fine-tuning, on labelled text.") as caught:
        load_request(PretrainOptions("simcse-supervised", "text.txt"))
    assert "cloze finetune CHECKPOINT --recipe simcse-supervised --train FILE" in str(caught.value)


def test_a_segment_that_the_network_does_not_have_is_a_fault() -> None:
    said = r'frame.segments: network "main" has 2 segments, counted from 0, and no segment 7.*\n  Write numbers below 2'
    with pytest.raises(RecipeError, match=said):
        check_recipe(load_recipe("bert", overrides=["exercise.frame.segments=[0,7]"]))
