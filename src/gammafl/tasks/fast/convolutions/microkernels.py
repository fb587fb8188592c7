"""The innermost loops of convolutions, written as LLVM code, so that their sums stay in vector registers.

A compiler does not keep 24 vectors of sums in registers by itself. So the few innermost loops are emitted here for
fixed numbers of lanes and registers, and all code around them is plain numba (`loops.py`). Each sum is computed
separately, in the order of the indices and with fused multiply-adds: it does not depend on lanes or registers.

Arrays are one-dimensional, contiguous float32 unless said otherwise; nothing here checks a bound (`plan.py` does).
"""

from collections.abc import Callable
from typing import Any, cast

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.datamodel import models
from numba.extending import NativeValue, intrinsic, register_model, unbox

INDEX, FLOAT, WORD, BYTE = ir.IntType(64), ir.FloatType(), ir.IntType(32), ir.IntType(8)
DEAD = 255
"""Stands for a pixel of a window: the ReLU blocked all of them."""


class FixedType(types.Type):
    """The type of a `Fixed`: code is compiled for each type."""

    def __init__(self, numbers: tuple[int, ...]) -> None:
        self.numbers = numbers
        super().__init__(f"Fixed{numbers}")


class Fixed:
    """Constant whole numbers as an argument of compiled functions: code is compiled for these numbers."""

    def __init__(self, *numbers: int) -> None:
        self._numba_type_ = FixedType(numbers)


register_model(FixedType)(models.OpaqueModel)


@unbox(FixedType)
def _unbox_fixed(kind: Any, value: Any, c: Any) -> NativeValue:
    return NativeValue(c.context.get_dummy_value())


class Emitter:
    """Emits code for vectors of `lanes` lanes, at the position of `builder`."""

    def __init__(self, context: Any, builder: Any, signature: Any, arguments: Any, lanes: int) -> None:
        self.builder = builder
        self.lanes = lanes
        self.vector = ir.VectorType(FLOAT, lanes)
        self.arguments = [
            context.make_array(kind)(context, builder, value).data if isinstance(kind, types.Array) else value
            for kind, value in zip(signature.args, arguments, strict=True)
        ]

    def sums(self, count: int) -> list[Any]:
        """Variables for `count` vectors, which become registers."""
        return [cgutils.alloca_once(self.builder, self.vector) for _ in range(count)]

    def constant(self, number: float, kind: Any = None) -> Any:
        """In each lane."""
        return ir.Constant(ir.VectorType(kind or FLOAT, self.lanes), [number] * self.lanes)

    def at(self, pointer: Any, *indices: Any) -> Any:
        """The address of an element after `pointer`."""
        for index in indices:
            pointer = self.builder.gep(pointer, [index if isinstance(index, ir.Value) else ir.Constant(INDEX, index)])
        return pointer

    def load(self, pointer: Any, kind: Any = None) -> Any:
        """A vector from any address of an element."""
        kind = kind or self.vector
        return self.builder.load(self.builder.bitcast(pointer, kind.as_pointer()), align=_bytes(kind.element))

    def store(self, vector: Any, pointer: Any) -> None:
        kind = vector.type
        self.builder.store(vector, self.builder.bitcast(pointer, kind.as_pointer()), align=_bytes(kind.element))

    def splat(self, number: Any) -> Any:
        """The number in each lane."""
        kind = ir.VectorType(number.type, self.lanes)
        nothing = ir.Constant(kind, ir.Undefined)
        first = self.builder.insert_element(nothing, number, ir.Constant(WORD, 0))
        return self.builder.shuffle_vector(first, nothing, ir.Constant(ir.VectorType(WORD, self.lanes), None))

    def add_product(self, to: Any, one: Any, two: Any) -> None:
        """to ← to + one·two, rounded once."""
        name = f"llvm.fma.v{self.lanes}f32"
        kind = ir.FunctionType(self.vector, [self.vector] * 3)
        function = cgutils.get_or_insert_function(self.builder.module, kind, name)
        self.builder.store(self.builder.call(function, [one, two, self.builder.load(to)]), to)

    def shuffled(self, one: Any, two: Any) -> tuple[Any, Any]:
        """Their numbers in turn, as two vectors."""
        half = self.lanes // 2
        turns = [start + i for i in range(self.lanes) for start in (0, self.lanes)]
        kind = ir.VectorType(WORD, self.lanes)
        first, second = (ir.Constant(kind, turns[part : part + self.lanes]) for part in (0, 2 * half))
        return self.builder.shuffle_vector(one, two, first), self.builder.shuffle_vector(one, two, second)

    def upto(self, count: Any) -> Any:
        """True in the first `count` lanes."""
        numbers = ir.Constant(ir.VectorType(INDEX, self.lanes), list(range(self.lanes)))
        return self.builder.icmp_signed("<", numbers, self.splat(count))


