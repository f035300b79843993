"""Items of a second picture behind those of the first, where pictures have different numbers of items."""

from __future__ import annotations

import numpy as np

from cloze.corpus.items.following import of_two_pictures


def test_items_of_the_second_picture_begin_where_those_of_the_first_end() -> None:
    def side(*rows: list[float]) -> dict[str, np.ndarray]:
        width = max(map(len, rows))
        features = np.array([[[x] for x in row] + [[0.0]] * (width - len(row)) for row in rows], np.float32)
        classes = np.array([[int(x) for x in row] + [-1] * (width - len(row)) for row in rows], np.int32)
        length = np.array([len(row) for row in rows], np.int32)
        return {"item_length/regions": length, "item_vectors/regions": features, "items/regions/class": classes}

    found = of_two_pictures(side([1, 2, 3], [4], []), side([5], [6, 7], [8]), "regions")
    assert found["item_length/regions"].tolist() == [4, 3, 1]
    assert found["item_vectors/regions"][..., 0].tolist() == [[1, 2, 3, 5], [4, 6, 7, 0], [8, 0, 0, 0]]
    assert found["items/regions/class"].tolist() == [[1, 2, 3, 5], [4, 6, 7, -1], [8, -1, -1, -1]]
    assert found["items/regions/picture"].tolist() == [[0, 0, 0, 1], [0, 1, 1, -1], [1, -1, -1, -1]]
