"""What may be drawn, and how probable it is: as transformers' processors of scores have it."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from cloze.decoding.generating.sampling import Sampling
from cloze.decoding.generating.search import Limits

transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.parity

SAMPLINGS: list[dict[str, Any]] = [
    {"temperature": 0.7}, {"top_k": 5}, {"top_p": 0.8}, {"min_p": 0.1}, {"typical_p": 0.6},
    {"temperature": 1.3, "top_k": 20, "top_p": 0.9, "min_p": 0.05, "typical_p": 0.8},
]  # fmt: skip


@pytest.mark.parametrize("given", SAMPLINGS, ids=[", ".join(one) for one in SAMPLINGS])
def test_sampling_leaves_the_same_tokens_with_the_same_probabilities(given: dict[str, Any]) -> None:
    scores = 3 * torch.randn(50, 40, generator=torch.Generator().manual_seed(0)).double()
    make = {
        "temperature": transformers.TemperatureLogitsWarper, "top_k": transformers.TopKLogitsWarper,
        "top_p": transformers.TopPLogitsWarper, "min_p": transformers.MinPLogitsWarper,
        "typical_p": transformers.TypicalLogitsWarper,
    }  # fmt: skip
    theirs = scores
    for name, value in given.items():
        theirs = make[name](value)(torch.zeros(50, 1, dtype=torch.long), theirs)
    kept, ids = Sampling(**given).kept(scores)
    ours = torch.zeros_like(scores).scatter(1, ids, kept)
    assert torch.allclose(ours, theirs.softmax(-1), atol=1e-9)
    assert (ours > 0).sum() < ours.numel() or "temperature" in given


def test_limits_change_scores_as_processors_do() -> None:
    draw = torch.Generator().manual_seed(1)
    scores, tokens = torch.randn(6, 12, generator=draw), torch.randint(1, 12, (6, 9), generator=draw)
    tokens[0, -1], tokens[1, -2:] = 3, torch.tensor([4, 5])
    ids = {"input_ids": tokens}
    theirs = transformers.RepetitionPenaltyLogitsProcessor(1.4)(scores=scores, **ids)
    theirs = transformers.NoRepeatNGramLogitsProcessor(2)(scores=theirs, **ids)
    theirs = transformers.NoBadWordsLogitsProcessor([[7], [3, 6], [4, 5, 2]], eos_token_id=0)(scores=theirs, **ids)
    theirs = transformers.MinNewTokensLengthLogitsProcessor(4, 8, 0, device="cpu")(scores=theirs, **ids)
    limits = Limits(min_tokens=8, no_repeat=2, repetition_penalty=1.4, banned=((7,), (3, 6), (4, 5, 2)))
    ours = limits.apply(scores, tokens, start=4, end=0)
    assert torch.equal(ours, theirs) and bool((ours[0, 6] == -torch.inf) & (ours[1, 2] == -torch.inf))


def test_the_first_token_is_forced_as_a_target_language_is() -> None:
    scores, tokens = torch.randn(2, 5), torch.zeros(2, 1, dtype=torch.long)
    theirs = transformers.ForcedBOSTokenLogitsProcessor(3)(tokens, scores)
    ours = Limits(first=3).apply(scores, tokens, start=1, end=0)
    assert torch.equal(ours.isinf(), theirs.isinf()) and ours.argmax(1).tolist() == [3, 3]
    later = torch.zeros(2, 2, dtype=torch.long)
    assert torch.equal(Limits(first=3).apply(scores, later, start=1, end=0), scores)
