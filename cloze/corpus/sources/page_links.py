"""Links between the documents of a store, from an annotation layer of titles (`knowledge/pages.py` makes its file)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cloze.corpus.sources.plan import Int64, Split
from cloze.corpus.stores.store import Store
from cloze.errors import CorpusError
from cloze.rng import Draw

#: What stands before the label of a document's own title.
TITLE = "#"
_CHUNK = 1 << 22  # tokens looked at together


class PageLinks:
    """Which links the documents of a part have, and where they lead. `layer` is the name of the layer.

    A document is a page if its first token has a label that begins with `#`: its title. A unit with another label is a link to
    the page of that title. Links to pages of the other part, and of a page to itself, do not count. With `required`, a part
    without links is a `CorpusError`.
    """

    def __init__(self, store: Store, split: Split, layer: str, *, required: bool) -> None:
        names = store.label_names(layer)
        marks, labels = store.layers[layer], store.labels[layer]
        numbers = {name: number for number, name in enumerate(names, 1)}
        title_of = np.array([0, *(numbers.get(TITLE + name, 0) for name in names)])  # the label of the title, by that of a link
        page = np.full(len(names) + 1, -1, np.int64)
        first = np.where(split.stop > split.start, labels[np.minimum(split.start, len(labels) - 1)], 0)
        is_title = np.array([False, *(name.startswith(TITLE) for name in names)])
        self.titled: NDArray[np.bool_] = is_title[first]
        titled_documents = np.flatnonzero(self.titled)
        page[first[titled_documents[::-1]]] = titled_documents[::-1]  # of two pages with one title the first counts
        goal = np.where(title_of > 0, page[title_of], -1)
        places, goals, ends = [], [], np.append(split.stop, 0)  # the last is for what stands before the first document
        for low in range(0, len(labels), _CHUNK):
            at = low + np.flatnonzero(marks[low : low + _CHUNK] == 1)
            leads = goal[labels[at]]
            inside = np.searchsorted(split.start, at, "right") - 1  # the document of each link
            mask = (leads >= 0) & (at < ends[inside]) & (leads != inside)
            places.append(at[mask])
            goals.append(leads[mask])
        self.place: Int64 = np.concatenate(places) if places else np.zeros(0, np.int64)
        self.goal: Int64 = np.concatenate(goals) if goals else np.zeros(0, np.int64)
        if required and not len(self.place):
            raise CorpusError(
                f"{store.path}: no document of this part links to another by the layer {layer!r}.\n"
                f"  Build the store from pages with links: cloze corpus pages DUMP --out PAGES; cloze corpus build "
                f"PAGES/pages.txt --annotate {layer}=mentions:PAGES/links.jsonl --out STORE"
            )

    def drawn(self, start: Int64, stop: Int64, documents: Int64, draw: Draw) -> Int64:
        """For spans of tokens (B,) in `documents` of the part: the document that a link of the span leads to, each link with the
        same probability; the span's own document where there is none."""
        low, high = np.searchsorted(self.place, start, "left"), np.searchsorted(self.place, stop, "left")
        count = high - low
        chosen = low + draw.integers("linked/link", np.maximum(count, 1))
        return np.where(count > 0, np.append(self.goal, -1)[chosen], documents)
