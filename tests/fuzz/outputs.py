"""Spoilt or odd values on their way through: tables that are read as they were written, predictions that are read back, values
that `--set` sets, cards, and what reaches a terminal. Each is right to the letter, or refused."""

from __future__ import annotations

import csv
import io
import json
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

from cloze.cli.main import main
from tests.fuzz.folders import tuned
from tests.fuzz.judging import Fault
from tests.fuzz.targets import NASTY, as_json, legal, target

WORDS = ("a fine film", "déjà vu", "这部电影", "a\ttab", "two\nlines", 'a "quote"', "it's",
         "a,b;c|d", "=SUM(A1)", "[x]", "{}", "nan",
         "NULL", "null", "None", " blank ", "__label__x", "1", "1.0", "true", "\u00a0", "a\u2028b", "#", "-",
         "''", '""', "\\n", "\u202ea", "é", "👩‍👩‍👧", "0")  # fmt: skip
LABELS = ("pos", "neg", "1", "0", "true", "None", "null", "nan", "NaN", "a b", "é", "[x]", "x,y", "x|y", "__label__x", "label",
          "-1", "1.0", "01", "'q'", '"q"', "O", "\u00a0z")  # fmt: skip
STEER = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def rows_of(chance: Random, several: bool = False) -> list[tuple[str, Any]]:
    """Texts with their labels, or with lists of them."""
    def label() -> Any:
        return chance.sample(LABELS, chance.randint(0, 3)) if several else chance.choice(LABELS)

    texts = [f"{chance.choice(WORDS)}{chance.choice(['', ' ' + chance.choice(WORDS)])}" for _ in range(chance.randint(2, 8))]
    return [(text, label()) for text in texts]


def write_rows(path: Path, rows: list[tuple[str, Any]], cell: Any) -> None:
    """A table by the ending of its name, as Python's own libraries write it."""
    if path.suffix == ".parquet":
        from pyarrow import parquet, table

        parquet.write_table(table({"text": [text for text, _ in rows], "label": [label for _, label in rows]}), path)
    elif path.suffix == ".json":
        path.write_text(json.dumps([{"text": text, "label": label} for text, label in rows]))
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps({"text": text, "label": label}) + "\n" for text, label in rows))
    else:
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, delimiter="," if path.suffix == ".csv" else "\t")
            writer.writerows([("text", "label"), *((text, cell(label)) for text, label in rows)])


@target
def labelled_tables(chance: Random, folder: Path) -> None:
    """A table of texts and classes is read with every row, text and class as it was written, or a row is named that cannot be."""
    from cloze.corpus.records import Records
    from cloze.corpus.records.several import ClassesAnswer

    several = chance.random() < 0.5
    rows = rows_of(chance, several)
    path = folder / f"a.{chance.choice(['csv', 'tsv', 'json', 'jsonl', 'parquet'])}"
    write_rows(path, rows, chance.choice([repr, json.dumps]) if several else str)
    if chance.random() < 0.3:
        path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n") if path.suffix == ".jsonl" else path.read_bytes())
    source = Records(answer=ClassesAnswer()) if several else Records()
    said: list[int] = []
    found = list(source.answer.read(path, source.columns, lambda line, why: said.append(line)))
    left = [(text, [one.strip() for one in label] if several else label.strip()) for text, label in rows]
    for record in found:
        answer = list(record.answer) if several else record.answer
        while left and left[0] != (record.texts[0], answer):
            left.pop(0)
        if not left:
            raise Fault(f"{path.name}: {rows!r} were read as {found!r}")
        left.pop(0)
    if len(found) + len(set(said)) < len(rows):
        raise Fault(f"{path.name}: {len(rows)} rows, {len(found)} were read, and {said} refused: {rows!r}")


@target
def fasttext_lines(chance: Random, folder: Path) -> None:
    """Lines of fastText are read with every class and text as they were written."""
    from cloze.corpus.readers.fasttext import fasttext_rows

    names = [name for name in LABELS if not re.search(r"\s|__label__", name)]
    rows = [(chance.sample(names, chance.randint(1, 3)), " ".join(re.sub("[\n\r\t\u2028]", " ", chance.choice(WORDS)).split(" ")))
            for _ in range(chance.randint(1, 6))]  # fmt: skip
    rows = [(labels, text.strip() or "x") for labels, text in rows if not text.startswith("__label__")]
    path = folder / "a.txt"
    path.write_text("".join(f"{''.join(f'__label__{one} ' for one in labels)}{text}\n" for labels, text in rows))
    found = [(list(row.labels), row.text) for row in fasttext_rows(path)]
    if rows and found != rows:
        raise Fault(f"{rows!r} were read as {found!r}")


