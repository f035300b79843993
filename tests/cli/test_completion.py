"""Shell completion, run by bash."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from cloze.cli import main as frame


@pytest.fixture(scope="module")
def script() -> str:
    from cloze.cli.completion import script

    return script("bash")


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["cloze", "pre"], {"pretrain", "predict"}),
        (["cloze", "pretrain", "xlnet-"], {"xlnet-base", "xlnet-large"}),
        (["cloze", "finetune", "RUN", "--over"], {"--overwrite"}),
        (["cloze", "corpus", "bu"], {"build"}),
        (["cloze", "fill", "bert"], set()),  # a folder, which bash completes by itself
    ],
)
def test_bash_completes_verbs_recipes_and_options(script: str, words: list[str], expected: set[str]) -> None:
    typed = " ".join(words)
    asked = f"{script}\nCOMP_WORDS=({typed}); COMP_CWORD={len(words) - 1}; _cloze; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    done = subprocess.run(["bash", "-c", asked], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) == expected


def test_an_unknown_shell_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert frame.main(["--show-completion", "bsh"]) == 2
    assert "--show-completion bsh: Did you mean 'bash' or 'zsh'?" in capsys.readouterr().err
