"""Greedy decoding and beam search write what transformers writes, token by token, on random weights."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from cloze.batch import Batch
from cloze.decoding.generating.sampling import Sampling
from cloze.decoding.generating.search import Beams, Limits, beam_search, sample
from cloze.decoding.generating.writing import Answering, Continuing
from cloze.decoding.reader import Reader
from cloze.interop import Card, export_folder
from cloze.reading import Reading

transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.parity

_spec = importlib.util.spec_from_file_location("cloze_parity_seq2seq", Path(__file__).with_name("test_seq2seq.py"))
assert _spec is not None and _spec.loader is not None
seq2seq = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(seq2seq)

FIRST = {"count": 2}, {"first": 17, "min_tokens": 3}
SETTINGS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "plain": ({"count": 4}, {}),
    "long": ({"count": 3, "length_penalty": 2.0}, {}),
    "short": ({"count": 3, "length_penalty": -1.0}, {}),
    "limited": ({"count": 4, "length_penalty": 2.0}, {"min_tokens": 5, "no_repeat": 2}),
    "early": ({"count": 4, "early": True}, {"no_repeat": 1}),
    "never": ({"count": 2, "early": "never"}, {"no_repeat": 3}),
    "one": ({"count": 1}, {}),
    "several": ({"count": 4, "best": 3}, {"repetition_penalty": 1.3}),
    "banned": ({"count": 2}, {"banned": ((12,), (13, 14), (15,)), "repetition_penalty": 0.8}),
}


def wanted(beams: dict[str, Any], limits: dict[str, Any], new: int, **ids: Any) -> Any:
    """The same settings in transformers' words."""
    return transformers.GenerationConfig(
        num_beams=beams["count"], length_penalty=beams.get("length_penalty", 1.0),
        early_stopping=beams.get("early", False), min_new_tokens=limits.get("min_tokens") or None,
        no_repeat_ngram_size=limits.get("no_repeat") or None, max_new_tokens=new, do_sample=False,
        repetition_penalty=limits.get("repetition_penalty"), num_return_sequences=beams.get("best", 1),
        bad_words_ids=[list(one) for one in limits.get("banned", ())] or None, forced_bos_token_id=limits.get("first"),
        return_dict_in_generate=True, output_scores=True, **ids,
    )  # fmt: skip


def clipped(row: torch.Tensor, end: int) -> tuple[int, ...]:
    ids = row.tolist()
    return tuple(ids[: ids.index(end)] if end in ids else ids)


@pytest.fixture(scope="module", params=["t5", "t5-v1.1", "bart", "marian"])
def both(request: pytest.FixtureRequest, systems: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any]:
    """An encoder-decoder and transformers' model of the same weights."""
    made = seq2seq.system(systems, request.param, decoder_layers=2)  # transformers' cache wants as many as the encoder has
    folder = tmp_path_factory.mktemp("both")
    seq2seq.write(folder, made, systems, request.param)
    return made, transformers.AutoModelForSeq2SeqLM.from_pretrained(folder).eval()


@pytest.mark.parametrize("setting", [*SETTINGS, "first"])
def test_beam_search_over_an_encoder_decoder(both: tuple[Any, Any], setting: str) -> None:
    made, model = both
    fields = seq2seq.batch(made.tokenizer.size)
    beams, limits = {**SETTINGS, "first": FIRST}[setting]
    start, end, pad = 1, 9, 0
    config = wanted(beams, limits, 12, decoder_start_token_id=start, eos_token_id=end, pad_token_id=pad)
    out = model.generate(input_ids=fields["tokens"], attention_mask=fields["block"], generation_config=config)
    reader = Reader(made.network, made.tokenizer, Reading(single="{A}", pair=None, summary="last"))
    source = Batch({"tokens": fields["tokens"], "block": fields["block"]})
    first = torch.full((3, 1), start)
    with torch.inference_mode():
        ours = beam_search(
            Answering(reader, made.objective, source), first, new=12, end=end, beams=Beams(**beams), limits=Limits(**limits)
        )
    every = [one for best in ours for one in (best, *best.others)]
    assert [one.ids for one in every] == [clipped(row[1:], end) for row in out.sequences]
    if beams["count"] > 1:
        assert [one.score for one in every] == pytest.approx(out.sequences_scores.tolist(), abs=1e-4)
    else:
        with torch.inference_mode():
            greedy = sample(
                Answering(reader, made.objective, source), first, new=12, end=end, sampling=Sampling(temperature=0),
                uniform=torch.zeros(3, 12), limits=Limits(),
            )  # fmt: skip
        assert [one.ids for one in greedy] == [one.ids for one in ours]


@pytest.fixture(scope="module")
def both_of_gpt2(systems: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any]:
    """A GPT-2 and transformers' model of the same weights."""
    made, folder = systems.system("gpt2", **{"positions.max_length": 40}), tmp_path_factory.mktemp("gpt2")
    export_folder(folder, model=made.model(), tokenizer=made.tokenizer, reading=made.reading, card=Card("test"))
    return made, transformers.AutoModelForCausalLM.from_pretrained(folder).eval()


@pytest.mark.parametrize("setting", SETTINGS)
def test_beam_search_over_a_left_to_right_network(both_of_gpt2: tuple[Any, Any], setting: str) -> None:
    made, model = both_of_gpt2
    beams, limits = SETTINGS[setting]
    end = 9
    tokens = torch.randint(10, 200, (2, 5), generator=torch.Generator().manual_seed(3))
    config = wanted(beams, limits, 12, eos_token_id=end, pad_token_id=0)
    out = model.generate(input_ids=tokens, attention_mask=torch.ones_like(tokens), generation_config=config)
    reader = Reader(made.network, made.tokenizer, made.reading, "left_to_right")
    with torch.inference_mode():
        ours = beam_search(
            Continuing(reader, made.objectives["lm"]), tokens, new=12, end=end, beams=Beams(**beams), limits=Limits(**limits)
        )
    every = [one for best in ours for one in (best, *best.others)]
    assert [one.ids for one in every] == [clipped(row[5:], end) for row in out.sequences]
