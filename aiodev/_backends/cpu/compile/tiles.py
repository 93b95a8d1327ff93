"""Tiles: bodies that loop are compiled for several indices at once, whose loops are one.

**Problem.** A body that sums along a loop, as one element of a product does, loads two numbers for each multiplication, and
each addition waits for the one before. Its neighbours load the same numbers again.

**Solution.** *Unroll and jam* over the indices of a launch, also known as register tiling (Callahan, Carr, Kennedy: Improving
Register Allocation for Subscripted Variables, PLDI 1990). A body is a nest of segments and loops
(:mod:`aiodev._backends.cpu.compile.loop_nest`). A *tile* of indices runs the first segment once for each of them; then the
loop, with what is in it once a round for each; and so on. What they share is then loaded once, and their sums do not wait for
each other. What is the same along an axis of the tile is computed once for that.

**Invariants.**

1.  Each index computes what it would by itself, in the same order; the indices of a tile take turns. Nothing is written before
    the last segment, so an index that reads its own elements finds them as they were.
2.  All indices of a tile go as often through a loop.
3.  Which indices are a tile depends on the launch's shape, not on how it is cut into ranges
    (:mod:`aiodev._backends.cpu.compile.entry_source`). So do sums in the order that ``fastmath`` leaves to the compiler.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, NamedTuple

from numba.core import ir
from numba.core.compiler import run_frontend
from numba.core.compiler_machinery import FunctionPass, register_pass
from numba.core.ir_utils import build_definitions
from numba.core.postproc import PostProcessor
from numba.core.untyped_passes import IRProcessing

from aiodev._backends.cpu.compile.intrinsics import counted
from aiodev._backends.cpu.compile.loop_nest import Items, Loop, LoopNest, NoNestError, Segment
from aiodev._backends.cpu.compile.pipeline import BodyCompiler
from aiodev._core.backend.kernel_arguments import KernelArgument

__all__ = ["Tile", "tile_compiler", "tile_of"]


class Tile(NamedTuple):
    """So many rows by so many columns of a launch's indices; columns are along its last axis."""

    rows: int
    columns: int


#: By a launch's dimensions. Eight sums, and what they take, stay in sixteen registers.
_TILES = {1: Tile(1, 4), 2: Tile(4, 2), 3: Tile(4, 2)}


def tile_of(function: Any, ndim: int, arguments: Sequence[KernelArgument]) -> Tile | None:
    """The tile that a body is to be compiled for; None where that cannot be, or gains nothing."""
    try:
        nest = LoopNest(run_frontend(function), ndim, arguments)
    except NoNestError:
        return None
    return _TILES[ndim] if nest.gains and nest.may_be_tiled else None


def tile_compiler(tile: Tile, ndim: int, arguments: Sequence[KernelArgument]) -> type[BodyCompiler]:
    """A compiler that makes of a body that of a tile, which takes the same: its index is that of the tile's first."""
    wanted = _Wanted(tile, ndim, arguments)

    class TileCompiler(BodyCompiler):
        def define_pipelines(self) -> list[Any]:
            pipelines = super().define_pipelines()
            self.state.metadata[_WANTED] = wanted
            for pipeline in pipelines:
                pipeline.add_pass_after(_TilePass, IRProcessing)
                pipeline.finalize()
            return pipelines

    return TileCompiler


class _Wanted(NamedTuple):
    """What a compiler is to make of a body."""

    tile: Tile
    ndim: int
    arguments: Sequence[KernelArgument]


_WANTED = "aiodev_tile"  # among what a compiler knows of a function


@register_pass(mutates_CFG=True, analysis_only=False)
class _TilePass(FunctionPass):
    """Makes of a body that of a tile."""

    _name = "aiodev_tile"

    def __init__(self) -> None:
        super().__init__()

    def run_pass(self, state: Any) -> bool:
        tile, ndim, arguments = state.metadata[_WANTED]
        _Tiling(state.func_ir, LoopNest(state.func_ir, ndim, arguments), tile, ndim).apply()
        return True


class _Index(NamedTuple):
    """An index of a tile: its number, and how far it is from the first."""

    number: int
    row: int
    column: int


