"""Vector registers in compiled code: a numba type for one register of floats, and the operations that the kernels need.

The compiler vectorises a plain loop over one row by itself. It fails in two cases: when several rows must stay in registers
while a loop runs over other rows, and at the end of a row, which is most of a short one. There the kernels use these
intrinsics. `load` and `store` address a row of a contiguous float32 matrix at a column that is a multiple of `SIMD_WIDTH`.
`load_half` and `store_half` address a bfloat16 matrix through its bits (int16) and take the number of elements left in the row.
`load_eight` and `spread_eight` make registers of eight on every processor; operations on registers accept both sizes.
Importing this module imports numba.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, models, register_model

from cloze.kernel import SIMD_WIDTH

#: How kernels are compiled. `fastmath` allows sums to be reordered; without it no dot product is vectorised. `_nrt` off
#: disables reference counting, which took half the time of a window; compiled code may therefore not allocate or copy slices.
OPTIONS: dict[str, Any] = {"fastmath": True, "error_model": "numpy", "_nrt": False}
#: For functions that kernels call: inlined, because a call passes every array field by field, half the time of a small window.
INNER = {**OPTIONS, "forceinline": True}
#: For kernels that meet infinities on purpose, such as masked scores.
STRICT = {**OPTIONS, "fastmath": {"reassoc", "contract"}}

_WORD, _HALF = ir.IntType(32), ir.IntType(16)
_VECTOR, _WORDS, _HALVES = (ir.VectorType(kind, SIMD_WIDTH) for kind in (ir.FloatType(), _WORD, _HALF))
_FLAGS = ("fast",)
_EXACT = ("contract",)


class Register(types.Type):
    """One register of `count` floats."""

    def __init__(self, count: int) -> None:
        self.count = count
        super().__init__(name=f"Register({count})")


_FULL_REGISTER, _REGISTER_OF_EIGHT = Register(SIMD_WIDTH), Register(8)


@register_model(Register)
class _Model(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, _vector(kind))


def _vector(kind: Register) -> Any:
    """The LLVM vector of a register."""
    return ir.VectorType(ir.FloatType(), kind.count)


def _address(context: Any, builder: Any, matrix: Any, array: Any, row: Any, column: Any, *, kind: Any = _HALVES) -> Any:
    """A pointer to a piece of `kind` of a matrix of float32 or int16: no bounds, no negative indices."""
    structure = context.make_array(matrix)(context, builder, array)
    stride = cgutils.unpack_tuple(builder, structure.strides)[0]
    start = builder.ptrtoint(structure.data, stride.type)
    start = builder.add(start, builder.mul(row, stride))
    start = builder.add(start, builder.mul(column, ir.Constant(stride.type, matrix.dtype.bitwidth // 8)))
    return builder.inttoptr(start, kind.as_pointer())


def _same(kind: Any, value: Any) -> Any:
    """A constant with the same number in every element."""
    return ir.Constant(kind, [value] * kind.count)


def _everywhere(builder: Any, kind: Any, value: Any) -> Any:
    """A register with the same number in every element."""
    vector = builder.insert_element(ir.Constant(kind, ir.Undefined), value, ir.Constant(_WORD, 0))
    return builder.shuffle_vector(vector, ir.Constant(kind, ir.Undefined), _same(ir.VectorType(_WORD, kind.count), 0))


def _within(builder: Any, count: Any) -> Any:
    """Mask of the first `count` elements."""
    limit = _everywhere(builder, _WORDS, builder.trunc(count, _WORD))
    return builder.icmp_signed("<", ir.Constant(_WORDS, list(range(SIMD_WIDTH))), limit)


def _load_bits(context: Any, builder: Any, matrix: Any, position: Any, count: Any) -> Any:
    """The first `count` int16 from that address, zero in the other elements; memory past the last is not touched."""
    pointer, within = _address(context, builder, matrix, *position), _within(builder, count)
    with builder.if_else(_full(builder, count), likely=True) as (then, otherwise):
        with then:
            all_ = builder.load(pointer, align=2)
            all_from = builder.block
        with otherwise:
            kinds = [pointer.type, _WORD, within.type, _HALVES]
            read = cgutils.get_or_insert_function(
                builder.module, ir.FunctionType(_HALVES, kinds), f"llvm.masked.load.v{SIMD_WIDTH}i16.p0"
            )
            masked = builder.call(read, [pointer, _WORD(2), within, _same(_HALVES, 0)])
            masked_from = builder.block
    bits = builder.phi(_HALVES)
    bits.add_incoming(all_, all_from)
    bits.add_incoming(masked, masked_from)
    return bits


def _full(builder: Any, count: Any) -> Any:
    """Whether `count` covers the whole register. Masked reads and writes are slow, and only the end of a row needs them."""
    return builder.icmp_signed(">=", count, ir.Constant(count.type, SIMD_WIDTH))


def _loading(kind: Register) -> Any:
    @intrinsic
    def load(typing: Any, matrix: Any, row: Any, column: Any) -> Any:
        """matrix[row, column : column + the floats of a register]."""

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return builder.load(_address(context, builder, signature.args[0], *arguments, kind=_vector(kind)), align=4)

        return kind(matrix, types.int64, types.int64), generate

    return load


def _spreading(kind: Register) -> Any:
    @intrinsic
    def spread(typing: Any, value: Any) -> Any:
        """A register with the same number in every element."""

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return _everywhere(builder, _vector(kind), arguments[0])

        return kind(types.float32), generate

    return spread


load, load_eight = _loading(_FULL_REGISTER), _loading(_REGISTER_OF_EIGHT)
spread, spread_eight = _spreading(_FULL_REGISTER), _spreading(_REGISTER_OF_EIGHT)


@intrinsic
def store(typing: Any, matrix: Any, row: Any, column: Any, value: Any) -> Any:
    """matrix[row, column : column + the floats of a register] = value."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        *position, value = arguments
        builder.store(value, _address(context, builder, signature.args[0], *position, kind=value.type), align=4)
        return context.get_dummy_value()

    return types.void(matrix, types.int64, types.int64, value), generate


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
    """The sums of six registers of eight, in the first six elements of one; the last two repeat some of these sums.

    A tree of pairs takes 15 instructions; six separate sums take 42.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        def folded(left: Any, right: Any, first: list[int], second: list[int]) -> Any:
            kind = ir.VectorType(_WORD, 8)
            parts = (builder.shuffle_vector(left, right, ir.Constant(kind, places)) for places in (first, second))
            return builder.fadd(*parts, flags=_FLAGS)

        quarters = (0, 4)  # halves within which the processor shuffles
        near = [[q + lane for q in quarters for lane in (a, 8 + a, a + 1, 9 + a)] for a in (0, 2)]
        far = [[q + lane for q in quarters for lane in (a, a + 1, 8 + a, 9 + a)] for a in (0, 2)]
        first, second, third = (folded(*arguments[i : i + 2], *near) for i in (0, 2, 4))
        four, two = folded(first, second, *far), folded(third, third, *far)
        return folded(four, two, [*range(4), *range(8, 12)], [*range(4, 8), *range(12, 16)])

    return _REGISTER_OF_EIGHT(*[_REGISTER_OF_EIGHT] * 6), generate


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


# --- bfloat16 -----------------------------------------------------------------------------------------------------------


def _rounded(builder: Any, value: Any, words: Any, halves: Any, constant: Any) -> Any:
    """The bits of the nearest bfloat16, ties to even."""
    bits = builder.bitcast(value, words)
    odd = builder.and_(builder.lshr(bits, constant(words, 16)), constant(words, 1))
    bits = builder.add(builder.add(bits, constant(words, 0x7FFF)), odd)
    return builder.trunc(builder.lshr(bits, constant(words, 16)), halves)


@intrinsic
def load_half(typing: Any, matrix: Any, row: Any, column: Any, count: Any, otherwise: Any) -> Any:
    """The first `count` numbers from matrix[row, column], as float32, and `otherwise` in the elements after them."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        *position, count, otherwise = arguments
        bits = builder.zext(_load_bits(context, builder, signature.args[0], position, count), _WORDS)
        floats = builder.bitcast(builder.shl(bits, _same(_WORDS, 16)), _VECTOR)
        return builder.select(_within(builder, count), floats, _everywhere(builder, _VECTOR, otherwise))

    return _FULL_REGISTER(matrix, types.int64, types.int64, types.int64, types.float32), generate


