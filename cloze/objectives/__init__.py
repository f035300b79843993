"""Objectives turn states and a batch into sums of losses; rewriters make new fields between passes.

May import: networks and the foundation; never the data tower.
To add one: one file with a builder decorated `@register("objective", name)`, and its import line below.
Contract: tests/objectives/ (zero targets, ln V at the start, finite differences, sums over rows).
"""

from __future__ import annotations

from cloze.objectives.activation_penalty import ActivationPenalty
from cloze.objectives.adaptive import adaptive_prediction
from cloze.objectives.arcs import Arcs, arcs
from cloze.objectives.choose import Choose, choose
from cloze.objectives.chosen import (
    AnswerExtraction,
    Chosen,
    TextChoice,
    TextClassification,
    TextRegression,
    TextSeveral,
    WordLabelling,
)
from cloze.objectives.classify import Classify, classify
from cloze.objectives.classify_span import ClassifySpan
from cloze.objectives.contrast import Contrast
from cloze.objectives.contrast_items import ContrastItems
from cloze.objectives.contrast_pairs import ContrastPairs
from cloze.objectives.cooccurrence_regression import CooccurrenceRegression
from cloze.objectives.crf_labelling import CrfLabelling, crf_labelling
from cloze.objectives.embedding import Embedding
from cloze.objectives.entity_prediction import EntityPrediction
from cloze.objectives.factorisation import Factorisation
from cloze.objectives.hierarchical_softmax import HierarchicalSoftmax
from cloze.objectives.joined_prediction import JoinedPrediction, joined_prediction
from cloze.objectives.label_prediction import label_prediction
from cloze.objectives.linear_classification import LinearClassification
from cloze.objectives.linking import LinkChoice, Linking
from cloze.objectives.margin import Margin
from cloze.objectives.match import MatchAttention, MatchHidden, MatchScores
from cloze.objectives.match_parameters import MatchParameters
from cloze.objectives.mixed import MixedClassification, mixed_classification
from cloze.objectives.negative_sampling import NegativeSampling
from cloze.objectives.objective import Loss, Objective, StepObjective
from cloze.objectives.of_checkpoint import LanguageModel, LayerClassification, LayerLabelling, TextPrediction
from cloze.objectives.outside import Outside, outside
from cloze.objectives.pooled import PooledClassification, pooled_classification
from cloze.objectives.pull import Pull
from cloze.objectives.regress import Regress, regress
from cloze.objectives.relation_prediction import RelationClassification, relation_classification, relation_prediction
from cloze.objectives.rewriter import Rewriter
from cloze.objectives.sample import Sample
from cloze.objectives.sampled import sampled_prediction
from cloze.objectives.sense_prediction import SensePrediction, sense_prediction
from cloze.objectives.sequence_labelling import SequenceLabelling, sequence_labelling
from cloze.objectives.several import Several, several
from cloze.objectives.soft_classification import SoftClassification, soft_classification
from cloze.objectives.span_boundary import SpanBoundary, span_boundary
from cloze.objectives.span_extraction import SpanExtraction
from cloze.objectives.stochastic_answer import StochasticAnswer
from cloze.objectives.token_labelling import token_labelling
from cloze.objectives.token_prediction import token_prediction
from cloze.objectives.transport import Transport
from cloze.objectives.triple_contrast import TripleContrast

__all__ = [
    "ActivationPenalty", "AnswerExtraction", "Arcs", "Choose", "Chosen", "Classify", "ClassifySpan", "Contrast",
    "ContrastItems", "ContrastPairs", "CooccurrenceRegression", "CrfLabelling", "Embedding", "EntityPrediction",
    "Factorisation", "HierarchicalSoftmax", "JoinedPrediction", "LanguageModel", "LayerClassification", "LayerLabelling",
    "LinearClassification", "LinkChoice", "Linking", "Loss", "Margin", "MatchAttention", "MatchHidden", "MatchParameters",
    "MatchScores",
    "MixedClassification", "NegativeSampling", "Objective", "Outside", "PooledClassification", "Pull", "Regress",
    "RelationClassification", "Rewriter", "Sample", "SensePrediction", "SequenceLabelling", "Several", "SoftClassification",
    "SpanBoundary", "SpanExtraction", "StepObjective", "StochasticAnswer", "TextChoice", "TextClassification", "TextPrediction",
    "TextRegression", "TextSeveral", "Transport", "TripleContrast", "WordLabelling", "adaptive_prediction", "arcs", "choose",
    "classify", "crf_labelling", "joined_prediction", "label_prediction", "mixed_classification", "outside",
    "pooled_classification", "regress", "relation_classification", "relation_prediction", "sampled_prediction",
    "sense_prediction", "sequence_labelling", "several", "soft_classification", "span_boundary", "token_labelling",
    "token_prediction",
]
