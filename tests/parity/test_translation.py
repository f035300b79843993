"""Translators that are told languages by tokens, as transformers writes them: rows, languages, and what they write."""

from __future__ import annotations

import hashlib
import json
import pickle
import struct
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

import cloze
from cloze.checkpoint.build import load_checkpoint
from cloze.cli.main import main
from cloze.corpus.stores.build import build_store
from cloze.decoding.generating.forms import form_of
from cloze.decoding.reader import Reader
from cloze.errors import CheckpointError, CorpusError, UserError
from cloze.tasks import load_tuned
from cloze.text import Tokenizer

transformers = pytest.importorskip("transformers")
mbart = pytest.importorskip("transformers.models.mbart.tokenization_mbart")
mbart50 = pytest.importorskip("transformers.models.mbart50.tokenization_mbart50")
pytestmark = pytest.mark.parity

TEXTS = ["The cat sleeps on the mat.", "A dog barks", "Rain fell on the river."]
SPECIAL = ("<s>", "<pad>", "</s>", "<unk>")
#: model_type, tokenizer class of transformers, two languages and their tokens, options of the tokenizer, what is always first.
SYSTEMS: dict[str, tuple[str, str, tuple[str, str], dict[str, Any]]] = {
    "mbart": ("mbart", "MBartTokenizer", ("en_XX", "ro_RO"), {}),
    "mbart50": ("mbart", "MBart50Tokenizer", ("en_XX", "gl_ES"), {}),
    "nllb": ("m2m_100", "NllbTokenizer", ("eng_Latn", "fra_Latn"), {}),
    "old nllb": ("m2m_100", "NllbTokenizer", ("eng_Latn", "fra_Latn"), {"legacy_behaviour": True}),
}


CODES = {"mbart": mbart.FAIRSEQ_LANGUAGE_CODES, "mbart50": mbart50.FAIRSEQ_LANGUAGE_CODES}


def scored(systems: ModuleType, codes: list[str]) -> dict[str, Any]:
    """The pieces of mBART, with few of them learned."""
    pieces = json.loads(systems.tokenizer("unigram").description)["model"]["vocab"]
    learned = [(piece, score) for piece, score in pieces if not piece.startswith(("<", "["))]
    return {"vocab": [*((piece, 0.0) for piece in SPECIAL), *learned, *((code, 0.0) for code in codes), ("<mask>", 0.0)]}


def merged() -> dict[str, Any]:
    """The pieces of NLLB, with few of them learned."""
    letters = dict.fromkeys("▁" + "".join(TEXTS).replace(" ", ""))
    merges = [("▁", "t"), ("a", "t"), ("▁", "c"), ("▁c", "at"), ("e", "r"), ("i", "v"), ("iv", "er"), ("▁", "r"), ("▁r", "iver")]
    pieces = [*SPECIAL, *letters, *("".join(pair) for pair in merges)]
    return {"vocab": {piece: number for number, piece in enumerate(pieces)}, "merges": merges}


@pytest.fixture
def made(systems: ModuleType, foreign: ModuleType, tmp_path: Path, request: pytest.FixtureRequest) -> Any:
    """`made("nllb")`: a folder that transformers wrote, its model and its tokenizer."""

    def make(name: str) -> tuple[Path, Any, Any]:
        model_type, cls, (source, target), options = SYSTEMS[name]
        vocabulary = merged() if model_type == "m2m_100" else scored(systems, CODES[name])
        tokenizer = getattr(transformers, cls)(**vocabulary, src_lang=source, tgt_lang=target, **options)
        kind = foreign.KINDS[model_type]
        start = tokenizer.convert_tokens_to_ids(target) if name == "mbart" else tokenizer.eos_token_id
        config = transformers.AutoConfig.for_model(
            model_type, vocab_size=len(tokenizer), **kind.sizes, pad_token_id=1, bos_token_id=0, eos_token_id=2,
            decoder_start_token_id=start,
        )  # fmt: skip
        torch.manual_seed(0)
        model = getattr(transformers, kind.cls)(config).eval()
        generator = torch.Generator().manual_seed(0)
        with torch.no_grad():
            for parameter in dict.fromkeys(model.parameters()):
                parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator))
        folder = tmp_path / "theirs"
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        return folder, model, tokenizer

    return make


