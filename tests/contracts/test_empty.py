"""A text without tokens, such as an empty one, gives numbers or an error in every verb, never NaN, whatever stands next to it."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import cloze
from cloze.errors import ClozeError

KINDS = (
    "bert", "gpt2", "unilm", "t5-small", "transformer-xl", "xlnet-base", "zen", "character-bert", "electra-small", "lstm", "elmo",
    "context2vec", "cove", "skip-thought", "nnlm", "word2vec-skipgram", "quick-gpt",
)
TEXT = "the cat saw the river"


@pytest.mark.parametrize("name", KINDS)
def test_a_text_without_tokens_is_read_or_refused(name: str, start: Callable[[str], Path]) -> None:
    model = cloze.load(start(name))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        if "embed" in model.can:
            vectors = model.embed(["", TEXT, "  "])
            assert np.isfinite(vectors).all()
            np.testing.assert_allclose(vectors[1], model.embed(TEXT), atol=1e-5)
            np.testing.assert_allclose(vectors[0], model.embed(""), atol=1e-5)
            assert model.embed("").shape == model.embed(TEXT).shape
            assert np.isfinite(model.embed(["", TEXT], pooling="max")).all()
        for verb in [verb for verb in ("fill", "generate", "score") if verb in model.can]:
            for texts in ([""], ["", TEXT]):
                try:
                    made = getattr(model, verb)(texts, **({"tokens": 2} if verb == "generate" else {}))
                except ClozeError:
                    continue
                assert len(made) == len(texts)
                assert all(math.isfinite(one.score) for one in made if verb == "score")
