"""The list of mutants fits the code as it is: `make mutants` runs them."""

from __future__ import annotations

import re

import pytest
from mutants import ROOT, Mutant, mutants


@pytest.fixture(scope="module")
def listed() -> list[Mutant]:
    return list(mutants())


def test_every_mutant_changes_what_its_file_holds_exactly_once_and_names_tests_that_there_are(listed: list[Mutant]) -> None:
    problems = [problem for mutant in listed if (problem := mutant.problem())]
    assert not problems, "Repair in tests/mutation/list.yaml:\n" + "\n".join(problems)


def test_no_mutant_is_listed_twice_or_changes_nothing_or_names_no_test(listed: list[Mutant]) -> None:
    seen: set[tuple[str, str, str]] = set()
    for mutant in listed:
        kind = (mutant.file, mutant.before, mutant.after)
        assert kind not in seen, f"twice in tests/mutation/list.yaml: {mutant}"
        assert mutant.before != mutant.after and mutant.tests, f"changes nothing or names no test: {mutant}"
        seen.add(kind)


def test_there_are_150_mutants_and_some_in_every_package(listed: list[Mutant]) -> None:
    packages = {path.parent.name for path in (ROOT / "cloze").glob("*/__init__.py")} - {"samples"}
    assert packages - {mutant.file.partition("/")[0] for mutant in listed} == set()
    assert len(listed) >= 150


HERE, ANOTHER = "mutation/test_list.py", "_PURPOSE = 1"


@pytest.mark.parametrize(
    ("before", "after", "test", "problem"),
    [
        ("no such text", "x", HERE, "the text to replace occurs 0 times in the file; expected once. Follow the code"),
        ("e", "x", HERE, r"the text to replace occurs \d+ times in the file; expected once. Follow the code"),
        ("from __future__ import annotations", "from", HERE, "the replacement is no Python: invalid syntax"),
        ("from __future__ import annotations", ANOTHER, "mutation/test_none.py", "there is no test tests/mutation/test_none.py"),
        ("from __future__ import annotations", ANOTHER, f"{HERE}::test_none", f"there is no test tests/{HERE}::test_none"),
    ],
)
def test_an_entry_that_does_not_fit_is_told_with_what_is_wrong(before: str, after: str, test: str, problem: str) -> None:
    mutant = Mutant("errors.py", before, after, (test,))
    told = mutant.problem()
    assert told is not None and told.startswith(f"errors.py: {before!r} -> {after!r}: ") and re.search(problem, told)


def test_an_entry_that_fits_has_no_problem() -> None:
    test = f"{HERE}::test_an_entry_that_fits_has_no_problem"
    assert Mutant("errors.py", "from __future__ import annotations", ANOTHER, (test,)).problem() is None
