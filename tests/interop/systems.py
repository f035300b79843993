"""Small models of the four systems with every parameter random, as modules and as what interop takes."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from cloze.interop import PortableHead, PortableModel, Reading
from cloze.networks.clock import Clock
from cloze.networks.transformer import Transformer
from cloze.objectives.objective import Objective
from cloze.recipe.builders import build as build_part
from cloze.registry import lookup
from cloze.text import ByteBPE, TextSpec, Tokenizer, Unigram, WordPiece, train
from cloze.text.roles import GPT2_LITERALS, ROBERTA_LITERALS
from tests.making import data, network_of

TEXTS = [
    "The cat sleeps on the mat and dreams of mice.",
    "A dog barks; the cat wakes and runs into the garden.",
    "Rain fell on the garden all night, and the river rose.",
    "Nobody saw the mice who dreamed of cheese under the mat.",
] * 4

BERT_READING = Reading("[CLS] {A} [SEP]", "[CLS] {A} [SEP] {B} [SEP]", "first")
ROBERTA_READING = Reading("[CLS] {A} [SEP]", "[CLS] {A} [SEP] [SEP] {B} [SEP]", "first")
GPT2_READING = Reading("{A}", None, "last")


@dataclass
class System:
    """One trained system: modules, tokenizer, and how it reads."""

    network: Transformer
    objectives: dict[str, Objective]
    parts: dict[str, tuple[str, dict[str, Any]]]
    arguments: dict[str, Any]
    order: str
    tokenizer: Tokenizer
    reading: Reading
    architecture: str | None = None
    name: str = ""

    def model(self) -> PortableModel:
        """What a run hands to interop."""
        heads = {name: PortableHead(*self.parts[name], objective.state_dict()) for name, objective in self.objectives.items()}
        return PortableModel(data("transformer", **self.arguments), self.order, self.network.state_dict(), heads)


_made: dict[str, Tokenizer] = {}


#: ESM's vocabulary; letters of proteins come behind four roles.
LETTERS = ["<cls>", "<pad>", "<eos>", "<unk>", *"LAGVSERTIDPKQNFYMHWCXBUZO.-", "<null_1>", "<mask>"]


def letters() -> Tokenizer:
    """The tokenizer of a folder with ESM's vocab.txt."""
    if "esm" not in _made:
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "vocab.txt").write_text("\n".join(LETTERS))
            _made["esm"] = Tokenizer.load(Path(folder))
    return _made["esm"]


def tokenizer(kind: str) -> Tokenizer:
    """A tokenizer of a few hundred pieces: wordpiece, mpnet, roberta, gpt2, unigram or t5; or that of ESM."""
    if kind == "esm":
        return letters()
    if kind not in _made:
        trainer = {
            "wordpiece": WordPiece(size=150),
            "mpnet": WordPiece(size=150, special={**ROBERTA_LITERALS, "[UNK]": "[UNK]"}),
            "roberta": ByteBPE(size=320, special=dict(ROBERTA_LITERALS)),
            "gpt2": ByteBPE(size=310, special=dict(GPT2_LITERALS)),
            "unigram": Unigram(size=100),
            "t5": Unigram(size=110, special={"[PAD]": "<pad>", "[EOS]": "</s>", "[UNK]": "<unk>"}, sentinels=10),
            "t5-100": Unigram(size=200, special={"[PAD]": "<pad>", "[EOS]": "</s>", "[UNK]": "<unk>"}, sentinels=100),
            "xlnet": Unigram(size=120, special={
                "[UNK]": "<unk>", "[BOS]": "<s>", "[EOS]": "</s>", "[CLS]": "<cls>", "[SEP]": "<sep>", "[PAD]": "<pad>",
                "[MASK]": "<mask>", "[EOD]": "<eod>", "[EOP]": "<eop>",
            }),
        }[kind]
        _made[kind] = train(TextSpec(tokenizer=trainer), TEXTS)
    return _made[kind]


MASKED = ("token_prediction", {"transform": "gelu", "tie": True})
NEXT = ("relation_prediction", {"classes": 2})
ANSWERS = {"answer": ("span_extraction", {})}
BASE: dict[str, Any] = {"layers": 2, "width": 16, "heads": 2, "feed_forward.inner": 24, "positions.max_length": 20, "segments": 2}

