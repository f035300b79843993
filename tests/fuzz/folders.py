"""Spoilt folders of fine-tuned models, adapters, ONNX files and vectors of fastText, as the verbs answer them."""

from __future__ import annotations

import io
import json
import os
import pickle
import shutil
import struct
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from random import Random
from typing import Any

import torch

from cloze.cli.main import main
from cloze.errors import CorpusError
from tests.fuzz.judging import Fault, prepared
from tests.fuzz.targets import NASTY, as_json, legal, spoilt_bytes, spoilt_tree, target

TEXTS = ("the cat sleeps", "a dog barks. It runs.")


def said(*arguments: Any) -> tuple[int, str, str]:
    """The exit code, standard output and standard error of a verb; a `Fault` if it calls its end a bug, or memory short."""
    out, err = io.StringIO(), io.StringIO()
    before = os.environ.get("CLOZE_DEBUG")
    os.environ["CLOZE_DEBUG"] = "1"
    try:
        with redirect_stdout(out), redirect_stderr(err):
            code = main([str(one) for one in arguments])
    finally:
        del os.environ["CLOZE_DEBUG"]
        if before is not None:
            os.environ["CLOZE_DEBUG"] = before
    text = err.getvalue()
    if "bug in cloze" in text or "out of memory" in text or "no answer after" in text:
        raise Fault(f"cloze {' '.join(map(str, arguments))}\n{text}")
    return code, out.getvalue(), text


def labels_of(output: str) -> list[str]:
    """The labels in JSON lines of predictions."""
    return [json.loads(line)["label"] for line in output.splitlines()]


@prepared
def tuned() -> Path:
    """A small classifier that `finetune` wrote, next to the rows that it learned."""
    from cloze.runs.finetuning.finetune import finetune

    place = legal()
    rows = [f"the {'dog' if n % 2 else 'cat'} sleeps\t{'b' if n % 2 else 'a'}" for n in range(16)]
    (place / "rows.tsv").write_text("\n".join(["text\tlabel", *rows]) + "\n")
    finetune(
        place / "model", out=place / "tuned", recipe="sentence_classification", train=[place / "rows.tsv"],
        dev=[place / "rows.tsv"], overrides=["training.epochs=1", "training.batch=8", "length=12"], report=lambda line: None,
        device="cpu",
    )  # fmt: skip
    return place / "tuned"


@prepared
def answers() -> list[str]:
    """What the classifier says of the texts."""
    return labels_of(said("predict", tuned(), *TEXTS)[1])


def spoil(chance: Random, file: Path) -> None:
    """Change one file: a value if it is JSON or lines of it, else bytes."""
    data = file.read_bytes()
    way = chance.random()
    if way < 0.6 and file.suffix == ".json":
        file.write_text(as_json(spoilt_tree(chance, json.loads(data))))
    elif way < 0.6 and file.suffix == ".jsonl":
        rows = [json.loads(line) for line in data.splitlines()]
        place = chance.randrange(len(rows))
        rows[place] = spoilt_tree(chance, rows[place])
        file.write_text("".join(as_json(row) + "\n" for row in rows))
    elif way < 0.6 and file.suffix == ".yaml":
        import yaml

        from cloze.recipe.canonical import to_yaml

        file.write_text(to_yaml(spoilt_tree(chance, yaml.safe_load(data))), errors="surrogatepass")
    elif way < 0.65:
        file.write_bytes(b"")
    else:
        file.write_bytes(spoilt_bytes(chance, data))


@target
def tuned_folders(chance: Random, folder: Path) -> None:
    """A fine-tuned folder with another file: the verbs answer, and what is no part of the model changes no answer."""
    model = folder / "m"
    shutil.copytree(tuned(), model, symlinks=True)
    endings = (".json", ".jsonl", ".yaml", ".md")
    file = chance.choice(sorted(path for path in model.rglob("*") if path.suffix in endings and "corpus" not in path.parts))
    spoil(chance, file)
    verb = chance.choice(["predict", "predict", "evaluate", "show", "report", "embed", "import", "export", "fill"])
    rest: dict[str, tuple[Any, ...]] = {
        "predict": TEXTS, "evaluate": (legal() / "rows.tsv",), "embed": TEXTS[:1], "import": ("--out", folder / "i"),
        "export": (folder / "e", "--to", "huggingface"), "fill": ("the [MASK] sleeps",),
    }  # fmt: skip
    code, out, _ = said(verb, model, *rest.get(verb, ()))
    if verb == "predict" and code == 0 and file.name in ("log.jsonl", "run.json", "README.md") and labels_of(out) != answers():
        raise Fault(f"{file.name}: changes what is predicted")
    if verb == "import" and code == 0 and said("predict", folder / "i", *TEXTS)[0] and not said("predict", model, *TEXTS)[0]:
        raise Fault(f"{file.name}: import loses the task")


