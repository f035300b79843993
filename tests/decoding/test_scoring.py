"""Scores of sentences and minimal pairs."""

from __future__ import annotations

import io
import json
import lzma
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from cloze.decoding.reader import Reader
from cloze.decoding.scores.minimal_pairs import MinimalPair, overall, prefer, read_pairs
from cloze.decoding.scores.scoring import method_of, score
from cloze.decoding.scores.windows import Windows
from cloze.errors import TaskError, UserError

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


def test_by_whole_words_the_later_pieces_of_a_word_are_masked_too(checkpoint: Make) -> None:
    loaded = checkpoint("bert")
    text = "the gardens sleeps wakes"
    t, encoded = loaded.tokenizer, loaded.tokenizer.encode(text)
    starts = [*encoded.word_start.tolist(), True]
    assert len(encoded.ids) > sum(encoded.word_start)  # a word of several pieces
    ids = [t.role("[CLS]"), *encoded.ids.tolist(), t.role("[SEP]")]
    expected = 0.0
    for place in range(1, len(ids) - 1):
        end = next(later for later in range(place + 1, len(ids)) if starts[later - 1])
        shown = torch.tensor([ids])
        shown[0, place:end] = t.role("[MASK]")
        with torch.inference_mode():
            hidden = loaded.network(want=frozenset({"hidden"}), tokens=shown)["hidden"][0, place]
            expected += float(loaded.heads["mlm"].head(hidden[None])[0].log_softmax(-1)[ids[place]])
    (one,), (pieces,) = scored(loaded, [text], whole_words=True), scored(loaded, [text])
    assert one.score == pytest.approx(expected, abs=1e-4) and one.tokens == pieces.tokens
    assert abs(one.score - pieces.score) > 1e-3
    windows = scored(loaded, [text * 30], whole_words=True)  # longer than the network reads
    assert windows[0].score < 0


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


WORDS = [(one, other) for one in ("cat", "dog", "mouse") for other in ("sleep", "dream", "bark") * 7]
LONG = " ".join(f"the {one} {other}s in the garden" for one, other in WORDS)


def log_p(loaded: Any, head: str, ids: list[int]) -> torch.Tensor:
    """log P over the vocabulary (L, V) at every place of one row."""
    with torch.inference_mode():
        given = {"order": "left_to_right"} if loaded.order == "left_to_right" else {}
        hidden = loaded.network(want=frozenset({"hidden"}), tokens=torch.tensor([ids]), **given)["hidden"][0]
        found: torch.Tensor = loaded.heads[head].head(hidden).log_softmax(-1)
    return found


@pytest.mark.parametrize("stride", [None, 7, 39])
def test_a_text_ten_times_as_long_as_the_network_equals_a_plain_strided_loop(checkpoint: Make, stride: int | None) -> None:
    loaded = checkpoint("gpt2")
    ids = [loaded.tokenizer.role("[BOS]"), *loaded.tokenizer.encode(LONG).ids.tolist()]
    assert len(ids) > 400
    total, done = 0.0, 1
    for begin in range(0, len(ids), stride or 20):
        window = ids[begin : begin + 40]
        found = log_p(loaded, "lm", window)
        for place in range(max(done, begin + 1), begin + len(window)):
            total += float(found[place - begin - 1, ids[place]])
        done = begin + len(window)
        if done == len(ids):
            break
    (one,) = scored(loaded, [LONG], windows=Windows(stride=stride))
    assert one.score == pytest.approx(total, rel=1e-5) and one.tokens == len(ids) - 1 and one.cut == 0


def test_each_token_of_a_long_text_is_masked_where_it_has_context_on_both_sides(checkpoint: Make) -> None:
    loaded, t = checkpoint("bert"), checkpoint("bert").tokenizer
    ids = t.encode(LONG).ids.tolist()[:100]
    text = t.decode(ids)
    assert t.encode(text).ids.tolist() == ids
    begins, total = [0, 19, 38, 57, 62], 0.0  # of 38 tokens each, as [CLS] and [SEP] take two of 40
    for place, token in enumerate(ids):
        begin = min(begins, key=lambda b: abs(place - b - 18.5))
        row = [t.role("[CLS]"), *ids[begin : begin + 38], t.role("[SEP]")]
        row[place - begin + 1] = t.role("[MASK]")
        total += float(log_p(loaded, "mlm", row)[place - begin + 1, token])
    (one,) = scored(loaded, [text])
    assert one.score == pytest.approx(total, rel=1e-5) and one.tokens == 100


def test_a_frame_stands_around_every_window_and_a_discriminator_judges_all_tokens(checkpoint: Make) -> None:
    loaded = checkpoint("electra")
    reader, head = Reader.of(loaded), loaded.heads["rtd"]
    ids = reader.ids([LONG])[0]
    begins, total = [*range(0, len(ids) - 10, 10), len(ids) - 10], 0.0
    assert begins[-1] - begins[-2] not in (0, 10)
    with torch.inference_mode():
        batch = reader.batch([reader.single_layout([ids[begin : begin + 10]]) for begin in begins])
        original = torch.sigmoid(-head.head(reader.states(batch, {"hidden"})["hidden"])[:, 1:-1, 0]).log()
    for place in range(len(ids)):
        window = min(range(len(begins)), key=lambda n: abs(place - begins[n] - 4.5))
        total += float(original[window, place - begins[window]])
    (one,) = scored(loaded, [LONG], windows=Windows(max_length=12, stride=10))
    assert one.tokens == len(ids) and one.score == pytest.approx(total, rel=1e-5)


