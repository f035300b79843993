"""Downstream tasks by type: a reader of examples, a learner that predicts, metrics.
May import: training, decoding, interop and what is below them; never recipes, reports or cli.
To add a task type: a file in `kinds/` with a function `@register("task", name)` that returns a `Task`, and its import line below.
Contract: tests/contracts/test_tasks.py; each task type has its own tests in tests/tasks, such as test_regression.py.
"""

from cloze.tasks.kinds.classification import Classification, Classifier, pair_classification, sentence_classification
from cloze.tasks.kinds.coreference import CoreferenceResolution, coreference
from cloze.tasks.kinds.dependency_parsing import DependencyParsing, dependency_parsing
from cloze.tasks.kinds.multi_label import MultiLabel, multi_label
from cloze.tasks.kinds.multiple_choice import MultipleChoice, multiple_choice
from cloze.tasks.kinds.open_questions import OpenQuestionAnswering, open_question_answering
from cloze.tasks.kinds.picture_pairs import PicturePairs, picture_pair_classification
from cloze.tasks.kinds.question_answering import QuestionAnswering
from cloze.tasks.kinds.regression import Regression, regression
from cloze.tasks.kinds.reranking import Reranking, reranking
from cloze.tasks.kinds.retrieval import Retrieval, retrieval
from cloze.tasks.kinds.span_classification import SpanClassification, span_classification
from cloze.tasks.kinds.spoken_questions import question_answering
from cloze.tasks.kinds.text_to_text import TextToText, text_to_text
from cloze.tasks.kinds.token_labelling import TokenLabelling, token_labelling
from cloze.tasks.kinds.visual_question_answering import VisualQuestionAnswering, visual_question_answering
from cloze.tasks.task import Learner, Task, task
from cloze.tasks.tuned_folder import load_tuned

__all__ = [
    "Classification",
    "Classifier",
    "CoreferenceResolution",
    "DependencyParsing",
    "Learner",
    "MultiLabel",
    "MultipleChoice",
    "OpenQuestionAnswering",
    "PicturePairs",
    "QuestionAnswering",
    "Regression",
    "Reranking",
    "Retrieval",
    "SpanClassification",
    "Task",
    "TextToText",
    "TokenLabelling",
    "VisualQuestionAnswering",
    "coreference",
    "dependency_parsing",
    "load_tuned",
    "multi_label",
    "multiple_choice",
    "pair_classification",
    "open_question_answering",
    "picture_pair_classification",
    "question_answering",
    "regression",
    "reranking",
    "retrieval",
    "sentence_classification",
    "span_classification",
    "task",
    "text_to_text",
    "token_labelling",
    "visual_question_answering",
]
