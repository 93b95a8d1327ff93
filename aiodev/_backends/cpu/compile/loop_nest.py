"""A body as a nest of loops: segments and loops in turn, and again within each loop.

A *segment* is what an index goes through between two loops, with branches, if there are any. A loop of the nest is met by every
index, and runs over a range that is the same for all. Bodies of other forms, with loops that are skipped or left early, for
instance, have no nest.
"""

from __future__ import annotations

import math
import types
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numba.core import ir
from numba.core.analysis import compute_cfg_from_blocks

from aiodev._backends.cpu.compile.body import Uses, argument_names, only_value
from aiodev._core.backend.kernel_arguments import KernelArgument

__all__ = ["Items", "Loop", "LoopNest", "NoNestError", "Segment"]

#: A nest with more statements in its loops than this gains nothing: its numbers would not stay in registers.
LARGEST = 48
#: Loops of no more rounds than this, known beforehand, are none: LLVM writes them out, and makes vectors of indices.
SHORT = 16
#: What may be called in a loop: an instruction or two.
_CHEAP = (abs, bool, float, int, len, max, min, range, math.fabs, math.sqrt, np.abs, np.sqrt)
_OPERATIONS = {"binop", "build_tuple", "call", "cast", "exhaust_iter", "getattr", "getitem", "inplace_binop"}
_OPERATIONS |= {"static_getitem", "unary"}
_COUNTING = {"getiter", "iternext", "pair_first", "pair_second"}


class Segment(NamedTuple):
    """Blocks that an index goes through, from ``entry`` on, until one leads to ``stop``, or, without, until it returns."""

    entry: int
    stop: int | None
    labels: list[int]


class Loop(NamedTuple):
    """A loop over a range.

    Attributes:
        header: the block that counts.
        items: what it leads to in each round.
        behind: the block that it leads to in the end.
        is_counted: whether it counts upwards, from 0 or from more.
    """

    header: int
    items: list[Segment | Loop]
    behind: int
    is_counted: bool


Items = list[Segment | Loop]


class NoNestError(Exception):
    """A body has another form."""


