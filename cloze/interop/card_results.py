"""The results of a fine-tuned model in its card: a table for readers, and `model-index` and `base_model` for the Hub."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from cloze.html_parts import metric_text
from cloze.interop.card import TRAINING, _code, _line, pipeline_of

RESULTS = "## Results"
#: The names of metrics in the library evaluate.
METRICS = {
    "macro_f1": "f1", "micro_f1": "f1", "span_f1": "f1", "matthews": "matthews_correlation", "pearson": "pearsonr",
    "spearman": "spearmanr",
}  # fmt: skip


def add_results(path: Path, task_json: Mapping[str, Any], *, title: str | None = None) -> None:
    """Put the metrics of task.json into a card that `write_card` wrote, in place of earlier ones.

    `title` is the name of the model, by default that in the card. A card without front matter stays as it is.
    """
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    if not text.startswith("---\n") or TRAINING not in text:
        return
    _, head, body = text.split("---\n", 2)
    heading = re.search(r"^# (.*)$", body, re.MULTILINE)
    front = {name: value for name, value in yaml.safe_load(head).items() if name not in ("model-index", "base_model")}
    base = task_json.get("base") or {}
    if base.get("hub"):
        front["base_model"] = base["hub"]
    results = list(_results(task_json))
    if results:
        front["model-index"] = [{"name": title or (heading[1] if heading else "model"), "results": results}]
    front_matter = yaml.safe_dump(front, sort_keys=False, allow_unicode=True)
    body = re.sub(rf"^{RESULTS}\n.*?(?=^{TRAINING}$)", "", body, flags=re.MULTILINE | re.DOTALL)
    before, after = body.split(TRAINING, 1)
    path.write_text(f"---\n{front_matter}---\n{before}{_section(task_json)}{TRAINING}{after}", encoding="utf-8")


def rename_card(path: Path, name: str) -> None:
    """Write another name of the model into a card that `write_card` wrote: into the heading, the commands and the code."""
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    if (heading := re.search(r"^# (.*)$", text, re.MULTILINE)) is None:
        return
    before = heading[1]
    text = text.replace(f"\n# {before}\n", f"\n# {name}\n", 1)
    use = re.compile(r"^## Use\n.*?(?=^## |\Z)", re.MULTILINE | re.DOTALL)
    in_code, in_command = json.dumps(before, ensure_ascii=False), f" {shlex.quote(before)} "
    text = use.sub(lambda part: part[0].replace(in_code, json.dumps(name, ensure_ascii=False)).replace(
        in_command, f" {shlex.quote(name)} "), text)
    path.write_text(text, encoding="utf-8")


def _parts(task_json: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, float]]]:
    """The sets of examples with their metrics. Those on dev rows are of the network alone, those on test rows of what answers."""
    for part in ("dev", "test"):
        metrics = task_json.get(part) or {}
        several = metrics if isinstance(metrics, list) else [metrics]
        for number, of_set in enumerate(several, 1):
            if of_set:
                yield part if len(several) == 1 else f"{part} {number}", of_set


def _results(task_json: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    tasks = task_json.get("tasks") or {"": task_json}
    for part, metrics in _parts(task_json):
        for name, task in tasks.items():
            lead = f"{name}/" if name else ""
            scored = {key.removeprefix(lead): value for key, value in metrics.items() if key.startswith(lead)}
            kind = str(task.get("task"))
            yield {
                "task": {"type": pipeline_of(kind) or kind, "name": name or kind},
                "dataset": {"name": f"{part} examples" + (", mixed with n-grams" if _is_mixed(task, part) else ""), "type": part},
                "metrics": [
                    {"type": METRICS.get(metric, metric), "value": float(value), "name": metric}
                    for metric, value in scored.items()
                ],
            }


def _is_mixed(task: Mapping[str, Any], part: str) -> bool:
    """Whether the metrics on a set of examples are those of a mixture of the network and a linear model."""
    return bool(task.get("mixture")) and not part.startswith("dev")


def _section(task_json: Mapping[str, Any]) -> str:
    """The results as Markdown, and what they are next to: the base, and what always giving one answer has."""
    parts = dict(_parts(task_json))
    base, constant, ngrams = task_json.get("base") or {}, task_json.get("baseline") or {}, task_json.get("ngrams") or {}
    lines = [f"Fine-tuned from {_code(base['name'])}.", ""] if base.get("name") else []
    if parts:
        simple = {f"always {_code(str(constant['always'])[:40])} (dev)": constant} if constant else {}
        linear = "n-grams and texts" if ngrams.get("texts") else "n-grams"
        simple |= {f"{linear} ({part})": metrics for part, metrics in _parts(ngrams)}
        mixture = task_json.get("mixture") or {}
        simple |= {f"mixture ({part})": metrics for part, metrics in _parts(mixture)}
        heads = [f"mixture ({part})" if _is_mixed(task_json, part) else part for part in parts]
        names = list(dict.fromkeys(name for metrics in parts.values() for name in metrics))
        lines += [_row(["metric", *heads, *simple]), _row(["---"] * (1 + len(parts) + len(simple)))]
        for name in names:
            cells = [metrics.get(name) for metrics in (*parts.values(), *simple.values())]
            lines.append(_row([_line(name), *("" if value is None else metric_text(value) for value in cells)]))
        lines.append("")
        if task_json.get("dev_rows"):
            lines += [f"dev: {task_json['dev_rows']}.", ""]
        if mixture:
            share = mixture["share"]
            lines += [
                f"mixture: in cloze, the answers are {1 - share:.0%} those of the network and {share:.0%} those of a linear "
                "model on n-grams. transformers and other programs read the network alone.", "",
            ]  # fmt: skip
        if ngrams.get("seconds") is not None:
            lines += [f"n-grams: a linear model on n-grams, fitted to the same rows in {ngrams['seconds']:.1f} seconds.", ""]
    return "\n".join([RESULTS, "", *lines, ""]) if lines else ""


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(cell.replace('|', '&#124;') for cell in cells)} |"
