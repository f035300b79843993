"""Models by their names on the hub: fetched by the real client from a server on the loopback, used like folders."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import cloze
from cloze.checkpoint.build import load_checkpoint
from cloze.cli.main import main
from cloze.errors import CheckpointError
from cloze.hub import is_name, local_folder, name_of
from cloze.interop.files import read_weights
from tests.hub_server import Hub, serving

Folder = Callable[[str], Path]
TINY = ["--set", "training.epochs=1", "--set", "corpus.length=16", "--no-baselines"]


@pytest.fixture
def hub(folder: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A hub with the models `org/bert`, `org/old` (a pickle, and files for other tools) and `org/gated`; an empty cache."""
    from huggingface_hub import constants

    monkeypatch.chdir(tmp_path)
    old = tmp_path / "old"
    old.mkdir()
    for file in folder("bert").iterdir():
        if file.is_file() and file.suffix != ".safetensors" and file.name not in ("README.md", "modules.json"):
            (old / file.name).write_bytes(file.read_bytes())
    torch.save(read_weights(folder("bert")), old / "pytorch_model.bin")
    (old / "tf_model.h5").write_bytes(b"for others")
    (old / "source.spm").write_bytes(b"pieces of Marian")
    (old / "modeling.py").write_text("raise SystemExit")
    served = Hub({"org/bert": folder("bert"), "org/old": old}, gated={"org/gated"}, root=tmp_path / "hub")
    with serving(served) as address:
        monkeypatch.setattr(constants, "ENDPOINT", address)  # as HF_ENDPOINT does when the client is imported
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", address + "/{repo_id}/resolve/{revision}/{filename}")
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        yield served


def refusal(name: str) -> str:
    with pytest.raises(CheckpointError) as caught:
        local_folder(name)
    return str(caught.value)


def test_a_name_has_an_owner_and_is_no_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert is_name("google-bert/bert-base-uncased") and is_name("org/name@v1.0") and is_name("org/name@refs/pr/1")
    for path in ("bert", "./org/name", "/org/name", "a/b/c", "org/mine.yaml", "org/words.vec", "org/", "s3://org/name"):
        assert not is_name(path), path
    (tmp_path / "runs").mkdir()
    assert not is_name("runs/bert") and local_folder("runs/bert") == Path("runs/bert")


def test_nothing_is_asked_of_the_hub_before_a_name_is_used() -> None:
    script = "import sys, cloze, cloze.cli.main, cloze.hub; print('huggingface_hub' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_a_model_is_fetched_once_with_the_files_that_cloze_reads(hub: Hub, folder: Folder) -> None:
    fetched = local_folder("org/bert")
    assert name_of(fetched) == f"org/bert@{hub.commit('org/bert')}" and name_of(folder("bert")) is None
    ours, theirs = load_checkpoint(folder("bert")), load_checkpoint(fetched)
    assert all(torch.equal(a, b) for a, b in zip(ours.network.parameters(), theirs.network.parameters(), strict=True))
    hub.requests.clear()
    assert local_folder(f"org/bert@{hub.commit('org/bert')}") == fetched and hub.requests == []
    assert local_folder("org/bert") == fetched and hub.requests == ["GET /api/models/org/bert/revision/main"]


def test_a_pickle_is_fetched_only_where_there_is_nothing_else_and_code_never(hub: Hub) -> None:
    dense = hub.repositories["org/old"] / "2_Dense" / "model.safetensors"
    dense.parent.mkdir()
    dense.write_bytes((hub.repositories["org/bert"] / "model.safetensors").read_bytes())
    fetched = local_folder("org/old")
    names = {path.name for path in fetched.rglob("*") if path.is_file()}
    assert {"pytorch_model.bin", "source.spm"} <= names and not names & {"modeling.py", "tf_model.h5"}
    assert load_checkpoint(fetched).tokenizer.size == load_checkpoint(hub.repositories["org/bert"]).tokenizer.size
    safe = (hub.repositories["org/bert"] / "model.safetensors").read_bytes()
    (hub.repositories["org/old"] / "model.safetensors").write_bytes(safe)
    assert not (local_folder("org/old") / "pytorch_model.bin").exists()


def test_a_network_that_is_code_of_the_repository_is_refused(hub: Hub) -> None:
    config = hub.repositories["org/old"] / "config.json"
    config.write_text(json.dumps({"model_type": "mine", "auto_map": {"AutoModel": "modeling.Mine"}}))
    with pytest.raises(CheckpointError, match="Its network is code in the repository .auto_map., which cloze never runs"):
        load_checkpoint(local_folder("org/old"))


