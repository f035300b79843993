"""Tokenizers with and without tokenizer.json: transformers' AutoTokenizer gives the ids of cloze for odd texts."""

from __future__ import annotations

import json
import shutil
import warnings
from pathlib import Path
from typing import Any

import pytest
import tokenizers

from cloze.errors import CheckpointError
from cloze.text import BPE, ByteBPE, Normalise, TextSpec, Tokenizer, WordPiece, train
from cloze.text.roles import GPT2_LITERALS, ROBERTA_LITERALS
from tests.parity.odd_texts import LITERAL_TEXTS, ODD_TEXTS

pytestmark = pytest.mark.parity
SAMPLES = Path(__file__).parents[2] / "cloze" / "samples"
LINES = [line for name in ("english.txt", "chinese.txt") for line in (SAMPLES / name).read_text("utf-8").splitlines()[:300]]


@pytest.fixture(scope="module")
def transformers() -> Any:
    return pytest.importorskip("transformers")


@pytest.fixture(scope="module")
def vocabularies() -> dict[str, Tokenizer]:
    """A vocabulary of every kind."""

    def trained(tokenizer: Any, lower: bool = False) -> Tokenizer:
        return train(TextSpec(tokenizer=tokenizer, normalise=Normalise(lower=lower)), LINES)

    return {
        "lower": trained(WordPiece(400), True), "cased": trained(WordPiece(400)),
        "roberta": trained(ByteBPE(400, special=ROBERTA_LITERALS)), "gpt2": trained(ByteBPE(400, special=GPT2_LITERALS)),
        "gpt": trained(BPE(400, special={"[UNK]": "<unk>"}), True),
    }  # fmt: skip


