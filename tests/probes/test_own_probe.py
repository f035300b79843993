"""`cloze probe` follows from the registered probes: without torch in its help, and with the probes of users' files."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cloze.cli.main import main

PROBE = '''
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import torch
import typer

from cloze.probes.finding import Table
from cloze.probes.probe import TextProbe
from cloze.registry import register


@register("probe", "spread")
@dataclass(frozen=True, kw_only=True)
class Spread(TextProbe[list[str], torch.Tensor]):
    """How far parameters spread."""

    title = "How far do parameters spread?"
    sentences = 70_000

    power: Annotated[float, typer.Option(help="exponent of the distances")] = 2.0

    def read(self):
        return self.texts()

    def measure(self, loaded, material):
        return torch.tensor([len(material), self.power])

    def tables(self, name, figures):
        return [Table(name, ["texts", "power"], [figures.tolist()])]

    def {plots}(self, subjects, results):
        return []

    def data(self, figures):
        return {{"figures": figures}}
'''


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("spread.py").write_text(PROBE.format(plots="plots"))
    Path("t.txt").write_text("a cat\n\na dog\n")
    return tmp_path


def test_help_imports_neither_torch_nor_numpy() -> None:
    code = (
        "import sys; from cloze.cli.main import main; assert main(['probe', '--help']) == 0; "
        "assert not {'torch', 'numpy'} & sys.modules.keys()"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False).stderr == ""


def test_a_probe_of_a_users_file_has_its_help_and_its_options(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["probe", "--with", "spread.py", "--help"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "spread how far parameters spread" in said and "default: 100 to 70,000." in said and "--power" not in said
    assert main(["probe", "spread", "--with", "spread.py", "--help"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "--power <float> exponent of the distances." in said and "--least" not in said
    assert "--text <str> a file with a sentence per line." in said and "of each file; default: 70,000." in said
    assert main(["probe", "geometry", ".", "--power", "3", "--with=spread.py"]) == 2
    assert "geometry does not use --power. Omit it. geometry uses --text, --least, " in capsys.readouterr().err


def test_a_probe_of_a_users_file_measures(
    files: Path, capsys: pytest.CaptureFixture[str], checkpoint: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cloze.checkpoint.build.load_checkpoint", lambda folder, device: checkpoint("bert"))
    assert main(["probe", "spread", ".", "--text", "t.txt", "--power", "3", "--json", "--out", "d", "--with", "spread.py"]) == 0
    assert json.loads(capsys.readouterr().out) == {files.name: {"figures": [2.0, 3.0]}}
    assert json.loads(Path("d/probe.json").read_text())["probe"] == "spread"
    assert "How far do parameters spread?" in Path("d/probe.html").read_text()


def test_a_probe_that_lacks_a_method_says_so(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("spread.py").write_text(PROBE.format(plots="lines"))
    assert main(["probe", "spread", ".", "--text", "t.txt", "--with", "spread.py"]) == 2
    said = capsys.readouterr().err
    assert "probe 'spread': Spread lacks what every probe defines:\n  plots: What to draw" in said
