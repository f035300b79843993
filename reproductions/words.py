"""The words of running text against the words of Universal Dependencies, language by language.

    python reproductions/words.py --treebanks FOLDER [--save after.json] [--before before.json]

A tagger or parser cuts a text that a user types into words by a rule (cloze/text/running.py), while it was trained on the words
of a treebank. FOLDER holds treebanks, each a folder with a `*-test.conllu` or `.conllu.xz` file
(github.com/UniversalDependencies/UD_…). Every
sentence of the test part is cut as `# text` has it, and compared with the surface tokens of the treebank: of a multiword token,
the token that is written. `--save` keeps the figures, and `--before` shows those of an earlier version next to the new ones. Only
treebanks of languages that put spaces between words are worth measuring: in others the tokenizer cuts. Any CPU gives the same
figures. What comes out is in reproductions/words.md.
"""

from __future__ import annotations

import argparse
import json
import lzma
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from cloze.text.running import word_spans

#: Takes the place of a tokenizer, which only scripts without spaces need.
UNCUT: Any = SimpleNamespace(encode_spelled=lambda texts: SimpleNamespace(begin=[0]))
Span = tuple[int, int]


def main() -> None:
    """Measure every treebank of a folder, and print the table."""
    options = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    options.add_argument("--treebanks", type=Path, required=True)
    options.add_argument("--save", type=Path)
    options.add_argument("--before", type=Path)
    options.add_argument("--differences", type=int, default=0, help="how many of the most frequent ones to print for each")
    given = options.parse_args()
    before = json.loads(given.before.read_text(encoding="utf-8")) if given.before else {}
    after = {}
    heads = ["treebank", "sentences", "whole, %", "precision", "recall", "F1", *(["whole before", "F1 before"] if before else [])]
    print("| " + " | ".join(heads) + " |\n|" + " --- |" * len(heads))
    for file in sorted(given.treebanks.glob("*/*test.conllu*")):
        name = file.parent.name.removeprefix("UD_")
        after[name], differences = measured(file)
        if not after[name]["sentences"]:
            print(f"| {name} | 0: its words are not those of its texts |")
            continue
        row = [name, f"{after[name]['sentences']:,}", *shown(after[name], "whole", "precision", "recall", "f1")]
        row += shown(before[name], "whole", "f1") if name in before else ["–"] * 2 if before else []
        print("| " + " | ".join(row) + " |")
        for (ours, theirs), count in differences.most_common(given.differences):
            print(f"    {count:5}  {ours} → {theirs}")
    if given.save:
        given.save.write_text(json.dumps(after, indent=1, ensure_ascii=False), encoding="utf-8")


def shown(figures: dict[str, float], *names: str) -> list[str]:
    """Figures as percentages."""
    return [f"{100 * figures[name]:.1f}" for name in names]


def measured(file: Path) -> tuple[dict[str, float], Counter[tuple[str, str]]]:
    """The figures of a treebank's file, and how often each stretch of text is cut in another way: ours, and the treebank's."""
    sentences = whole = ours = theirs = common = 0
    differences: Counter[tuple[str, str]] = Counter()
    for text, right in each_sentence(file):
        cut = word_spans(text, UNCUT)
        sentences, whole = sentences + 1, whole + (cut == right)
        ours, theirs, common = ours + len(cut), theirs + len(right), common + len(set(cut) & set(right))
        differences.update(between(text, cut, right))
    precision, recall = common / max(ours, 1), common / max(theirs, 1)
    figures = {"sentences": sentences, "whole": whole / max(sentences, 1), "precision": precision, "recall": recall}
    return figures | {"f1": 2 * common / max(ours + theirs, 1)}, differences


def each_sentence(file: Path) -> Iterator[tuple[str, list[Span]]]:
    """The text of each sentence, and the spans of its words; sentences whose words are not those of the text are left out."""
    data = lzma.decompress(file.read_bytes()) if file.suffix == ".xz" else file.read_bytes()
    for block in data.decode().split("\n\n"):
        lines = block.split("\n")
        text = next((line.removeprefix("# text =").strip() for line in lines if line.startswith("# text =")), "")
        spans: list[Span] = []
        place = last = 0
        for number, form in (line.split("\t")[:2] for line in lines if line and not line.startswith("#")):
            if "." in number or ("-" not in number and int(number) <= last):
                continue
            last = int(number.split("-")[-1])
            begin = text.find(form, place)
            if begin < 0 or text[place:begin].strip():
                break
            place = begin + len(form)
            spans.append((begin, place))
        else:
            if spans and not text[place:].strip():
                yield text, spans


def between(text: str, ours: list[Span], theirs: list[Span]) -> Iterator[tuple[str, str]]:
    """The smallest stretches of a text, from one common border to the next, that both cut in different ways."""
    borders = sorted({at for span in ours for at in span} & {at for span in theirs for at in span})
    for first, last in zip(borders, borders[1:], strict=False):
        parts = [tuple(text[a:b] for a, b in spans if first <= a and b <= last) for spans in (ours, theirs)]
        if parts[0] != parts[1]:
            yield "|".join(parts[0]), "|".join(parts[1])


if __name__ == "__main__":
    main()
