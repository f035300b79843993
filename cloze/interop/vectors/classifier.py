"""fastText's classifiers: a .bin or .ftz file → a fine-tuned folder of cloze, and back.

The network is `bag_of_ngrams`, the head `linear_classification`; both predict what the file predicts.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from shlex import quote
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from cloze.errors import CheckpointError, UserError
from cloze.hashed import Hashing, KeptBuckets
from cloze.interop.arguments import complete
from cloze.interop.files import DESCRIPTION, read_json
from cloze.interop.model import PortableHead, PortableModel, PortableTable
from cloze.interop.read import Imported, import_folder
from cloze.interop.vectors.fasttext import FastText, Quantising, Settings, write_fasttext
from cloze.interop.vectors.subwords import END_OF_LINE
from cloze.interop.vectors.whole import whole_file
from cloze.reading import Reading
from cloze.text.normalise import Normalise
from cloze.text.tokenizer import Tokenizer
from cloze.text.words import Words

PART, HEAD, TABLE = "bag_of_ngrams", "linear_classification", "ngrams"
PREFIX = "__label__"
WEIGHT = "embeddings.weight"
_CUT = "It's Café, 天气."  # text that shows how a tokenizer cuts and what it changes
_SPECIAL = {"[PAD]": "[PAD]", "[UNK]": "[UNK]", "[BOS]": "[BOS]", "[EOS]": END_OF_LINE}
_LOSSES = {1: "hierarchical", 2: "one_versus_all", 3: "softmax", 4: "one_versus_all"}
_CODES = {"hierarchical": 1, "softmax": 3, "one_versus_all": 4}


def is_classifier(folder: Path) -> bool:
    """Whether a folder holds such a network."""
    path = folder / DESCRIPTION
    return path.exists() and read_json(path, "what cloze knows of the model").get("part") == PART


def import_classifier(model: FastText, path: str) -> tuple[Imported, dict[str, Any]]:
    """A supervised model as a checkpoint, and its task.json. Names of labels lose `__label__`.

    A model trained with one-versus-all or with negative sampling gives every label a probability of its own: the task is
    `multi_label`; otherwise it is `sentence_classification`.
    """
    settings, remarks = model.settings, []
    loss = _LOSSES.get(settings.loss)
    if loss is None or settings.model != 3 or not model.labels:
        raise CheckpointError(f"{path}: is not a classifier of fastText (model {settings.model}, loss {settings.loss}).")
    if settings.loss == 2:
        remarks.append("it was trained with negative sampling; cloze reads its output as one-versus-all, as fastText does.")
    several = loss == "one_versus_all"
    word_rows = {word: row for row, word in enumerate(model.words)}
    if END_OF_LINE not in word_rows:
        remarks.append(f"the word {END_OF_LINE} is not among its words: the end of a text counts as a row of zeros.")
    lost = [word for word in model.words if word in _SPECIAL and word != END_OF_LINE]
    if lost:
        remarks.append(f"{', '.join(lost)} of the file cannot be told from roles of the tokenizer and were left out.")
    words = [word for word in model.words if word not in _SPECIAL.values()]
    places = np.array([-1, -1, -1, word_rows.get(END_OF_LINE, -1), *(word_rows[word] for word in words)], np.int64)
    vectors = np.array(model.table[np.maximum(places, 0)], np.float32)
    vectors[places < 0] = 0.0
    table, rows = _kept(model)
    tokenizer = Words(min_count=1, split="whitespace", special=_SPECIAL).of_words(words, Normalise())
    labels = [label.removeprefix(PREFIX) for label in model.labels]
    nodes = max(len(labels) - 1, 1) if loss == "hierarchical" else len(labels)
    state = {"head.weight": torch.from_numpy(np.array(model.answers[:nodes], np.float32))}
    counts = [max(int(count), 1) for count in model.counts[len(model.words) :]]
    name = "multi_label" if several else "classification"
    head = PortableHead(
        HEAD, {"set": "label", "classes": len(labels), "loss": loss, "several": several, "label_counts": counts}, state
    )
    cloze_model = PortableModel(
        arguments=complete({"width": settings.width, "ngrams": TABLE}, PART), order="open",
        network={WEIGHT: torch.from_numpy(np.concatenate((vectors, rows)))}, part=PART, heads={name: head},
        tables={TABLE: PortableTable("hashed_ngrams", {key: torch.from_numpy(array) for key, array in table.arrays.items()})},
    )
    task = {
        "task": "multi_label" if several else "sentence_classification",
        "columns": {"text": "text", "text_b": None, "label": "label"},
        "labels": labels, "head": name, "length": None,
        **({"separator": ",", "threshold": 0.5} if several else {}),
    }
    return Imported(
        folder=Path(path), architecture=None, model=cloze_model, tokenizer=tokenizer,
        reading=Reading("{A} [EOS]", None, "first"), remarks=tuple(remarks), labels=tuple(labels),
    ), task


def recipe_of_classifier(imported: Imported, base: Mapping[str, Any], name: str) -> dict[str, Any]:
    """`base`, a recipe of fastText's classifier as plain data, with the imported shape in it."""
    recipe = copy.deepcopy(dict(base))
    settings = imported.model.tables[TABLE].arrays["settings"].tolist()
    head = next(iter(imported.model.heads.values()))
    recipe["name"] = name
    recipe["notes"] = "Read from a model of fastText. What such a file does not say of its training is that of the recipe.\n"
    recipe["text"] = {"tokenizer": {"words": {"min_count": 1, "split": "whitespace", "special": dict(_SPECIAL)}}}
    letters = {"characters": settings[1:3]} if settings[2] else {}
    recipe["tables"] = {TABLE: {"hashed_ngrams": {"words": settings[0], "buckets": settings[3], **letters}}}
    recipe["network"] = {PART: {**recipe["network"][PART], "width": imported.model.arguments["width"]}}
    ((part, options),) = ((key, value) for objective in recipe["objectives"] for key, value in objective.items())
    recipe["objectives"] = [{part: {**options, "loss": head.arguments["loss"]}}]
    return recipe


