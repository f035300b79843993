"""Pages with links: taken out of WikiExtractor's output, kept in a layer of the store, followed by the source."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cloze.corpus import Passages
from cloze.corpus.stores.build import build_store
from cloze.errors import CorpusError, RecipeError
from cloze.knowledge.pages import Span, linked, named, write_pages
from cloze.text import Annotations, TextSpec, WordPiece, train
from cloze.text.annotation.mentions import Mentions

DUMP = """\
<doc id="1" url="https://wiki/1" title="River">
River

A <a href="river">river</a> is water that flows. It ends in a <a href="Lake%20%28water%29">lake</a> or the sea.
Most begin on a <a href="mountain#Slopes">mountain</a>.

</doc>
<doc id="2" url="https://wiki/2" title="Lake (water)">
Lake (water)

A lake is still water &amp; deep. Some &lt;a href="River"&gt;river&lt;/a&gt;s end there.
Mountain
They are old.
</doc>
<doc id="3" url="https://wiki/3" title="Mountain">
Mountain

A mountain is high. Nobody lives on the <a href="Summit">summit</a>.
</doc>
"""


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("pages")
    (place / "dump").write_text(DUMP, encoding="utf-8")
    assert vars(write_pages([place / "dump"], place / "pages")) == {"pages": 3, "links": 3, "elsewhere": 2}
    return place / "pages"


def test_links_leave_their_text_and_become_mentions_of_titles(pages: Path) -> None:
    records = [json.loads(line) for line in (pages / "links.jsonl").read_text(encoding="utf-8").splitlines()]
    found = [(one["text"][span["start"] : span["end"]], span["id"]) for one in records for span in one["spans"]]
    assert found == [
        ("Lake (water)", "#Lake (water)"), ("Mountain", "#Mountain"), ("River", "#River"),
        ("lake", "Lake (water)"), ("mountain", "Mountain"), ("rivers", "River"),
    ]  # fmt: skip
    text = (pages / "pages.txt").read_text(encoding="utf-8")
    assert "<a" not in text and "still water &amp; deep. Some rivers end there." in text
    assert text.count("<doc ") == 3 and text.count("\nRiver\n") == 1


def test_a_line_is_read_with_entities_words_and_names() -> None:
    text, spans = linked('The &quot;<a href="big%20dog_breed">dog</a>s&quot; of <a href="">nobody</a> &lt;3')
    assert text == 'The "dogs" of nobody <3' and spans == [Span(5, 9, "Big dog breed")]
    assert named("a_b  c") == "A b c" and named("") == ""


@pytest.fixture(scope="module")
def store(pages: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    lines = [line for line in (pages / "pages.txt").read_text(encoding="utf-8").splitlines() if not line.startswith("<")]
    tokenizer = train(TextSpec(tokenizer=WordPiece(size=400)), lines)
    annotations = Annotations(layers={"link": Mentions(file=str(pages / "links.jsonl"))})
    return build_store([pages / "pages.txt"], tokenizer, tmp_path_factory.mktemp("store") / "store", annotations=annotations)


def test_the_companion_is_the_beginning_of_a_page_that_the_passage_links_to(store: Any) -> None:
    links = {"It ends in a lake or the sea.": 1, "Most begin on a mountain.": 2, "Some rivers end there.": 0}
    tokenizer, starts = store.tokenizer(), store.sentence_starts
    texts = [joined(tokenizer.decode(store.tokens[a:b])) for a, b in zip(starts, starts[1:], strict=False)]
    assert texts[0] == "river" and {joined(one) for one in links} <= set(texts)
    goal = {texts.index(joined(text)): page for text, page in links.items()}
    bound = Passages(lead=2, links="link", overrun=False).bind(store, seed=3, entry="main")
    seen = set()
    for epoch in range(30):
        plan = bound.plan(epoch, 14)
        rows = bound.read(plan, np.arange(len(plan)), frozenset({"sentence", "linked.tokens", "linked.sentence"}))
        for i in range(len(plan)):
            first = int(plan.passages.sentence[plan.order[i]])
            inside = range(first, first + int(plan.passages.sentences[plan.order[i]]))
            own, other = int(rows["document"][i]), int(rows["linked.document"][i])
            pages = {goal[number] for number in inside if number in goal} or {own}
            assert other in pages
            text = joined(tokenizer.decode(rows["linked.tokens"][i, : rows["linked.length"][i]]))
            behind_title = int(store.document_sentences[other]) + 1
            (number,) = [n for n in (behind_title, behind_title + 1) if texts[n].startswith(text)]
            assert rows["linked.sentence"][i, 0] == (number - first if number in inside else -1)
            seen.add((own, number))
    first = store.document_sentences[:-1] + 1
    for own, other in ((0, 1), (0, 2), (1, 0), (0, 0), (1, 1), (2, 2)):  # links, and passages without one
        assert {(own, first[other]), (own, first[other] + 1)} <= seen
    assert not any(own == 2 and not first[2] <= number for own, number in seen)
    nobody = Passages(lead=2, links="link", overrun=False).bind(store, seed=3, entry="main", subset="held_out")
    assert len(nobody.plan(0, 14)) == 0


def joined(text: str) -> str:
    return "".join(text.lower().split())


def test_what_cannot_be_followed_is_refused(store: Any, tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=r"passages\.links: link; say how many sentences"):
        Passages(links="link")
    with pytest.raises(CorpusError, match="no annotation layer 'names' with labels"):
        Passages(lead=2, links="names").bind(store, seed=0, entry="main")
    (tmp_path / "plain.txt").write_text("No page at all.\n", encoding="utf-8")
    with pytest.raises(CorpusError, match=r"plain\.txt:1: 'No page at all\.' is outside of all pages; expected <doc"):
        write_pages([tmp_path / "plain.txt"], tmp_path / "out")
    (tmp_path / "bare").write_text('<doc title="A">\nA\nOnly text.\n</doc>\n', encoding="utf-8")
    with pytest.raises(CorpusError, match=r"1 pages?, and no link from one to another[\s\S]*wikiextractor --links"):
        write_pages([tmp_path / "bare"], tmp_path / "out")
    (tmp_path / "cut").write_text('<doc title="A">\nA\nOnly text.\n', encoding="utf-8")
    with pytest.raises(CorpusError, match="the page 'A' has no </doc>"):
        write_pages([tmp_path / "cut"], tmp_path / "out")
    assert not (tmp_path / "out").exists()
