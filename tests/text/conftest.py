"""Small tokenizers for the tests of text: trained once per session on a few sentences written here."""

from __future__ import annotations

import pytest

from cloze.text import BPE, ByteBPE, Normalise, TextSpec, Tokenizer, Unigram, WordPiece, train

ENGLISH = [
    "The cat sleeps on the warm mat. It dreams of mice, cheese and long summers.",
    "Don't wake the sleeping cat; it's dreaming! Nobody wakes a dreaming cat (or a dog).",
    "In 1984 there were 12 cats and 345 dogs in the town, said the mayor's naïve brother.",
    "The café's owner sleeps late: summer mornings are long, and the dogs are sleeping too.",
]
CHINESE = ["猫在垫子上睡觉。它梦见老鼠和奶酪。", "不要叫醒正在睡觉的猫!它在做梦呢,2024年的夏天很长。"]
GPT2_SPECIAL = dict.fromkeys(("[BOS]", "[EOS]", "[PAD]", "[UNK]"), "<|endoftext|>")

T5_SPECIAL = {"[PAD]": "<pad>", "[EOS]": "</s>", "[SEP]": "</s>", "[UNK]": "<unk>"}
XLNET_SPECIAL = {
    "[UNK]": "<unk>", "[BOS]": "<s>", "[EOS]": "</s>", "[CLS]": "<cls>", "[SEP]": "<sep>", "[PAD]": "<pad>",
    "[MASK]": "<mask>", "[EOD]": "<eod>", "[EOP]": "<eop>",
}

SPECS = {
    "bert": TextSpec(Normalise(lower=True), WordPiece(size=220)),
    "cased": TextSpec(Normalise(), WordPiece(size=220)),
    "roberta": TextSpec(Normalise(), ByteBPE(size=400)),
    "gpt2": TextSpec(Normalise(), ByteBPE(size=400, special=GPT2_SPECIAL, special_last=True)),
    "unigram": TextSpec(Normalise(), Unigram(size=160)),
    "xlnet": TextSpec(Normalise(), Unigram(size=160, special=XLNET_SPECIAL)),
    "t5": TextSpec(Normalise(), Unigram(size=160, special=T5_SPECIAL, sentinels=7)),
    "xlm": TextSpec(Normalise(), BPE(size=300)),
    "gpt": TextSpec(Normalise(lower=True), BPE(size=300, special={"[UNK]": "<unk>"})),
}


@pytest.fixture(scope="session")
def trained() -> dict[str, Tokenizer]:
    return {name: train(spec, ENGLISH * 8 + CHINESE * 4) for name, spec in SPECS.items()}
