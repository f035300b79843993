"""Pages whose commands are excerpts, run from top to bottom: their files are made here, and budgets and networks are tiny."""

from __future__ import annotations

import glob
import json
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import cloze
from cloze.cli.main import main
from tests.comparison.conftest import Here

from .test_blocks import ROOT, blocks, command_lines

pytestmark = pytest.mark.slow
SAMPLES = Path(cloze.__file__).parent / "samples"
#: Commands that need what a test has not: other hosts, a store elsewhere, the Hub, or folders and files of the reader's own.
ELSEWHERE = ("torchrun", "hf ", "s3://", "/fast", "sentence-transformers/", " DIR ", " POS ", "--train TRAIN", "RANKER")


def write(name: str, text: str) -> None:
    """A file, with its folder."""
    Path(name).parent.mkdir(parents=True, exist_ok=True)
    Path(name).write_text(text, encoding="utf-8")


def write_table(*names: str, rows: int = 12) -> None:
    """Labelled texts of two classes, of which no two files have the same."""
    for name in names:
        lines = [f"{('great', 'terrible')[n % 2]} film {name} {n}\t{('positive', 'negative')[n % 2]}" for n in range(rows)]
        write(name, "\n".join(["text\tlabel", *lines]) + "\n")


def write_tags(*names: str) -> None:
    """Sentences with names, as CoNLL."""
    for name in names:
        write(name, f"Anna B-PER\nlives O\nin O\n{Path(name).stem} B-LOC\n. O\n\n" * 6)


def english() -> str:
    return (SAMPLES / "english.txt").read_text(encoding="utf-8")


def pretrained(recipe: str, out: str, corpus: str, *more: str) -> None:
    """A checkpoint that the page takes for granted."""
    assert main(["pretrain", recipe, "--corpus", corpus, "--budget", "2steps", "--out", out, *more]) == 0


def readme() -> None:
    """The files that README names; `minilm` stands for a folder from the Hub."""
    write("TEXT", english())
    write_table("train.tsv", "dev.tsv", "more.tsv", "test.tsv")
    write_table("topics.tsv", rows=24)
    pretrained("bert", "small-bert", "TEXT", "--size", "tiny")
    assert main(["export", "small-bert", "minilm", "--to", "huggingface"]) == 0


def graphs() -> None:
    """Facts; the known ones include those of the test."""
    facts = (SAMPLES / "facts.tsv").read_text(encoding="utf-8")
    lines = [line for line in facts.splitlines(keepends=True) if "\t" in line]
    write("facts.tsv", "".join(lines))
    for number, name in enumerate(("train", "dev", "test")):
        write(f"{name}.tsv", "".join(lines[number::3]))


def chinese() -> None:
    """Chinese text, lists and a checkpoint."""
    text = (SAMPLES / "chinese.txt").read_text(encoding="utf-8")
    write("TEXT", text)
    write("zh.txt", "我们 昨天 看 了 一部 电影 。\n" * 8 + text)
    for name, place in (("names", "北 B-LOC\n京 I-LOC"), ("dev", "上 B-LOC\n海 I-LOC")):
        write(f"{name}.conll", f"我 O\n爱 O\n{place}\n。 O\n\n" * 6)
    write("my_words.txt", "北京\n天安门\n")
    write("names.txt", "北京\n")
    pretrained("bert-wwm-zh", "RUN", "TEXT", "--size", "tiny")
    shutil.copytree("RUN", "DIR")


def vectors() -> None:
    """Word vectors of a text with the words of the page, and the files of the field."""
    words = ["king", "queen", "man", "woman", "breakfast", "cereal", "dinner", "lunch"]
    write("TEXT", "\n".join(f"{a} and {b} and {a} ." for a in words for b in words) + "\n" + english())
    write("NEW", "a quokka and a numbat . " * 20)
    pretrained("word2vec-cbow", "RUN", "TEXT")
    write("wordsim/a.txt", "king queen 8.5\nman woman 8.0\nlunch dinner 7\nking lunch 1\n")
    write("questions-words.txt", ": family\nking queen man woman\n")
    write("glove.6B.100d.txt", "king 0.1 0.2\nqueen 0.2 0.1\nman 0.3 0.4\n")
    write("ppdb.txt", "king queen\nman woman\n")


