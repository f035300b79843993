"""GPT-2 ↔ transformers' `GPT2*`.

Source: Language Models are Unsupervised Multitask Learners (Radford et al., 2019). `Conv1D` stores its matrices transposed, and
`c_attn` has query, key and value one after the other on the output axis, as our fused projections do.
"""

from __future__ import annotations

from cloze.interop.architecture import ACTIVATIONS, ACTIVATIONS_BACK, Architecture, HeadTable, ModelClass, Setting, add
from cloze.interop.classification import GPT2_CLASS, GPT2_CLASSIFIER
from cloze.interop.mapping import TURNED, MappingLine
from cloze.interop.model import PortableHead
from cloze.interop.question_answering import ANSWER, answers_questions
from cloze.interop.tagging import TAGGER, tagger_class
from cloze.reading import Reading


def next_token_objections(head: PortableHead, title: str) -> list[str]:
    """The reasons why a head is more than the table, unlike in GPT and GPT-2."""
    wrong = []
    if head.argument("transform"):
        wrong.append(f"it has a transform, transformers' {title} projects straight onto the vocabulary")
    if "head.bias" in head.state:
        wrong.append(f"it has a bias, transformers' {title} has none")
    return wrong


def next_token(title: str, table: str) -> HeadTable:
    """The head of GPT and GPT-2: the token table itself, `table` its name there."""
    return HeadTable(
        role="causal_lm",
        part="token_prediction",
        sign=("lm_head.weight",),
        lines=(),
        untied=(MappingLine("head.output.weight", "lm_head.weight", "V D"),),
        repeats={"lm_head.weight": "{base}" + table},
        objections=lambda head, arguments: next_token_objections(head, title),
        arguments=lambda config, tensors: {"transform": None, "bias": False},
    )


CAUSAL_LM = next_token("GPT-2", "wte.weight")

_BLOCK = "{base}h.{i}."

GPT2 = add(Architecture(
    name="gpt2",
    title="GPT-2",
    settings=(
        Setting("layers", "n_layer", 12),
        Setting("width", "n_embd", 768),
        Setting("heads", "n_head", 12),
        Setting("feed_forward.inner", "n_inner", None),
        Setting("positions.max_length", "n_positions", 1024),
        Setting(
            "feed_forward.activation", "activation_function", "gelu_new", ACTIVATIONS.__getitem__, ACTIVATIONS_BACK.__getitem__
        ),
        Setting("norm.epsilon", "layer_norm_epsilon", 1e-5),
        Setting("dropout.hidden", "embd_pdrop", 0.1),
        Setting("dropout.hidden", "resid_pdrop", 0.1),
        Setting("dropout.attention", "attn_pdrop", 0.1),
        Setting("initial.std", "initializer_range", 0.02),
    ),
    fixed={"norm": "pre", "positions": "learned", "norm.embedding": False, "norm.final": True},
    assumed={"initial": "normal", "initial.residual": "scaled", "initial.positions": None, "segments": 0},
    legal={
        "scale_attn_weights": (True,),
        "scale_attn_by_inverse_layer_idx": (False,),
        "add_cross_attention": (False,),
    },
    base="transformer.",
    body=(
        MappingLine("embeddings.tokens.weight", "{base}wte.weight", "V D"),
        MappingLine("embeddings.positions.weight", "{base}wpe.weight", "P D"),
        MappingLine("layers.{i}.attention_norm.*", _BLOCK + "ln_1.*", "D"),
        MappingLine("layers.{i}.attention.projections.*", _BLOCK + "attn.c_attn.*", "3D D", TURNED),
        MappingLine("layers.{i}.attention.out.*", _BLOCK + "attn.c_proj.*", "D D", TURNED),
        MappingLine("layers.{i}.inner_norm.*", _BLOCK + "ln_2.*", "D"),
        MappingLine("layers.{i}.inner.*", _BLOCK + "mlp.c_fc.*", "I D", TURNED),
        MappingLine("layers.{i}.outer.*", _BLOCK + "mlp.c_proj.*", "D I", TURNED),
        MappingLine("norm.*", "{base}ln_f.*", "D"),
    ),
    heads=(CAUSAL_LM, GPT2_CLASSIFIER, TAGGER, ANSWER),
    classes=(
        ModelClass("GPT2LMHeadModel", frozenset({"causal_lm"}), "AutoModelForCausalLM", "text-generation"),
        GPT2_CLASS,
        tagger_class("GPT2"),
        answers_questions("GPT2ForQuestionAnswering"),
        ModelClass("GPT2Model", frozenset(), "AutoModel", "feature-extraction"),
    ),
    tokenizer_class="GPT2Tokenizer",
    reading=Reading("{A}", None, "last"),
    recipe=lambda model: "gpt2",
    orders=("left_to_right",),
    resemblance=lambda model, kind: 1,
    tokens={"bos_token_id": ("[BOS]", "[CLS]", "[EOS]"), "eos_token_id": ("[EOS]", "[SEP]", "[BOS]")},
    ignored=("{base}h.{i}.attn.bias", "{base}h.{i}.attn.masked_bias"),
    generates=True,
))