class LoopNest:
    """A body as a nest of loops.

    Args:
        code: numba's IR of it, from the frontend.
        ndim: how many of its arguments are its index.
        arguments: the others.

    Attributes:
        items: segments and loops in turn; the last one is a segment.
        uses: of arrays.

    Raises:
        NoNestError: it has another form.
    """

    def __init__(self, code: Any, ndim: int, arguments: Sequence[KernelArgument]) -> None:
        self._code, self._ndim = code, ndim
        names = argument_names(code)
        places = (place for place, one in enumerate(arguments) if one.is_array and ndim + place in names)
        self.uses = Uses(code, {names[ndim + place]: arguments[place].ndim for place in places})
        self._graph = compute_cfg_from_blocks(code.blocks)
        self._loops = self._graph.loops()
        self._axes: dict[str, frozenset[int] | None] = {}
        self._certain: set[str] = set()  # variables that are assigned on every way through the body, or through a loop's round
        self.items = self._items(min(code.blocks), None, None)

    # Its form

    def _items(self, entry: int, stop: int | None, within: Any) -> Items:
        """What follows each other from ``entry`` to ``stop``, in numba's loop ``within``."""
        items: Items = []
        while True:
            header = self._next_loop(entry, stop)
            end = stop if header is None else header
            segment = Segment(entry, end, self._reached(entry, end, within))
            items.append(segment)
            self._note_certain(self._graph.post_dominators()[entry].intersection(segment.labels))
            if header is None:
                return items
            loop = self._loop(header)
            items.append(loop)
            entry = loop.behind
            if entry == stop:
                return items

    def _next_loop(self, entry: int, stop: int | None) -> int | None:
        """The first loop that whatever is at ``entry`` goes through before it is at ``stop``."""
        dominators = self._graph.post_dominators()
        for label in sorted(dominators[entry] - {entry}, key=lambda label: -len(dominators[label])):  # from the nearest on
            if label == stop:
                return None
            if label in self._loops:
                return int(label)
        return None

    def _reached(self, entry: int, stop: int | None, within: Any) -> list[int]:
        """The blocks from ``entry`` to ``stop``."""
        seen: set[int] = set()
        pending = [entry]
        while pending:
            label = pending.pop()
            if label in seen or label == stop:
                continue
            if label in self._loops or (within is not None and label not in within.body):
                raise NoNestError  # a loop that is not always met, or is left early
            seen.add(label)
            pending += self._code.blocks[label].terminator.get_targets()
        return sorted(seen)

    def _loop(self, header: int) -> Loop:
        numbas, block = self._loops[header], self._code.blocks[header]
        assigned: dict[str, Any] = {}
        for statement in block.body[:-1]:
            value = statement.value if isinstance(statement, ir.Assign) else None
            passed_on = isinstance(value, ir.Var) and value.name in assigned
            if not passed_on and not (isinstance(value, ir.Expr) and value.op in _COUNTING):
                raise NoNestError
            assigned[statement.target.name] = value
        self._note_certain([header])
        branch, following = block.terminator, self._following(header)
        if following is None or not isinstance(branch, ir.Branch):
            raise NoNestError
        if branch.truebr not in numbas.body or branch.falsebr in numbas.body:
            raise NoNestError
        if self._range_of(following) is None or self.axes_of(following.value) != frozenset():
            raise NoNestError
        return Loop(header, self._items(branch.truebr, header, numbas), branch.falsebr, self._is_counted(following))

    def _note_certain(self, labels: Iterable[int]) -> None:
        for label in labels:
            self._certain.update(one.target.name for one in self._code.blocks[label].find_insts(ir.Assign))

    def _following(self, header: int) -> Any:
        """The expression by which a loop has its next number."""
        return next(self._code.blocks[header].find_exprs("iternext"), None)

    def _range_of(self, following: Any) -> Any:
        """The call of ``range`` that a loop goes through; None where it goes through something else."""
        iterator = only_value(self._code, following.value)
        if not (isinstance(iterator, ir.Expr) and iterator.op == "getiter"):
            return None
        call = only_value(self._code, iterator.value)
        if not (isinstance(call, ir.Expr) and call.op == "call" and self._called(call) is range):
            return None
        return call if call.args and call.vararg is None else None

    def _limits(self, following: Any) -> list[Any]:
        """What is known of the limits of a loop's range."""
        return [only_value(self._code, one) for one in self._range_of(following).args]

    def _is_counted(self, following: Any) -> bool:
        start, *others = self._limits(following)
        return not others or (isinstance(start, ir.Const) and start.value >= 0 and len(others) == 1)

    # What it computes

    def axes_of(self, variable: Any) -> frozenset[int] | None:
        """The axes of a launch along which a variable may differ, if nothing is written; None where that is not known.

        It is not for one that is assigned in a branch: that depends on what an index does.
        """
        if variable.name not in self._certain:
            return None
        if variable.name not in self._axes:
            self._axes[variable.name] = None  # for what depends on itself
            values = self._code._definitions[variable.name]
            self._axes[variable.name] = self._axes_of_value(values[0]) if len(values) == 1 else None
        return self._axes[variable.name]

    def _axes_of_value(self, value: Any) -> frozenset[int] | None:
        if isinstance(value, ir.Arg):
            return frozenset({value.index} if value.index < self._ndim else ())
        if isinstance(value, ir.Const | ir.Global | ir.FreeVar):
            return frozenset()
        if isinstance(value, ir.Var):
            return self.axes_of(value)
        if not isinstance(value, ir.Expr) or value.op not in _OPERATIONS | _COUNTING:
            return None
        if value.op == "call" and not _is_cheap(self._called(value)):
            return None
        axes: frozenset[int] = frozenset()
        for part in map(self.axes_of, value.list_vars()):
            if part is None:
                return None
            axes |= part
        return axes

    def _called(self, call: Any) -> Any:
        """What is called, where that is known beforehand."""
        value = only_value(self._code, call.func)
        if isinstance(value, ir.Expr) and value.op == "getattr":
            module = only_value(self._code, value.value)
            if isinstance(module, ir.Global | ir.FreeVar) and isinstance(module.value, types.ModuleType):
                return getattr(module.value, value.attr, None)
        return value.value if isinstance(value, ir.Global | ir.FreeVar) else None

    # What it does

    @property
    def may_be_tiled(self) -> bool:
        """Whether indices may take turns in it: nothing is written, nor called that may write, before the last segment."""
        *items, last = self.items
        return (
            all(self._only_computes(one, isinstance(item, Loop)) for item in items for one in self._statements(item))
            and all(self._is_known(one) or isinstance(one, ir.SetItem | ir.StaticSetItem) for one in self._statements(last))
        )

    @property
    def gains(self) -> bool:
        """Whether it has a loop that LLVM does not write out, and whose numbers stay in registers for some indices at once."""
        loops = [item for item in self.items if isinstance(item, Loop)]
        size = sum(1 for loop in loops for _ in self._statements(loop))
        return size <= LARGEST and not all(map(self._is_short, loops))

    def _statements(self, item: Segment | Loop) -> Iterator[Any]:
        if isinstance(item, Segment):
            for label in item.labels:
                yield from self._code.blocks[label].body
        else:
            yield from self._code.blocks[item.header].body
            for one in item.items:
                yield from self._statements(one)

    def _only_computes(self, statement: Any, in_loop: bool) -> bool:
        """Whether a statement writes to no array, and, in a loop, costs little."""
        if not self._is_known(statement):
            return False
        value = statement.value if isinstance(statement, ir.Assign) else None
        if isinstance(value, ir.Expr) and value.op == "inplace_binop":
            return not self.uses.is_used(value.lhs)
        if isinstance(value, ir.Expr) and value.op == "call":
            return _is_cheap(self._called(value)) or not (in_loop or self.uses.is_used(*value.list_vars()))
        return True

    def _is_known(self, statement: Any) -> bool:
        if not isinstance(statement, ir.Assign):
            return isinstance(statement, ir.Jump | ir.Branch | ir.Return)
        value = statement.value
        if isinstance(value, ir.Expr):
            return value.op in _OPERATIONS | _COUNTING
        return isinstance(value, ir.Arg | ir.Const | ir.Global | ir.FreeVar | ir.Var)

    def _is_short(self, loop: Loop) -> bool:
        """Whether it, and what is in it, has few rounds, whose number is known beforehand."""
        limits = self._limits(self._following(loop.header))
        if not all(isinstance(one, ir.Const | ir.Global | ir.FreeVar) and isinstance(one.value, int) for one in limits):
            return False
        try:
            rounds = len(range(*(one.value for one in limits)))
        except ValueError:  # steps of 0, which is said when it runs
            return False
        return rounds <= SHORT and all(self._is_short(one) for one in loop.items if isinstance(one, Loop))


def _is_cheap(called: Any) -> bool:
    return any(called is one for one in _CHEAP) or (isinstance(called, type) and issubclass(called, np.generic))
