"""Every task recipe on every kind of network: it is learned and its folder answers as in training, or it is refused in words."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from cloze.checkpoint.build import load_checkpoint
from cloze.checkpoint.complete import depth_groups
from cloze.checkpoint.several import LabelledFiles
from cloze.decoding.reader import Reader
from cloze.errors import UserError
from cloze.recipe.load import load_recipe, recipe_names, task_recipe_names
from cloze.recipe.recipe import Recipe
from cloze.registry import names
from cloze.runs.finetuning.finetune import finetune
from cloze.runs.finetuning.task_recipe import recipe_onto
from cloze.tasks.evaluation import evaluate
from cloze.tasks.given import columns_of, given_examples
from cloze.tasks.pictures import show_pictures
from cloze.tasks.tuned_folder import load_tuned, task_in_folder

#: Kinds of networks as tasks see them. A network that none of these recipes exports is tested by the first that does.
SYSTEMS = [
    "bert", "quick", "modern", "electra-small", "character-bert", "ib-bert", "gpt2", "gpt-bert", "unilm", "t5-small", "bart-base",
    "mass", "xlnet-base", "transformer-xl", "zen", "ernie-thu", "knowbert", "uniter",
    "vilbert", "lxmert", "cbt", "speechbert", "lstm", "siatl", "lstm-char", "elmo", "context2vec",
    "cove", "skip-thought", "nnlm", "word2vec-cbow", "fasttext", "glove", "mamba", "mamba-bidirectional",
]  # fmt: skip
#: Values that make a recipe small where it does not follow the size of the network.
NARROW = ("network.change.0.knowledge_adapter.width=24",)
SMALLER = {
    "k-adapter": NARROW, "k-adapter-linguistic": NARROW,
    "uniter_picture_pair_classification": ("objectives[0].paired_attention.heads=2",),
}
#: A table next to a network, one that reads triples and no text, one that a task of its own trains, and one whose vectors of
#: texts are features.
HELPERS = {"pair_attention", "graph_vectors", "bag_of_ngrams", "dssm", "paragraph_vectors"}
BAGS = "word2vec-cbow fasttext glove"
READERS = f"bert quick modern electra-small character-bert ib-bert xlnet-base zen ernie-thu knowbert elmo context2vec {BAGS}"
LSTMS = "lstm siatl lstm-char"
TRANSFORMERS = "bert quick modern electra-small character-bert gpt2 gpt-bert unilm zen ernie-thu knowbert speechbert uniter"
OF_ITEMS = "vilbert lxmert cbt"
SEGMENTED = f"bert electra-small character-bert ib-bert unilm zen ernie-thu knowbert speechbert uniter {OF_ITEMS}"
#: Texts alone, or recordings, whose features have another width.
ONLY_TEXTS = (
    r"this network reads texts without items, so it sees no pictures\.\n  Train one that does|"
    r"regions.npz: its items 'sounds' have 12 numbers each, and the network reads 60\.\n  Make features as"
)
POOLLESS = r'reads "pooled", but network "main" .*\n  Networks that give "pooled": '

#: What is refused: tasks, systems, what is said, and a value that is a way out, where there is one.
REFUSED: tuple[tuple[str, str, str, str | None], ...] = (
    (
        "pair_classification multiple_choice visualbert_multiple_choice vl-bert_multiple_choice question_answering reranking lce "
        "mt-dnn", BAGS,
        r"reads two texts in one row. In word_vectors a word sees nothing but itself.*\n  Use a checkpoint whose network reads",
        'reading.pair="{A} {B}"',
    ),
    (
        "text_to_text", f"{READERS} uniter {OF_ITEMS} speechbert mamba-bidirectional",
        r"needs a network that writes; this one only reads \(open\)\.\n  Use a checkpoint", None,
    ),
    ("text_to_text", "skip-thought", r"needs a head that predicts tokens, which .* does not have\.\n  Use a checkpoint", None),
    (
        "speechbert_question_answering", " ".join(sorted(set(SYSTEMS) - {"speechbert"})),
        r"this network reads texts without items, so it sees no pictures\.\n  Train one that does", None,
    ),
    (
        "picture_pair_classification lxmert_picture_pair_classification uniter_picture_pair_classification",
        " ".join(sorted(set(SYSTEMS) - {"uniter", "vilbert", "lxmert", "cbt"})), ONLY_TEXTS, None,
    ),
    (
        "uniter_picture_pair_classification", "cbt",
        r'paired_attention takes "item_length/regions", which no edit gives\.\n  Sets of targets: label', None,
    ),
    ("lxmert_picture_pair_classification", "uniter", POOLLESS, None),
    (
        "visualbert_picture_pair_classification", " ".join(sorted(set(SYSTEMS) - {"uniter", "vilbert", "lxmert", "cbt"})),
        ONLY_TEXTS, None,
    ),
    (
        "vl-bert_visual_question_answering visualbert_visual_question_answering",
        f"gpt2 t5-small transformer-xl {LSTMS} elmo context2vec cove skip-thought nnlm {BAGS} mamba",
        r"this tokenizer has no token for the role \[CLS\].*\n  Use these in a recipe of your own", None,
    ),
    ("vilbert_multiple_choice", BAGS, r"reads two texts in one row. In word_vectors a word sees nothing but itself", None),
    ("vilbert_multiple_choice", " ".join(sorted(set(SYSTEMS) - set(f"vilbert lxmert cbt {BAGS}".split()))), POOLLESS, None),
    (
        "uniter_multiple_choice", " ".join(sorted(set(SYSTEMS) - set(SEGMENTED.split()))),
        r"more_segments: (\w+ has no segments|like: 0, and the network has 0 segments)", None,
    ),
    (
        "lxmert_visual_question_answering vilbert_visual_question_answering",
        " ".join(sorted(set(SYSTEMS) - {"vilbert", "lxmert", "cbt"})), POOLLESS, None,
    ),
    (
        "ulmfit_classification siatl_classification", " ".join(sorted(set(SYSTEMS) - set(LSTMS.split()))),
        r"\w+ has no \w[\w., ]*, which this change sets\.\n  Use a checkpoint whose network is lstm, or",
        None,
    ),
    (
        "ulmfit_classification siatl_classification", "lstm-char",
        r"dropout.word drops rows of a table, .*\n  Leave it at 0: --set network.dropout.word=0", "network.dropout.word=0",
    ),
    (
        "gpt_classification gpt_pair_classification gpt_multiple_choice",
        " ".join(sorted(set(SYSTEMS) - set(f"{LSTMS} gpt2 nnlm transformer-xl mamba".split()))),
        r"language_model: needs a head that predicts the next token; this checkpoint reads .*\n  Use a checkpoint", None,
    ),
    (
        "k-adapter k-adapter-linguistic", " ".join(sorted(set(SYSTEMS) - set(f"{TRANSFORMERS} {OF_ITEMS}".split()))),
        r"knowledge_adapter: \w+ is not a Transformer encoder\. Use adapters", None,
    ),
    (
        "k-bert_classification k-bert_token_labelling",
        " ".join(sorted(set(SYSTEMS) - set(f"{TRANSFORMERS} bart-base mass".split()))),
        r'does not take "visible", which an edit gives\.\n  Networks that take visible: .*\n'
        r"  Or leave it out: --set exercise.inject.visible=false",
        "exercise.inject.visible=false",
    ),
    (
        "k-bert_classification k-bert_token_labelling", "gpt2",
        r"no word sees its facts from left to right\.\n  Use a network that reads in both directions",
        "exercise.inject.visible=false",
    ),
)  # fmt: skip

#: Recipes whose rows are about recordings or pictures: the items of each, and the field that names them.
ITEMS = {
    "speechbert_question_answering": ("sounds.npz", "audio"),
    **dict.fromkeys((
        "picture_pair_classification", "lxmert_picture_pair_classification", "uniter_picture_pair_classification",
        "visualbert_picture_pair_classification",
    ), ("regions.npz", "image")),
}  # fmt: skip

#: What is refused on the layers of a frozen network, with what is said.
UNTRAINED = {
    ("chain_thaw", "bert"): "nothing is trained, because no head has parameters of its own",
    ("dpr", "context2vec"): "nothing is trained: the network is frozen, and no head has parameters of its own",
    ("text_to_text", "t5-small"):
        "a change replaces hidden and summary of this network, but the recipe reads only decoder_hidden",
}  # fmt: skip

#: What a graph says about the texts of every system: `--bind facts=FILE` of a recipe with that table.
FACTS = "cat\tis\tanimal\nrain\tfalls in\tautumn\ngarden\thas\troses\n哈尔滨\t位于\t黑龙江\n"
TEXTS = ("the cat saw the rain", "the dog saw the night and the river", "rain on the mat", "a garden in the river")
LABELS = ("x", "y", "y", "x")
PAIRS = [{"text": a, "text_b": b} for a, b in zip(TEXTS, TEXTS[1:] + TEXTS[:1], strict=True)]
WORDS = [{"text": text.split(), "label": ["O", "B-X", "O", "O", *"OOOO"][: len(text.split())]} for text in TEXTS]
#: Of every type of task the rows of a file.
ROWS: dict[str, list[dict[str, Any]]] = {
    "sentence_classification": [{"text": text, "label": label} for text, label in zip(TEXTS, LABELS, strict=True)],
    "pair_classification": [{**pair, "label": label} for pair, label in zip(PAIRS, LABELS, strict=True)],
    "multi_label": [{"text": text, "label": labels} for text, labels in zip(TEXTS, ["xy", "y", "x", "yz"], strict=True)],
    "regression": [{**pair, "label": number} for pair, number in zip(PAIRS, [1.5, 3.0, -1.0, 2.0], strict=True)],
    "multiple_choice": [
        {"text": pair["text"], "choices": ["rain", pair["text_b"], "the night"][: 2 + number % 2], "label": number % 2}
        for number, pair in enumerate(PAIRS)
    ],
    "question_answering": [
        {"question": "who saw", "context": TEXTS[0], "answers": [{"text": "cat", "answer_start": 4}]},
        {"question": "who saw", "context": TEXTS[1], "answers": [{"text": "the dog", "answer_start": 0}]},
        {"question": "what is on the mat", "context": TEXTS[2], "answers": [{"text": "rain", "answer_start": 0}]},
        {"question": "who saw", "context": TEXTS[3], "answers": []},
    ],
    "span_classification": [
        {"text": text, "spans": [[0, 3], [4, 7]], "label": label} for text, label in zip(TEXTS[:2] * 2, LABELS, strict=True)
    ],
    "text_to_text": [{"text": pair["text"], "target": pair["text_b"]} for pair in PAIRS],
    "retrieval": [{"query": pair["text"], "passage": pair["text_b"], "wrong": "the mat"} for pair in PAIRS],
    "open_question_answering": [
        {"question": "who saw", "answer": ["the cat", "dog"]}, {"question": "what is on the mat", "answer": "rain"},
    ],
    "reranking": [
        {"query": pair["text"], "passage": passage, "label": grade}
        for pair in PAIRS[:2] for passage, grade in ((pair["text_b"], 1), ("the mat", 0))
    ],
    "token_labelling": WORDS,
    "coreference": [
        {"tokens": words * 2, "clusters": [[[0, 1], [len(words), len(words) + 1]]]} for words in map(str.split, TEXTS)
    ],
}  # fmt: skip
ROWS["visual_question_answering"] = [
    {"text": text, "label": scores} for text, scores in zip(TEXTS, [{"x": 1}, {"y": 1, "x": 0.3}, {}, {"z": 0.6}], strict=True)
]
ROWS["picture_pair_classification"] = [
    {**row, "image": str(number), "image_b": str(3 - number)} for number, row in enumerate(ROWS["sentence_classification"])
]
ROWS["question_answering"] = [{**row, "audio": str(number)} for number, row in enumerate(ROWS["question_answering"])]
ROWS["multi_label"] = [{**row, "label": list(row["label"])} for row in ROWS["multi_label"]]
TREES = "".join(
    "".join(
        f"{place}\t{word}\t_\tX\t_\t_\t{(place - 1) or 0}\t{'dep' if place > 1 else 'root'}\t_\t_\n"
        for place, word in enumerate(text.split(), start=1)
    )
    + "\n"
    for text in TEXTS
)


@cache
def exported(name: str) -> str:
    """The part that a recipe's checkpoint is, in its last stage."""
    recipe = load_recipe(name)
    part = (recipe.stages[-1].recipe if recipe.stages else recipe).exported.part
    return "" if part is None else part.name


