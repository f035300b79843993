"""A compressed or distilled folder opens in transformers, in the usual class, and computes the same there.

`CLOZE_PYTHON_WITH_TRANSFORMERS_4` names a Python with transformers 4.57, which opens the same folders.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pytest
import torch
from safetensors.torch import load_file

from cloze.checkpoint.bound import BoundCheckpoints
from cloze.checkpoint.build import build_step, load_checkpoint
from cloze.checkpoint.publish import Publisher
from cloze.checkpoint.warm_start import load_origins
from cloze.compression.compress import compress
from cloze.networks.network import TokenSequence
from cloze.recipe.load import load_recipe

transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.parity

PYTHON = os.environ.get("CLOZE_PYTHON_WITH_TRANSFORMERS_4", "")
HEADS = ("prune_heads", {"heads": [[0, 1], [1, 0]]})
SPARSE = [("sparsify", {"share": 0.5, "embeddings": True}), ("quantise", {"bits": 8, "groups": 2})]
TOKENS = torch.arange(5, 17)[None]


class Case(NamedTuple):
    """A system, its tokenizer, its class of transformers, and how it is compressed; None: by the recipe distilbert."""

    name: str
    kind: str
    cls: str
    changes: list[Any] | None
    values: tuple[str, ...] = ()


CASES = [
    Case("bert", "wordpiece", "BertModel", [("keep_layers", {"layers": [1]}), *SPARSE]),
    Case("bert", "wordpiece", "BertModel", [HEADS]),
    Case("bert", "wordpiece", "BertModel", [("quantise", {"bits": [2, 4], "symmetric": False, "embeddings": 8})]),
    Case("bert", "wordpiece", "DistilBertModel", None),
    Case(
        "ib-bert", "wordpiece", "MobileBertModel",
        [("keep_layers", {"layers": [1]}), ("prune_heads", {"heads": [[0, 1]]}), *SPARSE],
        ("network.bottleneck.reads=shared", "network.norm.kind=none", "network.feed_forwards=2", "network.embedding.width=16"),
    ),
    Case("gpt2", "gpt2", "GPT2Model", [HEADS, *SPARSE]),
    Case("modern", "roberta", "ModernBertModel", SPARSE),
    Case("quick-gpt", "gpt2", "ModernBertDecoderModel", SPARSE),
    Case("albert-base", "unigram", "AlbertModel", SPARSE),
    Case("xlnet-base", "unigram", "XLNetModel", [HEADS, *SPARSE]),
    Case("t5-small", "t5", "T5Model", [HEADS, ("prune_heads", {"heads": [[0, 0]], "of": "crossing"}), *SPARSE]),
]


class Small(NamedTuple):
    """A compressed folder, the name of its class, the tokens of its decoder, and its states before and after."""

    folder: Path
    cls: str
    decoder: torch.Tensor | None
    before: torch.Tensor
    after: torch.Tensor


@pytest.fixture(scope="module")
def small(systems: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> list[Small]:
    """Every case, made once."""
    made = []
    for case in CASES:
        folder, pieces = tmp_path_factory.mktemp(case.name), systems.tokenizer(case.kind)
        recipe = load_recipe(case.name, size="tiny", overrides=case.values)
        Publisher(recipe, pieces)(folder / "run", build_step(recipe, vocab_size=pieces.size).state_dict(), 0)
        if case.changes is None:
            distil(folder / "run", folder / "small", pieces)
        else:
            compress(folder / "run", folder / "small", case.changes)
        decoder = TOKENS[:, :4] if case.name == "t5-small" else None
        both = [states(folder / name, decoder) for name in ("run", "small")]
        made.append(Small(folder / "small", case.cls, decoder, *both))
    return made


def distil(teacher: Path, out: Path, pieces: Any) -> None:
    """Publish the student of the recipe distilbert as it begins."""
    recipe = load_recipe("distilbert", checkpoints=BoundCheckpoints({"teacher": teacher}))
    step = build_step(recipe, vocab_size=pieces.size, to_be_loaded=frozenset(recipe.networks), tokenizer=pieces)
    load_origins(step, recipe, dict.fromkeys(recipe.networks, teacher), pieces, resumes=False, say=lambda line: None)
    Publisher(recipe, pieces)(out, step.state_dict(), 0)


def states(folder: Path, decoder: torch.Tensor | None) -> torch.Tensor:
    loaded = load_checkpoint(folder)
    further = {} if decoder is None else {"decoder": TokenSequence(decoder)}
    state = "hidden" if decoder is None else "decoder_hidden"
    with torch.no_grad():
        found: torch.Tensor = loaded.network(want=frozenset({state}), order=loaded.order, tokens=TOKENS, **further)[state]
    return found


@pytest.mark.parametrize("number", range(len(CASES)), ids=[f"{case.cls}-{n}" for n, case in enumerate(CASES)])
def test_a_compressed_network_opens_in_transformers_with_the_same_states(small: list[Small], number: int) -> None:
    one = small[number]
    model, info = getattr(transformers, one.cls).from_pretrained(one.folder, output_loading_info=True)
    assert not [key for key in info["missing_keys"] if "pooler" not in key] and not info["mismatched_keys"]
    given = {} if one.decoder is None else {"decoder_input_ids": one.decoder}
    with torch.no_grad():
        theirs = model.eval()(input_ids=TOKENS, **given).last_hidden_state
    torch.testing.assert_close(one.after, theirs, atol=1e-5, rtol=0)
    assert not torch.allclose(one.after, one.before, atol=1e-3)


@pytest.mark.skipif(not PYTHON, reason="CLOZE_PYTHON_WITH_TRANSFORMERS_4 names no Python")
def test_the_same_folders_open_in_transformers_4(small: list[Small], tmp_path: Path) -> None:
    listed = [
        [str(one.folder), one.cls, TOKENS.tolist(), None if one.decoder is None else one.decoder.tolist()] for one in small
    ]
    (tmp_path / "folders.json").write_text(json.dumps(listed))
    files = [str(tmp_path / name) for name in ("folders.json", "result.safetensors")]
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    script = Path(__file__).parent / "old_folders.py"
    run = subprocess.run([PYTHON, str(script), *files], capture_output=True, text=True, env=environment)
    assert run.returncode == 0, run.stderr[-2000:]
    theirs = load_file(files[1])
    for number, one in enumerate(small):
        torch.testing.assert_close(one.after, theirs[str(number)], atol=1e-5, rtol=0)
