"""The importance of heads, and networks with some closed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from cloze.corpus.readers.tagged import TaggedSentences
from cloze.decoding.reader import Reader
from cloze.errors import UserError
from cloze.networks import Clock
from cloze.networks.blocks.attention import Attention, AttentionInputs
from cloze.networks.blocks.dropout import Dropout
from cloze.networks.blocks.visibility import Visibility
from cloze.probes.finding import Subject, as_text
from cloze.probes.gates import HeadKind, closed, each_gate, head_kinds
from cloze.probes.heads import AttentionHead, HeadImportance, Pruning, importance, ordered, probe_heads, without
from cloze.probes.kinds.head_importance import HeadProbe
from cloze.probes.losses import ClassifiedExamples, LabelledExamples, TextExamples, learner_examples, text_examples
from cloze.reports.probe import render
from cloze.tasks.kinds.classification import Classifier
from cloze.tasks.kinds.token_labelling import WordLabeller
from cloze.tasks.task import task
from tests.making import network_of

TEXTS = [
    "The cat sleeps on the mat and dreams of mice.", "A dog barks", "Rain fell on the garden all night", "Nobody saw the mice.",
    "the river rose", "The cat wakes and runs into the garden.", "cheese under the mat", "A dog saw the cat", "mice",
]  # fmt: skip


def tuned(checkpoint: Callable[..., Any]) -> ClassifiedExamples:
    loaded = checkpoint("classifier")
    kind = task("sentence_classification")
    learner = Classifier(Reader.of(loaded), loaded.heads["class"], kind, length=None, labels=("a", "b", "c")).eval()
    learner.encode_labelled = _labelled(learner)  # type: ignore[method-assign]
    return ClassifiedExamples(learner, TEXTS)


def _labelled(learner: Classifier) -> Callable[[Any], list[Any]]:
    from cloze.tasks.task import LabelledRow

    return lambda texts: [LabelledRow(row, n % 3) for n, row in enumerate(learner.reader.encode(texts))]


def test_a_gate_of_zero_is_a_head_whose_columns_are_zero_or_that_is_cut_out() -> None:
    torch.manual_seed(0)
    attention = Attention(width=12, heads=3, dropout=Dropout(0.0, Clock())).double()
    x = torch.randn(2, 5, 12, dtype=torch.double)
    given = AttentionInputs(Visibility("all"))
    gated = attention(x, AttentionInputs(Visibility("all"), gates=torch.tensor([1.0, 0.0, 1.0]).double()))
    kept = [row for row in range(12) if not 4 <= row < 8]
    small = Attention(width=12, heads=2, head_width=4, dropout=Dropout(0.0, Clock())).double()
    with torch.no_grad():
        rows = [part * 12 + row for part in range(3) for row in kept]
        small.projections.weight.copy_(attention.projections.weight[rows])
        small.projections.bias.copy_(attention.projections.bias[rows])
        small.out.weight.copy_(attention.out.weight[:, kept])
        small.out.bias.copy_(attention.out.bias)
        torch.testing.assert_close(small(x, given), gated)
        attention.out.weight[:, 4:8] = 0.0
        torch.testing.assert_close(attention(x, given), gated)


@pytest.mark.parametrize("name", ["bert", "gpt2"])
def test_importance_is_the_same_at_every_batch_size(name: str, checkpoint: Callable[..., Any]) -> None:
    loaded = checkpoint(name)
    loaded.network.double()
    loaded.heads["mlm" if name == "bert" else "lm"].double()
    examples = TextExamples(loaded, TEXTS)
    one, seven, all_ = (importance(examples, size=size)["gates"] for size in (1, 7, 32))
    assert one.shape == (2, 2) and (one > 0).all()
    np.testing.assert_allclose(seven, one, rtol=1e-6)
    np.testing.assert_allclose(all_, one, rtol=1e-6)


def test_importance_of_a_classifier_is_the_mean_of_the_absolute_gradients(checkpoint: Callable[..., Any]) -> None:
    examples = tuned(checkpoint)
    found = importance(examples, size=4)["gates"]
    expected = np.zeros((2, 2))
    for n in range(len(TEXTS)):
        with each_gate(examples.network, head_kinds(examples.network)) as made:
            loss = examples.losses([n])[0]
        expected += torch.autograd.grad(loss, made[0]["gates"])[0][:, 0].abs().double().numpy() / len(TEXTS)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-7)
    assert not [module for module in examples.network.modules() if module._forward_pre_hooks]


def test_the_gradients_of_gates_sum_to_the_product_of_the_output_and_its_gradient(checkpoint: Callable[..., Any]) -> None:
    """With y the output of attention before its bias: Σ_h ∂L/∂ξ_h = ⟨∂L/∂y, y⟩."""
    loaded = checkpoint("bert")
    loaded.network.double()
    loaded.heads["mlm"].double()
    examples, outputs = TextExamples(loaded, TEXTS), []
    for layer in loaded.network.layers:
        layer.attention.out.register_forward_hook(lambda module, args, output: outputs.append((module, output)))
    with each_gate(examples.network, head_kinds(examples.network)) as made:
        total = examples.losses(range(4)).sum()
    gates, ys = made[0]["gates"], [output for _, output in outputs]
    by_gate, *by_output = torch.autograd.grad(total, [gates, *ys])
    for layer, ((module, y), gradient) in enumerate(zip(outputs, by_output, strict=True)):
        torch.testing.assert_close(by_gate[layer].sum(), (gradient * (y - module.bias)).sum())


def test_labelled_rows_are_the_first_ones_if_fewer_are_asked_for(checkpoint: Callable[..., Any]) -> None:
    learner = tuned(checkpoint).learner
    whole, few = (learner_examples(learner, TEXTS, most=most) for most in (None, 2))
    assert len(whole.lengths) == len(TEXTS) and few.lengths == whole.lengths[:2] and len(few.lengths) == 2


def test_heads_are_ordered_within_the_length_of_their_layer() -> None:
    scores = {"gates": np.array([[3.0, 4.0], [10.0, 1.0]])}
    assert ordered(scores) == [
        AttentionHead("gates", 1, 1), AttentionHead("gates", 0, 0), AttentionHead("gates", 0, 1),
        AttentionHead("gates", 1, 0)
    ]


def test_closing_all_heads_is_the_end_of_every_order_and_none_its_beginning(checkpoint: Callable[..., Any]) -> None:
    examples = tuned(checkpoint)
    found = probe_heads(examples, pruning=Pruning(parts=4, draws=2), each_alone=True)
    assert found.shares == [0.0, 0.25, 0.5, 0.75, 1.0] and found.measure == "accuracy" and found.higher
    assert found.curve[0] == found.random[0] == examples.value(size=9) and found.curve[-1] == found.random[-1]
    with closed(examples.network, without(found.kinds, found.order)):
        assert examples.value(size=9) == found.curve[-1]
    with closed(examples.network, without(found.kinds, [AttentionHead("gates", 1, 0)])):
        assert examples.value(size=9) - found.curve[0] == pytest.approx(found.each["gates"][1, 0])
    made = HeadProbe().finding([Subject("a", Path(), 0), Subject("b", Path(), 10)], {"a": found, "b": found})
    assert "a: accuracy as heads are closed" in as_text(made) and "importance of every head, attention" in as_text(made)
    assert made.plots[0].x == "step" and "random order" in render(made)


@pytest.mark.parametrize(("curve", "higher", "value"), [([0.0, 0.0], True, "0.0000"), ([-0.2, 0.1], True, "-0.2000"),
                                                        ([0.0, 0.0], False, "0.0000")])  # fmt: skip
def test_a_measure_that_is_not_above_0_says_nothing_about_how_many_heads_can_be_closed(
    curve: list[float], higher: bool, value: str
) -> None:
    kind = HeadKind("gates", "attention", 1, 1)
    order = [AttentionHead("gates", 0, 0)]
    heads = HeadImportance(
        [kind], {"gates": np.ones((1, 1))}, order, [0.0, 1.0], curve, curve, [0.0, 0.0], "matthews", higher, {}, {}, {}
    )
    assert heads.closable is None
    probed = HeadProbe().finding([Subject("a", Path(), 0), Subject("b", Path(), 10)], {"a": heads, "b": heads})
    assert f"The matthews with all heads is {value}, not above 0: this does not say how many" in " ".join(as_text(probed).split())
    assert [plot.title for plot in probed.plots] == ["a: matthews as heads are closed", "b: matthews as heads are closed"]
    assert HeadProbe().data(heads)["closable"] is None


def test_masks_of_a_text_do_not_depend_on_the_others(checkpoint: Callable[..., Any]) -> None:
    loaded = checkpoint("bert")
    all_, few = TextExamples(loaded, TEXTS), TextExamples(loaded, TEXTS[:2])
    np.testing.assert_array_equal(all_.rows[1].row.ids, few.rows[1].row.ids)
    mask = loaded.tokenizer.role("[MASK]")
    assert all((row.row.ids[row.columns] == mask).all() and (row.right != mask).all() for row in all_.rows)
    assert [len(row.columns) for row in all_.rows] == [
        int(np.ceil(0.15 * (len(row.row) - 2))) for row in all_.rows
    ]  # fmt: skip


def test_networks_without_heads_and_checkpoints_without_a_head_are_refused(checkpoint: Callable[..., Any]) -> None:
    with pytest.raises(UserError, match=r"needs a head that predicts tokens; this checkpoint has: .*\n  For a fine-tuned folder"):
        text_examples(checkpoint("classifier"), TEXTS)
    with pytest.raises(UserError, match="no text has a token to predict"):
        text_examples(checkpoint("gpt2"), ["a"[:0]])
    with pytest.raises(UserError, match=r"LSTM has no attention, and therefore no heads\.\n  Other probes: .*--bits"):
        head_kinds(type("LSTM", (), {"gives": {}})())


def test_a_labeller_of_words_has_a_loss_for_each_text_whatever_the_batch(checkpoint: Callable[..., Any]) -> None:
    loaded = checkpoint("tagger")
    reader = Reader.of(loaded)
    names = ("a", "b", "c")
    tags = loaded.heads["tags"]
    learner = WordLabeller(reader, tags, task("token_labelling"), length=None, labels=names, constant_answer="a").eval()
    words = [tuple(text.split()) for text in TEXTS] + [("cat",) * 60]
    labels = [tuple("abc"[n % 3] for n in range(len(own))) for own in words]
    examples = LabelledExamples(learner, TaggedSentences(words, labels, "file", tuple(range(len(words))), (None,) * len(words)))
    assert len(examples.rows) == len(TEXTS) and examples.remarks[0].startswith("1 of 10 texts were left out")
    with torch.no_grad():
        together = examples.losses(range(len(TEXTS)))
        alone = torch.cat([examples.losses([n]) for n in range(len(TEXTS))])
    torch.testing.assert_close(together, alone, rtol=1e-4, atol=1e-5)
    (window,) = examples.rows[1].inputs.windows
    states = reader.states(reader.batch([window.row]), {"hidden"})
    scores = reader.scores(learner.head, states, reader.batch([window.row]), torch.from_numpy(window.columns))
    expected = torch.nn.functional.cross_entropy(scores, torch.tensor([0, 1, 2]))
    torch.testing.assert_close(alone[1], expected.detach(), rtol=1e-4, atol=1e-5)
    one, many = importance(examples, size=1)["gates"], importance(examples, size=32)["gates"]
    np.testing.assert_allclose(many, one, rtol=1e-3, atol=1e-6)
    assert 0 <= examples.value(size=4) <= 1


def test_an_encoder_decoder_has_three_kinds_of_heads_with_gates_of_their_own() -> None:
    network = network_of("encoder_decoder", layers=2, decoder_layers=3, width=12, heads=3, vocab_size=20, clock=Clock())
    assert [tuple(kind) for kind in head_kinds(network)] == [
        ("gates", "encoder", 2, 3), ("decoder_gates", "decoder", 3, 3), ("crossing_gates", "decoder to encoder", 3, 3),
    ]  # fmt: skip