@pytest.mark.parametrize("name", SYSTEMS)
def test_rows_are_those_of_transformers(made: Any, name: str) -> None:
    folder, _, tokenizer = made(name)
    reader = Reader.of(load_checkpoint(folder))
    rows = [row.ids.tolist() for row in reader.encode(TEXTS)]
    assert rows == [tokenizer(text).input_ids for text in TEXTS]


@pytest.mark.parametrize("beams", [None, 3])
@pytest.mark.parametrize("name", SYSTEMS)
def test_translations_are_those_of_transformers(made: Any, name: str, beams: int | None) -> None:
    folder, model, tokenizer = made(name)
    target = SYSTEMS[name][2][1]
    first = {} if name == "mbart" else {"forced_bos_token_id": tokenizer.convert_tokens_to_ids(target)}
    ours = cloze.load(folder)
    for text in TEXTS:
        given = tokenizer(text, return_tensors="pt")
        settings = {"max_new_tokens": 9, "num_beams": beams or 1, "do_sample": False, "forced_eos_token_id": None, **first}
        theirs = model.generate(**given, **settings)
        ids = theirs[0, 1:].tolist()
        ids = ids[: ids.index(2)] if 2 in ids else ids
        found = ours.generate(text, tokens=9, temperature=0.0 if beams is None else 1.0, beams=beams)
        assert list(found.ids) == ids
        assert found.text == tokenizer.decode(ids, skip_special_tokens=True).strip()


@pytest.mark.parametrize("name", SYSTEMS)
def test_languages_are_chosen_by_name(made: Any, name: str) -> None:
    folder, _, tokenizer = made(name)
    (source, target), loaded = SYSTEMS[name][2], load_checkpoint(folder)
    for language, to in ((source, target), (target, source)):
        tokenizer.src_lang = language
        reader = Reader.of(loaded, language=language, to=to)
        assert reader.encode(TEXTS[:1])[0].ids.tolist() == tokenizer(TEXTS[0]).input_ids
        form, wanted = form_of(reader), tokenizer.convert_tokens_to_ids(to)
        ids, _ = form.target(tokenizer(TEXTS[1], add_special_tokens=False).input_ids)
        begins = form.with_targets([type("Pair", (), {"source": reader.encode(TEXTS[:1])[0], "target": ids})], "main")
        assert wanted in begins["decoder.tokens"][0].tolist()[:2]
    with pytest.raises(UserError, match="does not know the language 'xx'.*\n.*It knows: "):
        Reader.of(loaded, language="xx")


def test_a_language_that_nobody_names_is_asked_for(made: Any, capsys: pytest.CaptureFixture[str]) -> None:
    folder, _, _ = made("nllb")
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps({**settings, "src_lang": None, "tgt_lang": None}))
    assert main(["generate", str(folder), "The cat", "--tokens", "3"]) == 2
    said = capsys.readouterr().err
    assert "the language that it writes" in said and "--to LANGUAGE" in said and "fra_Latn" in said
    assert main(["generate", str(folder), "The cat", "--tokens", "3", "--to", "fra_Latn"]) == 0


