"""Which elements a body surely touches at every index, so that a launch beyond an array's length is refused.

**Problem.** Compiled code does not check bounds: a launch over more indices than an array has elements writes over whatever
lies behind it, and ends the process at best.

**What is refused.** An access ``a[i]``, ``a[i, j]``, ``a[i + 1]`` or ``atomic_add(a, i, …)`` of an array among the
parameters, where ``i`` is the launch's index. A body that makes it at every index is wrong as soon as the launch is longer than
the array: the launch's indices start at 0, so none of them counts from the end.

**Invariants.**

1.  An access counts only if every index reaches it. So it is no part of a branch, of a loop's body, of the second half of
    ``and`` or ``or``, of a comparison's third operand, of a function or a comprehension; and nothing before it may have ended
    the body: no ``return``, ``raise`` or ``assert``, on whatever condition, and no call of a function that might raise.
2.  An index or an array whose name is assigned to anywhere in the body does not count. Nor does a view that is made and not
    written to, such as a row: nobody says that its elements are read.
3.  A launch over a shape that has a length of 0 runs nothing, and is never refused.

A launch that is right is never refused, then; one that is wrong may pass, as where the index goes through a helper. Debug mode
(``AIODEV_DEBUG=1``) finds those. What is found is checked where a kernel is launched for the first time with given types, and
after that by one comparison for each dimension that is indexed (:mod:`aiodev._kernel.dispatch.launch`).
"""

from __future__ import annotations

import ast
import builtins
import dis
import math
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy

from aiodev import lang
from aiodev._core.errors import LaunchError
from aiodev._kernel.analysis.source import definition

__all__ = ["Access", "accesses", "check_bounds", "farthest"]


class Access(NamedTuple):
    """An element that every index touches.

    Attributes:
        place: of the array among the arguments after the indices.
        dimension: of the array.
        axis: of the launch, whose index goes along that dimension.
        offset: what is added to the index; 0 or more.
        taken: of how many dimensions the access takes one element; all of them, or it gives a view.
        stored: whether something is written there.
        along: what goes along the dimension, as it is written.
        text: the access, as it is written.
        line: where that is.
    """

    place: int
    dimension: int
    axis: int
    offset: int
    taken: int
    stored: bool
    along: str
    text: str
    line: int

    def certain(self, ndim: int) -> bool:
        """Whether elements of an array of so many dimensions are touched."""
        return self.dimension < ndim and (self.stored or self.taken == ndim)


def check_bounds(
    kernel: str, names: Sequence[str], reaching: Sequence[Access], shape: tuple[int, ...], args: Sequence[Any]
) -> None:
    """Refuse a launch whose indices go beyond an array.

    Raises:
        LaunchError: an access lies beyond the array's length.
    """
    for access in reaching:
        lengths, needed = args[access.place].shape, shape[access.axis] + access.offset
        if needed > lengths[access.dimension] and all(shape):
            name = names[access.place]
            asked = shape[0] if len(shape) == 1 else shape
            raise LaunchError(
                kernel, name,
                f"a length of at least {needed} in dimension {access.dimension}, since every index of the launch over {asked} "
                f"uses {access.text} (line {access.line})",
                f"shape {tuple(lengths)}; launch over fewer indices, or use it only "
                f"`if {access.along} < {name}.shape[{access.dimension}]`",
            )  # fmt: skip


def accesses(function: Callable[..., None], ndim: int) -> tuple[Access, ...]:
    """The accesses that every index makes, in order; none where there is no source."""
    try:
        tree = definition(function)
        return tuple(_Body(function, tree, ndim).accesses()) if isinstance(tree, ast.FunctionDef) else ()
    except RecursionError:  # expressions nested so deep that they cannot be followed
        return ()


def farthest(certain: Sequence[Access], dimensions: Mapping[int, int]) -> tuple[Access, ...]:
    """The certain access that reaches farthest, for each array, dimension and axis.

    ``dimensions`` has the number of dimensions of each array, by its place.
    """
    chosen: dict[tuple[int, int, int], Access] = {}
    for access in certain:
        if access.certain(dimensions.get(access.place, 0)):
            key = access.place, access.dimension, access.axis
            if key not in chosen or access.offset > chosen[key].offset:
                chosen[key] = access
    return tuple(chosen.values())


class _End(Exception):
    """Raised when what follows may not be reached by every index."""