@target
def configs(chance: Random, folder: Path) -> None:
    """A classifier of transformers whose config.json says odd things of its classes: a probability for each, by its own name."""
    system = _classifier()
    model = folder / "m"
    shutil.copytree(system, model)
    config = json.loads((model / "config.json").read_text())
    odd: dict[str, Any] = {
        "architectures": [["BertForSequenceClassification"], ["BertForTokenClassification"], ["BertModel"], [], "Bert", [None],
                          ["BertForQuestionAnswering"], ["BertForMultipleChoice"], ["X"], ["BertForMaskedLM", 5]],
        "problem_type": ["regression", "multi_label_classification", "single_label_classification", "x", ["regression"]],
        "id2label": [{"0": "a", "1": "a", "2": "b"}, {"0": "a", "1": "b"}, {"0": None, "1": 1, "2": True}, ["a", "b", "c"],
                     {"0": "", "1": " ", "2": "c"}, {"00": "a", "1": "b", "2": "c"}, {"0": ["a"], "1": {}, "2": "x"},
                     {"0": "\u001b[2J", "1": "\n", "2": "b"}, {"2": "c", "0": "a", "1": "b"}],
        "label2id": [{"a": 0}, [], {"a": "0"}], "num_labels": [0, 1, 2, 3, 4, "3", 3.0, 1 << 40],
        "_num_labels": [1, "x"], "pad_token_id": [0, 1, -1, 10**9],
    }  # fmt: skip
    for key in chance.sample(sorted(odd), chance.randint(1, 3)):
        config[key] = chance.choice([*odd[key], chance.choice(NASTY)])
    (model / "config.json").write_text(as_json(config))
    code, out, _ = said("predict", model, *TEXTS)
    if code == 0:
        for line in out.splitlines():
            answer = json.loads(line)
            many = answer.get("probabilities")
            if many is not None and "words" not in answer and len(many) != 3:
                raise Fault(f"three classes, and probabilities of {list(many)}: {config}")
    said("import", model, "--out", folder / "i")


@prepared
def _classifier() -> Path:
    """A classifier with three classes as transformers would leave it."""
    from cloze.interop import Card, export_folder
    from tests.fuzz.targets import _systems

    made, place = _systems().system("classifier"), legal() / "classifier"
    card = Card("fuzz")
    export_folder(place, model=made.model(), tokenizer=made.tokenizer, reading=made.reading, card=card, labels=["a", "b", "c"])
    shutil.rmtree(place / "cloze")
    return place


def _odd_things() -> dict[str, Callable[[Path], None]]:
    return {
        "pipe": os.mkfifo, "folder": Path.mkdir, "endless": lambda path: path.symlink_to("/dev/zero"),
        "nothing": lambda path: path.symlink_to("/dev/null"), "dangling": lambda path: path.symlink_to("nowhere"),
        "loop": lambda path: path.symlink_to(path), "empty": lambda path: path.write_bytes(b"") and None,
    }  # fmt: skip


@target
def odd_files(chance: Random, folder: Path) -> None:
    """A pipe, a folder, a device or a broken link in place of any file of a folder or a store."""
    stored = chance.random() < 0.25
    model = folder / "m"
    shutil.copytree(legal() / "store" if stored else tuned(), model)
    files = sorted(path for path in model.rglob("*") if path.is_file() and (stored or "corpus" not in path.parts))
    file = chance.choice(files)
    file.unlink()
    kind = chance.choice(sorted(_odd_things()))
    _odd_things()[kind](file)
    if stored:
        said("corpus", "check", model)
        from cloze.corpus import Store

        Store.open(model).verify()
        return
    verb = chance.choice(["predict", "evaluate", "show", "report", "embed", "import", "export", "compress"])
    rest: dict[str, tuple[Any, ...]] = {
        "predict": TEXTS, "evaluate": (legal() / "rows.tsv",), "embed": TEXTS[:1], "import": ("--out", folder / "i"),
        "export": (folder / "e", "--to", "huggingface"), "compress": ("--depth", 1, "--out", folder / "c"),
    }  # fmt: skip
    code, out, _ = said(verb, model, *rest.get(verb, ()))
    if verb == "predict" and code == 0 and labels_of(out) != answers():
        raise Fault(f"{file.relative_to(model)} is {kind}, and predict says {out}")