@cache
def systems() -> list[str]:
    """A recipe for every kind of network."""
    missing = set(names("network")) - HELPERS - {exported(name) for name in SYSTEMS}
    others: dict[str, str] = {}
    for name in recipe_names() if missing else ():
        others.setdefault(exported(name), name)
    return [*SYSTEMS, *(others[part] for part in sorted(missing & others.keys()))]


def refusal(task: str, system: str) -> tuple[str, str | None] | None:
    """What is said and the way out, where a task is refused."""
    return next(((said, out) for tasks, ones, said, out in REFUSED if task in tasks.split() and system in ones.split()), None)


def covering() -> list[tuple[str, str]]:
    """Every task on one system that learns it, so that every network has its turn."""
    found: list[tuple[str, str]] = []
    turns = dict.fromkeys(systems(), 0)
    parts = {name: exported(name) for name in turns}
    had = dict.fromkeys(parts.values(), 0)
    # what is refused most chooses first
    for task in sorted(task_recipe_names(), key=lambda task: (-sum(refusal(task, name) is not None for name in turns), task)):
        able = [name for name in turns if refusal(task, name) is None]
        chosen = min(able, key=lambda name: (had[parts[name]], turns[name]))
        found.append((task, chosen))
        turns[chosen] += 1
        had[parts[chosen]] += 1
    return found


