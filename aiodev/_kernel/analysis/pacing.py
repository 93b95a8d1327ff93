"""Pacing: which arguments say how long an index of a body takes, where they alone, and no elements, bound its loops.

**Problem.** A thread that waits for a kernel may run indices of it meanwhile, if it knows how long one takes: an event loop
must not be held. Of a body with a loop, what an index took says nothing about the next one, nor about the next launch, unless
it is known what the loop's bounds are made of.

**What is known.** A *settled* value is made of constants, scalars among the parameters, lengths of arrays, and settled locals:
never of an element, nor of the launch's index. Every loop is over a ``range`` of settled values, and whatever decides whether,
or how often, a loop runs is settled: a test around it, or around a ``return``, ``break`` or ``continue`` anywhere. Then an
index takes as long as any other of any launch in which those parameters are the same, give or take what is in its branches.

Like the other analyses it believes the source only if that compiles to the body's code, and says None where it does not follow.
"""

from __future__ import annotations

import ast
import builtins
import math
from collections.abc import Callable, Iterable
from typing import Any

from aiodev._kernel.analysis.source import definition
from aiodev._kernel.analysis.uniformity import mentions_known

__all__ = ["paced_by"]

_LENGTHS = frozenset({"shape", "size", "ndim"})
_CALLS = (abs, int, len, max, min)
_LEAVING = (ast.Return, ast.Break, ast.Continue)
_PLAIN = (
    ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Expr, ast.Pass, ast.Raise, ast.Assert, ast.If, ast.For, *_LEAVING,
)  # fmt: skip
#: Expressions that run code of their own, or take a part that may be of any length.
_REFUSED = (
    ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.Yield, ast.YieldFrom, ast.Await,
    ast.NamedExpr, ast.Slice, ast.Starred, ast.In, ast.NotIn,
)  # fmt: skip


def paced_by(function: Callable[..., None], ndim: int) -> frozenset[str] | None:
    """The parameters whose values, or lengths, say how long an index takes; None where it may follow from something else.

    Args:
        function: a body whose first ``ndim`` parameters are the launch's index.
    """
    try:
        tree = definition(function)
        if not isinstance(tree, ast.FunctionDef) or not mentions_known(function, also=(range,)):
            return None
        return _Body(function, tree, ndim).paced_by()
    except (_Unsettled, RecursionError):  # expressions nested so deep that they cannot be followed
        return None


class _Unsettled(Exception):
    """How long it takes follows from something else."""


