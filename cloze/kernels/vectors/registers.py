"""Vector registers of eight floats: a numba type for one of them, and the operations that kernels of vectors need.

The compiler vectorises a plain loop over one row by itself. It fails when several rows must stay in registers while a loop runs
over other rows; there the kernels use these intrinsics. `load` and `store` address a row of a contiguous float32 matrix at a
column that is a multiple of eight. Registers of sixteen are no faster, since rows come from memory, and need more padding.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, models, register_model

_WORD = ir.IntType(32)
_VECTOR, _PLACES = ir.VectorType(ir.FloatType(), 8), ir.VectorType(_WORD, 8)
_FLAGS = ("fast",)


class Register(types.Type):
    """One register of eight floats."""

    def __init__(self) -> None:
        super().__init__(name="Register")


_REGISTER = Register()


@register_model(Register)
class _Model(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, _VECTOR)


def _address(context: Any, builder: Any, matrix: Any, array: Any, row: Any, column: Any) -> Any:
    """A pointer to eight floats of a float32 matrix: no bounds, no negative indices."""
    structure = context.make_array(matrix)(context, builder, array)
    stride = cgutils.unpack_tuple(builder, structure.strides)[0]
    start = builder.ptrtoint(structure.data, stride.type)
    start = builder.add(start, builder.mul(row, stride))
    start = builder.add(start, builder.mul(column, ir.Constant(stride.type, 4)))
    return builder.inttoptr(start, _VECTOR.as_pointer())


@intrinsic
def load(typing: Any, matrix: Any, row: Any, column: Any) -> Any:
    """matrix[row, column : column + 8]."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.load(_address(context, builder, signature.args[0], *arguments), align=4)

    return _REGISTER(matrix, types.int64, types.int64), generate


@intrinsic
def store(typing: Any, matrix: Any, row: Any, column: Any, value: Any) -> Any:
    """matrix[row, column : column + 8] = value."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        *position, value = arguments
        builder.store(value, _address(context, builder, signature.args[0], *position), align=4)
        return context.get_dummy_value()

    return types.void(matrix, types.int64, types.int64, value), generate


@intrinsic
def spread(typing: Any, value: Any) -> Any:
    """A register with the same number in every element."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        none = ir.Constant(_VECTOR, ir.Undefined)
        vector = builder.insert_element(none, arguments[0], ir.Constant(_WORD, 0))
        return builder.shuffle_vector(vector, none, ir.Constant(_PLACES, [0] * 8))

    return _REGISTER(types.float32), generate


@intrinsic
def add_product(typing: Any, sum_: Any, left: Any, right: Any) -> Any:
    """sum + left · right, element by element, in one instruction."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.fadd(arguments[0], builder.fmul(arguments[1], arguments[2], flags=_FLAGS), flags=_FLAGS)

    return sum_(sum_, sum_, sum_), generate


@intrinsic
def multiply(typing: Any, left: Any, right: Any) -> Any:
    """left · right, element by element."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.fmul(*arguments, flags=_FLAGS)

    return left(left, left), generate


@intrinsic
def divide(typing: Any, left: Any, right: Any) -> Any:
    """left / right, element by element."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.fdiv(*arguments, flags=_FLAGS)

    return left(left, left), generate


@intrinsic
def where_below(typing: Any, left: Any, right: Any, below: Any, otherwise: Any) -> Any:
    """`below` in the elements where left < right, `otherwise` in the others."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.select(builder.fcmp_ordered("<", *arguments[:2]), *arguments[2:])

    return left(left, left, left, left), generate


@intrinsic
def totals(typing: Any, v0: Any, v1: Any, v2: Any, v3: Any, v4: Any, v5: Any) -> Any:
    """The sums of six registers, in the first six elements of one; the last two repeat some of these sums.

    A tree of pairs takes 15 instructions; six separate sums take 42.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        def folded(left: Any, right: Any, first: list[int], second: list[int]) -> Any:
            parts = (builder.shuffle_vector(left, right, ir.Constant(_PLACES, places)) for places in (first, second))
            return builder.fadd(*parts, flags=_FLAGS)

        quarters = (0, 4)  # halves within which the processor shuffles
        near = [[q + lane for q in quarters for lane in (a, 8 + a, a + 1, 9 + a)] for a in (0, 2)]
        far = [[q + lane for q in quarters for lane in (a, a + 1, 8 + a, 9 + a)] for a in (0, 2)]
        first, second, third = (folded(*arguments[i : i + 2], *near) for i in (0, 2, 4))
        four, two = folded(first, second, *far), folded(third, third, *far)
        return folded(four, two, [*range(4), *range(8, 12)], [*range(4, 8), *range(12, 16)])

    return _REGISTER(*[_REGISTER] * 6), generate


@intrinsic
def fetch(typing: Any, matrix: Any, row: Any, column: Any) -> Any:
    """Prefetch the cache line of matrix[row, column]."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        number, byte = ir.IntType(32), ir.IntType(8).as_pointer()
        pointer = builder.bitcast(_address(context, builder, signature.args[0], *arguments), byte)
        kind = ir.FunctionType(ir.VoidType(), [byte, number, number, number])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0i8")
        builder.call(function, [pointer, number(1), number(3), number(1)])  # for writing, into every cache, data
        return context.get_dummy_value()

    return types.void(matrix, types.int64, types.int64), generate