def _bytes(kind: Any) -> int:
    return {FLOAT: 4, WORD: 4, BYTE: 1}[kind]


def _tile(context: Any, x: Any, pixels: Any, first: Any, rows: Any, row: Any, reach: Any, w: Any, block: Any, bias: Any,
          channel: Any, out: Any, to: Any, step: Any, shape: Any) -> Any:  # fmt: skip
    """Convolutions at some pixels for some channels.

    For `shape` = (lanes, P, Q): out[to + p·step + c] = bias[channel + c] + Σ_k Σ_r x[pixels[first + p] + k·row + r] ·
    w[block + (k·reach + r)·Q·lanes + c], for p < P, c < Q·lanes, k < rows, r < reach.
    """
    lanes, count, vectors = shape.numbers

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        emit = Emitter(context, builder, signature, arguments, lanes)
        x, pixels, first, rows, row, reach, w, block, bias, channel, out, to, step, _ = emit.arguments
        starts = [builder.sext(builder.load(emit.at(pixels, first, p)), INDEX) for p in range(count)]
        sources = [emit.at(x, start) for start in starts]
        sums = [emit.sums(vectors) for _ in range(count)]
        for q in range(vectors):
            start = emit.load(emit.at(bias, channel, q * lanes))
            for p in range(count):
                builder.store(start, sums[p][q])
        width = ir.Constant(INDEX, vectors * lanes)
        with cgutils.for_range(builder, rows) as of_rows:
            shift = builder.mul(of_rows.index, row)
            before = builder.mul(of_rows.index, reach)
            with cgutils.for_range(builder, reach) as along:
                weights = emit.at(w, block, builder.mul(builder.add(before, along.index), width))
                loaded = [emit.load(emit.at(weights, q * lanes)) for q in range(vectors)]
                place = builder.add(shift, along.index)
                for p in range(count):
                    factor = emit.splat(builder.load(emit.at(sources[p], place)))
                    for q in range(vectors):
                        emit.add_product(sums[p][q], factor, loaded[q])
        for p in range(count):
            target = emit.at(out, to, builder.mul(step, ir.Constant(INDEX, p)))
            for q in range(vectors):
                emit.store(builder.load(sums[p][q]), emit.at(target, q * lanes))
        return context.get_dummy_value()

    number = types.int64
    signature = types.void(
        x, pixels, number, number, number, number, w, number, bias, number, out, number, number, shape
    )
    return signature, generate


def _gather(context: Any, m: Any, scales: Any, offsets: Any, begin: Any, end: Any, of: Any, row: Any, out: Any, to: Any,
            step: Any, shape: Any) -> Any:  # fmt: skip
    """Adds a sum of scaled rows.

    For `shape` = (lanes, R, V): out[to + k·step + i] += Σ_j scales[j] · m[offsets[j] + of + k·row + i], for k < R,
    i < V·lanes, begin ≤ j < end.
    """
    lanes, rows, vectors = shape.numbers

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        emit = Emitter(context, builder, signature, arguments, lanes)
        m, scales, offsets, begin, end, of, row, out, to, step, _ = emit.arguments
        places = [
            (k, i, emit.at(out, to, builder.mul(step, ir.Constant(INDEX, k)), i * lanes))
            for k in range(rows)
            for i in range(vectors)
        ]
        sums = emit.sums(len(places))
        for one in sums:
            builder.store(emit.constant(0.0), one)
        with cgutils.for_range_slice(builder, begin, end, ir.Constant(INDEX, 1)) as (j, _):
            factor = emit.splat(builder.load(emit.at(scales, j)))
            source = emit.at(m, of, builder.sext(builder.load(emit.at(offsets, j)), INDEX))
            lines = [emit.at(source, builder.mul(row, ir.Constant(INDEX, k))) for k in range(rows)]
            for one, (k, i, _) in zip(sums, places, strict=True):
                emit.add_product(one, factor, emit.load(emit.at(lines[k], i * lanes)))
        for one, (_, _, place) in zip(sums, places, strict=True):
            emit.store(builder.fadd(emit.load(place), builder.load(one)), place)
        return context.get_dummy_value()

    number = types.int64
    return types.void(m, scales, offsets, number, number, number, number, out, number, number, shape), generate


