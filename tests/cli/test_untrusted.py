"""Files of others: nothing in them hangs, blows up, or steers the terminal."""

from __future__ import annotations

import io
import json
import os
import pty
from pathlib import Path
from types import SimpleNamespace

import pytest

from cloze.cli.main import describe_error, main
from cloze.corpus.counting.cells import HEADER, CooccurrenceCells
from cloze.corpus.items.features import read_boxes
from cloze.document import read_plain
from cloze.errors import CheckpointError, CorpusError, RecipeError
from cloze.interop import onnx_folder
from cloze.runs.out_folder import has_finished
from cloze.text.apart import read_segmenter
from cloze.training.log import cut_log
from cloze.untrusted import Terminal, guard_terminal, parse_json, visible, without_surrogates


def test_control_characters_are_shown_and_our_colours_pass() -> None:
    assert visible("a\x1b]0;x\x07\tb\n\x9b\u202e") == "a\\x1b]0;x\\x07\tb\n\\x9b\\u202e"
    master, slave = pty.openpty()
    try:
        with Terminal(os.fdopen(slave, "wb"), encoding="utf-8") as stream:
            stream.write("\r\x1b[K3\x1b[2J MB \x1b[1mname\x1b[0m \x1b[2J\x1b]52;c;x\x07\n")
            stream.flush()
            shown = os.read(master, 1000).decode()
    finally:
        os.close(master)
    assert shown == "\r\x1b[K3\\x1b[2J MB \x1b[1mname\x1b[0m \\x1b[2J\\x1b]52;c;x\\x07\r\n"


