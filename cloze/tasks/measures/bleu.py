"""BLEU as the package sacrebleu computes it, which is installed with `cloze-lm[bleu]`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cloze.errors import TaskError, propose

#: How sacrebleu cuts texts into words without further packages: `13a` for English and its kin, `zh` for Chinese, `char` for any.
TOKENIZATIONS = ("13a", "intl", "zh", "char", "none")


def bleu_metric(tokenization: str) -> Any:
    """sacrebleu's metric. Without the package, and for a tokenization that is not known, a `TaskError`."""
    if tokenization not in TOKENIZATIONS:
        raise TaskError(f"--bleu {tokenization}: no such tokenization. {propose(tokenization, TOKENIZATIONS)}")
    try:
        from sacrebleu.metrics import BLEU
    except ImportError:
        raise TaskError("--bleu needs the package sacrebleu, which is not installed: pip install 'cloze-lm[bleu]'") from None
    return BLEU(tokenize=tokenization)


def bleu(metric: Any, written: Sequence[str], wanted: Sequence[Sequence[str]]) -> float:
    """BLEU of a corpus, from 0 to 100: texts, and the references of each."""
    return float(_score(metric, written, wanted).score)


def bleu_remark(metric: Any, wanted: Sequence[Sequence[str]], tokenization: str) -> str | None:
    """Why BLEU is 0 whatever is written: no target has the four words in a row that it counts."""
    if _score(metric, [references[0] for references in wanted], wanted).totals[-1]:
        return None
    return (
        f"BLEU is 0 whatever is written, because no target has four words as {tokenization!r} cuts them: --bleu zh cuts Chinese, "
        "--bleu char any text into characters"
    )


def _score(metric: Any, written: Sequence[str], wanted: Sequence[Sequence[str]]) -> Any:
    most = max(map(len, wanted))
    streams = [[references[min(number, len(references) - 1)] for references in wanted] for number in range(most)]
    return metric.corpus_score(list(written), streams)