def types_of(recipe: Recipe) -> dict[str, str]:
    """The types of a recipe's tasks by name, "" for the only one."""
    assert recipe.task is not None
    return {name: one.type for name, one in recipe.tasks.items()} or {"": str(recipe.task.type)}


@pytest.fixture(autouse=True)
def unmeasured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory and time of a run, which are a third of it here, are measured by other tests."""
    monkeypatch.setattr("cloze.runs.preparing.choose_micro_batch", lambda *given, **more: None)


@pytest.fixture(scope="session")
def file(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], str]:
    """`file("regression")`: labelled rows of that type of task."""
    folder = tmp_path_factory.mktemp("rows")
    for name, rows in ROWS.items():
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "dependency_parsing.conllu").write_text(TREES)
    (folder / "facts.tsv").write_text(FACTS)
    (folder / "evidence.txt").write_text("\n".join(TEXTS))
    words = [len(row["context"].split()) for row in ROWS["question_answering"]]
    features = np.random.default_rng(0).normal(size=(sum(words), 60)).astype(np.float16)
    times = np.stack([np.arange(len(features)), np.arange(len(features)) + 0.5], axis=1)
    keys = [row["audio"] for row in ROWS["question_answering"]]
    np.savez(folder / "sounds.npz", keys=keys, offsets=np.cumsum([0, *words]), features=features, times=times)
    regions = np.random.default_rng(0).normal(size=(4, 3, 12)).astype(np.float16)
    boxes = np.tile(np.array([0, 0, 0.5, 1], np.float32), (4, 3, 1))
    np.savez(folder / "regions.npz", keys=np.arange(4).astype(str), features=regions, boxes=boxes)
    return lambda name: str(next(folder.glob(f"{name}.*")))


def marks_of(folder: Path) -> tuple[str, ...]:
    """Two words that a vocabulary has, to stand around spans: the tiny ones lack the recipe's # and $."""
    tokenizer = load_checkpoint(folder).tokenizer
    spelled = {word: tokenizer.encode(word).ids.tolist() for word in (".", ",", "a", "e", "the", "cat", "rain", "雨", "山", "水")}
    words = [word for word, ids in spelled.items() if len(ids) == 1 and ids[0] != tokenizer.roles["[UNK]"]]
    return (f"corpus.answer.class_of_spans.marks={words[:2]}",)


