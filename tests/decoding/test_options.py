"""Options of `generate`: what they do together, and wrong ones."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pytest

from cloze.decoding.generating.generation import generate
from cloze.decoding.generating.options import parts_of
from cloze.decoding.generating.streaming import Streamed
from cloze.decoding.reader import Reader, prediction_head
from cloze.errors import UserError

Make = Callable[..., Any]


@pytest.fixture(scope="module")
def gpt2(checkpoint: Make) -> Any:
    loaded = checkpoint("gpt2", **{"positions.max_length": 64})
    return Reader.of(loaded), prediction_head(loaded, verb="generate")


def written(gpt2: Any, prompt: str, tokens: int = 12, **options: Any) -> list[Any]:
    reader, head = gpt2
    return generate(reader, head, [prompt], tokens=tokens, seed=3, **parts_of(reader, options))


def test_options_that_forbid_nothing_write_what_no_options_write(gpt2: Any) -> None:
    (plain,), (made,) = written(gpt2, "The cat"), written(gpt2, "The cat", repetition_penalty=1.0, ban=[], stop=[], top_k=None)
    assert made == plain
    (limited,) = written(gpt2, "The cat", stop=["never written"])
    assert limited == plain


def test_a_banned_word_is_not_written_and_the_first_token_is(gpt2: Any) -> None:
    reader, _ = gpt2
    (plain,) = written(gpt2, "The cat")
    texts = {one: reader.tokenizer.decode([one]) for one in plain.ids}
    token, word = next((one, text) for one, text in texts.items() if reader.tokenizer.encode(text).ids.tolist() == [one])
    (made,) = written(gpt2, "The cat", ban=[word])
    assert token in plain.ids and token not in made.ids
    assert written(gpt2, "The cat", ban=word)[0].ids == made.ids  # one string, not its letters
    (begun,) = written(gpt2, "The cat", first=word)
    assert begun.ids[0] == token


def test_a_text_ends_behind_the_stop_string_that_comes_first(gpt2: Any) -> None:
    (plain,) = written(gpt2, "The cat")
    middle = plain.text[4:7]
    (made,) = written(gpt2, "The cat", stop=["no such text", middle])
    assert made.stopped == "stop" and len(made.ids) < len(plain.ids)
    assert made.text == plain.text[: plain.text.index(middle) + len(middle)]
    assert written(gpt2, "The cat", stop=middle)[0].text == made.text


def test_the_best_beams_come_in_the_order_of_their_scores(gpt2: Any) -> None:
    made = written(gpt2, "The cat", 5, beams=4, best=3)
    (alone,) = written(gpt2, "The cat", 5, beams=4)
    assert made[0] == alone and len({one.ids for one in made}) == 3
    assert [one.score for one in made] == sorted((one.score for one in made), reverse=True)


@pytest.mark.parametrize("stop", [[], ["e"], ["zzz"]])
def test_what_is_streamed_is_the_prompt_and_the_text(gpt2: Any, stop: list[str]) -> None:
    reader, head = gpt2
    file, sizes = io.StringIO(), []
    shown = Streamed(reader, "The cat", stop=stop, file=file)

    def told(ids: list[int]) -> None:
        shown(ids)
        sizes.append(len(file.getvalue()))

    (made,) = generate(reader, head, ["The cat"], tokens=12, seed=3, on_tokens=told, stop=stop)
    shown.close()
    assert file.getvalue() == "The cat" + made.text + "\n"
    assert len(made.ids) == 1 or sizes[0] < sizes[-1]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"tempo": 1.0}, "tempo: no option of generate"), ({"best": 2}, "only a beam search"),
        ({"beams": 2, "best": 3}, "3 texts from 2 beams"), ({"beams": 2, "stop": ["x"]}, "stop does not work with beam search"),
        ({"repetition_penalty": 0.0}, "repetition-penalty 0.0"), ({"ban": [""]}, "at least one token"),
        ({"first": "a word and more"}, "expected a text of exactly one"), ({"min_p": 2.0}, "min-p 2.0"),
        ({"stop": ["."], "length_penalty": 2.0}, "length_penalty and early are for beam search. Add beams=4"),
        ({"early": True}, "Add beams=4"), ({"stop": ["x", ""]}, "at least one character"),
        ({"min_tokens": 13}, "min_tokens=13 is more than tokens=12"),
    ],
)  # fmt: skip
def test_wrong_options_say_what_is_expected(gpt2: Any, options: dict[str, Any], told: str) -> None:
    with pytest.raises(UserError, match=told):
        written(gpt2, "The cat", **options)