def test_every_refusal_names_the_way_out(hub: Hub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert "no such model on the Hugging Face Hub" in refusal("org/bret") and "hf auth login" in refusal("org/bret")
    assert "accept the terms" in refusal("org/gated") and "hf auth login" in refusal("org/gated")
    assert "has no branch, tag or commit 'v9'" in refusal("org/bert@v9")
    for status, words in ((429, "429 Too Many Requests"), (500, "500 Internal Server Error")):
        hub.status = status
        assert f"answered with {words}. Rerun the command later" in refusal("org/bert")
    for status, words in ((401, "401 Unauthorized"), (403, "403 Forbidden")):
        hub.status = status
        assert f"answered with {words}. Log in with an account that may do this" in refusal("org/bert")
    hub.status = None
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    assert "HF_HUB_OFFLINE is set" in refusal("org/bert")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)

    def full(*args: Any, **kwargs: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("huggingface_hub.snapshot_download", full)
    assert f"cannot be stored in {tmp_path / 'cache'} (No space left on device). Set HF_HOME" in refusal("org/bert")


def test_a_server_that_hangs_is_left_with_a_sentence(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_DOWNLOAD_TIMEOUT", 0.1)
    monkeypatch.setattr("time.sleep", lambda seconds: None)  # between the client's attempts
    hub.cut, hub.goes_on = 1000, threading.Event()
    try:
        assert "was interrupted (timed out). Rerun the command later; it resumes where it stopped." in refusal("org/bert")
    finally:
        hub.goes_on.set()


def test_a_download_that_breaks_off_continues_and_a_cached_model_needs_no_hub(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.sleep", lambda seconds: None)  # between the client's attempts
    hub.cut = 1000
    assert "was interrupted" in refusal("org/bert")
    hub.cut = None
    hub.requests.clear()
    fetched = local_folder("org/bert")
    load_checkpoint(fetched)
    hub.status = 500
    assert local_folder("org/bert") == fetched
    hub.status = None
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    hub.requests.clear()
    assert local_folder("org/bert") == fetched and hub.requests == []


def test_a_name_is_fine_tuned_as_the_folder_is_and_the_run_records_the_commit(
    hub: Hub, folder: Folder, tables: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = ["--train", str(tables / "train.tsv"), "--dev", str(tables / "dev.tsv"), *TINY]
    for checkpoint, out in (("org/bert", "by_name"), (str(folder("bert")), "by_folder")):
        assert main(["finetune", checkpoint, *rows, "--out", out]) == 0, capsys.readouterr().err
    by_name, by_folder = (read_weights(tmp_path / out) for out in ("by_name", "by_folder"))
    assert all(torch.equal(by_name[name], tensor) for name, tensor in by_folder.items())
    record = json.loads((tmp_path / "by_name" / "cloze" / "run.json").read_text())
    assert f"org/bert@{hub.commit('org/bert')}" in json.dumps(record)
    card = (tmp_path / "by_name" / "README.md").read_text()
    assert "\nbase_model: org/bert\n" in card and f"Training started from org/bert@{hub.commit('org/bert')}." in card
    assert "base_model" not in (tmp_path / "by_folder" / "README.md").read_text()
    assert main(["finetune", "org/nobody", *rows, "--out", "none"]) == 2
    assert "no such model on the Hugging Face Hub" in capsys.readouterr().err and not Path("none").exists()


def test_a_folder_of_peft_opens_on_the_network_that_it_names_on_the_hub(
    hub: Hub, folder: Folder, tables: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = ["--train", str(tables / "train.tsv"), "--dev", str(tables / "dev.tsv"), *TINY]
    assert main(["finetune", str(folder("bert")), *rows, "--change", "lora=2", "--out", "tuned"]) == 0, capsys.readouterr().err
    assert main(["export", "tuned", "adapter", "--to", "peft"]) == 0
    adapter, settings = tmp_path / "adapter", json.loads(Path("adapter/adapter_config.json").read_text())
    shutil.rmtree(adapter / "cloze")  # peft's own files remain
    expected = load_checkpoint(adapter).network.state_dict()

    def opens_on(base: str, **changes: Any) -> bool:
        (adapter / "adapter_config.json").write_text(json.dumps({**settings, "base_model_name_or_path": base, **changes}))
        state = load_checkpoint(local_folder("me/adapter")).network.state_dict()
        return state.keys() == expected.keys() and all(torch.equal(state[name], expected[name]) for name in state)

    hub.repositories["me/adapter"] = adapter
    assert opens_on("org/bert") and opens_on("org/bert", revision="main")
    with pytest.raises(CheckpointError, match="adapter_config.json: names the network org/nobody: there is no such folder, and"):
        opens_on("org/nobody")
    with pytest.raises(CheckpointError, match="is neither a folder here nor the name of a model on the hub.\n  Write the folder"):
        opens_on("/gone/bert")
    torch.save(load_file(adapter / "adapter_model.safetensors"), adapter / "adapter_model.bin")  # as peft did before 0.5
    (adapter / "adapter_model.safetensors").unlink()
    assert opens_on("org/bert")


def test_python_opens_a_name_and_pretraining_starts_from_one(hub: Hub, tmp_path: Path) -> None:
    model = cloze.load("org/bert", device="cpu")
    assert model.embed(["the cat"]).shape[1] == 16
    (tmp_path / "text.txt").write_text("the cat saw the dog\n" * 200)
    words = ["pretrain", "bert", "--corpus", "text.txt", "--size", "tiny", "--budget", "1steps", "--out", "run", "--plan"]
    assert main([*words, "--init", "org/nobody"]) == 2
    assert main(["fill", "org/bert", "the [MASK] saw the dog"]) == 0


def test_a_model_is_published_private_and_opens_by_its_name(
    hub: Hub, folder: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    export = ["export", str(folder("bert")), "me/bert", "--to", "hub", "--language", "en", "--licence", "mit", "--data", "Tales."]
    monkeypatch.setenv("HF_TOKEN", "hf_wrong")
    assert main(export) == 2
    assert "401 Unauthorized. Log in with an account that may do this: hf auth login" in capsys.readouterr().err
    monkeypatch.setenv("HF_TOKEN", hub.token)
    assert main(export) == 0
    assert "/me/bert: " in capsys.readouterr().out and hub.public == {"me/bert": False}
    sent = read_weights(hub.repositories["me/bert"])
    assert all(torch.equal(sent[name], tensor) for name, tensor in read_weights(folder("bert")).items())
    assert "license: mit" in (hub.repositories["me/bert"] / "README.md").read_text()
    model = cloze.load("me/bert", device="cpu")
    assert model.push("me/again", public=True).endswith("/me/again") and hub.public["me/again"]
    with pytest.raises(CheckpointError, match="bert: expected ORG/NAME"):
        model.push("bert")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(CheckpointError, match="me/third: cannot be uploaded while HF_HUB_OFFLINE is set"):
        model.push("me/third")
    assert main(["export", str(folder("bert")), "out", "--to", "huggingface", "--public"]) == 2


@pytest.mark.slow
def test_a_download_that_is_killed_continues_and_a_comparison_by_name_runs_offline_the_second_time(
    hub: Hub, folder: Folder, tables: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from huggingface_hub import constants

    hub.cut, hub.goes_on = 1000, threading.Event()
    train, dev = str(tables / "train.tsv"), str(tables / "dev.tsv")
    variables = {"HF_ENDPOINT": constants.ENDPOINT, "HF_HUB_CACHE": constants.HF_HUB_CACHE, "HF_HUB_OFFLINE": "0"}
    process = subprocess.Popen(
        [sys.executable, "-m", "cloze", "finetune", "org/bert", "--train", train, "--dev", dev, *TINY, "--out", "killed"],
        env={**os.environ, **variables, "PYTHONPATH": str(Path(cloze.__file__).parents[1])},
    )
    while "GET /org/bert/resolve/" not in " ".join(hub.requests):
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL and not Path("killed").exists()
    hub.goes_on.set()
    hub.cut = hub.goes_on = None
    text = "\n\n".join(line.partition("\t")[0] for line in Path(train).read_text().splitlines()[1:] * 8)
    (tmp_path / "text.txt").write_text(text)
    words = [
        "compare", "quick", "org/bert", "--size", "tiny", "--corpus", "text.txt", "--budget", "8steps", "--allow-shared",
        "--task", f"mood={train},{dev},{dev}", "--tune", "training.epochs=1", "--out", "comparison", "--no-baselines",
    ]  # fmt: skip
    assert main([*words, "--seeds", "1"]) == 0, capsys.readouterr().err
    by_name, by_folder = read_weights(local_folder("org/bert")), read_weights(folder("bert"))
    assert by_name.keys() == by_folder.keys()
    assert all(torch.equal(by_name[name], tensor) for name, tensor in by_folder.items())
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    hub.requests.clear()
    assert main([*words, "--seeds", "2"]) == 0, capsys.readouterr().err
    assert hub.requests == [] and len(list(Path("comparison/cells").glob("finetune-mood-bert*"))) == 2
