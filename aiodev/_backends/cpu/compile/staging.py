"""Staging of results: they are put together in the first-level cache, a block at a time, before they go to memory.

**Problem.** A loop that writes ``out[i]`` has two bad cases. Where ``out`` is an input as well (``x = exp(x)``), LLVM's
check that arrays do not overlap fails at run time, and the loop runs without vectors. Where ``out`` is larger than the
caches, each line of it is read before it is overwritten.

**Solution.** In these two cases a block on the stack takes the place of a part of ``out``; what it holds is then copied
to ``out``, in the second case past the caches (LLVM's non-temporal stores). This is done around the entry that numba compiled:
the entry is called for as many indices as fill the block, with arguments in which ``out`` lies where its element ``lo`` falls
on the block's first.

**Invariants.**

1.  A result is staged only if each index writes its own element, whichever way it goes through the body, and nothing reads
    it (:func:`staged_arguments`), and if it is contiguous and has the launch's shape, so that the range ``lo`` … ``hi - 1``
    writes exactly its elements ``lo`` … ``hi - 1``. Then the block holds what ``out`` would hold.
2.  Where an input is ``out`` itself, an index reads its own element as it was before. So a result is not staged where it
    overlaps an array that the body writes as well; nor, if the body may read anything once it has written an element of it
    (``late``), where it overlaps any other array.

Inputs that overlap ``out`` so that an index reads what another writes are the caller's, as they are without staging.
"""

from __future__ import annotations

import functools
import platform
from collections.abc import Sequence
from typing import Any, NamedTuple

from llvmlite import ir as llvm
from numba.core import cgutils, compiler, ir
from numba.core.registry import cpu_target

from aiodev._backends.cpu.compile.body import Uses, argument_names, only_value
from aiodev._backends.cpu.properties import cache_bytes
from aiodev._core.backend.kernel_arguments import KernelArgument

__all__ = ["Staged", "staged_arguments", "staging_module"]

#: Bytes of a block; a page, so that it has a place in the cache for every place in a page.
BLOCK = 4096
#: Fewer indices than this are not staged. Larger: short kernels write past less of the cache; smaller: staging costs more than
#: it saves.
SHORTEST = 64
_LINE = 64  #: bytes of a cache line, which is what is written past the caches at a time
_INT, _BYTE, _WORD = llvm.IntType(32), llvm.IntType(8), llvm.IntType(64)
_POINTER = _BYTE.as_pointer()
#: ``int32 f(int64 *result, void **excinfo, int64 arguments, int64 lo, int64 hi)``
_ENTRY = llvm.FunctionType(_INT, [_WORD.as_pointer(), _POINTER.as_pointer(), _WORD, _WORD, _WORD])


@functools.cache
def streaming_bytes() -> int:
    """The size from which a result goes past the caches: that of the last-level cache, which it would not stay in."""
    return cache_bytes(3) or 32 << 20


class Staged(NamedTuple):
    """Which arguments may be staged, by their positions.

    Attributes:
        results: arrays that a body only ever writes, at its own index, on every way through it.
        late: those of them that it may read other arrays behind.
        written: other arrays that it may write.
    """

    results: tuple[int, ...]
    late: frozenset[int]
    written: frozenset[int]


def staged_arguments(function: Any, ndim: int, arguments: Sequence[KernelArgument]) -> Staged:
    """What may be staged of the arguments of ``function``."""
    code = compiler.run_frontend(function)
    names = argument_names(code)
    places = (position for position, one in enumerate(arguments) if one.is_array and ndim + position in names)
    own = {position: names[ndim + position] for position in places}
    results = tuple(
        position
        for position, name in own.items()
        if arguments[position].ndim == ndim
        and not arguments[position].readonly
        and _is_only_written(code, name, ndim)
    )
    uses = Uses(code, {name: arguments[position].ndim for position, name in own.items()})
    late = frozenset(position for position in results if uses.reads_behind_writes_of(own[position]))
    others = [position for position in own if position not in results and not arguments[position].readonly]
    return Staged(results, late, frozenset(position for position in others if uses.may_write(own[position])))


def _is_only_written(code: Any, array: str, ndim: int) -> bool:
    writing = set()
    for label, block in code.blocks.items():
        for statement in block.body:
            if isinstance(statement, ir.Del):
                continue
            if isinstance(statement, ir.SetItem) and statement.target.name == array:
                if statement.value.name == array or not _is_own_index(code, statement.index, ndim):
                    return False
                writing.add(label)
            elif isinstance(statement, ir.Assign) and isinstance(statement.value, ir.Arg):
                continue
            elif any(variable.name == array for variable in statement.list_vars()):
                return False
    return not _returns_without(code, writing)