def write_classifier(
    folder: Path, out: Path, *, quantising: Quantising | None = None, cutoff: int | None = None
) -> tuple[int, int, list[str]]:
    """Write a folder's classifier as fastText's .bin, or with `quantising` as .ftz; returns words, labels and remarks.

    `cutoff` keeps only so many words and n-grams (FastText.zip, §3.2; `pruned`). It needs `quantising`, because fastText refuses
    a pruned .bin.
    """
    imported = import_folder(folder)
    if quantising is None and (cutoff is not None or restored_table(imported).hashing.skips):
        raise UserError(f"{folder}: a pruned model can only be written as .ftz. Write it with --to fasttext-quantised.")
    if cutoff is not None:
        imported = pruned(imported, cutoff)
    model, remarks = _as_fasttext(folder, imported, restored_table(imported))
    with whole_file(out) as file:
        write_fasttext(file, model, quantising)
    return len(model.words), len(model.labels), [*remarks, *_preparation(folder, imported.tokenizer)]


def _preparation(folder: Path, tokenizer: Tokenizer) -> list[str]:
    """How to cut text for fastText as cloze cuts it; nothing where white space alone ends words."""
    if tokenizer.words_of(_CUT) == _CUT.split():
        return []
    script = f"import sys, cloze; t = cloze.load({json.dumps(str(folder))}).tokenizer; [print(*t.words_of(s)) for s in sys.stdin]"
    return [
        "fastText ends words at white space alone; this classifier does so at punctuation marks, too, and may change letters. "
        f"With text that is cut in the same way, both give the same probabilities:\n    python -c {quote(script)} < TEXT > CUT"
    ]


def _kept(model: FastText) -> tuple[KeptBuckets, NDArray[np.float32]]:
    """The buckets of a model that have a row, and their rows. A row of zeros counts as none where absent ones count as zeros."""
    settings, count = model.settings, len(model.words)
    letters = (max(settings.shortest, 1), settings.longest) if settings.longest > 0 else None
    hashed = settings.word_ngrams > 1 or letters is not None
    hashing = Hashing(max(settings.word_ngrams, 1), letters, settings.buckets if hashed else 0, model.pruned is not None)
    if model.pruned is not None:
        return KeptBuckets(hashing, *model.pruned), np.array(model.table[count:], np.float32)
    if not hashed:
        return KeptBuckets(hashing, np.zeros(0, np.int64)), np.zeros((0, settings.width), np.float32)
    buckets = model.table[count:]
    used = np.concatenate([buckets[start : start + 65536].any(1) for start in range(0, len(buckets), 65536)])
    return KeptBuckets(hashing, np.flatnonzero(used)), np.array(buckets[used], np.float32)


