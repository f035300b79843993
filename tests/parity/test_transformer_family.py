"""GPT, GPT-2 with a cache, ALBERT, XLM, FlauBERT and ModernBERT against transformers: logits, gradients, folders both ways."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor

from cloze.batch import Batch
from cloze.checkpoint.build import load_checkpoint
from cloze.decoding.reader import Reader
from cloze.interop import Card, PortableHead, PortableModel, Reading, complete, export_folder, import_folder
from cloze.interop.choice import ArchitectureChoice, choose
from cloze.interop.export import tensors_there
from cloze.networks import Cache, Clock
from tests.making import completed, data, network_of

from .llamas import HINTS, LLAMAS

transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.parity

SIZES: dict[str, Any] = {"layers": 2, "width": 16, "heads": 2, "feed_forward.inner": 64, "positions.max_length": 20}
ENCODER = Reading("[CLS] {A} [SEP]", "[CLS] {A} [SEP] {B} [SEP]", "first")
CAUSAL = Reading("{A}", None, "last")
GPT = {**SIZES, "norm.embedding": False, "feed_forward.activation": "gelu_tanh", "norm.epsilon": 1e-5, "initial": "normal"}
ALBERT = {**SIZES, "layers": 4, "feed_forward.inner": 24, "segments": 2, "embedding.width": 8, "share.weights": "all",
    "feed_forward.activation": "gelu_tanh", "dropout": 0.0}
XLM = {**SIZES, "embedding.inputs": {"language": 3}, "initial": "uniform"}
MODERN = {**SIZES, "layers": 4, "feed_forward.inner": 24, "norm": "pre", "norm.embedding": True, "norm.first": False,
    "positions": "rotary", "positions.base": 160000.0, "positions.local_base": 10000.0, "attention.band.width": 8,
        "attention.band.dense_every": 3, "attention.biases": False, "feed_forward.biases": False,
        "norm.kind": "layer_without_biases", "feed_forward": "gated", "norm.epsilon": 1e-5, "initial.residual": "scaled",
        "dropout": 0.0}
LM = ("token_prediction", {"transform": None, "tie": True, "bias": False})
BARE = ("token_prediction", {"transform": None, "tie": True})
MASKED = ("token_prediction", {"transform": "gelu_tanh", "tie": True})
MODERN_HEAD = ("token_prediction", {"transform": "gelu", "tie": True, "biases": False, "norm_epsilon": 1e-5})
ORDER = ("relation_prediction", {"classes": 2, "set": "order"})
SCORE = ("classify", {"classes": 3, "set": "label", "reading": "summary"})
MODERN_ARGUMENTS = {"transform": {"gelu": {"norm_epsilon": 1e-5, "biases": False}}}
MODERN_SCORE = ("classify", {**SCORE[1], **MODERN_ARGUMENTS})
MODERN_LAST = ("classify", {**MODERN_SCORE[1], "output_bias": False})
CLASS = ("relation_prediction", {"classes": 3, "set": "label"})
TAGS = ("sequence_labelling", {"classes": 3})
MODERN_TAGS = ("sequence_labelling", {"classes": 3, **MODERN_ARGUMENTS})
POOLINGS = ("cls", "mean")

#: name → arguments, order, heads, tokenizer, reading, the auto class that opens it, the class that it is
SYSTEMS: dict[str, tuple[dict[str, Any], str, dict[str, Any], str, Reading, str, str]] = {
    "gpt": (GPT, "left_to_right", {"lm": LM}, "gpt2", CAUSAL, "AutoModelForCausalLM", "OpenAIGPTLMHeadModel"),
    "gpt-classifier": (GPT, "left_to_right", {"class": SCORE}, "gpt2", CAUSAL, "AutoModelForSequenceClassification",
                       "OpenAIGPTForSequenceClassification"),
    "albert": (ALBERT, "open", {"mlm": MASKED, "sop": ORDER}, "unigram", ENCODER, "AutoModelForPreTraining",
               "AlbertForPreTraining"),
    "albert-groups": ({**ALBERT, "share.groups": 3, "layers": 5}, "open", {"mlm": MASKED}, "unigram", ENCODER,
                      "AutoModelForMaskedLM", "AlbertForMaskedLM"),
    "albert-wide": ({**ALBERT, "embedding.width": 16, "embedding.project": True}, "open", {"mlm": MASKED}, "unigram", ENCODER,
                    "AutoModelForMaskedLM", "AlbertForMaskedLM"),
    "albert-classifier": (ALBERT, "open", {"class": CLASS}, "unigram", ENCODER, "AutoModelForSequenceClassification",
                          "AlbertForSequenceClassification"),
    "xlm": (XLM, "open", {"mlm": BARE}, "unigram", ENCODER, "AutoModelForMaskedLM", "XLMWithLMHeadModel"),
    "xlm-causal": ({**XLM, "embedding.inputs": None, "feed_forward.activation": "relu"}, "left_to_right", {"clm": BARE},
                   "unigram", ENCODER, "AutoModelForMaskedLM", "XLMWithLMHeadModel"),
    "xlm-sinusoid": ({**XLM, "positions": "sinusoid"}, "open", {"mlm": BARE}, "unigram", ENCODER, "AutoModelForMaskedLM",
                     "XLMWithLMHeadModel"),
    "xlm-classifier": (XLM, "open", {"class": SCORE}, "unigram", ENCODER, "AutoModelForSequenceClassification",
                       "XLMForSequenceClassification"),
    "flaubert": ({**XLM, "embedding.inputs": None}, "open", {"mlm": BARE}, "unigram", ENCODER, "AutoModelForMaskedLM",
                 "FlaubertWithLMHeadModel"),
    "flaubert-classifier": ({**XLM, "embedding.inputs": None}, "open", {"class": SCORE}, "unigram", ENCODER,
                            "AutoModelForSequenceClassification", "FlaubertForSequenceClassification"),
    "modernbert-tagger": (MODERN, "open", {"tags": MODERN_TAGS}, "roberta", ENCODER, "AutoModelForTokenClassification",
                          "ModernBertForTokenClassification"),
    "albert-tagger": (ALBERT, "open", {"tags": TAGS}, "unigram", ENCODER, "AutoModelForTokenClassification",
                      "AlbertForTokenClassification"),
    "xlm-tagger": (XLM, "open", {"tags": TAGS}, "unigram", ENCODER, "AutoModelForTokenClassification",
                   "XLMForTokenClassification"),
    "modernbert-classifier": (MODERN, "open", {"class": MODERN_SCORE}, "roberta", ENCODER,
                              "AutoModelForSequenceClassification", "ModernBertForSequenceClassification"),
    "modernbert": (MODERN, "open", {"mlm": MODERN_HEAD}, "roberta", ENCODER, "AutoModelForMaskedLM",
                   "ModernBertForMaskedLM"),
    "modernbert-biases": ({**MODERN, "attention.biases": True, "feed_forward.biases": True, "attention.band.width": 6,
        "attention.band.dense_every": 2}, "open", {"mlm": MODERN_HEAD},
                          "roberta", ENCODER, "AutoModelForMaskedLM", "ModernBertForMaskedLM"),
    "modernbert-global": ({**MODERN, "attention.band.width": None, "attention.band.dense_every": None}, "open",
        {"mlm": MODERN_HEAD}, "roberta",
                          ENCODER, "AutoModelForMaskedLM", "ModernBertForMaskedLM"),
    "modernbert-local": ({**MODERN, "attention.band.dense_every": None}, "open", {"mlm": MODERN_HEAD}, "roberta", ENCODER,
                         "AutoModelForMaskedLM", "ModernBertForMaskedLM"),
    "modernbert-decoder": (MODERN, "left_to_right", {"lm": MODERN_HEAD}, "gpt2", CAUSAL, "AutoModelForCausalLM",
                           "ModernBertDecoderForCausalLM"),
    "modernbert-decoder-biases": ({**MODERN, "attention.biases": True, "feed_forward.biases": True, "attention.band.width": 4,
        "attention.band.dense_every": 2}, "left_to_right", {"lm": MODERN_HEAD}, "gpt2", CAUSAL, "AutoModelForCausalLM",
                                  "ModernBertDecoderForCausalLM"),
    "modernbert-decoder-global": ({**MODERN, "attention.band.width": None, "attention.band.dense_every": None}, "left_to_right",
        {"lm": MODERN_HEAD}, "gpt2", CAUSAL, "AutoModelForCausalLM", "ModernBertDecoderForCausalLM"),
    "modernbert-decoder-classifier": (MODERN, "left_to_right", {"class": MODERN_LAST}, "gpt2", CAUSAL,
        "AutoModelForSequenceClassification", "ModernBertDecoderForSequenceClassification"),
    **{name: (arguments, "left_to_right", heads, "gpt2", CAUSAL, *rest) for name, (arguments, heads, *rest) in LLAMAS.items()},
}  # fmt: skip


def made(systems: ModuleType, name: str) -> Any:
    arguments, order, parts, kind, reading, *_ = SYSTEMS[name]
    hint = {"flaubert": "flaubert", **HINTS}.get(name.partition("-")[0])  # in their shape others
    return replace(systems.build(arguments, order, parts, systems.tokenizer(kind), reading, hint), name=name)


def said(system: Any) -> list[str]:
    """What is remarked on every model of several languages, and nothing on others."""
    if not system.arguments.get("embedding.inputs"):
        return []
    return ["transformers adds a language's vector only where it is given `langs`; cloze reads language 0 unless told another."]


def write(folder: Path, system: Any) -> list[str]:
    return export_folder(
        folder, model=system.model(), tokenizer=system.tokenizer, reading=system.reading, card=Card("test"),
        labels=["a", "b", "c"] if {"class", "tags"} & set(system.parts) else None, architecture=system.architecture,
    )  # fmt: skip


def opened(folder: Path, name: str) -> Any:
    """The model as transformers opens it; a missing, unexpected or misshapen tensor fails the test."""
    model, info = getattr(transformers, SYSTEMS[name][5]).from_pretrained(folder, output_loading_info=True)
    for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        assert not info[kind], (kind, info[kind])
    assert type(model).__name__ == SYSTEMS[name][6]
    return model.eval()


def fields(system: Any, padded: bool = True) -> dict[str, Tensor]:
    """Three rows of ordinary tokens of different lengths, with segments or languages where the network reads them."""
    generator = torch.Generator().manual_seed(3)
    ordinary = torch.from_numpy(system.tokenizer.ordinary_ids).long()
    length = system.arguments["positions.max_length"]
    tokens = ordinary[torch.randint(len(ordinary), (3, length), generator=generator)]
    block = torch.ones_like(tokens)
    if padded:
        block[1, 7:], block[2, 13:] = 0, 0
        tokens = tokens.where(block > 0, system.tokenizer.roles["[PAD]"])
    found = {"tokens": tokens, "block": block}
    for field, rows in (("segments", system.arguments.get("segments") or 0), ("language", _languages(system))):
        if rows:
            found[field] = torch.randint(rows, (3, length), generator=generator)
    return found


def _languages(system: Any) -> int:
    return (system.arguments.get("embedding.inputs") or {}).get("language", 0)


def their_batch(found: dict[str, Tensor]) -> dict[str, Tensor]:
    names = {"tokens": "input_ids", "block": "attention_mask", "segments": "token_type_ids", "language": "langs"}
    return {names[field]: value for field, value in found.items()}


def our_scores(system: Any, found: dict[str, Tensor]) -> dict[str, Tensor]:
    """Scores of every head, at real tokens or for each row."""
    found = dict(found)
    if "language" in found:
        found["inputs"] = {"language": found.pop("language")}  # type: ignore[assignment]
    if system.reading.summary == "last":
        rows, length = found["tokens"].shape
        found["summaries"] = torch.arange(rows) * length + found["block"].sum(1) - 1
    states = system.network(want=frozenset({"hidden", "summary"}), order=system.order, **found)
    positions = {"hidden": found["block"].flatten().nonzero().view(-1), "summary": torch.arange(len(found["tokens"]))}
    result = {}
    for name, objective in system.objectives.items():
        reading = objective.reads[0]
        asked = Batch({objective.positions_field: positions[reading], "tokens": found["tokens"]})
        result[name] = objective.scores({reading: states[reading]}, asked)
    return result


def their_scores(output: Any, found: dict[str, Tensor], heads: Any) -> dict[str, Tensor]:
    tokens = output.prediction_logits if "prediction_logits" in output else output.logits
    return {
        name: output.sop_logits if name == "sop" else tokens if name == "class" else tokens[found["block"] > 0]
        for name in heads
    }


@pytest.mark.parametrize("name", SYSTEMS)
def test_logits_and_gradients_of_a_padded_batch_are_those_of_transformers(
    systems: ModuleType, tmp_path: Path, name: str
) -> None:
    system = made(systems, name)
    assert write(tmp_path, system) == said(system)
    model = opened(tmp_path, name)
    found = fields(system)
    ours = our_scores(system, found)
    theirs = their_scores(model(**their_batch(found)), found, ours)
    generator = torch.Generator().manual_seed(1)
    loss, reference = torch.zeros(()), torch.zeros(())
    for head, mine in ours.items():
        torch.testing.assert_close(mine, theirs[head], atol=1e-4, rtol=0)
        weights = torch.randn(mine.shape, generator=generator) / mine.numel() ** 0.5
        loss, reference = loss + (mine * weights).sum(), reference + (theirs[head] * weights).sum()
    loss.backward()
    reference.backward()
    assert_same_gradients(system, model)


def assert_same_gradients(system: Any, model: Any) -> None:
    """Our gradients, carried over by the same table as the weights, against theirs."""
    whole = system.model()
    network = {name: torch.zeros_like(tensor) for name, tensor in whole.network.items()}
    network |= {name: gradient(p) for name, p in system.network.named_parameters()}
    heads = {
        name: replace(head, state={key: gradient(p) for key, p in system.objectives[name].named_parameters()})
        for name, head in whole.heads.items()
    }
    arguments, pad = complete(whole.arguments), system.tokenizer.roles["[PAD]"]
    completed = replace(whole, arguments=arguments)
    choice = choose(completed, tokenizer_kind=system.tokenizer.kind, pad=pad, hint=system.architecture)
    assert isinstance(choice, ArchitectureChoice)
    carried = replace(whole, arguments=arguments, network=network, heads=heads)
    mapped = tensors_there(carried, choice, vocab_size=system.tokenizer.size, pad=pad)
    nothing = {name: torch.zeros_like(tensor) for name, tensor in network.items()}
    no_heads = {name: replace(head, state={key: 0 * value for key, value in head.state.items()}) for name, head in heads.items()}
    zero = replace(carried, network=nothing, heads=no_heads)
    shift = tensors_there(zero, choice, vocab_size=system.tokenizer.size, pad=pad)  # Gemma's gains are written minus 1
    theirs = {key: gradient(p) for key, p in model.named_parameters()}
    if "sinusoid" in arguments["positions"]:  # transformers trains a table that the authors hold fixed
        del theirs["transformer.position_embeddings.weight"]
    assert theirs.keys() <= mapped.keys()
    for key, gradient_there in theirs.items():
        difference = float((mapped[key] - shift[key] - gradient_there).abs().max())
        assert difference <= 1e-4 * max(1.0, float(gradient_there.abs().max())), (key, difference)


def gradient(parameter: torch.nn.Parameter) -> Tensor:
    return torch.zeros_like(parameter) if parameter.grad is None else parameter.grad


@pytest.mark.parametrize("name", SYSTEMS)
def test_what_transformers_saves_is_read_as_the_same_model(systems: ModuleType, tmp_path: Path, name: str) -> None:
    system = made(systems, name)
    write(tmp_path / "ours", system)
    opened(tmp_path / "ours", name).save_pretrained(tmp_path / "theirs")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(tmp_path / "ours" / name, tmp_path / "theirs")
    back = import_folder(tmp_path / "theirs")
    assert list(back.remarks) == said(system) and back.model.order == system.order
    for key, tensor in system.network.state_dict().items():
        assert torch.equal(back.model.network[key], tensor), key
    by_part = {head.part: head for head in back.model.heads.values()}
    for head_name, head in system.model().heads.items():
        for key, tensor in head.state.items():
            assert torch.equal(by_part[system.parts[head_name][0]].state[key], tensor), key
    expected, found = completed(system.arguments), dict(back.model.flat)
    for derived in ("initial", "initial.residual", "initial.std", "initial.positions"):  # a folder does not say how weights began
        expected.pop(derived, None), found.pop(derived, None)
    if not system.arguments.get("attention.band.width"):  # nor the base of layers that it does not have
        expected.pop("positions.local_base", None), found.pop("positions.local_base", None)
    assert found == expected
    with torch.no_grad():
        again = our_scores(systems.loaded(back), fields(system)).values()
        for mine, other in zip(our_scores(system, fields(system)).values(), again, strict=True):
            torch.testing.assert_close(mine, other, rtol=0, atol=0)


def test_gpt2_with_a_cache_gives_the_logits_of_transformers_cache(systems: ModuleType, tmp_path: Path) -> None:
    system = systems.system("gpt2")
    write(tmp_path, system)
    model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path).eval()
    tokens, cache, past = fields(system, padded=False)["tokens"], Cache(2), None
    (objective,) = system.objectives.values()
    with torch.no_grad():
        for start, stop in ((0, 6), (6, 7), (7, 12), (12, 20)):
            there = model(input_ids=tokens[:, start:stop], past_key_values=past, use_cache=True)
            past = there.past_key_values
            position_ids = torch.arange(start, stop).expand(3, -1)
            states = system.network(
                want=frozenset({"hidden"}), tokens=tokens[:, start:stop], position_ids=position_ids, order="left_to_right",
                cache=cache,
            )  # fmt: skip
            torch.testing.assert_close(objective.head(states["hidden"]), there.logits, atol=1e-4, rtol=0)


def test_gpt_with_a_cache_gives_the_logits_of_transformers_whole_pass(systems: ModuleType, tmp_path: Path) -> None:
    system = made(systems, "gpt")
    write(tmp_path, system)
    tokens, cache = fields(system, padded=False)["tokens"], Cache(2)
    with torch.no_grad():
        whole = opened(tmp_path, "gpt")(input_ids=tokens).logits
        for start, stop in ((0, 6), (6, 7), (7, 20)):
            hidden = system.network(
                want=frozenset({"hidden"}), tokens=tokens[:, start:stop], order="left_to_right", cache=cache,
                position_ids=torch.arange(start, stop).expand(3, -1),
            )["hidden"]  # fmt: skip
            torch.testing.assert_close(system.objectives["lm"].head(hidden), whole[:, start:stop], atol=1e-4, rtol=0)


POOLED = ("choose", {"pool": True})
TWO_STREAM = {"layers": 2, "width": 16, "heads": 2, "feed_forward.inner": 24, "feed_forward.activation": "gelu"}
FURTHER: dict[str, tuple[str, dict[str, Any], tuple[str, dict[str, Any]]]] = {
    "ModernBertForQuestionAnswering": ("modernbert", MODERN, ("span_extraction", MODERN_ARGUMENTS)),
    "ModernBertForMultipleChoice": ("modernbert", MODERN, ("choose", {**MODERN_ARGUMENTS, "reading": "mean"})),
    "XLMForMultipleChoice": ("xlm", XLM, POOLED),
    "FlaubertForMultipleChoice": ("flaubert", {**XLM, "embedding.inputs": None}, POOLED),
    "XLNetForMultipleChoice": ("xlnet", TWO_STREAM, POOLED),
}


def two_stream(systems: ModuleType, part: tuple[str, dict[str, Any]]) -> tuple[PortableModel, Any]:
    """An XLNet with random weights and a head, and the tokenizer that it reads with."""
    pieces, clock = systems.tokenizer("unigram"), Clock()
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = network_of("two_stream", **TWO_STREAM, vocab_size=pieces.size, clock=clock)
        head = systems.objective(*part, {"width": 16, "clock": clock})
        for parameter in [*network.parameters(), *head.parameters()]:
            torch.nn.init.normal_(parameter, std=0.3)
    heads = {"head": PortableHead(*part, head.state_dict())}
    return PortableModel(data("two_stream", **TWO_STREAM), "open", network.state_dict(), heads, "two_stream"), pieces


@pytest.mark.parametrize("cls", FURTHER)
def test_answers_and_choices_are_scored_as_by_the_class_of_transformers(systems: ModuleType, tmp_path: Path, cls: str) -> None:
    name, arguments, part = FURTHER[cls]
    if name == "xlnet":
        model, pieces = two_stream(systems, part)
        reading = Reading("{A} [SEP] [CLS]", "{A} [SEP] {B} [SEP] [CLS]", "last")
    else:
        system = systems.build(arguments, "open", {"head": part}, systems.tokenizer(SYSTEMS[name][3]), ENCODER, name)
        model, pieces, reading = system.model(), system.tokenizer, ENCODER
    export_folder(tmp_path / "ours", model=model, tokenizer=pieces, reading=reading, card=Card("test"), architecture=name)
    auto = "AutoModelForQuestionAnswering" if "Answering" in cls else "AutoModelForMultipleChoice"
    theirs, info = getattr(transformers, auto).from_pretrained(tmp_path / "ours", output_loading_info=True)
    assert type(theirs).__name__ == cls and not info["missing_keys"] and not info["unexpected_keys"]
    theirs.eval().save_pretrained(tmp_path / "theirs")
    pieces.save(tmp_path / "theirs", length=20, frame_single=reading.single, frame_pair=reading.pair)
    ordinary = torch.from_numpy(pieces.ordinary_ids).long()
    tokens = ordinary[torch.randint(len(ordinary), (3, 9), generator=torch.Generator().manual_seed(3))]
    further = {"langs": torch.zeros_like(tokens)} if name == "xlm" else {}
    given = {"input_ids": tokens, "attention_mask": torch.ones_like(tokens), **further}
    with torch.no_grad():
        if "Answering" in cls:
            output = theirs(**given)
            expected = torch.stack([output.start_logits, output.end_logits])
        else:
            expected = theirs(**{key: value[None] for key, value in given.items()}).logits[0]
    for place in ("ours", "theirs"):
        loaded = load_checkpoint(tmp_path / place)
        (head,) = loaded.heads.values()
        reader = Reader.of(loaded)
        batch = Batch({"tokens": tokens, "segments": torch.zeros_like(tokens), "positions/answer": torch.arange(3)[:, None] * 9,
                       "summaries": torch.arange(3) * 9 + (8 if reading.summary == "last" else 0)})  # fmt: skip
        with torch.no_grad():
            states = reader.states(batch, head.reads)
            found = head.scores({key: states[key] for key in head.reads}, batch)
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)


def test_a_classifier_that_transformers_made_of_a_modernbert_is_read_with_its_pooling(
    systems: ModuleType, tmp_path: Path
) -> None:
    system = made(systems, "modernbert-classifier")
    write(tmp_path / "ours", system)
    model = opened(tmp_path / "ours", "modernbert-classifier")
    pieces, given = systems.tokenizer("roberta"), fields(system, padded=False)
    found = []
    for pooling in POOLINGS:
        model.config.classifier_pooling = pooling
        model.save_pretrained(tmp_path / pooling)
        pieces.save(tmp_path / pooling, length=20, frame_single=ENCODER.single, frame_pair=ENCODER.pair)
        back = import_folder(tmp_path / pooling)
        assert not back.remarks and back.labels == ("a", "b", "c")
        with torch.no_grad():
            theirs = opened(tmp_path / pooling, "modernbert-classifier")(input_ids=given["tokens"]).logits
            loaded = load_checkpoint(tmp_path / pooling)
            head = next(iter(loaded.heads.values())).eval()
            states = loaded.network.eval()(want=frozenset(head.reads), tokens=given["tokens"], order=loaded.order)
            ours = head.scores(states, {head.positions_field: torch.arange(len(theirs))})
        torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=0)
        found.append(ours)
    assert not torch.allclose(*found, atol=1e-3)


@pytest.mark.parametrize("changed", [
    {"num_hidden_layers": 3}, {"local_attention": 10}, {"layer_types": ["full_attention", "sliding_attention"] * 2},
    {"attention_bias": True, "mlp_bias": True},
    {"global_rope_theta": 500.0, "local_rope_theta": 50.0},
])  # fmt: skip
def test_modernberts_made_by_transformers_are_read_whole(
    systems: ModuleType, tmp_path: Path, changed: dict[str, Any]
) -> None:
    pieces = systems.tokenizer("roberta")
    sizes = {"num_hidden_layers": 4, "hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 24}
    config = transformers.ModernBertConfig(
        vocab_size=pieces.size, max_position_embeddings=32, pad_token_id=pieces.roles["[PAD]"], **{**sizes, **changed}
    )
    torch.manual_seed(0)
    model = transformers.ModernBertForMaskedLM(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn(parameter.shape))
    model.save_pretrained(tmp_path)
    pieces.save(tmp_path, length=20, frame_single=ENCODER.single, frame_pair=ENCODER.pair)
    back = import_folder(tmp_path)
    assert back.remarks == ()
    system = systems.loaded(back)
    found = fields(system)
    with torch.no_grad():
        theirs = model(**their_batch(found)).logits[found["block"] > 0]
        torch.testing.assert_close(our_scores(system, found)["token_prediction"], theirs, atol=1e-4, rtol=0)