MODERN: dict[str, Any] = {
    **BASE, "segments": 0, "norm": "pre", "norm.embedding": True, "norm.first": False, "norm.kind": "layer_without_biases",
    "norm.epsilon": 1e-5, "positions": "rotary", "attention.band.width": 8, "attention.band.dense_every": 2,
    "attention.biases": False, "feed_forward": "gated", "feed_forward.biases": False, "initial.residual": "scaled",
}
PLAIN = ("token_prediction", {"transform": "gelu", "tie": True, "biases": False, "norm_epsilon": 1e-5})

#: name → network arguments, order, heads, tokenizer, reading, preferred architecture
SYSTEMS: dict[str, tuple[dict[str, Any], str, dict[str, Any], str, Reading, str | None]] = {
    "bert": (BASE, "open", {"mlm": MASKED, "nsp": NEXT}, "wordpiece", BERT_READING, None),
    "bert-tanh": (
        {**BASE, "feed_forward.activation": "gelu_tanh"}, "open",
        {"mlm": ("token_prediction", {"transform": "gelu_tanh", "tie": True})}, "wordpiece", BERT_READING, None,
    ),
    "bert-untied": (
        BASE, "open", {"mlm": ("token_prediction", {"transform": "gelu", "tie": False})}, "wordpiece", BERT_READING, None,
    ),
    "bert-one-segment": ({**BASE, "segments": 0}, "open", {"mlm": MASKED}, "wordpiece", BERT_READING, None),
    "distilbert": (
        {**BASE, "segments": 0}, "open", {"mlm": MASKED}, "wordpiece", BERT_READING, "distilbert",
    ),
    "distilbert-classifier": (
        {**BASE, "segments": 0}, "open",
        {"class": ("classify", {"classes": 3, "set": "label", "reading": "summary", "transform": "relu"})}, "wordpiece",
        BERT_READING, "distilbert",
    ),
    "roberta": (
        {**BASE, "segments": 0, "norm.epsilon": 1e-5}, "open",
        {"mlm": ("token_prediction", {"transform": "gelu", "tie": True, "norm_epsilon": 1e-5})}, "roberta",
        ROBERTA_READING, None,
    ),
    "gpt2": (
        {**BASE, "segments": 0, "norm": "pre", "norm.epsilon": 1e-5, "feed_forward.activation": "gelu_tanh", "initial": "normal",
            "initial.residual": "scaled"}, "left_to_right",
        {"lm": ("token_prediction", {"transform": None, "tie": True, "bias": False})}, "gpt2", GPT2_READING, None,
    ),
    "modern": (MODERN, "open", {"mlm": PLAIN}, "roberta", ROBERTA_READING, None),
    "modern-decoder": (MODERN, "left_to_right", {"lm": PLAIN}, "gpt2", GPT2_READING, None),
    "electra": (
        {**BASE, "embedding.width": 8}, "open", {"rtd": ("token_labelling", {"set": "replaced"})}, "wordpiece",
        BERT_READING, None,
    ),
    "generator": ({**BASE, "embedding.width": 8}, "open", {"mlm": MASKED}, "wordpiece", BERT_READING, "electra"),
    "wide-generator": (BASE, "open", {"mlm": MASKED}, "wordpiece", BERT_READING, "electra"),
    "classifier": (
        BASE, "open", {"class": ("relation_prediction", {"classes": 3, "set": "label", "dropout": 0.1})}, "wordpiece",
        BERT_READING, None,
    ),
    "roberta-classifier": (
        {**BASE, "segments": 0}, "open",
        {"class": ("relation_prediction", {"classes": 3, "set": "label"})}, "roberta", ROBERTA_READING, None,
    ),
    "electra-classifier": (
        {**BASE, "embedding.width": 8}, "open",
        {"class": ("classify", {"classes": 3, "set": "label", "reading": "summary", "transform": "gelu"})}, "wordpiece",
        BERT_READING, None,
    ),
    "tagger": (
        BASE, "open", {"tags": ("sequence_labelling", {"classes": 3, "dropout": 0.1})}, "wordpiece", BERT_READING, None,
    ),
    "roberta-tagger": (
        {**BASE, "segments": 0}, "open", {"tags": ("sequence_labelling", {"classes": 3})}, "roberta", ROBERTA_READING, None,
    ),
    "electra-tagger": (
        {**BASE, "embedding.width": 8}, "open", {"tags": ("sequence_labelling", {"classes": 3})}, "wordpiece", BERT_READING, None,
    ),
    "gpt2-tagger": (
        {**BASE, "segments": 0, "norm": "pre", "feed_forward.activation": "gelu_tanh",
            "initial.residual": "scaled"}, "left_to_right",
        {"tags": ("sequence_labelling", {"classes": 3})}, "gpt2", GPT2_READING, None,
    ),
    "gpt2-classifier": (
        {**BASE, "segments": 0, "norm": "pre", "feed_forward.activation": "gelu_tanh",
            "initial.residual": "scaled"}, "left_to_right",
        {"class": ("classify", {"classes": 3, "set": "label", "reading": "summary"})}, "gpt2", GPT2_READING, None,
    ),
    "bert-answers": (BASE, "open", ANSWERS, "wordpiece", BERT_READING, None),
    "roberta-answers": ({**BASE, "segments": 0}, "open", ANSWERS, "roberta", ROBERTA_READING, None),
    "electra-answers": ({**BASE, "embedding.width": 8}, "open", ANSWERS, "wordpiece", BERT_READING, None),
    "gpt2-answers": (
        {**BASE, "segments": 0, "norm": "pre", "feed_forward.activation": "gelu_tanh",
            "initial.residual": "scaled"}, "left_to_right", ANSWERS,
        "gpt2", GPT2_READING, None,
    ),
}  # fmt: skip


