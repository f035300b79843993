"""Our folders in transformers, and transformers' folders here: same ids, same logits, same gradients, nothing missing."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor

from cloze.batch import Batch
from cloze.interop import Card, complete, export_folder, import_folder
from cloze.interop.choice import ArchitectureChoice, choose
from cloze.interop.export import tensors_there

transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.parity

CLASSES = {
    "bert": ("AutoModelForPreTraining", "BertForPreTraining"),
    "bert-tanh": ("AutoModelForMaskedLM", "BertForMaskedLM"),
    "bert-untied": ("AutoModelForMaskedLM", "BertForMaskedLM"),
    "bert-one-segment": ("AutoModelForMaskedLM", "BertForMaskedLM"),
    "roberta": ("AutoModelForMaskedLM", "RobertaForMaskedLM"),
    "gpt2": ("AutoModelForCausalLM", "GPT2LMHeadModel"),
    "distilbert": ("AutoModelForMaskedLM", "DistilBertForMaskedLM"),
    "distilbert-classifier": ("AutoModelForSequenceClassification", "DistilBertForSequenceClassification"),
    "electra": ("AutoModelForPreTraining", "ElectraForPreTraining"),
    "generator": ("AutoModelForMaskedLM", "ElectraForMaskedLM"),
    "wide-generator": ("AutoModelForMaskedLM", "ElectraForMaskedLM"),
    "classifier": ("AutoModelForSequenceClassification", "BertForSequenceClassification"),
    "roberta-classifier": ("AutoModelForSequenceClassification", "RobertaForSequenceClassification"),
    "electra-classifier": ("AutoModelForSequenceClassification", "ElectraForSequenceClassification"),
    "gpt2-classifier": ("AutoModelForSequenceClassification", "GPT2ForSequenceClassification"),
    "tagger": ("AutoModelForTokenClassification", "BertForTokenClassification"),
    "roberta-tagger": ("AutoModelForTokenClassification", "RobertaForTokenClassification"),
    "electra-tagger": ("AutoModelForTokenClassification", "ElectraForTokenClassification"),
    "gpt2-tagger": ("AutoModelForTokenClassification", "GPT2ForTokenClassification"),
}
PAIRS = [("The cat sleeps on the mat.", "It dreams of mice."), ("A dog barks", "rain"), ("the river", "fell all night")]
TEXTS = ["The cat sleeps on the mat and dreams.", "A dog", "Rain fell, and the river rose."]


def write(folder: Path, made: Any) -> list[str]:
    return export_folder(
        folder, model=made.model(), tokenizer=made.tokenizer, reading=made.reading, card=Card("test"),
        architecture=made.architecture, labels=["a", "b", "c"] if {"class", "tags"} & set(made.parts) else None,
    )  # fmt: skip


def opened(folder: Path, auto: str) -> Any:
    """The model as transformers opens it; a missing, unexpected or misshapen tensor fails the test."""
    model, info = getattr(transformers, auto).from_pretrained(folder, output_loading_info=True)
    for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        assert not info[kind], (kind, info[kind])
    return model.eval()


def padded_batch(folder: Path, made: Any) -> dict[str, Tensor]:
    """Three rows of different lengths, made by transformers' tokenizer from the folder."""
    reader = transformers.AutoTokenizer.from_pretrained(folder)
    if made.reading.pair is None:
        return dict(reader(TEXTS, padding=True, truncation=True, max_length=20, return_tensors="pt"))
    first, second = zip(*PAIRS, strict=True)
    return dict(reader(list(first), list(second), padding=True, truncation=True, max_length=20, return_tensors="pt"))