def write_old(folder: Path, tokenizer: Tokenizer, model_type: str, settings: dict[str, Any] | None = None) -> Path:
    """The files of the first layouts: no tokenizer.json."""
    folder.mkdir(parents=True, exist_ok=True)
    model = json.loads(tokenizer.description)["model"]
    if tokenizer.kind == "wordpiece":
        pieces = sorted(model["vocab"], key=model["vocab"].__getitem__)
        (folder / "vocab.txt").write_text("\n".join(pieces) + "\n", encoding="utf-8")
    else:
        (folder / "vocab.json").write_text(json.dumps(model["vocab"]), encoding="utf-8")
        merges = "\n".join(merge if isinstance(merge, str) else " ".join(merge) for merge in model["merges"])
        (folder / "merges.txt").write_text(f"#version: 0.2\n{merges}\n", encoding="utf-8")
    (folder / "config.json").write_text(json.dumps({"model_type": model_type}), encoding="utf-8")
    if settings is not None:
        (folder / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")
    return folder


def assert_equal_ids(transformers: Any, folder: Path) -> Any:
    """Equal ids for every odd text, equal numbers of tokens and roles; returns transformers' tokenizer."""
    theirs, ours = transformers.AutoTokenizer.from_pretrained(folder), Tokenizer.load(folder)
    texts = [*ODD_TEXTS]
    expected = theirs(texts, add_special_tokens=False)["input_ids"]
    ids = [encoded.ids.tolist() for encoded in ours.encode_batch(texts)]
    assert {text: pair for text, *pair in zip(texts, ids, expected, strict=True) if pair[0] != pair[1]} == {}
    assert len(theirs) == ours.size
    assert {ours.literals[role]: id for role, id in ours.roles.items()} == {
        literal: theirs.convert_tokens_to_ids(literal) for literal in ours.literals.values()
    }
    return theirs


WORD_LISTS: dict[str, tuple[str, dict[str, Any] | None]] = {
    "no settings": ("lower", None),
    "lower": ("lower", {"do_lower_case": True, "model_max_length": 512}),
    "cased": ("cased", {"do_lower_case": False, "tokenizer_class": "BertTokenizer"}),
    "accents are kept": ("lower", {"do_lower_case": True, "strip_accents": False}),
    "accents are stripped": ("cased", {"do_lower_case": False, "strip_accents": True}),
    "Chinese in one piece": ("cased", {"do_lower_case": False, "tokenize_chinese_chars": False}),
    "a special token with switches": ("lower", {"mask_token": {"__type": "AddedToken", "content": "[MASK]", "lstrip": True}}),
}


@pytest.mark.parametrize("case", WORD_LISTS)
def test_a_word_list_gives_equal_ids(transformers: Any, vocabularies: dict[str, Tokenizer], tmp_path: Path, case: str) -> None:
    name, settings = WORD_LISTS[case]
    assert_equal_ids(transformers, write_old(tmp_path, vocabularies[name], "bert", settings))


def test_rows_that_no_text_uses_keep_their_ids(
    transformers: Any, vocabularies: dict[str, Tokenizer], tmp_path: Path
) -> None:
    folder = write_old(tmp_path, vocabularies["lower"], "bert")
    pieces = (folder / "vocab.txt").read_text(encoding="utf-8").splitlines()
    pieces[1:1] = [f"[unused{number}]" for number in range(99)]
    (folder / "vocab.txt").write_text("\n".join(pieces) + "\n", encoding="utf-8")
    assert_equal_ids(transformers, folder)
    tokenizer = Tokenizer.load(folder)
    assert (tokenizer.role("[PAD]"), tokenizer.role("[UNK]"), tokenizer.id("[unused98]")) == (0, 100, 99)
    assert max(tokenizer.encode("[unused98] unused98").ids) > 99 and 99 not in tokenizer.encode("[unused98]").ids
    tokenizer.save(tmp_path / "again", length=30, frame_single="[CLS] {A} [SEP]")
    assert transformers.AutoTokenizer.from_pretrained(tmp_path / "again").get_vocab() == {
        piece: number for number, piece in enumerate(pieces)
    }


@pytest.mark.parametrize("model_type", ["distilbert", "electra", "mobilebert", "ernie", "lxmert", "visual_bert"])
def test_every_network_with_a_word_list_reads_it_alike(
    transformers: Any, vocabularies: dict[str, Tokenizer], tmp_path: Path, model_type: str
) -> None:
    assert_equal_ids(transformers, write_old(tmp_path, vocabularies["lower"], model_type))


@pytest.mark.parametrize(
    ("name", "model_type", "settings"),
    [("roberta", "roberta", None), ("roberta", "bart", None), ("gpt2", "gpt2", None),
     ("gpt2", "gpt2", {"add_prefix_space": True}), ("gpt", "openai-gpt", None),
     ("roberta", "roberta", {"add_prefix_space": True, "tokenizer_class": "RobertaTokenizer"})],
)  # fmt: skip
def test_lists_with_merges_give_equal_ids(
    transformers: Any, vocabularies: dict[str, Tokenizer], tmp_path: Path, name: str, model_type: str,
    settings: dict[str, Any] | None,
) -> None:  # fmt: skip
    assert_equal_ids(transformers, write_old(tmp_path, vocabularies[name], model_type, settings))


@pytest.mark.parametrize(
    ("model_type", "settings", "normalised"),
    [("xlm", {}, "the cafe"), ("xlm", {"do_lowercase_and_remove_accent": False}, "The Café"), ("flaubert", {}, "The Café"),
     ("flaubert", {"do_lowercase": True}, "the café")],
)  # fmt: skip
def test_the_rules_of_moses_are_said_to_be_absent_and_capitals_follow_the_settings(
    vocabularies: dict[str, Tokenizer], tmp_path: Path, model_type: str, settings: dict[str, Any], normalised: str
) -> None:
    folder = write_old(tmp_path, vocabularies["gpt"], model_type, settings)
    with pytest.warns(UserWarning, match="cuts texts into words by the rules of Moses, and cloze by those of BERT"):
        tokenizer = Tokenizer.load(folder)
    assert tokenizer.normalised("The Café") == normalised


@pytest.mark.parametrize("name", ["lower", "cased", "roberta", "gpt2"])
def test_tokenizer_json_gives_equal_ids(
    transformers: Any, vocabularies: dict[str, Tokenizer], tmp_path: Path, name: str
) -> None:
    settings = {"do_lower_case": False} if name == "cased" else None
    model_type = {"lower": "bert", "cased": "bert"}.get(name, name)
    folder = write_old(tmp_path, vocabularies[name], model_type, settings)
    transformers.AutoTokenizer.from_pretrained(folder).save_pretrained(folder)
    for old in ("vocab.txt", "vocab.json", "merges.txt"):
        (folder / old).unlink(missing_ok=True)
    assert_equal_ids(transformers, folder)


@pytest.mark.parametrize(
    ("name", "model_type", "settings", "says"),
    [
        ("lower", "bert", {"do_lower_case": False}, "do_lower_case is True there, and tokenizer_config.json says False"),
        ("cased", "electra", {"do_lower_case": True}, "do_lower_case is False there, and tokenizer_config.json says True"),
        ("cased", "bert", {}, "do_lower_case is False there, and tokenizer_config.json does not say; the default of Bert"),
        ("lower", "distilbert", {"strip_accents": False}, "strip_accents is True there, and tokenizer_config.json says False"),
        ("lower", "bert", {"tokenize_chinese_chars": False}, "tokenize_chinese_chars is True there"),
        ("roberta", "roberta", {"add_prefix_space": True}, "add_prefix_space is False there, and tokenizer_config.json says"),
        ("gpt2", "gpt2", {"add_prefix_space": True}, "add_prefix_space is False there"),
        ("lower", "bert", {"do_lower_case": False, "tokenizer_class": "PreTrainedTokenizerFast"}, None),
    ],
)  # fmt: skip
def test_switches_that_contradict_tokenizer_json_are_followed_by_the_classes_that_transformers_rebuilds(
    transformers: Any, vocabularies: dict[str, Tokenizer], tmp_path: Path, name: str, model_type: str, settings: dict[str, Any],
    says: str | None,
) -> None:
    tokenizer = vocabularies[name]
    tokenizer.save(tmp_path, length=64, frame_single="{A}")
    written = json.loads((tmp_path / "tokenizer_config.json").read_text("utf-8"))
    config = {key: value for key, value in written.items() if key.endswith("_token")} | settings
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config), "utf-8")
    (tmp_path / "config.json").write_text(json.dumps({"model_type": model_type}), "utf-8")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert_equal_ids(transformers, tmp_path)
    messages = [str(warning.message) for warning in caught if "is followed. For the other" in str(warning.message)]
    assert messages == [] if says is None else sum(says in message for message in messages) == 1


