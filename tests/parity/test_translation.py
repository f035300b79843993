"""Translators that are told languages by tokens, as transformers writes them: rows, languages, and what they write."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

import cloze
from cloze.checkpoint.build import load_checkpoint
from cloze.cli.main import main
from cloze.decoding.generating.forms import form_of
from cloze.decoding.reader import Reader
from cloze.errors import UserError

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
        theirs = model.generate(**given, max_new_tokens=9, num_beams=beams or 1, do_sample=False, forced_eos_token_id=None, **first)
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
