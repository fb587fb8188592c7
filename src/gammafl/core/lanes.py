"""Operations on sixteen numbers at a time, for compiled code: find the large ones, and pack the wanted ones.

A compiler can't turn a loop into "pack the wanted numbers", which processors with AVX-512 do in one instruction. So
these few steps are written as LLVM code; for other processors, LLVM makes plain loops of them. Arrays must be
contiguous, with 32-bit numbers. Nothing here checks bounds.
"""

from collections.abc import Callable
from typing import Any, cast

from llvmlite import binding, ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

LANES = 16
INDEX, WORD, BIT = ir.IntType(64), ir.IntType(32), ir.IntType(1)
VECTOR, FLAGS = ir.VectorType(WORD, LANES), ir.VectorType(BIT, LANES)
MAGNITUDES = ir.Constant(VECTOR, [0x7FFFFFFF] * LANES)

IN_REGISTERS = binding.llvm_version_info >= (19, 0, 0)
"""Whether LLVM packs a vector in registers, before it writes it. On some processors this is much faster."""


def _pointer(context: Any, builder: Any, kind: Any, array: Any, at: Any) -> Any:
    """A pointer to the number at `at`."""
    data = context.make_array(kind)(context, builder, array).data
    return builder.bitcast(builder.gep(data, [at]), WORD.as_pointer())


def _load(context: Any, builder: Any, kind: Any, array: Any, at: Any) -> Any:
    """The numbers from `at` on."""
    pointer = _pointer(context, builder, kind, array, at)
    return builder.load(builder.bitcast(pointer, VECTOR.as_pointer()), align=4)


def _splat(builder: Any, number: Any) -> Any:
    """The number in each lane."""
    nothing = ir.Constant(VECTOR, ir.Undefined)
    first = builder.insert_element(nothing, number, ir.Constant(WORD, 0))
    return builder.shuffle_vector(first, nothing, ir.Constant(VECTOR, None))


def _above(context: Any, bits: Any, at: Any, limit: Any) -> Any:
    """Which of bits[at:at + LANES] are magnitudes above the limit: one bit each, the lowest for the first."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array, at, limit = arguments
        loaded = _load(context, builder, signature.args[0], array, at)
        larger = builder.icmp_unsigned(">", builder.and_(loaded, MAGNITUDES), _splat(builder, limit))
        return builder.zext(builder.bitcast(larger, ir.IntType(LANES)), INDEX)

    return types.uint64(bits, types.uint64, types.uint32), generate


def _pack(context: Any, source: Any, at: Any, wanted: Any, out: Any, to: Any) -> Any:
    """Writes those of source[at:at + LANES] whose bit of `wanted` is set to out[to:].

    The rest up to out[to + LANES] is undefined. All numbers are read before any is written.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        source, at, wanted, out, to = arguments
        loaded = _load(context, builder, signature.args[0], source, at)
        flags = builder.bitcast(builder.trunc(wanted, ir.IntType(LANES)), FLAGS)
        target = _pointer(context, builder, signature.args[3], out, to)
        if IN_REGISTERS:
            kind = ir.FunctionType(VECTOR, [VECTOR, FLAGS, VECTOR])
            name = f"llvm.experimental.vector.compress.v{LANES}i32"
            compress = cgutils.get_or_insert_function(builder.module, kind, name)
            packed = builder.call(compress, [loaded, flags, ir.Constant(VECTOR, ir.Undefined)])
            builder.store(packed, builder.bitcast(target, VECTOR.as_pointer()), align=4)
        else:
            for lane in (ir.Constant(WORD, number) for number in range(LANES)):
                builder.store(builder.extract_element(loaded, lane), target)
                target = builder.gep(target, [builder.zext(builder.extract_element(flags, lane), INDEX)])
        return context.get_dummy_value()

    return types.void(source, types.uint64, types.uint64, out, types.uint64), generate


above: Callable[..., Any] = cast(Any, intrinsic(_above))
pack: Callable[..., None] = cast(Any, intrinsic(_pack))