@intrinsic
def store_half(typing: Any, matrix: Any, row: Any, column: Any, count: Any, value: Any) -> Any:
    """Write the first `count` elements, rounded to nearest, from matrix[row, column] on."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        *position, count, value = arguments
        halves = _rounded(builder, value, _WORDS, _HALVES, _same)
        pointer, within = _address(context, builder, signature.args[0], *position), _within(builder, count)
        with builder.if_else(_full(builder, count), likely=True) as (then, otherwise):
            with then:
                builder.store(halves, pointer, align=2)
            with otherwise:
                kinds = [_HALVES, pointer.type, _WORD, within.type]
                write = cgutils.get_or_insert_function(
                    builder.module, ir.FunctionType(ir.VoidType(), kinds), f"llvm.masked.store.v{SIMD_WIDTH}i16.p0"
                )
                builder.call(write, [halves, pointer, _WORD(2), within])
        return context.get_dummy_value()

    return types.void(matrix, types.int64, types.int64, types.int64, _FULL_REGISTER), generate


@intrinsic
def load_one(typing: Any, matrix: Any, row: Any, column: Any) -> Any:
    """matrix[row, column] as float32."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = builder.bitcast(_address(context, builder, signature.args[0], *arguments), _HALF.as_pointer())
        bits = builder.zext(builder.load(pointer, align=2), _WORD)
        return builder.bitcast(builder.shl(bits, _WORD(16)), ir.FloatType())

    return types.float32(matrix, types.int64, types.int64), generate