def tasks() -> None:
    """Texts, tables, rows about pictures and a checkpoint of each kind."""
    write("TEXT", english())
    write_table("train.tsv", "dev.tsv", "new.tsv", "topic.tsv", "topic-dev.tsv", "mine.tsv", "mine-dev.tsv")
    write_tags("names.conll", "names-dev.conll")
    chains = {"tokens": ["Anna", "saw", "it", ".", "She", "slept"], "clusters": [[[0, 0], [4, 4]]]}
    for name in ("chains.jsonl", "chains-dev.jsonl"):
        write(name, (json.dumps(chains) + "\n") * 4)
    for name in ("nli.tsv", "nli-dev.tsv"):
        rows = [f"a {n} {name}\tb {n}\t{('yes', 'no')[n % 2]}" for n in range(8)]
        write(name, "\n".join(["text\ttext_b\tlabel", *rows]) + "\n")
    pretrained("bert", "CHECKPOINT", "TEXT", "--size", "tiny")
    shutil.copyfile(SAMPLES / "scenes.npz", "features.npz")
    scenes = [json.loads(line) for line in (SAMPLES / "scenes.jsonl").read_text(encoding="utf-8").splitlines()][:12]
    for number, name in enumerate(("train", "dev", "test", "new")):
        lines = [
            json.dumps({"image": row["image"], "text": f"a picture {number} {n}", "label": "ab"[n % 2]})
            for n, row in enumerate(scenes)
        ]
        write(f"{name}.jsonl", "\n".join(lines) + "\n")
    assert main([
        "corpus", "build", str(SAMPLES / "scenes.jsonl"), "--items", "regions=features.npz", "--recipe", "visualbert",
        "--size", "120", "--out", "STORE",
    ]) == 0  # fmt: skip
    pretrained("visualbert", "RUN", "STORE", "--size", "tiny")


PREPARED: dict[str, Callable[[], None]] = {
    "README.md": readme, "docs/graphs.md": graphs, "docs/chinese.md": chinese, "docs/vectors.md": vectors, "docs/tasks.md": tasks,
}
#: Words of commands, and what stands in their place.
SMALLER = {"--seeds": "1", "--budget": "2steps", "--epochs": "1", "--count": "5", "--restrict": "100", "--add": "3"}


def smaller(words: list[str]) -> list[str]:
    """A command with smaller numbers and without what would train for long."""
    short = [SMALLER.get(before, word) for before, word in zip(["", *words], words, strict=False)]
    if words[0] in ("pretrain", "best") and "--budget" not in words:
        short += ["--budget", "2steps"]
    if words[0] == "compare":
        short += ["--tune", "training.epochs=1"]
    if words[0] == "finetune":
        short += ["--set", "training.epochs=1"] if "--first" not in words else []
    return [path for word in short for path in (sorted(glob.glob(word)) if "*" in word and glob.glob(word) else [word])]


def run_line(line: str) -> int:
    """The exit code of a command; a pipe runs in a shell."""
    if "|" in line:
        return subprocess.run(line.replace("cloze ", f"{sys.executable} -m cloze ", 1), shell=True, check=False).returncode
    return main(smaller(shlex.split(line, comments=True)[1:]))


@pytest.mark.parametrize("page", PREPARED)
def test_the_commands_of_the_page_run_from_top_to_bottom(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("cloze.jobs.workers_on", lambda place, count: Here())
    PREPARED[page]()
    failed = []
    for block in blocks(ROOT / page):
        if block.language in ("", "sh"):
            for line in command_lines(block):
                capsys.readouterr()
                if not any(mark in line for mark in ELSEWHERE) and run_line(line) != 0:
                    failed.append(f"{block.place}: {line}\n{capsys.readouterr().err}")
    assert not failed, "\n".join(failed)


def test_the_python_block_of_the_readme_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (code,) = (block.code for block in blocks(ROOT / "README.md") if block.language == "python")
    code = re.sub(r'budget="\w+"', 'budget="2steps"', code)
    rows = [(f"a {('fine', 'dull')[n % 2]} film {n}", ("good", "bad")[n % 2]) for n in range(20)]
    names = {"texts": english().splitlines(), "rows": rows}
    exec(compile(code, "README.md", "exec"), names)
    assert names["classifier"].labels == ("bad", "good")
