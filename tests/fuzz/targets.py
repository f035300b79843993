"""What is fuzzed: for each kind of input, how a legal one is spoilt and what is done with it.

A target is given a source of chance and an empty folder; it writes its input there and does with it what a verb would. Every
way out is right but those that `judged` names.
"""

from __future__ import annotations

import importlib.util
import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

from cloze.errors import CorpusError
from tests.fuzz.judging import Fault, judged, prepared

Target = Callable[[Random, Path], None]
TARGETS: dict[str, Target] = {}

NASTY: tuple[Any, ...] = (
    None,
    True,
    -1,
    0,
    1,
    2**31,
    2**63,
    -(2**70),
    10**400,
    0.5,
    -0.5,
    1e308,
    float("inf"),
    float("nan"),
    "",
    " ",
    "x",
    "[MASK]",
    "\x00",
    "\x1b[2J",
    "\ud800",
    "\u202e",
    "a" * 5000,
    "9" * 5000,
    [],
    [[]],
    [1, "x", None],
    {},
    {"x": {}},
    {"": 1},
    "{A} {B}",
    "../..",
    "NaN",
    "1e400",
    "0x" + "f" * 500,
    "<<",
    "*a",
    "&a",
    "!!python/object:os.system",
    "[" * 400,
    "{" * 400,
    "linear",
    "bert",
)
SNIPPETS = (
    b"\x00",
    b"\xff",
    b"\xff\xfe",
    b"\xef\xbb\xbf",
    b'"',
    b"'",
    b"\t",
    b",",
    b";",
    b"\r",
    b"\n",
    b"\n\n",
    b"\r\n",
    b" ",
    b"{",
    b"}",
    b"[",
    b"]",
    b": ",
    b"- ",
    b"&a ",
    b"*a",
    b"# ",
    b"-1",
    b"nan",
    b"inf",
    b"1e999",
    b"9" * 4400,
    b"\\ud800",
    b"\xf0\x9f\x98\x80",
    b"\xc3",
    b"\xe2\x80\xae",
    b"\x1b]0;x\x07",
    b"[" * 3000,
    b'{"a":' * 3000,
    b"-DOCSTART- -X- O O\n",
    b"1-2\t_\t_\n",
    b"B-",
    b"null",
    b"true",
)


def target(function: Target) -> Target:
    """Make a function one of the targets."""
    TARGETS[function.__name__] = function
    return function


# ---- spoiling ----------------------------------------------------------------------------------------------------------


def spoilt_bytes(chance: Random, data: bytes) -> bytes:
    """A few bytes changed, cut out, doubled or put in."""
    made = bytearray(data)
    for _ in range(chance.randint(1, 4)):
        place, length = chance.randrange(len(made) + 1), chance.choice([1, 1, 2, 8, 40])
        way = chance.randrange(5)
        if way == 0 and made:
            made[place % len(made)] ^= 1 << chance.randrange(8)
        elif way == 1:
            del made[place : place + length]
        elif way == 2:
            made[place:place] = made[place : place + length] * chance.choice([1, 2, 50])
        elif way == 3:
            made[place:place] = chance.choice(SNIPPETS)
        else:
            made[place : place + length] = chance.choice(SNIPPETS)
    return bytes(made)


def spoilt_tree(chance: Random, tree: Any) -> Any:
    """A copy of plain data in which one value, key or item is another."""
    holders: list[Any] = []

    def walk(one: Any) -> Any:
        if isinstance(one, dict):
            made: Any = {key: walk(value) for key, value in one.items()}
        elif isinstance(one, (list, tuple)):
            made = [walk(value) for value in one]
        else:
            return one
        if made:
            holders.append(made)
        return made

    copy = walk(tree)
    for _ in range(chance.randint(1, 3)):
        holder = chance.choice(holders)
        key = chance.choice(list(holder)) if isinstance(holder, dict) and holder else chance.randrange(max(len(holder), 1))
        way = chance.randrange(6)
        if way == 0 and isinstance(holder, dict):
            holder[chance.choice(["x", "rate", "layers", ""])] = chance.choice(NASTY)
        elif way == 1 and len(holder) > 0:
            del holder[key]
        elif len(holder) > 0:
            holder[key] = chance.choice(NASTY)
    return copy


