"""Visual words with the centroids as embeddings, from the vectors of frames to a network that keeps them (VideoBERT)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from cloze.checkpoint.build import load_checkpoint
from cloze.cli.main import main
from cloze.corpus.items.visual_words import VISUAL_WORDS, VisualWords

CLIPS = 12
SMALL = ["--size", "tiny", "--budget", "2steps", "--set", "training.batch=4", "--device", "cpu"]


def table(folder: Path) -> Tensor:
    loaded: Any = load_checkpoint(folder)
    return loaded.network.embeddings.tokens.weight.detach()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small `bert`, narrated `clips.npz` whose vectors have its width, `words` from both, and a store for each."""
    folder = tmp_path_factory.mktemp("films")
    foods, places = ("steak", "rice", "beans"), ("grill", "plate")
    texts = [f"put the {foods[number % 3]} on the {places[number % 2]}" for number in range(CLIPS)]
    (folder / "text.txt").write_text("\n\n".join(texts * 3))
    assert main(["pretrain", "bert", "--corpus", str(folder / "text.txt"), *SMALL, "--out", str(folder / "bert")]) == 0
    keys, width = [f"film{number // 3}/{number % 3}" for number in range(CLIPS)], table(folder / "bert").shape[1]
    vectors = np.random.default_rng(0).normal(size=(3 * CLIPS, width)).astype(np.float32)
    np.savez(folder / "clips.npz", keys=np.array(keys), offsets=3 * np.arange(CLIPS + 1), features=vectors)
    lines = [json.dumps({"image": key, "text": text}) for key, text in zip(keys, texts, strict=True)]
    (folder / "captions.jsonl").write_text("\n".join(lines))
    tree = ["--branches", "2", "--levels", "2"]
    assert main(["vocab", "visual", str(folder / "clips.npz"), "--init", str(folder / "bert"), *tree, "--out",
                 str(folder / "words")]) == 0
    assert main(["vocab", "assign", str(folder / "words"), str(folder / "clips.npz"), "--out", str(folder / "w.npz")]) == 0
    build = ["corpus", "build", str(folder / "captions.jsonl"), "--items", f"frames={folder / 'w.npz'}"]
    assert main([*build, "--tokenizer", str(folder / "words"), "--out", str(folder / "store")]) == 0
    return folder


def test_the_rows_of_visual_words_are_their_centroids_and_that_of_the_border_is_the_mean(folder: Path) -> None:
    before, after, words = table(folder / "bert"), table(folder / "words"), VisualWords.load(folder / "words" / VISUAL_WORDS)
    size = load_checkpoint(folder / "bert").tokenizer.size
    assert len(after) == size + 1 + 4 and torch.equal(after[:size], before[:size])
    torch.testing.assert_close(after[size], before[:size].mean(0))
    assert torch.equal(after[size + 1 :], torch.from_numpy(words.centres[-1]).float())
    bias = load_checkpoint(folder / "words").heads["token_prediction"].state_dict()["head.bias"]
    assert len(bias) == len(after) and not bias[size:].any()


def test_videobert_keeps_the_embeddings_of_such_a_checkpoint(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = folder / "kept"
    given = ["--init", str(folder / "words"), "--corpus", str(folder / "store"), *SMALL, "--out", str(out)]
    assert main(["pretrain", "videobert", *given]) == 0
    assert "learn, too" not in capsys.readouterr().out
    assert torch.equal(table(out), table(folder / "words"))
    before, after = (load_checkpoint(folder / name).network.layers[0].inner.weight for name in ("words", "kept"))
    assert not torch.equal(before, after)


@pytest.mark.parametrize(("init", "why"), [
    ([], "they start at random"), (["--init", "bert"], "has none for 5 tokens of the text"),
])
def test_embeddings_that_would_stay_random_learn_and_this_is_said(
    init: list[str], why: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, given = folder / f"learns{len(init)}", [str(folder / word) if word == "bert" else word for word in init]
    assert main(["pretrain", "videobert", *given, "--corpus", str(folder / "store"), *SMALL, "--out", str(out)]) == 0
    said = capsys.readouterr().out
    assert "the embeddings of main learn, too, since" in said and f"{why} (--as-published keeps them as they are)." in said
    assert "all_but" not in (out / "cloze" / "recipe.yaml").read_text(encoding="utf-8")


def test_vectors_of_another_width_and_two_vocabularies_are_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.savez(folder / "narrow.npz", keys=np.array(["a"]), offsets=np.array([0, 3]), features=np.eye(3, dtype=np.float32))
    bert = str(folder / "bert")
    assert main(["vocab", "visual", str(folder / "narrow.npz"), "--init", bert, "--out", str(folder / "no")]) == 2
    error = capsys.readouterr().err
    assert f"rows of {table(folder / 'bert').shape[1]} numbers for its tokens, and the vectors of the items have 3" in error
    assert f"or add the words to its vocabulary alone: --tokenizer {bert}" in error and not (folder / "no").exists()
    both = ["--init", bert, "--tokenizer", bert, "--out", str(folder / "no")]
    assert main(["vocab", "visual", str(folder / "narrow.npz"), *both]) == 2
    assert "the tokenizer is that of the checkpoint. Leave out --tokenizer." in capsys.readouterr().err
