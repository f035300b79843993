"""The folder of a run: whose it is, what it was started with, and what is left where no run began."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cloze.checkpoint.build import load_checkpoint
from cloze.checkpoint.inputs import FileState
from cloze.cli.main import main
from cloze.corpus.stores.build import build_store
from cloze.errors import BudgetError, CheckpointError, ClozeError, CorpusError
from cloze.runs.out_folder import claimed
from cloze.runs.progress import reading_corpus
from cloze.training.session import Session
from tests.small_recipe import Train


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


# S1


@pytest.mark.parametrize("name", ["README.md", "config.json", "notes.txt", "cloze/task.json"])
def test_a_folder_of_something_else_is_refused_and_untouched(place: Path, train: Train, name: str) -> None:
    other = place / "other"
    (other / name).parent.mkdir(parents=True)
    (other / name).write_text("{}", encoding="utf-8")
    with pytest.raises(CheckpointError, match=rf"other: holds {name}, which no run of cloze wrote"):
        train(other, budget="2steps")
    assert files(other) == {name: b"{}"}


def test_init_and_out_given_in_the_wrong_order_lose_nothing(place: Path, train: Train) -> None:
    model = place / "model"
    shutil.copytree(place / "run", model, ignore=shutil.ignore_patterns("cloze"))
    before = files(model)
    with pytest.raises(CheckpointError, match="To start from its weights, use --init"):
        train(model, budget="2steps", init=place / "elsewhere" if (place / "elsewhere").exists() else place / "run")
    assert files(model) == before


def test_an_empty_folder_is_taken_and_what_a_failed_start_put_there_is_removed(place: Path, train: Train) -> None:
    empty = place / "empty"
    empty.mkdir()
    with pytest.raises(CorpusError):
        train(empty, corpus="gone.txt", budget="2steps")
    assert list(empty.iterdir()) == []
    train(empty, budget="1steps")
    assert (empty / "config.json").is_file()


# S2


def test_a_second_process_that_fails_leaves_the_folder_of_the_first(place: Path, train: Train) -> None:
    first = place / "first"
    hold = "import sys; from pathlib import Path; from cloze.runs.out_folder import claimed\n"
    hold += "with claimed(Path(sys.argv[1])): print('held', flush=True); sys.stdin.read()"
    holder = subprocess.Popen(
        [sys.executable, "-c", hold, str(first)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    try:
        assert holder.stdout.readline() == "held\n"
        for corpus in ("gone.txt", "text.txt"):
            with pytest.raises(CheckpointError, match=f"pid {holder.pid}"):
                train(first, corpus=corpus, budget="2steps")
        assert [path.name for path in (first / "cloze").iterdir()] == ["lock"]
    finally:
        holder.communicate("")
    assert holder.returncode == 0


def test_a_failed_start_removes_what_it_made_with_the_folders_above_it(place: Path, train: Train) -> None:
    (place / "there").mkdir()
    with pytest.raises(ClozeError):
        train(place / "there" / "new" / "run", corpus="gone.txt", budget="2steps")
    assert list((place / "there").iterdir()) == []


def test_text_that_was_read_before_an_interruption_is_kept(place: Path) -> None:
    with pytest.raises(KeyboardInterrupt), claimed(place / "new"):
        raise KeyboardInterrupt
    assert not (place / "new").exists()
    with pytest.raises(KeyboardInterrupt), claimed(place / "new"):
        shutil.copytree(place / "run" / "cloze" / "corpus", place / "new" / "cloze" / "corpus")
        raise KeyboardInterrupt
    assert (place / "new" / "cloze" / "corpus" / "main" / "store" / "store.json").is_file()


def test_a_lock_that_was_removed_with_its_folder_holds_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from cloze.training.checkpoints import lock

    real, seen = lock.fcntl.flock, []

    def removed_meanwhile(file: Any, flags: int) -> None:
        if not seen:
            shutil.rmtree(tmp_path / "run" / "cloze")
        seen.append(file)
        real(file, flags)

    monkeypatch.setattr(lock.fcntl, "flock", removed_meanwhile)
    with lock.alone_in(tmp_path / "run", first=True):
        assert (tmp_path / "run" / lock.LOCK).read_text() == f"pid {os.getpid()}"
    assert len(seen) == 2


# S10


@pytest.mark.parametrize("name", ["lock", "log.jsonl"])
def test_links_in_a_run_folder_are_not_followed(place: Path, train: Train, name: str) -> None:
    precious = place / "precious"
    precious.write_text("mine", encoding="utf-8")
    (place / "run" / "cloze" / name).unlink()
    (place / "run" / "cloze" / name).symlink_to(precious)
    with pytest.raises(CheckpointError, match=f"{name}: is a symbolic link, where a run keeps a file of its own"):
        train(place / "run", budget="3steps", extend=True)
    assert precious.read_text() == "mine"


def test_a_target_that_cannot_be_written_is_told_before_the_text_is_read(
    place: Path, train: Train, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cloze.runs.corpora.train_tokenizer_from", lambda *_, **__: pytest.fail("read the text"))
    with pytest.raises(CheckpointError, match=r"cannot be created: not a directory\. Choose another --out"):
        train(place / "text.txt" / "run", budget="2steps")
    with pytest.raises(CheckpointError, match=r"cannot be (created|written): .*\. Choose another --out"):
        train(Path("/proc/run-of-cloze"), budget="2steps")


@pytest.mark.parametrize(("options", "expected"), [
    ({"until": 0.0}, "--until 0: expected a share of the budget"),
    ({"until": float("nan")}, "--until nan: expected a share of the budget"),
    ({"shard": 1}, "--shard 1: needs --strategy fsdp"),
    ({"mirror": "new"}, "--mirror new: is the folder of the run itself"),
])  # fmt: skip
def test_options_that_cannot_work_are_refused_before_the_text_is_read(
    place: Path, train: Train, options: dict[str, Any], expected: str
) -> None:
    said = list[str]()
    with pytest.raises(ClozeError, match=expected):
        train("new", report=said.append, **options)
    assert said == [] and not Path("new").exists()


# S3


def test_a_run_resumes_with_the_same_inputs_and_without_a_budget(place: Path, train: Train) -> None:
    os.utime("text.txt")  # touched, and the same
    said = train(place / "run")
    assert any("budget of 2 steps is spent" in line for line in said)
    shutil.copy("text.txt", "copy.txt")
    train(place / "run", corpus="copy.txt")
    train(place / "run", corpus="run/cloze/corpus/main/store")
    record = json.loads((place / "run" / "cloze" / "run.json").read_text())
    assert record["inputs"]["corpus"]["main"]["store"] and record["inputs"]["tokenizer"]


def test_a_run_resumes_without_its_text_where_that_is_given_by_its_name(place: Path, train: Train, begun: Path) -> None:
    (place / "text.txt").unlink()
    train(place / "run", corpus=begun / "text.txt")
    with pytest.raises(CheckpointError, match=r"was started with the text .*text.txt; typo.txt does not exist"):
        train(place / "run", corpus="typo.txt")


def test_changed_text_is_refused_with_both_values(place: Path, train: Train) -> None:
    text = (place / "text.txt").read_text()
    changed = text.replace("cat", "dog")
    (place / "text.txt").write_text(changed)
    assert len(changed) == len(text)  # the size says nothing
    with pytest.raises(CheckpointError, match=r"different text: then .*text\.txt \(.* bytes, sha256 .*\), now ") as caught:
        train(place / "run")
    assert "choose another --out" in str(caught.value)
    (place / "text.txt").write_text(text)
    (place / "more.txt").write_text(text)
    with pytest.raises(CheckpointError, match="1 file then, 2 now"):
        train(place / "run", corpus=["text.txt", "more.txt"])
    train(place / "run")


def test_another_store_tokenizer_held_out_text_or_start_is_refused(place: Path, train: Train) -> None:
    loaded = load_checkpoint(place / "run")
    (place / "other.txt").write_text((place / "text.txt").read_text().replace("cat", "dog"))
    build_store(["other.txt"], loaded.tokenizer, place / "other")
    train(place / "twin", budget="1steps", seed=1)
    run, before = place / "run", files(place / "run")
    for changes, told in (
        ({"corpus": "other"}, r"text\.txt .*digest .* for the source 'main'; now other .*digest .* is given"),
        ({"held_out": ["other.txt"]}, "a share of the corpus for the held-out loss, without --held-out other.txt"),
        ({"init": place / "twin"}, "random weights, without --init .*twin"),
    ):
        with pytest.raises(CheckpointError, match=told):
            train(run, **changes)
    train(place / "sized", corpus="other.txt", budget="1steps")
    with pytest.raises(CorpusError, match="built with another tokenizer"):
        train(run, tokenizer=place / "sized")
    changed = {name for name, value in files(run).items() if before.get(name) != value}
    assert changed <= {"cloze/corpus/main/text.json"}  # the copy's times were new to it


def test_initial_weights_are_known_by_their_contents(place: Path, train: Train) -> None:
    train(place / "next", init=place / "run", budget="1steps")
    train(place / "next", init=place / "run")
    shutil.copytree(place / "run", place / "moved")
    train(place / "next", init=place / "moved")
    train(place / "next")  # nothing is read from it any more
    train(place / "run", budget="3steps", extend=True)
    with pytest.raises(CheckpointError, match=r"different initial weights: then .*safetensors .*, now "):
        train(place / "next", init=place / "run")


def test_text_that_changed_before_the_run_began_is_read_again(place: Path, train: Train) -> None:
    shutil.copytree(place / "run" / "cloze" / "corpus", place / "new" / "cloze" / "corpus")
    train(place / "new", budget="1steps")
    old = (place / "run" / "cloze" / "corpus" / "main" / "store" / "store.json").read_bytes()
    assert (place / "new" / "cloze" / "corpus" / "main" / "store" / "store.json").read_bytes() == old
    shutil.copytree(place / "run" / "cloze" / "corpus", place / "newer" / "cloze" / "corpus")
    (place / "text.txt").write_text((place / "text.txt").read_text().replace("cat", "dog"))
    train(place / "newer", budget="1steps")
    assert (place / "newer" / "cloze" / "corpus" / "main" / "store" / "store.json").read_bytes() != old


def test_an_untouched_file_is_not_read_again(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known = FileState.of("text.txt")
    monkeypatch.setattr("cloze.checkpoint.inputs.file_hash", lambda path: pytest.fail("read"))
    assert FileState.of("text.txt", known) == known


def test_another_budget_is_refused_with_both_and_a_way_out(place: Path, train: Train) -> None:
    with pytest.raises(BudgetError, match="--budget 2steps, not 5steps.\n  To resume it, omit --budget"):
        train(place / "run", budget="5steps")


# U14: the line of progress


def test_whole_lines_are_printed_between_redrawn_ones_and_never_into_them(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    clock = iter(range(10))
    monkeypatch.setattr("cloze.runs.progress.time.perf_counter", lambda: float(next(clock)))
    with reading_corpus(lambda line: print(line, file=sys.stderr)) as (say, progress):
        progress(1_200, 2_400)
        say("292 documents")
    drawn = "\r\x1b[Kreading the corpus: 1.2 kB of 2.4 kB, 1.2 kB/s, 1 s left\r\x1b[K292 documents\n"
    assert capsys.readouterr().err == drawn


# U7


def test_a_run_given_as_recipe_says_that_its_weights_are_not_taken(place: Path, train: Train) -> None:
    said = train(place / "new", recipe=place / "run", budget="1steps")
    assert said[0].endswith(f"from random weights. To start from its weights: --init {place / 'run'}")


def test_initial_weights_bring_their_tokenizer(place: Path, train: Train) -> None:
    (place / "domain.txt").write_text((place / "text.txt").read_text().replace("cat", "dog"))
    said = train(place / "new", recipe=place / "run", init=place / "run", corpus="domain.txt", budget="1steps")
    assert load_checkpoint(place / "new").tokenizer.hash == load_checkpoint(place / "run").tokenizer.hash
    assert not any("random weights" in line for line in said)


# U14


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_run_that_a_signal_stops_ends_with_the_code_of_the_signal(
    place: Path, recipe: Path, number: signal.Signals, code: int, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    real, sent = Session.write_log, []

    def log(session: Session) -> None:
        if session.run_progress.step == 3 and not sent:
            sent.append(number)
            os.kill(os.getpid(), number)
        real(session)

    monkeypatch.setattr(Session, "write_log", log)
    arguments = ["pretrain", str(recipe), "--corpus", "run/cloze/corpus/main/store", "--out", "stopped", "--budget", "9steps"]
    assert main([*arguments, "--set", "training.log_every=1", "--device", "cpu"]) == code
    said = capsys.readouterr().err
    assert f"stopped by {number.name} at step 3; checkpoint written." in said
    given = "--corpus run/cloze/corpus/main/store --budget 9steps --set training.log_every=1 --device cpu"
    resume = f"cloze pretrain {recipe} {given}"
    assert said.splitlines()[-1] == f"To resume: {resume} --out stopped"
    assert main(["show", "stopped"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith(f"stopped: a pre-training run, stopped by {number.name} after 33% of the budget\n")
    assert f"next:\n  {resume} --out stopped\n" in shown
    assert main(shlex.split(said.splitlines()[-1].removeprefix("To resume: cloze "))) == 0
    assert "the budget is spent at step 9" in capsys.readouterr().err


def test_the_end_of_a_run_says_its_held_out_loss(place: Path, recipe: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["pretrain", str(recipe), "--corpus", "text.txt", "--out", "new", "--budget", "1steps", "--device", "cpu"]
    assert main(arguments) == 0
    log = [json.loads(line) for line in (place / "new" / "cloze" / "log.jsonl").read_text().splitlines()]
    (loss,) = [event["loss"] for event in log if event["event"] == "held_out"]
    said = capsys.readouterr().err
    assert f"the budget is spent at step 1, held-out loss {loss:.4f}; checkpoint written." in said
    next_line = shlex.split(said.splitlines()[-1])
    assert next_line[:4] == ["Next:", "cloze", "fill", "new"] and "[MASK]" in next_line[4]
    assert said.splitlines()[-1].endswith("(more: cloze show new)")
    assert main(arguments) == 0  # the same command again: the run stays finished
    again = capsys.readouterr().err
    assert "the budget of 1 step is spent" in again and "checkpoint written" not in again
    assert again.splitlines()[-1] == said.splitlines()[-1]


def test_show_says_what_a_run_is_and_its_commands_work(
    place: Path, recipe: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.move("run", "my run")  # the commands name the folder where it is now, quoted for the shell
    assert main(["show", "my run"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("my run: a pre-training run, finished\n  recipe         mine\n  network        transformer, 1 ")
    spaced = " ".join(shown.split())
    for part in ("started from random weights", "budget 2 steps spent 100%: 2 steps,", "checkpoints of steps 0, 1, 2",
                 "tokenizer wordpiece,", "held out loss token_prediction "):  # fmt: skip
        assert part in spaced, part
    commands = [line.strip() for line in shown.partition("next:\n")[2].splitlines()]
    assert [shlex.split(one)[1] for one in commands] == ["fill", "score", "finetune", "export", "pretrain", "report"]
    assert all("'my run'" in one for one in commands)
    assert main(shlex.split(commands[0])[1:]) == 0
    assert commands[4].endswith("--budget 4steps --device cpu --out 'my run' --extend")
    assert main(["show", "my run", "--recipe"]) == 0
    assert "\nname: mine\n" in f"\n{capsys.readouterr().out}"


def test_diff_of_two_runs_heads_the_columns_with_their_folders(
    place: Path, train: Train, capsys: pytest.CaptureFixture[str]
) -> None:
    train(place / "wide", budget="1steps", overrides=["training.batch=2"])
    assert main(["diff", "run", "wide"]) == 0
    assert capsys.readouterr().out.splitlines()[0].split() == ["run", "wide"]
