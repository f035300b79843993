"""`cloze import` and the verbs after it, on folders that transformers wrote: every architecture that transformers 5 has."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest

from cloze.cli.main import main
from cloze.interop import ARCHITECTURES
from cloze.recipe.load import load_recipe

pytestmark = pytest.mark.parity

KNOWN = (
    "bert", "distilbert", "mobilebert", "roberta", "xlm-roberta", "camembert", "albert", "electra", "xlm", "flaubert", "xlnet",
    "modernbert", "openai-gpt", "gpt2", "t5", "mt5", "bart", "ernie", "modernbert-decoder", "mamba",
    "umt5", "mbart", "m2m_100", "marian", "pegasus", "deberta", "deberta-v2",
    "llama", "mistral", "qwen2", "qwen3", "smollm3", "olmo2", "gemma",
    "data2vec-text", "roberta-prelayernorm", "xlm-roberta-xl", "mpnet", "esm", "roformer", "big_bird", "megatron-bert",
    "bert-generation",
)
FILL = (
    "bert", "distilbert", "mobilebert", "roberta", "xlm-roberta", "camembert", "albert", "xlm", "flaubert", "xlnet", "modernbert",
    "ernie", "deberta", "deberta-v2",
    "data2vec-text", "roberta-prelayernorm", "xlm-roberta-xl", "mpnet", "esm", "roformer", "big_bird", "megatron-bert",
)
ANSWER = ("t5", "mt5", "bart", "umt5", "mbart", "m2m_100", "marian", "pegasus")
LLAMAS = ("llama", "mistral", "qwen2", "qwen3", "smollm3", "olmo2", "gemma")
WRITE = ("openai-gpt", "gpt2", "modernbert-decoder", "mamba", "bert-generation", *ANSWER, *LLAMAS)
RECIPES = {
    "bert": "BERT:", "distilbert": "BERT:", "mobilebert": "MobileBERT:", "roberta": "RoBERTa:", "albert": "ALBERT:",
    "electra": "ELECTRA:",
    "xlm": "Cross-lingual", "flaubert": "FlauBERT:", "xlnet": "XLNet:", "modernbert": "Smarter",
    "openai-gpt": "Improving Language Understanding", "gpt2": "Language Models are Unsupervised", "t5": "Exploring the Limits",
    "xlm-roberta": "RoBERTa:", "camembert": "CamemBERT:", "mt5": "Exploring the Limits",
    "bart": "BART:", "ernie": "BERT:", "modernbert-decoder": "cloze's own", "mamba": "Mamba:",
    "umt5": "Exploring the Limits", "mbart": "BART:", "m2m_100": "Attention Is", "marian": "Attention Is",
    "pegasus": "Attention Is",
    "deberta": "DeBERTa:", "deberta-v2": "DeBERTa:",
    **dict.fromkeys(LLAMAS, "SmolLM2:"),
    "data2vec-text": "RoBERTa:", "roberta-prelayernorm": "RoBERTa:", "xlm-roberta-xl": "RoBERTa:", "mpnet": "RoBERTa:",
    "esm": "RoBERTa:", "roformer": "BERT:", "big_bird": "BERT:", "megatron-bert": "BERT:",
    "bert-generation": "Improving Language Understanding",
}  # fmt: skip


def test_the_verb_is_tried_with_every_architecture_that_transformers_5_has(foreign: ModuleType) -> None:
    with_items = {"visual_bert", "lxmert"}  # tests/parity/test_items.py
    assert set(KNOWN) == set(foreign.KINDS) == set(ARCHITECTURES) - {"nezha", "transfo-xl"} - with_items


@pytest.mark.parametrize("name", KNOWN)
def test_an_imported_folder_predicts_as_transformers_does_and_every_verb_reads_it(
    systems: ModuleType, foreign: ModuleType, tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    kind, out = foreign.KINDS[name], tmp_path / "out"
    pieces = systems.tokenizer(kind.tokenizer)
    model = foreign.model_of(kind, pieces)
    source = foreign.save(model, pieces, tmp_path / "source")
    assert main(["import", str(source), "--out", str(out)]) == 0
    foreign.assert_equal(model, out, **({"langs": 0} if name == "xlm" else {}))
    assert (load_recipe(out).paper or "").startswith(RECIPES[name])  # and legal, since it was read
    text = "The cat sleeps.\tA dog." if name in ANSWER else "The cat sleeps."
    for arguments in [
        ["score", str(out), text], ["embed", str(out), "The cat sleeps.", "--out", str(tmp_path / "vectors.npy")],
        *([["fill", str(out), "The cat [MASK] on the mat."]] if name in FILL else []),
        *([["generate", str(out), "The cat", "--tokens", "2"]] if name in WRITE else []),
    ]:  # fmt: skip
        assert main(arguments) == 0, (arguments, capsys.readouterr())


#: Those without a class that classifies.
NO_CLASSIFIER = ("mamba", "bert-generation", *(name for name in ANSWER if name != "bart"))


@pytest.mark.parametrize("name", [name for name in KNOWN if name not in NO_CLASSIFIER])
def test_an_imported_classifier_is_one_again_in_transformers(
    systems: ModuleType, foreign: ModuleType, tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    import transformers

    kind = foreign.KINDS[name]
    pieces = systems.tokenizer(kind.tokenizer)
    model = foreign.model_of(kind, pieces, cls=kind.classifier, num_labels=2)
    source = foreign.save(model, pieces, tmp_path / "source")
    assert main(["import", str(source), "--out", str(tmp_path / "out")]) == 0
    assert "transformers opens the folder without" not in capsys.readouterr().out
    languages = {"langs": 0} if name == "xlm" else {}
    foreign.assert_equal(model, tmp_path / "out", **languages)
    again = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "out").eval()
    assert type(again).__name__ == kind.classifier
    foreign.assert_equal(again, source, **languages)


@pytest.mark.parametrize("name", ["albert", "xlnet", "modernbert", "modernbert-decoder", "t5", "qwen3", "mpnet"])
def test_an_imported_folder_is_fine_tuned(systems: ModuleType, foreign: ModuleType, tmp_path: Path, name: str) -> None:
    kind = foreign.KINDS[name]
    pieces = systems.tokenizer(kind.tokenizer)
    foreign.save(foreign.model_of(kind, pieces), pieces, tmp_path / "source")
    assert main(["import", str(tmp_path / "source"), "--out", str(tmp_path / "out")]) == 0
    (tmp_path / "train.tsv").write_text("text\tlabel\n" + "The cat sleeps\tcat\nA dog barks\tdog\n" * 2)
    files = ["--train", str(tmp_path / "train.tsv"), "--dev", str(tmp_path / "train.tsv"), "--out", str(tmp_path / "tuned")]
    assert main(["finetune", str(tmp_path / "out"), *files, "--set", "training.epochs=1", "--set", "length=16"]) == 0
    assert main(["predict", str(tmp_path / "tuned"), str(tmp_path / "train.tsv")]) == 0
