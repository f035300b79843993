"""Vector registers in compiled code: a numba type that holds some floats, and the few operations the kernels need.

The compiler vectorises plain loops over one row by itself. It does not where several rows must stay in registers while a
loop over other rows runs, nor the last numbers of a row, which in a short row are most of it; there the kernels say so with
these. `load` and `store` take a row of a contiguous float32 matrix and a column that is a multiple of `LANES`, `load_half`
and `store_half` the bits of a bfloat16 matrix, as int16, and how many of its numbers are left. `load_eight` and
`spread_eight` make registers of eight on every processor; what takes registers takes both. Importing this imports numba.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, models, register_model

from cloze.kernel import LANES

#: How kernels are compiled. `fastmath` lets sums be reordered, without which no dot product is vectorised. `_nrt` off: no
#: references are counted, which took half the time of a window; so compiled code may allocate nothing, nor copy slices.
OPTIONS: dict[str, Any] = {"fastmath": True, "error_model": "numpy", "_nrt": False}
#: And what kernels are made of: a call would hand over every array field by field, half the time of a small window.
INNER = {**OPTIONS, "forceinline": True}
#: Where a kernel meets infinities on purpose: masked scores.
STRICT = {**OPTIONS, "fastmath": {"reassoc", "contract"}}

_WORD, _HALF = ir.IntType(32), ir.IntType(16)
_VECTOR, _WORDS, _HALVES = (ir.VectorType(kind, LANES) for kind in (ir.FloatType(), _WORD, _HALF))
_FLAGS = ("fast",)
_EXACT = ("contract",)


class Lanes(types.Type):
    """One register of `count` floats."""

    def __init__(self, count: int) -> None:
        self.count = count
        super().__init__(name=f"Lanes({count})")


_LANES, _EIGHT = Lanes(LANES), Lanes(8)


@register_model(Lanes)
class _Model(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, _vector(kind))


def _vector(kind: Lanes) -> Any:
    """The vector that a register is."""
    return ir.VectorType(ir.FloatType(), kind.count)


def _address(context: Any, builder: Any, matrix: Any, array: Any, row: Any, column: Any, *, kind: Any = _HALVES) -> Any:
    """A pointer to a piece of `kind` of a matrix of float32 or int16: no bounds, no negative indices."""
    made = context.make_array(matrix)(context, builder, array)
    stride = cgutils.unpack_tuple(builder, made.strides)[0]
    start = builder.ptrtoint(made.data, stride.type)
    start = builder.add(start, builder.mul(row, stride))
    start = builder.add(start, builder.mul(column, ir.Constant(stride.type, matrix.dtype.bitwidth // 8)))
    return builder.inttoptr(start, kind.as_pointer())


def _same(kind: Any, value: Any) -> Any:
    """A constant with one number in every lane."""
    return ir.Constant(kind, [value] * kind.count)


def _everywhere(builder: Any, kind: Any, value: Any) -> Any:
    """A register with one number in every lane."""
    one = builder.insert_element(ir.Constant(kind, ir.Undefined), value, ir.Constant(_WORD, 0))
    return builder.shuffle_vector(one, ir.Constant(kind, ir.Undefined), _same(ir.VectorType(_WORD, kind.count), 0))


def _within(builder: Any, count: Any) -> Any:
    """Which lanes are among the first `count`."""
    wanted = _everywhere(builder, _WORDS, builder.trunc(count, _WORD))
    return builder.icmp_signed("<", ir.Constant(_WORDS, list(range(LANES))), wanted)


def _load_bits(context: Any, builder: Any, matrix: Any, place: Any, count: Any) -> Any:
    """The first `count` int16 from there on, zero in the other lanes; memory behind the last is not touched."""
    pointer, within = _address(context, builder, matrix, *place), _within(builder, count)
    with builder.if_else(_full(builder, count), likely=True) as (then, otherwise):
        with then:
            all_ = builder.load(pointer, align=2)
            all_from = builder.block
        with otherwise:
            kinds = [pointer.type, _WORD, within.type, _HALVES]
            read = cgutils.get_or_insert_function(
                builder.module, ir.FunctionType(_HALVES, kinds), f"llvm.masked.load.v{LANES}i16.p0"
            )
            some = builder.call(read, [pointer, _WORD(2), within, _same(_HALVES, 0)])
            some_from = builder.block
    found = builder.phi(_HALVES)
    found.add_incoming(all_, all_from)
    found.add_incoming(some, some_from)
    return found


def _full(builder: Any, count: Any) -> Any:
    """Whether every lane is among the first `count`: masked reads and writes are slow, and only a row's last wants them."""
    return builder.icmp_signed(">=", count, ir.Constant(count.type, LANES))


