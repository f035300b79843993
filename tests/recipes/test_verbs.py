"""fill, generate, score and embed on a checkpoint of every kind that recipes make: they work, or one line says what does."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from typing import Any

import pytest

from cloze.checkpoint.build import build_step, load_checkpoint
from cloze.checkpoint.publish import Publisher
from cloze.cli.main import main
from cloze.decoding.reader import Reader

from .test_every_recipe import opened

WORKS = ""
CONTINUE = "To continue a text: cloze generate"
ANSWER = "To have it answer a text: cloze generate"
GAP = "To fill a gap: cloze fill"
JUDGE = "To judge the tokens of a text: cloze score"
GENERATOR = "its generator does"

#: What fill, generate and score do with a checkpoint of each recipe: the way out that they name where they make no sense.
VERBS = {
    "albert-base": (WORKS, GAP, WORKS),
    "bart-base": (ANSWER, WORKS, WORKS),
    "bert": (WORKS, GAP, WORKS),
    "electra-small": (GENERATOR, JUDGE, WORKS),
    "ernie-thu": (WORKS, GAP, WORKS),
    "gpt-bert": (WORKS, WORKS, WORKS),
    "gpt2": (CONTINUE, WORKS, WORKS),
    "infoword": (WORKS, GAP, WORKS),
    "knowbert": (WORKS, GAP, WORKS),
    "mass": (ANSWER, WORKS, WORKS),
    "modern": (WORKS, GAP, WORKS),
    "nezha": (WORKS, GAP, WORKS),
    "spanbert": (WORKS, GAP, WORKS),
    "t5-small": (ANSWER, WORKS, WORKS),
    "transformer-xl": (CONTINUE, WORKS, WORKS),
    "unilm": (WORKS, WORKS, WORKS),
    "xlm-15-mlm": (WORKS, GAP, WORKS),
    "xlnet-base": (WORKS, WORKS, WORKS),
    "zen": (WORKS, GAP, WORKS),
}
CHINESE = ("nezha", "zen")
ENCODERS = ("bart-base", "mass", "t5-small")
Capture = pytest.CaptureFixture[str]


@pytest.fixture(params=sorted(VERBS), scope="module")
def checkpoint(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """A recipe, and the run folder of its untrained network."""
    name, place = request.param, tmp_path_factory.mktemp(request.param)
    recipe, stores, tokenizer, tables = opened(name, place)
    store = next(iter(stores.values()))
    step = build_step(recipe, vocab_size=tokenizer.size, tables=tables, store=store, tokenizer=tokenizer)
    Publisher(recipe, tokenizer, tables, languages=tuple(store.languages))(place / "run", step.state_dict(), 0)
    return name, place / "run"


def lines(capsys: Capture, *arguments: str | Path) -> list[dict[str, Any]]:
    """What a verb prints with --json; it must succeed."""
    capsys.readouterr()
    code = main([*map(str, arguments), "--json"])
    captured = capsys.readouterr()
    assert code == 0, captured.err
    return [json.loads(line) for line in captured.out.splitlines()]


def repeated(capsys: Capture, *arguments: str | Path) -> list[dict[str, Any]]:
    """`lines`, which must be the same a second time."""
    printed = lines(capsys, *arguments)
    assert lines(capsys, *arguments) == printed
    return printed


def refused(capsys: Capture, way_out: str, *arguments: str | Path) -> None:
    """A verb must fail with exit code 2, nothing on the output and a way out."""
    capsys.readouterr()
    assert main([str(argument) for argument in arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and way_out in captured.err and "Traceback" not in captured.err
    assert captured.err.startswith(f"cloze {arguments[0]}: ") and len(captured.err.splitlines()) == 2


def texts(name: str) -> list[str]:
    return ["北京是一座大城市。", "水"] if name in CHINESE else ["The river rose all night.", "rain"]


def test_embed_works_everywhere(checkpoint: tuple[str, Path], capsys: Capture) -> None:
    name, run = checkpoint
    found = repeated(capsys, "embed", run, *texts(name))
    width = load_checkpoint(run).network.width
    assert [len(one["vector"]) for one in found] == [width, width]
    assert all(math.isfinite(number) for one in found for number in one["vector"])
    assert found[0]["vector"] != found[1]["vector"]
    assert lines(capsys, "embed", run, *texts(name), "--pooling", "summary")[0]["vector"] != found[0]["vector"]
    assert lines(capsys, "embed", run, *texts(name), "--layer", "0")[0]["vector"] != found[0]["vector"]


def test_fill_fills_or_says_what_does(checkpoint: tuple[str, Path], capsys: Capture) -> None:
    name, run = checkpoint
    way_out = VERBS[name][0]
    text = "北京是一[MASK]大城市。" if name in CHINESE else "The river [MASK] all night."
    if way_out:
        refused(capsys, way_out, "fill", run, text)
        return
    (filled,) = repeated(capsys, "fill", run, text, "--top", "3")
    (candidates,) = filled["masks"]
    shares = [one["probability"] for one in candidates]
    assert len(shares) == 3 and shares == sorted(shares, reverse=True) and 0 < sum(shares) <= 1


def test_generate_writes_or_says_what_does(checkpoint: tuple[str, Path], capsys: Capture) -> None:
    name, run = checkpoint
    way_out, prompt = VERBS[name][1], texts(name)[0]
    if way_out:
        refused(capsys, way_out, "generate", run, prompt)
        return
    for how in (["--greedy"], ["--beams", "2"], ["--seed", "4"]):
        writes = repeated if "--seed" in how else lines  # what is drawn is drawn again
        found = writes(capsys, "generate", run, prompt, "rain", "--tokens", "4", *how)
        assert [one["prompt"] for one in found] == [prompt, "rain"]
        assert all(len(one["ids"]) <= 4 and one["stopped"] in ("end", "count") for one in found)


def test_score_scores_or_says_what_does(checkpoint: tuple[str, Path], capsys: Capture) -> None:
    name, run = checkpoint
    way_out = VERBS[name][2]
    if way_out:
        refused(capsys, way_out, "score", run, *texts(name))
        return
    given = texts(name)
    if name in ENCODERS:
        refused(capsys, "Write TEXT<tab>TARGET", "score", run, *given)
        given = [f"rain\t{text}" for text in given]
    found = repeated(capsys, "score", run, *given)
    assert all(math.isfinite(one["score"]) and one["score"] < 0 and one["tokens"] > 0 for one in found)
    assert found[0]["tokens"] > found[1]["tokens"]


def test_what_the_folder_does_not_say_to_transformers_is_said(checkpoint: tuple[str, Path]) -> None:
    name, run = checkpoint
    remarks = " ".join(json.loads((run / "cloze" / "network.json").read_text())["remarks"])
    expected = {
        "ernie-thu": "the network is 'knowledge_fusion', and transformers has no class of that kind",
        "gpt-bert": "transformers has no architecture for this network",
        "infoword": "contrast: transformers' BERT has no such head",
        "knowbert": "the network is 'linked', and transformers has no class of that kind",
        "spanbert": "span_boundary: transformers' BERT has no such head",
        "unilm": "transformers' BERT has no class with both token_prediction and such a head",
        "xlm-15-mlm": "transformers adds a language's vector only where it is given `langs`",
        "zen": "the network is 'zen', and transformers has no class of that kind",
    }
    assert expected.get(name, "") in remarks and (remarks == "" or name in expected)
    assert name != "unilm" or "transformers' BERT does not read in the order source_to_target; cloze does." in remarks


@pytest.mark.parametrize("checkpoint", ["gpt-bert"], indirect=True)
def test_what_reads_in_two_orders_scores_in_both(checkpoint: tuple[str, Path], capsys: Capture) -> None:
    run, text = checkpoint[1], texts("gpt-bert")[0]
    (masked,) = lines(capsys, "score", run, text)
    (causal,) = lines(capsys, "score", run, text, "--order", "left_to_right")
    assert (masked["method"], causal["method"]) == ("pseudo_log_likelihood", "log_probability")
    assert masked["tokens"] == causal["tokens"] and masked["score"] != causal["score"]
    refused(capsys, "Write --order open", "score", run, text, "--order", "right_to_left")


@pytest.mark.parametrize("checkpoint", ["xlm-15-mlm"], indirect=True)
def test_the_language_of_a_text_can_be_said(checkpoint: tuple[str, Path], capsys: Capture) -> None:
    run, (text, _) = checkpoint[1], texts("xlm-15-mlm")
    first, second = (lines(capsys, "embed", run, text, "--language", number)[0]["vector"] for number in "01")
    assert first == lines(capsys, "embed", run, text)[0]["vector"] != second
    assert lines(capsys, "score", run, text, "--language", "1")[0]["score"] != lines(capsys, "score", run, text)[0]["score"]
    refused(capsys, "It knows: english", "fill", run, "a [MASK]", "--language", "fr")


@pytest.mark.parametrize("checkpoint", ["zen"], indirect=True)
def test_a_lexicon_is_kept_with_the_checkpoint(checkpoint: tuple[str, Path], capsys: Capture, tmp_path: Path) -> None:
    run, loaded = checkpoint[1], load_checkpoint(checkpoint[1])
    lexicon = loaded.tables["ngrams"]
    assert lexicon.size == loaded.network.ngrams.tokens.num_embeddings > 1
    sentence = loaded.tokenizer.decode([i for i in lexicon.grams[1].tolist() if i >= 0])
    reader = Reader.of(loaded)
    batch = reader.batch(reader.encode([sentence]))
    assert int(batch["items/ngram"].max()) > 0 and len(batch["links/ngram"]) > 1
    copied = shutil.copytree(run, tmp_path / "copy")
    assert lines(capsys, "embed", copied, sentence) == lines(capsys, "embed", run, sentence)
    (copied / "cloze" / "tables" / "ngrams.safetensors").unlink()
    refused(capsys, "copy the whole folder again", "embed", copied, sentence)