#: Statements that may end the body, or do what is not followed.
_LEAVING = (
    ast.Return, ast.Raise, ast.Assert, ast.Try, ast.TryStar, ast.With, ast.Match, ast.Delete, ast.FunctionDef, ast.ClassDef,
    ast.Global, ast.Nonlocal, ast.Import, ast.ImportFrom, ast.AsyncFunctionDef, ast.AsyncFor, ast.AsyncWith,
)  # fmt: skip
#: Expressions of which a part is evaluated later, elsewhere, or not at all.
_APART = (
    ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.Yield, ast.YieldFrom, ast.Await,
    ast.JoinedStr,
)  # fmt: skip
_BUILTINS = (abs, bool, complex, enumerate, float, int, len, max, min, pow, print, range, round, zip)
_RAISING = frozenset({"RAISE_VARARGS", "RERAISE", "LOAD_ASSERTION_ERROR"})
_LIBRARIES = ("math", "numpy")
_DEPTH = 10


class _Body:
    """Follows the statements of one body, in the order in which they run."""

    def __init__(self, function: Callable[..., None], tree: ast.FunctionDef, ndim: int) -> None:
        code = function.__code__
        self.function = function
        self.tree = tree
        parameters = code.co_varnames[: code.co_argcount]
        assigned = {
            node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)
        }
        self.local = frozenset(code.co_varnames + code.co_cellvars)
        self.axes = {name: axis for axis, name in enumerate(parameters[:ndim]) if name not in assigned}
        self.places = {name: place for place, name in enumerate(parameters[ndim:]) if name not in assigned}
        self.lines_before = code.co_firstlineno - 1

    def accesses(self) -> list[Access]:
        """In the order in which they are made."""
        made: list[Access] = []
        try:
            for statement in self.tree.body:
                for access in self._statement(statement):
                    made.append(access)  # one by one: what was found before the end counts
        except _End:
            pass
        return made

    # Statements

    def _statement(self, node: ast.stmt) -> Iterator[Access]:
        match node:
            case ast.Assign():
                yield from self._each(node.value, *node.targets)
            case ast.AugAssign():
                yield from self._each(node.target, node.value)
            case ast.AnnAssign():
                yield from self._each(*((node.value, node.target) if node.value is not None else ()))
            case ast.Expr():
                yield from self._each(node.value)
            case ast.If() | ast.While():
                yield from self._each(node.test)
                self._pass_over(node.body + node.orelse)
            case ast.For():
                yield from self._each(node.iter)
                self._pass_over(node.body + node.orelse)
            case ast.Return() if node.value is not None:
                yield from self._each(node.value)
                raise _End
            case ast.Pass():
                pass
            case _:
                raise _End

    def _pass_over(self, statements: Sequence[ast.stmt]) -> None:
        """Skip statements that not every index executes, unless they may end the body."""
        for statement in statements:
            for node in ast.walk(statement):
                if isinstance(node, (*_LEAVING, *_APART)):
                    raise _End
                if isinstance(node, ast.Call) and not self._returns(node):
                    raise _End

    # Expressions

    def _each(self, *nodes: ast.expr) -> Iterator[Access]:
        for node in nodes:
            yield from self._expression(node)

    def _expression(self, node: ast.expr) -> Iterator[Access]:
        match node:
            case ast.BoolOp():
                yield from self._each(node.values[0])
                self._pass_over([ast.Expr(value) for value in node.values[1:]])
            case ast.IfExp():
                yield from self._each(node.test)
                self._pass_over([ast.Expr(node.body), ast.Expr(node.orelse)])
            case ast.Compare():
                yield from self._each(node.left, node.comparators[0])
                self._pass_over([ast.Expr(value) for value in node.comparators[1:]])
            case ast.Subscript():
                yield from self._each(node.value, node.slice)
                yield from self._access(node.value, node.slice, node, isinstance(node.ctx, ast.Store))
            case ast.Call():
                yield from self._call(node)
            case _ if isinstance(node, _APART):
                raise _End
            case _:
                for child in ast.iter_child_nodes(node):
                    if isinstance(child, ast.expr):
                        yield from self._expression(child)

    def _call(self, node: ast.Call) -> Iterator[Access]:
        yield from self._each(node.func, *node.args, *(keyword.value for keyword in node.keywords))
        if not self._returns(node):
            raise _End
        function = self._static(node.func)
        if len(node.args) > 1 and any(function is known for known in _ATOMICS):
            yield from self._access(node.args[0], node.args[1], node, True)

    def _access(self, array: ast.expr, index: ast.expr, node: ast.expr, stored: bool) -> Iterator[Access]:
        place = self.places.get(array.id) if isinstance(array, ast.Name) else None
        if place is None:
            return
        parts = index.elts if isinstance(index, ast.Tuple) else [index]
        taken = sum(not isinstance(part, ast.Slice) for part in parts)
        line = self.lines_before + node.lineno
        for dimension, part in enumerate(parts):
            name, offset = _plain(part)
            axis = self.axes.get(name)
            if axis is not None:
                text = ast.unparse(node)
                yield Access(place, dimension, axis, offset, taken, stored, ast.unparse(part), text, line)
            elif not _takes_one(part, self.axes):
                return  # what follows may go along another dimension

    # Calls

    def _returns(self, node: ast.Call) -> bool:
        """Whether a called function surely returns: it is known, and raises nothing by itself."""
        if any(isinstance(argument, ast.Starred) for argument in node.args):
            return False
        return _never_raises(self._static(node.func), _DEPTH)

    def _static(self, node: ast.expr) -> Any:
        """The value of a global or of a module's attribute; None for anything else."""
        if isinstance(node, ast.Attribute):
            owner = self._static(node.value)
            return vars(owner).get(node.attr) if isinstance(owner, types.ModuleType) else None
        if not isinstance(node, ast.Name):
            return None
        cells = self.function.__code__.co_freevars
        if node.id in cells:
            try:
                return (self.function.__closure__ or ())[cells.index(node.id)].cell_contents
            except ValueError:  # it is empty
                return None
        if node.id in self.local:
            return None
        return self.function.__globals__.get(node.id, vars(builtins).get(node.id))


