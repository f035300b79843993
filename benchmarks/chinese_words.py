"""Chinese whole-word masking against transformers' collator: how many masked units are words.

    python benchmarks/chinese_words.py --data ../shared/data

Masks 15 % of the same lines (10 to 126 characters) with `mask: {unit: whole_word}` over words of a segmenter, and with
`DataCollatorForLanguageModeling(whole_word_mask=True)`, which takes its words from offsets. A unit is what was masked
together. Counted are units with an ideograph: how many stand in jieba's dictionary (Wikipedia), and how many are words of the
annotators (UD GSDSimp, dev and test). Writes benchmarks/results/chinese_words_<machine>_<date>.csv. Needs `jieba` and
`transformers`; two minutes.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import lzma
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
from results import processor, write_results

from cloze.exercises.noise.mask import Mask
from cloze.rng import Draw, row_keys
from cloze.rows import Rows
from cloze.text import Annotations, Dictionary, Jieba, Normalise, Segmenter, TextSpec, Tokenizer, WordPiece, train
from cloze.text.characters import ideograph

Spans = list[tuple[int, int]]  # masked units of one line, in characters
# Frequent characters that only the traditional script has.
_TRADITIONAL = frozenset("們這國說時會對發經過還進開關長問門東車馬鳥魚龍書學習見覺話語為與無後來個樣種產業義軍區鐵電")
Masker = Callable[[list[str]], list[Spans]]


def ours(tokenizer: Tokenizer, words: Segmenter | None) -> Masker:
    """Our edit over the words of a segmenter; None: the tokenizer's own words."""

    def mask(lines: list[str]) -> list[Spans]:
        found = Annotations(words).encode(tokenizer, lines)
        spelled = tokenizer.encode_spelled(lines)
        length = np.diff(found.offsets).astype(np.int32)
        inside = np.arange(length.max()) < length[:, None]
        arrays: dict[str, Any] = {"length": length, "special": np.zeros(inside.shape, np.bool_)}
        flat = {"tokens": found.ids, "word_start": found.word_start, "begin": spelled.begin, "end": spelled.end}
        for name, values in flat.items():
            block = np.zeros(inside.shape, values.dtype)
            block[inside] = values
            arrays[name] = block
        begin, end = arrays.pop("begin"), arrays.pop("end")
        draw = Draw(row_keys(0, "main", 0, items=np.arange(len(lines))))
        masked = Mask(unit="whole_word")(Rows(arrays), draw)["masked"]
        word = np.cumsum(arrays["word_start"], axis=1)
        return [units(masked[i, :n], word[i, :n], begin[i, :n], end[i, :n]) for i, n in enumerate(length.tolist())]

    return mask


def theirs(folder: Path) -> Masker:
    """transformers' collator, as its documentation says: offsets and special tokens handed in."""
    import torch
    from transformers import AutoTokenizer, DataCollatorForLanguageModeling

    tokenizer = AutoTokenizer.from_pretrained(folder)
    collator = DataCollatorForLanguageModeling(tokenizer, whole_word_mask=True, mlm_probability=0.15)

    def mask(lines: list[str]) -> list[Spans]:
        torch.manual_seed(0)
        found: list[Spans] = []
        for line in lines:
            row = tokenizer(line, return_offsets_mapping=True, return_special_tokens_mask=True)
            offsets, special = np.array(row["offset_mapping"])[None], np.array(row["special_tokens_mask"])[None]
            word = collator._calc_word_ids_and_prob_mask(offsets, special)[0][0]
            masked = (collator([row])["labels"][0] != -100).numpy()
            found.append(units(masked, word, offsets[0, :, 0], offsets[0, :, 1]))
        return found

    return mask


def units(masked: Any, word: Any, begin: Any, end: Any) -> Spans:
    """First and last character of every word of which a token is masked."""
    return [(int(begin[word == w].min()), int(end[word == w].max())) for w in np.unique(word[masked]).tolist()]