def our_scores(made: Any, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Scores of every head at every position (or summary) for a padded batch."""
    block = batch["attention_mask"].long()
    fields: dict[str, Tensor] = {"tokens": batch["input_ids"], "block": block}
    if made.arguments["segments"]:
        fields["segments"] = batch["token_type_ids"]
    if made.reading.summary == "last":
        fields["summaries"] = torch.arange(len(block)) * block.shape[1] + block.sum(1) - 1
    states = made.network(want=frozenset({"hidden", "summary"}), order=made.order, **fields)
    result = {}
    for name, objective in made.objectives.items():
        reading = objective.reads[0]
        positions = torch.arange(states[reading].flatten(0, -2).shape[0])
        asked = Batch({objective.positions_field: positions, "tokens": batch["input_ids"]})
        result[name] = objective.scores({reading: states[reading]}, asked)
    return result


def their_scores(output: Any, heads: Mapping[str, Any]) -> dict[str, Tensor]:
    """The same of transformers' output, flattened to (B*L, …)."""
    result = {}
    for name in heads:
        if name == "nsp":
            result[name] = output.seq_relationship_logits
            continue
        scores = output.prediction_logits if "prediction_logits" in output else output.logits
        result[name] = scores if name == "class" else scores.flatten(0, 1)
    return result


def real(scores: Tensor, mask: Tensor) -> Tensor:
    """Rows of tokens that are not padding; rows of examples are all real."""
    return scores[mask.flatten().bool()] if len(scores) == mask.numel() else scores


@pytest.mark.parametrize("name", CLASSES)
def test_transformers_opens_the_folder_with_the_same_logits_and_gradients(
    systems: ModuleType, tmp_path: Path, name: str
) -> None:
    made = systems.system(name)
    assert write(tmp_path, made) == []
    model = opened(tmp_path, CLASSES[name][0])
    assert type(model).__name__ == CLASSES[name][1]
    assert model.config.vocab_size == made.tokenizer.size
    batch = padded_batch(tmp_path, made)
    assert 0 < int(batch["attention_mask"].sum()) < batch["attention_mask"].numel()
    ours, theirs = our_scores(made, batch), their_scores(model(**batch), made.objectives)
    generator = torch.Generator().manual_seed(1)
    loss, reference = torch.zeros(()), torch.zeros(())
    for head, scores in ours.items():
        mine, other = real(scores, batch["attention_mask"]), real(theirs[head], batch["attention_mask"])
        torch.testing.assert_close(mine, other, atol=1e-4, rtol=0)
        weights = torch.randn(mine.shape, generator=generator) / mine.numel() ** 0.5
        loss, reference = loss + (mine * weights).sum(), reference + (other * weights).sum()
    loss.backward()
    reference.backward()
    assert_same_gradients(made, model)


def assert_same_gradients(made: Any, model: Any) -> None:
    """Our gradients, carried over by the same table as the weights, against theirs."""
    whole = made.model()
    network = {name: gradient(p) for name, p in made.network.named_parameters()}
    heads = {
        name: replace(head, state={key: gradient(p) for key, p in made.objectives[name].named_parameters()})
        for name, head in whole.heads.items()
    }
    arguments = complete(whole.arguments)
    choice = choose(
        replace(whole, arguments=arguments), tokenizer_kind=made.tokenizer.kind, pad=made.tokenizer.roles["[PAD]"],
        hint=made.architecture,
    )  # fmt: skip
    assert isinstance(choice, ArchitectureChoice)
    mapped = tensors_there(
        replace(whole, arguments=arguments, network=network, heads=heads), choice, vocab_size=made.tokenizer.size,
        pad=made.tokenizer.roles["[PAD]"],
    )  # fmt: skip
    theirs = {key: gradient(p) for key, p in model.named_parameters()}
    if not made.arguments["segments"]:
        theirs.pop(next((key for key in theirs if "token_type" in key), ""), None)  # a constant here
        mapped.pop(next((key for key in mapped if "token_type" in key), ""), None)
    assert theirs.keys() - mapped.keys() <= {"cls.predictions.decoder.bias"}
    unused = {"cls.predictions.bias"} if made.name == "bert-untied" else set()  # there the decoder has its own
    for key in sorted(theirs.keys() & mapped.keys() - unused):
        difference = float((mapped[key] - theirs[key]).abs().max())
        assert difference <= 1e-4 * max(1.0, float(theirs[key].abs().max())), (key, difference)


def gradient(parameter: torch.nn.Parameter) -> Tensor:
    return torch.zeros_like(parameter) if parameter.grad is None else parameter.grad


@pytest.mark.parametrize("name", CLASSES)
def test_rows_as_long_as_the_positions_reach_agree(systems: ModuleType, tmp_path: Path, name: str) -> None:
    made = systems.system(name)
    write(tmp_path, made)
    model = opened(tmp_path, CLASSES[name][0])
    ordinary = torch.from_numpy(made.tokenizer.ordinary_ids).long()
    generator = torch.Generator().manual_seed(2)
    tokens = ordinary[torch.randint(len(ordinary), (2, made.arguments["positions.max_length"]), generator=generator)]
    batch = {"input_ids": tokens, "attention_mask": torch.ones_like(tokens), "token_type_ids": torch.zeros_like(tokens)}
    if not made.arguments["segments"]:
        del batch["token_type_ids"]
    with torch.no_grad():
        ours, theirs = our_scores(made, batch), their_scores(model(**batch), made.objectives)
    for head, scores in ours.items():
        torch.testing.assert_close(scores, theirs[head], atol=1e-4, rtol=0)


@pytest.mark.parametrize("name", CLASSES)
def test_what_transformers_saves_again_is_read_as_the_same_model(systems: ModuleType, tmp_path: Path, name: str) -> None:
    made = systems.system(name)
    write(tmp_path / "ours", made)
    opened(tmp_path / "ours", CLASSES[name][0]).save_pretrained(tmp_path / "theirs", max_shard_size="20KB")
    made.tokenizer.save(tmp_path / "theirs", length=20, frame_single=made.reading.single, frame_pair=made.reading.pair)
    assert (tmp_path / "theirs" / "model.safetensors.index.json").exists()
    back = import_folder(tmp_path / "theirs")
    assert not back.remarks
    for key, tensor in made.network.state_dict().items():
        assert torch.equal(back.model.network[key], tensor), key
    by_part = {head.part: head for head in back.model.heads.values()}
    for head_name, head in made.model().heads.items():
        for key, tensor in head.state.items():
            assert torch.equal(by_part[made.parts[head_name][0]].state[key], tensor), key


def test_every_published_shape_of_random_weights_agrees(systems: ModuleType, tmp_path: Path) -> None:
    """Head width 64, embeddings of another width, both GELUs, at reduced depth (spec 2 §19.1)."""
    for name, sizes in {
        "bert": {"width": 128, "heads": 2, "feed_forward.inner": 512},
        "gpt2": {"width": 192, "heads": 3, "feed_forward.inner": 768},
        "roberta": {"width": 128, "heads": 2, "feed_forward.inner": 512},
        "generator": {"width": 64, "heads": 1, "feed_forward.inner": 256, "embedding.width": 128},
    }.items():
        made = systems.system(name, layers=1, **sizes)
        for module in (made.network, *made.objectives.values()):
            with torch.no_grad():
                for key, parameter in module.named_parameters():
                    parameter.copy_(1.0 + 0.1 * (parameter - 1.0) if "norm" in key and "weight" in key else parameter * 0.1)
        write(tmp_path / name, made)
        model = opened(tmp_path / name, CLASSES[name][0])
        batch = padded_batch(tmp_path / name, made)
        with torch.no_grad():
            ours, theirs = our_scores(made, batch), their_scores(model(**batch), made.objectives)
        for head in ours:
            torch.testing.assert_close(
                real(ours[head], batch["attention_mask"]), real(theirs[head], batch["attention_mask"]), atol=1e-5, rtol=0
            )


def test_gpt2_generates_in_transformers_without_being_told_its_ids(systems: ModuleType, tmp_path: Path) -> None:
    made = systems.system("gpt2")
    write(tmp_path, made)
    model = opened(tmp_path, "AutoModelForCausalLM")
    end = made.tokenizer.roles["[EOS]"]
    assert (model.generation_config.eos_token_id, model.generation_config.pad_token_id) == (end, end)
    reader = transformers.AutoTokenizer.from_pretrained(tmp_path)
    out = model.generate(**reader("The cat", return_tensors="pt"), max_new_tokens=3, do_sample=False)
    assert out.shape[1] <= reader("The cat", return_tensors="pt")["input_ids"].shape[1] + 3


def test_config_names_the_special_ids(systems: ModuleType, tmp_path: Path) -> None:
    for name in ("bert", "roberta", "gpt2", "electra"):
        made = systems.system(name)
        write(tmp_path / name, made)
        config = transformers.AutoConfig.from_pretrained(tmp_path / name)
        roles = made.tokenizer.roles
        assert config.pad_token_id == roles["[PAD]"]
        assert config.dtype == torch.float32
        assert config.tie_word_embeddings is True
        if name in ("roberta", "gpt2"):
            assert (config.bos_token_id, config.eos_token_id) == (roles["[BOS]"], roles["[EOS]"])


@pytest.mark.parametrize("name", ["classifier", "tagger"])
def test_a_classifier_carries_its_labels(systems: ModuleType, tmp_path: Path, name: str) -> None:
    write(tmp_path, systems.system(name))
    assert opened(tmp_path, CLASSES[name][0]).config.id2label == {0: "a", 1: "b", 2: "c"}
    assert import_folder(tmp_path).labels == ("a", "b", "c")


@pytest.mark.parametrize(("model_type", "cls"), [
    ("bert", "BertForPreTraining"), ("roberta", "RobertaForMaskedLM"), ("gpt2", "GPT2LMHeadModel"),
    ("electra", "ElectraForPreTraining"), ("electra", "ElectraForMaskedLM"),
    ("roberta", "RobertaForSequenceClassification"), ("electra", "ElectraForSequenceClassification"),
])  # fmt: skip
def test_models_made_by_transformers_are_read_whole(systems: ModuleType, tmp_path: Path, model_type: str, cls: str) -> None:
    kind = {"bert": "wordpiece", "electra": "wordpiece", "roberta": "roberta", "gpt2": "gpt2"}[model_type]
    pieces = systems.tokenizer(kind)
    sizes = (
        {"n_layer": 2, "n_embd": 16, "n_head": 2, "n_positions": 20} if model_type == "gpt2" else
        {"num_hidden_layers": 2, "hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 24,
         "max_position_embeddings": 22, "type_vocab_size": 1 if model_type == "roberta" else 2}
    )  # fmt: skip
    roles = pieces.roles
    ids = {"pad_token_id": roles["[PAD]"], "bos_token_id": roles.get("[BOS]"), "eos_token_id": roles.get("[EOS]")}
    config = transformers.AutoConfig.for_model(model_type, vocab_size=pieces.size, **sizes, **ids)
    torch.manual_seed(0)
    model = getattr(transformers, cls)(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn(parameter.shape))
    model.save_pretrained(tmp_path)
    frame = {"bert": systems.BERT_READING, "electra": systems.BERT_READING, "roberta": systems.ROBERTA_READING}
    reading = frame.get(model_type, systems.GPT2_READING)
    pieces.save(tmp_path, length=20, frame_single=reading.single, frame_pair=reading.pair)
    back = import_folder(tmp_path)
    assert back.remarks == ()
    longest = 20 if model_type in ("bert", "electra") else None  # the two others have 20 positions
    assert back.reading == replace(reading, max_length=longest)
    made = systems.loaded(back)
    batch = padded_batch(tmp_path, made)
    with torch.no_grad():
        output = model(**{key: value for key, value in batch.items() if key != "token_type_ids" or model_type != "roberta"})
        ours = our_scores(made, batch)
    for head, scores in ours.items():
        if head == "relation_prediction" and "seq_relationship_logits" in output:
            theirs = output.seq_relationship_logits
        else:
            theirs = output.prediction_logits if "prediction_logits" in output else output.logits
        theirs = theirs if head in ("relation_prediction", "classification") else theirs.flatten(0, 1)
        torch.testing.assert_close(
            real(scores, batch["attention_mask"]), real(theirs, batch["attention_mask"]), atol=1e-4, rtol=0
        )


def test_the_card_and_the_config_are_what_the_hub_expects(systems: ModuleType, tmp_path: Path) -> None:
    write(tmp_path, systems.system("bert"))
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["model_type"] == "bert" and config["dtype"] == "float32"
    card = (tmp_path / "README.md").read_text()
    front = card.split("---")[1]
    assert "library_name: transformers" in front and "pipeline_tag: fill-mask" in front
