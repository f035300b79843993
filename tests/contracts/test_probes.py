"""Probes on every kind of network: they measure it, or say in words why not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from cloze.checkpoint.build import load_checkpoint
from cloze.cli.look.probe import KINDS, command
from cloze.compression.speed import TimedNetwork, measure
from cloze.errors import UserError
from cloze.probes.gates import families
from cloze.probes.geometry import Sampled, geometry
from cloze.probes.heads import importance
from cloze.probes.losses import text_examples
from tests.contracts.test_changes import SYSTEMS

ROOT = Path(__file__).parents[2]
TEXTS = ["the cat saw the river", "the rain on the garden", "a dog and the cat in the night", "the river and the rain"]


@pytest.mark.parametrize("kind", KINDS)
def test_every_probe_is_in_the_help_and_in_the_documents(kind: str) -> None:
    assert f"\n    {kind} " in (command.__doc__ or "")
    assert f"cloze probe {kind} " in (ROOT / "docs" / "inside.md").read_text(encoding="utf-8")
    commands = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8").splitlines()
    assert any("`cloze probe" in line and kind in line for line in commands)
    tests = [*(ROOT / "tests" / "probes").glob("test_*.py"), ROOT / "tests" / "docs" / "test_inside.py"]
    assert any(f'"{kind}"' in path.read_text(encoding="utf-8") for path in tests)


@pytest.mark.parametrize("name", ["bert", "gpt2", "t5-small", "xlnet-base", "lstm", "elmo", "cove", "mamba", "word2vec-cbow"])
def test_geometry_measures_every_network_that_reads_words(name: str, start: Callable[[str], Path]) -> None:
    found = geometry(load_checkpoint(start(name)), TEXTS, Sampled(least=2))
    own = found.measures["self-similarity"]
    assert "the" in found.words and np.isfinite(own).all()
    if name in ("lstm", "elmo", "cove", "word2vec-cbow", "xlnet-base"):  # the input is a table: it knows no positions
        assert own[0] == pytest.approx(1.0, abs=1e-6)
    if name != "word2vec-cbow":
        assert own[-1] < 1 - 1e-6 or len(own) == 1
    else:
        assert len(own) == 1


@pytest.mark.parametrize("name", [name for name in SYSTEMS if name != "word2vec-cbow"])
def test_every_network_that_reads_texts_is_timed(name: str, start: Callable[[str], Path]) -> None:
    loaded = load_checkpoint(start(name))
    subject = TimedNetwork(name, loaded.network, loaded.order, vocab_size=loaded.imported.vocab_size)
    (row,) = measure([subject], lengths=[4], batches=[2], formats=["fp32"], rounds=2)
    assert row.median > 0 and row.flops > 0 and not row.fault


@pytest.mark.parametrize("name", ["bert", "gpt2", "t5-small", "transformer-xl", "xlnet-base", "zen"])
def test_heads_of_every_network_with_attention_have_an_importance_that_the_batch_does_not_change(
    name: str, start: Callable[[str], Path]
) -> None:
    loaded = load_checkpoint(start(name))
    texts = [f"{text}\tthe {text[-5:]}" for text in TEXTS] if name == "t5-small" else TEXTS
    examples = text_examples(loaded, texts)
    one, many = importance(examples, size=1), importance(examples, size=3)
    assert list(one) == [kind.argument for kind in families(loaded.network)]
    for kind in families(loaded.network):
        assert one[kind.argument].shape == (kind.layers, kind.heads) and (one[kind.argument] > 0).all()
        np.testing.assert_allclose(many[kind.argument], one[kind.argument], rtol=2e-2, atol=1e-6)


def test_a_network_that_answers_texts_is_told_of_no_option_that_probes_lack(start: Callable[[str], Path]) -> None:
    with pytest.raises(UserError, match=r"Write TEXT<tab>TARGET\.$"):
        text_examples(load_checkpoint(start("t5-small")), ["no tab"])


@pytest.mark.parametrize("name", ["lstm", "elmo", "mamba", "word2vec-cbow"])
def test_networks_without_attention_have_no_heads(name: str, start: Callable[[str], Path]) -> None:
    with pytest.raises(UserError, match="has no attention, and therefore no heads"):
        families(load_checkpoint(start(name)).network)