def as_json(value: Any) -> str:
    """JSON that may hold what JSON should not."""
    return json.dumps(value, default=str)


# ---- legal inputs --------------------------------------------------------------------------------------------------------


@prepared
def legal() -> Path:
    """A folder with a store, a tokenizer, a checkpoint and vectors, made once per process and removed at its end."""
    import atexit
    import tempfile

    from cloze.corpus.stores.build import build_store
    from cloze.interop import Card, export_folder
    from cloze.text import Normalise, TextSpec, WordPiece, train

    folder = Path(tempfile.mkdtemp(prefix="cloze-fuzz-legal-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    text = folder / "a.txt"
    text.write_text("The cat sleeps. It dreams of fish.\n\nA dog barks. It runs.\n\n" * 20)
    tokenizer = train(TextSpec(Normalise(lower=True), WordPiece(size=70)), text.read_text().split("\n"))
    build_store([text], tokenizer, folder / "store")
    vectors = [f"word{n} " + " ".join(f"{n * k / 7:.3f}" for k in range(5)) for n in range(12)]
    (folder / "vectors.txt").write_text("\n".join(["12 5", *vectors]) + "\n")
    import numpy as np

    rows = b"".join(f"word{n} ".encode() + np.arange(5, dtype=np.float32).tobytes() + b"\n" for n in range(12))
    (folder / "vectors.bin").write_bytes(b"12 5\n" + rows)
    made = _systems().system("bert")
    export_folder(folder / "model", model=made.model(), tokenizer=made.tokenizer, reading=made.reading, card=Card("fuzz"))
    return folder


def _systems() -> Any:
    """The small models of tests/interop."""
    place = Path(__file__).parents[1] / "interop" / "systems.py"
    spec = importlib.util.spec_from_file_location("fuzz_systems", place)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["fuzz_systems"] = module
    spec.loader.exec_module(module)
    return module


# ---- targets -------------------------------------------------------------------------------------------------------------


@target
def recipes(chance: Random, folder: Path) -> None:
    """A recipe with other values, or with other bytes."""
    from cloze.checkpoint.checks.check import check_recipe
    from cloze.recipe.canonical import to_yaml
    from cloze.recipe.load import load_recipe, recipe_from_data, recipe_names

    data = load_recipe(chance.choice(recipe_names())).canonical()
    if chance.random() < 0.5:
        check_recipe(recipe_from_data(spoilt_tree(chance, data), title="fuzz"))
        return
    file = folder / "mine.yaml"
    file.write_bytes(spoilt_bytes(chance, to_yaml(data).encode()))
    check_recipe(load_recipe(file))


@target
def set_values(chance: Random, folder: Path) -> None:
    """--set of any path and any value."""
    from cloze.checkpoint.checks.check import check_recipe
    from cloze.recipe.load import load_recipe

    paths = (
        "exercise.mask.rate",
        "exercise.mask.unit",
        "network.layers",
        "network.width",
        "network.dropout",
        "network.heads",
        "length",
        "training.rate.peak",
        "training.batch",
        "training.steps",
        "training.optimizer.betas",
        "batch",
        "text.tokenizer.size",
        "corpus",
        "objectives.token_prediction.weight",
        "reading.single",
        "x",
        "network",
        "exercise[0].frame.template",
        "exercise[99999].x",
        "tie",
        "exercise[" + "9" * 5000 + "]",
        "training.optimizer",
        "schedule",
        "",
        ".",
        "a..b",
        "networks.main.transformer.feed_forward.plain.inner",
        "order",
    )
    given = chance.choice(NASTY)
    value = given if isinstance(given, str) else as_json(given)
    check_recipe(load_recipe("bert", overrides=[f"{chance.choice(paths)}={value}"]))


@target
def records(chance: Random, folder: Path) -> None:
    """JSON lines as a corpus and as a table of examples."""
    from cloze.corpus.checks.check_text import check_corpus
    from cloze.corpus.readers.labelled import read_table

    rows = [as_json(spoilt_tree(chance, {"text": f"The cat sleeps. It dreams {n}.", "label": "a", "n": [n]})) for n in range(4)]
    (folder / "a.jsonl").write_bytes(spoilt_bytes(chance, "\n".join(rows).encode()))
    with judged():
        check_corpus([folder / "a.jsonl"])
    read_table(folder / "a.jsonl").column("text")


@target
def tables(chance: Random, folder: Path) -> None:
    """CSV and TSV as a corpus and as a table of examples."""
    from cloze.corpus.checks.check_text import check_corpus
    from cloze.corpus.readers.labelled import read_table

    separator, ending = chance.choice([(",", "csv"), ("\t", "tsv"), (";", "csv")])
    rows = [
        separator.join(cells) for cells in (("id", "text"), ("1", '"The cat, asleep"'), ("2", "A dog."), ("3", '"Two\nlines"'))
    ]
    file = folder / f"a.{ending}"
    file.write_bytes(spoilt_bytes(chance, "\n".join(rows).encode()))
    with judged():
        check_corpus([file])
    read_table(file).column("text")


@target
def texts(chance: Random, folder: Path) -> None:
    """Files of text in every layout, and what looks like a packed one."""
    from cloze.corpus.checks.check_text import check_corpus

    layouts = (
        "The cat sleeps. It dreams.\n\nA dog barks.\n" * 3,
        '<doc id="1" url="" title="T">\nT\n\nA cat.\n\n</doc>\n' * 2,
        "word " * 90,
        "你好。世界！\n" * 5,
        "en\tfr\nThe cat.\tLe chat.\n",
    )
    file = folder / chance.choice(["a.txt", "a", "a.json", "a.txt.gz", "a.txt.xz", "a.txt.bz2", "a.parquet"])
    file.write_bytes(spoilt_bytes(chance, chance.choice(layouts).encode(chance.choice(["utf-8", "utf-16", "utf-8"]))))
    check_corpus([file], format=chance.choice(["auto", "auto", "line", "book", "wiki", "sentence", "jsonl", "csv"]))


@target
def labelled_words(chance: Random, folder: Path) -> None:
    """CoNLL, CoNLL-U and JSON lines of labelled words."""
    from cloze.corpus.readers.tagged import read_tagged

    name, text = chance.choice([
        ("a.conll", "EU\tB-ORG\nrejects\tO\n\nPeter\tB-PER\nBlackburn\tI-PER\n"),
        ("a.conllu", "# text = A dog\n1\tA\ta\tDET\t_\t_\t2\tdet\t_\t_\n2\tdog\tdog\tNOUN\t_\t_\t0\troot\t_\t_\n\n"),
        ("a.jsonl", '{"text": ["A", "dog"], "label": ["O", "O"]}\n'),
    ])  # fmt: skip
    (folder / name).write_bytes(spoilt_bytes(chance, text.encode()))
    columns = {"text": "form", "label": "upos"} if name.endswith("u") else {"text": "text", "label": "label"}
    read_tagged(folder / name, columns=None, format=None, labelled=True, **columns)


#: Sentences of a language, and the encodings in which they are written.
WRITTEN: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = (
    (("这部电影很好看", "我不喜欢", "太无聊了，不要去看。", "猫"), ("gb18030", "utf-16")),
    (("這部電影很好看", "我不喜歡", "太無聊了，不要去看。"), ("big5", "gb18030")),
    (("この映画は面白かった", "つまらない話でした。", "猫"), ("cp932", "euc-jp")),
    (("Очень хороший фильм", "Скучная история", "Нет!"), ("cp1251", "koi8-r", "cp866")),
    (("C’est déjà vu", "Ça va à peine", "été", "plain"), ("cp1252", "mac-roman")),
    (("¿Dónde está el niño?", "mañana", "plain"), ("cp1252", "latin-1")),
    (("Zażółć gęślą jaźń", "Łódź", "plain"), ("cp1250", "iso8859-2")),
)


@target
def encodings(chance: Random, folder: Path) -> None:
    """A table in some encoding is read as it was written, or refused."""
    from cloze.corpus.readers.labelled import read_table

    sentences, names = chance.choice(WRITTEN)
    rows = [(chance.choice(sentences), chance.choice("xy")) for _ in range(chance.randrange(1, 12))]
    path = folder / "a.tsv"
    path.write_bytes("".join(f"{text}\t{label}\n" for text, label in [("text", "label"), *rows]).encode(chance.choice(names)))
    found = read_table(path).rows
    if list(found) != rows and b"\xc7\xad" not in path.read_bytes():  # EUC-JP for a cat, and UTF-8 for a letter
        raise Fault(f"{path.read_bytes()!r} was read as {found!r}")


@target
def odd_blanks(chance: Random, folder: Path) -> None:
    """Words with spaces that are not of ASCII stay words in CoNLL."""
    from cloze.corpus.readers.tagged import read_tagged

    letters = "ab\u00a0\u2009\u2028\u0085\x1c\u3000#"
    words = ["".join(chance.choice(letters) for _ in range(chance.randrange(1, 5))) for _ in range(chance.randrange(1, 9))]
    path, apart = folder / "a.conll", chance.choice([" ", "\t", "  "])
    path.write_text("".join(f"{word}{apart}O\n" for word in words), encoding="utf-8", newline="")
    found = read_tagged(path, text="text", label="label", columns=None, format=None, labelled=True)
    if found.words != [tuple(words)]:
        raise Fault(f"{words!r} were read as {found.words!r}")


@target
def labelled_rows(chance: Random, folder: Path) -> None:
    """Arrays of JSON, lines of fastText and cells with several classes."""
    from cloze.corpus.readers.questions import read_questions
    from cloze.corpus.records import Records
    from cloze.corpus.records.several import ClassesAnswer

    array = [{"text": "a", "label": ["x"], "context": "a b", "qas": [{"question": "?", "answers": []}]}] * 2
    name, content = chance.choice(
        [
            ("a.json", as_json(array)),
            ("a.json", json.dumps(array, indent=1)),
            ("a.json", as_json(spoilt_tree(chance, array))),
            ("a.train", "__label__x __label__y a b\n__label__x c\n"),
            ("a.tsv", "text\tlabel\na\t['x', \"y\"]\nb\t[1, 0]\n"),
        ]
    )
    (folder / name).write_bytes(spoilt_bytes(chance, content.encode("utf-8", "surrogatepass")))
    if chance.random() < 0.3:
        read_questions(folder / name)
        return
    source = Records(answer=ClassesAnswer(names=chance.choice([None, ["x", "y"]])))
    list(source.answer.read(folder / name, source.columns, chance.choice([None, lambda line, why: None])))


@target
def vector_files(chance: Random, folder: Path) -> None:
    """Files of word vectors, as text and in binary."""
    from cloze.interop.vectors import open_vectors

    name = chance.choice(["vectors.txt", "vectors.bin"])
    (folder / name).write_bytes(spoilt_bytes(chance, (legal() / name).read_bytes()))
    open_vectors(folder / name, repeated="first")


@target
def foreign_folders(chance: Random, folder: Path) -> None:
    """A Hugging Face folder with another config.json, tokenizer or description of ours."""
    from cloze.interop import import_folder

    shutil.copytree(legal() / "model", folder / "model")
    files = sorted(path for path in (folder / "model").rglob("*.json") if path.is_file())
    file = chance.choice(files)
    if chance.random() < 0.3:
        shutil.rmtree(folder / "model" / "cloze", ignore_errors=True)
    if file.exists():
        data = file.read_bytes()
        spoilt = as_json(spoilt_tree(chance, json.loads(data))).encode() if chance.random() < 0.7 else spoilt_bytes(chance, data)
        file.write_bytes(spoilt)
    if chance.random() < 0.5:
        import_folder(folder / "model")
        return
    from cloze.checkpoint.build import load_checkpoint

    load_checkpoint(folder / "model")


@target
def stores(chance: Random, folder: Path) -> None:
    """A store with changed bytes opens or is refused in words, and `verify` misses no change of what is trained on."""
    import numpy as np

    from cloze.corpus import Store

    shutil.copytree(legal() / "store", folder / "store")
    files = sorted(path for path in (folder / "store").rglob("*") if path.is_file())
    file = chance.choice(files)
    before = file.read_bytes()
    if file.name == "store.json" and chance.random() < 0.7:
        file.write_text(as_json(spoilt_tree(chance, json.loads(before))))
    else:
        file.write_bytes(spoilt_bytes(chance, before))
    store = Store.open(folder / "store")
    store.counts()
    store.words(np.arange(len(store.tokens)))
    if file.name != "store.json" and file.read_bytes() != before:
        try:
            store.verify()
        except CorpusError:
            return
        raise Fault(f"{file.name}: a change that verify does not see")
