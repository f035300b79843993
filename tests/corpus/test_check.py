from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cloze.cli.text.corpus import app
from cloze.corpus import Store
from cloze.corpus.checks.check_text import check_corpus
from cloze.errors import CorpusError, RecipeError
from cloze.text import Dictionary, TextSpec, train

TEXT = "The cat sleeps. It dreams of fish.\nThe dog barks. It is loud.\nThe cat sleeps. It dreams of fish.\n"


def written(tmp_path: Path, text: str) -> Path:
    (tmp_path / "a.txt").write_text(text, encoding="utf-8")
    return tmp_path / "a.txt"


def test_repeated_documents_are_found_with_both_places(tmp_path: Path) -> None:
    file = written(tmp_path, TEXT)
    findings = check_corpus([file])
    assert findings.duplicates == 1
    assert findings.duplicate_places == [f"{file}:3 repeats {file}:1"]
    assert any("exact repeats" in text for text in findings.advice)


def test_lengths_and_counts_are_exact(tmp_path: Path) -> None:
    findings = check_corpus([written(tmp_path, "Ab. Cd.\nEfgh.\n")])
    assert (findings.report.documents, findings.report.sentences, findings.characters) == (2, 3, 12)
    assert findings.lengths == {
        "document_median": 1, "document_mean": 1.5, "document_longest": 2,
        "sentence_median": 3, "sentence_mean": 11 / 3, "sentence_longest": 5,
    }


def test_special_tokens_that_are_spelled_out_are_counted(tmp_path: Path) -> None:
    text = "Fill the [MASK] and the [MASK] here.\nA line ends with </s>, a span is <extra_id_3>.\nIt says a < b and [x].\n"
    findings = check_corpus([written(tmp_path, text)])
    assert findings.special == {"[MASK]": 2, "</s>": 1, "<extra_id_3>": 1}
    assert any("[MASK] (2), </s> (1), <extra_id_3> (1)" in line for line in findings.lines())
    assert not check_corpus([written(tmp_path, "It says a < b and [x]. The mask, <extra_id> and <b>.\n")]).special


def test_special_tokens_in_a_text_are_plain_text_to_us_and_special_to_transformers(tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    tokenizer = train(TextSpec.of({"lower": True}, "wordpiece", {"size": 120}), [TEXT, "fill the [MASK] here"] * 4)
    tokenizer.save(tmp_path / "made", length=32, frame_single="[CLS] {A} [SEP]")
    mask = tokenizer.role("[MASK]")
    theirs = AutoTokenizer.from_pretrained(tmp_path / "made")
    assert mask in theirs("a [MASK] b")["input_ids"]
    assert mask not in tokenizer.encode("a [MASK] b").ids


def test_mixed_scripts_are_told_apart(tmp_path: Path) -> None:
    findings = check_corpus([written(tmp_path, "这个国家。\n這個國家。\nAbcdefgh.\n")])
    assert findings.scripts["Latin"] == findings.scripts["Han"] == 0.5
    assert set(findings.chinese) == {"simplified", "traditional"}
    assert sum("mixed" in text for text in findings.advice) == 2


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("One sentence.\n" * 3 + "Two.\n", "are a single sentence"), ("Just this.\n", "one document"),
        (
            "Es war schön.\nEs ist schon so.\n",
            "with the normalisation of bert and other recipes, 4.5 % of the letters lose a mark (schön → schon), and 33.3 % of "
            "the different words become the same as another. quick keeps the marks; other recipes do with --set "
            "text.normalise.strip_accents=false.",
        ),
    ],
)
def test_advice_names_the_way_out(text: str, advice: str, tmp_path: Path) -> None:
    assert any(advice in line for line in check_corpus([written(tmp_path, text)]).lines())


def test_a_build_says_what_normalising_costs_and_refuses_words_without_spaces(tmp_path: Path) -> None:
    file = str(written(tmp_path, "Es war schön.\nEs ist schon so.\n"))
    built = CliRunner().invoke(app, ["build", file, "--size", "60", "--out", str(tmp_path / "store")])
    assert built.output.startswith("advice: with bert, 4.5 % of the letters lose a mark (schön → schon), and 33.3 % of the ")
    assert (
        "\n  To keep the marks: set text.normalise.strip_accents=false in a recipe of your own (cloze show bert > mine.yaml), "
        "and give it with --recipe mine.yaml\n" in built.output
    )
    chinese = str(written(tmp_path, "我爱北京天安门，天安门上太阳升。\n"))
    refused = CliRunner().invoke(app, ["build", chinese, "--recipe", "word2vec-skipgram", "--out", str(tmp_path / "words")])
    assert isinstance(refused.exception, CorpusError) and "'我爱北京天安门' would be one" in str(refused.exception)


