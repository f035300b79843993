"""Combines the recipes of several tasks into one, to train them at once or one after another.

At once: a mixture with an entry, a source and a head for each task (MT-DNN: Liu et al., 2019, "Multi-Task Deep Neural Networks
for Natural Language Understanding", algorithm 1). One after another: a stage for the intermediate task, and then one for the
others (STILTs: Phang et al., 2018, "Sentence Encoders on STILTs", §3).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from cloze.errors import TaskError, did_you_mean, propose
from cloze.recipe.load import read_tree, task_recipe_names

FIRST = "first"  # the stage, and the task, that comes before the others
_KEYS_OF_ENTRY = ("type", "metric")  # the keys of `task:` that belong to an entry
START = "start"  # the name that task recipes give the checkpoint they begin with


class LabelledFiles(NamedTuple):
    """The files of the training and dev sets of a task.

    `recipe` is the TYPE of `--task`: the name of a task recipe. Most have the name of the registered task that they train, but
    `gpt_classification` trains sentence_classification.
    """

    recipe: str
    train: tuple[str, ...]
    dev: tuple[str, ...]


def parse_tasks(arguments: Sequence[str], *, option: str = "--task") -> dict[str, LabelledFiles]:
    """Tasks by name, each as NAME=TYPE:TRAIN,DEV; any other form, or a repeated name, is a `TaskError`."""
    tasks: dict[str, LabelledFiles] = {}
    for argument in arguments:
        name, equals, rest = argument.partition("=")
        if not equals or not name.replace("_", "").replace("-", "").isalnum() or name == FIRST:
            raise TaskError(
                f"{option} {argument}: expected NAME=TYPE:TRAIN,DEV; a name has letters, digits, _ and -, and is not {FIRST!r}."
            )
        if name in tasks:
            raise TaskError(f"{option} {argument}: the name {name!r} is used twice. Give each task its own name.")
        tasks[name] = parse_files(rest, option=f"{option} {name}=")
    return tasks


def similar_task(name: str) -> str:
    """A sentence on the task that an unknown name means: what the field calls so, else the names that look most like it."""
    synonym = next((task for task, names in _ALSO_CALLED.items() if name.lower().replace("-", "_") in names), None)
    return propose(name, task_recipe_names()) if synonym is None else did_you_mean([synonym])


#: What tasks are called elsewhere.
_ALSO_CALLED = {
    "sentence_classification": {"classification", "text_classification", "sentiment", "sentiment_analysis", "topic"},
    "pair_classification": {"nli", "entailment", "paraphrase", "text_pair_classification", "sentence_pair_classification"},
    "regression": {"sts", "similarity"},
    "multi_label": {"multilabel", "multi_label_classification", "multilabel_classification"},
    "token_labelling": {"ner", "pos", "tagging", "token_classification", "token_labeling", "sequence_labelling"},
    "question_answering": {"qa", "squad", "extractive_qa"},
    "text_to_text": {"seq2seq", "translation", "summarization", "summarisation", "text2text_generation"},
    "dependency_parsing": {"parsing", "dependencies"},
    "coreference": {"coref", "coreference_resolution", "anaphora_resolution"},
    "retrieval": {"search"}, "reranking": {"ranking", "text_ranking", "passage_ranking", "rerank", "cross_encoder"},
}  # fmt: skip


def parse_files(argument: str, *, option: str) -> LabelledFiles:
    """A task as TYPE:TRAIN,DEV; any other form, or an unknown type, is a `TaskError`."""
    kind, colon, rest = argument.partition(":")
    train, comma, dev = rest.partition(",")
    if not (colon and comma and train and dev) or "," in dev:
        raise TaskError(f"{option}{argument}: expected TYPE:TRAIN,DEV, such as sentence_classification:train.tsv,dev.tsv.")
    if kind not in task_recipe_names():
        raise TaskError(f"{option}{argument}: unknown task {kind!r}. {similar_task(kind)}")
    return LabelledFiles(kind, (train,), (dev,))


def recipe_of_tasks(tasks: Mapping[str, LabelledFiles]) -> dict[str, Any]:
    """The recipe of several tasks at once, as plain data.

    Each task keeps the source, the exercise and the objectives of its own recipe, with heads of its own. A step holds examples of
    one task; a task has as many steps as its rows make batches. Training is that of the first task. One task has its own recipe,
    with a source and heads of its name.
    """
    recipes = {name: read_tree(task.recipe).plain() for name, task in tasks.items()}
    entries = {name: _entry(name, recipe) for name, recipe in recipes.items()}
    first: Mapping[str, Any] = next(iter(recipes.values()))
    shared = {
        "name": "-".join(tasks), "sources": {name: recipe["corpus"] for name, recipe in recipes.items()},
        "network": {"from": START}, "training": first["training"],
    }  # fmt: skip
    if len(entries) == 1:
        return {**shared, **next(iter(entries.values())), "task": first["task"]}
    mixture = {
        name: {"source": name, "odds": "by_size", **entry, "task": _entry_and_recipe_keys(recipes[name]["task"])[0]}
        for name, entry in entries.items()
    }
    return {**shared, "mixture": mixture, "task": _entry_and_recipe_keys(first["task"])[1]}


def staged_recipe(first: LabelledFiles, tasks: Mapping[str, LabelledFiles]) -> dict[str, Any]:
    """The recipe of an intermediate task and then of one task or several, as plain data: two stages.

    The second stage starts from the network of the first, with new heads. Shares of the budget are not used: each stage has the
    epochs of its recipe.
    """
    before, last = recipe_of_tasks({FIRST: first}), {**recipe_of_tasks(tasks), "network": {"from": FIRST}}
    name = f"{before.pop('name')}-{last.pop('name')}"
    return {"name": name, "stages": {FIRST: before, "last": last}}


def _entry(name: str, recipe: Mapping[str, Any]) -> dict[str, Any]:
    """The exercise and the objectives of a task; its heads are named after it."""
    entry = {key: recipe[key] for key in ("order", "exercise", "objectives", "passes") if key in recipe}
    runs = [entry, *entry.get("passes", ())]
    objectives = [inner for pass_ in runs for part in pass_.get("objectives", ()) for inner in part.values() if "head" in inner]
    for inner in objectives:
        inner["head"] = name if len(objectives) == 1 else f"{name}-{inner['head']}"
    return entry


def _entry_and_recipe_keys(task: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The values of `task:` that belong to an entry of a mixture, and those of the whole recipe."""
    of_entry = {key: value for key, value in task.items() if key in _KEYS_OF_ENTRY}
    return of_entry, {key: value for key, value in task.items() if key not in _KEYS_OF_ENTRY}