def _is_own_index(code: Any, index: Any, ndim: int) -> bool:
    """Whether ``index`` is the kernel's own, (i, j, …) in this order."""
    value = only_value(code, index)
    if ndim > 1:
        if not (isinstance(value, ir.Expr) and value.op == "build_tuple" and len(value.items) == ndim):
            return False
        parts = [only_value(code, item) for item in value.items]
    else:
        parts = [value]
    return all(isinstance(part, ir.Arg) and part.index == position for position, part in enumerate(parts))


def _returns_without(code: Any, blocks: set[int]) -> bool:
    """Whether the function can return without having gone through one of ``blocks``."""
    pending, seen = [min(code.blocks)], set()
    while pending:
        label = pending.pop()
        if label in seen or label in blocks:
            continue
        seen.add(label)
        terminator = code.blocks[label].terminator
        if isinstance(terminator, ir.Return):
            return True
        pending += terminator.get_targets()
    return False


def staging_module(name: str, inner: str, ndim: int, arguments: Sequence[KernelArgument], staged: Staged) -> str:
    """LLVM assembly of the entry ``name``, which calls the entry ``inner`` with staged results in blocks."""
    module = cpu_target.target_context.codegen()._create_empty_module(name)
    entry = llvm.Function(module, _ENTRY, name)
    _Entry(entry, llvm.Function(module, _ENTRY, inner), ndim, arguments, staged).build()
    return str(module)


