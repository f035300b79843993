from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cloze.corpus import BoundPassages, Lines, Passages, RowPlan, Sentences, Store, Streams
from cloze.corpus.sources import plan as plans
from cloze.corpus.sources.bound import split_documents
from cloze.errors import CorpusError, RecipeError

ALL = frozenset({"tokens", "length", "document", "sentence", "word_start"})
documents_of = st.lists(st.lists(st.integers(1, 9), max_size=6), min_size=1, max_size=12).filter(
    lambda documents: any(sum(sizes) >= 2 for sizes in documents)
)
relaxed = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def rows_of(bound: BoundPassages, plan: RowPlan, block: int = 7) -> list[dict[str, list[int]]]:
    """Every passage in canonical order, cut to its length, read in blocks of the plan's order."""
    found: dict[int, dict[str, list[int]]] = {}
    for first in range(0, len(plan), block):
        items = np.arange(first, min(first + block, len(plan)))
        rows = bound.read(plan, items, ALL)
        for i, item in enumerate(items):
            n = rows["length"][i]
            found[int(plan.order[item])] = {
                "tokens": rows["tokens"][i, :n].tolist(), "word_start": rows["word_start"][i, :n].tolist(),
                "sentence": rows["sentence"][i, :n].tolist(), "document": int(rows["document"][i]),
            }
    return [found[i] for i in range(len(plan))]


def expected(documents: list[list[int]], max_tokens: int, source: Passages) -> list[dict[str, object]]:
    """The same passages by the plainest code there is: a stream of (token, sentence, document), cut by hand."""
    runs: list[list[tuple[list[tuple[int, int, int]], int]]] = []
    number = sentence_number = 0
    for document, sizes in enumerate(documents):
        units = []
        for size in sizes:
            tokens = [(number + i, sentence_number, document) for i in range(size)]
            units += [(tokens[i : i + max_tokens], document) for i in range(0, size, max_tokens)]
            number += size
            sentence_number += 1
        if units and (not runs or not source.across_documents):
            runs.append([])
        if units:
            runs[-1] += units
    sep = (-1, -1, -1)
    made: list[list[tuple[int, int, int]]] = []
    for run in runs:
        if source.break_at == "anywhere":
            flat: list[tuple[int, int, int]] = []
            for i, (tokens, document) in enumerate(run):
                if source.separator and i and run[i - 1][1] != document:
                    flat.append(sep)
                flat += tokens
            made += [flat[i : i + max_tokens] for i in range(0, len(flat), max_tokens)]
            continue
        row: list[tuple[int, int, int]] = []
        last = None
        for tokens, document in run:
            gap = [sep] if source.separator and row and last != document else []
            if row and (len(row) >= max_tokens if source.overrun else len(row) + len(gap) + len(tokens) > max_tokens):
                made.append(row)
                row, gap = [], []
            row = row + gap + tokens
            last = document
        made.append(row)
    return [
        {
            "tokens": [3 if t < 0 else 10 + t % 900 for t, _, _ in row],
            "word_start": [t < 0 or t % 3 != 1 for t, _, _ in row],
            "sentence": [-1 if t < 0 else s - next(s for t, s, _ in row if t >= 0) for t, s, _ in row],
            "document": next(d for t, _, d in row if t >= 0),
        }
        for row in made
    ]


@pytest.mark.parametrize(
    "source",
    [
        Passages(),
        Passages(overrun=False),
        Passages(break_at="anywhere"),
        Passages(across_documents=True),
        Passages(across_documents=True, separator="[SEP]"),
        Passages(across_documents=True, separator="[SEP]", overrun=False),
        Passages(across_documents=True, break_at="anywhere"),
        Passages(across_documents=True, break_at="anywhere", separator="[SEP]"),
    ],
    ids=["bert", "within", "cut", "across", "separated", "roberta", "stream", "gpt2"],
)
@relaxed
@given(documents=documents_of, max_tokens=st.integers(2, 12), block=st.integers(1, 9))
def test_every_epoch_holds_the_passages_of_the_plainest_code(
    source: Passages, documents: list[list[int]], max_tokens: int, block: int, make_store: object
) -> None:
    store: Store = make_store(documents)  # type: ignore[operator]
    bound = source.bind(store, seed=1, entry="main")
    assert rows_of(bound, bound.plan(3, max_tokens), block) == expected(documents, max_tokens, source)


