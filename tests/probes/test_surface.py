"""The loss on lines and planes through checkpoints: the weights at each place, directions as the authors draw them, figures."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from cloze.checkpoint.build import load_checkpoint
from cloze.cli.main import main
from cloze.errors import UserError
from cloze.probes.finding import HeatMap, Subject, as_text
from cloze.probes.kinds.loss_surface import SurfaceProbe
from cloze.probes.losses import LossExamples, text_examples
from cloze.probes.surface import LossLine, LossPlane, MeasuredPlaces, Surface, loss_surface, parameters_of, random_direction
from cloze.reports.figures import heat_map
from cloze.reports.probe import render
from tests.pages import Outline


class Bowl(nn.Module):
    """Weights (2, 2) and a bias (2)."""

    def __init__(self, weight: list[list[float]], bias: list[float]) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor(weight))
        self.bias = nn.Parameter(torch.tensor(bias))


class BowlExamples(LossExamples):
    """Three examples with the losses n (Σ weight² + Σ bias)."""

    def __init__(self, network: Bowl) -> None:
        self.network, self.lengths = network, [1, 1, 1]

    def losses(self, index: Any) -> Tensor:
        return torch.tensor([float(n) for n in index]) * (self.network.weight.square().sum() + self.network.bias.sum())


def bowls(**places: tuple[list[list[float]], list[float]]) -> dict[str, Any]:
    words = SimpleNamespace(hash="words")
    return {name: SimpleNamespace(network=Bowl(*place), heads={}, tokenizer=words) for name, place in places.items()}


def losses_of(weight: np.ndarray, bias: np.ndarray) -> float:
    return float((weight**2).sum() + bias.sum())  # the mean of 0, 1 and 2 is 1


def test_losses_are_those_of_the_weights_at_each_place_and_the_weights_come_back() -> None:
    a, b, c = np.array([[1.0, 0], [0, 2]]), np.array([[0.0, 1], [2, 0]]), np.array([[0.5, 0.5], [0.5, 3]])
    one, two, three = np.array([1.0, -1]), np.array([0.0, 4]), np.array([2.0, 2])
    checkpoints = bowls(
        a=(a.tolist(), one.tolist()), b=(b.tolist(), two.tolist()), c=(c.tolist(), three.tolist())
    )  # fmt: skip
    surface = loss_surface(checkpoints, BowlExamples(checkpoints["b"].network), "b", MeasuredPlaces(5, 3, 0.5))
    assert list(surface.between) == ["a, b", "a, c"] and list(surface.around) == ["a", "b", "c"]
    for pair, weight, bias in (("a, b", b, two), ("a, c", c, three)):
        line = surface.between[pair]
        assert line.x.tolist() == [-0.5, 0.0, 0.5, 1.0, 1.5]
        expected = [losses_of(a + x * (weight - a), one + x * (bias - one)) for x in line.x]
        np.testing.assert_allclose(line.losses, expected, rtol=1e-5)
        length = np.sqrt(((weight - a) ** 2).sum() + ((bias - one) ** 2).sum())
        assert line.length == pytest.approx(length) and line.relative == pytest.approx(length / np.sqrt(7))
    assert surface.plane is not None and surface.plane.places == {"a": (0.0, 0.0), "b": (1.0, 0.0), "c": (0.0, 1.0)}
    for n, y in enumerate([-0.5, 0.5, 1.5]):
        for m, x in enumerate([-0.5, 0.5, 1.5]):
            expected = losses_of(a + x * (b - a) + y * (c - a), one + x * (two - one) + y * (three - one))
            assert surface.plane.losses[n, m] == pytest.approx(expected, rel=1e-5)
    network = checkpoints["b"].network
    assert network.weight.tolist() == b.tolist() and network.bias.tolist() == two.tolist() and surface.remarks == []


def authors_direction(weights: Mapping[str, np.ndarray], drawn: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """create_random_direction of net_plotter.py with norm='filter' and ignore='biasbn'."""
    direction = {}
    for name, weight in weights.items():
        part = drawn[name].copy()
        if part.ndim <= 1:
            part[...] = 0
        else:
            for d, w in zip(part, weight, strict=True):
                d *= np.linalg.norm(w) / (np.linalg.norm(d) + 1e-10)
        direction[name] = part
    return direction


def test_random_directions_are_filter_normalised_as_the_authors_code_does_it() -> None:
    draw = np.random.default_rng(0)
    weights = {
        "map": draw.normal(size=(3, 4)), "bias": draw.normal(size=3), "kernel": draw.normal(size=(2, 3, 5)),
        "table": np.zeros((2, 4)),
    }  # fmt: skip
    tensors = {name: torch.from_numpy(weight).float() for name, weight in weights.items()}
    generator = torch.Generator().manual_seed(7)
    drawn = {name: torch.randn(weight.shape, generator=generator).numpy() for name, weight in weights.items()}
    found = random_direction(tensors, torch.Generator().manual_seed(7))
    for name, expected in authors_direction(weights, drawn).items():
        np.testing.assert_allclose(found[name].numpy(), expected, rtol=1e-4, atol=1e-6, err_msg=name)


def test_one_checkpoint_has_a_line_and_a_plane_in_random_directions() -> None:
    checkpoints = bowls(a=([[3.0, 4.0], [0.0, 5.0]], [1.0, 1.0]))
    surface = loss_surface(checkpoints, BowlExamples(checkpoints["a"].network), "a", MeasuredPlaces(3, 3), seed=2)
    weights = {name: part.detach().clone() for name, part in parameters_of(checkpoints["a"]).items()}
    directions = [random_direction(weights, torch.Generator().manual_seed(seed)) for seed in (2, 3)]
    start = weights["network.weight"].numpy().astype(float)
    first, second = (direction["network.weight"].numpy().astype(float) for direction in directions)
    assert surface.plane is not None and not surface.between and list(surface.plane.places) == ["a"]
    for n, y in enumerate((-1.0, 0.0, 1.0)):
        expected = [losses_of(start + x * first + y * second, np.ones(2)) for x in (-1.0, 0.0, 1.0)]
        np.testing.assert_allclose(surface.plane.losses[n], expected, rtol=1e-5)
    np.testing.assert_allclose(surface.around["a"].losses, surface.plane.losses[1], rtol=1e-6)
    assert surface.around["a"].length == pytest.approx(np.sqrt(50), rel=1e-5) and (start @ start.T).trace() == 50
    assert loss_surface(checkpoints, BowlExamples(checkpoints["a"].network), "a", MeasuredPlaces(3, 0)).plane is None


def test_a_barrier_is_what_rises_above_the_line_between_both_ends() -> None:
    x = np.linspace(-0.5, 1.5, 5)
    assert LossLine(x, np.array([9.0, 1.0, 5.0, 3.0, 9.0]), 1.0, 1.0).barrier == 3.0
    assert LossLine(x, np.array([9.0, 1.0, 1.5, 3.0, 9.0]), 1.0, 1.0).barrier == 0.0


def test_checkpoints_of_different_shapes_are_refused_and_heads_that_one_lacks_stay() -> None:
    checkpoints = bowls(a=([[1.0, 2.0]], [0.0, 0.0]), b=([[1.0, 2.0], [3.0, 4.0]], [0.0, 0.0]))
    with pytest.raises(UserError) as refused:
        loss_surface(checkpoints, BowlExamples(checkpoints["b"].network), "b", MeasuredPlaces(3, 0))
    assert str(refused.value) == (
        "a and b have different networks: 1 differing weight, such as weight ([1, 2] and [2, 2]).\n"
        "  Give checkpoints of one shape, such as a network before and after it was fine-tuned."
    )
    checkpoints = bowls(a=([[1.0, 2.0]], [0.0, 0.0]), b=([[1.0, 4.0]], [0.0, 0.0]))
    checkpoints["a"].tokenizer = SimpleNamespace(hash="other words")
    with pytest.raises(UserError, match="a and b have different vocabularies, so the weights of one mean nothing"):
        loss_surface(checkpoints, BowlExamples(checkpoints["b"].network), "b", MeasuredPlaces(3, 0))
    checkpoints = bowls(a=([[1.0, 2.0]], [0.0, 0.0]), b=([[1.0, 4.0]], [0.0, 0.0]))
    checkpoints["b"].heads = {"class": nn.Linear(2, 2)}
    surface = loss_surface(checkpoints, BowlExamples(checkpoints["b"].network), "b", MeasuredPlaces(3, 0))
    assert surface.remarks == ["the weights of b stand for those that a lacks: class"]
    assert surface.between["a, b"].length == pytest.approx(2.0)


def test_the_line_between_two_networks_begins_and_ends_at_their_losses(checkpoint: Callable[..., Any]) -> None:
    texts = ["the cat sleeps on the mat", "a dog and cheese in the rain"]
    a, b = checkpoint("bert"), checkpoint("bert", seed=3)
    ends = [text_examples(loaded, texts).mean_loss(size=2) for loaded in (a, b)]
    assert abs(ends[0] - ends[1]) > 0.1
    surface = loss_surface({"a": a, "b": b}, text_examples(b, texts), "b", MeasuredPlaces(3, 2, 0.0), size=2)
    line = surface.between["a, b"]
    assert line.x.tolist() == [0.0, 0.5, 1.0]
    assert line.losses[[0, 2]] == pytest.approx(ends, rel=1e-4)
    assert surface.around["a"].losses[1] == pytest.approx(ends[0], rel=1e-4)
    assert text_examples(b, texts).mean_loss(size=2) == ends[1]


def test_a_tuned_checkpoint_and_its_start_are_measured_on_the_task(
    tuned: Callable[..., Path], checkpoint: Callable[..., Any], tmp_path: Path
) -> None:
    (tmp_path / "dev.tsv").write_text("label\ttext\nanimal\tthe cat sleeps\nweather\train on the mat\n", encoding="utf-8")
    loaded = {Path(): load_checkpoint(tuned()), Path("start"): checkpoint("bert", seed=9)}
    probe = SurfaceProbe(task=str(tmp_path / "dev.tsv"), points=3, grid=0, beyond=0.0)
    subjects = [Subject("start", Path("start")), Subject("tuned", Path())]
    finding = probe.run(subjects, lambda subject: loaded[subject.folder])
    direct = probe.examples(loaded[Path()], [], probe.task).mean_loss(size=2)
    assert finding.data["start, tuned"]["losses"][2] == pytest.approx(direct, rel=1e-4)
    assert any("stand for those that start lacks: " in remark for remark in finding.remarks)


def test_checkpoints_whose_heads_have_their_classes_in_another_order_are_refused(
    tuned: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "dev.tsv").write_text("label\ttext\nanimal\tthe cat sleeps\nweather\train on the mat\n", encoding="utf-8")
    for name, labels in (("mine", ["animal", "weather"]), ("other", ["weather", "animal"])):
        shutil.copytree(tuned(), tmp_path / name)
        file = tmp_path / name / "cloze" / "task.json"
        file.write_text(json.dumps({**json.loads(file.read_text()), "labels": labels}))
    options = ["--task", str(tmp_path / "dev.tsv"), "--points", "3", "--grid", "0"]
    assert main(["probe", "surface", str(tmp_path / "other"), str(tmp_path / "mine"), *options]) == 2
    said = capsys.readouterr().err
    assert "other and mine have different classes, weather, animal and animal, weather, so the weights of one head mean" in said
    assert "fine-tuned to the same classes in the same order" in said
    assert main(["probe", "surface", str(tuned()), str(tmp_path / "mine"), *options]) == 0


def test_a_finding_has_lines_a_map_and_tables() -> None:
    x = np.array([-1.0, 0.0, 1.0])
    around = {"a": LossLine(x, np.array([3.0, 1.0, 2.0]), 4.0, 1.0), "b": LossLine(x, np.array([5.0, 4.0, 4.5]), 4.0, 1.0)}
    between = {"a, b": LossLine(np.array([0.0, 0.5, 1.0]), np.array([1.0, 3.5, 4.0]), 2.0, 0.5)}
    losses = np.array([[1.0, 4.0], [2.0, np.inf]])
    plane = LossPlane(np.array([0.0, 1.0]), np.array([-1.0, 1.0]), losses, {"a": (0, 0), "b": (1, 0)})
    probe = SurfaceProbe()
    finding = probe.finding([Subject("a", Path()), Subject("b", Path())], {"a, b": Surface(around, between, plane, ["x"])})
    assert list(finding.data) == ["a", "b", "a, b", "plane"] and finding.remarks == ["x"] and finding.kind == "surface"
    rows = {table.title: table.rows for table in finding.tables}
    assert rows["loss around each checkpoint"][0] == ["-1", 3.0, 5.0]
    assert rows["between two checkpoints"] == [["a, b", 2.0, 0.5, 1.0, 4.0, 1.0]]
    assert rows["loss on a plane"] == [["1", 2.0, np.inf], ["-1", 1.0, 4.0]]
    assert "a at (0, 0); b at (1, 0)." in as_text(finding)
    lines, heat = finding.plots[0], finding.plots[2]
    assert lines.lines == {"a": [(-1.0, 3.0), (0.0, 1.0), (1.0, 2.0)], "b": [(-1.0, 5.0), (0.0, 4.0), (1.0, 4.5)]}  # type: ignore[union-attr]
    assert isinstance(heat, HeatMap) and (heat.x, heat.y) == ("towards b", "random direction")
    page = render(finding)
    assert Outline(page).headings[0] == "How does the loss change with the weights?" and page.count('<svg class="map"') == 1
    assert page.count("<rect") == 4 and "<title>4</title>" in page and ">b</text>" in page


def test_squares_of_a_map_are_darker_the_higher_their_value_ranks() -> None:
    drawing = str(heat_map([0.0, 1.0], [0.0, 1.0], [[1.0, 100.0], [2.0, float("nan")]], {}, title="t", x="x", y="y"))
    opacities = [float(part.split('"')[0]) for part in drawing.split("fill-opacity:")[1:]]
    assert opacities == [0.04, 0.9, 0.47, 1.0]
    xs = [float(part.split('"')[0]) for part in drawing.split('<rect x="')[1:]]
    assert xs == [52.0, 279.0, 52.0, 279.0]


@pytest.mark.parametrize(("arguments", "said"), [
    (["A", "B", "A", "B"], "surface measures one, two or three checkpoints, got 4. Name fewer."),
    (["A"], "surface needs --text FILE, a file with a sentence per line, or, for a fine-tuned folder, --task FILE with labelled"),
    (["A", "--text", "t", "--task", "t"], "surface measures plain text (--text) or labelled text (--task). Give one of them."),
    (["A", "--rank", "3"], "surface does not use --rank. Omit it. surface uses --text, --task, --points, --grid, --beyond."),
])  # fmt: skip
def test_what_is_missing_is_said_before_a_checkpoint_is_opened(
    arguments: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in ("A", "B"):
        Path(folder).mkdir()
    assert main(["probe", "surface", *arguments]) == 2
    assert said in capsys.readouterr().err


def test_the_command_writes_the_lines_of_two_folders(
    tmp_path: Path, checkpoint: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    by_name = {"A": checkpoint("gpt2"), "BB": checkpoint("gpt2", seed=5)}
    monkeypatch.setattr("cloze.checkpoint.build.load_checkpoint", lambda folder, device: by_name[folder.name])
    Path("t.txt").write_text("the cat sleeps on the mat\n")
    for folder in ("A", "BB"):
        Path(folder).mkdir()
    assert main(["probe", "surface", "A", "BB", "--text", "t.txt", "--points", "3", "--grid", "2", "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert list(figures) == ["A", "BB", "A, BB", "plane"] and np.array(figures["plane"]["losses"]).shape == (2, 2)
