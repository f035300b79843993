"""Downstream tasks by type: a reader of labelled text, a framing, an objective and metrics; the small loop that fine-tunes.
May import: training, decoding, interop and what is below them; never assembly, reports or cli.
Add one: a file with a builder `@register("task", name)` that gives what `Classification` gives; its import line below.
Contract: tests/tasks, one file per module here.
"""

from cloze.tasks.classification import Classification, pair_classification, sentence_classification
from cloze.tasks.classifier import Classifier
from cloze.tasks.finetune import Settings, finetune_seeds
from cloze.tasks.result import load_classifier

__all__ = [
    "Classification",
    "Classifier",
    "Settings",
    "finetune_seeds",
    "load_classifier",
    "pair_classification",
    "sentence_classification",
]
