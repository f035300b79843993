"""Tokenizers of Llama's family: other patterns of byte-level BPE, and BPE with ▁ and bytes; ids equal transformers' own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers, processors, trainers

from cloze.errors import CheckpointError
from cloze.text import Tokenizer
from cloze.text.encoding.chunks import ChunkEncoder
from cloze.text.layout import saved_frame

transformers = pytest.importorskip("transformers")

LEARNED = [
    "The cat's dream isn't over: it'll rain 12345 drops.\n\n\tRain, rain, RAIN…", "naïve café   déjà vu", "你好，世界。"
] * 3  # fmt: skip
TEXTS = [
    "", " ", "  ", "\n", "\t\tx\n\n  y", "The cat isn't here.", "it'Ll WE'RE they'd", "123 4567 8.9e10", "   many   spaces   ",
    "naïve cafe\u0301 e\u0301\u0323", "你好，世界。 こんにちは", "👩‍👩‍👧‍👦 😀🏳️‍🌈", "a\u00a0b\u2003c\u200bd", "مرحبا नमस्ते ไทย",
    "x<s>y</s> [INST] <|im_end|>",
    "\ufeffbom\r\nline", "ﬁ ½ Ⅳ ㎏", "def f(x):\n    return x**2  # ok", "▁under▁score", "\x00\x1f\x7f",
]  # fmt: skip
LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
SPECIAL = ["<|begin|>", "<|end|>", "<|im_end|>"]


def byte_level(split: Any, normalizer: Any = None) -> tokenizers.Tokenizer:
    engine = tokenizers.Tokenizer(models.BPE())
    engine.pre_tokenizer = pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    if normalizer is not None:
        engine.normalizer = normalizer
    engine.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    engine.train_from_iterator(LEARNED, trainers.BpeTrainer(
        vocab_size=330, special_tokens=SPECIAL, initial_alphabet=alphabet, show_progress=False
    ))
    return engine


def llama3() -> tokenizers.Tokenizer:
    engine = byte_level(pre_tokenizers.Split(Regex(LLAMA3), "isolated"))
    template = [("<|begin|>", engine.token_to_id("<|begin|>"))]
    engine.post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=True),
        processors.TemplateProcessing(single="<|begin|> $A", pair="<|begin|> $A <|begin|>:1 $B:1", special_tokens=template),
    ])
    return engine


def qwen2() -> tokenizers.Tokenizer:
    return byte_level(pre_tokenizers.Split(Regex(LLAMA3.replace("{1,3}", "")), "isolated"), normalizers.NFC())


def smollm() -> tokenizers.Tokenizer:
    engine = byte_level(pre_tokenizers.Digits(individual_digits=True))
    digits, whole = pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)
    engine.pre_tokenizer = pre_tokenizers.Sequence([digits, whole])
    return engine


def with_fallback(*, normalised: bool) -> tokenizers.Tokenizer:
    """Llama 2's layout: spaces become ▁ in a normaliser, or in a pre-tokenizer that cuts nothing (Mistral, transformers 5)."""
    trained = tokenizers.Tokenizer(models.BPE())
    trained.pre_tokenizer = pre_tokenizers.Metaspace()
    trained.train_from_iterator(LEARNED[:2] * 3, trainers.BpeTrainer(vocab_size=120, show_progress=False))
    pieces = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    learned = sorted(trained.get_vocab().items(), key=lambda item: item[1])
    pieces += [piece for piece, _ in learned if piece not in pieces]
    merges = [tuple(pair) for pair in json.loads(trained.to_str())["model"]["merges"]]
    engine = tokenizers.Tokenizer(models.BPE(
        {piece: number for number, piece in enumerate(pieces)}, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True
    ))
    if normalised:
        engine.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    else:
        engine.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    engine.decoder = decoders.Sequence([
        decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)
    ])
    engine.add_special_tokens(["<unk>", "<s>", "</s>"])
    engine.post_processor = processors.TemplateProcessing(single="<s> $A", pair="<s> $A <s>:1 $B:1", special_tokens=[("<s>", 1)])
    return engine


MADE: dict[str, Any] = {
    "llama3": llama3, "qwen2": qwen2, "smollm": smollm, "llama2": lambda: with_fallback(normalised=True),
    "mistral": lambda: with_fallback(normalised=False),
}
KIND = {"llama3": "byte_bpe", "qwen2": "byte_bpe", "smollm": "byte_bpe", "llama2": "fallback_bpe", "mistral": "fallback_bpe"}


@pytest.fixture(params=MADE)
def saved(request: Any, tmp_path: Path) -> tuple[str, Path, Any]:
    """A folder as transformers saves it, and its tokenizer there."""
    engine, name = MADE[request.param](), request.param
    roles = {"bos_token": "<|begin|>", "eos_token": "<|end|>"}
    if KIND[name] == "fallback_bpe":
        roles = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    there = transformers.PreTrainedTokenizerFast(tokenizer_object=engine, clean_up_tokenization_spaces=False, **roles)
    there.save_pretrained(tmp_path)
    return name, tmp_path, transformers.AutoTokenizer.from_pretrained(tmp_path)