@pytest.mark.parametrize("name", ["mbart", "mbart50", "nllb"])
def test_an_imported_translator_opens_in_transformers_with_its_languages(made: Any, tmp_path: Path, name: str) -> None:
    folder, model, tokenizer = made(name)
    source, target = SYSTEMS[name][2]
    out = tmp_path / "out"
    assert main(["import", str(folder), "--out", str(out), "--language", target, "--to", source]) == 0
    again = transformers.AutoModelForSeq2SeqLM.from_pretrained(out).eval()
    texts, wanted = transformers.AutoTokenizer.from_pretrained(out), tokenizer.convert_tokens_to_ids(source)
    tokenizer.src_lang = target
    assert texts(TEXTS[0]).input_ids == tokenizer(TEXTS[0]).input_ids
    given = tokenizer(TEXTS[0], return_tensors="pt")
    first = {"decoder_start_token_id": wanted} if name == "mbart" else {"forced_bos_token_id": wanted}
    theirs = model.generate(**given, max_new_tokens=6, num_beams=1, forced_eos_token_id=None, **first)
    assert again.generate(**given, max_new_tokens=6, num_beams=1).tolist() == theirs.tolist()
    assert cloze.load(out).generate(TEXTS[0], tokens=6, temperature=0.0).text == cloze.load(folder).generate(
        TEXTS[0], tokens=6, temperature=0.0, language=target, to=source
    ).text


@pytest.mark.parametrize("name", ["mbart", "nllb"])
def test_a_translator_is_fine_tuned_in_its_languages(made: Any, tmp_path: Path, name: str) -> None:
    folder, _, _ = made(name)
    (tmp_path / "train.tsv").write_text("text\ttarget\n" + "The cat\tA dog\nA dog\tThe cat\n" * 2)
    files = ["--train", str(tmp_path / "train.tsv"), "--dev", str(tmp_path / "train.tsv"), "--out", str(tmp_path / "tuned")]
    short = ["--set", "training.epochs=1", "--set", "length=12", "--set", "exercise[1].max_length=12"]
    assert main(["finetune", str(folder), "--task", "text_to_text", *files, *short]) == 0
    assert main(["predict", str(tmp_path / "tuned"), str(tmp_path / "train.tsv"), "--out", str(tmp_path / "p.jsonl")]) == 0
    written = [json.loads(line)["output"] for line in (tmp_path / "p.jsonl").read_text().splitlines()]
    assert not any(language in text for text in written for language in SYSTEMS[name][2])


# ---- Marian ----------------------------------------------------------------------------------------------------------


SOURCE = ["▁The", "▁cat", "▁sle", "eps", "▁A", "▁dog", "▁", *"Thecatslpsdogfbrkinmu.,é"]
TARGET = ["▁Le", "▁chat", "▁dort", "▁Un", "▁ch", "ien", "▁", *"Lechatdorunpslivmê.,"]


def message(*fields: tuple[int, Any]) -> bytes:
    """A message of Protocol Buffers."""

    def varint(value: int) -> bytes:
        return bytes([value & 127 | 128]) + varint(value >> 7) if value > 127 else bytes([value])

    out = b""
    for number, value in fields:
        if isinstance(value, float):
            out += varint(number << 3 | 5) + struct.pack("<f", value)
        elif isinstance(value, int):
            out += varint(number << 3) + varint(value)
        else:
            out += varint(number << 3 | 2) + varint(len(value)) + value
    return out


def spm(pieces: list[str], **fields: Any) -> bytes:
    """A file of sentencepiece: the longer a piece, the better."""
    special = [
        (1, message((1, piece.encode()), (2, 0.0), (3, type)))
        for piece, type in fields.get("special", (("<unk>", 2), ("<s>", 3), ("</s>", 3)))
    ]
    plain = [
        (1, message((1, piece.encode()), (2, -4.0 - number / 100 if len(piece) > 1 else -9.0 - number / 100)))
        for number, piece in enumerate(dict.fromkeys(pieces))
    ]
    trainer = message((3, fields.get("kind", 1)), (40, fields.get("unknown", 0)))
    return message(*special, *plain, (2, trainer), (3, message((3, fields.get("space", 1)))))