@relaxed
@given(documents=documents_of, max_tokens=st.integers(2, 12))
def test_short_passages_lose_no_token_and_stay_under_twice_the_room(
    documents: list[list[int]], max_tokens: int, make_store: object
) -> None:
    store: Store = make_store(documents)  # type: ignore[operator]
    bound = Passages(short=0.5).bind(store, seed=1, entry="main")
    plan = bound.plan(0, max_tokens)
    assert [t for row in rows_of(bound, plan) for t in row["tokens"]] == store.tokens.tolist()
    assert plan.passages.length.max() <= 2 * max_tokens


def test_short_passages_are_drawn_anew_each_epoch_at_the_stated_share(make_store: object) -> None:
    store: Store = make_store([[1] * 40] * 600)  # type: ignore[operator]
    bound = Passages(short=0.1).bind(store, seed=1, entry="main")
    first, second = bound.plan(0, 40), bound.plan(1, 40)
    whole = [np.bincount(p.passages.document, minlength=600) == 1 for p in (first, second)]
    for share in (1 - whole[0].mean(), 1 - whole[1].mean()):
        assert abs(share - 0.1) < 0.04  # a target of 40 leaves one passage; 3 standard deviations are .037
    assert (whole[0] != whole[1]).any()


def test_rows_say_how_long_their_passage_was_to_be(make_store: object) -> None:
    store: Store = make_store([[3] * 40 for _ in range(300)])  # type: ignore[operator]
    bound = Passages(short=0.5).bind(store, seed=1, entry="main")
    plan = bound.plan(0, 30)
    rows = bound.read(plan, np.arange(len(plan)), frozenset({"target_length"}))
    target, last = rows["target_length"], plan.passages.stop[plan.order] % 120 == 0
    assert (np.maximum(-(-target // 3) * 3, 3) == rows["length"])[~last].all()
    by_document = [set(target[rows["document"] == d].tolist()) for d in range(300)]
    assert max(map(len, by_document)) == 1 and sum(seen == {30} for seen in by_document) < 200
    plain = Passages().bind(store, seed=1, entry="main")
    assert set(plain.read(plain.plan(0, 30), np.arange(5), frozenset({"target_length"}))["target_length"]) == {30}


def test_short_passages_may_be_drawn_one_by_one(make_store: object) -> None:
    store: Store = make_store([[1] * 2000 for _ in range(30)])  # type: ignore[operator]
    bound = Passages(short=0.2, short_by="passage").bind(store, seed=1, entry="main")
    plan = bound.plan(0, 40)
    rows = bound.read(plan, np.arange(len(plan)), frozenset({"target_length"}))
    short = rows["target_length"] < 40
    assert abs(short.mean() - 0.2 * 38 / 39) < 4 * np.sqrt(0.16 / len(short))
    assert set(rows["target_length"]) == set(range(2, 41))
    shares = [short[rows["document"] == d].mean() for d in range(30)]
    assert min(shares) > 0 and max(shares) < 0.5  # by document every share is 0 or 1
    assert rows_of(bound, bound.plan(0, 40)) == rows_of(bound, plan)
    assert (bound.plan(1, 40).start[:50] != plan.start[:50]).any()


def test_epochs_are_permuted_and_repeat_exactly(make_store: object) -> None:
    store: Store = make_store([[3, 4, 5]] * 50)  # type: ignore[operator]
    bound = Passages().bind(store, seed=5, entry="main")
    again = Passages().bind(store, seed=5, entry="main")
    one, two = bound.plan(0, 8), bound.plan(1, 8)
    assert sorted(one.order.tolist()) == list(range(len(one)))
    assert (one.order != two.order).any()
    assert (one.order == again.plan(0, 8).order).all()
    assert (one.order != Passages().bind(store, seed=6, entry="main").plan(0, 8).order).any()
    assert one.passages is two.passages  # nothing is cut twice


def test_static_passages_keep_their_address_in_every_epoch(make_store: object) -> None:
    store: Store = make_store([[3, 4, 5]] * 50)  # type: ignore[operator]
    for static in (True, False):
        bound = Passages(static=static, short=0.3).bind(store, seed=5, entry="main")
        keys = []
        for epoch in (0, 1):
            plan = bound.plan(epoch, 8)
            place = np.argsort(plan.order)  # where passage 0, 1, 2 … stands in this epoch
            keys.append(bound.draw(plan, place).uniform("mask")[:50].tolist())
        assert (keys[0] == keys[1]) is static


def test_a_row_does_not_depend_on_its_block(make_store: object) -> None:
    store: Store = make_store([[3, 4, 5, 20], [7], [2, 2, 2]] * 9)  # type: ignore[operator]
    bound = Passages(short=0.2).bind(store, seed=5, entry="main")
    plan = bound.plan(2, 6)
    want = ALL | {f"{c}.{f}" for c in ("distractor", "next") for f in ALL}
    block = bound.read(plan, np.arange(len(plan)), want)
    for item in range(len(plan)):
        alone = bound.read(plan, np.array([item]), want)
        assert set(alone) == set(block) == want
        for name in want:
            prefix = name.rpartition(".")[0]
            n = int(alone[f"{prefix}.length" if prefix else "length"][0])
            end = n if alone[name].ndim == 2 else None
            assert alone[name][0, :end].tolist() == block[name][item, :end].tolist() if end is not None else True
            if end is None:
                assert alone[name][0] == block[name][item]


def test_distractors_come_from_another_document_and_start_a_sentence(make_store: object) -> None:
    store: Store = make_store([[3, 4, 5], [6, 2], [1, 1, 9]])  # type: ignore[operator]
    starts = {10 + s: d for d in range(3) for s in store.sentence_starts[
        store.document_sentences[d] : store.document_sentences[d + 1]].tolist()}
    bound = Passages().bind(store, seed=5, entry="main")
    seen = set()
    for epoch in range(40):
        plan = bound.plan(epoch, 5)
        rows = bound.read(plan, np.arange(len(plan)), frozenset({"distractor.tokens"}))
        for i in range(len(plan)):
            first = int(rows["distractor.tokens"][i, 0])
            assert starts[first] == rows["distractor.document"][i] != rows["document"][i]
            assert 1 <= rows["distractor.length"][i] <= 5
            seen.add(first)
    assert seen == set(starts)


def test_distractors_may_come_from_documents_in_proportion_to_their_sentences(make_store: object) -> None:
    sizes = [1, 2, 30, 7]
    store: Store = make_store([[4] * size for size in sizes])  # type: ignore[operator]
    want = frozenset({"distractor.document"})
    for how, weights in (("sentences", sizes), ("documents", [1] * 4)):
        bound = Passages(distractor=how, short=0.9, short_by="passage").bind(store, seed=1, entry="main")
        own, other = [], []
        for epoch in range(80):
            plan = bound.plan(epoch, 8)
            rows = bound.read(plan, np.arange(len(plan)), want)
            own.append(rows["document"])
            other.append(rows["distractor.document"])
        mine, theirs = np.concatenate(own), np.concatenate(other)
        assert (mine != theirs).all()
        found = np.bincount(theirs[mine == 2], minlength=4) / (mine == 2).sum()
        expected = np.array([weights[0], weights[1], 0, weights[3]]) / (sum(weights) - weights[2])
        assert np.abs(found - expected).max() < 0.05


def test_the_lead_is_a_sentence_from_the_beginning_of_the_document_and_tells_its_place_in_the_passage(
    make_store: object,
) -> None:
    store: Store = make_store([[3, 4, 5, 2], [6], [1, 1, 9]])  # type: ignore[operator]
    bound = Passages(lead=2, overrun=False).bind(store, seed=5, entry="main")
    seen = set()
    for epoch in range(40):
        plan = bound.plan(epoch, 7)
        rows = bound.read(plan, np.arange(len(plan)), frozenset({"sentence", "lead.tokens", "lead.sentence"}))
        for i in range(len(plan)):
            size, own = rows["lead.length"][i], int(rows["document"][i])
            lead, passage = rows["lead.tokens"][i, :size].tolist(), rows["tokens"][i, : rows["length"][i]].tolist()
            first = store.document_sentences[own]
            number = int(np.searchsorted(store.sentence_starts, lead[0] - 10))
            assert first <= number < min(first + 2, store.document_sentences[own + 1])
            assert lead == list(range(lead[0], lead[0] + min(int(np.diff(store.sentence_starts)[number]), 7)))
            inside = [rows["sentence"][i, passage.index(token)] for token in lead if token in passage]
            assert set(inside) == ({rows["lead.sentence"][i, 0]} if lead[0] in passage else set())
            assert (rows["lead.sentence"][i, 0] < 0) == (lead[0] not in passage)
            seen.add(number)
    assert seen == {0, 1, 4, 5, 6}
    with pytest.raises(RecipeError, match=r"passages\.lead: 2; expected the number of sentences that begin a document"):
        Passages(lead=2, across_documents=True)


def test_distractors_avoid_every_document_that_a_passage_spans(make_store: object) -> None:
    store: Store = make_store([[2], [2], [2], [2], [2], [2]])  # type: ignore[operator]
    bound = Passages(across_documents=True).bind(store, seed=5, entry="main")
    for epoch in range(20):
        plan = bound.plan(epoch, 4)
        rows = bound.read(plan, np.arange(len(plan)), frozenset({"distractor.tokens"}))
        distance = rows["distractor.document"] - rows["document"]
        assert ((distance < 0) | (distance > 1)).all()


def test_distractors_of_a_part_stay_in_that_part(make_store: object) -> None:
    store: Store = make_store([[3, 3]] * 40)  # type: ignore[operator]
    for part in ("train", "held_out"):
        bound = Passages().bind(store, seed=1, entry="main", held_out=0.3, subset=part)  # type: ignore[arg-type]
        plan = bound.plan(0, 6)
        rows = bound.read(plan, np.arange(len(plan)), frozenset({"distractor.tokens"}))
        inside = split_documents(40, 0.3)[part]
        assert set(rows["distractor.document"].tolist()) | set(rows["document"].tolist()) <= set(inside.tolist())


def test_one_document_has_no_distractor_and_the_message_says_what_to_do(make_store: object) -> None:
    store: Store = make_store([[3, 4]])  # type: ignore[operator]
    bound = Passages().bind(store, seed=1, entry="main")
    plan = bound.plan(0, 4)
    with pytest.raises(CorpusError, match="at least two documents"):
        bound.read(plan, np.arange(len(plan)), frozenset({"distractor.tokens"}))


def test_next_is_the_following_passage_of_the_same_document_or_empty(make_store: object) -> None:
    store: Store = make_store([[4, 4, 4], [3]])  # type: ignore[operator]
    bound = Passages().bind(store, seed=1, entry="main")
    plan = bound.plan(0, 4)
    rows = bound.read(plan, np.argsort(plan.order), frozenset({"next.tokens"}))
    assert rows["next.length"].tolist() == [4, 4, 0, 0]
    assert rows["next.tokens"][0, :4].tolist() == [14, 15, 16, 17]


def test_held_out_documents_are_the_same_for_every_seed_and_disjoint() -> None:
    parts = split_documents(5000, 0.02)
    assert not set(parts["train"].tolist()) & set(parts["held_out"].tolist())
    assert len(parts["train"]) + len(parts["held_out"]) == 5000
    assert 70 < len(parts["held_out"]) < 130
    assert [len(split_documents(n, 1e-6)["held_out"]) for n in (19, 20)] == [0, 2]
    assert len(split_documents(30, 0.999)["train"]) >= 1


def test_a_corpus_without_two_tokens_in_a_row_is_refused(make_store: object) -> None:
    store: Store = make_store([[1], [], [1]])  # type: ignore[operator]
    with pytest.raises(CorpusError, match="smaller than one example"):
        Passages().bind(store, seed=1, entry="main")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [({"short": 2.0}, "not a share"), ({"separator": "[SEP]"}, "across_documents"),
     ({"short": 0.1, "break_at": "anywhere"}, "whole sentences"), ({"break_at": "word"}, "sentence or anywhere"),
     ({"short_by": "row"}, "document or passage"), ({"distractor": "words"}, "documents or sentences")],
)
def test_impossible_arguments_are_refused(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        Passages(**arguments)  # type: ignore[arg-type]


def test_unknown_separators_and_too_little_room_are_refused(make_store: object) -> None:
    store: Store = make_store([[4, 4]])  # type: ignore[operator]
    with pytest.raises(CorpusError, match="needs the special token '.EOS.'"):
        Passages(across_documents=True, separator="[EOS]").bind(store, seed=1, entry="main")
    with pytest.raises(RecipeError, match="can hold"):
        Passages().bind(store, seed=1, entry="main").plan(0, 1)


def test_a_bound_source_survives_pickling(make_store: object, tmp_path: Path) -> None:
    store: Store = make_store([[3, 4, 5]] * 5)  # type: ignore[operator]
    bound = Passages(short=0.1).bind(store, seed=1, entry="main")
    twin = pickle.loads(pickle.dumps(bound))
    plan = bound.plan(0, 6)
    assert (twin.read(twin.plan(0, 6), np.arange(3), ALL)["tokens"] == bound.read(plan, np.arange(3), ALL)["tokens"]).all()


@pytest.mark.parametrize("chunk", [1, 2, 5])
@pytest.mark.parametrize(
    ("across", "how"),
    [(False, {}), (True, {}), (False, {"overrun": True}), (True, {"overrun": True}), (True, {"break_at": "anywhere"}),
     (False, {"short": 0.5, "short_by": "passage"}), (False, {"put_back": 0.5}), (False, {"put_back": 0.5, "short": 0.3})],
)
def test_passages_do_not_depend_on_how_many_sentences_are_laid_out_at_a_time(
    make_store: object, monkeypatch: pytest.MonkeyPatch, chunk: int, across: bool, how: dict[str, object]
) -> None:
    rng = np.random.default_rng(3)
    store: Store = make_store([rng.integers(1, 12, rng.integers(0, 7)).tolist() for _ in range(40)])  # type: ignore[operator]
    put_back = float(how.get("put_back", 0.0))  # type: ignore[arg-type]
    given = {name: value for name, value in how.items() if name != "put_back"}
    source = Passages(length=8, across_documents=across, separator="[SEP]" if across else None, **given)  # type: ignore[arg-type]
    made = []
    for size in (1 << 16, chunk):
        monkeypatch.setattr("cloze.corpus.sources.plan._CHUNK", size)
        cut = source.bind(store, seed=1, entry="main", put_back=put_back).plan(0, 8).passages
        made.append({name: None if value is None else value.tolist() for name, value in vars(cut).items()})
    assert made[0] == made[1] and len(made[0]["start"]) > 40


@pytest.mark.parametrize("overrun", [True, False])
def test_a_chunk_ends_before_the_first_passage_that_reaches_its_end_even_if_a_later_one_stops_earlier(
    make_store: object, monkeypatch: pytest.MonkeyPatch, overrun: bool
) -> None:
    rng = np.random.default_rng(3)
    store: Store = make_store([rng.integers(1, 6, 200).tolist() for _ in range(5)])  # type: ignore[operator]
    source, cuts = Passages(length=60, short=0.5, short_by="passage", overrun=overrun), []
    for size in (1 << 16, 33):
        monkeypatch.setattr("cloze.corpus.sources.plan._CHUNK", size)
        passages = source.bind(store, seed=2, entry="main", put_back=0.6).plan(0, 60).passages
        cuts.append([(passages.start.tolist(), passages.stop.tolist())])
    assert cuts[0] == cuts[1] and (np.diff(passages.stop) < 0).any()


def test_planning_takes_less_than_half_a_byte_of_memory_per_token(tmp_path: Path) -> None:
    import tracemalloc
    from types import SimpleNamespace

    starts = np.arange(400_001, dtype=np.int64) * 60
    store = SimpleNamespace(sentence_starts=starts, document_sentences=np.arange(10_001) * 40, languages=(), pairs=False)
    split = plans.Split.of(store, np.arange(10_000), joined=False, separated=False)  # type: ignore[arg-type]
    tracemalloc.start()
    plans.cut_by_sentence(store, split, 128, None, overrun=False)  # type: ignore[arg-type]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    fixed = 20_000_000  # the sentences laid out at a time, whatever the size of the store
    assert peak < fixed + 0.5 * starts[-1]


def test_a_bound_source_travels_without_its_arrays(make_store: object) -> None:
    store: Store = make_store([[4, 3], [5, 2]] * 500)  # type: ignore[operator]
    for kind in (Passages, Sentences, Lines, Streams):
        bound = kind(length=8).bind(store, seed=4, entry="main", **({"lanes": 2} if kind is Streams else {}))
        plan = bound.plan(1, 8)
        sent = pickle.dumps(bound)
        assert len(sent) < 2000
        there = pickle.loads(sent)
        items = np.arange(len(plan))
        want = frozenset({"tokens"})
        assert np.array_equal(there.read(there.plan(1, 8), items, want)["tokens"], bound.read(plan, items, want)["tokens"])
