"""Small random systems as a checkpoint gives them, without files."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from cloze.text import Annotations
from tests.making import data, network_of

LAYERS: dict[str, Any] = {"layers": 1, "width": 32, "heads": 2, "feed_forward.inner": 48, "dropout": 0.0}
PLAIN = {"transform": None, "bias": False, "tie": True}
T5 = {
    **LAYERS, "head_width": 16, "norm": "pre", "norm.kind": "rms", "norm.epsilon": 1e-6, "positions": "buckets",
    "positions.buckets": 8, "positions.farthest": 12, "attention.biases": False, "attention.scaled": False,
    "feed_forward.biases": False, "feed_forward.activation": "relu", "initial": "t5",
}  # fmt: skip
BART = {**LAYERS, "positions.max_length": 40, "norm.epsilon": 1e-5, "initial": "normal"}
MASS = {**LAYERS, "positions.max_length": 40, "norm.epsilon": 1e-5, "initial": "normal", "embedding.scaled": True}
WRITERS: dict[str, tuple[dict[str, Any], dict[str, Any], str, tuple[Any, ...]]] = {
    "t5": (T5, {**PLAIN, "scale": True}, "unigram", ("{A} [EOS]", None, "last", "[PAD]")),
    "t5-sentinels": (T5, {**PLAIN, "scale": True}, "t5", ("{A} [EOS]", None, "last", "[PAD]")),
    "bart": (BART, PLAIN, "roberta", ("[CLS] {A} [SEP]", None, "last", "[SEP]")),
    "mass": (MASS, {"tie": True}, "wordpiece", ("[CLS] {A} [SEP]", None, "last")),
}


def load_systems() -> Any:
    """The builders of small systems that the interop tests use, imported once."""
    name = "cloze_interop_systems"
    if name not in sys.modules:
        path = Path(__file__).parent.parent / "interop" / "systems.py"
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None and spec.loader is not None
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


@pytest.fixture(scope="module", autouse=True)
def without_forecast() -> Iterator[None]:
    """Runs measure no memory before their first step, a tenth of a tiny run's time; tests/budget/test_forecast.py does."""
    def as_said(run: Any, recipe: Any, *, rows: int | None, **more: Any) -> None:
        if rows is not None:
            run.data.set_micro_batch(rows)
        run.micro_batch = run.data.micro_batch

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("cloze.runs.preparing.choose_micro_batch", as_said)
        yield


@pytest.fixture(scope="module", autouse=True)
def without_ngrams() -> Iterator[None]:
    """Runs fit no linear model next to the network, a third of a tiny run's time; test_linear.py does."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("cloze.runs.finetuning.measure_result.compare_with_ngrams", lambda *given, **named: None)
        yield


@pytest.fixture(scope="session")
def checkpoint() -> Callable[..., Any]:
    """`checkpoint("bert")` or "gpt2", "electra", …: what `load_checkpoint` gives, with random weights."""

    def make(name: str, **changes: Any) -> Any:
        made = load_systems().system(name, **{"positions.max_length": 40, **changes})
        return SimpleNamespace(
            network=made.network, heads=made.objectives, tokenizer=made.tokenizer, reading=made.reading, order=made.order,
            network_arguments=made.arguments, folder=Path("nowhere"), clock=made.network.clock, reads={}, input_edits=(),
            languages=(), annotations=Annotations(), pictures=None, precision=None, recipe=None,
        )

    return make


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """`folder("bert")`, `folder("bert", layers=2)`: the same system exported, which `load_checkpoint` and the verbs open."""
    from cloze.interop import Card, export_folder

    made: dict[str, Path] = {}

    def export(name: str, **changes: Any) -> Path:
        key = f"{name} {changes}"
        if key not in made:
            system = load_systems().system(name, **{"positions.max_length": 40, **changes})
            made[key] = tmp_path_factory.mktemp("checkpoints") / name
            export_folder(
                made[key], model=system.model(), tokenizer=system.tokenizer, reading=system.reading, card=Card(name)
            )
        return made[key]

    return export


@pytest.fixture(scope="session")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with train.tsv, dev.tsv (single texts) and pairs.csv: animals against weather, learnable from one word."""
    import random

    place = tmp_path_factory.mktemp("tables")
    words = {"animal": ["cat", "dog", "mice"], "weather": ["rain", "river", "night"]}
    chance = random.Random(0)
    rows = []
    for number in range(80):
        label = ("animal", "weather")[number % 2]
        filler = chance.choice(["saw", "on the mat and", "in the garden all", "who dreamed of"])
        rows.append((f"the {chance.choice(words[label])} {filler} the {chance.choice(words[label])}", label))
    for name, part in (("train", rows[:64]), ("dev", rows[64:])):
        lines = [f"{text}\t{label}" for text, label in part]
        (place / f"{name}.tsv").write_text("\n".join(["text\tlabel", *lines]) + "\n")
    pairs = [(a, b, "same" if x == y else "other") for (a, x), (b, y) in zip(rows, rows[3:] + rows[:3], strict=True)]
    pairs += [(a, b, "same") for (a, _), (b, _) in zip(rows, rows[2:] + rows[:2], strict=True)]
    (place / "pairs.csv").write_text("one,two,label\n" + "".join(f"{a},{b},{c}\n" for a, b, c in pairs))
    return place


