"""Makes the small models of this folder, and ids.json: what the authors' steps and sentencepiece give for odd texts.

Usage: python -m tests.text.sentencepiece.make_models, from the root, where the package sentencepiece is installed.
"""

from __future__ import annotations

import contextlib
import json
import re
import tempfile
import unicodedata
from pathlib import Path
from typing import Any

import sentencepiece

from tests.parity.odd_texts import LITERAL_TEXTS, ODD_TEXTS

HERE = Path(__file__).resolve().parent
SAMPLES = HERE.parents[2] / "cloze" / "samples"
#: The trainer's options of each family, as far as they decide the layout of ids.
OPTIONS: dict[str, dict[str, Any]] = {
    "t5": {"pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1},
    "albert": {"pad_id": 0, "unk_id": 1, "bos_id": -1, "eos_id": -1, "control_symbols": ["[CLS]", "[SEP]", "[MASK]"]},
    "xlnet": {"control_symbols": ["<cls>", "<sep>", "<pad>", "<mask>", "<eod>"],
              "user_defined_symbols": ["<eop>", ".", "(", ")", '"', "-", "–", "£", "€"]},
    "fairseq": {},
}  # fmt: skip
#: White space and compatibility characters, as the usual table of 240 kB replaces them: code points in, code points out.
REPLACED = {**dict.fromkeys("\t\n\r\u0085\u00a0\u2009\u2028\u2029\u3000\u200b\ufeff", " "), "ﬁ": "fi", "½": "1⁄2", "²": "2"}


def main() -> None:
    lines = (SAMPLES / "english.txt").read_text(encoding="utf-8").splitlines()[:400]
    lines += ["In 1999, 2004, and 2010, 30,000 of 45,000 came (it is said) - or \"so\"."] * 20
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):  # a model keeps the names of its files
        table = Path("replaced.tsv")
        rows = (f"{ord(old):X}\t{' '.join(f'{ord(new):X}' for new in news)}" for old, news in REPLACED.items())
        table.write_text("\n".join(rows) + "\n", encoding="utf-8")
        for name, options in OPTIONS.items():
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=iter(lines), model_prefix=name, vocab_size=180, normalization_rule_tsv=str(table),
                minloglevel=2, hard_vocab_limit=False, num_threads=1, **options,
            )  # fmt: skip
            (HERE / f"{name}.model").write_bytes(Path(f"{name}.model").read_bytes())
    texts = [*ODD_TEXTS, *LITERAL_TEXTS]
    ids = {
        "t5": [encode("t5", text) for text in texts],
        "albert": [_comma_apart("albert", clean(text).lower()) for text in texts],
        "xlnet": [_comma_apart("xlnet", clean(text)) for text in texts],
        # fairseq's dictionary begins with four tokens of its own, and the file's pieces from the fourth on follow.
        "xlm-roberta": [[id + 1 if id >= 3 else 3 for id in encode("fairseq", text)] for text in texts],
        # CamemBERT's has a fifth one, the <unk> of the file, which is not used.
        "camembert": [[id + 4 if id >= 1 else 3 for id in encode("fairseq", text)] for text in texts],
    }
    (HERE / "ids.json").write_text(json.dumps(ids) + "\n", encoding="utf-8")


def processor(name: str) -> Any:
    return sentencepiece.SentencePieceProcessor(model_file=str(HERE / f"{name}.model"))


def encode(name: str, text: str) -> list[int]:
    return list(processor(name).encode(text))


def clean(text: str) -> str:
    """XLNet's and ALBERT's `preprocess_text`: one space, plain quotes, no accents."""
    text = " ".join(text.strip().split()).replace("``", '"').replace("''", '"')
    return "".join(letter for letter in unicodedata.normalize("NFKD", text) if not unicodedata.combining(letter))


def _comma_apart(name: str, text: str) -> list[int]:
    """XLNet's and ALBERT's `encode_pieces`: a piece of digits that ends in a comma is cut again."""
    model, ids = processor(name), []
    for piece in model.encode(text, out_type=str):
        if not re.fullmatch(r".*\d,", piece):
            ids.append(model.piece_to_id(piece))
            continue
        again = model.encode(piece[:-1].replace("▁", ""), out_type=str)
        if piece[0] != "▁" and again[0][0] == "▁":
            again = again[1:] if len(again[0]) == 1 else [again[0][1:], *again[1:]]
        ids += [model.piece_to_id(part) for part in [*again, piece[-1]]]
    return ids


if __name__ == "__main__":
    main()
