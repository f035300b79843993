"""Heads are closed by their importance elsewhere, and measured by the metric of a task."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from cloze.checkpoint.build import load_checkpoint
from cloze.cli.main import main
from cloze.corpus.readers.questions import AnswerSpan, QuestionRecord, Questions
from cloze.decoding.reader import Reader
from cloze.errors import UserError
from cloze.probes.finding import Subject, as_text
from cloze.probes.gates import closed
from cloze.probes.heads import AttentionHead, Pruning, importance, ordered, probe_heads, without
from cloze.probes.kinds.head_importance import HeadProbe
from cloze.probes.losses import TaskExamples, TextExamples, learner_examples
from cloze.tasks.kinds.question_answering import Extractor
from cloze.tasks.kinds.regression import Regressor
from cloze.tasks.kinds.text_to_text import Answerer
from cloze.tasks.task import task
from cloze.tasks.texts import LabelledTexts
from cloze.tasks.tuned_folder import load_tuned

TEXTS = ["The cat sleeps on the mat.", "A dog barks", "Rain fell on the garden all night", "Nobody saw the mice.", "mice"]
#: Scores of the heads of three layers, and what examples/pruning.py of pmichel31415/pytorch-pretrained-BERT (branch paul) closes
#: of them at 25, 50, 75 and 100 %; with `--at_least_x_heads_per_layer` 1 or 2 the same without the last one or two.
SCORES = {"gates": np.array([[3.0, 4.0, 1.0, 2.0], [10.0, 1.0, 5.0, 7.0], [0.5, 0.2, 0.9, 0.1]])}
CLOSED_BY_AUTHORS: list[dict[int, set[int]]] = [
    {0: {2}, 1: {1}, 2: {3}}, {0: {2, 3}, 1: {1, 2}, 2: {1, 3}}, {0: {0, 2, 3}, 1: {1, 2, 3}, 2: {0, 1, 3}},
    {n: {0, 1, 2, 3} for n in range(3)},
]  # fmt: skip


@pytest.fixture
def rows(tmp_path: Path) -> tuple[Path, Path]:
    """Two files with labelled texts."""
    paths = tmp_path / "train.tsv", tmp_path / "dev.tsv"
    for shift, path in enumerate(paths):
        lines = [f"{text}\t{('animal', 'weather')[(n * n + shift) % 2]}" for n, text in enumerate(TEXTS)]
        path.write_text("\n".join(["text\tlabel", *lines]) + "\n", encoding="utf-8")
    return paths


@pytest.mark.parametrize("spared", [0, 1, 2])
def test_heads_are_closed_in_the_order_of_the_authors_code(spared: int) -> None:
    order = ordered(SCORES, spared=spared)
    assert len(order) == 12 - 3 * spared
    for count, expected in zip([3, 6, 9, 12][: 4 - spared], CLOSED_BY_AUTHORS, strict=False):
        by_layer: dict[int, set[int]] = {}
        for head in order[:count]:
            by_layer.setdefault(head.layer, set()).add(head.head)
        assert by_layer == expected


def test_importance_measured_again_orders_the_open_heads_alone(checkpoint: Callable[..., Any]) -> None:
    examples = TextExamples(checkpoint("bert"), TEXTS)
    probed = probe_heads(examples, pruning=Pruning(parts=4, draws=1, exact=True))
    first = ordered(importance(examples))[0]
    second = ordered(importance(examples, shut=[first]), shut=[first])[0]
    assert probed.order[:2] == [first, second] and len(set(probed.order)) == 4
    assert importance(examples, shut=[first])["gates"][first.layer, first.head] == 0.0
    spared = probe_heads(examples, pruning=Pruning(parts=4, draws=1, exact=True, spared=1))
    assert spared.shares == [0.0, 0.25, 0.5] and {head.layer for head in spared.order} == {0, 1}
    with pytest.raises(UserError, match=r"--spare 2: the layers of this network have 2 heads\. Give a smaller number"):
        probe_heads(examples, pruning=Pruning(spared=2))


def test_the_best_head_alone_is_chosen_where_the_importance_is_and_measured_where_the_curve_is(
    checkpoint: Callable[..., Any],
) -> None:
    loaded = checkpoint("bert", heads=4)
    curve, by = TextExamples(loaded, TEXTS[:3]), TextExamples(loaded, TEXTS[2:])
    probed = probe_heads(curve, by=by, pruning=Pruning(parts=1, draws=1), only_one=True)
    np.testing.assert_array_equal(probed.importance["gates"], importance(by)["gates"])
    for layer, (best, change) in enumerate(probed.best["gates"]):
        assert best == probed.only["gates"][layer].argmin() and probed.only["gates"].shape == (2, 4)
        others = [AttentionHead("gates", layer, head) for head in range(4) if head != best]
        with closed(loaded.network, without(probed.kinds, others)):
            assert curve.value(size=8) - probed.curve[0] == pytest.approx(change)
            assert by.value(size=8) - by_itself(by) == pytest.approx(probed.only["gates"][layer, best])
    finding = HeadProbe(importance="x").finding([Subject("a", Path())], {"a": probed})
    assert "a: change of the loss with one head in a layer, attention" in as_text(finding) and not finding.remarks


def by_itself(examples: TextExamples) -> float:
    """The measure with all heads."""
    with closed(examples.network, {"gates": torch.ones(2, 4)}):
        return examples.value(size=8)


def test_the_command_measures_the_metric_of_a_task_on_one_file_and_the_importance_on_another(
    tuned: Callable[..., Path], rows: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, (train, dev) = str(tuned()), rows
    options = ["--task", str(dev), "--metric", "matthews", "--json"]
    main(["probe", "heads", folder, *options, "--importance", str(train)])
    probed = json.loads(capsys.readouterr().out)["tuned"]
    main(["probe", "heads", folder, "--task", str(train), "--json"])
    on_train = json.loads(capsys.readouterr().out)
    learner = load_tuned(load_checkpoint(folder))[0]
    assert probed["measure"] == "matthews"
    assert probed["curve"][0] == pytest.approx(learner.evaluate(learner.task.read(dev)).metrics["matthews"])
    assert probed["importance"] == on_train["tuned"]["importance"]
    remarks = HeadProbe().remarks(HeadProbe(task=str(dev)).measure(load_checkpoint(folder), []))
    assert "give another text to --importance" in remarks[0]
    with pytest.raises(UserError, match="matthew cannot be measured .*: accuracy, macro_f1, matthews, f1"):
        HeadProbe(task=str(dev), metric="matthew").measure(load_checkpoint(folder), [])
    with pytest.raises(UserError, match="--metric and --bleu are for labelled text"):
        HeadProbe(text=str(dev), metric="f1").read()


def test_numbers_have_a_squared_error_and_a_correlation(checkpoint: Callable[..., Any]) -> None:
    loaded = checkpoint("classifier")
    learner = Regressor(Reader.of(loaded), loaded.heads["class"], task("regression"), length=None).eval()
    numbers = LabelledTexts(TEXTS, None, [1.0, 0.5, 3.0, -1.0, 2.0], "file", (1, 2, 3, 4, 5))
    examples = learner_examples(learner, numbers)
    outputs = learner.row_outputs([row.inputs for row in learner.encode_labelled(numbers)])
    np.testing.assert_allclose(examples.losses(range(5)).detach(), (outputs - numbers.require_labels()) ** 2, rtol=1e-5)
    assert examples.value(size=2) == pytest.approx(learner.evaluate(numbers).metrics[examples.measure], abs=1e-6)
    assert (importance(examples)["gates"] > 0).all()


def question(context: str, answer: str | None) -> QuestionRecord:
    answers = () if answer is None else (AnswerSpan(answer, context.index(answer)),)
    return QuestionRecord(1, "", "q", "who saw", context, answers)


def test_questions_have_the_loss_of_the_tokens_of_their_answer_in_each_window(checkpoint: Callable[..., Any]) -> None:
    loaded = checkpoint("bert-answers")
    reader = Reader.of(loaded)
    learner = Extractor(
        reader, loaded.heads["answer"], task("question_answering"), length=12, stride=3, max_answer_length=5, threshold=None
    ).eval()
    records = [question("rain fell and the cat saw the garden all night", "the cat"), question("the river", None)]
    examples = learner_examples(learner, Questions(records, "file"))
    losses = examples.losses([0, 1]).detach().numpy()
    for record, loss in zip(records, losses, strict=True):
        expected = []
        for window in learner.encode(Questions([record], "file"))[0].windows:
            batch = reader.batch([window.framed])
            pieces = [loaded.tokenizer.piece(i) for i in window.framed.ids.tolist()]
            inside = record.answers and "the cat" in " ".join(pieces)
            first, last = (pieces.index("cat") - 1, pieces.index("cat")) if inside else (0, 0)
            with torch.inference_mode():
                log_probs = [torch.from_numpy(scores).log_softmax(0) for scores in learner._scores(batch)[:, 0]]
            expected.append(float(-(log_probs[0][first] + log_probs[1][last]) / 2))
        assert loss == pytest.approx(np.mean(expected), rel=1e-4)
    assert len(examples.rows[0].inputs.windows) > 1 and examples.measure == "f1"
    assert examples.value(size=4) == pytest.approx(learner.evaluate(Questions(records, "file")).metrics["f1"])


def test_what_an_encoder_decoder_writes_is_measured_as_evaluate_does(writer: Callable[[str], Path]) -> None:
    loaded = load_checkpoint(writer("bart"))
    learner: Any = Answerer(
        Reader.of(loaded), loaded.heads["words"], task("text_to_text"), length=None, target_length=8
    ).eval()
    pairs = LabelledTexts(TEXTS, None, [(text,) for text in TEXTS], "file", (1, 2, 3, 4, 5))
    examples: TaskExamples = learner_examples(learner, pairs, metric="chrf")
    judged = learner.per_example(learner.encode_labelled(pairs), "loss")
    expected = [pair.loss / pair.tokens for pair in judged]
    np.testing.assert_allclose(examples.losses(range(5)).detach(), expected, rtol=1e-4)
    assert examples.higher and examples.value(size=5) == learner.evaluate(pairs).metrics["chrf"]
    assert importance(examples).keys() == {"gates", "decoder_gates", "crossing_gates"}
