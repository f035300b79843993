"""What `cloze corpus check --format pairs` finds in parallel text."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cloze.cli.text.corpus import app
from cloze.corpus.checks.check_pairs import check_pairs
from cloze.errors import CorpusError

SAMPLE = Path(__file__).resolve().parents[2] / "cloze" / "samples" / "english-french.tsv"


def table(path: Path, rows: list[tuple[str, str]], header: str = "en\tfr") -> Path:
    path.write_text("\n".join([header, *("\t".join(row) for row in rows)]) + "\n", encoding="utf-8")
    return path


def numbered(count: int) -> list[tuple[str, str]]:
    return [(f"This is the English sentence {i}.", f"Voici la phrase en français {i}.") for i in range(count)]


def test_sound_text_is_counted_and_nothing_is_advised() -> None:
    found = check_pairs([SAMPLE])
    assert found.pairs == {"en-fr": 60} and found.total == 60 and found.files == [str(SAMPLE)]
    assert (found.duplicates, found.untranslated, found.uneven, found.advice) == (0, 0, 0, [])
    assert found.lines()[-1] == "no problems found"


def test_numbers_are_exact(tmp_path: Path) -> None:
    found = check_pairs([table(tmp_path / "a.tsv", [("ab", "x"), ("abcd", "xyz"), ("abcdef", "xy")])])
    assert found.lengths["en"] == {"sentence_median": 4, "sentence_mean": 4.0, "sentence_longest": 6}
    assert found.lengths["fr"] == {"sentence_median": 2, "sentence_mean": 2.0, "sentence_longest": 3}
    assert found.scripts == {"en": {"Latin": 1.0}, "fr": {"Latin": 1.0}}
    assert found.advice == ["3 pairs: nothing can be held out of fewer than 20."]


def test_repeats_and_sides_that_were_not_translated_are_shown_with_their_lines(tmp_path: Path) -> None:
    rows = [*numbered(30), numbered(30)[4], ("Merci beaucoup", "Merci beaucoup")]
    found = check_pairs([table(tmp_path / "a.tsv", rows)])
    assert found.duplicates == 1 and found.duplicate_places == [f"{tmp_path / 'a.tsv'}:32"]
    assert found.untranslated == 1 and found.untranslated_places == [f"{tmp_path / 'a.tsv'}:33"]
    assert any("exact repeats" in text for text in found.advice) and any("not translated" in text for text in found.advice)


def test_lines_that_slipped_against_each_other_are_shown(tmp_path: Path) -> None:
    rows = numbered(40)
    rows[10:20] = [(a, "Oui.") for a, _ in rows[10:20]]
    found = check_pairs([table(tmp_path / "a.tsv", rows)])
    assert found.uneven == 10 and len(found.uneven_places) == 5
    assert {int(place.rpartition(":")[2]) for place in found.uneven_places} <= set(range(12, 22))
    assert any("the lines may be misaligned" in text for text in found.advice)


def test_a_usual_ratio_other_than_one_is_no_fault(tmp_path: Path) -> None:
    rows = [(f"This is a rather long sentence about the number {i}.", f"第{i}个句子") for i in range(30)]
    found = check_pairs([table(tmp_path / "a.tsv", rows, "en\tzh")])
    assert found.uneven == 0 and found.scripts["zh"] == {"Han": 1.0}


def test_a_line_in_the_wrong_column_mixes_the_scripts(tmp_path: Path) -> None:
    rows = [("The cat sleeps.", "猫在睡觉。")] * 5 + [("它梦见很多很多的鱼。", "It dreams.")] * 3
    advice = check_pairs([table(tmp_path / "a.tsv", rows, "en\tzh")]).advice
    assert sum("are all lines in the right column?" in text for text in advice) == 2


def test_aligned_files_and_several_languages_are_read(tmp_path: Path) -> None:
    table(tmp_path / "a.tsv", numbered(25))
    (tmp_path / "news.en").write_text("One.\n", encoding="utf-8")
    (tmp_path / "news.nl").write_text("Een.\n", encoding="utf-8")
    found = check_pairs([tmp_path])
    assert found.pairs == {"en-fr": 25, "en-nl": 1}
    assert any(text.startswith("en-nl: with one pair") for text in found.advice)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("en\tfr\nOne.\tUn.\nTwo.\n", r"a\.tsv:3: 1 columns, expected 2"), ("One.\tUn.\n", r"a\.tsv:1: expected a header"),
        ("en\tfr\n", "no pair of sentences"), ("en\tfr\nOne.\t\n", r"a\.tsv:2: the second side of this pair is empty"),
    ],
)
def test_what_does_not_pair_up_is_an_error_with_its_line(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "a.tsv").write_text(text, encoding="utf-8")
    with pytest.raises(CorpusError, match=message):
        check_pairs([tmp_path / "a.tsv"])


def test_the_command_checks_pairs(tmp_path: Path) -> None:
    run = CliRunner()
    printed = run.invoke(app, ["check", str(SAMPLE), "--format", "pairs"])
    assert printed.exit_code == 0 and "en-fr: 60 pairs" in printed.output
    found = json.loads(run.invoke(app, ["check", str(SAMPLE), "--format", "pairs", "--json"]).output)
    assert found["pairs"] == {"en-fr": 60} and found["uneven"] == {"count": 0, "places": []}
    (tmp_path / "n.en").write_text("One.\nTwo.\n")
    (tmp_path / "n.fr").write_text("Un.\n")
    failed = run.invoke(app, ["check", str(tmp_path / "n.en"), str(tmp_path / "n.fr"), "--format", "pairs"])
    assert isinstance(failed.exception, CorpusError) and "n.en:2: this line has no translation" in str(failed.exception)
