"""Verbs with modes: an option that has no meaning in the chosen mode is refused in words, before anything is read."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.main import get_command

from cloze.cli.commands import load_command
from cloze.cli.main import main
from cloze.cli.modes import Mode
from cloze.cli.options import with_options
from cloze.cli.text import corpus, link
from cloze.cli.train import evaluate
from cloze.corpus.stores.store import HEADER
from cloze.errors import UserError
from cloze.runs.options import FinetuneOptions, PretrainOptions, accepts_fields_of

#: By command: its arguments, its modes, and the options that ask for each mode but the last.
VERBS: dict[str, tuple[list[str], tuple[type[Mode], ...], dict[str, str]]] = {
    "evaluate": (["DIR", "F"], evaluate.MODES, {
        "FactsMode": "--facts F", "SensesMode": "--senses F", "LinksMode": "--task link_prediction",
        "WordVectorsMode": "--analogies F",
        "PromptedMode": "--template '{text} {answer}'", "PicturesMode": "--task retrieval STORE",
        "EntityLinkingMode": "--task entity_linking",
    }),
    "link": (["F", "--out", "OUT"], link.MODES, {"NetworkMode": "--model DIR"}),
    "corpus build": (["F", "--out", "OUT"], corpus.BUILDS, {
        "BuildGraph": "--format triples", "BuildItems": "--items r=F", "BuildLabelled": "--task regression",
    }),
    "corpus check": (["F"], corpus.CHECKS, {"CheckFacts": "--format triples", "CheckLabelled": "--task regression"}),
}  # fmt: skip


@cache
def command_of(verb: str) -> Any:
    name, *inner = verb.split()
    command: Any = get_command(load_command(name))
    return command.commands[inner[0]] if inner else command


def typed(option: Any, modes: tuple[type[Mode], ...]) -> list[str]:
    """An option with a value that it may have."""
    kind = next(str(field.type) for mode in modes for field in fields(mode) if field.name == option.name)
    value = "1" if "float" in kind else "cp1252" if option.name == "encoding" else "8"
    return [option.opts[0]] if option.is_flag else [option.opts[0], value]


def asks(modes: tuple[type[Mode], ...], name: str) -> bool:
    """Whether an option asks for a mode."""
    usual: dict[str, Any] = {field.name: field.default for mode in modes for field in fields(mode)} | {"paths": []}
    return any(mode.asked({**usual, name: 8}) for mode in modes[:-1])


def pairs() -> Iterator[Any]:
    for verb, (_, modes, _) in VERBS.items():
        for mode in modes:
            yield pytest.param(verb, mode, id=f"{verb} {mode.__name__}")


@pytest.mark.parametrize(("verb", "mode"), list(pairs()))
def test_every_option_of_other_modes_is_refused_by_its_name(
    verb: str, mode: type[Mode], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("DIR").mkdir()
    Path("F").touch()
    arguments, modes, how = VERBS[verb]
    own = {field.name for field in fields(mode)}
    known = {field.name for other in modes for field in fields(other)}
    (tmp_path / HEADER).touch()
    asking = [str(tmp_path) if word == "STORE" else word for word in shlex.split(how.get(mode.__name__, ""))]
    refused = [one for one in command_of(verb).params if one.name in known - own and (mode.how or not asks(modes, one.name))]
    assert refused
    for option in refused:
        owners = [other for other in modes if option.name in {field.name for field in fields(other)}]
        with pytest.raises(UserError) as caught:
            command_of(verb).main([*arguments, *asking, *typed(option, modes)], standalone_mode=False)
        said = str(caught.value)
        assert any(other.purpose in said for other in owners)
        assert option.opts[0] in said or asks(modes, option.name)  # then the other mode is chosen, and refuses what this one has


@pytest.mark.parametrize(("line", "said"), [
    ("evaluate DIR --facts f.tsv --beams 2",
     "--beams has no meaning for facts in a masked model (--facts FILE); it is for a fine-tuned folder.\n  Omit one of them."),
    ("evaluate DIR f.tsv --known a.tsv",
     "--known is for knowledge graphs (--task link_prediction). Ask for that, or omit --known."),
    ("evaluate V --similarity f.tsv --unknown skip --batch 64", "--batch has no meaning for word vectors"),
    ("evaluate V --similarity f.tsv --method add", "--method needs --analogies FILE. Add it, or omit --method."),
    ("evaluate DIR --no-leaks", "no facts to ask for. Name a file: cloze evaluate DIR --facts FILE"),
    ("corpus build f.tsv --out G --format triples --seed 0", "--seed has no meaning for facts of a knowledge graph"),
    ("corpus build f.txt --out S --smooth 0.5", "--smooth needs a folder or file per language. Add --languages, or omit"),
])  # fmt: skip
def test_what_is_said_of_an_option_that_has_no_meaning(
    line: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in ("DIR", "V"):  # a missing one is said before its options are looked at
        Path(folder).mkdir()
    for file in ("f.tsv", "f.txt"):
        Path(file).touch()
    assert main(shlex.split(line)) == 2
    shown = capsys.readouterr()
    assert said in shown.err and shown.out == ""


def sections_of(line: str, capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    assert main(shlex.split(line)) == 0
    return {part.partition(":\n")[0]: part for part in capsys.readouterr().out.split("\n\n")}


def options_in(sections: dict[str, str]) -> set[str]:
    shown = "\n".join(part for title, part in sections.items() if not title.startswith("Other uses"))
    return {word for line in shown.splitlines() for word in line.split()[:2] if word.startswith("--")}


def long_options(verb: str) -> set[str]:
    return {max(one.opts, key=len) for one in command_of(verb).params if one.param_type_name == "option"}


def test_help_of_many_modes_shows_the_usual_one_and_how_to_ask_for_the_options_of_others(
    capsys: pytest.CaptureFixture[str]
) -> None:
    usual = sections_of("evaluate --help", capsys)
    assert sum(part.count("\n") + 2 for part in usual.values()) <= 49
    assert "--repair" in usual["A fine-tuned folder"] and "--task" in usual["Options"]
    others = usual["Other uses; for their options: cloze evaluate --facts FILE --help"]
    assert [mode.how for mode in evaluate.MODES if mode.how and mode.how not in others] == []
    known = sections_of("evaluate --task link_prediction --help", capsys)
    assert "--known" in known["Knowledge graphs (--task link_prediction)"] and "--repair" not in " ".join(known.values())
    assert "cloze evaluate --help" in known["Other uses"]
    shown = options_in(usual) | options_in(known)
    for mode in evaluate.MODES[:-1]:
        shown |= options_in(sections_of(f"evaluate {mode.how.split(' or ')[0]} --help", capsys))
    every = long_options("evaluate")
    assert every <= shown


def test_help_of_few_options_lists_those_of_every_mode(capsys: pytest.CaptureFixture[str]) -> None:
    shown = sections_of("corpus build --help", capsys)
    assert {"Running text", "Options"} <= shown.keys()
    assert options_in(shown) >= long_options("corpus build")


PRETRAIN = PretrainOptions(
    "bert", ["a b.txt", "c.txt"], Path("RUN"), budget="10m", size="tiny", overrides=["length=8"], tokenizer=Path("tok"),
    held_out=["h.txt"], measure=["news=n.txt"], init=["main=DIR"], text_format="line", binds=["other=o.txt"], seed=3,
    device="cpu", fit=False,
)  # fmt: skip
FINETUNE = FinetuneOptions(
    Path("RUN"), Path("OUT"), "a.tsv", "b.tsv", test="c.tsv", recipe="mine.yaml", init=Path("v.vec"), overrides=["length=8"],
    binds=["teacher=T"], changes=["lora=8"], auxiliary="0.5", annotate=["e=m:f"], items=["f.npz"], picture="key",
    keep_checkpoints=True, mix_ngrams=True, encoding="cp1252", fit=False,
)  # fmt: skip


@pytest.mark.parametrize("options", [PRETRAIN, FINETUNE], ids=["pretrain", "finetune"])
def test_the_words_of_options_are_read_as_these_options(options: PretrainOptions | FinetuneOptions) -> None:
    read: list[Any] = []

    @with_options(type(options), help_before={"shout": "device"})
    def command(options: Any, shout: bool = False, seeds: str = "1") -> None:
        read.append((options, shout, seeds))

    app = typer.Typer()
    app.command()(command)
    parser: Any = get_command(app)
    parser.main([*options.words()[2:], "--shout"], standalone_mode=False)
    assert read == [(options, True, "1")]
    names = [parameter.name for parameter in parser.params]
    assert names.index("shout") == names.index("device") - 1 and "report" not in names


def test_a_function_of_options_takes_their_fields() -> None:
    @accepts_fields_of(PretrainOptions)
    def command_of(options: PretrainOptions) -> str:
        """What a shell reads."""
        return options.command()

    assert command_of("bert", ["text"], seed=3) == "cloze pretrain bert --corpus text --seed 3 --out RUN"
    with pytest.raises(TypeError, match="unexpected keyword argument 'sead'"):
        command_of("bert", ["text"], sead=3)  # type: ignore[call-arg]


def test_an_unknown_option_is_not_corrected_to_one_of_another_mode(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["evaluate", "DIR", "F", "--errors", "5"]) == 2
    told = capsys.readouterr().err
    assert "No such option: --errors\n" in told and "--rounds" not in told
    assert main(["evaluate", "DIR", "F", "--treshold", "0.5"]) == 2
    assert "--threshold" in capsys.readouterr().err
