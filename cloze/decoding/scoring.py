"""How probable a network finds a text: log-probability, pseudo-log-likelihood, or a discriminator's belief.

Three methods, by what the network was trained to do. All are sums of natural logarithms over the tokens of the text, never
over what the reading puts around it, and are comparable only within one checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from cloze.batch import Batch
from cloze.decoding.layout import Framed, Ids
from cloze.decoding.lengths import by_length
from cloze.decoding.pointer_cache import Pointer, PointerCache
from cloze.decoding.reader import Checkpoint, Reader, heads_by_kind, orders_of, refuse_answering
from cloze.errors import CheckpointError, UserError

Method = Literal["log_probability", "pseudo_log_likelihood", "originality"]


@dataclass(frozen=True)
class Score:
    """The score of a text, the number of tokens it is the sum over, and how many tokens were cut off."""

    score: float
    tokens: int
    cut: int = 0

    @property
    def per_token(self) -> float:
        """The mean log-probability of a token; NaN for an empty text."""
        return self.score / self.tokens if self.tokens else float("nan")


def method_of(loaded: Checkpoint, order: str | None = None) -> tuple[Method, Any]:
    """The method that suits a checkpoint and the head it uses; `order`: another that it reads in than the usual one."""
    refuse_answering(loaded, verb="score")
    check_order(loaded, order)
    kinds = heads_by_kind(loaded)
    if "token_prediction" in kinds:
        left_to_right = (order or orders_of(loaded)[0]) == "left_to_right"
        return "log_probability" if left_to_right else "pseudo_log_likelihood", kinds["token_prediction"]
    if "token_labelling" in kinds:
        return "originality", kinds["token_labelling"]
    raise CheckpointError(
        f"{loaded.folder}: cloze score needs a head that predicts or labels tokens; this checkpoint has: "
        f"{', '.join(sorted(kinds)) or 'none'}.\n  Use a checkpoint that was trained with token_prediction or token_labelling."
    )


def check_order(loaded: Checkpoint, order: str | None) -> None:
    """A `UserError` for an order that a checkpoint does not read in; None is its usual one."""
    own = orders_of(loaded)
    if order is not None and order not in own:
        raise UserError(
            f"{loaded.folder}: this network does not read in the order {order}.\n"
            f"  Write --order {' or '.join(own)}, or leave it out."
        )


def score(
    reader: Reader,
    head: Any,
    texts: Sequence[str],
    *,
    method: Method,
    rows: int = 256,
    tokens: int = 8192,
    pointer: Pointer | None = None,
    report: Callable[[int], None] = lambda done: None,
) -> list[Score]:
    """The score of every text.

    `log_probability`: the sum of log P(token | those before it). A text is read after [BOS] where the tokenizer has one,
    so that its first token counts too.
    `pseudo_log_likelihood`: the sum of log P(token | all others), each token masked alone in a row of its own (Salazar et
    al., "Masked Language Model Scoring", 2020, §2). A network with a query stream is asked there for each token, as the last
    of all (XLNet); where tokens are asked one place to the left, a token that stands first is not asked.
    `originality`: the sum of a discriminator's log P(token is original), one pass over the unchanged text. It is no
    likelihood of the text, but ranks minimal pairs (Clark et al., "ELECTRA", 2020, §2 for the discriminator).

    With a `pointer` a left-to-right network remembers the last tokens of all texts, which are read in the order given.
    Texts with the same tokens are else computed once, so equal texts have equal scores to the last bit. `report` gets the
    number of texts done, those that were repeated included.
    """
    framed = [_frame(reader, ids, method) for ids in reader.ids(texts)]
    if pointer is not None:
        if method != "log_probability":
            raise UserError("a pointer to the words before needs a network that reads from left to right.")
        return _remembering(reader, head, framed, pointer, report)
    first: dict[bytes, int] = {}
    same = [first.setdefault(row.ids.tobytes(), number) for number, row in enumerate(framed)]
    unique = sorted(first.values())
    copies = np.bincount(same, minlength=len(framed))
    score_rows = {"log_probability": _left_to_right, "pseudo_log_likelihood": _masked, "originality": _original}[method]
    sums = np.zeros(len(framed))
    for number, value in score_rows(reader, head, framed, unique, rows, tokens, lambda n: report(int(copies[n]))):
        sums[number] += value
    results = []
    for number, row in enumerate(framed):
        counted = int((row.part[1:] == 0).sum() if method == "log_probability" else _asked(reader, row, method).sum())
        results.append(Score(float(sums[same[number]]), counted, row.cut))
    return results


def _asked(reader: Reader, row: Framed, method: Method) -> NDArray[np.bool_]:
    return reader.can_ask(row) if method == "pseudo_log_likelihood" else row.part == 0


def _frame(reader: Reader, ids: Ids, method: Method) -> Framed:
    begin = reader.tokenizer.roles.get("[BOS]")
    if method != "log_probability" or begin is None:
        return reader.single([ids], longest=reader.longest)
    framed = reader.single([ids], longest=reader.longest)
    if len(framed) and framed.part[0] == -1:
        return framed  # the reading itself begins with a token that is not scored
    framed = reader.single([ids], longest=None if reader.longest is None else reader.longest - 1)
    return Framed(
        np.concatenate([[begin], framed.ids]).astype(np.int32),
        np.concatenate([[0], framed.segments]).astype(np.int32),
        np.concatenate([[-1], framed.part]).astype(np.int32),
        framed.cut,
    )


Sums = Iterator[tuple[int, float]]
Report = Callable[[int], None]


@torch.inference_mode()
def _left_to_right(
    reader: Reader, head: Any, framed: Sequence[Framed], chosen: Sequence[int], rows: int, tokens: int, report: Report
) -> Sums:
    for index in by_length([len(framed[i]) for i in chosen], rows=rows, tokens=tokens):
        numbers = [chosen[i] for i in index]
        batch = reader.batch([framed[i] for i in numbers])
        width = batch["tokens"].shape[1]
        asked = [row * width + c for row, i in enumerate(numbers) for c in np.flatnonzero(framed[i].part[1:] == 0).tolist()]
        places = torch.tensor(asked, dtype=torch.int64, device=reader.device)
        if len(places):
            targets = batch["tokens"].flatten()[places + 1]
            found = _log_probabilities(reader, head, batch, places, targets)
            sums = _by_row(found, places // width, len(numbers))
            yield from zip(numbers, sums, strict=True)
        for i in numbers:
            report(i)


@torch.inference_mode()
def _remembering(reader: Reader, head: Any, framed: Sequence[Framed], pointer: Pointer, report: Report) -> list[Score]:
    """Scores of texts one after another, mixed with what a cache of the tokens before says."""
    cache, results = PointerCache(pointer), []
    for row in framed:
        batch = reader.batch([row])
        places = torch.from_numpy(np.flatnonzero(row.part[1:] == 0)).to(reader.device)
        total = 0.0
        if len(places):
            targets = batch["tokens"].flatten()[places + 1]
            found = _log_probabilities(reader, head, batch, places, targets)
            states = reader.states(batch, head.reads)[head.reads[0]].flatten(0, 1)[places]
            total = float(cache.mix(found, states, targets).sum())
        results.append(Score(total, len(places), row.cut))
        report(1)
    return results


@torch.inference_mode()
def _masked(
    reader: Reader, head: Any, framed: Sequence[Framed], chosen: Sequence[int], rows: int, tokens: int, report: Report
) -> Sums:
    asked = {i: np.flatnonzero(reader.can_ask(framed[i])) for i in chosen}
    owner = np.repeat(chosen, [len(asked[i]) for i in chosen])
    columns = np.concatenate([asked[i] for i in chosen] or [np.zeros(0, np.int64)])
    left = np.bincount(owner, minlength=len(framed))
    for i in chosen:
        if not left[i]:
            report(i)
    lengths = np.array([len(row) for row in framed])
    for index in by_length(lengths[owner].tolist(), rows=rows, tokens=tokens):
        read, at, targets = masked_each(reader, head, [framed[i] for i in owner[index]], columns[index])
        found = _log_probabilities(reader, head, read, at, targets)
        for i, value in zip(owner[index].tolist(), found.tolist(), strict=True):
            yield i, value
            left[i] -= 1
            if not left[i]:
                report(i)


@torch.inference_mode()
def _original(
    reader: Reader, head: Any, framed: Sequence[Framed], chosen: Sequence[int], rows: int, tokens: int, report: Report
) -> Sums:
    for index in by_length([len(framed[i]) for i in chosen], rows=rows, tokens=tokens):
        numbers = [chosen[i] for i in index]
        batch = reader.batch([framed[i] for i in numbers])
        width = batch["tokens"].shape[1]
        asked = [row * width + c for row, i in enumerate(numbers) for c in np.flatnonzero(framed[i].part == 0).tolist()]
        places = torch.tensor(asked, dtype=torch.int64, device=reader.device)
        if len(places):
            scores = reader.scores(head, reader.states(batch, head.reads), batch, places)
            found = F.logsigmoid(-scores) if scores.dim() == 1 else scores.log_softmax(-1)[:, 0]
            yield from zip(numbers, _by_row(found, places // width, len(numbers)), strict=True)
        for i in numbers:
            report(i)


def masked_each(
    reader: Reader, head: Any, framed: Sequence[Framed], columns: NDArray[np.int64]
) -> tuple[Batch, Tensor, Tensor]:
    """Rows of which each has one token masked, at `columns`: what is read, the flat places where is asked, and the tokens."""
    batch = reader.batch(framed)
    width = batch["tokens"].shape[1]
    flat = torch.from_numpy(np.arange(len(framed)) * width + columns).to(reader.device)
    targets = batch["tokens"].flatten()[flat]
    shown = batch["tokens"].flatten().index_fill(0, flat, reader.tokenizer.role("[MASK]")).view_as(batch["tokens"])
    read, at = reader.asking(head, reader.showing(batch, shown), flat)
    return read, at, targets


def _log_probabilities(reader: Reader, head: Any, batch: Batch, places: Tensor, targets: Tensor) -> Tensor:
    return log_probabilities(reader, head, reader.states(batch, head.reads, asked=places), batch, places, targets)


def log_probabilities(
    reader: Reader, head: Any, states: Mapping[str, Tensor], batch: Batch, places: Tensor, targets: Tensor
) -> Tensor:
    """log P(target) at every place (M,), 2,048 places at a time: M x V scores are never held at once."""
    found = [torch.zeros(0, device=places.device)]
    for some, answers in zip(places.split(2048), targets.split(2048), strict=True):
        found.append(-F.cross_entropy(reader.token_scores(head, states, batch, some), answers, reduction="none"))
    return torch.cat(found)


def _by_row(values: Tensor, row: Tensor, count: int) -> list[float]:
    sums = torch.zeros(count, dtype=torch.float64, device=values.device).index_add(0, row, values.double())
    return sums.tolist()