def _as_fasttext(folder: Path, imported: Imported, table: KeptBuckets) -> tuple[FastText, list[str]]:
    tokenizer, hashing = imported.tokenizer, table.hashing
    task = json.loads((folder / "cloze" / "task.json").read_text(encoding="utf-8"))
    head = imported.model.heads.get(str(task["head"]))
    if head is None or head.part != HEAD:
        raise CheckpointError(f"{folder}: has no head {HEAD} that its task.json names. Copy the whole folder again.")
    ids = _words_with_rows(tokenizer, table).tolist()
    words = [END_OF_LINE, *(tokenizer.piece(number) for number in ids[1:])]
    rows = imported.model.network[WEIGHT].numpy()
    of_labels = np.array(head.arguments.get("label_counts") or [1] * len(task["labels"]), np.int64)
    order = np.argsort(-of_labels, kind="stable")  # as fastText sorts them, so that its Huffman tree is ours
    answers = head.state["head.weight"].numpy()
    loss = str(head.arguments["loss"])
    if loss == "hierarchical":
        answers = np.concatenate((answers, np.zeros((len(order) - len(answers), answers.shape[1]), np.float32)))
    else:
        answers = answers[order]
    counts = np.concatenate((np.arange(len(words), 0, -1), of_labels[order]))
    shortest, longest = hashing.characters or (0, 0)
    settings = Settings(
        rows.shape[1], min_count=1, word_ngrams=hashing.words, loss=_CODES[loss], model=3, buckets=hashing.buckets,
        shortest=shortest, longest=longest,
    )
    labels = [PREFIX + task["labels"][number] for number in order]
    odd = next((name for name in (*words, *labels) if not name or any(mark in name for mark in "\0 \t\n\r\v\f")), None)
    if odd is not None:
        raise CheckpointError(f"{folder}: fastText's names hold no white space, and {odd!r} does. Name the label in one word.")
    buckets = (table.kept, table.order) if hashing.buckets or hashing.skips else None
    matrix = np.concatenate((rows[ids], rows[tokenizer.size :]))
    remarks = ["word counts are not known: the file contains decreasing numbers that keep the order."]
    return FastText(settings, words, labels, counts, int(counts.sum()), matrix, answers, buckets), remarks


def pruned(imported: Imported, cutoff: int) -> Imported:
    """The classifier with a row for only so many words and n-grams, those with the longest rows, and for the end of a text.

    As fasttext.cc (`selectEmbeddings`). Words without a row keep their ids, so that runs of words are what they were; what has no
    row does not count in the mean of a text (`dictionary.cc`, `pushHash`).
    """
    if cutoff < 1:
        raise UserError(f"--cutoff {cutoff}: expected how many words and n-grams are kept, such as 100000.")
    tokenizer, table = imported.tokenizer, restored_table(imported)
    weight = imported.model.network[WEIGHT].numpy()
    first, words = tokenizer.size, _words_with_rows(tokenizer, table)
    places = np.concatenate((words, first + np.arange(table.size)))
    lengths = np.linalg.norm(weight[places], axis=1)
    lengths[0] = np.inf  # the end of a text
    chosen = np.sort(np.argsort(-lengths, kind="stable")[:cutoff])
    grams = chosen[chosen >= len(words)] - len(words)
    mask = np.isin(table.order, grams)
    absent = np.concatenate((table.absent, np.delete(words, chosen[chosen < len(words)])))
    buckets = KeptBuckets(
        table.hashing._replace(skips=True), table.kept[mask], np.searchsorted(grams, table.order[mask]), np.sort(absent)
    )
    rows = np.concatenate((weight[:first], weight[first + grams]))
    rows[absent] = 0.0
    arrays = {key: torch.from_numpy(array) for key, array in buckets.arrays.items()}
    model = replace(
        imported.model, network={WEIGHT: torch.from_numpy(rows)},
        tables={**imported.model.tables, TABLE: PortableTable("hashed_ngrams", arrays)},
    )
    return replace(imported, model=model)


def restored_table(imported: Imported) -> KeptBuckets:
    """The n-grams of a classifier."""
    return KeptBuckets.restored({key: array.numpy() for key, array in imported.model.tables[TABLE].arrays.items()})


def _words_with_rows(tokenizer: Tokenizer, table: KeptBuckets) -> NDArray[np.int64]:
    """The ids of the end of a text, first, and of all words that have a row."""
    words = np.setdiff1d(np.arange(tokenizer.size), np.concatenate((tokenizer.special_ids, table.absent)))
    return np.concatenate(([tokenizer.roles["[EOS]"]], words)).astype(np.int64)
