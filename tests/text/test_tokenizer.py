"""The tokenizer object: roles, plain text against templates, words, saving and loading."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import numpy as np
import pytest

from cloze.errors import CheckpointError, RecipeError
from cloze.text import Tokenizer
from tests.text.conftest import SPECS

KINDS = sorted(SPECS)
FRAME = {"gpt2": "{A}", "gpt": "{A}", "t5": "{A} [EOS]"}


@pytest.mark.parametrize("name", KINDS)
def test_ids_are_split_into_special_and_ordinary(trained: dict[str, Tokenizer], name: str) -> None:
    tokenizer = trained[name]
    every = np.sort(np.concatenate([tokenizer.special_ids, tokenizer.ordinary_ids]))
    assert np.array_equal(every, np.arange(tokenizer.size))
    assert {*tokenizer.roles.values(), *tokenizer.sentinels.tolist()} == set(tokenizer.special_ids.tolist())
    assert np.all(np.diff(tokenizer.ordinary_ids) == 1)  # one run: what `corrupt` draws from


def test_special_ids_stand_where_the_papers_put_them(trained: dict[str, Tokenizer]) -> None:
    assert dict(trained["bert"].roles) == {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4}
    roberta = trained["roberta"]
    assert (roberta.role("[CLS]"), roberta.role("[PAD]"), roberta.role("[SEP]"), roberta.role("[UNK]")) == (0, 1, 2, 3)
    assert roberta.role("[BOS]") == roberta.role("[CLS]")
    assert roberta.role("[EOS]") == roberta.role("[SEP]")
    gpt2 = trained["gpt2"]
    assert gpt2.special_ids.tolist() == [gpt2.size - 1]
    xlm = trained["xlm"]
    assert (xlm.role("[BOS]"), xlm.role("[EOS]"), xlm.role("[PAD]"), xlm.role("[UNK]"), xlm.role("[MASK]")) == (0, 1, 2, 3, 5)
    assert xlm.special_ids.tolist() == list(range(14))
    xlnet = trained["xlnet"]
    order = ("[UNK]", "[BOS]", "[EOS]", "[CLS]", "[SEP]", "[PAD]", "[MASK]", "[EOD]", "[EOP]")
    assert [xlnet.role(role) for role in order] == list(range(9))


def test_sentinels_are_the_last_ids_descending_and_never_come_out_of_text(trained: dict[str, Tokenizer], tmp_path: Path) -> None:
    tokenizer = trained["t5"]
    assert tokenizer.sentinels.tolist() == list(range(tokenizer.size - 1, tokenizer.size - 8, -1))
    assert [tokenizer.piece(i) for i in tokenizer.sentinels] == [f"<extra_id_{n}>" for n in range(7)]
    assert (tokenizer.role("[PAD]"), tokenizer.role("[EOS]"), tokenizer.role("[UNK]")) == (0, 1, 2)
    for text in ("<extra_id_0>", "the<extra_id_3>cat", "a <extra_id_6> b"):
        assert not set(tokenizer.encode(text).ids.tolist()) & set(tokenizer.sentinels.tolist())
    tokenizer.save(tmp_path, length=64, frame_single="{A} [EOS]")
    assert Tokenizer.load(tmp_path).sentinels.tolist() == tokenizer.sentinels.tolist()
    assert len(trained["bert"].sentinels) == 0


@pytest.mark.parametrize("name", KINDS)
def test_plain_text_never_yields_a_special_id(trained: dict[str, Tokenizer], name: str) -> None:
    tokenizer = trained[name]
    unknown = tokenizer.role("[UNK]")
    for literal in {*tokenizer.literals.values(), *tokenizer.roles}:
        for text in (literal, f"a {literal} b", f"a{literal}b", literal * 2, f"{literal.lower()}."):
            ids = set(tokenizer.encode(text).ids.tolist()) - {unknown if name != "gpt2" else -1}
            assert not ids & set(tokenizer.special_ids.tolist()), text


@pytest.mark.parametrize("name", ["bert", "roberta", "unigram"])
def test_a_template_reads_roles_and_literals(trained: dict[str, Tokenizer], name: str) -> None:
    tokenizer = trained[name]
    for text in ("the [MASK] sleeps", f"the {tokenizer.literals['[MASK]']} sleeps"):
        found = tokenizer.encode_template(text)
        place = found.ids.tolist().index(tokenizer.role("[MASK]"))
        assert found.word_start[place] and found.word_start[place + 1]


def test_the_mask_of_byte_level_bpe_takes_its_space_with_it(trained: dict[str, Tokenizer]) -> None:
    tokenizer = trained["roberta"]
    ids = tokenizer.encode_template("the <mask>").ids.tolist()
    assert ids == [*tokenizer.encode("the").ids.tolist(), tokenizer.role("[MASK]")]


def test_words_begin_where_the_pre_tokenizer_cuts(trained: dict[str, Tokenizer]) -> None:
    text = "The cat's zzz, 中文"
    starts = {name: int(trained[name].encode(text).word_start.sum()) for name in ("bert", "cased", "roberta", "gpt2", "unigram")}
    # the | cat | ' | s | zzz | , | 中 | 文 ; The | Ġcat | 's | Ġzzz | , | Ġ中文 ; four runs between spaces
    assert starts == {"bert": 8, "cased": 8, "roberta": 6, "gpt2": 6, "unigram": 4}
    assert all(trained[name].encode("cat").word_start[0] for name in KINDS)


def test_bpe_over_characters_marks_the_ends_of_words(trained: dict[str, Tokenizer]) -> None:
    tokenizer = trained["xlm"]
    found = tokenizer.encode("The cat's zzz")
    pieces = [tokenizer.piece(i) for i in found.ids]
    spelled = "".join(pieces).replace("</w>", " ").split()
    assert spelled == ["The", "cat", "'", "s", "<unk><unk><unk>"]
    ends = [i for i, piece in enumerate(pieces) if piece.endswith("</w>")]
    assert all(found.word_start[end + 1] for end in ends if end + 1 < len(pieces))
    assert int(found.word_start.sum()) == 5
    assert tokenizer.decode(tokenizer.encode("The sleeping cat").ids) == "The sleeping cat"


@pytest.mark.parametrize("name", ["roberta", "gpt2"])
def test_byte_level_bpe_gives_every_text_back(trained: dict[str, Tokenizer], name: str) -> None:
    text = "Zürich  naïve\t猫 🐈 [MASK] <s>\n"
    assert trained[name].decode(trained[name].encode(text).ids) == text


def test_empty_text_and_batches(trained: dict[str, Tokenizer]) -> None:
    for tokenizer in trained.values():
        empty, full = tokenizer.encode_batch(["", "the cat"])
        assert len(empty.ids) == len(empty.word_start) == 0
        assert full.ids.dtype == np.int32 and full.word_start.dtype == np.bool_
        assert np.array_equal(full.ids, tokenizer.encode("the cat").ids)


def test_lone_surrogates_are_replaced_not_refused(trained: dict[str, Tokenizer]) -> None:
    for tokenizer in trained.values():
        assert np.array_equal(tokenizer.encode("a \ud800 b").ids, tokenizer.encode("a \ufffd b").ids)


@pytest.mark.parametrize("name", KINDS)
def test_saving_and_pickling_keep_everything(trained: dict[str, Tokenizer], name: str, tmp_path: Path) -> None:
    tokenizer = trained[name]
    tokenizer.save(tmp_path, length=64, frame_single=FRAME.get(name, "[CLS] {A} [SEP]"))
    for again in (Tokenizer.load(tmp_path), pickle.loads(pickle.dumps(tokenizer))):
        assert (again.hash, again.size, again.kind, again.lower) == (
            tokenizer.hash,
            tokenizer.size,
            tokenizer.kind,
            tokenizer.lower,
        )
        assert dict(again.roles) == dict(tokenizer.roles)
        assert np.array_equal(again.encode("a [MASK] naïve cat").ids, tokenizer.encode("a [MASK] naïve cat").ids)


def test_pieces_and_ids_are_inverse(trained: dict[str, Tokenizer]) -> None:
    for tokenizer in trained.values():
        assert [tokenizer.id(tokenizer.piece(i)) for i in range(tokenizer.size)] == list(range(tokenizer.size))
        assert tokenizer.id("no such piece") is None


def test_an_unknown_role_or_id_is_explained(trained: dict[str, Tokenizer]) -> None:
    with pytest.raises(RecipeError, match=r"no \[MASKS\]. Did you mean .*\[MASK\]"):
        trained["bert"].role("[MASKS]")
    with pytest.raises(RecipeError, match="no piece has the id"):
        trained["bert"].piece(10**6)


def test_an_old_bert_folder_with_a_word_list_is_read(tmp_path: Path) -> None:
    pieces = ["[PAD]", "[unused1]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "##s", "naive"]
    (tmp_path / "vocab.txt").write_text("\n".join(pieces) + "\n", encoding="utf-8")
    tokenizer = Tokenizer.load(tmp_path)
    assert (tokenizer.kind, tokenizer.lower, tokenizer.role("[MASK]")) == ("wordpiece", True, 5)
    assert tokenizer.encode("The naïve CATS [MASK]").ids.tolist() == [6, 9, 7, 8, 2, 2, 2]
    (tmp_path / "tokenizer_config.json").write_text('{"do_lower_case": false}', encoding="utf-8")
    assert Tokenizer.load(tmp_path).encode("The cats").ids.tolist() == [2, 7, 8]


def test_every_line_of_an_old_word_list_is_a_piece_and_added_tokens_follow(tmp_path: Path) -> None:
    """bert-base-chinese has a piece U+2028, which is an end of a line for Python but not for the file."""
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "\u2028", "\u0085", "", "the", "cat"]
    (tmp_path / "vocab.txt").write_bytes("".join(f"{piece}\r\n" for piece in pieces).encode())
    assert (Tokenizer.load(tmp_path).size, Tokenizer.load(tmp_path).encode("the cat").ids.tolist()) == (10, [8, 9])

    added = tmp_path / "added_tokens.json"
    added.write_text('{"NewTok": 11, "<|user|>": 10}', encoding="utf-8")
    (tmp_path / "special_tokens_map.json").write_text('{"additional_special_tokens": ["<|user|>"]}', encoding="utf-8")
    tokenizer = Tokenizer.load(tmp_path)
    assert tokenizer.encode("the<|user|>cat newtok [MASK]").ids.tolist() == [8, 10, 9, 11, 1, 1, 1]
    assert tokenizer.special_ids.tolist() == [0, 1, 2, 3, 4, 10]

    added.write_text('{"<|user|>": 12}', encoding="utf-8")
    with pytest.raises(CheckpointError) as caught:
        Tokenizer.load(tmp_path)
    assert str(caught.value) == (
        f"{added}: the added token '<|user|>' has the id 12; expected 10, the next one.\n"
        "  Save the tokenizer again in the present layout: AutoTokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER)"
    )

    for damaged in ('{"<|user|>": "x"}', '{"<|user|>": null}'):
        added.write_text(damaged, encoding="utf-8")
        with pytest.raises(CheckpointError, match=r"added_tokens\.json: cannot be read as a tokenizer .*; copy it again"):
            Tokenizer.load(tmp_path)


def test_special_tokens_that_a_user_added_are_read_in_texts_but_those_with_a_role_are_not(
    trained: dict[str, Tokenizer], tmp_path: Path
) -> None:
    bert = trained["bert"]
    bert.save(tmp_path, length=8, frame_single="{A}", frame_pair=None)
    data = json.loads((tmp_path / "tokenizer.json").read_text(encoding="utf-8"))
    switches = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    data["added_tokens"].append({"id": bert.size, "content": "<|user|>", **switches})
    (tmp_path / "tokenizer.json").write_text(json.dumps(data), encoding="utf-8")
    tokenizer = Tokenizer.load(tmp_path)
    the = bert.encode("the").ids.tolist()
    assert tokenizer.encode("the<|user|>the").ids.tolist() == [*the, bert.size, *the]
    assert tokenizer.encode("[MASK]").ids.tolist() == bert.encode("[MASK]").ids.tolist()
    assert bert.role("[MASK]") not in tokenizer.encode("[MASK]").ids


def test_a_folder_is_read_once_while_its_tokenizer_is_in_use_and_again_when_it_changes(tmp_path: Path) -> None:
    (tmp_path / "vocab.txt").write_text("[PAD]\n[UNK]\nthe\ncat\n", encoding="utf-8")
    first = Tokenizer.load(tmp_path)
    assert Tokenizer.load(tmp_path) is first
    (tmp_path / "vocab.txt").write_text("[PAD]\n[UNK]\nthe\ncats\n", encoding="utf-8")
    assert (first.id("cats"), Tokenizer.load(tmp_path).id("cats")) == (None, 3)


def test_an_old_gpt2_folder_with_merges_is_read(trained: dict[str, Tokenizer], tmp_path: Path) -> None:
    model = json.loads(trained["gpt2"].description)["model"]
    (tmp_path / "vocab.json").write_text(json.dumps(model["vocab"]), encoding="utf-8")
    merges = [" ".join(pair) if isinstance(pair, list) else pair for pair in model["merges"]]
    (tmp_path / "merges.txt").write_text("#version: 0.2\n" + "\n".join(merges), encoding="utf-8")
    again = Tokenizer.load(tmp_path)
    assert dict(again.roles) == dict(trained["gpt2"].roles)
    assert np.array_equal(again.encode("The café's cats").ids, trained["gpt2"].encode("The café's cats").ids)


@pytest.mark.parametrize(
    ("name", "content"),
    [("tokenizer.json", '{"model": '), ("tokenizer.json", "[]"), ("tokenizer.json", '{"model": {"vocab": {}}}')],
)
def test_a_damaged_folder_is_reported_with_its_file(tmp_path: Path, name: str, content: str) -> None:
    (tmp_path / name).write_text(content, encoding="utf-8")
    with pytest.raises(CheckpointError, match="tokenizer.json"):
        Tokenizer.load(tmp_path)


def test_a_folder_without_a_tokenizer_is_reported(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="no tokenizer here"):
        Tokenizer.load(tmp_path)
    with pytest.raises(CheckpointError, match="no such folder"):
        Tokenizer.load(tmp_path / "absent")


def test_a_frame_may_hold_roles_only(trained: dict[str, Tokenizer], tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="neither a role"):
        trained["bert"].save(tmp_path, length=8, frame_single="question: {A}")
    with pytest.raises(RecipeError, match=r"has no \[BOS\]"):
        trained["bert"].save(tmp_path, length=8, frame_single="[BOS] {A}")