class _Tiling:
    """Makes of a body, which is a nest of loops, that of a tile."""

    def __init__(self, code: Any, nest: LoopNest, tile: Tile, ndim: int) -> None:
        self._code, self._nest = code, nest
        self._row_axis, self._column_axis = ndim - 2, ndim - 1
        places = [(row, column) for column in range(tile.columns) for row in range(tile.rows)]
        self._indices = [_Index(number, *place) for number, place in enumerate(places)]
        self._blocks: dict[int, Any] = {}
        self._last_label = max(code.blocks)
        self._axes: dict[str, frozenset[int]] = {}  # of variables that differ along these alone

    def apply(self) -> None:
        """Put the tile's blocks in the place of the body's."""
        self._find_axes(self._nest.items)
        old = self._code.blocks[min(self._code.blocks)]
        first = self._blocks[0] = ir.Block(old.scope, old.loc)  # the least label is the function's entry
        first.append(ir.Jump(self._add_items(self._nest.items, None), old.loc))
        self._code.blocks = self._blocks
        self._code._definitions = build_definitions(self._blocks)
        PostProcessor(self._code).run()

    def _find_axes(self, items: Items) -> None:
        """Find along which axes variables differ; not those that may be arrays of an index's own, which it may write to."""
        for item in items:
            # In the last segment, which writes, an index reads for itself.
            kinds = ir.Const | ir.Global | ir.FreeVar if item is self._nest.items[-1] else object
            for label in [item.header] if isinstance(item, Loop) else item.labels:
                for statement in self._code.blocks[label].find_insts(ir.Assign):
                    axes, is_given = self._nest.axes_of(statement.target), isinstance(statement.value, ir.Arg)
                    is_own = self._nest.uses.is_used(statement.target) and not is_given
                    if axes is not None and isinstance(statement.value, kinds) and not is_own:
                        self._axes[statement.target.name] = axes
            if isinstance(item, Loop):
                self._find_axes(item.items)

    def _computing(self, variable: Any, index: _Index) -> _Index:
        """The index that computes a variable for ``index``: the first one for which it is the same."""
        axes = self._axes.get(variable.name)
        if axes is None:
            return index
        row = index.row if self._row_axis in axes else 0
        column = index.column if self._column_axis in axes else 0
        return next(one for one in self._indices if (one.row, one.column) == (row, column))

    # Blocks

    def _add_items(self, items: Items, after: int | None) -> int:
        """Add the blocks of ``items``, which lead to ``after``, or return; the label of the first."""
        for item in reversed(items):
            after = self._add_loop(item, after) if isinstance(item, Loop) else self._add_segment(item, after)
        assert after is not None
        return after

    def _add_segment(self, segment: Segment, after: int | None) -> int | None:
        for index in reversed(self._indices):
            labels = {label: self._new_label() for label in segment.labels}
            if segment.stop is not None and after is not None:
                labels[segment.stop] = after
            for label in segment.labels:
                old = self._code.blocks[label]
                block = self._blocks[labels[label]] = ir.Block(old.scope, old.loc)
                for statement in old.body:
                    self._add_statement(block, statement, index)
                self._add_terminator(block, old.terminator, index, labels, after)
            after = labels[segment.entry]
        return after

    def _add_loop(self, loop: Loop, after: int | None) -> int:
        """Add a loop, in whose rounds all indices have the same number."""
        assert after is not None
        header, old = self._new_label(), self._code.blocks[loop.header]
        block = self._blocks[header] = ir.Block(old.scope, old.loc)
        for statement in old.body[:-1]:
            target = statement.target
            block.append(statement)
            if loop.is_counted and isinstance(statement.value, ir.Expr) and statement.value.op == "pair_first":
                self._tell_counted(block, target, statement.loc)
            for index in self._indices[1:]:
                if self._computing(target, index) is index:
                    block.append(ir.Assign(target, self._of(target, index), statement.loc))
        rounds = self._add_items(loop.items, header)
        block.append(ir.Branch(old.terminator.cond, rounds, after, old.terminator.loc))
        return header

    def _new_label(self) -> int:
        self._last_label += 1
        return self._last_label

    # Statements

    def _add_statement(self, block: Any, statement: Any, index: _Index) -> None:
        """Add what a statement is for an index; nothing where another index computes that, or it ends the block."""
        loc = statement.loc
        if isinstance(statement, ir.Assign):
            if self._computing(statement.target, index) is index:
                target, value = self._of(statement.target, index), self._of(statement.value, index)
                block.append(ir.Assign(self._from_first(block, target, value, index), target, loc))
        elif isinstance(statement, ir.SetItem):
            block.append(ir.SetItem(*self._of((statement.target, statement.index, statement.value), index), loc))
        elif isinstance(statement, ir.StaticSetItem):
            parts = statement.target, statement.index, statement.index_var, statement.value
            block.append(ir.StaticSetItem(*self._of(parts, index), loc))

    def _add_terminator(self, block: Any, old: Any, index: _Index, labels: dict[int, int], after: int | None) -> None:
        if isinstance(old, ir.Return):
            block.append(ir.Return(self._of(old.value, index), old.loc) if after is None else ir.Jump(after, old.loc))
        elif isinstance(old, ir.Branch):
            block.append(ir.Branch(self._of(old.cond, index), labels[old.truebr], labels[old.falsebr], old.loc))
        else:
            block.append(ir.Jump(labels[old.target], old.loc))

    def _from_first(self, block: Any, target: Any, value: Any, index: _Index) -> Any:
        """An assigned value; where it is the index's own number along an axis, that of the first is so far away."""
        distances = {self._row_axis: index.row, self._column_axis: index.column}
        distance = distances.get(value.index, 0) if isinstance(value, ir.Arg) else 0
        if not distance:
            return value
        first, by = (self._new_variable(block, target, part) for part in ("first", "by"))
        block.append(ir.Assign(value, first, target.loc))
        block.append(ir.Assign(ir.Const(distance, target.loc), by, target.loc))
        return ir.Expr.binop(operator.add, first, by, target.loc)

    def _tell_counted(self, block: Any, variable: Any, loc: Any) -> None:
        """Let the optimiser know that a number is not negative."""
        function, same = (self._new_variable(block, variable, part) for part in ("counted", "same"))
        block.append(ir.Assign(ir.Global("counted", counted, loc), function, loc))
        block.append(ir.Assign(ir.Expr.call(function, [variable], (), loc), same, loc))

    def _new_variable(self, block: Any, like: Any, part: str) -> Any:
        return block.scope.redefine(f"{like.name}${part}", like.loc)

    def _of(self, value: Any, index: _Index) -> Any:
        """What a value is for an index: its variables have the index's number in their names, but those of the first."""
        if isinstance(value, ir.Var):
            number = self._computing(value, index).number
            if not number:
                return value
            name, known = f"{value.name}${number}", value.scope.localvars
            return known.get(name) if name in known else value.scope.define(name, value.loc)
        if isinstance(value, ir.Expr):
            return ir.Expr(value.op, value.loc, **{name: self._of(one, index) for name, one in value._kws.items()})
        if isinstance(value, tuple | list):
            return type(value)(self._of(one, index) for one in value)
        return value
