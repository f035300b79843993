"""The lines in which `cloze evaluate` prints the measures of a file."""

from __future__ import annotations

import pytest

from cloze.cli.train.measures import show
from cloze.tasks.task import Evaluation


def test_a_value_of_four_digits_stays_in_its_column(capsys: pytest.CaptureFixture[str]) -> None:
    show("test.tsv", Evaluation(2, {"mrr": 0.25, "mean_rank": 2033.1234}, {"always": "chance", "mrr": 0.01, "mean_rank": 7270.5}))
    assert capsys.readouterr().out.splitlines() == [
        "test.tsv: 2 examples",
        "                          always 'chance'",
        "  mrr          0.2500     0.0100",
        "  mean_rank    2033.1234  7270.5000",
    ]


def test_long_names_and_intervals_stay_in_their_columns(capsys: pytest.CaptureFixture[str]) -> None:
    intervals = {"accuracy": (0.5, 0.75), "mean_rank_of_tails": (1000.0, 2000.5)}
    show("a", Evaluation(4, {"accuracy": 0.625, "mean_rank_of_tails": 1500.0}, {"always": "x", "accuracy": 0.5}, (), intervals))
    assert capsys.readouterr().out.splitlines() == [
        "a: 4 examples",
        "                                 95 % interval           always 'x'",
        "  accuracy            0.6250     [0.5000, 0.7500]        0.5000",
        "  mean_rank_of_tails  1500.0000  [1000.0000, 2000.5000]",
    ]
