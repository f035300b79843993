"""Objectives turn states and a batch into sums of losses; rewriters make new fields between passes.

May import: networks and the foundation; never the data tower.
To add one: one file with a builder decorated `@register("objective", name)`, and two lines below: its import and its name in
`__all__`.
Contract: tests/objectives/ (zero targets, ln V at the start, finite differences, sums over rows).
"""

from __future__ import annotations

from cloze.objectives.activation_penalty import ActivationPenalty
from cloze.objectives.classify import Classify, classify
from cloze.objectives.distances.contrast import Contrast
from cloze.objectives.distances.contrast_items import ContrastItems
from cloze.objectives.distances.contrast_pairs import ContrastPairs
from cloze.objectives.distances.embedding import Embedding
from cloze.objectives.distances.linking import LinkChoice, Linking
from cloze.objectives.distances.margin import Margin
from cloze.objectives.distances.mil_nce import MilNce
from cloze.objectives.distances.pull import Pull
from cloze.objectives.distances.transport import Transport
from cloze.objectives.distances.triple_contrast import TripleContrast
from cloze.objectives.distillation.match import MatchAttention, MatchHidden, MatchScores
from cloze.objectives.distillation.match_parameters import MatchParameters
from cloze.objectives.labels.arcs import ArcPrediction, arcs
from cloze.objectives.labels.choice import Choose, choose, judge
from cloze.objectives.labels.classify_span import ClassifySpan
from cloze.objectives.labels.coreference import Coreference, coreference
from cloze.objectives.labels.crf_labelling import CrfLabelling, crf_labelling
from cloze.objectives.labels.evidence import LatentAnswer, Retrieve
from cloze.objectives.labels.head_from_checkpoint import (
    AnswerExtraction,
    HeadFromCheckpoint,
    TextChoice,
    TextClassification,
    TextEmbedding,
    TextRegression,
    TextSeveral,
    WordLabelling,
)
from cloze.objectives.labels.joint_rows import JointClassification, PairedAttention, joint_classification, paired_attention
from cloze.objectives.labels.layer_heads import LanguageModel, LayerClassification, LayerLabelling, TextPrediction
from cloze.objectives.labels.listwise import TextListwise, listwise
from cloze.objectives.labels.mixed import MixedClassification, mixed_classification
from cloze.objectives.labels.multi_label import Several, several
from cloze.objectives.labels.reconstruct import reconstruct
from cloze.objectives.labels.regress import Regress, regress
from cloze.objectives.labels.relation_prediction import RelationClassification, relation_classification, relation_prediction
from cloze.objectives.labels.sequence_labelling import SequenceLabelling, sequence_labelling
from cloze.objectives.labels.soft_classification import SoftClassification, soft_classification
from cloze.objectives.labels.span_extraction import SpanExtraction
from cloze.objectives.labels.stochastic_answer import StochasticAnswer
from cloze.objectives.objective import Loss, Objective, StepObjective
from cloze.objectives.pooled import PooledClassification, pooled_classification
from cloze.objectives.rewriter import Rewriter
from cloze.objectives.static.cooccurrence_regression import CooccurrenceRegression
from cloze.objectives.static.factorisation import Factorisation
from cloze.objectives.static.hierarchical_softmax import HierarchicalSoftmax
from cloze.objectives.static.linear_classification import LinearClassification
from cloze.objectives.static.negative_sampling import NegativeSampling
from cloze.objectives.tokens.adaptive import adaptive_prediction
from cloze.objectives.tokens.candidate_prediction import CandidatePrediction
from cloze.objectives.tokens.entity_prediction import EntityPrediction
from cloze.objectives.tokens.joined_prediction import JoinedPrediction, joined_prediction
from cloze.objectives.tokens.label_prediction import label_prediction
from cloze.objectives.tokens.outside import ClassifyOutside, outside
from cloze.objectives.tokens.sample import Sample
from cloze.objectives.tokens.sampled import sampled_prediction
from cloze.objectives.tokens.sense_prediction import SensePrediction, sense_prediction
from cloze.objectives.tokens.span_boundary import SpanBoundary, span_boundary
from cloze.objectives.tokens.token_labelling import token_labelling
from cloze.objectives.tokens.token_prediction import token_prediction

__all__ = [
    "ActivationPenalty", "AnswerExtraction", "ArcPrediction", "CandidatePrediction", "Choose", "Classify", "ClassifyOutside",
    "ClassifySpan", "Contrast", "ContrastItems", "ContrastPairs", "CooccurrenceRegression", "Coreference", "CrfLabelling",
    "Embedding", "EntityPrediction", "Factorisation", "HeadFromCheckpoint", "HierarchicalSoftmax", "JoinedPrediction",
    "JointClassification", "LanguageModel", "LayerClassification", "LayerLabelling", "LinearClassification", "LatentAnswer",
    "LinkChoice", "Linking", "Loss", "Margin", "MatchAttention", "MatchHidden", "MatchParameters", "MatchScores", "MilNce",
    "MixedClassification", "NegativeSampling", "Objective", "PairedAttention", "PooledClassification", "Pull", "Regress",
    "RelationClassification", "Retrieve", "Rewriter", "Sample", "SensePrediction", "SequenceLabelling", "Several",
    "SoftClassification", "SpanBoundary", "SpanExtraction", "StepObjective", "StochasticAnswer", "TextChoice",
    "TextClassification", "TextEmbedding", "TextListwise", "TextPrediction", "TextRegression", "TextSeveral", "Transport",
    "TripleContrast", "WordLabelling", "adaptive_prediction", "arcs", "choose", "classify", "coreference", "crf_labelling",
    "joined_prediction", "joint_classification", "judge", "label_prediction", "listwise", "mixed_classification", "outside",
    "paired_attention", "pooled_classification", "reconstruct", "regress", "relation_classification", "relation_prediction",
    "sampled_prediction", "sense_prediction", "sequence_labelling", "several", "soft_classification", "span_boundary",
    "token_labelling", "token_prediction",
]