def test_windows_that_would_skip_tokens_or_that_no_network_reads_are_refused(checkpoint: Make) -> None:
    for system, most in (("gpt2", 39), ("bert", 38)):
        with pytest.raises(UserError, match=rf"--stride {most + 1}: windows hold .* from 1 to {most}\."):
            scored(checkpoint(system), [LONG], windows=Windows(stride=most + 1))
    with pytest.raises(UserError, match="--stride 0"):
        scored(checkpoint("gpt2"), [LONG], windows=Windows(stride=0))
    with pytest.raises(UserError, match="--max-length 41: this network reads at most 40 tokens"):
        scored(checkpoint("gpt2"), [LONG], windows=Windows(max_length=41))
    with pytest.raises(UserError, match="leaves no room for text"):
        scored(checkpoint("bert"), [LONG], windows=Windows(max_length=2))
    assert Windows(12, 3).size(None) == 12
    with pytest.raises(UserError, match="reads a text of any length at once"):
        Windows(stride=3).size(None)


def test_a_network_that_can_hide_no_token_and_reads_both_ways_is_refused_in_words(checkpoint: Make) -> None:
    loaded = checkpoint("gpt2")
    loaded.order = "open"
    with pytest.raises(UserError, match=r"hide each token behind \[MASK\], which its tokenizer does not have"):
        method_of(loaded)


def test_a_long_sentence_of_a_pair_is_scored_whole(checkpoint: Make) -> None:
    loaded = checkpoint("gpt2")
    method, head = method_of(loaded)
    good, bad = scored(loaded, [LONG + " cat", LONG + " mouse"])
    (found,) = prefer(Reader.of(loaded), head, [MinimalPair("a", LONG + " cat", LONG + " mouse")], method=method)
    assert good.score != bad.score and (found.right, found.ties) == (int(good.score > bad.score), 0)


def test_a_tie_counts_as_a_failure(checkpoint: Make) -> None:
    loaded = checkpoint("bert")
    method, head = method_of(loaded)
    good, bad = scored(loaded, ["the cat sleeps", "a dog barks"])
    first = MinimalPair("a", "the cat sleeps", "a dog barks")
    pairs = [first, MinimalPair("a", "rain", "rain"), MinimalPair("b", first.bad, first.good)]
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
    expected = [MinimalPair("one", "a", "b"), MinimalPair("one", "c", "d"), MinimalPair("two", "e", "f")]
    assert read_pairs(folder) == expected
    assert read_pairs(folder / "one.jsonl") == expected[:2]
    assert read_pairs(folder, limit=1) == [expected[0], expected[2]]
    packed = tmp_path / "packed"
    packed.mkdir()
    with tarfile.open(packed / "pairs.tar.xz", "w:xz") as archive:
        info = tarfile.TarInfo("data/one.jsonl")
        info.size = len(lines(("a", "b")))
        archive.addfile(info, io.BytesIO(lines(("a", "b"))))
    assert read_pairs(packed) == read_pairs(packed / "pairs.tar.xz") == [MinimalPair("one", "a", "b")]


def test_paradigms_whose_names_begin_alike_stay_apart(tmp_path: Path) -> None:
    for name in ("number.en.jsonl", "number.de.jsonl", "fr/gender.json", "es/gender.json"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(lines((name, "b")))
    assert [pair.file for pair in read_pairs(tmp_path)] == ["es/gender", "fr/gender", "number.de", "number.en"]


def test_an_archive_with_another_encoding_is_refused(tmp_path: Path) -> None:
    content = '{"sentence_good": "na\xefve", "sentence_bad": "b"}\n'.encode("latin-1")
    with tarfile.open(tmp_path / "pairs.tar", "w") as archive:
        info = tarfile.TarInfo("one.jsonl")
        info.size = len(content)
        archive.addfile(info, io.BytesIO(content))
    with pytest.raises(TaskError, match=r"pairs\.tar:one\.jsonl:1: byte 0xef is not UTF-8"):
        read_pairs(tmp_path / "pairs.tar")


def test_faulty_pairs_name_file_and_line(tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    path.write_text('{"sentence_good": "a", "sentence_bad": "b"}\n{"sentence_god": "a"}\n')
    with pytest.raises(TaskError, match=r"p\.jsonl:2: no field 'sentence_good'. Did you mean 'sentence_god'"):
        read_pairs(path)
    for good, bad, field in (("a", "", "sentence_bad"), ("  ", "b", "sentence_good")):
        path.write_bytes(lines(("a", "b"), (good, bad)))
        with pytest.raises(TaskError, match=f"p.jsonl:2: an empty '{field}'; expected a sentence in both fields of every pair."):
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