def _loading(kind: Lanes) -> Any:
    @intrinsic
    def load(typing: Any, matrix: Any, row: Any, column: Any) -> Any:
        """matrix[row, column : column + the floats of a register]."""

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return builder.load(_address(context, builder, signature.args[0], *arguments, kind=_vector(kind)), align=4)

        return kind(matrix, types.int64, types.int64), generate

    return load


def _spreading(kind: Lanes) -> Any:
    @intrinsic
    def spread(typing: Any, value: Any) -> Any:
        """A register with one number in every lane."""

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return _everywhere(builder, _vector(kind), arguments[0])

        return kind(types.float32), generate

    return spread


load, load_eight = _loading(_LANES), _loading(_EIGHT)
spread, spread_eight = _spreading(_LANES), _spreading(_EIGHT)


@intrinsic
def store(typing: Any, matrix: Any, row: Any, column: Any, value: Any) -> Any:
    """matrix[row, column : column + the floats of a register] = value."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        *place, value = arguments
        builder.store(value, _address(context, builder, signature.args[0], *place, kind=value.type), align=4)
        return context.get_dummy_value()

    return types.void(matrix, types.int64, types.int64, value), generate


@intrinsic
def add_product(typing: Any, sum_: Any, left: Any, right: Any) -> Any:
    """sum + left · right, lane by lane, in one instruction."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.fadd(arguments[0], builder.fmul(arguments[1], arguments[2], flags=_FLAGS), flags=_FLAGS)

    return sum_(sum_, sum_, sum_), generate


@intrinsic
def multiply(typing: Any, left: Any, right: Any) -> Any:
    """left · right, lane by lane."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.fmul(*arguments, flags=_FLAGS)

    return left(left, left), generate


@intrinsic
def divide(typing: Any, left: Any, right: Any) -> Any:
    """left / right, lane by lane."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.fdiv(*arguments, flags=_FLAGS)

    return left(left, left), generate


@intrinsic
def where_below(typing: Any, left: Any, right: Any, below: Any, otherwise: Any) -> Any:
    """`below` in the lanes where left < right, `otherwise` in the others."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.select(builder.fcmp_ordered("<", *arguments[:2]), *arguments[2:])

    return left(left, left, left, left), generate


@intrinsic
def totals(typing: Any, v0: Any, v1: Any, v2: Any, v3: Any, v4: Any, v5: Any) -> Any:
    """A register of eight whose first six lanes are the sums over the lanes of six; the others hold some of the same sums.

    By a tree of pairs, which takes 15 instructions where six sums by themselves take 42.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        def folded(left: Any, right: Any, first: list[int], second: list[int]) -> Any:
            kind = ir.VectorType(_WORD, 8)
            parts = (builder.shuffle_vector(left, right, ir.Constant(kind, places)) for places in (first, second))
            return builder.fadd(*parts, flags=_FLAGS)

        quarters = (0, 4)  # what the processor shuffles within
        near = [[q + place for q in quarters for place in (a, 8 + a, a + 1, 9 + a)] for a in (0, 2)]
        far = [[q + place for q in quarters for place in (a, a + 1, 8 + a, 9 + a)] for a in (0, 2)]
        first, second, third = (folded(*arguments[i : i + 2], *near) for i in (0, 2, 4))
        four, two = folded(first, second, *far), folded(third, third, *far)
        return folded(four, two, [*range(4), *range(8, 12)], [*range(4, 8), *range(12, 16)])

    return _EIGHT(*[_EIGHT] * 6), generate


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


