"""Vector registers in compiled code: a numba type that holds `LANES` floats, and the few operations the kernels need.

The compiler vectorises plain loops over one row by itself. Where several rows must stay in registers while a loop over
other rows runs, it does not; there the kernels say so with these. `load` and `store` take a row of a contiguous float32
matrix and a column that is a multiple of `LANES`.
"""

from __future__ import annotations

from typing import Any

import llvmlite.binding as llvm
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, models, register_model

#: Floats per register: 16 where the processor has AVX-512, else 8.
LANES = 16 if llvm.get_host_cpu_features().get("avx512f") else 8
_VECTOR = ir.VectorType(ir.FloatType(), LANES)
_FLAGS = ("fast",)


class Lanes(types.Type):
    """One register."""

    def __init__(self) -> None:
        super().__init__(name=f"Lanes({LANES})")


_LANES = Lanes()


@register_model(Lanes)
class _Model(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, _VECTOR)


def _address(context: Any, builder: Any, matrix: Any, array: Any, row: Any, column: Any) -> Any:
    """A pointer to the register-wide piece of a matrix: no bounds, no negative indices."""
    made = context.make_array(matrix)(context, builder, array)
    stride = cgutils.unpack_tuple(builder, made.strides)[0]
    start = builder.ptrtoint(made.data, stride.type)
    start = builder.add(start, builder.mul(row, stride))
    start = builder.add(start, builder.mul(column, ir.Constant(stride.type, 4)))
    return builder.inttoptr(start, _VECTOR.as_pointer())


@intrinsic
def load(typing: Any, matrix: Any, row: Any, column: Any) -> Any:
    """matrix[row, column : column + LANES]."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.load(_address(context, builder, signature.args[0], *arguments), align=4)

    return _LANES(matrix, types.int64, types.int64), generate


@intrinsic
def store(typing: Any, matrix: Any, row: Any, column: Any, value: Any) -> Any:
    """matrix[row, column : column + LANES] = value."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = _address(context, builder, signature.args[0], *arguments[:3])
        builder.store(arguments[3], pointer, align=4)
        return context.get_dummy_value()

    return types.void(matrix, types.int64, types.int64, _LANES), generate


@intrinsic
def spread(typing: Any, value: Any) -> Any:
    """A register with one number in every lane."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        one = builder.insert_element(ir.Constant(_VECTOR, ir.Undefined), arguments[0], ir.Constant(ir.IntType(32), 0))
        places = ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES)
        return builder.shuffle_vector(one, ir.Constant(_VECTOR, ir.Undefined), places)

    return _LANES(types.float32), generate


@intrinsic
def add_product(typing: Any, sum_: Any, left: Any, right: Any) -> Any:
    """sum + left · right, lane by lane, in one instruction."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.fadd(arguments[0], builder.fmul(arguments[1], arguments[2], flags=_FLAGS), flags=_FLAGS)

    return _LANES(_LANES, _LANES, _LANES), generate


@intrinsic
def multiply(typing: Any, left: Any, right: Any) -> Any:
    """left · right, lane by lane."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.fmul(*arguments, flags=_FLAGS)

    return _LANES(_LANES, _LANES), generate


@intrinsic
def divide(typing: Any, left: Any, right: Any) -> Any:
    """left / right, lane by lane."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.fdiv(*arguments, flags=_FLAGS)

    return _LANES(_LANES, _LANES), generate


@intrinsic
def where_below(typing: Any, left: Any, right: Any, below: Any, otherwise: Any) -> Any:
    """`below` in the lanes where left < right, `otherwise` in the others."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.select(builder.fcmp_ordered("<", *arguments[:2]), *arguments[2:])

    return _LANES(_LANES, _LANES, _LANES, _LANES), generate


@intrinsic
def totals(typing: Any, v0: Any, v1: Any, v2: Any, v3: Any, v4: Any, v5: Any) -> Any:
    """A register whose first six lanes are the sums over the lanes of six; the others hold some of the same sums.

    By a tree of pairs, which takes 21 instructions where six sums by themselves take 50.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        def folded(left: Any, right: Any, first: list[int], second: list[int]) -> Any:
            kind = ir.VectorType(ir.IntType(32), LANES)
            parts = (builder.shuffle_vector(left, right, ir.Constant(kind, places)) for places in (first, second))
            return builder.fadd(*parts, flags=_FLAGS)

        quarters = range(0, LANES, 4)  # what the processor shuffles within
        near = [[q + place for q in quarters for place in (a, LANES + a, a + 1, LANES + a + 1)] for a in (0, 2)]
        far = [[q + place for q in quarters for place in (a, a + 1, LANES + a, LANES + a + 1)] for a in (0, 2)]
        first, second, third = (folded(*arguments[i : i + 2], *near) for i in (0, 2, 4))
        four, two = folded(first, second, *far), folded(third, third, *far)
        half = LANES // 2
        lower, upper = [*range(half), *range(LANES, LANES + half)], [*range(half, LANES), *range(LANES + half, 2 * LANES)]
        found = folded(four, two, lower, upper)
        if LANES == 16:  # now quarters 0 and 1 belong to the first four, 2 and 3 to the other two
            found = folded(found, found, [*range(4), *range(8, 12)] * 2, [*range(4, 8), *range(12, 16)] * 2)
        return found

    return _LANES(*[_LANES] * 6), generate


@intrinsic
def fetch(typing: Any, matrix: Any, row: Any, column: Any) -> Any:
    """Ask for the cache line of matrix[row, column] ahead of its use."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        number, byte = ir.IntType(32), ir.IntType(8).as_pointer()
        pointer = builder.bitcast(_address(context, builder, signature.args[0], *arguments), byte)
        kind = ir.FunctionType(ir.VoidType(), [byte, number, number, number])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0i8")
        builder.call(function, [pointer, number(1), number(3), number(1)])  # for writing, into every cache, data
        return context.get_dummy_value()

    return types.void(matrix, types.int64, types.int64), generate