Start = Callable[[str], Path]
File = Callable[[str], str]


def tune(recipe: str, folder: Path, file: File, out: Path, *values: str, **more: Any) -> Mapping[str, float]:
    """The dev metrics of one epoch; `more` are further arguments of `finetune`."""
    published = load_recipe(recipe)
    types = types_of(published)
    given = {name: LabelledFiles(kind, (file(kind),), (file(kind),)) for name, kind in types.items() if name}
    alone = [] if given else [file(types[""])]
    items, picture = ITEMS.get(recipe, (None, None))
    sounds = [str(Path(file("facts")).with_name(items))] if items else ()
    made = finetune(
        folder, items=sounds, picture=picture, recipe=recipe, task=recipe, tasks=given, train=alone, dev=alone, out=out,
        binds=[f"{name}={file(name)}" for name in published.tables],
        overrides=[
            "training.epochs=1", "training.batch=4", *SMALLER.get(recipe, ()),
            *(marks_of(folder) if recipe == "ernie-thu_span_classification" else ()), *values,
        ],
        report=lambda line: None,
        **more,
    )
    standing = made.outcomes[1].standing
    assert standing is not None
    return standing.metrics


def assert_learned(recipe: str, system: str, start: Start, file: File, out: Path, *values: str, **more: Any) -> None:
    """The folder of a run has the metrics that the run reported, all of them finite, and answers every row."""
    reported = tune(recipe, start(system), file, out, *values, **more)
    assert reported and all(math.isfinite(value) for value in reported.values()), reported
    for name, kind in types_of(load_recipe(recipe)).items():
        checkpoint = load_checkpoint(out)
        if recipe in ITEMS:
            sounds = str(Path(file("facts")).with_name(ITEMS[recipe][0]))
            checkpoint = show_pictures(checkpoint, [sounds], [task_in_folder(out).read(file(kind))])
        learner, described = load_tuned(checkpoint, name=name or None)
        found = evaluate(learner, learner.task.read(file(kind)), constant_answer=described.get("constant_answer")).metrics
        lead = f"{name}/" if name else ""
        own = {metric.removeprefix(lead): value for metric, value in reported.items() if metric.startswith(lead)}
        own = {metric: value for metric, value in own.items() if metric != "threshold"}  # chosen on the dev rows, not measured
        assert own and {metric: found[metric] for metric in own} == pytest.approx(own, abs=1e-6)
        assert all(math.isfinite(value) for value in found.values()), found
        columns, _ = columns_of(learner.task)
        columns += ["choices", "spans"]
        rows = [{column: row[column] for column in columns if column in row} for row in ROWS.get(kind, [])] or [
            text.split() for text in TEXTS
        ]
        with given_examples(learner.task, rows, labelled=False) as examples:
            assert len(learner.predict(examples, size=64, report=lambda done: None)) == len(rows)


