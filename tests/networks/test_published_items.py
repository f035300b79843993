"""Networks that read items compute what the authors' modules compute: numbers of their code with the same weights and inputs."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from cloze.networks import Clock
from tests.making import network_of

FEATURES = 12
SIZES: dict[str, Any] = {
    "layers": 2, "width": 8, "heads": 2, "feed_forward.inner": 10, "max_length": 16, "dropout": 0.0, "items.width": FEATURES,
    "vocab_size": 11, "clock": Clock(1),
}
TOKENS = torch.tensor([[1, 5, 3, 7, 2], [1, 9, 2, 0, 0]])


def pattern(count: int, number: int) -> Tensor:
    """Thirteen numbers between -0.5 and 0.5, again and again."""
    return ((7 * torch.arange(count) + 3 * number) % 13 - 6.5).double() / 15


def states(segments: Tensor | None = None, *, arguments: dict[str, Any], **items: Any) -> dict[str, Tensor]:
    """The states of two rows, with three and two regions, where weights and features are a pattern of their numbers."""
    network = network_of("visual", **SIZES, **arguments).double().eval()
    with torch.no_grad():
        for number, (_, parameter) in enumerate(sorted(network.named_parameters())):
            parameter.copy_(pattern(parameter.numel(), number).view_as(parameter))
        features = pattern(2 * 3 * FEATURES, 0).view(2, 3, FEATURES)
        features[0, 1], features[1, 2] = 0.0, 0.0
        vectors = {"regions": features, **items.pop("vectors", {})}
        computed: dict[str, Tensor] = network(
            want=frozenset({"hidden", "item_hidden"}), tokens=TOKENS, block=(TOKENS > 0).long(), segments=segments,
            item_vectors=vectors, item_length={"regions": torch.tensor([3, 2])}, **items,
        )
    return computed


def shown(computed: dict[str, Tensor], item: int) -> list[list[float]]:
    """The first four numbers of a token of each row and of an item of the first row."""
    chosen = computed["hidden"][0, 3], computed["hidden"][1, 0], computed["item_hidden"][0, item]
    return [state[:4].tolist() for state in chosen]


def test_visualbert_reads_regions_with_the_first_row_of_their_segments_and_the_mean_position_of_aligned_words() -> None:
    """uclanlp/visualbert at 2a9e8bd5, pytorch_pretrained_bert/modeling.py, BertVisualModel in double precision.

    Its visual_embeddings_type is zeros, as `TrainVisualBERTObjective` makes it (lines 1408-1412)."""
    segments = torch.tensor([[0, 0, 0, 1, 1], [0, 0, 0, 0, 0]])
    links = torch.tensor([[1, 0], [3, 0], [2, 2], [6, 4]])
    computed = states(segments, arguments={"items": "with_tables", "segments": 2}, links={"regions": links})
    authors = [
        [-0.2894313326, -0.2191512399, -0.1588863157, -0.1877816283],
        [-0.3507455473, -0.2210455164, -0.1543515275, -0.1806238537],
        [-0.2686826792, -0.2182323354, -0.1657708826, -0.1880529185],
    ]
    assert shown(computed, 1) == [pytest.approx(numbers, abs=1e-9) for numbers in authors]


def test_vl_bert_reads_the_whole_picture_as_an_element_too() -> None:
    """jackroos/VL-BERT at 4373674c, common/visual_linguistic_bert.py and common/utils/bbox.py in double precision.

    Box 0 is the whole picture with the mean of the features that are shown (ADD_IMAGE_AS_A_BOX: true)."""
    boxes = torch.tensor(
        [[[0.1, 0.2, 0.5, 0.9], [0, 0, 0.3, 0.4], [0.25, 0.5, 1, 1]], [[0, 0.1, 0.6, 0.7], [0.2, 0.2, 0.8, 1], [0, 0, 0, 0]]],
        dtype=torch.double,
    )
    computed = states(
        arguments={"items": "elements", "items.waves": 2, "segments": 3}, vectors={"regions/boxes": boxes},
        items={"regions/masked": torch.tensor([[0, 1, 0], [0, 0, 0]])},
    )
    authors = [
        [-0.1767439550, -0.2520811204, -0.0067963951, 0.6705286084],
        [-0.1762186412, -0.2676639603, -0.0119713160, 0.6708181458],
        [-0.1758675679, -0.2491733602, 0.0051885850, 0.6813955921],
    ]
    assert shown(computed, 1) == [pytest.approx(numbers, abs=1e-9) for numbers in authors]
