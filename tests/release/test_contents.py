"""What a release holds: the rules of `make release-check`; the patterns of pyproject.toml fit the files of the package."""

from __future__ import annotations

import importlib.util
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_spec = importlib.util.spec_from_file_location("release_check", ROOT / "tests" / "release" / "check.py")
assert _spec is not None and _spec.loader is not None
check = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(check)

PACKAGE = ["cloze/__init__.py", "cloze/py.typed", "cloze/recipes/bert.yaml"]
ABOUT = ["METADATA", "RECORD", "WHEEL", "entry_points.txt", "top_level.txt", "licenses/LICENSE"]


def test_a_wheel_holds_the_package_its_metadata_and_the_licence_and_nothing_else() -> None:
    whole = [*PACKAGE, *(f"cloze_lm-0.1.0.dist-info/{name}" for name in ABOUT)]
    assert check.wheel_faults(whole, PACKAGE) == []
    wrong = [name for name in whole if name not in ("cloze/recipes/bert.yaml", "cloze_lm-0.1.0.dist-info/licenses/LICENSE")]
    assert check.wheel_faults([*wrong, "cloze/samples/a.pyc", "tests/test_document.py"], PACKAGE) == [
        "missing: cloze/recipes/bert.yaml", "missing: cloze_lm-0.1.0.dist-info/licenses/LICENSE",
        "not expected: cloze/samples/a.pyc", "not expected: tests/test_document.py",
    ]  # fmt: skip
    assert check.wheel_faults(PACKAGE, PACKAGE) == ["folders of metadata: []"]


def test_a_source_distribution_holds_what_a_build_needs_and_no_tests() -> None:
    files = [f"cloze_lm-0.1.0/{name}" for name in (*PACKAGE, *check.BUILD_FILES, *check.GENERATED, "cloze_lm.egg-info/PKG-INFO")]
    assert check.sdist_faults(files, PACKAGE) == []
    assert check.sdist_faults([*files[1:], "cloze_lm-0.1.0/tests/test_document.py"], PACKAGE) == [
        "missing: cloze/__init__.py", "not expected: tests/test_document.py",
    ]  # fmt: skip


def test_every_file_of_the_package_is_python_or_matches_a_pattern_of_its_data() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]
    data = {path for pattern in settings["package-data"]["cloze"] for path in (ROOT / "cloze").glob(pattern)}
    files = {path for path in (ROOT / "cloze").rglob("*") if path.is_file() and "__pycache__" not in path.parts}
    assert sorted(str(path.relative_to(ROOT)) for path in files - data if path.suffix != ".py") == []


def test_the_files_that_a_source_distribution_must_hold_are_there() -> None:
    assert [name for name in check.BUILD_FILES if not (ROOT / name).is_file()] == []
