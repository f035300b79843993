"""Scores of sentences and minimal pairs."""

from __future__ import annotations

import io
import json
import lzma
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from cloze.decoding.minimal_pairs import Pair, overall, prefer, read_pairs
from cloze.decoding.reader import Reader
from cloze.decoding.scoring import method_of, score
from cloze.errors import TaskError

Make = Callable[..., Any]
TEXTS = ["the cat sleeps", "a dog barks; the cat wakes", "", "rain", "the cat sleeps"]


def scored(loaded: Any, texts: list[str], **options: Any) -> Any:
    method, head = method_of(loaded)
    return score(Reader.of(loaded), head, texts, method=method, **options)


def test_log_probability_is_the_sum_over_a_causal_pass(checkpoint: Make) -> None:
    loaded = checkpoint("gpt2")
    (one,) = scored(loaded, ["The cat sleeps"])
    ids = torch.tensor([[loaded.tokenizer.role("[BOS]"), *loaded.tokenizer.encode("The cat sleeps").ids.tolist()]])
    with torch.inference_mode():
        hidden = loaded.network(want=frozenset({"hidden"}), tokens=ids, order="left_to_right")["hidden"]
        log_p = loaded.heads["lm"].head(hidden)[0].log_softmax(-1)
    expected = sum(float(log_p[i, ids[0, i + 1]]) for i in range(ids.shape[1] - 1))
    assert one.score == pytest.approx(expected, abs=1e-4) and one.tokens == ids.shape[1] - 1


def test_pseudo_log_likelihood_masks_one_token_at_a_time(checkpoint: Make) -> None:
    loaded = checkpoint("bert")
    (one,) = scored(loaded, ["the cat sleeps"])
    t = loaded.tokenizer
    ids = [t.role("[CLS]"), *t.encode("the cat sleeps").ids.tolist(), t.role("[SEP]")]
    expected = 0.0
    for place in range(1, len(ids) - 1):
        shown = torch.tensor([ids])
        shown[0, place] = t.role("[MASK]")
        with torch.inference_mode():
            hidden = loaded.network(want=frozenset({"hidden"}), tokens=shown)["hidden"][0, place]
            expected += float(loaded.heads["mlm"].head(hidden[None])[0].log_softmax(-1)[ids[place]])
    assert one.score == pytest.approx(expected, abs=1e-4) and one.tokens == len(ids) - 2


def test_a_discriminator_sums_its_belief_that_tokens_are_original(checkpoint: Make) -> None:
    loaded = checkpoint("electra")
    (one,) = scored(loaded, ["the cat sleeps"])
    reader = Reader.of(loaded)
    batch = reader.batch(reader.encode(["the cat sleeps"]))
    with torch.inference_mode():
        logits = loaded.heads["rtd"].head(reader.states(batch, {"hidden"})["hidden"])[0, 1:-1, 0]
    assert one.score == pytest.approx(float(torch.sigmoid(-logits).log().sum()), abs=1e-4)


@pytest.mark.parametrize("system", ["bert", "gpt2", "electra"])
def test_batches_change_nothing_and_equal_texts_tie_exactly(checkpoint: Make, system: str) -> None:
    loaded = checkpoint(system)
    together = scored(loaded, TEXTS)
    assert together[0] == together[4] and together[2].score == 0 and together[2].tokens == 0
    for text, one in zip(TEXTS, together, strict=True):
        (alone,) = scored(loaded, [text], rows=1)
        assert alone.score == pytest.approx(one.score, abs=1e-4) and alone.tokens == one.tokens


def test_progress_counts_every_text_once(checkpoint: Make) -> None:
    for system in ("bert", "gpt2", "electra"):
        done: list[int] = []
        scored(checkpoint(system), TEXTS, report=done.append)
        assert sum(done) == len(TEXTS)


def test_a_text_that_is_too_long_says_how_much_was_cut(checkpoint: Make) -> None:
    for system in ("bert", "gpt2"):
        (one,) = scored(checkpoint(system), ["cat " * 60])
        assert one.cut > 0 and one.tokens <= 39 and np.isfinite(one.score)


def test_a_tie_counts_as_a_failure(checkpoint: Make) -> None:
    loaded = checkpoint("bert")
    method, head = method_of(loaded)
    good, bad = scored(loaded, ["the cat sleeps", "a dog barks"])
    first = Pair("a", "the cat sleeps", "a dog barks")
    pairs = [first, Pair("a", "rain", "rain"), Pair("b", first.bad, first.good)]
    found = prefer(Reader.of(loaded), head, pairs, method=method)
    right = int(good.score > bad.score)
    assert [(p.file, p.pairs, p.right, p.ties) for p in found] == [("a", 2, right, 1), ("b", 1, 1 - right, 0)]
    assert overall(found).accuracy == pytest.approx(1 / 3)


def lines(*pairs: tuple[str, str]) -> bytes:
    return "".join(json.dumps({"sentence_good": g, "sentence_bad": b}) + "\n" for g, b in pairs).encode()


def test_pairs_come_from_a_file_a_folder_or_an_archive(tmp_path: Path) -> None:
    folder = tmp_path / "pairs"
    folder.mkdir()
    (folder / "one.jsonl").write_bytes(lines(("a", "b"), ("c", "d")))
    (folder / "two.jsonl.xz").write_bytes(lzma.compress(lines(("e", "f"))))
    expected = [Pair("one", "a", "b"), Pair("one", "c", "d"), Pair("two", "e", "f")]
    assert read_pairs(folder) == expected
    assert read_pairs(folder / "one.jsonl") == expected[:2]
    assert read_pairs(folder, limit=1) == [expected[0], expected[2]]
    packed = tmp_path / "packed"
    packed.mkdir()
    with tarfile.open(packed / "pairs.tar.xz", "w:xz") as archive:
        info = tarfile.TarInfo("data/one.jsonl")
        info.size = len(lines(("a", "b")))
        archive.addfile(info, io.BytesIO(lines(("a", "b"))))
    assert read_pairs(packed) == read_pairs(packed / "pairs.tar.xz") == [Pair("one", "a", "b")]


def test_faulty_pairs_name_file_and_line(tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    path.write_text('{"sentence_good": "a", "sentence_bad": "b"}\n{"sentence_god": "a"}\n')
    with pytest.raises(TaskError, match=r"p\.jsonl:2: no field 'sentence_good'. Did you mean 'sentence_god'"):
        read_pairs(path)
    path.write_text("{broken\n")
    with pytest.raises(TaskError, match=r"p\.jsonl:1: not JSON"):
        read_pairs(path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(TaskError, match="neither JSON-lines files nor tar archives"):
        read_pairs(tmp_path / "empty")


def test_blimp_is_read_whole(shared_data: Path) -> None:
    pairs = read_pairs(shared_data / "minpairs_en_blimp")
    assert len(pairs) == 67_000 and len({pair.file for pair in pairs}) == 67
    assert sum(pair.good == pair.bad for pair in pairs) == 7