def test_the_command_builds_and_checks(tmp_path: Path) -> None:
    file = written(tmp_path, TEXT)
    train(TextSpec.of({"lower": True}, "wordpiece", {"size": 90}), TEXT.split("\n")).save(
        tmp_path / "tokenizer", length=128, frame_single="[CLS] {A} [SEP]", frame_pair="[CLS] {A} [SEP] {B} [SEP]"
    )
    out = tmp_path / "store"
    run = CliRunner()
    built = run.invoke(app, ["build", str(file), "--out", str(out), "--tokenizer", str(tmp_path / "tokenizer")])
    assert built.exit_code == 0, built.output
    assert "3 documents, 6 sentences" in built.output
    assert Store.open(out).documents == 3
    checked = run.invoke(app, ["check", str(out)])
    assert "every checksum matches" in checked.output
    assert json.loads(run.invoke(app, ["check", str(file), "--json"]).output)["duplicates"]["count"] == 1
    assert "duplicates: 1 exact copies of earlier documents" in run.invoke(app, ["check", str(file)]).output
    (out / "words.bin").write_bytes(b"\0" * (out / "words.bin").stat().st_size)
    damaged = run.invoke(app, ["check", str(out)])
    assert isinstance(damaged.exception, CorpusError)


def test_a_recipe_says_how_the_text_of_a_finished_tokenizer_is_read_but_not_its_size(tmp_path: Path) -> None:
    run, file = CliRunner(), tmp_path / "a.txt"
    file.write_text("The cat sleeps. It dreams.\nThe end.\n\n" * 20, encoding="utf-8")
    build = ["build", str(file), "-q", "--out"]
    assert run.invoke(app, [*build, str(tmp_path / "s"), "--recipe", "gpt2", "--size", "280"]).exit_code == 0
    given = ["--tokenizer", str(tmp_path / "s" / "tokenizer")]
    refused = run.invoke(app, [*build, str(tmp_path / "t"), *given, "--size", "300"])
    assert isinstance(refused.exception, CorpusError) and not (tmp_path / "t").exists()
    for name, more in (("with", ["--recipe", "gpt2"]), ("without", [])):
        assert run.invoke(app, [*build, str(tmp_path / name), *given, *more]).exit_code == 0
    first, with_, without = (Store.open(tmp_path / name).tokens[:].tolist() for name in ("s", "with", "without"))
    assert with_ == first and len(without) < len(first)


def test_the_command_builds_languages_words_layers_and_pairs(tmp_path: Path) -> None:
    run = CliRunner()
    for name, text in (("en", "The cat sleeps. It dreams.\n\nThe end."), ("zh", "我们在图书馆学习。\n\n他们没有回答。")):
        (tmp_path / "text" / name).mkdir(parents=True)
        (tmp_path / "text" / name / "a.txt").write_text(text * 20, encoding="utf-8")
    (tmp_path / "names.txt").write_text("图书馆\n", encoding="utf-8")
    arguments = ["build", str(tmp_path / "text"), "--languages", "--size", "90", "--out", str(tmp_path / "store")]
    built = run.invoke(app, [*arguments, "--words", "dictionary", "--annotate", f"place={tmp_path / 'names.txt'}"])
    assert built.exit_code == 0, built.output
    store = Store.open(tmp_path / "store", verify=True)
    assert store.languages == ("en", "zh") and list(store.layers) == ["place"]
    assert store.header["words"] == Dictionary().hash and store.layers["place"].sum() == 20 * 5

    (tmp_path / "pairs.tsv").write_text("en\tzh\n" + "The cat sleeps.\t猫睡觉。\n" * 20, encoding="utf-8")
    arguments = ["build", str(tmp_path / "pairs.tsv"), "--format", "pairs", "--size", "60", "--out", str(tmp_path / "pairs")]
    built = run.invoke(app, arguments)
    assert built.exit_code == 0, built.output
    assert Store.open(tmp_path / "pairs").pairs
    again = [*arguments, "--overwrite"]
    refused = run.invoke(app, [*again, "--languages"]).exception
    assert isinstance(refused, CorpusError) and "Omit --languages" in str(refused)
    assert isinstance(run.invoke(app, [*again, "--words", "jeba"]).exception, RecipeError)
    assert isinstance(run.invoke(app, [*again, "--annotate", "names.txt"]).exception, RecipeError)
