"""Which evaluation decides, and what a run says of the checkpoint that it gives."""

from __future__ import annotations

import json
import math

from cloze.training.selection import Selection, SelectionStanding


def stand(selection: Selection, *values: float) -> SelectionStanding:
    standing = None
    for number, value in enumerate(values, start=1):
        standing = selection.after(standing, 10 * number, {"f1": value})
    assert standing is not None
    return standing


def test_the_best_evaluation_decides_and_the_last_is_known() -> None:
    standing = stand(Selection(dict, "f1"), 0.5, 0.8, 0.8, 0.7)
    assert (standing.evaluation, standing.step, standing.evaluations, standing.metrics) == (2, 20, 4, {"f1": 0.8})
    last = standing.result(keep_best=False)
    assert (last.evaluation, last.step, last.evaluations, last.metrics, last.worth) == (4, 40, 4, {"f1": 0.7}, 0.7)
    assert standing.result(keep_best=True) is standing
    assert stand(Selection(dict, "f1"), 0.5).result(keep_best=False).metrics == {"f1": 0.5}


def test_a_standing_is_the_same_after_it_was_saved() -> None:
    standing = stand(Selection(dict, "f1", higher_is_better=False), 0.5, 0.8)
    assert SelectionStanding.from_json(json.loads(json.dumps(standing.to_json()))) == standing


def test_a_metric_that_is_no_number_is_worse_than_any() -> None:
    standing = stand(Selection(dict, "f1"), math.nan, 0.1, math.nan)
    assert (standing.evaluation, standing.metrics, standing.result(keep_best=False).worth) == (2, {"f1": 0.1}, -math.inf)


def test_patience_counts_only_once_the_metric_is_better_than_that_of_a_constant_answer() -> None:
    patient = Selection(dict, "f1", patience=2, constant_metric=0.1)
    assert not patient.ends(stand(patient, 0.0, 0.1, 0.1, 0.05))
    assert not patient.ends(stand(patient, 0.1, 0.1, 0.1, 0.2, 0.2)) and patient.ends(stand(patient, 0.1, 0.1, 0.2, 0.2, 0.1))
    error = Selection(dict, "f1", higher_is_better=False, patience=2, constant_metric=0.1)
    assert not error.ends(stand(error, 0.1, 0.3, 0.2)) and error.ends(stand(error, 0.05, 0.3, 0.2))
    assert Selection(dict, "f1", patience=2).ends(stand(patient, 0.0, 0.0, 0.0))  # no constant answer is defined


def test_an_evaluation_before_the_first_step_has_the_number_0_and_wins_a_tie() -> None:
    selection = Selection(dict, "f1", patience=2)
    standing = selection.after(None, 0, {"f1": 0.8})
    assert (standing.evaluation, standing.evaluations, standing.start) == (0, 0, {"f1": 0.8})
    standing = selection.after(standing, 10, {"f1": 0.8})
    assert (standing.evaluation, standing.evaluations, selection.ends(standing)) == (0, 1, False)
    assert selection.ends(selection.after(standing, 20, {"f1": 0.7}))
    better = selection.after(standing, 20, {"f1": 0.9})
    assert (better.evaluation, better.evaluations, better.start) == (2, 2, {"f1": 0.8})