class _Body:
    """One body, and what each of its locals is made of: parameters, or None for what is not settled."""

    def __init__(self, function: Callable[..., None], tree: ast.FunctionDef, ndim: int) -> None:
        self._function, self._tree = function, tree
        names = [each.arg for each in (*tree.args.posonlyargs, *tree.args.args)]
        self._parameters = frozenset(names[ndim:])
        self._made_of: dict[str, frozenset[str] | None] = {name: frozenset({name}) for name in names[ndim:]}
        self._made_of.update(dict.fromkeys(names[:ndim], None))
        self._outer: dict[str, Any] = {**vars(builtins), **function.__globals__}
        cells = function.__closure__ or ()
        self._outer.update(
            (name, cell.cell_contents) for name, cell in zip(function.__code__.co_freevars, cells, strict=True)
        )
        for name in self._assigned(tree.body):
            self._made_of.setdefault(name, frozenset())

    def paced_by(self) -> frozenset[str]:
        """See the function of this name."""
        while True:  # until no local turns out to be made of more
            before = dict(self._made_of)
            pace = self._follow(self._tree.body, frozenset())
            if before == self._made_of:
                return pace

    def _follow(self, statements: Iterable[ast.stmt], around: frozenset[str] | None) -> frozenset[str]:
        """The parameters that decide how long statements take, inside of tests and loops that are made of ``around``."""
        pace: frozenset[str] = frozenset()
        for statement in statements:
            pace |= self._follow_one(statement, around)
        return pace

    def _follow_one(self, statement: ast.stmt, around: frozenset[str] | None) -> frozenset[str]:
        if not isinstance(statement, _PLAIN):
            raise _Unsettled
        for node in ast.iter_child_nodes(statement):
            if isinstance(node, ast.expr) and any(isinstance(each, _REFUSED) for each in ast.walk(node)):
                raise _Unsettled
        if isinstance(statement, ast.For):
            bounds = self._bounds(statement, around)
            self._assign(statement.target, bounds)
            return bounds | self._follow([*statement.body, *statement.orelse], bounds)
        if isinstance(statement, ast.If):
            test = self._both(around, self._settled(statement.test))
            return self._follow([*statement.body, *statement.orelse], test)
        if isinstance(statement, _LEAVING):
            if around is None:
                raise _Unsettled
            return around
        if isinstance(statement, ast.Assign):
            for target in statement.targets:
                self._assign(target, self._both(around, self._settled(statement.value)))
        elif isinstance(statement, ast.AugAssign | ast.AnnAssign) and statement.value is not None:
            self._assign(statement.target, self._both(around, self._settled(statement.value)))
        return frozenset()

    def _bounds(self, loop: ast.For, around: frozenset[str] | None) -> frozenset[str]:
        """The parameters that say how often a loop runs."""
        call = loop.iter
        if not isinstance(call, ast.Call) or call.keywords or self._value_of(call.func) is not range:
            raise _Unsettled
        bounds = around
        for bound in call.args:
            bounds = self._both(bounds, self._settled(bound))
        if bounds is None:
            raise _Unsettled
        return bounds

    def _assign(self, target: ast.expr, made_of: frozenset[str] | None) -> None:
        """A local is made of all that is ever assigned to it."""
        for name in self._names(target):
            self._made_of[name] = self._both(self._made_of.get(name, frozenset()), made_of)

    def _assigned(self, statements: Iterable[ast.stmt]) -> set[str]:
        return {
            node.id
            for statement in statements
            for node in ast.walk(statement)
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
        }

    def _names(self, target: ast.expr) -> list[str]:
        if isinstance(target, ast.Name):
            return [target.id]
        return [name for each in target.elts for name in self._names(each)] if isinstance(target, ast.Tuple) else []

    def _settled(self, node: ast.expr) -> frozenset[str] | None:
        """The parameters that a value is made of, or None."""
        if isinstance(node, ast.Constant):
            return frozenset()
        if isinstance(node, ast.Name):
            if node.id in self._made_of:
                return self._made_of[node.id]
            return frozenset() if isinstance(self._value_of(node), int | float) else None
        if isinstance(node, ast.Attribute):
            return self._settled(node.value) if node.attr in _LENGTHS else None
        if isinstance(node, ast.Subscript):
            lengths = isinstance(node.value, ast.Attribute) and node.value.attr == "shape"
            return self._all([node.value, node.slice]) if lengths else None
        if isinstance(node, ast.BinOp):
            return self._all([node.left, node.right])
        if isinstance(node, ast.UnaryOp):
            return self._settled(node.operand)
        if isinstance(node, ast.BoolOp):
            return self._all(node.values)
        if isinstance(node, ast.Compare):
            return self._all([node.left, *node.comparators])
        if isinstance(node, ast.IfExp):
            return self._all([node.test, node.body, node.orelse])
        if isinstance(node, ast.Tuple):
            return self._all(node.elts)
        if isinstance(node, ast.Call) and not node.keywords:
            called = self._value_of(node.func)
            of_numbers = any(called is each for each in _CALLS) or getattr(called, "__module__", None) == math.__name__
            return self._all(node.args) if of_numbers else None
        return None

    def _all(self, nodes: Iterable[ast.expr]) -> frozenset[str] | None:
        parameters: frozenset[str] | None = frozenset()
        for node in nodes:
            parameters = self._both(parameters, self._settled(node))
        return parameters

    def _both(self, one: frozenset[str] | None, other: frozenset[str] | None) -> frozenset[str] | None:
        return None if one is None or other is None else one | other

    def _value_of(self, node: ast.expr) -> Any:
        """The value of a name from outside of the body, or of a module's attribute; else None."""
        if isinstance(node, ast.Name):
            return None if node.id in self._made_of else self._outer.get(node.id)
        if isinstance(node, ast.Attribute) and self._value_of(node.value) is math:
            return getattr(math, node.attr, None)
        return None
