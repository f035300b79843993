"""Beams in groups that avoid each other's tokens, and beams that are drawn, beside plain loops over lists."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch
from torch import Tensor

from cloze.decoding.generating.options import parts_of
from cloze.decoding.generating.sampling import Sampling
from cloze.decoding.generating.search import Beams, Limits, beam_search
from cloze.errors import UserError

END = 0


class Chain:
    """A writer whose scores depend on the last token alone."""

    def __init__(self, table: Tensor) -> None:
        self.table = table

    def scores(self, tokens: Tensor) -> Tensor:
        return self.table[tokens[:, -1]]

    def select(self, rows: Tensor) -> None:
        """Nothing is remembered."""

    reorder = select


def diverse_by_lists(
    table: Tensor, start: int, *, new: int, count: int, groups: int, diversity: float
) -> list[tuple[float, tuple[int, ...]]]:
    """Ended sequences, best first: each group in turn takes its best continuations after a token has lost `diversity` for every
    beam of the groups before that has just taken it (Vijayakumar et al., 2018, algorithm 1). A group rests as soon as no running
    sequence, at its full length, can beat the worst of as many ended ones as it has beams."""
    logs, each = table.log_softmax(-1).tolist(), count // groups
    running: list[list[tuple[float, tuple[int, ...]]]] = [[(0.0, ())] for _ in range(groups)]
    ended: list[list[tuple[float, tuple[int, ...]]]] = [[] for _ in range(groups)]
    rests = [False] * groups
    for step in range(1, new + 1):
        taken: Counter[int] = Counter()
        for number in (number for number in range(groups) if not rests[number]):
            every = sorted(
                ((total + logs[(start, *ids)[-1]][token] - diversity * taken[token], (*ids, token))
                 for total, ids in running[number] for token in range(len(table))),
                reverse=True,
            )  # fmt: skip
            going = [one for one in every[: 2 * each] if one[1][-1] != END and step < new][:each]
            ended[number] += [one for one in every[:each] if one[1][-1] == END or step == new]
            running[number] = going
            ended[number] = sorted(ended[number], key=lambda one: one[0] / len(one[1]), reverse=True)[:each]
            worst = ended[number][-1][0] / len(ended[number][-1][1]) if len(ended[number]) == each else float("-inf")
            rests[number] = bool(going) and going[0][0] / new <= worst
            if not rests[number]:
                taken.update(ids[-1] for _, ids in going)
    ranked = sorted((total / len(ids), ids) for group in ended for total, ids in group)
    return [(worth, tuple(i for i in ids if i != END)) for worth, ids in reversed(ranked)]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("count", "groups", "diversity"), [(4, 2, 0.5), (6, 3, 1.5), (3, 3, 0.8), (4, 2, 0.0)])
def test_groups_avoid_the_tokens_of_the_groups_before(seed: int, count: int, groups: int, diversity: float) -> None:
    table = 1.5 * torch.randn(9, 9, generator=torch.Generator().manual_seed(seed))
    table[:, END] -= 1.0
    beams = Beams(count, 1.0, early="never", best=count, groups=groups, diversity=diversity)
    (made,) = beam_search(Chain(table), torch.tensor([[2]]), new=5, end=END, beams=beams, limits=Limits())
    expected = diverse_by_lists(table, 2, new=5, count=count, groups=groups, diversity=diversity)
    assert [one.ids for one in (made, *made.others)] == [ids for _, ids in expected[:count]]
    assert [one.score for one in (made, *made.others)] == pytest.approx([worth for worth, _ in expected[:count]], abs=1e-5)


def test_texts_of_groups_differ_more_and_do_not_depend_on_their_batch() -> None:
    table = 2 * torch.randn(20, 20, generator=torch.Generator().manual_seed(1))
    table[:, END] = -20.0
    starts = torch.tensor([[2], [5], [7]])

    def made(rows: Tensor, **more: Any) -> list[Any]:
        return beam_search(Chain(table), rows, new=4, end=END, beams=Beams(4, best=4, **more), limits=Limits())

    plain, diverse = made(starts), made(starts, groups=4, diversity=50.0)
    for row in diverse:  # a group takes a token of another only if there is no other
        assert len({ids[0] for ids, *_ in (row, *row.others)}) == 4
    assert max(len({ids[0] for ids, *_ in (row, *row.others)}) for row in plain) < 4
    assert [made(start[None], groups=4, diversity=50.0) for start in starts] == [[row] for row in diverse]


def test_drawn_beams_are_drawn_by_their_probability() -> None:
    """One new token: the first that is drawn of two ends in the first place of one beam."""
    table, rows = torch.tensor([[0.0, 1.0, 2.0, -1.0]]), 4000
    shares = table[0].softmax(0)
    uniform = torch.rand(rows, 1, 2, generator=torch.Generator().manual_seed(0))
    found = beam_search(
        Chain(table.expand(4, -1)), torch.ones(rows, 1, dtype=torch.long), new=1, end=-1, beams=Beams(1, sampled=True),
        limits=Limits(), sampling=Sampling(), uniform=uniform,
    )
    counts = torch.bincount(torch.tensor([one.ids[0] for one in found]), minlength=4) / rows
    assert (counts - shares).abs().max() < 4 * (0.25 / rows) ** 0.5
    assert counts.min() > 0


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"beams": 4, "groups": 3}, "a divisor of the number of beams, 4"), ({"groups": 2}, "Add beams=4"),
        ({"beams": 4, "diversity": 1.0}, "Add groups=2"), ({"sampled": True}, "Add beams=4"),
        ({"beams": 4, "groups": 2, "diversity": -1.0}, "diversity -1.0"),
        ({"beams": 4, "groups": 2, "sampled": True}, "groups and sampled cannot be combined"),
        ({"beams": 4, "sampled": True, "temperature": 0.0}, "at temperature 0 nothing is random"),
        ({"beams": 4, "top_k": 5}, "Add sampled"),
    ],
)  # fmt: skip
def test_options_of_beams_that_make_no_sense_are_refused(options: dict[str, Any], told: str) -> None:
    with pytest.raises(UserError, match=told):
        parts_of(None, options)  # type: ignore[arg-type]