@target
def written_predictions(chance: Random, folder: Path) -> None:
    """Predictions in any format are read back as they were."""
    from cloze.tasks.kinds.classification import PredictedClass
    from cloze.tasks.kinds.multi_label import LabelSet
    from cloze.tasks.prediction_files import flat_rows, write_predictions

    names = chance.sample(LABELS, chance.randint(1, 5))
    made: list[Any] = []
    for line in range(1, chance.randint(2, 6)):
        shares = {name: chance.random() for name in names}
        text = chance.choice(WORDS)
        made.append(
            PredictedClass(line, text, chance.choice([None, text]), names[0], shares[names[0]], shares) if line % 2
            else LabelSet(line, text, None, chance.sample(names, chance.randint(0, len(names))), shares)
        )  # fmt: skip
    made = [one for one in made if type(one) is type(made[0])]
    form = chance.choice(["jsonl", "json", "csv", "tsv", "parquet"])
    path = folder / f"p.{form}"
    write_predictions(made, path, form)
    records = [one.record() for one in made]
    if form in ("jsonl", "json"):
        text = path.read_text(encoding="utf-8")
        found = json.loads(text) if form == "json" else [json.loads(line) for line in text.split("\n")[:-1]]
        if found != records:
            raise Fault(f"{form}: {records!r} became {found!r}")
        return
    flat = [dict(row) for row in flat_rows(made)]
    columns = list(dict.fromkeys(name for row in flat for name in row))
    if form == "parquet":
        from pyarrow import parquet

        if parquet.read_table(path).to_pylist() != [{name: row.get(name) for name in columns} for row in flat]:
            raise Fault(f"parquet: {flat!r}")
        return
    with path.open(encoding="utf-8", newline="") as file:
        found = list(csv.DictReader(file, delimiter="," if form == "csv" else "\t"))
    expected = [{name: cell_of(row.get(name)) for name in columns} for row in flat]
    if found != expected:
        raise Fault(f"{form}: {expected!r} became {found!r}")


def cell_of(value: Any) -> str:
    """A value as CSV holds it."""
    return "" if value is None else json.dumps(value, ensure_ascii=False) if isinstance(value, (list, tuple)) else str(value)


@target
def set_hashes(chance: Random, folder: Path) -> None:
    """`--set` of a value that a recipe has changes the recipe, or is refused: nothing is dropped."""
    from cloze.checkpoint.checks.check import check_recipe
    from cloze.recipe.load import load_recipe, recipe_names

    name = chance.choice(recipe_names())
    before = load_recipe(name)
    paths: list[tuple[str, Any]] = []

    def walk(value: Any, path: str) -> None:
        if isinstance(value, dict) and value:
            for key, inner in value.items():
                walk(inner, f"{path}.{key}" if path else str(key))
        elif isinstance(value, list) and value and isinstance(value[0], dict):
            for place, inner in enumerate(value):
                walk(inner, f"{path}[{place}]")
        elif path.partition(".")[0] not in ("name", "paper", "notes"):
            paths.append((path, value))

    walk(before.canonical(), "")
    path, value = chance.choice(paths)
    if chance.random() < 0.3 and "." in path:
        path = path.rpartition(".")[0]  # a part or a section
    some = ["jieba", "lora", 0.25, 3, 7, True, [2, 3], ["lora"], {"x": 1}]
    other: Any = chance.choice([chance.choice(NASTY), chance.choice(NASTY), *some])
    if type(value) in (int, float) and chance.random() < 0.6:
        other = type(value)(value * chance.choice([2, 3])) + chance.choice([0, 1])
    text = other if isinstance(other, str) else as_json(other)
    after = load_recipe(name, overrides=[f"{path}={text}"])
    check_recipe(after)
    if after.hash == before.hash and text != (value if isinstance(value, str) else as_json(value)):
        again = after.canonical()
        if again == before.canonical() and not _means(text, value):
            raise Fault(f"{name}: --set {path}={text[:80]!r} leaves {value!r} as it is")


def _means(text: str, value: Any) -> bool:
    """Whether a value of `--set` is another way to write what is there: null for a default, 1.0 for 1, a part for its name."""
    import yaml

    try:
        read = yaml.safe_load(text)
    except yaml.YAMLError:
        return False
    try:
        return bool(read == value or read is None or float(read) == float(value))
    except (TypeError, ValueError):
        return isinstance(read, dict)


