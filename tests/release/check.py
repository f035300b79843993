"""`make release-check`: build the wheel and the source distribution, check their contents, and use the wheel as a user would.

    python tests/release/check.py python3.11 python3.13
    python tests/release/check.py --without-demo python3.11

The wheel is built from the source distribution. For each interpreter it is installed in an empty environment, and the commands
run in an empty folder. Interpreters that are not installed are named at the end, and the exit code is 1.
"""

from __future__ import annotations

import argparse
import os
import shutil
import socket
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Iterable
from email.parser import HeaderParser
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DIST = ROOT / "dist"
TORCH_INDEX = "download.pytorch.org"
BUILD_FILES = {"CHANGELOG.md", "CITATION.cff", "LICENSE", "MANIFEST.in", "README.md", "pyproject.toml"}
GENERATED = {"PKG-INFO", "setup.cfg"}
#: What every user can run without data. `show` and `check` read recipes, `explain` the parts and their docstrings.
COMMANDS = (
    "cloze --version", "cloze --help", "cloze list", "cloze explain", "cloze explain mask", "cloze show bert", "cloze show quick",
    "python -m cloze --version", "python -c 'import cloze; print(cloze.load_recipe(\"bert\").hash)'",
)  # fmt: skip
DEMO = ("cloze demo", "cloze report demo-run/quick", 'cloze predict demo-run/packages "Return the path of a file."')


def differences(files: Iterable[str], expected: Iterable[str]) -> list[str]:
    """What an archive lacks, and what it holds in addition."""
    present, wanted = set(files), set(expected)
    missing = [f"missing: {name}" for name in sorted(wanted - present)]
    return missing + [f"not expected: {name}" for name in sorted(present - wanted)]


def wheel_faults(files: Iterable[str], package: Iterable[str]) -> list[str]:
    """The faults of a wheel's list of files: it holds the package as git tracks it, its metadata and the licence, and no more."""
    names = list(files)
    folders = {name.split("/")[0] for name in names if name.split("/")[0].endswith(".dist-info")}
    if len(folders) != 1:
        return [f"folders of metadata: {sorted(folders)}"]
    about = ("METADATA", "RECORD", "WHEEL", "entry_points.txt", "top_level.txt", "licenses/LICENSE")
    return differences(names, [*package, *(f"{folder}/{name}" for folder in folders for name in about)])


def sdist_faults(files: Iterable[str], package: Iterable[str]) -> list[str]:
    """The same for a source distribution, whose files lie in one folder."""
    inner = {name.partition("/")[2] for name in files}
    metadata = {name for name in inner if name.startswith("cloze_lm.egg-info/")}
    return differences(inner - metadata, [*package, *BUILD_FILES, *GENERATED])


def tracked_package() -> list[str]:
    """The files of the package that git tracks."""
    listed = subprocess.run(["git", "ls-files", "cloze"], cwd=ROOT, capture_output=True, text=True, check=True)
    return listed.stdout.splitlines()


def clean(programs: Path | None = None) -> dict[str, str]:
    """The environment variables without those that lead Python to another cloze; with `programs` before the others of PATH."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "CLOZE_", "VIRTUAL_ENV"))}
    return variables if programs is None else variables | {"PATH": f"{programs}{os.pathsep}{variables['PATH']}"}


def run(*command: str | Path, folder: Path | None = None, programs: Path | None = None) -> None:
    """Run a command; if it fails, print what it printed and end."""
    done = subprocess.run(command, cwd=folder, env=clean(programs), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        print(done.stdout)
        raise SystemExit(f"exit code {done.returncode}: {' '.join(map(str, command))}")


def new_environment(python: str, folder: Path, *packages: str | Path) -> Path:
    """An environment with some packages; returns its folder of programs."""
    run(python, "-m", "venv", folder)
    programs = folder / "bin"
    run(programs / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *packages)
    return programs


def build(scratch: Path) -> tuple[Path, Path]:
    """Build both archives into dist/, and check them; returns the wheel and the source distribution."""
    shutil.rmtree(DIST, ignore_errors=True)
    constraint = ROOT / "constraints.txt"
    tools = new_environment(sys.executable, scratch / "tools", "--constraint", constraint, "build", "twine")
    run(tools / "python", "-m", "build", "--outdir", DIST, ROOT)
    (wheel,), (sdist,) = DIST.glob("*.whl"), DIST.glob("*.tar.gz")
    run(tools / "twine", "check", "--strict", wheel, sdist)
    return wheel, sdist


def check_contents(wheel: Path, sdist: Path) -> None:
    """End with the faults of the archives, if there are any."""
    package = tracked_package()
    with zipfile.ZipFile(wheel) as archive:
        faults = [f"{wheel.name}: {fault}" for fault in wheel_faults(archive.namelist(), package)]
        metadata = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        headers = HeaderParser().parsestr(archive.read(metadata).decode())
    with tarfile.open(sdist) as archive:
        files = [member.name for member in archive.getmembers() if member.isfile()]
        faults += [f"{sdist.name}: {fault}" for fault in sdist_faults(files, package)]
    if headers["Name"] != "cloze-lm":
        faults.append(f"{wheel.name}: its name is {headers['Name']}")
    if faults:
        raise SystemExit("\n".join(faults))
    for path in (wheel, sdist):
        print(f"{path.relative_to(ROOT)}: {path.stat().st_size / 1e6:.2f} MB, {len(package)} files of the package")


def torch_options() -> list[str]:
    """Where there is no GPU, torch's small build is preferred if its index can be reached."""
    if shutil.which("nvidia-smi"):
        return []
    try:
        socket.create_connection((TORCH_INDEX, 443), 3).close()
    except OSError:
        return []
    return ["--extra-index-url", f"https://{TORCH_INDEX}/whl/cpu"]


def use(wheel: Path, python: str, scratch: Path, *, demo: bool) -> None:
    """Install the wheel and run commands in an empty folder."""
    programs = new_environment(python, scratch / f"with-{Path(python).name}", *torch_options(), wheel)
    folder = scratch / f"empty-{Path(python).name}"
    folder.mkdir()
    for command in (*COMMANDS, *(DEMO if demo else ())):
        started = time.monotonic()
        run("sh", "-c", command, folder=folder, programs=programs)
        print(f"{Path(python).name}: {command}   ({time.monotonic() - started:.1f} s)", flush=True)


def main() -> int:
    """Check a release."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pythons", nargs="+", metavar="PYTHON", help="interpreters to install the wheel with")
    parser.add_argument("--without-demo", action="store_true", help="leave out `cloze demo`, which takes minutes")
    options = parser.parse_args()
    missing = [python for python in options.pythons if shutil.which(python) is None]
    with tempfile.TemporaryDirectory() as scratch:
        wheel, sdist = build(Path(scratch))
        check_contents(wheel, sdist)
        for python in options.pythons:
            if python not in missing:
                use(wheel, python, Path(scratch), demo=not options.without_demo)
    if missing:
        print(f"not installed on this machine, so not checked: {', '.join(missing)}")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
