"""TransE's update, fact by fact: the distances of a fact and of its wrong triples, then the steps of those within the margin.

With q = h + r for a replaced tail and q = t - r for a replaced head, the distance of a wrong triple is ‖q - e‖. All distances are
those before the update. Wrong triples are those of `cloze.knowledge.negatives`, from the same random numbers (`cloze.rng.Draw`).
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numba
import numpy as np

from cloze.kernels.compiling import OPTIONS, kernel

_STEP, _M1, _M2 = np.uint64(0x9E3779B9), np.uint64(0x7FEB352D), np.uint64(0x846CA68B)
_S15, _S16, _S32, _LOW = np.uint64(15), np.uint64(16), np.uint64(32), np.uint64(0xFFFFFFFF)
_UNIT = 2.0**-32
_EPSILON = np.float32(1e-12)


@numba.njit(inline="always")
def bits(low: Any, high: Any, column: Any) -> Any:
    """Number `column` of a row's 32-bit words: `cloze.rng.Draw.bits`, one by one."""
    x = (np.uint64(low) + np.uint64(column) * _STEP) & _LOW  # numba computes with 64 bits in any case
    x ^= x >> _S16
    x = (x * _M1 + np.uint64(high)) & _LOW
    x ^= x >> _S15
    x = (x * _M2) & _LOW
    return x ^ (x >> _S16)


@numba.njit(inline="always")
def unknown(word: Any, group: Any, start: Any, less: Any, entities: Any) -> Any:
    """An entity that is not in a group: `cloze.knowledge.negatives.Group.unknown`, one by one."""
    first, last = start[group], start[group + 1]
    nth = np.int64((word * np.uint64(entities - (last - first))) >> _S32)
    low, high = first, last
    while low < high:
        middle = (low + high) >> 1
        if less[middle] <= nth:
            low = middle + 1
        else:
            high = middle
    return nth + low - first


@numba.njit(inline="always")
def negatives(fact: Any, key: Any, facts: Any, entity: Any, on_head: Any) -> None:
    """The wrong triples of a fact: the entity of each, and whether it replaces the head."""
    low, high = key & _LOW, key >> _S32
    salts, counts = facts.salts, facts.counts
    either, heads, tails, one_side, entities = counts[0], counts[1], counts[2], counts[3], counts[4]
    coin = np.float64(bits(low ^ salts[1, 0], high ^ salts[1, 1], 0)) * _UNIT < facts.rate[fact]
    own_head, own_tail = np.int64(facts.tokens[fact, 0]) - 1, np.int64(facts.tokens[fact, 2]) - 1
    for n in range(either + heads + tails + one_side):
        if n < either:
            side = np.float64(bits(low ^ salts[0, 0], high ^ salts[0, 1], n)) * _UNIT < facts.rate[fact]
        else:
            side = coin if n >= either + heads + tails else n < either + heads
        word = bits(low ^ salts[2, 0], high ^ salts[2, 1], n)
        if counts[5] == 0:
            nth = np.int64((word * np.uint64(entities - 1)) >> _S32)
            number = nth + np.int64(nth >= (own_head if side else own_tail))
        elif side:
            number = unknown(word, facts.head_of[fact], facts.head_start, facts.head_less, entities)
        else:
            number = unknown(word, facts.tail_of[fact], facts.tail_start, facts.tail_less, entities)
        entity[n], on_head[n] = number + 1, side


def _distance(width: int, norm: int) -> Any:
    @numba.njit(inline="always")
    def distance(q: Any, e: Any) -> Any:
        total = np.float32(0.0)
        for k in range(width):
            x = q[k] - e[k]
            total += abs(x) if norm == 1 else x * x
        return total if norm == 1 else np.sqrt(total)

    return distance


def _shorten(width: int) -> Any:
    @numba.njit(inline="always")
    def shorten(row: Any) -> None:
        total = np.float32(0.0)
        for k in range(width):
            total += row[k] * row[k]
        scale = np.float32(1.0) / max(np.sqrt(total), _EPSILON)
        for k in range(width):
            row[k] *= scale

    return shorten


@cache
def translation(width: int, norm: int, shortens: bool) -> Any:
    """The kernel for vectors of one padded width, the norm 1 or 2; `shortens`: entities keep the length 1.

    `train(table, facts, order, keys, rates, by, work, totals)`: `table` (V, width) float32 is changed in place; `order` (M,) are
    the facts to do, each with a key for its random numbers and the rate of one wrong triple; `totals` (2,) float64 gains the loss
    and the number of wrong triples that are farther than their fact.
    """
    unit = np.float32(1.0)
    zero = np.float32(0.0)

    distance, shorten = _distance(width, norm), _shorten(width)

    @kernel(**OPTIONS)
    def train(
        table: Any, facts: Any, order: Any, keys: Any, rates: Any, by: Any, work: Any, totals: Any
    ) -> None:
        entity, on_head, far = work.entity, work.on_head, work.distance
        tail_like, head_like, apart = work.rows[0], work.rows[1], work.rows[2]
        to_head, to_relation, to_tail = work.rows[3], work.rows[4], work.rows[5]
        count = len(entity)
        loss = 0.0
        correct = 0
        for item in range(len(order)):
            fact, rate = order[item], rates[item]
            negatives(fact, keys[item], facts, entity, on_head)
            h, r, t = table[facts.tokens[fact, 0]], table[facts.tokens[fact, 1]], table[facts.tokens[fact, 2]]
            for k in range(width):
                tail_like[k] = h[k] + r[k]
                head_like[k] = t[k] - r[k]
            near = distance(tail_like, t)
            broken = 0
            for n in range(count):
                e = table[entity[n]]
                far[n] = distance(head_like, e) if on_head[n] else distance(tail_like, e)
                correct += far[n] > near
                if by + near - far[n] > zero:
                    broken += 1
                    loss += by + near - far[n]
            if broken == 0:
                continue
            # The fact comes nearer, once for each wrong triple that breaks the margin.
            scale = np.float32(broken) * rate
            if norm == 2:
                scale = scale / near if near > zero else zero
            for k in range(width):
                x = tail_like[k] - t[k]
                if norm == 1:
                    x = unit if x > zero else (-unit if x < zero else zero)
                apart[k] = scale * x
                to_head[k], to_relation[k], to_tail[k] = -apart[k], -apart[k], apart[k]
            for n in range(count):
                if not by + near - far[n] > zero:
                    continue
                e = table[entity[n]]
                step = rate
                if norm == 2:
                    step = step / far[n] if far[n] > zero else zero
                if on_head[n]:
                    for k in range(width):
                        x = head_like[k] - e[k]
                        if norm == 1:
                            x = unit if x > zero else (-unit if x < zero else zero)
                        x *= step
                        e[k] -= x
                        to_relation[k] -= x
                        to_tail[k] += x
                else:
                    for k in range(width):
                        x = tail_like[k] - e[k]
                        if norm == 1:
                            x = unit if x > zero else (-unit if x < zero else zero)
                        x *= step
                        e[k] -= x
                        to_relation[k] += x
                        to_head[k] += x
            for k in range(width):
                h[k] += to_head[k]
                r[k] += to_relation[k]
                t[k] += to_tail[k]
            if shortens:
                shorten(h)
                shorten(t)
                for n in range(count):
                    if by + near - far[n] > zero:
                        shorten(table[entity[n]])
        totals[0] += loss
        totals[1] += correct

    return train