def chinese(lines: Iterable[str]) -> list[str]:
    """Lines of a usable length that hold ideographs."""
    return [line for line in lines if 10 <= len(line) <= 126 and sum(map(ideograph, line)) > len(line) // 2]


def gold(folder: Path) -> tuple[list[str], list[set[tuple[int, int]]]]:
    """The sentences of UD GSDSimp and the places of the annotators' words in them."""
    lines: list[str] = []
    words: list[set[tuple[int, int]]] = []
    for path in sorted(folder.glob("*.conllu.xz")):
        raw = lzma.decompress(path.read_bytes()).decode("utf-8")
        for sentence in raw.strip().split("\n\n"):
            rows = sentence.split("\n")
            text = next(row[len("# text = "):] for row in rows if row.startswith("# text = "))
            place, spans = 0, set()
            for form in (row.split("\t")[1] for row in rows if row.split("\t")[0].isdigit()):
                place = text.index(form, place)
                spans.add((place, place + len(form)))
                place += len(form)
            if chinese([text]):
                lines.append(text)
                words.append(spans)
    return lines, words


def measured(lines: list[str], spans: list[Spans], words: list[set[tuple[int, int]]]) -> dict[str, float]:
    """Shares over all units with an ideograph; `words` are the places of what counts as a word in each line."""
    every = [(i, span) for i, row in enumerate(spans) for span in row if any(map(ideograph, lines[i][slice(*span)]))]
    share = [sum(b - a for a, b in row) / len(line) for line, row in zip(lines, spans, strict=True)]
    return {
        "units": len(every),
        "words": round(float(np.mean([span in words[i] for i, span in every])), 4),
        "characters_per_unit": round(float(np.mean([b - a for _, (a, b) in every])), 2),
        "masked": round(float(np.mean(share)), 4),
        "lines_without_mask": round(float(np.mean([s == 0 for s in share])), 4),
        "lines_masked_over_half": round(float(np.mean([s > 0.5 for s in share])), 4),
    }


def main() -> None:
    """Mask, count, print and write."""
    import jieba

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--lines", type=int, default=3000, help="of Wikipedia, in each script")
    options = parser.parse_args()
    with lzma.open(options.data / "text_zh_wiki" / "valid.txt.xz", "rt", encoding="utf-8") as file:
        wiki = chinese(line.strip() for line in file if not line.startswith("<"))
    simplified = [line for line in wiki if _TRADITIONAL.isdisjoint(line)][: options.lines]
    traditional = [line for line in wiki if not _TRADITIONAL.isdisjoint(line)][: options.lines]
    sentences, words = gold(options.data / "tag_zh_ud_gsdsimp")
    tokenizer = train(TextSpec(Normalise(lower=True), WordPiece(size=8000)), [*simplified, *traditional, *sentences])
    engine = jieba.Tokenizer()
    known, _ = engine.gen_pfdict(engine.get_dict_file())
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        tokenizer.save(folder / "tokenizer", length=512, frame_single="[CLS] {A} [SEP]")
        (folder / "words.txt").write_text("\n".join(word for word, count in known.items() if count), encoding="utf-8")
        ways: dict[str, Masker] = {
            "transformers, whole_word_mask=True": theirs(folder / "tokenizer"),
            "cloze, words: jieba": ours(tokenizer, Jieba()),
            "cloze, words: dictionary (jieba's list)": ours(tokenizer, Dictionary(file=str(folder / "words.txt"))),
            "cloze, words: dictionary (built in)": ours(tokenizer, Dictionary()),
        }
        records = []
        for way, mask in ways.items():
            for text, lines in (("Wikipedia, simplified", simplified), ("Wikipedia, traditional", traditional)):
                found = mask(lines)
                pairs = zip(lines, found, strict=True)
                listed = [{(a, b) for a, b in row if known.get(line[a:b])} for line, row in pairs]
                records.append({"text": text, "way": way, **measured(lines, found, listed)})
            found = mask(sentences)
            records.append({"text": "UD GSDSimp", "way": way, **measured(sentences, found, words)})
    for record in records:
        print(record)
    write_results("chinese_words", records, hardware=processor())


if __name__ == "__main__":
    main()
