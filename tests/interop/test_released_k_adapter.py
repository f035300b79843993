"""`cloze import` reads K-Adapter's files next to their network: states equal the equations of microsoft/K-Adapter at 43651cd.

Sources: fac-adapter.py and lin-adapter.py (`Adapter`, `AdapterModel`), pytorch_transformers/modeling_bert.py; the layers that
adapters read: `--adapter_list "0,11,22"` of run_pretrain_fac-adapter.sh and run_pretrain_lin-adapter.sh.
"""

from __future__ import annotations

import json
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from cloze.cli.main import main
from cloze.interop import Card, export_folder
from tests.interop.released_files import Names, State, imported, layer, linear, norm, refusal, wrapped
from tests.interop.systems import system

WIDTH, INNER = 16, 128  # of the network, and of the adapters, with two heads of 64 numbers
TOKENS = torch.tensor([[0, 20, 30, 40, 2], [0, 50, 60, 2, 1]])
BLOCK = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 1, 0]])
layer = partial(layer, epsilon=1e-5)


def adapter(seed: int, *, linguistic: bool) -> State:
    """The state of an `AdapterModel`: three modules of two layers, and what its own task adds."""
    names = Names()
    names.draw.manual_seed(seed)
    for module in range(3):
        lead = f"adapter.{module}"
        names.linear(f"{lead}.down_project", INNER, WIDTH)
        names.linear(f"{lead}.up_project", WIDTH, INNER)
        for number in range(2):
            names.layer(f"{lead}.encoder.layer.{number}", INNER, 4 * INNER)
    names.linear("com_dense", WIDTH, 2 * WIDTH)
    names.linear("dense", WIDTH, WIDTH if linguistic else 2 * WIDTH)
    names.linear("out_proj", 64 if linguistic else 5, WIDTH)
    if linguistic:
        for part in ("self.query", "self.key", "self.value", "output.dense"):
            names.linear(f"self_attention.{part}", WIDTH, WIDTH)
        names.norm("self_attention.output.LayerNorm", WIDTH)
    return {name: tensor / 4 if "adapter" in name else tensor for name, tensor in names.state.items()}


def roberta_folder(place: Path) -> Path:
    """A RoBERTa as transformers writes it, without what cloze adds, in the place of roberta-large."""
    roberta = system("roberta", **{"positions.max_length": 64})
    export_folder(
        place, model=roberta.model(), tokenizer=roberta.tokenizer, reading=roberta.reading, card=Card("roberta"),
    )
    shutil.rmtree(place / "cloze")
    return place


def put(source: Path, folder: str, state: State) -> None:
    """An adapter's file, next to the config that its authors write."""
    (source / folder).mkdir()
    torch.save(state, source / folder / "pytorch_model.bin")
    shutil.copy(source / "config.json", source / folder)


def hidden_states(source: Path) -> list[Tensor]:
    """The embeddings and the outputs of the layers of `RobertaModel`, positions from 2 on."""
    state = {name.removeprefix("roberta."): tensor for name, tensor in load_file(source / "model.safetensors").items()}
    tables = {name: state[f"embeddings.{name}_embeddings.weight"] for name in ("word", "position", "token_type")}
    x = tables["word"][TOKENS] + tables["position"][2 : TOKENS.shape[1] + 2] + tables["token_type"][0]
    passed = [norm(state, "embeddings.LayerNorm", x, epsilon=1e-5)]
    for number in range(2):
        passed.append(layer(state, f"encoder.layer.{number}", passed[-1], BLOCK))
    return passed


def adapted(state: State, passed: list[Tensor], row: int) -> Tensor:
    """`AdapterModel.forward` up to `com_features`, of one text without padding; adapters read the layers 0, 0 and 0 of 2."""
    length = int(BLOCK[row].sum())
    last = torch.zeros(1, length, WIDTH)
    for module in range(3):
        read = passed[0][row : row + 1, :length] + last
        x = linear(state, f"adapter.{module}.down_project", read)
        for number in range(2):
            x = layer(state, f"adapter.{module}.encoder.layer.{number}", x, torch.ones(1, length))
        last = read + linear(state, f"adapter.{module}.up_project", x)
    return linear(state, "com_dense", torch.cat([passed[-1][row : row + 1, :length], last], 2))[0]


