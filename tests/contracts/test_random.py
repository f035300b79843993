"""Random numbers by address: the published mixer, and one number for one address however it is asked for."""

from __future__ import annotations

import numpy as np

from cloze import rng


def test_keys_are_mixed_as_splitmix64_does() -> None:
    """The first outputs of splitmix64 from the state 0 (Vigna, `splitmix64.c`)."""
    states = [(number * 0x9E3779B97F4A7C15) % 2**64 for number in (1, 2, 3)]
    outputs = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]
    assert [rng.mix64(state) for state in states] == outputs
    assert rng.mix_keys(np.array(states, np.uint64), 0).tolist() == outputs


def test_a_number_is_the_same_alone_in_its_row_and_in_any_block() -> None:
    draw = rng.Draw(rng.row_keys(3, "main", 1, items=np.arange(6)))
    bits = draw.bits("mask", 5)
    assert draw.take(np.array([4, 1])).bits("mask", 3).tolist() == bits[[4, 1], :3].tolist()
    rows, columns = np.array([0, 5, 2]), np.array([4, 0, 3])
    assert draw.bits_at("mask", rows, columns).tolist() == bits[rows, columns].tolist()
    assert len(np.unique(bits)) == bits.size
    assert not (bits == draw.bits("corrupt", 5)).any() and not (bits == draw.inside("second").bits("mask", 5)).any()


def test_an_address_is_all_of_its_parts_in_their_order() -> None:
    addresses = [(1, "main", 2), (2, "main", 1), (1, "other", 2), (1, "main", 2, 0), (1, "main")]
    assert len({rng.fold(*address) for address in addresses}) == len(addresses)
    assert rng.fold(1, "main", 2) == rng.fold(1, "main", 2)