class _Entry:
    """Builds one entry."""

    def __init__(self, entry: Any, inner: Any, ndim: int, arguments: Sequence[KernelArgument], staged: Staged) -> None:
        self._inner, self._ndim, self._arguments = inner, ndim, arguments
        self._staged = [arguments[position] for position in staged.results]
        self._others = [a for position, a in enumerate(arguments) if a.ndim > 0 and position not in staged.results]
        results, written = set(staged.results), staged.written
        self._apart = [  # results, and what they must not overlap
            (arguments[result], other)
            for result in staged.results
            for position, other in enumerate(arguments)
            if other.is_array and position != result and (result in staged.late or position in written or position in results)
        ]
        self._builder = llvm.IRBuilder(entry.append_basic_block())
        self._results = entry.args[:2]
        self._block, self._lo, self._hi = entry.args[2:]

    def build(self) -> None:
        """Write the whole."""
        builder = self._builder
        shape = [self._word(self._block, 8 * d) for d in range(self._ndim)]
        size = functools.reduce(builder.mul, shape)
        largest = max(argument.itemsize for argument in self._staged)
        past_caches = builder.icmp_unsigned(">=", size, _constant(streaming_bytes() // largest))
        bases = [self._word(self._block, argument.offset) for argument in self._staged]
        staged = past_caches
        for other in self._others:
            address = self._word(self._block, other.offset)
            for base in bases:
                staged = builder.or_(staged, builder.icmp_unsigned("==", base, address))
        for argument in self._staged:
            staged = builder.and_(staged, self._is_contiguous(argument, shape))
        for result, other in self._apart:
            staged = builder.and_(staged, self._are_apart(result, other))
        staged = builder.and_(staged, builder.icmp_signed(">=", builder.sub(self._hi, self._lo), _constant(SHORTEST)))
        with builder.if_then(builder.not_(staged)):
            builder.ret(builder.call(self._inner, [*self._results, self._block, self._lo, self._hi]))
        self._run_blocks(bases, past_caches, BLOCK // largest)
        with builder.if_then(past_caches):
            _drain_stores(builder)
        builder.ret(_INT(0))

    def _run_blocks(self, bases: list[Any], past_caches: Any, step: int) -> None:
        builder = self._builder
        nbytes = max(argument.offset + 8 * argument.words for argument in self._arguments)
        moved = self._on_stack(nbytes)
        _copy(builder, moved, self._block, _constant(nbytes))
        blocks = [self._on_stack(BLOCK) for _ in self._staged]
        with cgutils.for_range_slice(builder, self._lo, self._hi, _constant(step)) as (first, _):
            left = builder.sub(self._hi, first)
            count = builder.select(builder.icmp_signed("<", left, _constant(step)), left, _constant(step))
            for argument, block in zip(self._staged, blocks, strict=True):
                start = builder.mul(first, _constant(argument.itemsize))
                builder.store(builder.sub(block, start), self._place(moved, argument.offset))
            status = builder.call(self._inner, [*self._results, moved, first, builder.add(first, count)])
            with builder.if_then(builder.icmp_unsigned("!=", status, _INT(0)), likely=False):
                builder.ret(status)
            for argument, base, block in zip(self._staged, bases, blocks, strict=True):
                itemsize = _constant(argument.itemsize)
                target = builder.add(base, builder.mul(first, itemsize))
                _copy_out(builder, target, block, builder.mul(count, itemsize), past_caches)

    def _is_contiguous(self, argument: KernelArgument, shape: list[Any]) -> Any:
        """Whether an array has the launch's shape and C order."""
        builder = self._builder
        contiguous, stride = llvm.IntType(1)(1), _constant(argument.itemsize)
        for d in reversed(range(self._ndim)):
            length = self._word(self._block, argument.offset + 8 + 8 * d)
            contiguous = builder.and_(contiguous, builder.icmp_unsigned("==", length, shape[d]))
            if argument.layout == "A":
                actual = self._word(self._block, argument.offset + 8 + 8 * (self._ndim + d))
                contiguous = builder.and_(contiguous, builder.icmp_unsigned("==", actual, stride))
            stride = builder.mul(stride, shape[d])
        return contiguous

    def _are_apart(self, result: KernelArgument, other: KernelArgument) -> Any:
        """Whether no element of one array lies among those of the other."""
        builder = self._builder
        (first, last), (begin, end) = self._extent(result), self._extent(other)
        return builder.or_(builder.icmp_unsigned("<=", last, begin), builder.icmp_unsigned("<=", end, first))

    def _extent(self, argument: KernelArgument) -> tuple[Any, Any]:
        """Where an array's first byte is, and the first one behind it."""
        builder, itemsize = self._builder, _constant(argument.itemsize)
        begin = self._word(self._block, argument.offset)
        last, stride = begin, itemsize  # where the last element begins
        for d in reversed(range(argument.ndim)):
            length = self._word(self._block, argument.offset + 8 + 8 * d)
            if argument.layout == "A":
                stride = self._word(self._block, argument.offset + 8 + 8 * (argument.ndim + d))
            way = builder.mul(builder.sub(length, _constant(1)), stride)
            back = builder.icmp_signed("<", way, _constant(0))
            begin = builder.select(back, builder.add(begin, way), begin)
            last = builder.select(back, last, builder.add(last, way))
            if argument.layout == "C":
                stride = builder.mul(stride, length)
        return begin, builder.add(last, itemsize)

    def _place(self, block: Any, offset: int) -> Any:
        return self._builder.inttoptr(self._builder.add(block, _constant(offset)), _WORD.as_pointer())

    def _word(self, block: Any, offset: int) -> Any:
        return self._builder.load(self._place(block, offset))

    def _on_stack(self, nbytes: int) -> Any:
        with self._builder.goto_entry_block():
            place = self._builder.alloca(_BYTE, size=nbytes)
            place.align = _LINE
        return self._builder.ptrtoint(place, _WORD)


def _constant(value: int) -> Any:
    return llvm.Constant(_WORD, value)


def _copy_out(builder: Any, target: Any, block: Any, nbytes: Any, past_caches: Any) -> None:
    """Copy a block to memory; past the caches from the first line on that is written whole, if so wished."""
    line = _constant(_LINE)
    vector = llvm.VectorType(_INT, _LINE // 4).as_pointer()
    before = builder.and_(builder.neg(target), _constant(_LINE - 1))
    direct = builder.or_(builder.not_(past_caches), builder.icmp_unsigned(">=", before, nbytes))
    before = builder.select(direct, nbytes, before)
    lines = builder.udiv(builder.sub(nbytes, before), line)
    _copy(builder, target, block, before)
    with cgutils.for_range(builder, lines) as loop:
        offset = builder.add(before, builder.mul(loop.index, line))
        value = builder.load(builder.inttoptr(builder.add(block, offset), vector))
        value.align = 1
        stored = builder.store(value, builder.inttoptr(builder.add(target, offset), vector))
        stored.align = _LINE
        stored.set_metadata("nontemporal", builder.module.add_metadata([_INT(1)]))
    done = builder.add(before, builder.mul(lines, line))
    with builder.if_then(builder.icmp_unsigned("<", done, nbytes), likely=False):
        _copy(builder, builder.add(target, done), builder.add(block, done), builder.sub(nbytes, done))


def _copy(builder: Any, target: Any, source: Any, nbytes: Any) -> None:
    cgutils.raw_memcpy(builder, builder.inttoptr(target, _POINTER), builder.inttoptr(source, _POINTER), nbytes, 1)


def _drain_stores(builder: Any) -> None:
    """Let what was written past the caches be seen before anything that is written later."""
    if platform.machine() in ("x86_64", "AMD64"):
        fence = llvm.FunctionType(llvm.VoidType(), [])
        builder.call(cgutils.get_or_insert_function(builder.module, fence, "llvm.x86.sse.sfence"), [])
    else:
        builder.fence("seq_cst")
