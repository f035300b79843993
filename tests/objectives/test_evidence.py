"""ORQA's losses are those of the authors' formulas, spans and blocks that spell an answer count as right, others do not."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from cloze.batch import Batch
from cloze.corpus.tables.evidence import BoundEvidence, EvidenceSettings
from cloze.errors import RecipeError
from cloze.objectives import LatentAnswer, Retrieve

QUESTION, SEP = [2, 10, 3], 3
BLOCKS = [[20, 21, 22], [23, 21], [24, 25, 26, 27]]
#: Answers `21 22` and `23`: in the blocks 0 and 1.
ANSWERS = torch.tensor([[22, 23, 0, 24, 0]])


def evidence(top: int = 3, read: int = 2, length: int = 20) -> BoundEvidence:
    sizes = [len(block) for block in BLOCKS]
    return BoundEvidence(
        tokens=np.concatenate(BLOCKS), places=np.zeros((sum(sizes), 2)), offsets=np.cumsum([0, *sizes]),
        characters=np.frombuffer(bytearray(b"abc"), np.uint8), ends=np.array([1, 2, 3]), lines=np.array([1, 2, 4]),
        vectors=np.array([[1.0, 0.0], [0.0, 1.0], [0.5, 0.5]]), settings=np.array(EvidenceSettings(top, read, length)),
    )


def parts(**settings: int) -> tuple[Retrieve, LatentAnswer]:
    tables = {"evidence": evidence(**settings)}
    torch.manual_seed(0)
    return Retrieve(tables=tables), LatentAnswer(widest=2, inner=4, width=3, tables=tables)


def batch(**more: Any) -> Batch:
    return Batch({"tokens": torch.tensor([[*QUESTION, 0]]), "block": torch.tensor([[1, 1, 1, 0]]), **more})


def test_a_question_is_read_with_the_nearest_blocks() -> None:
    retrieve, _ = parts()
    rows = retrieve({"query": torch.tensor([[0.1, 1.0]])}, batch())
    assert rows["retrieved"].tolist() == [[1, 2, 0]]
    assert rows["tokens"].tolist() == [[*QUESTION, *BLOCKS[1], SEP, SEP, SEP], [*QUESTION, *BLOCKS[2], SEP]]
    assert rows["segments"].tolist() == [[0, 0, 0, 1, 1, 1, 0, 0], [0, 0, 0, 1, 1, 1, 1, 1]]
    assert rows["block"].tolist() == [[1] * 6 + [0, 0], [1] * 8]
    short, _ = parts(length=6)
    assert short({"query": torch.tensor([[0.1, 1.0]])}, batch())["tokens"].tolist() == [
        [*QUESTION, 23, 21, SEP], [*QUESTION, 24, 25, SEP]
    ]  # fmt: skip


def test_the_losses_are_those_of_the_authors_formulas() -> None:
    """`compute_loss` and `read` of orqa_model.py, span by span."""
    retrieve, latent = parts()
    query, generator = torch.tensor([[1.0, 0.9]], requires_grad=True), torch.Generator().manual_seed(1)
    rows = retrieve({"query": query}, batch())
    assert rows["retrieved"].tolist() == [[0, 2, 1]]
    hidden = torch.randn(2, rows["tokens"].shape[1], 3, generator=generator)
    loss = latent({"hidden": hidden, "query": query}, Batch({**rows, "answers": ANSWERS}))

    head = {name: value.detach().double().numpy() for name, value in latent.head.state_dict().items()}
    retrieval = evidence().matrix @ np.array([1.0, 0.9])
    scores, right = [], []
    for row, block in enumerate([0, 2]):
        ends = hidden[row].double().numpy() @ head["ends.weight"].T + head["ends.bias"]
        for start in range(len(BLOCKS[block])):
            for end in range(start, min(start + 2, len(BLOCKS[block]))):
                x = np.maximum(ends[3 + start, :4] + ends[3 + end, 4:], 0)
                x = (x - x.mean()) / np.sqrt(x.var() + 1e-3) * head["norm.weight"] + head["norm.bias"]
                scores.append(float((x @ head["output.weight"].T + head["output.bias"]).item() + retrieval[block]))
                right.append(BLOCKS[block][start : end + 1] in ([21, 22], [23]))
    assert sum(right) == 1  # 23 is in block 1, which is retrieved and not read
    full = math.log(sum(map(math.exp, scores))) - scores[right.index(True)]
    early = math.log(sum(map(math.exp, retrieval))) - math.log(math.exp(retrieval[0]) + math.exp(retrieval[1]))
    assert loss.total.item() == pytest.approx(full + early, rel=1e-5)
    best = right[int(np.argmax(scores))]
    assert {name: float(value) for name, value in loss.metrics.items()} == {
        "correct": float(best), "readable": 1.0, "retrieved": 1.0
    }  # fmt: skip
    loss.total.backward()
    assert query.grad is not None and query.grad.abs().sum() > 0


def test_a_question_whose_answer_is_in_no_block_loses_nothing() -> None:
    retrieve, latent = parts()
    query = torch.tensor([[1.0, 0.9]])
    rows = retrieve({"query": query}, batch())
    hidden = torch.randn(2, rows["tokens"].shape[1], 3, generator=torch.Generator().manual_seed(1))
    readings = {"hidden": hidden, "query": query}
    nowhere = Batch({**rows, "answers": torch.tensor([[11, 0, 22, 21, 0]])})  # a word of the question, and words in another order
    loss = latent(readings, nowhere)
    assert loss.total.item() == 0 and not any(loss.metrics.values()) and float(latent.count(nowhere)) == 1
    unread = latent(readings, Batch({**rows, "answers": torch.tensor([[24, 0]])}))  # in block 1: the early loss alone
    products = evidence().matrix @ np.array([1.0, 0.9])
    assert unread.total.item() == pytest.approx(math.log(np.exp(products).sum()) - products[1], rel=1e-5)
    assert not unread.metrics["readable"] and unread.metrics["retrieved"]


def test_the_best_span_is_found_in_its_row_and_columns() -> None:
    _, latent = parts()
    spans = torch.zeros(1, 2, 2, 5)
    spans[0, 1, 1, 3] = 9.0
    (best,) = latent.best(spans)
    assert best[:3] == (1, 3, 4) and best.probability == pytest.approx(math.exp(9) / (math.exp(9) + 19))


def test_a_table_that_the_recipe_lacks_is_named() -> None:
    with pytest.raises(RecipeError, match=r"latent_answer.table: there is no table 'blocks'. Did you mean|latent_answer.table"):
        LatentAnswer(table="blocks", width=3, tables={"evidence": evidence()})
