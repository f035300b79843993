"""Networks: tensors in, states out. Part of the model tower.

May import the foundation and torch; never the data tower, never objectives.
To add one: one file with a class decorated `@register("network", name)`, and its import line below.
Contract: test_leaks.py and test_recipes.py in tests/contracts; tests/networks/ (padding, packing, gradients, round trip).
"""

from __future__ import annotations

from cloze.networks.blocks.recurrence.recurrent_state import StateCache
from cloze.networks.blocks.stack import Cache
from cloze.networks.clock import Clock
from cloze.networks.encoder_decoder import EncoderDecoder, SequenceCache
from cloze.networks.knowledge_fusion import KnowledgeFusion
from cloze.networks.linked import LinkedTransformer
from cloze.networks.mobile_transformer import MobileTransformer
from cloze.networks.multimodal.co_attention import CoAttentionTransformer
from cloze.networks.multimodal.cross_modal import CrossModal
from cloze.networks.multimodal.joint_modal import JointModal
from cloze.networks.multimodal.spoken import Spoken
from cloze.networks.multimodal.visual import Visual
from cloze.networks.network import Network, StateKind, States
from cloze.networks.recurrent.bilstm import BiLSTM
from cloze.networks.recurrent.gru_encoder_decoder import GRU
from cloze.networks.recurrent.lstm_encoder_decoder import LSTMEncoderDecoder
from cloze.networks.recurrent.lstm_language_model import LSTM
from cloze.networks.recurrent.mamba import Mamba
from cloze.networks.recurrent.two_sided_lstm import TwoSidedLSTM
from cloze.networks.static.bag_of_ngrams import BagOfNGrams
from cloze.networks.static.dssm import DSSM
from cloze.networks.static.graph_vectors import GraphVectors
from cloze.networks.static.nnlm import Window
from cloze.networks.static.pair_attention import PairAttention
from cloze.networks.static.paragraph_vectors import ParagraphVectors
from cloze.networks.static.word_vectors import WordVectors
from cloze.networks.transformer import Transformer
from cloze.networks.transformer_xl import TransformerXL
from cloze.networks.two_stream import TwoStream
from cloze.networks.zen import Zen

__all__ = [
    "BagOfNGrams", "BiLSTM", "Cache", "Clock", "CoAttentionTransformer", "CrossModal", "DSSM", "EncoderDecoder",
    "GRU", "GraphVectors", "JointModal", "KnowledgeFusion", "LSTM", "LSTMEncoderDecoder",
    "LinkedTransformer", "Mamba", "MobileTransformer", "Network", "PairAttention", "ParagraphVectors", "SequenceCache",
    "Spoken", "StateCache", "StateKind", "States",
    "Transformer", "TransformerXL", "TwoSidedLSTM", "TwoStream", "Visual", "Window", "WordVectors", "Zen",
]
