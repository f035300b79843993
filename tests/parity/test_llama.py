"""Llama's family against transformers beyond what all architectures are tested for: caches, classes, keys of config.json."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

import cloze
from cloze.checkpoint.build import load_checkpoint
from cloze.decoding.generating.generation import generate
from cloze.decoding.generating.sampling import Sampling
from cloze.decoding.reader import Reader
from cloze.errors import CheckpointError
from cloze.interop import import_folder
from cloze.networks import Cache

transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.parity

NAMES = ("llama", "mistral", "qwen2", "qwen3", "smollm3", "olmo2", "gemma")
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 8, "rope_theta": 100.0}  # fmt: skip


@pytest.fixture
def saved(systems: ModuleType, foreign: ModuleType, tmp_path: Path) -> Any:
    """Saves a model of one architecture with a class and keys of its config; returns the model and the folder."""

    def build(name: str, cls: str | None = None, **changes: Any) -> tuple[Any, Path]:
        kind = foreign.KINDS[name]
        pieces = systems.tokenizer(kind.tokenizer)
        model = foreign.model_of(kind, pieces, cls=cls, **changes)
        return model, foreign.save(model, pieces, tmp_path / "source")

    return build


@pytest.mark.parametrize("name", NAMES)
def test_greedy_texts_are_those_of_transformers_and_the_cache_holds_only_the_heads_of_keys(saved: Any, name: str) -> None:
    model, folder = saved(name, rope_parameters=LLAMA3)
    loaded = load_checkpoint(folder)
    (head,) = loaded.heads.values()
    reader = Reader.of(loaded)
    (written,) = generate(reader, head, ["The cat"], tokens=12, sampling=Sampling(temperature=0.0))
    ids = torch.from_numpy(reader.tokenizer.encode("The cat").ids[None]).long()
    banned = [[number] for number in reader.tokenizer.special_ids.tolist()]
    theirs = model.generate(
        ids, do_sample=False, max_new_tokens=12, eos_token_id=None, pad_token_id=0, bad_words_ids=banned
    )[0, ids.shape[1] :].tolist()
    assert reader.tokenizer.decode(theirs) == written.text
    cache = Cache(3)
    with torch.no_grad():
        loaded.network(want=frozenset({"hidden"}), tokens=ids, order="left_to_right", cache=cache)
    assert {tensor.shape[1] for layer in cache.layers for tensor in layer} == {2}


@pytest.mark.parametrize("name", NAMES)
def test_rows_read_in_pieces_through_the_cache_give_the_states_of_the_whole_row(saved: Any, name: str) -> None:
    loaded = load_checkpoint(saved(name)[1])
    tokens, cache, hidden = torch.arange(5, 17)[None], Cache(3), frozenset({"hidden"})
    with torch.no_grad():
        whole = loaded.network(want=hidden, tokens=tokens, order="left_to_right")["hidden"]
        parts = [
            loaded.network(want=hidden, tokens=tokens[:, start:stop], order="left_to_right", cache=cache,
                           position_ids=torch.arange(start, stop)[None])["hidden"]
            for start, stop in ((0, 5), (5, 6), (6, 12))
        ]  # fmt: skip
    torch.testing.assert_close(torch.cat(parts, 1), whole, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(("name", "prefix"), [
    ("llama", "Llama"), ("mistral", "Mistral"), ("qwen2", "Qwen2"), ("qwen3", "Qwen3"), ("smollm3", "SmolLM3"),
])  # fmt: skip
def test_extractors_keep_the_prefix_of_their_class_both_ways(saved: Any, tmp_path: Path, name: str, prefix: str) -> None:
    model, folder = saved(name, f"{prefix}ForQuestionAnswering")
    assert cloze.load(folder).save(tmp_path / "ours") is not None
    auto = transformers.AutoModelForQuestionAnswering
    again, info = auto.from_pretrained(tmp_path / "ours", output_loading_info=True)
    assert type(again) is type(model) and not any(info[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    ids = torch.arange(5, 17)[None]
    with torch.no_grad():
        there, here = model(ids), again.eval()(ids)
    torch.testing.assert_close(here.start_logits, there.start_logits, atol=1e-6, rtol=0)
    imported = import_folder(folder)
    assert imported.remarks == () and [head.part for head in imported.model.heads.values()] == ["span_extraction"]


@pytest.mark.parametrize(("name", "changes"), [
    ("llama", {"num_key_value_heads": None, "head_dim": None, "rope_parameters": None, "rope_theta": 500.0}),
    ("llama", {"rope_parameters": None, "rope_theta": 77.0, "rope_scaling": {"type": "linear", "factor": 2.5}}),
    ("llama", {"rope_parameters": None, "rope_theta": 77.0,
               "rope_scaling": {key: value for key, value in LLAMA3.items() if key != "rope_theta"}}),
    ("mistral", {"sliding_window": None, "head_dim": None}),
    ("qwen2", {"use_sliding_window": False, "layer_types": None}),
    ("smollm3", {"no_rope_layers": None, "rope_parameters": None}),
])  # fmt: skip
def test_keys_that_are_absent_or_of_older_versions_are_read_as_by_transformers(
    saved: Any, foreign: ModuleType, name: str, changes: dict[str, Any]
) -> None:
    _, folder = saved(name, **({"num_key_value_heads": 4} if "num_key_value_heads" in changes else {}))
    path = folder / "config.json"
    config = {**json.loads(path.read_text()), **changes}
    if changes.get("head_dim", 0) is None and name == "mistral":  # its heads would be twice as wide
        config["head_dim"] = 8
    path.write_text(json.dumps({key: value for key, value in config.items() if value is not None or key == "sliding_window"}))
    model = transformers.AutoModelForCausalLM.from_pretrained(folder).eval()
    foreign.assert_equal(model, folder)


@pytest.mark.parametrize(("name", "changes", "said"), [
    ("llama", {"rope_parameters": {"rope_type": "yarn", "factor": 4.0, "rope_theta": 1e4}}, "rope_type is 'yarn'"),
    ("llama", {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5}},
     "partial_rotary_factor is 0.5; cloze's transformer rotates whole heads"),
    ("llama", {"rope_parameters": {"rope_type": "linear", "rope_theta": 1e4}}, "factor is None; expected a positive number"),
    ("llama", {"num_key_value_heads": "two"}, "num_key_value_heads is 'two'; expected a whole number"),
    ("llama", {"hidden_act": "tanh"}, "hidden_act is 'tanh'"),
    ("qwen2", {"use_sliding_window": True, "sliding_window": 4,
               "layer_types": ["sliding_attention", "full_attention", "sliding_attention"]}, "or in all from one on"),
    ("smollm3", {"no_rope_layers": [0, 1, 1]}, "leaves out the positions of every nth layer"),
])  # fmt: skip
def test_options_that_cloze_lacks_are_refused_by_name(saved: Any, name: str, changes: dict[str, Any], said: str) -> None:
    _, folder = saved(name)
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
    with pytest.raises(CheckpointError, match=said):
        import_folder(folder)


def test_vocabularies_padded_as_qwens_are_read(saved: Any, systems: ModuleType) -> None:
    size = systems.tokenizer("gpt2").size
    assert import_folder(saved("qwen2", vocab_size=512)[1]).vocab_size == 512 > size
    with pytest.raises(CheckpointError, match="the network has vectors for 520"):
        import_folder(saved("qwen2", vocab_size=520)[1])