@target
def flipped_stores(chance: Random, folder: Path) -> None:
    """A store with a flipped bit is refused by what pre-training asks before it reads."""
    from cloze.corpus import Store
    from cloze.corpus.shards.verifying import Verification

    shutil.copytree(legal() / "store", folder / "store")
    files = sorted(path for path in (folder / "store").glob("*.bin") if path.stat().st_size)
    file = chance.choice(files)
    data = bytearray(file.read_bytes())
    data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    file.write_bytes(data)
    try:
        verification = Verification([Store.open(folder / "store")])
        verification.check()
        note = verification.close()
    except CorpusError:
        return
    raise Fault(f"{file.name}: a flipped bit that nobody sees; {note!r}")


class _Code:
    """What a pickle runs when it is opened without care."""

    def __init__(self, command: str) -> None:
        self.command = command

    def __reduce__(self) -> Any:
        return os.system, (self.command,)


@target
def pickles(chance: Random, folder: Path) -> None:
    """pytorch_model.bin that is cut, spoilt or holds code: no code runs, and nothing but the same weights is taken."""
    from safetensors.torch import load_file

    model, trace = folder / "m", folder / "ran"
    shutil.copytree(_classifier(), model)
    tensors = load_file(model / "model.safetensors")
    (model / "model.safetensors").unlink()
    file = model / "pytorch_model.bin"
    code = _Code(f"touch {trace}")
    changes: list[Callable[[torch.Tensor], torch.Tensor]] = [
        lambda one: torch.zeros(0), lambda one: one.to(torch.complex64), lambda one: one.to_sparse(), lambda one: one.to("meta"),
        lambda one: one.bool(), lambda one: one * float("nan"), lambda one: one.double(), lambda one: one[:1],
    ]  # fmt: skip
    change = chance.choice(changes)
    content: Any = chance.choice([
        tensors, tensors, {"model": tensors}, {**tensors, "x": code}, code, [code], {"model": {"a": [code]}},
        list(tensors.values()), {**tensors, 5: torch.zeros(2)}, {"bert": 1, **tensors}, {}, dict.fromkeys(tensors),
        *3 * [{name: change(tensor) for name, tensor in tensors.items()}],
    ])  # fmt: skip
    if chance.random() < 0.3:
        file.write_bytes(pickle.dumps(content, protocol=chance.choice([0, 2, 4])))
    else:
        torch.save(content, file, _use_new_zipfile_serialization=chance.random() < 0.6)
    data = file.read_bytes()
    if chance.random() < 0.4:
        file.write_bytes(chance.choice([data[: chance.randrange(len(data))], spoilt_bytes(chance, data)]))
    said("import", model, "--out", folder / "i")
    said("predict", model, *TEXTS)
    if trace.exists():
        raise Fault("a pickle ran its code")


@prepared
def _adapter() -> Path:
    """A folder as peft writes it, with an update for every query and a head."""
    from safetensors.torch import save_file

    base, place = _classifier(), legal() / "adapter"
    place.mkdir()
    tensors = {
        f"base_model.model.bert.encoder.layer.{layer}.attention.self.query.lora_{side}.weight": torch.full(shape, 0.01)
        for layer in range(2) for side, shape in (("A", (4, 16)), ("B", (16, 4)))
    }  # fmt: skip
    tensors |= {"base_model.model.classifier.weight": torch.ones(3, 16), "base_model.model.classifier.bias": torch.zeros(3)}
    save_file(tensors, place / "adapter_model.safetensors")
    (place / "adapter_config.json").write_text(json.dumps({
        "peft_type": "LORA", "task_type": "SEQ_CLS", "base_model_name_or_path": str(base), "r": 4, "lora_alpha": 8,
        "target_modules": ["query"], "modules_to_save": ["classifier"], "bias": "none", "fan_in_fan_out": False,
        "rank_pattern": {}, "alpha_pattern": {}, "lora_dropout": 0.0, "inference_mode": True, "use_rslora": False,
    }))  # fmt: skip
    assert said("predict", place, *TEXTS)[0] == 0
    return place