def test_ids_and_texts_are_those_of_transformers(saved: tuple[str, Path, Any]) -> None:
    name, folder, there = saved
    ours = Tokenizer.load(folder)
    assert ours.kind == KIND[name]
    plain = [text for text in TEXTS if "<" not in text]  # transformers reads special tokens in texts, cloze does not
    encoded = ours.encode_batch(plain)
    for text, encoding in zip(plain, encoded, strict=True):
        ids = there(text, add_special_tokens=False)["input_ids"]
        assert encoding.ids.tolist() == ids, text
        assert ours.decode(ids) == there.decode(ids, skip_special_tokens=True), text


def test_special_tokens_in_a_text_are_text(saved: tuple[str, Path, Any]) -> None:
    _, folder, _ = saved
    ours = Tokenizer.load(folder)
    for literal in set(ours.literals.values()):
        encoding = ours.encode(f"x{literal}y")
        assert not set(encoding.ids.tolist()) & (set(ours.roles.values())), literal
        assert ours.decode(encoding.ids).endswith(f"x{literal}y")


def test_the_fast_encoder_gives_the_same_ids_and_words(saved: tuple[str, Path, Any]) -> None:
    _, folder, _ = saved
    ours = Tokenizer.load(folder)
    texts = [*TEXTS, *LEARNED, "x<|im_end|>y"]
    lines = ChunkEncoder(ours).encode_lines(texts)
    ids, starts, offsets = ours.encode_flat(texts)
    assert lines.ids.tolist() == ids.tolist() and lines.offsets.tolist() == offsets.tolist()
    assert lines.word_start.tolist() == starts.tolist()


def test_words_begin_behind_spaces_and_line_ends() -> None:
    ours = Tokenizer(with_fallback(normalised=True).to_str(), {"[UNK]": "<unk>"})
    encoding = ours.encode("The rain\nThe rain")
    pieces = [ours.piece(number) for number in encoding.ids.tolist()]
    begun = [place for place, begins in enumerate(encoding.word_start.tolist()) if begins]
    texts = ["".join(pieces[first:last]) for first, last in zip(begun, [*begun[1:], None], strict=True)]
    assert texts == ["▁The", "▁rain\n", "The", "▁rain"]


def test_the_frame_of_a_folder_is_read(saved: tuple[str, Path, Any]) -> None:
    name, folder, there = saved
    ours = Tokenizer.load(folder)
    frame = saved_frame(ours, folder)
    assert frame == ("{A}" if name in ("qwen2", "smollm") else "[BOS] {A}")
    framed = ours.encode_template(frame.split("{A}")[0].strip()).ids.tolist() if "[" in frame else []
    assert [*framed, *ours.encode("The cat").ids.tolist()] == there("The cat")["input_ids"]


def test_a_frame_of_tokens_without_roles_is_refused(tmp_path: Path) -> None:
    engine = llama3()
    transformers.PreTrainedTokenizerFast(tokenizer_object=engine, eos_token="<|end|>").save_pretrained(tmp_path)
    with pytest.raises(CheckpointError, match="the post-processor puts 0 around a text"):
        saved_frame(Tokenizer.load(tmp_path), tmp_path)


def test_what_cloze_saves_transformers_reads_the_same(saved: tuple[str, Path, Any], tmp_path: Path) -> None:
    _, folder, there = saved
    ours, frame = Tokenizer.load(folder), saved_frame(Tokenizer.load(folder), folder)
    ours.save(tmp_path / "ours", length=20, frame_single=frame, tokenizer_class="PreTrainedTokenizerFast")
    again = transformers.AutoTokenizer.from_pretrained(tmp_path / "ours")
    for text in TEXTS:
        assert again(text)["input_ids"] == there(text)["input_ids"], text


def test_the_fast_encoder_reads_special_tokens_without_a_role_as_the_tokenizer_does() -> None:
    engine = tokenizers.Tokenizer(models.BPE())
    engine.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=300, special_tokens=SPECIAL, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    engine.train_from_iterator(LEARNED, trainer)
    ours = Tokenizer(engine.to_str(), {"[UNK]": "<|end|>", "[BOS]": "<|begin|>"})
    ids = ours.encode("x<|im_end|>y").ids.tolist()
    assert ids[1] == ours.id("<|im_end|>") and ChunkEncoder(ours).encode_lines(["x<|im_end|>y"]).ids.tolist() == ids


def test_a_folder_with_sentencepiece_alone_is_told_the_way_out(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.model").write_bytes(b"x")
    with pytest.raises(CheckpointError, match=r"expected tokenizer.json.\n  Let transformers write tokenizer.json: AutoTok"):
        Tokenizer.load(tmp_path)
