"""Models of sentencepiece in folders without tokenizer.json: the ids of sentencepiece itself behind the authors' own steps.

The models and ids.json are made by sentencepiece/make_models.py.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from cloze.errors import CheckpointError
from cloze.text import Tokenizer
from cloze.text.sentencepiece import read_pieces
from tests.parity.odd_texts import LITERAL_TEXTS, ODD_TEXTS

MODELS = Path(__file__).with_name("sentencepiece")
FILES = {"t5": "spiece.model", "albert": "spiece.model", "xlnet": "spiece.model",
         "xlm-roberta": "sentencepiece.bpe.model", "camembert": "sentencepiece.bpe.model"}  # fmt: skip


def folder_of(folder: Path, kind: str, **settings: Any) -> Path:
    folder.mkdir(exist_ok=True)
    name = kind if kind in ("t5", "albert", "xlnet") else "fairseq"
    shutil.copy(MODELS / f"{name}.model", folder / FILES[kind])
    (folder / "config.json").write_text(json.dumps({"model_type": kind}), encoding="utf-8")
    if settings:
        (folder / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")
    return folder


#: Where the tables of transformers, which cloze makes, differ from sentencepiece: "▁" in a text is no space, every mark is an
#: accent, the digits before a comma are cut at another place among equal ones. `<eop>` is special in cloze and no piece.
ESCAPED = "▁lower block ▁▁ Ġ and ##ing </w> @@ "
KEYCAP = "emoji 😀, 👍🏽, 👩\u200d👩\u200d👧\u200d👦, 🇳🇱, ❤️, 1️⃣"
DIGITS = "1234567890 3.14159 1,000,000 ½ ² ٣ 三 1e-5 0xFF"
DIFFERING = {
    "albert": {ESCAPED, KEYCAP, DIGITS},
    "xlnet": {ESCAPED, KEYCAP, DIGITS, "<sep><cls><eop><eod><special1>"},
}


@pytest.mark.parametrize("kind", sorted(FILES))
def test_the_ids_are_those_of_sentencepiece_behind_the_authors_steps(tmp_path: Path, kind: str) -> None:
    tokenizer, texts = Tokenizer.load(folder_of(tmp_path, kind)), [*ODD_TEXTS, *LITERAL_TEXTS]
    expected = json.loads((MODELS / "ids.json").read_text(encoding="utf-8"))[kind]
    ids = [encoded.ids.tolist() for encoded in tokenizer.encode_batch(texts)]
    differing = {text for text, ours, theirs in zip(texts, ids, expected, strict=True) if ours != theirs}
    assert differing == DIFFERING.get(kind, {ESCAPED})


@pytest.mark.parametrize("kind", sorted(FILES))
def test_a_text_that_spells_special_tokens_gives_no_special_id(tmp_path: Path, kind: str) -> None:
    tokenizer = Tokenizer.load(folder_of(tmp_path, kind))
    special = set(tokenizer.special_ids.tolist()) - {tokenizer.role("[UNK]")}
    for text in [*LITERAL_TEXTS, *(f"a{literal}b {literal} {literal.upper()}" for literal in tokenizer.literals.values())]:
        assert special.isdisjoint(tokenizer.encode(text).ids.tolist())
        spelled = tokenizer.encode_spelled(["The cat", text])
        assert spelled.ids[spelled.offsets[1] :].tolist() == tokenizer.encode(text).ids.tolist()
    template = tokenizer.encode_template(f"The cat {tokenizer.literals['[UNK]']} sleeps").ids
    assert tokenizer.role("[UNK]") in template.tolist()


def test_roles_have_the_ids_of_the_published_layouts(tmp_path: Path) -> None:
    roles = {kind: dict(Tokenizer.load(folder_of(tmp_path / kind, kind)).roles) for kind in FILES}
    fairseq = {"[BOS]": 0, "[CLS]": 0, "[PAD]": 1, "[EOS]": 2, "[SEP]": 2, "[UNK]": 3}
    assert roles["xlm-roberta"] == {**fairseq, "[MASK]": 179 + 2}
    assert roles["camembert"] == {**fairseq, "[BOS]": 5, "[CLS]": 5, "[EOS]": 6, "[SEP]": 6, "[MASK]": 179 + 5}
    assert roles["t5"] == {"[PAD]": 0, "[EOS]": 1, "[UNK]": 2}
    assert roles["albert"] == {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4, "[BOS]": 2, "[EOS]": 3}
    assert roles["xlnet"] == {"[UNK]": 0, "[BOS]": 1, "[EOS]": 2, "[CLS]": 3, "[SEP]": 4, "[PAD]": 5, "[MASK]": 6, "[EOD]": 7,
                              "[EOP]": 8}  # fmt: skip


def test_the_folder_decides_sentinels_capitals_and_accents(tmp_path: Path) -> None:
    few = Tokenizer.load(folder_of(tmp_path / "few", "t5", extra_ids=3))
    assert [few.piece(id) for id in few.sentinels] == ["<extra_id_0>", "<extra_id_1>", "<extra_id_2>"]
    assert few.sentinels.tolist() == [few.size - 1, few.size - 2, few.size - 3]
    assert len(Tokenizer.load(folder_of(tmp_path / "usual", "t5")).sentinels) == 100
    cased = Tokenizer.load(folder_of(tmp_path / "cased", "albert", do_lower_case=False, keep_accents=True))
    assert cased.normalised("Thé cat``") == 'Thé cat"'
    assert Tokenizer.load(folder_of(tmp_path / "lower", "albert")).normalised("Thé cat``") == 'the cat"'


def test_a_class_in_the_settings_comes_before_the_kind_of_network(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, "camembert", tokenizer_class="XLMRobertaTokenizerFast")
    assert Tokenizer.load(folder).role("[BOS]") == 0


def test_tokens_that_a_user_added_follow_the_pieces(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, "xlm-roberta", additional_special_tokens=["<ent>"])
    size = Tokenizer.load(folder).size
    (folder / "added_tokens.json").write_text(json.dumps({"<ent>": size + 1, "zebra": size}), encoding="utf-8")
    tokenizer = Tokenizer.load(folder)
    ids = tokenizer.encode("a zebra <ent> b").ids.tolist()
    assert [id for id in ids if id >= size] == [size, size + 1] and tokenizer.size == size + 2


def test_a_role_whose_token_was_added_is_one(tmp_path: Path) -> None:
    """The pad token of a model that was trained without one."""
    folder = folder_of(tmp_path, "xlm-roberta", tokenizer_class="T5Tokenizer", extra_ids=0)
    shutil.copy(MODELS / "fairseq.model", folder / "spiece.model")
    assert Tokenizer.load(folder).role("[PAD]") == 2  # the end of texts stands in for it
    (folder / "added_tokens.json").write_text(json.dumps({"<pad>": 180}), encoding="utf-8")
    tokenizer = Tokenizer.load(folder)
    assert tokenizer.role("[PAD]") == 180 and 180 not in tokenizer.encode("a <pad> b").ids


@pytest.mark.parametrize(
    ("name", "said"),
    [("CpmTokenizer", "belongs to CpmTokenizer, which cloze does not read"), (None, "may belong to several classes")],
)
def test_a_model_of_another_class_is_refused_with_the_way_out(tmp_path: Path, name: str | None, said: str) -> None:
    folder = folder_of(tmp_path, "t5", **({"tokenizer_class": name} if name else {}))
    (folder / "config.json").write_text("{}", encoding="utf-8")
    with pytest.raises(CheckpointError, match=said) as refused:
        Tokenizer.load(folder)
    assert "tokenizer_class T5Tokenizer or AlbertTokenizer or XLNetTokenizer or " in str(refused.value)
    assert "AutoTokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER)" in str(refused.value)


def test_a_damaged_model_is_refused_with_its_file(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, "t5")
    whole = (folder / "spiece.model").read_bytes()
    for data in (whole[:-40], b"", b"version https://git-lfs", whole[:10] + b"\xff" * 40, b"\x08\x01", bytes(range(256))):
        (folder / "spiece.model").write_bytes(data)
        with pytest.raises(CheckpointError, match="spiece.model: cannot be read as a tokenizer"):
            Tokenizer.load(folder)


def test_an_option_that_no_class_obeys_is_refused_by_name(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, "t5")
    model = (folder / "spiece.model").read_bytes()
    options = {"add_dummy_prefix": b"\x1a\x02\x18\x00", "treat_whitespace_as_suffix": b"\x12\x03\xc0\x01\x01",
               "model_type": b"\x12\x02\x18\x02"}  # fmt: skip
    for name, field in options.items():  # a repeated message replaces the one before it
        (folder / "spiece.model").write_bytes(model + field)
        with pytest.raises(CheckpointError, match=f"its option {name} is not the usual one"):
            Tokenizer.load(folder)


def test_pieces_scores_and_options_are_read(tmp_path: Path) -> None:
    model = read_pieces(MODELS / "t5.model")
    assert [piece for piece, _ in model.pieces[:3]] == ["<pad>", "</s>", "<unk>"] and model.types[:4] == [3, 3, 2, 1]
    assert (model.algorithm, model.unknown, model.byte_fallback, model.odd) == (1, 2, False, ())
    assert model.pieces[2][1] == 0.0 and all(score < 0 for _, score in model.pieces[3:]) and model.charsmap


def test_debertas_model_is_read_as_it_is_with_the_mask_behind_its_pieces(tmp_path: Path) -> None:
    shutil.copy(MODELS / "t5.model", tmp_path / "spm.model")
    (tmp_path / "config.json").write_text('{"model_type": "deberta-v2"}', encoding="utf-8")
    tokenizer, texts = Tokenizer.load(tmp_path), list(ODD_TEXTS)
    expected = json.loads((MODELS / "ids.json").read_text(encoding="utf-8"))["t5"][: len(texts)]
    ids = [encoded.ids.tolist() for encoded in tokenizer.encode_batch(texts)]
    assert {text for text, ours, theirs in zip(texts, ids, expected, strict=True) if ours != theirs} == {ESCAPED}
    assert tokenizer.roles["[MASK]"] == len(read_pieces(tmp_path / "spm.model").pieces) == tokenizer.size - 1
    (tmp_path / "tokenizer_config.json").write_text('{"split_by_punct": true}', encoding="utf-8")
    with pytest.raises(CheckpointError, match="its option split_by_punct is not the usual one of spm.model"):
        Tokenizer.load(tmp_path)