def assert_refused(recipe: str, system: str, start: Start, file: File, out: Path) -> None:
    """It is refused in words that name the checkpoint or the recipe and the way out, and nothing is written."""
    found = refusal(recipe, system)
    assert found is not None
    with pytest.raises(UserError, match=f"(?s){found[0]}") as caught:
        tune(recipe, start(system), file, out)
    places = (f"{start(system)}: ", *(f"{recipe}: {part}" for part in ("networks.main", "objectives[0]", "exercise[0]")))
    places += (str(Path(file("facts")).with_name(ITEMS[recipe][0])),) if recipe in ITEMS else ()
    assert str(caught.value).startswith(places) and not out.exists()


def test_every_network_that_reads_texts_has_a_system_and_all_that_are_refused_are_systems() -> None:
    own = {exported(name) for name in systems()}
    assert set(names("network")) - HELPERS == own
    assert {name for _, ones, _, _ in REFUSED for name in ones.split()} <= set(systems())
    assert {task for tasks, *_ in REFUSED for task in tasks.split()} <= set(task_recipe_names())
    assert {task for task, _ in covering()} == set(task_recipe_names())
    assert {exported(name) for _, name in covering()} == own


@pytest.mark.parametrize(("recipe", "system_"), covering())
def test_a_task_is_learned_and_its_folder_answers_as_in_training(
    recipe: str, system_: str, start: Start, file: File, tmp_path: Path
) -> None:
    assert_learned(recipe, system_, start, file, tmp_path / "out")


