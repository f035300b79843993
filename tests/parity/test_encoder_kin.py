"""Encoders that differ from BERT and RoBERTa in norms, positions or embeddings: states and gradients of padded rows are those of
transformers, and what is unusual about their files and tokenizers is read as transformers reads it."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

import cloze
from cloze.checkpoint.build import load_checkpoint
from cloze.checkpoint.loaded import Loaded
from cloze.cli.main import main
from cloze.decoding.reader import Reader
from cloze.errors import CheckpointError, RecipeError
from cloze.interop import import_folder
from cloze.interop.architecture import ARCHITECTURES
from cloze.interop.mapping import to_theirs
from cloze.text import Tokenizer
from cloze.text.encoding.word_encoder import encoder_for

transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.parity

TEXTS = ["The cat sleeps on the mat.", "A dog", "MKTVLAGX. LK", "Rain fell."]
SMALL = {"hidden_size": 24, "num_attention_heads": 2, "layer_norm_eps": 0.01}
#: Each kind with options of published folders.
OPTIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "data2vec-text": ("data2vec-text", {}),
    "norms in front": ("roberta-prelayernorm", {}),
    "XL": ("xlm-roberta-xl", {}),
    "mpnet": ("mpnet", {}),
    "ESM-2": ("esm", {}),
    "ESM-1b": ("esm", {"position_embedding_type": "absolute", "emb_layer_norm_before": True}),
    "ESM-1v": ("esm", {"position_embedding_type": "absolute", "emb_layer_norm_before": False}),
    "ESM with masks as tokens": ("esm", {"token_dropout": False}),
    "roformer": ("roformer", {"embedding_size": 8}),
    "values rotated": ("roformer", {"rotary_value": True}),
    "big_bird": ("big_bird", {}),
    "megatron-bert": ("megatron-bert", {}),
    "bert-generation": ("bert-generation", {}),
}  # fmt: skip


@pytest.fixture
def saved(systems: ModuleType, foreign: ModuleType, tmp_path: Path) -> Any:
    """Saves a model of one kind to `tmp_path / "in"`; returns it without dropout."""

    def build(name: str, cls: str | None = None, **changes: Any) -> Any:
        kind = foreign.KINDS[name]
        pieces = systems.tokenizer(kind.tokenizer)
        still = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
        model = foreign.model_of(kind, pieces, cls=cls, **{**SMALL, **still, **changes})
        foreign.save(model, pieces, tmp_path / "in")
        return model

    return build


def padded(reader: Reader, texts: list[str] = TEXTS) -> dict[str, Tensor]:
    """The texts in one batch; the second token of the first and of the third text is masked, where there is a [MASK]."""
    batch = dict(reader.batch(reader.encode(texts)))
    if "[MASK]" in reader.tokenizer.roles:
        batch["tokens"] = batch["tokens"].clone()
        batch["tokens"][::2, 1] = reader.tokenizer.roles["[MASK]"]
    return batch


def ours(loaded: Loaded, batch: dict[str, Tensor]) -> Tensor:
    """The states of real tokens (M, D)."""
    real = batch["block"] > 0
    fields = {name: batch[name] for name in ("tokens", "block")}
    states: Tensor = loaded.network(want=frozenset({"hidden"}), order=loaded.order, **fields)["hidden"]
    return states[real]


def theirs(model: Any, batch: dict[str, Tensor]) -> Tensor:
    real = batch["block"] > 0
    body = getattr(model, model.base_model_prefix)
    states: Tensor = body(input_ids=batch["tokens"], attention_mask=real.long()).last_hidden_state
    return states[real]


def descend(states: Tensor) -> None:
    (states * torch.linspace(-1, 1, states.numel()).view(states.shape)).sum().backward()


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("option", OPTIONS)
def test_states_and_gradients_of_padded_rows_are_those_of_transformers(
    saved: Any, tmp_path: Path, option: str, training: bool
) -> None:
    name, changes = OPTIONS[option]
    model = saved(name, **changes).train(training)
    loaded = load_checkpoint(tmp_path / "in")
    reader = Reader.of(loaded)
    loaded.network.train(training)
    batch = padded(reader)
    found, expected = ours(loaded, batch), theirs(model, batch)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)

    descend(found), descend(expected)
    assert loaded.imported is not None
    portable, architecture = loaded.imported.model, ARCHITECTURES[name]
    gradients = {key: parameter.grad for key, parameter in loaded.network.named_parameters() if parameter.grad is not None}
    lines = [line for line in architecture.lines(portable.flat) if "frequencies" not in line.ours]
    pad = reader.tokenizer.role("[PAD]")
    sizes = architecture.table_sizes(portable.flat, loaded.network.vocab_size, base=architecture.base, pad=pad)
    upstream = dict(model.named_parameters())
    for key, gradient in to_theirs(lines, gradients, sizes).items():
        wanted = upstream[key].grad
        if key.endswith("word_embeddings.weight"):  # transformers leaves out the row of [PAD]
            gradient, wanted = (x.index_fill(0, torch.tensor(pad), 0.0) for x in (gradient, wanted))
        torch.testing.assert_close(gradient, wanted, atol=2e-5, rtol=1e-4, msg=lambda said, key=key: f"{key}: {said}")


def test_masked_tokens_have_no_vectors_and_scale_those_of_their_text_alone(saved: Any, tmp_path: Path) -> None:
    saved("esm")
    loaded = load_checkpoint(tmp_path / "in")
    masks = loaded.network.embeddings.without_masks
    x, mask = torch.ones(2, 6, 1), loaded.tokenizer.role("[MASK]")
    tokens = torch.tensor([[0, 5, mask, 2, 7, 8], [mask, 5, 6, 7, 1, 1]])
    block = torch.tensor([[1, 1, 1, 1, 2, 2], [1, 1, 1, 1, 0, 0]])  # two texts in a row, and padding
    expected = torch.tensor([[4 / 3, 4 / 3, 0, 4 / 3, 1, 1], [0, 4 / 3, 4 / 3, 4 / 3, 1, 1]]) * 0.88
    torch.testing.assert_close(masks(x, tokens, block, "open")[..., 0], expected)
    torch.testing.assert_close(masks(x[:1], torch.full((1, 6), mask), None, "open"), torch.zeros(1, 6, 1))
    with pytest.raises(RecipeError, match="the vectors depend on how many tokens of the whole text are masked"):
        masks(x, tokens, block, "left_to_right")


def test_an_esm_keeps_the_rounding_of_its_angles_through_import_and_export(saved: Any, tmp_path: Path) -> None:
    saved("esm")
    file = tmp_path / "in" / "model.safetensors"
    tensors = load_file(file)
    (angles,) = (name for name in tensors if name.endswith("inv_freq"))
    rounded = tensors.pop(angles).half().float() * 1.5  # so that it shows
    layers = {f"esm.encoder.layer.{number}.attention.self.rotary_embeddings.inv_freq": rounded.clone() for number in range(2)}
    save_file({**tensors, **layers}, file, {"format": "pt"})
    model = transformers.EsmForMaskedLM.from_pretrained(tmp_path / "in").eval()
    assert torch.equal(model.esm.rotary_embeddings.inv_freq, rounded)
    assert main(["import", str(tmp_path / "in"), "--out", str(tmp_path / "out")]) == 0
    again, told = transformers.EsmForMaskedLM.from_pretrained(tmp_path / "out", output_loading_info=True)
    assert not any(told.values())
    with torch.no_grad():
        for folder in ("in", "out"):
            loaded = load_checkpoint(tmp_path / folder)
            batch = padded(Reader.of(loaded))
            for one in (model, again.eval()):
                torch.testing.assert_close(ours(loaded, batch), theirs(one, batch), atol=1e-5, rtol=1e-5)


def test_the_letters_of_proteins_are_read_as_by_the_tokenizer_of_esm(systems: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "vocab.txt").write_text("\n".join(systems.LETTERS))
    upstream = transformers.EsmTokenizer(str(tmp_path / "vocab.txt"))
    upstream.save_pretrained(tmp_path / "saved")
    pieces = Tokenizer.load(tmp_path / "saved")
    for text in ("MKTV LAGV", "mktVJJx<null_1>K. -", "MK\tTV\nAA", "", "Aß丁L", "<null_1", "VUOZ xA xB"):
        expected = upstream(text, add_special_tokens=False)["input_ids"]
        assert pieces.encode(text).ids.tolist() == expected
        for compiled in (False, True):  # the encoders of stores
            assert encoder_for(pieces, memory_mb=8, compiled=compiled).encode_lines([text]).ids.tolist() == expected
    expected = upstream("MK<mask>T<mask>", add_special_tokens=False)["input_ids"]
    assert pieces.encode_template("MK<mask>T[MASK]").ids.tolist() == expected
    pieces.save(tmp_path / "out", length=30, frame_single="[CLS] {A} [EOS]", frame_pair="[CLS] {A} [EOS] {B} [EOS]")
    again = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    assert again("MKTV", "LA")["input_ids"] == upstream("MKTV", "LA")["input_ids"]


def test_proteins_are_predicted_and_fine_tuned(saved: Any, tmp_path: Path) -> None:
    saved("esm")
    assert main(["fill", str(tmp_path / "in"), "MKT[MASK]LAG"]) == 0
    (tmp_path / "rows.tsv").write_text("text\tlabel\n" + "MKTVLAG\tone\nGGSAPW\tother\n" * 2)
    files = ["--train", str(tmp_path / "rows.tsv"), "--dev", str(tmp_path / "rows.tsv"), "--out", str(tmp_path / "tuned")]
    assert main(["finetune", str(tmp_path / "in"), *files, "--set", "training.epochs=1", "--set", "length=16"]) == 0
    assert cloze.load(tmp_path / "tuned").predict("MKTVLAG").label in ("one", "other")
    opened, told = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "tuned", output_loading_info=True)
    assert not any(told.values()) and not opened.eval().esm.contact_head.regression.weight.any()
    learner = cloze.load(tmp_path / "tuned")
    ids = transformers.AutoTokenizer.from_pretrained(tmp_path / "tuned")("MKTVLAG", return_tensors="pt")
    with torch.no_grad():
        expected = opened(**ids).logits[0].softmax(-1)
    shares = {opened.config.id2label[number]: float(share) for number, share in enumerate(expected)}
    assert learner.predict("MKTVLAG").probabilities == pytest.approx(shares, abs=1e-5)


def test_an_esm_goes_on_training_on_proteins(saved: Any, tmp_path: Path) -> None:
    saved("esm")
    assert main(["import", str(tmp_path / "in"), "--out", str(tmp_path / "start")]) == 0
    (tmp_path / "proteins.txt").write_text("MKTVLAGPERSI\nGGSAPWDLYFHQN\n" * 20)
    arguments = ["--corpus", str(tmp_path / "proteins.txt"), "--budget", "2steps", "--set", "training.batch=2"]
    start = ["pretrain", str(tmp_path / "start"), "--init", str(tmp_path / "start"), *arguments]
    assert main([*start, "--out", str(tmp_path / "run")]) == 0
    assert main([*start, "--out", str(tmp_path / "same"), "--tokenizer", str(tmp_path / "start")]) == 0
    assert Tokenizer.load(tmp_path / "same").hash == Tokenizer.load(tmp_path / "start").hash
    assert {"M", "W", "<mask>"} < set(Tokenizer.load(tmp_path / "run").spellings)


def test_an_mpnet_counts_positions_from_two_and_another_pad_is_refused(saved: Any, tmp_path: Path) -> None:
    saved("mpnet")
    assert import_folder(tmp_path / "in").model.flat["positions.max_length"] == 28
    path = tmp_path / "in" / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "pad_token_id": 0}))
    with pytest.raises(CheckpointError, match="pad_token_id is 0; cloze's network has 1 there"):
        import_folder(tmp_path / "in")


def test_the_vocabulary_of_mpnet_has_the_special_tokens_of_roberta_although_it_holds_those_of_bert(tmp_path: Path) -> None:
    pieces = ["<s>", "<pad>", "</s>", "<unk>", "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "##s", "<mask>"]
    (tmp_path / "vocab.txt").write_text("\n".join(pieces) + "\n")
    upstream = transformers.MPNetTokenizer(dict(zip(pieces, range(len(pieces)), strict=True)))
    for settings in ({}, {"cls_token": "<s>", "sep_token": "</s>", "pad_token": "<pad>", "mask_token": "<mask>",
                          "unk_token": "[UNK]", "bos_token": "<s>", "eos_token": "</s>"}):
        (tmp_path / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": True, **settings}))
        found = Tokenizer.load(tmp_path)
        roles = {"[CLS]": 0, "[BOS]": 0, "[PAD]": 1, "[SEP]": 2, "[EOS]": 2, "[UNK]": 5, "[MASK]": 12}
        assert dict(found.roles) == roles
        assert found.encode_template("The cats <mask> dogs").ids.tolist() == upstream(
            "The cats <mask> dogs", add_special_tokens=False
        )["input_ids"]


IDEOGRAPHS = [*"今天气非常好我们学习", "。", *"abcdet0123.,!?-+#", "##t", "##s", "cat", "п", "р", "す"]


def test_a_roformer_of_characters_is_read_and_one_of_words_is_refused(tmp_path: Path) -> None:
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *IDEOGRAPHS]
    (tmp_path / "vocab.txt").write_text("\n".join(pieces))
    (tmp_path / "config.json").write_text('{"model_type": "roformer"}')
    found = Tokenizer.load(tmp_path)
    spelled = [found.piece(number) for number in found.encode("今天cats, прです。").ids]
    assert spelled == ["今", "天", "cat", "##s", ",", "п", "р", "[UNK]", "す", "。"]
    (tmp_path / "vocab.txt").write_text("\n".join([*pieces, "非常"]))
    with pytest.raises(CheckpointError, match="1 pieces are Chinese words, such as '非常'. transformers' RoFormerTokenizer"):
        Tokenizer.load(tmp_path)


def test_a_roformer_of_characters_gives_the_ids_of_transformers(tmp_path: Path) -> None:
    pytest.importorskip("rjieba")
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *IDEOGRAPHS]
    upstream = transformers.RoFormerTokenizer(dict(zip(pieces, range(len(pieces)), strict=True)))
    upstream.save_pretrained(tmp_path)
    found = Tokenizer.load(tmp_path)
    for text in ("今天天气非常好。", "A cat-dat, 3.5 + 1#?", "прです  ABC123我们", "a\tb\ncafé!"):
        assert found.encode(text).ids.tolist() == upstream(text, add_special_tokens=False)["input_ids"]


def test_a_table_of_angles_that_is_none_of_roformer_is_refused(saved: Any, tmp_path: Path) -> None:
    saved("roformer")
    file = tmp_path / "in" / "model.safetensors"
    tensors = load_file(file)
    tensors["roformer.encoder.embed_positions.weight"][3, 1] += 0.1
    save_file(tensors, file, {"format": "pt"})
    with pytest.raises(CheckpointError, match="embed_positions.weight differs from the numbers that RoFormer has there"):
        import_folder(tmp_path / "in")


def test_a_roformer_whose_tokenizer_gives_no_segments_is_refused(saved: Any, tmp_path: Path) -> None:
    saved("roformer")
    path = tmp_path / "in" / "tokenizer_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "model_input_names": ["input_ids"]}))
    with pytest.raises(CheckpointError, match="the tokenizer gives no segments .*, and RoFormer has no vectors of positions"):
        import_folder(tmp_path / "in")


def test_a_big_bird_reads_rows_that_transformers_reads_with_full_attention(saved: Any, tmp_path: Path) -> None:
    model = saved("big_bird", block_size=2, num_random_blocks=1)
    imported = import_folder(tmp_path / "in")
    assert imported.reading.max_length == 14
    assert "BigBird sees all tokens only in rows of up to 14, to which cloze cuts texts" in " ".join(imported.remarks)
    assert main(["import", str(tmp_path / "in"), "--out", str(tmp_path / "out")]) == 0
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert config["attention_type"] == "original_full"
    again = transformers.AutoModelForPreTraining.from_pretrained(tmp_path / "out").eval()
    loaded = load_checkpoint(tmp_path / "out")
    batch = padded(Reader.of(loaded), ["The cat", "A"])
    with torch.no_grad():
        for one in (model, again):
            torch.testing.assert_close(ours(loaded, batch), theirs(one, batch), atol=1e-5, rtol=1e-5)


def test_a_bert_for_generation_writes_as_transformers_does(saved: Any, tmp_path: Path) -> None:
    model = saved("bert-generation")
    loaded = cloze.load(tmp_path / "in")
    pieces = loaded.tokenizer
    ids = torch.from_numpy(pieces.encode("The cat").ids[None]).long()
    with torch.no_grad():
        written = model.generate(ids, max_new_tokens=6, do_sample=False, eos_token_id=None)[0, ids.shape[1]:]
    assert loaded.generate("The cat", tokens=6, top_k=1).ids == tuple(written.tolist())