def _pool(context: Any, values: Any, at: Any, step: Any, window: Any, relu: Any, out: Any, to: Any, count: Any,
          chosen: Any, place: Any, keep: Any, shape: Any) -> Any:  # fmt: skip
    """The largest of a window's pixels, through a ReLU or not, for `count` of a vector's channels.

    For `shape` = (lanes,): of values[at + p·step + c], p < window, the first largest goes to out[to + c] and, if
    `keep`, its p to chosen[place + c], or `DEAD`. NaN is larger than anything, and the last one counts, as in torch.
    """
    (lanes,) = shape.numbers

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        emit = Emitter(context, builder, signature, arguments, lanes)
        values, at, step, window, relu, out, to, count, chosen, place, keep, _ = emit.arguments
        words = ir.VectorType(WORD, lanes)
        best, which = emit.sums(1)[0], cgutils.alloca_once(builder, words)
        builder.store(emit.load(emit.at(values, at)), best)
        builder.store(emit.constant(0, WORD), which)
        one = ir.Constant(INDEX, 1)
        with cgutils.for_range_slice(builder, one, window, one) as (p, _):
            new, old = emit.load(emit.at(values, at, builder.mul(p, step))), builder.load(best)
            better = builder.or_(builder.fcmp_ordered(">", new, old), builder.fcmp_unordered("uno", new, new))
            builder.store(builder.select(better, new, old), best)
            number = emit.splat(builder.trunc(p, WORD))
            builder.store(builder.select(better, number, builder.load(which)), which)
        largest = builder.load(best)
        dead = builder.and_(builder.fcmp_ordered("<=", largest, emit.constant(0.0)), emit.splat(_bit(builder, relu)))
        largest = builder.select(dead, emit.constant(0.0), largest)
        target = emit.at(out, to)
        emit.store(builder.select(emit.upto(count), largest, emit.load(target)), target)
        with builder.if_then(_bit(builder, keep)):
            number = builder.select(dead, emit.constant(DEAD, WORD), builder.load(which))
            emit.store(builder.trunc(number, ir.VectorType(BYTE, lanes)), emit.at(chosen, place))
        return context.get_dummy_value()

    number = types.int64
    flag = types.boolean
    signature = types.void(
        values, number, number, number, flag, out, number, number, chosen, number, flag, shape
    )  # fmt: skip
    return signature, generate


def _hits(context: Any, g: Any, at: Any, chosen: Any, place: Any, wanted: Any, count: Any, shape: Any) -> Any:
    """Which of the first `count` channels of a vector have a gradient, as the bits of a word.

    For `shape` = (lanes,): bit c is set if g[at + c] is not zero and chosen[place + c] is `wanted`, or for a wanted
    `DEAD` anything else.
    """
    (lanes,) = shape.numbers

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        emit = Emitter(context, builder, signature, arguments, lanes)
        g, at, chosen, place, wanted, count, _ = emit.arguments
        numbers = emit.load(emit.at(chosen, place), ir.VectorType(BYTE, lanes))
        same = builder.icmp_unsigned("==", numbers, emit.splat(builder.trunc(wanted, BYTE)))
        inverted = builder.icmp_unsigned("==", wanted, ir.Constant(INDEX, DEAD))
        fits = builder.xor(same, emit.splat(inverted))
        counts = builder.fcmp_unordered("!=", emit.load(emit.at(g, at)), emit.constant(0.0))
        bits = builder.bitcast(builder.and_(fits, counts), ir.IntType(lanes))
        first = builder.sub(builder.shl(ir.Constant(INDEX, 1), count), ir.Constant(INDEX, 1))
        return builder.and_(builder.zext(bits, INDEX), first)

    number = types.int64
    return types.uint64(g, number, chosen, number, number, number, shape), generate


def _transpose(context: Any, m: Any, at: Any, line: Any, out: Any, to: Any, width: Any, shape: Any) -> Any:
    """out[to + i·width + j] = m[at + j·line + i], for i, j < lanes of `shape` = (lanes,)."""
    (lanes,) = shape.numbers

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        emit = Emitter(context, builder, signature, arguments, lanes)
        m, at, line, out, to, width, _ = emit.arguments
        times = [ir.Constant(INDEX, i) for i in range(lanes)]
        vectors = [emit.load(emit.at(m, at, builder.mul(line, i))) for i in times]
        half = lanes // 2
        for _ in range(half.bit_length()):  # interleaves the first and the second half, log2(lanes) times
            pairs = [emit.shuffled(vectors[j], vectors[j + half]) for j in range(half)]
            vectors = [vector for pair in pairs for vector in pair]
        for vector, i in zip(vectors, times, strict=True):
            emit.store(vector, emit.at(out, to, builder.mul(width, i)))
        return context.get_dummy_value()

    number = types.int64
    return types.void(m, number, number, out, number, number, shape), generate


def _bit(builder: Any, flag: Any) -> Any:
    return flag if flag.type == ir.IntType(1) else builder.trunc(flag, ir.IntType(1))


tile: Callable[..., None] = cast(Any, intrinsic(_tile))
gather: Callable[..., None] = cast(Any, intrinsic(_gather))
pool: Callable[..., None] = cast(Any, intrinsic(_pool))
hits: Callable[..., Any] = cast(Any, intrinsic(_hits))
transpose: Callable[..., None] = cast(Any, intrinsic(_transpose))
"""For compiled code."""