#: Every kind of head on the layers of a frozen network.
ON_LAYERS = [("retrieval", "bert"), ("text_to_text", "gpt2"), ("dependency_parsing", "elmo"), ("question_answering", "zen")]


def on_layers() -> list[Any]:
    """These in the default tier, and every other task whose head has parameters of its own on one system."""
    known = {task for task, _ in [*ON_LAYERS, *UNTRAINED]}
    others = [pair for pair in covering() if pair[0] not in known and not pair[0].startswith("frozen_")]
    return [*ON_LAYERS, *(pytest.param(*pair, marks=pytest.mark.slow) for pair in others)]


@pytest.mark.parametrize(("recipe", "system_"), on_layers())
def test_every_task_is_learned_on_the_layers_of_a_frozen_network(
    recipe: str, system_: str, start: Start, file: File, tmp_path: Path
) -> None:
    assert_learned(recipe, system_, start, file, tmp_path / "out", changes=["features"])
    before, after = (load_checkpoint(folder).network.state_dict() for folder in (start(system_), tmp_path / "out"))
    assert all(torch.equal(after[name], tensor) for name, tensor in before.items())


@pytest.mark.parametrize(("name", "groups"), [
    ("bert", ["embeddings", 0, 1]), ("cove", ["embeddings", 0, 1]),
    ("glove", ["embeddings"]), ("t5-small", ["embeddings", 0, 1, 2, 3]),
])  # fmt: skip
def test_the_depth_groups_of_chain_thaw_are_those_that_heads_can_train(
    name: str, groups: list[str | int], start: Start
) -> None:
    assert depth_groups(load_checkpoint(start(name))) == groups


@pytest.mark.slow
@pytest.mark.parametrize("recipe", [name for name in task_recipe_names() if refusal(name, "bert") is None])
def test_every_task_is_learned_along_with_a_masked_language_model(recipe: str, start: Start, file: File, tmp_path: Path) -> None:
    assert_learned(recipe, "bert", start, file, tmp_path / "out", auxiliary="0.5")


@pytest.mark.parametrize(("recipe", "system_"), [
    ("text_to_text", "t5-small"), ("text_to_text", "gpt2"), ("question_answering", "bert"),
    *(pytest.param(task, name, marks=pytest.mark.slow) for task, name in (
        ("sentence_classification", "bart-base"), ("retrieval", "bert"), ("dependency_parsing", "modern"),
        ("multiple_choice", "gpt2"), ("text_to_text", "unilm"), ("token_labelling", "quick"),
    )),
])  # fmt: skip
def test_a_task_is_learned_behind_a_soft_prompt(recipe: str, system_: str, start: Start, file: File, tmp_path: Path) -> None:
    assert_learned(recipe, system_, start, file, tmp_path / "out", changes=["prompt=3"])