@pytest.fixture
def opus(foreign: ModuleType, tmp_path: Path) -> Any:
    """A folder in the layout of Helsinki-NLP's models, with a bias of the output, and its model."""
    folder = tmp_path / "opus"
    folder.mkdir()
    pieces = sorted({*SOURCE, *TARGET}, key=lambda piece: hash_of(piece))
    vocabulary = ["</s>", "<unk>", *pieces, ">>fra<<", "<pad>"]
    (folder / "source.spm").write_bytes(spm(SOURCE))
    (folder / "target.spm").write_bytes(spm(TARGET))
    (folder / "vocab.json").write_text(json.dumps({piece: number for number, piece in enumerate(vocabulary)}))
    (folder / "tokenizer_config.json").write_text(json.dumps({"source_lang": "eng", "target_lang": "fra"}))
    ends = {"pad_token_id": len(vocabulary) - 1, "eos_token_id": 0, "decoder_start_token_id": len(vocabulary) - 1}
    kind = foreign.KINDS["marian"]
    roles = {"[PAD]": ends["pad_token_id"], "[EOS]": 0}
    model = foreign.model_of(
        kind, SimpleNamespace(roles=roles, size=len(vocabulary)), scale_embedding=True, activation_function="swish",
        static_position_embeddings=True, forced_eos_token_id=0,
    )  # fmt: skip
    model.final_logits_bias.copy_(torch.linspace(-2, 2, len(vocabulary))[None])
    model.generation_config.bad_words_ids = [[ends["pad_token_id"]]]
    model.save_pretrained(folder)
    return folder, model


def hash_of(piece: str) -> str:
    return hashlib.sha256(piece.encode()).hexdigest()


MIXED = ["The cat sleeps.", "A dog", "  Le chien  dort ", "Un été", ">>fra<< The cat", "é", "日本 cat 日", "", "cat\ue000dog"]


def test_marians_texts_and_targets_are_cut_as_in_transformers(opus: Any) -> None:
    pytest.importorskip("sentencepiece")
    folder, _ = opus
    theirs, ours = transformers.MarianTokenizer.from_pretrained(folder), Tokenizer.load(folder)
    for text in MIXED:
        assert [*ours.encode(text).ids.tolist(), 0] == theirs(text).input_ids, text
        assert [*ours.targets.encode(text).ids.tolist(), 0] == theirs(text_target=text).input_ids, text
        assert ours.decode(ours.targets.encode(text).ids).strip() == theirs.decode(
            theirs(text_target=text).input_ids, skip_special_tokens=True
        )


def test_marians_two_texts_are_cut_by_their_own_pieces(opus: Any, tmp_path: Path) -> None:
    tokenizer = Tokenizer.load(opus[0])

    def cut(text: str) -> tuple[list[str], list[str]]:
        return tuple(
            [one.piece(number).lstrip("\ue000") for number in one.encode(text).ids] for one in (tokenizer, tokenizer.targets)
        )

    assert cut("The cat sleeps") == (["▁The", "▁cat", "▁sle", "eps"], list("▁The▁cat▁sleeps"))
    assert cut("Le chat dort")[1] == ["▁Le", "▁chat", "▁dort"]
    assert tokenizer.decode(tokenizer.targets.encode("Le chien dort").ids) == "Le chien dort"
    assert tokenizer.size == tokenizer.targets.size == len(json.loads((opus[0] / "vocab.json").read_text()))
    tokenizer.save(tmp_path / "out", length=30, frame_single="{A} [EOS]")
    again = Tokenizer.load(tmp_path / "out")
    assert again.hash == tokenizer.hash and pickle.loads(pickle.dumps(again)).targets.hash == tokenizer.targets.hash


@pytest.mark.parametrize("beams", [1, 4])
def test_marian_writes_what_transformers_writes(opus: Any, beams: int) -> None:
    folder, model = opus
    reader = Reader.of(load_checkpoint(folder))
    ours = cloze.load(folder)
    for text in ("The cat sleeps.", "A dog sleeps", "Un chien"):
        ids = torch.tensor(reader.encode([text])[0].ids)[None].long()
        theirs = model.generate(input_ids=ids, num_beams=beams, max_new_tokens=8, do_sample=False, forced_eos_token_id=None)
        wanted = theirs[0, 1:].tolist()
        found = ours.generate(text, tokens=8, **({"temperature": 0.0} if beams == 1 else {"beams": beams}))
        assert list(found.ids) == (wanted[: wanted.index(0)] if 0 in wanted else wanted)


