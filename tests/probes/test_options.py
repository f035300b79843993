"""Options of probes do what they say, or are refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cloze.cli.main import main
from cloze.decoding.layout import Framed
from cloze.probes import losses
from cloze.probes.kinds.head_importance import HeadProbe
from cloze.probes.kinds.static_vectors import StaticProbe


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["description", "--task", "upos=a,b", "--width", "5"], "--width changes nothing without --hidden."),
        (["layers", "--task", "upos=a,b", "--dropout", "0.2"], "--dropout changes nothing without --hidden."),
        (["layers", "--task", "upos={place},{place}", "--wordnet", "f"], "the labels are upos."),
        (["attention", "--text", "a", "--rare", "3"], "--rare changes nothing without --task."),
    ],
)
def test_an_option_that_would_change_nothing_is_refused(
    words: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kind, *rest = [word.format(place=tmp_path) for word in words]
    assert main(["probe", kind, str(tmp_path), *rest]) == 2
    assert message in capsys.readouterr().err


def test_sets_of_pairs_whose_files_have_one_name_are_all_measured(tmp_path: Path) -> None:
    files = [tmp_path / "similar" / "ws.txt", tmp_path / "related" / "ws.txt"]
    for number, file in enumerate(files):
        file.parent.mkdir()
        file.write_text(f"cat dog {number}\n")
    (tmp_path / "text.txt").write_text("a cat and a dog\n")
    read = StaticProbe(text=str(tmp_path / "text.txt"), similarity=tuple(map(str, files))).read()
    assert {name: pairs[0].score for name, pairs in read.sets.items()} == {str(file): n for n, file in enumerate(files)}


def test_length_cuts_labelled_texts_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked: dict[str, Any] = {}

    def tuned(loaded: Any, task: Any, **named: Any) -> Any:
        asked.update(named)
        raise InterruptedError

    monkeypatch.setattr(losses, "load_tuned", tuned)
    with pytest.raises(InterruptedError):
        HeadProbe(length=4).examples(None, [], str(tmp_path))  # type: ignore[arg-type]
    assert asked == {"name": None, "length": 4}


def test_unknown_words_keep_their_characters_where_others_are_masked(checkpoint: Callable[..., Any]) -> None:
    examples = losses.TextExamples(checkpoint("bert"), ["the cat saw the dog in the rain"])
    row = examples.reader.encode(["the cat saw the dog in the rain"])[0]
    letters = np.tile(np.arange(1, len(row) + 1, dtype=np.int16)[:, None], (1, 3))
    spelled = Framed(row.ids, row.segments, row.part, characters=letters)
    shown = examples._with_targets(spelled, 0, 0)
    assert shown.row.characters is not None
    hidden = np.isin(np.arange(len(row)), shown.columns)
    assert shown.row.characters[~hidden].tolist() == letters[~hidden].tolist()
    assert not shown.row.characters[hidden].any()