# --- bfloat16 -----------------------------------------------------------------------------------------------------------


def _rounded(builder: Any, value: Any, words: Any, halves: Any, constant: Any) -> Any:
    """The bits of the nearest bfloat16; a tie goes to the even one."""
    bits = builder.bitcast(value, words)
    odd = builder.and_(builder.lshr(bits, constant(words, 16)), constant(words, 1))
    bits = builder.add(builder.add(bits, constant(words, 0x7FFF)), odd)
    return builder.trunc(builder.lshr(bits, constant(words, 16)), halves)


@intrinsic
def load_half(typing: Any, matrix: Any, row: Any, column: Any, count: Any, otherwise: Any) -> Any:
    """The first `count` numbers from matrix[row, column] on, widened, and `otherwise` in the lanes behind them."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        *place, count, otherwise = arguments
        bits = builder.zext(_load_bits(context, builder, signature.args[0], place, count), _WORDS)
        wide = builder.bitcast(builder.shl(bits, _same(_WORDS, 16)), _VECTOR)
        return builder.select(_within(builder, count), wide, _everywhere(builder, _VECTOR, otherwise))

    return _LANES(matrix, types.int64, types.int64, types.int64, types.float32), generate


@intrinsic
def store_half(typing: Any, matrix: Any, row: Any, column: Any, count: Any, value: Any) -> Any:
    """The first `count` lanes, rounded to the nearest, to matrix[row, column] and behind."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        *place, count, value = arguments
        halves = _rounded(builder, value, _WORDS, _HALVES, _same)
        pointer, within = _address(context, builder, signature.args[0], *place), _within(builder, count)
        with builder.if_else(_full(builder, count), likely=True) as (then, otherwise):
            with then:
                builder.store(halves, pointer, align=2)
            with otherwise:
                kinds = [_HALVES, pointer.type, _WORD, within.type]
                write = cgutils.get_or_insert_function(
                    builder.module, ir.FunctionType(ir.VoidType(), kinds), f"llvm.masked.store.v{LANES}i16.p0"
                )
                builder.call(write, [halves, pointer, _WORD(2), within])
        return context.get_dummy_value()

    return types.void(matrix, types.int64, types.int64, types.int64, _LANES), generate


@intrinsic
def load_one(typing: Any, matrix: Any, row: Any, column: Any) -> Any:
    """matrix[row, column], widened."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = builder.bitcast(_address(context, builder, signature.args[0], *arguments), _HALF.as_pointer())
        bits = builder.zext(builder.load(pointer, align=2), _WORD)
        return builder.bitcast(builder.shl(bits, _WORD(16)), ir.FloatType())

    return types.float32(matrix, types.int64, types.int64), generate


@intrinsic
def store_one(typing: Any, matrix: Any, row: Any, column: Any, value: Any) -> Any:
    """matrix[row, column] = value, rounded. Not `store_half` of one: LLVM 22 writes two numbers for a constant mask of one."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        *place, value = arguments
        pointer = builder.bitcast(_address(context, builder, signature.args[0], *place), _HALF.as_pointer())
        builder.store(_rounded(builder, value, _WORD, _HALF, lambda kind, number: kind(number)), pointer, align=2)
        return context.get_dummy_value()

    return types.void(matrix, types.int64, types.int64, types.float32), generate


@intrinsic
def keep_lanes(typing: Any, value: Any, keep: Any, row: Any, column: Any, count: Any) -> Any:
    """`value` where keep[row, column + lane] is -1, zero where it is 0, in the first `count` lanes."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        value, *place, count = arguments
        kept = builder.sext(_load_bits(context, builder, signature.args[1], place, count), _WORDS)
        return builder.bitcast(builder.and_(builder.bitcast(value, _WORDS), kept), _VECTOR)

    return _LANES(_LANES, keep, types.int64, types.int64, types.int64), generate


@intrinsic
def add(typing: Any, left: Any, right: Any) -> Any:
    """left + right, lane by lane."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.fadd(*arguments)

    return _LANES(_LANES, _LANES), generate


