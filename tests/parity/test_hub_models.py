"""The table of models in docs/models.md: each cell is what a command does with a random folder of that model's shape.

The folders are made by transformers' own classes (`foreign.py`), two layers deep; a cell says yes where the verb ends well.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from cloze.cli.main import main
from cloze.interop.architecture import ARCHITECTURES
from cloze.interop.not_read import NOT_READ

transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.parity

PAGE = Path(__file__).parents[2] / "docs" / "models.md"
VERBS = ("opens", "fine-tunes", "continues", "compresses", "probes", "exports")
#: Tokenizers that have all special tokens of the published models, which training needs.
AS_PUBLISHED = {"xlnet": "xlnet", "t5": "t5-100", "mt5": "t5-100", "umt5": "t5-100"}
TRANSLATORS = ("m2m_100", "marian", "pegasus")  # continue on translations
WORDS = ("the", "cat", "sleeps", "on", "a", "mat", "and", "dreams", "of", "mice", "while", "rain", "fell", "in", "a", "garden")


def rows() -> list[dict[str, str]]:
    """The rows of the table, by the heads of its columns."""
    lines = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("|")]
    heads, _, *body = ([cell.strip() for cell in line.strip("|").split("|")] for line in lines)
    return [dict(zip(heads, cells, strict=True)) for cells in body]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    """Some text, labelled rows, and pairs of an input and an output."""
    folder = tmp_path_factory.mktemp("files")
    texts = [" ".join(WORDS[(i * k + i) % len(WORDS)] for i in range(6)) for k in range(1, 25)]
    contents = {
        "text.txt": "\n\n".join(f"{text}. {text[::-1]}." for text in texts),
        "labels.tsv": "\n".join(["text\tlabel", *(f"{text}\t{'yes' if i % 2 else 'no'}" for i, text in enumerate(texts))]),
        "pairs.tsv": "\n".join(["text\ttarget", *(f"{text}\t{text.split()[0]}" for text in texts)]),
        "lines.txt": "\n".join(texts * 2),
        "translations.tsv": "\n".join(["en\tfr", *(f"{text}\t{text[::-1]}" for text in texts)]),
    }
    for name, content in contents.items():
        (folder / name).write_text(content + "\n", encoding="utf-8")
    return {name: folder / name for name in contents}


class Commands:
    """The commands of the columns, on the folder of one model."""

    def __init__(self, name: str, model: Path, out: Path, files: Mapping[str, Path]) -> None:
        self.model, self.out, self.files, self.writes = model, out, files, ARCHITECTURES[name].part == "encoder_decoder"
        self.text = files["translations.tsv" if name in TRANSLATORS else "text.txt"]

    def tune(self, out: Path) -> int:
        task = "text_to_text" if self.writes else "sentence_classification"
        rows = str(self.files["pairs.tsv" if self.writes else "labels.tsv"])
        return main([
            "finetune", str(self.model), "--task", task, "--train", rows, "--dev", rows, "--out", str(out), "--no-baselines",
            "--set", "training.epochs=1", "--set", "training.batch=8",
        ])  # fmt: skip

    def run(self, verb: str) -> int:
        """The exit code of the commands of a column."""
        model, out = str(self.model), str(self.out / verb)
        if verb == "opens":
            return main(["show", model]) or main(["import", model, "--out", out])
        if verb == "fine-tunes":
            return self.tune(Path(out))
        if verb == "continues":
            imported = str(self.out / "opens")
            return main([
                "pretrain", imported, "--init", imported, "--corpus", str(self.text), "--budget", "2steps", "--out", out, "--set",
                "training.batch=4",
            ])  # fmt: skip
        if verb == "compresses":
            return main(["compress", model, "--magnitude", "0.5", "--bits", "8", "--out", out])
        if verb == "probes":
            return main(["probe", "cka", model, "--text", str(self.files["lines.txt"]), "--out", out])
        code = main(["export", str(self.out / "fine-tunes"), out, "--to", "huggingface"])
        (written,) = json.loads((Path(out) / "config.json").read_text(encoding="utf-8"))["architectures"]
        _, info = getattr(transformers, written).from_pretrained(out, output_loading_info=True)
        return code or len(info["missing_keys"]) + len(info["unexpected_keys"]) + len(info["mismatched_keys"])


#: Those that `make test` tries; all others are tried by `make slow`.
COMMON = ("bert", "deberta-v2", "esm", "llama", "marian", "mpnet")


def kinds() -> list[Any]:
    """Each `model_type` of the table once."""
    names = dict.fromkeys(row["network"].strip("`") for row in rows() if row["opens"] == "yes")
    return [name if name in COMMON else pytest.param(name, marks=pytest.mark.slow) for name in names]


@pytest.mark.parametrize("name", kinds())
def test_each_command_does_with_a_model_what_the_table_says(
    systems: ModuleType, foreign: ModuleType, files: Mapping[str, Path], tmp_path: Path, name: str
) -> None:
    kind = foreign.KINDS[name]
    pieces = systems.tokenizer(AS_PUBLISHED.get(name, kind.tokenizer))
    foreign.save(foreign.model_of(kind, pieces), pieces, tmp_path / "model")
    commands = Commands(name, tmp_path / "model", tmp_path, files)
    (row, *_) = (row for row in rows() if row["network"] == f"`{name}`")
    ends_well = {verb: commands.run(verb) == 0 for verb in VERBS}
    assert ends_well == {verb: row[verb] == "yes" for verb in VERBS}


def test_the_table_has_thirty_models_and_says_no_where_cloze_has_no_such_network() -> None:
    names = [row["model"] for row in rows()]
    assert len(names) == len(set(names)) >= 30 and all(re.fullmatch(r"`[\w.-]+/[\w.-]+`", name) for name in names)
    for row in rows():
        assert (row["network"].strip("`") in ARCHITECTURES) == (row["opens"] == "yes"), row
        assert all(row[verb] in ("yes", "no") for verb in VERBS), row


@pytest.mark.parametrize("name", dict.fromkeys(row["network"].strip("`") for row in rows() if row["opens"] == "no"))
def test_a_network_that_cloze_lacks_is_refused_with_what_it_has(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": name}), encoding="utf-8")
    (tmp_path / "model.safetensors").write_bytes(b"")
    assert main(["import", str(tmp_path), "--out", str(tmp_path / "imported")]) == 2
    assert f"model_type '{name}': cloze has no such network. It {NOT_READ[name]}." in capsys.readouterr().err


def test_models_of_one_network_have_equal_rows() -> None:
    by_kind: dict[str, set[tuple[str, ...]]] = {}
    for row in rows():
        by_kind.setdefault(row["network"], set()).add(tuple(row[verb] for verb in VERBS))
    assert all(len(cells) == 1 for cells in by_kind.values()), by_kind