@pytest.mark.parametrize(("recipe", "system_"), UNTRAINED)
def test_a_frozen_network_without_anything_to_train_is_refused(
    recipe: str, system_: str, start: Start, file: File, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=UNTRAINED[recipe, system_]):
        tune(recipe, start(system_), file, tmp_path / "out", changes=["features"])
    assert not (tmp_path / "out" / "config.json").exists() and not list(tmp_path.glob("out/cloze/checkpoints/*"))


@pytest.mark.parametrize(("recipe", "system_"), [(tasks.split()[0], ones.split()[0]) for tasks, ones, _, _ in REFUSED])
def test_what_makes_no_sense_is_refused_in_words(recipe: str, system_: str, start: Start, file: File, tmp_path: Path) -> None:
    assert_refused(recipe, system_, start, file, tmp_path / "out")


@pytest.mark.parametrize("part", sorted(set(names("network")) - HELPERS))
def test_the_last_of_a_networks_layers_is_what_heads_read(part: str, start: Start) -> None:
    loaded = load_checkpoint(start(next(name for name in systems() if exported(name) == part)))
    reader = Reader.of(loaded)
    batch = reader.batch(reader.encode(TEXTS[1:3]))
    states = reader.states(batch, {"hidden", "layers", "summary"})
    real = batch["block"] > 0 if "block" in batch else torch.ones_like(batch["tokens"], dtype=torch.bool)
    torch.testing.assert_close(states["layers"][-1][real], states["hidden"][real])
    network: Any = loaded.network
    assert len(states["layers"]) == network.layer_state_count
    if network.layer_state_count > 1 and part != "encoder_decoder":  # there it is the decoder's
        given = {name: batch.get(name) if name in network.takes else None for name in ("tokens", "block", "summaries")}
        made = network.summarise(states["hidden"], **given)
        torch.testing.assert_close(made, states["summary"])


def test_a_window_is_classified_by_all_of_its_tokens_and_vectors_retrieve_without_a_pair(start: Start) -> None:
    window = recipe_onto("sentence_classification", load_checkpoint(start("nnlm")))
    ((_, head),) = window.entries["main"].objectives()
    assert (head.part.name, head.part.arguments["pool"]) == ("pooled_classification", "concat")
    assert recipe_onto("retrieval", load_checkpoint(start("glove"))).reading.pair is None


def test_the_page_says_which_networks_learn_which_tasks() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "tasks.md").read_text(encoding="utf-8")
    rows = page.partition("## Which networks")[2].partition("\n## ")[0].split("|---|---|---|\n")[1].partition("\n\n")[0]
    found = []
    for row in rows.splitlines():
        tasks, ones, _ = row.strip("|").split("|")
        named = set(re.findall("`([^`]+)`", ones))
        found.append((set(re.findall("`([^`]+)`", tasks)), set(SYSTEMS) - named if " all but " in ones else named))
    assert found == [(set(tasks.split()), set(ones.split())) for tasks, ones, _, _ in REFUSED]


@pytest.mark.slow
@pytest.mark.parametrize("system_", systems())
@pytest.mark.parametrize("recipe", task_recipe_names())
def test_every_task_on_every_network(recipe: str, system_: str, start: Start, file: File, tmp_path: Path) -> None:
    found = refusal(recipe, system_)
    if found is None:
        assert_learned(recipe, system_, start, file, tmp_path / "out")
        return
    assert_refused(recipe, system_, start, file, tmp_path / "out")
    if found[1] is not None:
        assert_learned(recipe, system_, start, file, tmp_path / "out", found[1])
