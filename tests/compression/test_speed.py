"""`cloze speed`: sizes and operations are exact; times are those of passes that ran."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from cloze.changes.compressing.sparsify import PruningMask, Sparsify
from cloze.checkpoint import onnx_file
from cloze.checkpoint.build import load_checkpoint
from cloze.checkpoint.onnx_file import files_to_time
from cloze.compression import speed
from cloze.compression.int8 import in_int8
from cloze.compression.speed import TimedNetwork, measure
from cloze.networks import Clock
from cloze.networks.blocks.computed import ComputedLinear
from tests.making import network_of

SHAPE: dict[str, Any] = {"layers": 2, "width": 16, "heads": 2, "feed_forward.inner": 32, "positions.max_length": 16}


def transformer(**changes: Any) -> Any:
    torch.manual_seed(0)
    return network_of("transformer", **{**SHAPE, **changes}, vocab_size=40, clock=Clock()).eval()


def test_operations_are_those_of_the_matrix_products_of_one_pass() -> None:
    (row,) = measure([TimedNetwork("x", transformer(), "open")], lengths=[8], batches=[3], formats=["fp32"], rounds=2)
    products = 2 * (4 * 16 * 16 + 2 * 16 * 32)  # per token and layer
    attention = 2 * 2 * 8 * 16
    assert row.flops == 3 * 8 * 2 * (products + attention)
    assert row.parameters == sum(p.numel() for p in transformer().parameters())
    assert row.bytes > 4 * row.parameters and row.low <= row.median <= row.high and row.median > 0


def test_every_variant_runs_once_in_every_round_by_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[str] = []

    def timed(one: Any, given: Any, device: Any) -> float:
        ran.append(f"{one.subject.name} {one.format}")
        return [9.0, 9.0, 0.001, 0.002, 0.004][(len(ran) - 1) // 3]

    monkeypatch.setattr(speed, "_time", timed)
    subjects = [TimedNetwork("a", transformer(), "open")]
    rows = measure(subjects, lengths=[4], batches=[1], formats=["fp32", "bf16", "int8"], rounds=3)
    assert ran == ["a fp32", "a bf16", "a int8"] * 5
    assert [row.median for row in rows] == [2.0] * 3  # the two passes before do not count
    assert [(row.low, row.high) for row in rows] == [(1.5, 3.0)] * 3


@pytest.mark.parametrize("changes", [{}, {"share.weights": "all"}, {"norm": "pre", "positions": "rotary"}])
def test_int8_computes_nearly_the_same_with_every_linear_map_in_int8(changes: dict[str, Any]) -> None:
    network = transformer(**changes)
    made, tokens = in_int8(network), torch.arange(12).view(2, 6)
    given: dict[str, Any] = {"want": frozenset({"hidden"}), "order": "open", "tokens": tokens}
    with torch.inference_mode():
        exact, rounded = network(**given)["hidden"], made(**given)["hidden"]
    error = float((exact - rounded).norm() / exact.norm())
    assert 1e-5 < error < 0.03
    assert not [m for m in made.modules() if type(m) is torch.nn.Linear] and type(network.layers[0].outer) is torch.nn.Linear
    assert type(made.layers[1].outer) is not torch.nn.Linear  # also where layers share their maps


def test_weights_that_a_change_computes_are_computed_before_they_are_rounded_to_int8() -> None:
    network = transformer()
    Sparsify(share=0.999).apply(network)
    for module in network.modules():
        if isinstance(module, PruningMask):
            module.kept.zero_()
    made = in_int8(network)
    inner = made.layers[0].inner
    assert type(inner) is type(in_int8(transformer()).layers[0].inner)
    assert float(inner.weight().dequantize().abs().max()) == 0.0 and type(network.layers[0].inner) is ComputedLinear


def test_a_recurrent_network_is_timed_in_fp32_and_int8_says_why_it_is_not() -> None:
    network = network_of("lstm", layers=1, width=8, inner=8, vocab_size=20, clock=Clock()).eval()
    rows = measure([TimedNetwork("x", network, "left_to_right")], lengths=[4], batches=[2], formats=["fp32", "int8"], rounds=2)
    assert rows[0].median > 0 and not rows[0].fault
    assert rows[1].fault == "not in int8: its linear maps are read, not called" and rows[1].median == 0.0


def test_the_command_prints_a_table_and_writes_json(
    folder: Callable[..., Path], cloze: Callable[..., Any], tmp_path: Path
) -> None:
    args = ["--lengths", "4,8", "--batch", "2", "--as", "fp32,int8", "--rounds", "2"]
    said = cloze("speed", folder("bert"), *args, "--out", tmp_path / "speed.json")
    assert said.code == 0, said.err
    lines = said.out.splitlines()
    assert lines[0].split() == ["checkpoint", "as", "length", "batch", "parameters", "MB", "GFLOP", "ms", "quartiles"]
    assert [line.split()[:4] for line in lines[1:5]] == [["bert", one, n, "2"] for n in ("4", "8") for one in ("fp32", "int8")]
    assert lines[-1].startswith("2 interleaved rounds; ") and "torch" in lines[-1]
    found = json.loads((tmp_path / "speed.json").read_text())
    assert [row["length"] for row in found["rows"]] == [4, 4, 8, 8] and found["machine"]["packages"]["torch"]
    assert found["rows"][1]["bytes"] < found["rows"][0]["bytes"]


def test_onnxruntime_is_timed_next_to_the_network_and_what_it_cannot_open_says_so(
    folder: Callable[..., Path], cloze: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("onnxruntime", reason="the extra onnx is not installed")
    options = ["--lengths", "4", "--batch", "2", "--as", "fp32,onnx,onnx-int8", "--rounds", "2", "--json"]
    said = cloze("speed", folder("bert"), *options)
    assert said.code == 0, said.err
    own, file, small = json.loads(said.out)["rows"]
    assert [row["format"] for row in (own, file, small)] == ["fp32", "onnx", "onnx-int8"]
    assert min(row["median"] for row in (own, file, small)) > 0
    assert file["flops"] == own["flops"] and file["bytes"] >= 4 * own["parameters"]
    assert small["bytes"] != file["bytes"]  # in a network this small, scales take more room than weights
    monkeypatch.setattr(onnx_file, "MOST", -1.0)  # no file is near enough
    refused = json.loads(cloze("speed", folder("bert"), *options).out)["rows"]
    reason = "cloze export --to onnx does not write this network"
    assert [row["fault"] for row in refused] == ["", f"not in onnx: {reason}", f"not in onnx-int8: {reason}"]


def test_an_onnx_file_is_refused_with_the_way_to_time_it(
    folder: Callable[..., Path], cloze: Callable[..., Any], tmp_path: Path
) -> None:
    pytest.importorskip("onnxruntime", reason="the extra onnx is not installed")
    assert cloze("export", folder("bert"), tmp_path / "x.onnx", "--to", "onnx").code == 0
    refused = cloze("speed", tmp_path / "x.onnx")
    assert refused.code == 2 and "x.onnx: an ONNX file. Give the folder that it was exported from" in refused.err
    assert "--as onnx or --as onnx-int8" in refused.err


def test_the_pass_of_a_file_computes_what_the_network_computes(
    folder: Callable[..., Path], cloze: Callable[..., Any], tmp_path: Path
) -> None:
    pytest.importorskip("onnxruntime", reason="the extra onnx is not installed")
    (files, loaded) = files_to_time(folder("bert"), tmp_path, ["onnx"]), load_checkpoint(folder("bert"))
    assert files == {"onnx": tmp_path / "onnx.onnx"}
    given = speed.inputs(TimedNetwork("x", loaded.network, loaded.order), 6, 2, torch.device("cpu"))
    (found,) = speed.FilePass(tmp_path / "onnx.onnx")(**given)
    with torch.inference_mode():
        expected = loaded.network(**given)["hidden"]
    torch.testing.assert_close(torch.from_numpy(found), expected, atol=1e-4, rtol=0)


@pytest.mark.parametrize(("options", "said"), [
    (["--lengths", "4,x"], "--lengths 4,x: expected whole numbers of 1 or more"),
    (["--as", "fp8"], "unknown format 'fp8'. Did you mean 'fp32'"),
    (["--lengths", "4096"], "reads at most 40 tokens; --lengths has 4096"),
    (["--lengths", "4096", "--out", "none/speed.json"], "none/speed.json: its folder does not exist."),  # before any timing
])  # fmt: skip
def test_what_cannot_be_timed_is_refused(
    folder: Callable[..., Path], cloze: Callable[..., Any], options: list[str], said: str
) -> None:
    refused = cloze("speed", folder("bert"), *options)
    assert refused.code == 2 and said in refused.err
