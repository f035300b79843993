"""Networks: tensors in, states out. Part of the model tower.

May import: fields, batch, registry, rng, errors and torch; never the data tower, never objectives.
To add one: one file with a class decorated `@register("network", name)`, and its import line below.
Contract: tests/networks/ (leaks, padding, packing, gradients, state-dict round trip).
"""

from __future__ import annotations

from cloze.networks.bag_of_ngrams import BagOfNGrams
from cloze.networks.bilstm import BiLSTM
from cloze.networks.blocks.recurrent_state import StateCache
from cloze.networks.blocks.stack import Cache
from cloze.networks.clock import Clock
from cloze.networks.co_attention import CoAttentionTransformer
from cloze.networks.cross_modal import CrossModal
from cloze.networks.encoder_decoder import EncoderDecoder, SequenceCache
from cloze.networks.graph_vectors import GraphVectors
from cloze.networks.gru_encoder_decoder import GRU
from cloze.networks.joint_modal import JointModal
from cloze.networks.knowledge_fusion import KnowledgeFusion
from cloze.networks.linked import LinkedTransformer
from cloze.networks.lstm_encoder_decoder import LSTMEncoderDecoder
from cloze.networks.lstm_language_model import LSTM
from cloze.networks.mobile_transformer import MobileTransformer
from cloze.networks.network import Network, StateKind, States
from cloze.networks.nnlm import Window
from cloze.networks.pair_attention import PairAttention
from cloze.networks.paragraph_vectors import ParagraphVectors
from cloze.networks.spoken import Spoken
from cloze.networks.transformer import Transformer
from cloze.networks.transformer_xl import TransformerXL
from cloze.networks.two_sided_lstm import TwoSidedLSTM
from cloze.networks.two_stream import TwoStream
from cloze.networks.visual import Visual
from cloze.networks.word_vectors import WordVectors
from cloze.networks.zen import Zen

__all__ = [
    "BagOfNGrams", "BiLSTM", "Cache", "Clock", "CoAttentionTransformer", "CrossModal", "EncoderDecoder",
    "GRU", "GraphVectors", "JointModal", "KnowledgeFusion", "LSTM", "LSTMEncoderDecoder",
    "LinkedTransformer", "MobileTransformer", "Network", "PairAttention", "ParagraphVectors", "SequenceCache",
    "Spoken", "StateCache", "StateKind", "States",
    "Transformer", "TransformerXL", "TwoSidedLSTM", "TwoStream", "Visual", "Window", "WordVectors", "Zen",
]