def test_marian_is_imported_fine_tuned_and_opened_again(opus: Any, tmp_path: Path) -> None:
    folder, model = opus
    assert main(["import", str(folder), "--out", str(tmp_path / "out")]) == 0
    again, info = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "out", output_loading_info=True)
    assert not any(info[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    ids = torch.tensor([[5, 9, 4, 0]])
    torch.testing.assert_close(again.eval()(ids, decoder_input_ids=ids).logits, model(ids, decoder_input_ids=ids).logits)
    assert again.generation_config.bad_words_ids == model.generation_config.bad_words_ids
    (tmp_path / "train.tsv").write_text("text\ttarget\n" + "The cat\tLe chat\nA dog\tUn chien\n" * 2)
    files = ["--train", str(tmp_path / "train.tsv"), "--dev", str(tmp_path / "train.tsv"), "--out", str(tmp_path / "tuned")]
    assert main(["finetune", str(folder), "--task", "text_to_text", *files, "--set", "training.epochs=1"]) == 0
    learner, _ = load_tuned(load_checkpoint(tmp_path / "tuned"))
    row = learner.encode_labelled(learner.task.read(tmp_path / "train.tsv"))[0]
    targets = Tokenizer.load(folder).targets
    assert row.target.tolist() == [*targets.encode("Le chat").ids.tolist(), 0] and row.references == ("Le chat",)


def test_damaged_files_of_sentencepiece_are_refused_by_name(opus: Any) -> None:
    folder, _ = opus
    for data, said in (
        (b"", "holds no pieces"), (spm(SOURCE)[:-3], "copy it again"), (b"\xff" * 20, "copy it again"),
        (spm(SOURCE, kind=2), "model_type"), (spm(SOURCE, space=0), "add_dummy_prefix"),
    ):
        (folder / "source.spm").write_bytes(data)
        with pytest.raises(CheckpointError, match=said):
            Tokenizer.load(folder)


def test_a_store_of_pairs_is_refused_for_marian(opus: Any, tmp_path: Path) -> None:
    (tmp_path / "pairs.tsv").write_text("en\tfr\nThe cat\tLe chat\n")
    with pytest.raises(CorpusError, match="a store of pairs has one tokenizer"):
        build_store([tmp_path / "pairs.tsv"], Tokenizer.load(opus[0]), tmp_path / "store", format="pairs")


@pytest.mark.parametrize(("name", "file"), [("MBartTokenizer", "sentencepiece.bpe.model"), ("MBart50Tokenizer",
    "sentencepiece.bpe.model"), ("PegasusTokenizer", "spiece.model")])  # fmt: skip
def test_other_files_of_sentencepiece_have_the_ids_of_transformers(tmp_path: Path, name: str, file: str) -> None:
    special = ("<pad>", 3), ("</s>", 3), ("<unk>", 2)
    data = spm(SOURCE, special=special, unknown=2) if name.startswith("Pegasus") else spm(SOURCE)
    (tmp_path / file).write_bytes(data)
    masks = {"mask_token": "<mask_1>", "mask_token_sent": "<mask_2>"} if name.startswith("Pegasus") else {}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": name, **masks}))
    ours = Tokenizer.load(tmp_path)
    if name.startswith("Pegasus"):
        assert ours.id("<unk>") == 105 and ours.id("▁The") == 106 and ours.id("<unk_102>") == 104
        assert ours.roles["[PAD]"] == 0 and ours.roles["[EOS]"] == 1
    else:
        assert ours.id("▁The") == 4 and ours.id("ar_AR") == 4 + len(set(SOURCE)) and ours.piece(ours.size - 1) == "<mask>"
    pytest.importorskip("sentencepiece")
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert theirs.get_vocab() == {ours.piece(number): number for number in range(ours.size)}
    for text in ("The cat sleeps.", "A dog", "  The  cat", "日本 cat 日", "é"):
        assert ours.encode(text).ids.tolist() == theirs(text, add_special_tokens=False).input_ids, text