def test_errors_show_the_control_characters_of_what_they_quote(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine.yaml").write_text('"\\e[2Jkey": 1\n')
    assert main(["check", str(tmp_path / "mine.yaml")]) == 2
    said = capsys.readouterr().err
    assert "\x1b" not in said
    assert "\\x1b[2Jkey" in said


def test_words_of_a_file_cannot_steer_a_terminal_behind_a_pipe(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "words.vec").write_text("3 2\nthe 1 0\nof 0 1\nin 1 1\n")
    (tmp_path / "q").write_text(": s\x1b]0;x\x07ection\nthe of in \x1b]0;x\x07he\n: other\nthe of in the\n")
    (tmp_path / "pairs.tsv").write_text("the\to\x1b[2Jf\t1\nthe\tof\t2\nin\tof\t3\n")
    for option, file in (("--analogies", "q"), ("--similarity", "pairs.tsv")):
        assert main(["evaluate", str(tmp_path / "words.vec"), option, str(tmp_path / file)]) == 0
        said = capsys.readouterr().out
        assert "\x1b" not in said and "unknown: " in said and "\\x1b" in said


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000, "9" * 5000])
def test_json_that_exhausts_the_reader_is_a_fault_of_the_file(text: str) -> None:
    with pytest.raises(json.JSONDecodeError):
        parse_json(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: " + "[" * 500 + "]" * 500, "mine.yaml:1: lists and mappings are nested more than 60 deep"),
        ("mixing: " + "9" * 5000, "expected one of step, row, all"),
        ("a: 0o9", 'unknown key "a"'),
        ("a: &x [1, 2]\n" + "".join(f"b{n}: [{', '.join(['*x'] * 9000)}]\n" for n in range(3)), "aliases unfold to more than"),
    ],
)
def test_recipes_that_exhaust_the_reader_are_refused(
    text: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine.yaml").write_text(text)
    assert main(["check", str(tmp_path / "mine.yaml")]) == 2
    assert message in capsys.readouterr().err


def test_one_deep_line_does_not_stop_a_corpus(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = ['{"text": "One."}'] * 200
    (tmp_path / "a.jsonl").write_text("\n".join([*rows, '{"text": ' + "[" * 100_000, *rows]))
    assert main(["corpus", "check", str(tmp_path / "a.jsonl")]) == 0
    assert "note: records without a readable text, left out: 1" in capsys.readouterr().out


def test_deep_json_is_damage_wherever_it_is_read(tmp_path: Path) -> None:
    for name in (HEADER, "cloze/task.json", "boxes.json", "segmenter.json"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("[" * 100_000)
    assert CooccurrenceCells.open(tmp_path) is None and not has_finished(tmp_path)
    with pytest.raises(CorpusError, match="boxes.json: is not JSON .nested too deeply"):
        read_boxes(tmp_path / "boxes.json")
    with pytest.raises(CheckpointError, match="segmenter.json: cannot be read"):
        read_segmenter(tmp_path)
    log = tmp_path / "log.jsonl"
    log.write_text('{"step": 1}\n' + "[" * 100_000 + "\n")
    cut_log(log, 5)
    assert log.read_text() == '{"step": 1}\n'


@pytest.mark.parametrize("held", [
    "[" * 100_000, "[]",
    '{"cloze/onnx.json": "{}", "a\\u0000.json": "x"}', '{"cloze/onnx.json": "\\ud800"}', '{"cloze/onnx.json": 5}',
])  # fmt: skip
def test_metadata_of_onnx_that_are_no_files_are_refused(monkeypatch: pytest.MonkeyPatch, held: str) -> None:
    metadata = SimpleNamespace(custom_metadata_map={onnx_folder.KEY: held})
    monkeypatch.setattr(onnx_folder, "session_of", lambda path: SimpleNamespace(get_modelmeta=lambda: metadata))
    with pytest.raises(CheckpointError, match="m.onnx: (holds no tokenizer and no task|its metadata are not what cloze writes)"):
        onnx_folder.files_in(Path("m.onnx"))


def test_lone_surrogates_of_json_become_replacement_characters() -> None:
    assert without_surrogates(json.loads('"a\\ud800b\\ud83d\\ude00"')) == "a\ufffdb\U0001f600"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_a_pipe_in_place_of_a_config_does_not_hang(tmp_path: Path) -> None:
    from cloze.interop.files import read_json

    os.mkfifo(tmp_path / "config.json")
    with pytest.raises(CheckpointError, match="not an ordinary file"):
        read_json(tmp_path / "config.json", "a configuration")


def test_links_in_a_circle_are_named(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to(tmp_path / "a")
    try:
        (tmp_path / "a").resolve(strict=True)
    except (RuntimeError, OSError) as error:
        message, code = describe_error(error)
    assert "a" in message and code == 2 and "bug in cloze" not in message


def test_ids_without_pieces_do_not_fill_the_memory(tmp_path: Path) -> None:
    from cloze.text import Normalise, TextSpec, Tokenizer, WordPiece, train

    tokenizer = train(TextSpec(Normalise(lower=True), WordPiece(size=60)), ["the cat sleeps"] * 9)
    tokenizer.save(tmp_path, length=32, frame_single="{A}", frame_pair="{A} {B}")
    file = tmp_path / "tokenizer.json"
    data = json.loads(file.read_text())
    data["model"]["vocab"]["the"] = 999_999_999
    file.write_text(json.dumps(data))
    with pytest.raises(CheckpointError, match="an id is 999,999,999, but there are"):
        Tokenizer.load(tmp_path)


def test_aliases_in_the_recipe_of_a_run_do_not_unfold_in_a_report(tmp_path: Path) -> None:
    from cloze.reports.run import read_recipe

    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12)]
    (tmp_path / "recipe.yaml").write_text("\n".join(lines))
    assert read_recipe(tmp_path / "recipe.yaml")[1] == {}


def test_characters_that_the_encoding_of_the_output_lacks_are_escaped(monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(written, encoding="latin-1"))
    guard_terminal()
    print("é 日本", flush=True)
    assert written.getvalue() == b"\xe9 \\u65e5\\u672c\n"


def test_a_recipe_in_a_folder_that_is_not_utf8_is_named(tmp_path: Path) -> None:
    (tmp_path / "recipe.yaml").write_bytes(b"name: a\xff\n")
    with pytest.raises(RecipeError, match=r"recipe\.yaml: not UTF-8 text \(byte 7\)"):
        read_plain(tmp_path / "recipe.yaml")


def test_output_that_is_no_terminal_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    monkeypatch.setattr("sys.stdout", plain)
    guard_terminal()
    import sys

    assert sys.stdout is plain