@pytest.fixture(scope="session")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """`tuned()` and `tuned(pair=True)`: a small BERT with a random head that tells animals from weather, as if fine-tuned.

    `seed` gives another head, `length` what is read of a text.
    """
    import json

    from cloze.interop import Card, PortableHead, export_folder

    systems = load_systems()
    made: dict[tuple[Any, ...], Path] = {}

    def export(*, pair: bool = False, seed: int = 1, length: int = 12) -> Path:
        key = (pair, seed, length)
        if key not in made:
            system = systems.system("bert", **{"positions.max_length": 40})
            arguments = {"set": "label", "classes": 2, "dropout": 0.0, "pool": True}
            with torch.random.fork_rng():
                torch.manual_seed(seed)
                given = {"width": 16, "vocab_size": system.tokenizer.size, "table": None, "clock": system.network.clock}
                head = systems.objective("relation_prediction", arguments, given)
                torch.nn.init.normal_(head.head.get_submodule("output").weight, std=2.0)
            model = system.model()
            model.heads["classification"] = PortableHead("relation_prediction", arguments, head.state_dict())
            made[key] = tmp_path_factory.mktemp("tuned") / "tuned"
            export_folder(
                made[key], model=model, tokenizer=system.tokenizer, reading=system.reading, card=Card("tuned"),
                labels=("animal", "weather"),
            )
            described = {
                "version": 1, "task": "pair_classification" if pair else "sentence_classification",
                "columns": {"text": "text", "text_b": "text_b" if pair else None, "label": "label"},
                "labels": ["animal", "weather"], "head": "classification", "length": length, "dev": {"accuracy": 0.75},
                "baseline": {"always": "animal", "accuracy": 0.5},
            }
            (made[key] / "cloze" / "task.json").write_text(json.dumps(described))
        return made[key]

    return export


@pytest.fixture(scope="session")
def writer(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """`writer("t5")`, "bart" or "mass": a random encoder-decoder of that kind as a folder."""
    from cloze.interop import Card, PortableHead, PortableModel, Reading, export_folder
    from cloze.networks import Clock

    systems = load_systems()
    made: dict[str, Path] = {}

    def export(name: str) -> Path:
        if name not in made:
            arguments, head, kind, reading = WRITERS[name]
            pieces = systems.tokenizer(kind)
            with torch.random.fork_rng():
                torch.manual_seed(0)
                network = network_of("encoder_decoder", **arguments, vocab_size=pieces.size, clock=Clock())
                given = {"width": 32, "vocab_size": pieces.size, "table": network.token_tables["tokens"], "clock": network.clock}
                objective = systems.objective("token_prediction", head, given)
                if objective.head.bias is not None:
                    torch.nn.init.normal_(objective.head.bias, std=0.01)
            heads = {"words": PortableHead("token_prediction", head, objective.state_dict())}
            model = PortableModel(data("encoder_decoder", **arguments), "open", network.state_dict(), heads, "encoder_decoder")
            made[name] = tmp_path_factory.mktemp("writers") / name
            export_folder(made[name], model=model, tokenizer=pieces, reading=Reading(*reading), card=Card(name))
        return made[name]

    return export


@pytest.fixture
def cloze(capsys: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    """Run a command line: exit code, standard output, standard error."""

    def run(*arguments: Any) -> Any:
        from cloze.cli.main import main

        capsys.readouterr()  # what fixtures printed is not the command's
        code = main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return SimpleNamespace(code=code, out=captured.out, err=captured.err)

    return run