_ATOMICS = (lang.atomic_add, lang.atomic_cas, lang.atomic_max, lang.atomic_min)


def _plain(part: ast.expr) -> tuple[str, int]:
    """The name and the number of ``name`` or ``name + number``; no name for anything else."""
    if isinstance(part, ast.Name):
        return part.id, 0
    if isinstance(part, ast.BinOp) and isinstance(part.op, ast.Add):
        for one, other in ((part.left, part.right), (part.right, part.left)):
            if isinstance(one, ast.Name) and isinstance(other, ast.Constant) and type(other.value) is int:
                return (one.id, other.value) if other.value >= 0 else ("", 0)
    return "", 0


def _takes_one(part: ast.expr, axes: dict[str, int]) -> bool:
    """Whether an index surely goes along one dimension; None, an ellipsis, or what may be either, do not."""
    match part:
        case ast.Slice():
            return True
        case ast.Constant():
            return type(part.value) is int
        case ast.UnaryOp(op=ast.USub()):
            return _takes_one(part.operand, axes)
        case ast.BinOp():
            return True
        case _:
            return isinstance(part, ast.Name) and part.id in axes


def _never_raises(function: Any, depth: int) -> bool:
    """Whether a function is known, and neither it nor what it calls has a ``raise`` or an ``assert``."""
    if any(function is known for known in _BUILTINS):
        return True
    module = getattr(function, "__module__", None) or ""
    if isinstance(function, numpy.ufunc) or module.partition(".")[0] in _LIBRARIES or module.startswith("aiodev.lang"):
        return True
    if isinstance(function, type):
        return issubclass(function, numpy.generic)
    body = getattr(function, "__aiodev_body__", getattr(function, "py_func", function))
    if not isinstance(body, types.FunctionType) or depth == 0:
        return False
    code = body.__code__
    if any(step.opname in _RAISING or step.opname == "MAKE_FUNCTION" for step in dis.get_instructions(code)):
        return False
    try:
        cells = {name: cell.cell_contents for name, cell in zip(code.co_freevars, body.__closure__ or (), strict=True)}
    except ValueError:  # one is empty
        return False
    absent = object()
    for name in (*cells, *code.co_names):
        value = cells.get(name, body.__globals__.get(name, vars(builtins).get(name, absent)))
        if value is absent or not callable(value):  # an attribute's name, or no function
            continue
        if not _never_raises(value, depth - 1):
            return False
    return not any(_raising_attribute(name, body) for name in code.co_names)


def _raising_attribute(name: str, body: types.FunctionType) -> bool:
    """Whether a module that the body names has a function of this name that is not known to return."""
    modules = [value for value in map(body.__globals__.get, body.__code__.co_names) if isinstance(value, types.ModuleType)]
    known = (math, numpy, lang)
    return any(
        callable(vars(module).get(name)) and module not in known and not _never_raises(vars(module)[name], 0)
        for module in modules
    )
