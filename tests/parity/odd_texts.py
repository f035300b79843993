"""Texts on which tokenizers disagree first, for tests that compare ids with those of another library."""

from __future__ import annotations

#: Texts without any special token's literal: a tokenizer of cloze gives the ids of transformers for each.
ODD_TEXTS: tuple[str, ...] = (
    "",
    " ",
    "   \t ",
    "\n",
    "\n\nTwo lines\nand a third\r\nwith a return.\r",
    "  leading and trailing  ",
    "two  blanks,   three",
    "tab\tbetween",
    "no-break\u00a0space, thin\u2009space, ideographic\u3000space",
    "line\u2028separator and paragraph\u2029separator, next\u0085line",
    "zero\u200bwidth, joi\u200dned, non\u200cjoined, \ufeffmark",
    "soft\u00adhyphen, non\u2011breaking hyphen, en – em — dash…",
    "a bell \x07, a null \x00, a delete \x7f, an escape \x1b[0m",
    "I'm, you're, they've, it'll, he'd, dogs', O'Neill's, ‘curly’ “quotes”",
    "naïve café, Ångström, Ærøskøbing, Straße, İstanbul, ﬁne ﬂow",
    "cafe\u0301 with a combining accent, n\u0303, a\u0323\u0307, Z͑ͫ̓ͪ̂ͫ̽͏̴̙̤̞͉͚̯̞̠͍A̴̵̜̰͔ͫ͗͢",
    "emoji 😀, 👍🏽, 👩‍👩‍👧‍👦, 🇳🇱, ❤️, 1️⃣",
    "中文文本，没有空格。",
    "日本語とカタカナ、ﾊﾝｶｸ。한국어 문장입니다.",
    "mixed中文and日本語in1word",
    "שלום עולם, مرحبا بالعالم, العَرَبِيَّة",
    "Привет, мир! Ελληνικά; नमस्ते दुनिया สวัสดีชาวโลก",
    "rare 𠀀𠮷 planes 𝔘𝔫𝔦𝔠𝔬𝔡𝔢 and private \ue000 \U000f0000, \ufffd",
    "THE CAT, The Cat, tHE cAT",
    "x" * 250,
    "word-" * 30,
    "1234567890 3.14159 1,000,000 ½ ² ٣ 三 1e-5 0xFF",
    "https://user:pass@example.org:8080/a/b_c?q=1&r=%20#top, me@example.org, @user #tag",
    "C:\\path\\file.txt ~/x/*.py $HOME `code` {a: [1, 2]} <b>bold</b> a|b a^b a_b",
    "!!! ??? ... --- *** ((())) \"\" '' ,,",
    "The cat sleeps on the mat. The dog , too , does .",
    "▁lower block ▁▁ Ġ and ##ing </w> @@ ",
)

#: Texts that spell special tokens. They are plain text to `Tokenizer.encode`, on purpose: no text can write a special id.
#: transformers reads a literal of its vocabulary as the special token, unless `split_special_tokens` is set.
LITERAL_TEXTS: tuple[str, ...] = (
    "The [MASK] sat on the mat.",
    "[CLS] one [SEP] two [SEP][PAD] [UNK]",
    "<s>one</s></s>two</s><pad><unk><mask>",
    "The <mask> sat.",
    "end<|endoftext|>begin",
    "<extra_id_0> a <extra_id_99>",
    "<sep><cls><eop><eod><special1>",
)
