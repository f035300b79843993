"""Probes on every kind of network: they measure it, or say in words why not."""

from __future__ import annotations

import inspect
import json
import re
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from typer.main import get_command

from cloze.checkpoint.build import load_checkpoint
from cloze.cli.commands import load_command
from cloze.cli.options import options_of
from cloze.compression.speed import TimedNetwork, measure
from cloze.errors import UserError
from cloze.probes.attention import attention_habits
from cloze.probes.finding import Subject, as_text, plain
from cloze.probes.gates import head_kinds
from cloze.probes.geometry import Sampled, geometry
from cloze.probes.heads import importance
from cloze.probes.losses import text_examples
from cloze.probes.probe import TextProbe
from cloze.recipe.parts import class_of
from cloze.registry import names
from cloze.reports.probe import render
from tests.contracts.test_changes import SYSTEMS

ROOT = Path(__file__).parents[2]
TEXTS = ["the cat saw the river", "the rain on the garden", "a dog and the cat in the night", "the river and the rain"]
PROBES = names("probe")
#: The options that a probe needs, if it does not read --text alone.
OPTIONS: dict[str, dict[str, Any]] = {
    "layers": {"task": "upos=t.conllu,t.conllu"}, "edges": {"task": "t.conllu,t.conllu"},
    "attachments": {"task": "t.conllu,t.conllu", "width": 8}, "attention": {"task": "t.conllu,t.conllu", "rare": 1},
    "description": {"task": "upos=t.conllu,t.conllu"}, "distance": {"task": "t.conllu,t.conllu"},
    "static": {"similarity": ["pairs.txt"]}, "surface": {"points": 3, "grid": 2},
}  # fmt: skip
#: What a probe says of the networks that it cannot measure.
REFUSED = {
    ("heads", "lstm"): "has no attention, and therefore no heads", ("curvature", "lstm"): "is not built of Transformer layers",
    ("heads", "word2vec-cbow"): "has no attention, and therefore no heads",
    **{("attention", name): "has no attention, and therefore no heads" for name in ("lstm", "word2vec-cbow")},
    ("curvature", "word2vec-cbow"): "is not built of Transformer layers",
    ("surface", "word2vec-cbow"): r"has no \[MASK\] and it does not read from left to right: plain text has no loss here",
}  # fmt: skip
TREES = """1\tthe\t_\tDET\t_\t_\t2\tdet\t_\t_\n2\tcat\t_\tNOUN\t_\t_\t3\tnsubj\t_\t_\n3\tsaw\t_\tVERB\t_\t_\t0\troot\t_\t_
4\tthe\t_\tDET\t_\t_\t5\tdet\t_\t_\n5\triver\t_\tNOUN\t_\t_\t3\tobj\t_\t_\n\n"""


@pytest.mark.parametrize("kind", PROBES)
def test_every_probe_has_a_line_of_help_a_section_and_a_test(kind: str) -> None:
    summary = (inspect.getdoc(class_of("probe", kind)) or "").partition("\n")[0].rstrip(".")
    text = get_command(load_command("probe")).help or ""
    assert re.search(rf"\n{kind} +{re.escape(summary[:1].lower() + summary[1:])}\n", text)
    assert f"cloze probe {kind} " in (ROOT / "docs" / "inside.md").read_text(encoding="utf-8")
    tests = [*(ROOT / "tests" / "probes").glob("test_*.py"), ROOT / "tests" / "docs" / "test_inside.py"]
    assert any(f'"{kind}"' in path.read_text(encoding="utf-8") for path in tests)


def test_an_option_that_probes_share_has_one_type_and_one_default() -> None:
    options: dict[str, set[Any]] = defaultdict(set)
    for kind in PROBES:
        for option, parameter in options_of(class_of("probe", kind)).items():
            options[option].add((get_args(parameter.annotation)[0], parameter.default))
    assert {option: declared for option, declared in options.items() if len(declared) > 1} == {}


@pytest.mark.parametrize("name", ["bert", "gpt2", "t5-small", "lstm", "word2vec-cbow"])
@pytest.mark.parametrize("kind", PROBES)
def test_every_probe_measures_every_kind_of_network_or_says_why_not(
    kind: str, name: str, start: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = start(name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("cloze.probes.training.EPOCHS", 1)
    Path("texts.txt").write_text("".join(f"{text}\tthe {text[-5:]}\n" if name == "t5-small" else f"{text}\n" for text in TEXTS))
    Path("t.conllu").write_text(TREES * 2)
    Path("pairs.txt").write_text("cat dog 9\nriver rain 5\ncat river 1\n")
    cls = class_of("probe", kind)
    text = {"text": "texts.txt"} if issubclass(cls, TextProbe) else {}
    small = {"least": 2} if kind == "geometry" else {}
    probe = cls(most=2, batch=3, **text, **small, **OPTIONS.get(kind, {}))
    subjects = [Subject("first", folder, 0), Subject("second", folder, 10)][: 2 if name == "bert" else 1]
    if (kind, name) in REFUSED:
        with pytest.raises(UserError, match=REFUSED[kind, name]):
            probe.run(subjects, lambda subject: load_checkpoint(subject.folder))
        return
    finding = probe.run(subjects, lambda subject: load_checkpoint(subject.folder))
    data = plain(finding.data)
    assert finding.kind == kind and data["first"] == data[subjects[-1].name] and json.dumps(data, allow_nan=False)
    assert finding.tables and all(len(row) == len(table.columns) for table in finding.tables for row in table.rows)
    assert "first" in as_text(finding) and finding.title in render(finding)


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
    assert list(one) == [kind.argument for kind in head_kinds(loaded.network)]
    for kind in head_kinds(loaded.network):
        assert one[kind.argument].shape == (kind.layers, kind.heads) and (one[kind.argument] > 0).all()
        np.testing.assert_allclose(many[kind.argument], one[kind.argument], rtol=2e-2, atol=1e-6)


@pytest.mark.parametrize("name", [
    "bert", "gpt2", "t5-small", "transformer-xl", "xlnet-base", "zen", "ernie-thu", "knowbert", "uniter", "vilbert", "lxmert",
    "cbt", "speechbert",
])  # fmt: skip
def test_attention_of_every_network_with_attention_is_measured(name: str, start: Callable[[str], Path]) -> None:
    loaded = load_checkpoint(start(name))
    habits = attention_habits(loaded, TEXTS)
    assert habits.entropy.shape == (head_kinds(loaded.network)[0].layers, head_kinds(loaded.network)[0].heads)
    assert (habits.shares["same"] > 0).all() and (habits.entropy < habits.uniform + 1e-2).all()


def test_a_network_that_answers_texts_is_told_of_no_option_that_probes_lack(start: Callable[[str], Path]) -> None:
    with pytest.raises(UserError, match=r"Write TEXT<tab>TARGET\.$"):
        text_examples(load_checkpoint(start("t5-small")), ["no tab"])


@pytest.mark.parametrize("name", ["lstm", "elmo", "mamba", "word2vec-cbow"])
def test_networks_without_attention_have_no_heads(name: str, start: Callable[[str], Path]) -> None:
    with pytest.raises(UserError, match="has no attention, and therefore no heads"):
        head_kinds(load_checkpoint(start(name)).network)