def test_both_adapters_give_the_features_of_the_authors_formulas(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = roberta_folder(tmp_path / "roberta")
    adapters = {"facts": adapter(1, linguistic=False), "words": adapter(2, linguistic=True)}
    put(source, "fac-adapter", adapters["facts"])
    put(source, "lin-adapter", wrapped(adapters["words"]))
    loaded, told = imported(capsys, source, tmp_path / "out")
    assert "used by no part of cloze: dense.bias, dense.weight, out_proj.bias, out_proj.weight of fac-adapter" in told
    assert "heads read their mean" in told and "left out, since adapters change what heads read: token_prediction" in told
    assert [change["name"] for _, change in loaded.imported.model.changes] == ["facts", "words"]
    assert loaded.recipe["paper"].startswith("K-Adapter") and not loaded.heads

    states = loaded.network.eval()(
        want=frozenset({"hidden", "layers", "facts_hidden", "words_hidden"}), tokens=TOKENS, block=BLOCK
    )
    passed = hidden_states(source)
    torch.testing.assert_close(states["layers"][:, BLOCK > 0], torch.stack(passed)[:, BLOCK > 0], atol=1e-5, rtol=0)
    for row in range(2):
        features = {name: adapted(state, passed, row) for name, state in adapters.items()}
        length = len(features["facts"])
        for name, expected in features.items():
            torch.testing.assert_close(states[f"{name}_hidden"][row, :length], expected, atol=1e-4, rtol=0)
        mean = (features["facts"] + features["words"]) / 2
        torch.testing.assert_close(states["hidden"][row, :length], mean, atol=1e-4, rtol=0)


def test_one_adapter_alone_makes_what_heads_read_and_tasks_can_tune_the_network(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, state = roberta_folder(tmp_path / "roberta"), adapter(3, linguistic=True)
    put(source, "lin-adapter", state)
    loaded, told = imported(capsys, source, tmp_path / "out")
    assert "heads read their mean" not in told
    hidden = loaded.network.eval()(want=frozenset({"hidden"}), tokens=TOKENS, block=BLOCK)["hidden"]
    torch.testing.assert_close(hidden[0], adapted(state, hidden_states(source), 0), atol=1e-4, rtol=0)
    rows = [{"text": "the cat sleeps", "label": "cat"}, {"text": "a dog barks", "label": "dog"}] * 4
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    code = main([
        "finetune", str(tmp_path / "out"), "--train", str(file), "--dev", str(file), "--task",
        "sentence_classification", "--change", "tune_trunk", "--set", "training.epochs=1", "--device", "cpu",
        "--out", str(tmp_path / "tuned"),
    ])  # fmt: skip
    assert code == 0, capsys.readouterr().err
    capsys.readouterr()


@pytest.mark.parametrize(("change", "message"), [
    (lambda state: {name: tensor for name, tensor in state.items() if not name.startswith("adapter.2.")}, "2 modules of 128"),
    (lambda state: {**state, "adapter.0.down_project.weight": torch.zeros(INNER, 24)}, "read states of 24; expected 3 modules"),
    (lambda state: {**state, "com_dense.weight": torch.zeros(WIDTH, WIDTH)}, "com_dense.weight: the file gives (16, 16)"),
])  # fmt: skip
def test_an_adapter_of_another_shape_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], change: Any, message: str
) -> None:
    source = roberta_folder(tmp_path / "roberta")
    put(source, "fac-adapter", change(adapter(1, linguistic=False)))
    assert message in refusal(capsys, source)


def test_an_adapter_without_its_network_or_its_kind_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = roberta_folder(tmp_path / "roberta")
    put(source, "adapter", adapter(1, linguistic=False))
    assert "expected its folder to be called fac-adapter or lin-adapter" in refusal(capsys, source)
    shutil.copytree(source / "adapter", source / "fac-adapter")
    shutil.copytree(source / "adapter", source / "fac-adapter-2")
    shutil.rmtree(source / "adapter")
    assert "fac-adapter, fac-adapter-2 are adapters of one kind; expected one of each" in refusal(capsys, source)
    alone = tmp_path / "alone"
    alone.mkdir()
    shutil.move(source / "fac-adapter", alone)
    for place in (alone / "fac-adapter", alone / "fac-adapter" / "pytorch_model.bin", alone):
        told = refusal(capsys, place)
        assert "lacks the network that it reads.\n  Put the folders fac-adapter and lin-adapter into that of" in told