@target
def cards(chance: Random, folder: Path) -> None:
    """A model card with hostile text has the front matter, the headings and the links of any other."""
    import yaml

    from cloze.interop import Card, export_folder
    from tests.fuzz.targets import _systems

    hostile = (
        "# H\n", "\n---\nlicense: mit\n---\n", "<script>alert(1)</script>", "[a](javascript:alert(1))", "![](http://x)",
        "```\n# H\n", "</code>", "\x1b[2J", "\u202e", "`", "``` \n", "- x: {", "\n\n## Training\n", "<!-- ", "&lt;script&gt;",
        "|a|\n|-|\n", "\r# H", "<img src=x onerror=y>", "http://evil.example", "\u2028# H", "{{ x }}", "'; rm -rf", "$(id)", "\\",
        "\t# H", "%", "é",
    )  # fmt: skip

    def text() -> str:
        return "".join(chance.choice([*hostile, "plain words ", "a"]) for _ in range(chance.randint(1, 4)))

    system = _systems().system("classifier")
    card = Card(text(), paper=text(), notes=text(), data=text(), results=text(), folder=text())
    labels = [f"{text()}{n}" for n in range(3)]
    tokenizer, reading = system.tokenizer, system.reading
    export_folder(folder / "m", model=system.model(), tokenizer=tokenizer, reading=reading, card=card, labels=labels)
    written = (folder / "m" / "README.md").read_text(encoding="utf-8")
    _, front, body = written.split("---\n", 2)
    data = yaml.safe_load(front)
    if set(data) - {"tags", "library_name", "pipeline_tag", "language", "base_model", "model-index"}:
        raise Fault(f"front matter: {data}")
    outside = re.sub(r"(?ms)^```\w*\n.*?^```$", "", body)
    lines = re.split(r"[\n\r]", outside)
    heads = [line for line in lines if re.match(r" {0,3}#{1,6}\s", line)]
    if [line for line in heads[1:] if line not in ("## Use", "## Training", "## Licence", "## What transformers does not see")]:
        raise Fault(f"headings: {heads}")
    plain = re.sub(r"(`+)(?!`).*?(?<!`)\1(?!`)", "", outside)
    if re.search(r"<(script|img|!--)", plain) or re.search(r"(?<!\\)\[[^\]\n]*(?<!\\)\]\(", plain):
        raise Fault(f"markup: {plain}")


class _Screen(io.BytesIO):
    """Standard output as a terminal."""

    def isatty(self) -> bool:
        return True


@contextmanager
def streams(encoding: str, terminal: bool) -> Iterator[list[bytes]]:
    """Standard output and error in an encoding; gives what was written there, at the end."""
    before, kind = (sys.stdout, sys.stderr), _Screen if terminal else io.BytesIO
    out, err = kind(), kind()
    ours = io.TextIOWrapper(out, encoding=encoding), io.TextIOWrapper(err, encoding=encoding)  # if collected, they close `out`
    sys.stdout, sys.stderr = ours
    written: list[bytes] = []
    try:
        yield written
        sys.stdout.flush()
        sys.stderr.flush()
        written += [out.getvalue(), err.getvalue()]
        assert ours
    finally:
        sys.stdout, sys.stderr = before


@target
def screens(chance: Random, folder: Path) -> None:
    """Whatever a user's words hold, output ends in any encoding, and no control reaches a terminal but our own."""
    words = [*WORDS, "\x1b]0;x\x07he", "\x1b[2J", "\x9b31m", "\x00", "\x7f", "\u2066", "日本", "\r", "\x08"]
    text = " ".join(chance.choice(words) for _ in range(chance.randint(1, 3)))
    odd = folder / chance.choice(["a.txt", "a\x1b[2Jb.txt", "日本.txt", "a\u202eb.tsv", "a b.csv", "x\ny.txt"])
    odd.write_text(f"text\tlabel\n{text}\ta\n", encoding="utf-8", errors="replace")
    vectors = legal() / "vectors.txt"
    queries = folder / "q.txt"
    queries.write_text(f": s\nword1 word2 {text.split()[0] if text.split() else 'x'} word3\n", errors="replace")
    command = chance.choice([
        ("predict", tuned(), text), ("predict", tuned(), odd), ("embed", tuned(), text, "--json"),
        ("fill", legal() / "model", text),
        ("evaluate", tuned(), odd), ("neighbours", vectors, text), ("evaluate", vectors, "--analogies", queries), ("show", odd),
        ("corpus", "check", odd), ("show", text), ("pretrain", "bert", "--corpus", odd, "--set", text, "--plan"),
        ("predict", folder / text.replace("/", "").replace("\x00", "")[:60], "a"), ("evaluate", tuned(), odd, "--task", text),
        (text, "x"),
        ("vocab", "fit", legal() / "model", odd), ("predict", tuned(), "--columns", text, odd), ("list", text), ("explain", text),
    ])  # fmt: skip
    encoding, terminal = chance.choice(["utf-8", "latin-1", "ascii", "cp1252", "utf-8"]), chance.random() < 0.6
    with streams(encoding, terminal) as written:
        main([str(one) for one in command])
    shown = b"".join(written).decode(encoding, errors="replace")
    if "bug in cloze" in shown:
        raise Fault(f"{command!r} in {encoding}: {shown}")
    if terminal and (found := STEER.search(re.sub("\x1b\\[[0-9;]*m|\r\x1b\\[K", "", shown))):
        raise Fault(f"{command!r}: {found[0]!r} reaches the terminal: {shown!r}")