@target
def adapters(chance: Random, folder: Path) -> None:
    """A folder of peft with another value or other bytes."""
    shutil.copytree(_adapter(), folder / "m")
    spoil(chance, folder / "m" / chance.choice(["adapter_config.json", "adapter_config.json", "adapter_model.safetensors"]))
    model = folder / "m"
    said(*chance.choice([("predict", model, *TEXTS), ("import", model, "--out", folder / "i"), ("show", model)]))


@prepared
def _onnx() -> Path | None:
    """The classifier as an ONNX file; None without the packages."""
    try:
        import onnx  # noqa: F401
        import onnxruntime  # noqa: F401
    except ImportError:
        return None
    file = legal() / "m.onnx"
    code, _, err = said("export", tuned(), file, "--to", "onnx")
    assert code == 0, err
    return file


@target
def onnx_files(chance: Random, folder: Path) -> None:
    """An ONNX file whose metadata are others, or with other bytes."""
    whole = _onnx()
    if whole is None:
        return
    file = folder / "m.onnx"
    if chance.random() < 0.3:
        file.write_bytes(spoilt_bytes(chance, whole.read_bytes()))
    else:
        import onnx

        model = onnx.load(str(whole))
        entry = next(one for one in model.metadata_props if one.key == "cloze")
        files = json.loads(entry.value)
        name = chance.choice(sorted(files))
        way = chance.randrange(6)
        if way == 0:
            entry.value = as_json(spoilt_tree(chance, files))
        elif way == 1:
            del files[name]
        elif way == 2:
            files[chance.choice(["../x.json", "/x.json", "a\x00.json", name + "/b.json", "n" * 300 + ".json", ""])] = "x"
        elif way == 3:
            files[name] = chance.choice(["", "[]", "null", "\ud800", "{}", 5, "9" * 5000])
        else:
            try:
                files[name] = as_json(spoilt_tree(chance, json.loads(files[name])))
            except json.JSONDecodeError:
                files[name] = spoilt_bytes(chance, files[name].encode()).decode(errors="replace")
        if way:
            entry.value = as_json(files)
        onnx.save(model, str(file))
    said(*chance.choice([("predict", file, *TEXTS), ("predict", file, *TEXTS), ("show", file), ("embed", file, "a")]))
    if (folder / "x.json").exists():
        raise Fault("a file outside of its place")


@prepared
def _fasttext() -> bytes:
    """A small file of fastText."""
    import numpy as np

    from cloze.interop.vectors.fasttext import FastText, Settings, write_fasttext

    words, file = ["the", "</s>", "naïve", "where"], io.BytesIO()
    table = np.arange((len(words) + 20) * 5, dtype=np.float32).reshape(-1, 5)
    write_fasttext(file, FastText(Settings(5, buckets=20), words, (), np.array([9, 5, 2, 1]), 17, table, table[: len(words)]))
    return file.getvalue()


@target
def fasttext_headers(chance: Random, folder: Path) -> None:
    """A file of fastText with other numbers in its head (dimension, n-grams, buckets, words, …)."""
    data = bytearray(_fasttext())
    for _ in range(chance.randint(1, 2)):
        place = chance.choice([*range(0, 56, 4), 64, 68, 72])
        some = [0, 1, 2, 3, 7, -1, 1 << 10, 1 << 16, 1 << 30, (1 << 31) - 1, -(1 << 31), chance.randrange(1 << 31)]
        number = chance.choice(some)
        struct.pack_into("<i", data, place, number)
    if chance.random() < 0.3:
        struct.pack_into("<q", data, chance.choice([76, 84]), chance.choice([0, -1, 1 << 40, (1 << 63) - 1, -(1 << 63)]))
    file = folder / "m.bin"
    file.write_bytes(data)
    said(*chance.choice([("neighbours", file, "alarm"), ("neighbours", file, "where"), ("import", file, "--out", folder / "i")]))