def system(name: str, seed: int = 0, **changes: Any) -> System:
    """Build a system with all its parameters drawn at random; `changes` override the network's arguments."""
    arguments, order, parts, kind, reading, architecture = SYSTEMS[name]
    made = build({**arguments, **changes}, order, parts, tokenizer(kind), reading, architecture, seed)
    return replace(made, name=name)


def build(
    arguments: dict[str, Any],
    order: str,
    parts: dict[str, Any],
    pieces: Tokenizer,
    reading: Reading,
    architecture: str | None = None,
    seed: int = 0,
) -> System:
    """The same from its pieces."""
    generator = torch.Generator().manual_seed(seed)
    clock = Clock()
    network = network_of("transformer", **arguments, vocab_size=pieces.size, clock=clock).eval()
    given = {"width": network.width, "vocab_size": pieces.size, "table": network.token_tables["tokens"], "clock": clock}
    objectives = {name: objective(*part, given) for name, part in parts.items()}
    for module in (network, *objectives.values()):
        with torch.no_grad():
            for parameter_name, parameter in sorted(module.named_parameters()):
                parameter.normal_(std=0.3, generator=generator)
                if "norm" in parameter_name and parameter_name.endswith("weight"):
                    parameter.add_(1.0)
                if parameter_name == "head.output.bias" and order == "left_to_right" and "class" in parts:
                    parameter.zero_()  # transformers' GPT-2 classifies without a bias; `finetune` keeps ours at zero
    return System(network, objectives, dict(parts), arguments, order, pieces, reading, architecture)


def objective(part: str, arguments: dict[str, Any], given: dict[str, Any]) -> Objective:
    """An objective with what a recipe would give it."""
    made: Objective = build_part(lookup("objective", part), arguments, given)
    return made.eval()


def loaded(imported: Any) -> System:
    """Modules with the weights of an imported folder, loaded strictly."""
    clock = Clock()
    model = imported.model
    network = network_of("transformer", **model.flat, vocab_size=imported.vocab_size, clock=clock).eval()
    network.load_state_dict(model.network)
    given = {
        "width": network.width, "vocab_size": imported.vocab_size, "table": network.token_tables["tokens"], "clock": clock
    }  # fmt: skip
    objectives = {}
    for name, head in model.heads.items():
        objectives[name] = objective(head.part, dict(head.arguments), given)
        objectives[name].load_state_dict(head.state)
    parts = {name: (head.part, dict(head.arguments)) for name, head in model.heads.items()}
    return System(
        network, objectives, parts, dict(model.flat), model.order, imported.tokenizer, imported.reading,
        imported.architecture,
    )  # fmt: skip