@intrinsic
def store_one(typing: Any, matrix: Any, row: Any, column: Any, value: Any) -> Any:
    """matrix[row, column] = value, rounded. `store_half` with a count of 1 is wrong here: LLVM 22 then writes two numbers."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        *position, value = arguments
        pointer = builder.bitcast(_address(context, builder, signature.args[0], *position), _HALF.as_pointer())
        builder.store(_rounded(builder, value, _WORD, _HALF, lambda kind, number: kind(number)), pointer, align=2)
        return context.get_dummy_value()

    return types.void(matrix, types.int64, types.int64, types.float32), generate


@intrinsic
def add(typing: Any, left: Any, right: Any) -> Any:
    """left + right, element by element."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.fadd(*arguments)

    return _FULL_REGISTER(_FULL_REGISTER, _FULL_REGISTER), generate


@intrinsic
def subtract(typing: Any, left: Any, right: Any) -> Any:
    """left - right, element by element."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.fsub(*arguments)

    return _FULL_REGISTER(_FULL_REGISTER, _FULL_REGISTER), generate


@intrinsic
def unless_nan(typing: Any, value: Any, product: Any) -> Any:
    """`product`, but `value` in the elements where that is NaN: `multiply` is compiled as if there were no NaN."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        value, product = arguments
        return builder.select(builder.fcmp_unordered("uno", value, value), value, product)

    return _FULL_REGISTER(_FULL_REGISTER, _FULL_REGISTER), generate


@intrinsic
def larger(typing: Any, left: Any, right: Any) -> Any:
    """The larger of the two, element by element; `right` where either is NaN."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.select(builder.fcmp_ordered(">", *arguments), *arguments)

    return _FULL_REGISTER(_FULL_REGISTER, _FULL_REGISTER), generate


@intrinsic
def equal(typing: Any, left: Any, right: Any) -> Any:
    """1 in the elements where both are equal, 0 elsewhere."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.uitofp(builder.fcmp_ordered("==", *arguments), _VECTOR)

    return _FULL_REGISTER(_FULL_REGISTER, _FULL_REGISTER), generate


#: 2^x on [-1/2, 1/2]: the polynomial of degree 5 with the smallest relative error (7.5e-8), by reweighted least squares.
_POWERS = (0.0013276472047340393, 0.009675541384669528, 0.05550713273764735, 0.2402211972291482, 0.6931469670643249,
           1.0000000716548716)  # fmt: skip


@intrinsic
def exponential(typing: Any, value: Any) -> Any:
    """e to the power of each element, for values up to 80; exactly zero from -87.3 down."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        lowest = _same(_VECTOR, -126.0)
        power = builder.fmul(arguments[0], _same(_VECTOR, 1.4426950408889634), flags=_EXACT)
        too_low = builder.fcmp_ordered("<", power, lowest)
        power = builder.select(too_low, lowest, power)
        round_ = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(_VECTOR, [_VECTOR]), f"llvm.rint.v{SIMD_WIDTH}f32"
        )
        integer = builder.call(round_, [power])
        rest = builder.fsub(power, integer)
        estimate = _same(_VECTOR, _POWERS[0])
        for factor in _POWERS[1:]:
            estimate = builder.fadd(builder.fmul(estimate, rest, flags=_EXACT), _same(_VECTOR, factor), flags=_EXACT)
        shifted = builder.shl(builder.fptosi(integer, _WORDS), _same(_WORDS, 23))
        estimate = builder.bitcast(builder.add(builder.bitcast(estimate, _WORDS), shifted), _VECTOR)
        return builder.select(too_low, _same(_VECTOR, 0.0), estimate)

    return _FULL_REGISTER(_FULL_REGISTER), generate


def _folded(builder: Any, vector: Any, join: Any) -> Any:
    """Reduce a register to one number: fold it in half until one element is left."""
    for half in (8, 4, 2, 1)[0 if SIMD_WIDTH == 16 else 1 :]:
        places = [(element + half) % SIMD_WIDTH for element in range(SIMD_WIDTH)]
        moved = builder.shuffle_vector(vector, ir.Constant(_VECTOR, ir.Undefined), ir.Constant(_WORDS, places))
        vector = join(vector, moved)
    return builder.extract_element(vector, ir.Constant(_WORD, 0))


@intrinsic
def total_of(typing: Any, value: Any) -> Any:
    """The sum of the elements."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _folded(builder, arguments[0], builder.fadd)

    return types.float32(_FULL_REGISTER), generate


@intrinsic
def largest_of(typing: Any, value: Any) -> Any:
    """The largest element."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _folded(
            builder, arguments[0],
            lambda left, right: builder.select(builder.fcmp_ordered(">", left, right), left, right),
        )

    return types.float32(_FULL_REGISTER), generate
