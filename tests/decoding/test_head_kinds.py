"""Words for a hole by a head that learnt to tell words from noise."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from cloze.batch import Batch
from cloze.decoding.bound_head import BoundHead
from cloze.decoding.reader import describe_heads, head_of_kind
from cloze.networks import Clock, TwoSidedLSTM, WordVectors
from cloze.objectives import NegativeSampling, classify, token_labelling, token_prediction
from cloze.objectives.objective import Loss, TargetsAtPositions

SPELLINGS = ("[PAD]", "[UNK]", "[MASK]", "sea", "sky", "blue")
COUNTS = np.array([0, 7, 0, 50, 30, 20])


def head(unknown: bool = False) -> NegativeSampling:
    made = NegativeSampling(
        negatives=4, width=3, vocab_size=6, clock=Clock(), counts=COUNTS, spellings=SPELLINGS, unknown=unknown
    )
    torch.nn.init.normal_(made.head.weight, generator=torch.Generator().manual_seed(0))
    return made


def test_where_scores_are_log_ratios_to_the_noise_the_probabilities_come_out() -> None:
    objective = head()
    truth = torch.tensor([0.0, 0.0, 0.0, 0.2, 0.3, 0.5], dtype=torch.float64)
    noise = objective.noise
    ratio = torch.where(truth > 0, truth.log() - noise.log() - np.log(4), torch.zeros(6, dtype=torch.float64))
    with torch.no_grad():  # a context of (1, 0, 0) meets these ratios
        objective.head.weight.zero_()
        objective.head.weight[:, 0] = ratio.float()
    state = torch.tensor([[[1.0, 0.0, 0.0]]])
    batch = Batch({"tokens": torch.zeros(1, 1, dtype=torch.long), "positions/main": torch.zeros(1, dtype=torch.long)})
    scores = BoundHead(objective, {"": "context"}).predict({"context": state}, batch)
    torch.testing.assert_close(scores.softmax(-1)[0].double(), truth, atol=1e-6, rtol=1e-5)


def test_unknown_words_are_drawn_by_their_count_only_if_asked_for() -> None:
    assert head().noise[1] == 0 and head().noise[2] == 0
    raised = np.array([7.0, 50, 30, 20]) ** 0.75
    np.testing.assert_allclose(head(unknown=True).noise[[1, 3, 4, 5]], raised / raised.sum())
    assert head(unknown=True).noise[2] == 0


def test_only_a_state_that_does_not_see_the_word_predicts_it() -> None:
    network, words = TwoSidedLSTM(width=3, vocab_size=6, clock=Clock()), WordVectors(width=3, vocab_size=6)
    loaded = SimpleNamespace(heads={"noise": head()}, reads={}, network=words)
    assert head_of_kind(loaded, "token_prediction") is None and describe_heads(loaded) == "noise"
    for one in (network, words):
        loaded = SimpleNamespace(heads={"noise": head()}, reads={"noise": {"": "context"}}, network=one)
        assert head_of_kind(loaded, "token_prediction").reads == ("context",) and describe_heads(loaded) == "token_prediction"


class Judging(TargetsAtPositions):
    """An objective of one place that is neither of tokens nor of texts: how hard a word is to read."""

    def __init__(self) -> None:
        super().__init__(set="hardness")
        self.head, self.reads, self.at = torch.nn.Linear(3, 1), ("hidden",), (self.positions_field,)

    def scores(self, states: Any, batch: Any) -> Any:
        return self.head(states["hidden"])

    def loss(self, scores: Any, batch: Any) -> Loss:
        return Loss(scores.sum(), {})


def test_a_head_is_used_for_what_its_objective_declares_and_else_keeps_its_name() -> None:
    heads = {
        "hardness": Judging(),
        "tags": classify(classes=4, width=3, clock=Clock()),
        "tagged": token_labelling(classes=4, set="tags", width=3, clock=Clock()),
        "text": classify(reading="summary", width=3, clock=Clock()),
        "replaced": token_labelling(width=3, clock=Clock()),
        "words": token_prediction(width=3, vocab_size=6),
    }
    loaded = SimpleNamespace(heads=heads, reads={}, network=WordVectors(width=3, vocab_size=6))
    for kind, name in {"relation_prediction": "text", "token_labelling": "replaced", "token_prediction": "words"}.items():
        assert head_of_kind(loaded, kind) is heads[name]
    assert describe_heads(loaded) == "hardness, tagged, tags, text, token_labelling, token_prediction"