@pytest.mark.parametrize("settings", [{"do_lower_case": False}, {"keep_accents": True}, {}])
def test_switches_of_albert_are_followed(transformers: Any, tmp_path: Path, settings: dict[str, Any]) -> None:
    pieces = [("<pad>", 0.0), ("<unk>", 0.0), *((piece, -1.0) for piece in ("[CLS]", "[SEP]", "[MASK]"))]
    letters = [(letter, -3.0) for letter in ("\u2581", "C", "c", "a", "t", "\u00e9", "\u00c9", "e", "E")]
    built = tokenizers.Tokenizer(tokenizers.models.Unigram([*pieces, *letters], unk_id=1))
    steps = tokenizers.normalizers
    built.normalizer = steps.Sequence([steps.Replace("``", '"'), steps.Replace("''", '"'), steps.NFKD(), steps.StripAccents()])
    built.pre_tokenizer = tokenizers.pre_tokenizers.Sequence(
        [tokenizers.pre_tokenizers.WhitespaceSplit(), tokenizers.pre_tokenizers.Metaspace()]
    )
    built.add_special_tokens([piece for piece, _ in pieces])
    built.save(str(tmp_path / "tokenizer.json"))
    roles = {"pad_token": "<pad>", "unk_token": "<unk>", "cls_token": "[CLS]", "sep_token": "[SEP]", "mask_token": "[MASK]"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "AlbertTokenizer", **roles, **settings}))
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "albert"}))
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)("Cat \u00c9", add_special_tokens=False)["input_ids"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert Tokenizer.load(tmp_path).encode("Cat \u00c9").ids.tolist() == theirs


@pytest.mark.parametrize("name", ["lower", "roberta", "gpt2"])
def test_a_text_that_spells_special_tokens_is_plain_to_cloze_and_not_to_transformers(
    transformers: Any, vocabularies: dict[str, Tokenizer], tmp_path: Path, name: str
) -> None:
    folder = write_old(tmp_path, vocabularies[name], {"lower": "bert"}.get(name, name))
    theirs, ours = transformers.AutoTokenizer.from_pretrained(folder), Tokenizer.load(folder)
    split = theirs(list(LITERAL_TEXTS), add_special_tokens=False, split_special_tokens=True)["input_ids"]
    assert [encoded.ids.tolist() for encoded in ours.encode_batch(LITERAL_TEXTS)] == split
    assert split != theirs(list(LITERAL_TEXTS), add_special_tokens=False)["input_ids"]


@pytest.mark.parametrize("name", ["lower", "roberta", "gpt2"])
@pytest.mark.parametrize("where", ["tokenizer.json", "added_tokens.json", "both"])
def test_words_that_a_user_added_keep_their_ids(
    transformers: Any, vocabularies: dict[str, Tokenizer], tmp_path: Path, name: str, where: str
) -> None:
    """`both`: added_tokens.json is newer than tokenizer.json, which lacks them."""
    folder = write_old(tmp_path / "old", vocabularies[name], {"lower": "bert"}.get(name, name))
    size = vocabularies[name].size
    words, special = ["zebrafish", "qubit", "covid-19", "Ωmega", "deep learning"], ["<ent>", "[PAD2]"]
    if where == "tokenizer.json":
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        tokenizer.add_tokens(words)
        tokenizer.add_special_tokens({"additional_special_tokens": special})
        folder = tmp_path / "new"
        tokenizer.save_pretrained(folder)
        shutil.copy(tmp_path / "old" / "config.json", folder)
    else:
        if where == "both":
            transformers.AutoTokenizer.from_pretrained(folder).save_pretrained(folder)
            (folder / "tokenizer_config.json").unlink()
        added = {word: size + number for number, word in enumerate([*words, *special])}
        (folder / "added_tokens.json").write_text(json.dumps(added), encoding="utf-8")
        (folder / "special_tokens_map.json").write_text(json.dumps({"additional_special_tokens": special}), encoding="utf-8")
    theirs, ours = transformers.AutoTokenizer.from_pretrained(folder), Tokenizer.load(folder)
    texts = ["A zebrafish has qubits, covid-19 and deep  learning.", "deep learning Ωmega <ent> ωmega", "zebrafishes[PAD2]x"]
    assert len(theirs) == ours.size == size + 7
    assert [encoded.ids.tolist() for encoded in ours.encode_batch(texts)] == theirs(texts, add_special_tokens=False)["input_ids"]
    assert [ours.id(word) for word in [*words, *special]] == list(range(size, size + 7))


def test_a_role_that_a_user_added_is_one(transformers: Any, vocabularies: dict[str, Tokenizer], tmp_path: Path) -> None:
    """GPT-2 with a token for padding, as many guides make it."""
    folder = write_old(tmp_path, vocabularies["gpt2"], "gpt2")
    size = vocabularies["gpt2"].size
    (folder / "added_tokens.json").write_text(json.dumps({"[PAD]": size}), encoding="utf-8")
    named = {**dict.fromkeys(("bos_token", "eos_token", "unk_token"), "<|endoftext|>"), "pad_token": "[PAD]"}
    (folder / "special_tokens_map.json").write_text(json.dumps(named), encoding="utf-8")
    theirs = assert_equal_ids(transformers, folder)
    assert Tokenizer.load(folder).role("[PAD]") == theirs.pad_token_id == size


SENTENCEPIECE: dict[str, tuple[str, dict[str, Any]]] = {
    "t5": ("spiece.model", {"pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1}),
    "mt5": ("spiece.model", {"pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1}),
    "albert": ("spiece.model", {"pad_id": 0, "unk_id": 1, "bos_id": -1, "eos_id": -1,
                                "control_symbols": ["[CLS]", "[SEP]", "[MASK]"]}),
    "xlnet": ("spiece.model", {"control_symbols": ["<cls>", "<sep>", "<pad>", "<mask>", "<eod>", "<eop>"]}),
    "xlm-roberta": ("sentencepiece.bpe.model", {}),
    "camembert": ("sentencepiece.bpe.model", {}),
}  # fmt: skip


@pytest.mark.parametrize("kind", SENTENCEPIECE)
def test_a_model_of_sentencepiece_gives_equal_ids(transformers: Any, tmp_path: Path, kind: str) -> None:
    sentencepiece = pytest.importorskip("sentencepiece")
    file, options = SENTENCEPIECE[kind]
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(LINES), model_prefix=str(tmp_path / "trained"), vocab_size=800, minloglevel=2,
        hard_vocab_limit=False, num_threads=1, **options,
    )  # fmt: skip
    (tmp_path / "trained.model").rename(tmp_path / file)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": kind}), encoding="utf-8")
    theirs = assert_equal_ids(transformers, tmp_path)
    theirs.save_pretrained(tmp_path)
    assert (tmp_path / "tokenizer.json").is_file()
    assert_equal_ids(transformers, tmp_path)


@pytest.mark.parametrize(("name", "file"), [("BertJapaneseTokenizer", "vocab.txt"), ("PhobertTokenizer", "vocab.txt"),
                                            ("CLIPTokenizer", "vocab.json")])  # fmt: skip
def test_a_class_that_cuts_words_in_its_own_way_is_refused(
    vocabularies: dict[str, Tokenizer], tmp_path: Path, name: str, file: str
) -> None:
    folder = write_old(tmp_path, vocabularies["lower" if file == "vocab.txt" else "gpt2"], "bert")
    (folder / "config.json").write_text(json.dumps({"model_type": "bert", "tokenizer_class": name}), encoding="utf-8")
    with pytest.raises(CheckpointError, match=f"{file}: belongs to {name}, which cloze does not read"):
        Tokenizer.load(folder)
