"""Continuing texts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from cloze.decoding.generating.generation import generate
from cloze.decoding.generating.sampling import Sampling
from cloze.decoding.reader import Reader, prediction_head
from cloze.errors import UserError

Make = Callable[..., Any]
PROMPTS = ["The cat", "Rain fell on the garden all night", "", "A dog"]


@pytest.fixture(scope="module")
def gpt2(checkpoint: Make) -> Any:
    loaded = checkpoint("gpt2", **{"positions.max_length": 64})
    return Reader.of(loaded), prediction_head(loaded, verb="generate")


def test_greedy_is_the_argmax_of_a_full_forward_pass(gpt2: Any) -> None:
    reader, head = gpt2
    (made,) = generate(reader, head, ["The cat"], tokens=6, sampling=Sampling(temperature=0))
    ids = reader.tokenizer.encode("The cat").ids.tolist()
    for token in made.ids:
        with torch.inference_mode():
            hidden = reader.network(want=frozenset({"hidden"}), tokens=torch.tensor([ids]), order="left_to_right")["hidden"]
            assert int(head.head(hidden[:, -1]).argmax()) == token
        ids.append(token)
    assert made.stopped == "count" and made.text == reader.tokenizer.decode(ids)[len("The cat") :]


def test_the_cache_changes_nothing(gpt2: Any) -> None:
    reader, head = gpt2
    given = {"tokens": 10, "sampling": Sampling(top_p=0.9), "seed": 3}
    assert generate(reader, head, PROMPTS, **given) == generate(reader, head, PROMPTS, cache=False, **given)


def test_a_continuation_does_not_depend_on_its_batch(gpt2: Any) -> None:
    reader, head = gpt2
    together = generate(reader, head, PROMPTS, tokens=8, seed=5)
    assert together == generate(reader, head, PROMPTS, tokens=8, seed=5, rows=1)
    assert together != generate(reader, head, PROMPTS, tokens=8, seed=6)
    longer = generate(reader, head, PROMPTS, tokens=12, seed=5)
    assert [one.ids[:8] for one in longer] == [one.ids for one in together]


def test_equal_prompts_are_continued_differently(gpt2: Any) -> None:
    reader, head = gpt2
    made = generate(reader, head, ["The cat"] * 4, tokens=8)
    assert len({one.ids for one in made}) == 4


def test_the_end_token_stops_a_row_and_is_left_out(gpt2: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    reader, head = gpt2
    (made,) = generate(reader, head, ["The cat"], tokens=6, sampling=Sampling(temperature=0))
    roles = {**reader.tokenizer.roles, "[EOS]": made.ids[2]}
    monkeypatch.setattr(reader.tokenizer, "roles", roles)
    stopped, other = generate(reader, head, ["The cat", "A dog barks"], tokens=6, sampling=Sampling(temperature=0))
    assert stopped.stopped == "end" and stopped.ids == made.ids[: made.ids.index(made.ids[2])]
    assert len(other.ids) == 6 or other.stopped == "end"


def test_a_model_with_an_end_token_writes_it_where_it_is_likeliest(gpt2: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The end is special, but of all special tokens the one that may be written."""
    reader, head = gpt2
    (made,) = generate(reader, head, ["The cat"], tokens=1, sampling=Sampling(temperature=0))
    monkeypatch.setattr(reader.tokenizer, "roles", {**reader.tokenizer.roles, "[EOS]": made.ids[0]})
    monkeypatch.setattr(reader.tokenizer, "special_ids", np.array([made.ids[0]]))
    (ended,) = generate(reader, head, ["The cat"], tokens=6, sampling=Sampling(temperature=0))
    assert (ended.stopped, ended.ids) == ("end", ())


def test_what_is_predicted_inside_a_prompt_ends_nothing(gpt2: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of a batch begin with the tokens that the shortest prompt has: a longer one is read on, whatever is likelier there."""
    reader, head = gpt2
    long = "The cat sat on the mat"
    start = reader.tokenizer.encode(long).ids.tolist()
    first = reader.tokenizer.encode("The cat").ids.tolist()
    assert start[: len(first)] == first
    greedy = Sampling(temperature=0)
    (inside,) = generate(reader, head, ["The cat"], tokens=1, sampling=greedy)
    monkeypatch.setattr(reader.tokenizer, "roles", {**reader.tokenizer.roles, "[EOS]": inside.ids[0]})
    short, made = generate(reader, head, ["The cat", long], tokens=4, sampling=greedy)
    (alone,) = generate(reader, head, [long], tokens=4, sampling=greedy)
    assert short.stopped == "end" and made == alone and alone.ids


def test_the_networks_max_length_is_respected(gpt2: Any) -> None:
    reader, head = gpt2
    (made,) = generate(reader, head, ["The cat"], tokens=500, seed=1)
    start = len(reader.tokenizer.encode("The cat").ids)
    assert made.stopped == "max_length" and start + len(made.ids) == 64
    with pytest.raises(UserError, match="reads at most 64"):
        generate(reader, head, ["cat " * 100])