@intrinsic
def subtract(typing: Any, left: Any, right: Any) -> Any:
    """left - right, lane by lane."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.fsub(*arguments)

    return _LANES(_LANES, _LANES), generate


@intrinsic
def unless_nan(typing: Any, value: Any, made: Any) -> Any:
    """`made`, but `value` in the lanes where that is not a number: products are compiled as if there were none such."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        value, made = arguments
        return builder.select(builder.fcmp_unordered("uno", value, value), value, made)

    return _LANES(_LANES, _LANES), generate


@intrinsic
def larger(typing: Any, left: Any, right: Any) -> Any:
    """The larger of both, lane by lane; right where one of them is not a number."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.select(builder.fcmp_ordered(">", *arguments), *arguments)

    return _LANES(_LANES, _LANES), generate


@intrinsic
def equal(typing: Any, left: Any, right: Any) -> Any:
    """1 in the lanes where both are the same, 0 elsewhere."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.uitofp(builder.fcmp_ordered("==", *arguments), _VECTOR)

    return _LANES(_LANES, _LANES), generate


#: 2^x on [-1/2, 1/2]: the polynomial of degree 5 with the smallest relative error, 7.5e-8, found by reweighted least squares.
_POWERS = (0.0013276472047340393, 0.009675541384669528, 0.05550713273764735, 0.2402211972291482, 0.6931469670643249,
           1.0000000716548716)  # fmt: skip


@intrinsic
def exponential(typing: Any, value: Any) -> Any:
    """e to the power of numbers up to 80, lane by lane; exactly zero from -87.3 down."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        lowest = _same(_VECTOR, -126.0)
        power = builder.fmul(arguments[0], _same(_VECTOR, 1.4426950408889634), flags=_EXACT)
        too_low = builder.fcmp_ordered("<", power, lowest)
        power = builder.select(too_low, lowest, power)
        round_ = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(_VECTOR, [_VECTOR]), f"llvm.rint.v{LANES}f32"
        )
        whole = builder.call(round_, [power])
        rest = builder.fsub(power, whole)
        made = _same(_VECTOR, _POWERS[0])
        for factor in _POWERS[1:]:
            made = builder.fadd(builder.fmul(made, rest, flags=_EXACT), _same(_VECTOR, factor), flags=_EXACT)
        shifted = builder.shl(builder.fptosi(whole, _WORDS), _same(_WORDS, 23))
        made = builder.bitcast(builder.add(builder.bitcast(made, _WORDS), shifted), _VECTOR)
        return builder.select(too_low, _same(_VECTOR, 0.0), made)

    return _LANES(_LANES), generate


def _folded(builder: Any, vector: Any, join: Any) -> Any:
    """One number from all lanes: halves are joined until one lane is left."""
    for half in (8, 4, 2, 1)[0 if LANES == 16 else 1 :]:
        places = [(lane + half) % LANES for lane in range(LANES)]
        moved = builder.shuffle_vector(vector, ir.Constant(_VECTOR, ir.Undefined), ir.Constant(_WORDS, places))
        vector = join(vector, moved)
    return builder.extract_element(vector, ir.Constant(_WORD, 0))


@intrinsic
def total_of(typing: Any, value: Any) -> Any:
    """The sum over the lanes."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _folded(builder, arguments[0], builder.fadd)

    return types.float32(_LANES), generate


@intrinsic
def largest_of(typing: Any, value: Any) -> Any:
    """The largest of the lanes."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _folded(
            builder, arguments[0],
            lambda left, right: builder.select(builder.fcmp_ordered(">", left, right), left, right),
        )

    return types.float32(_LANES), generate
