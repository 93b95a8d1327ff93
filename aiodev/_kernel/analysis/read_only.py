"""Read-only analysis: which arrays a body surely does not write, itself, through views, or in what it calls.

A body's parameters are arrays of known numbers of dimensions, and numbers. The analysis follows every expression from there.
What it knows of a value is which elements the value may share: pairs of an array among the arguments, and the dimensions that
are left at most. An element of an array is a number, which shares nothing. A variable may hold whatever is assigned to it
anywhere, in any order; a tuple counts as one more dimension of its items. Plain functions that the body calls are followed with
their arguments. Whatever is not understood counts as writing to all that it is given. So an array is called read-only for a
reason, and written for want of one.

``OTHER`` among the pairs is what may be no number, such as a slice or None: an index that may leave the dimension that it goes
along.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import types
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy

from aiodev import lang

__all__ = ["only_read"]

#: An array among the arguments, by its place, and how many dimensions are left of it at most.
Part = tuple[int, int]
Value = frozenset[Part]

NUMBER: Value = frozenset()
OTHER: Part = (-1, 0)
_OTHER: Value = frozenset({OTHER})

#: What can be asked of an array without touching its elements; shapes are tuples of numbers.
_FACTS = frozenset({"dtype", "itemsize", "nbytes", "ndim", "size"})
_SHAPES = frozenset({"shape", "strides"})
_VIEWS = frozenset({"T", "imag", "real"})
_REDUCTIONS = ("all", "any", "argmax", "argmin", "max", "mean", "min", "prod", "sum")
_READING_METHODS = frozenset({*_REDUCTIONS, "copy"})
#: Functions that only read arrays, and how many arguments of theirs are no results.
_READERS: tuple[tuple[Any, int], ...] = (
    (len, 1), (lang.moments, 2), (lang.prefetch, 2), (lang.sum, 3), (lang.sum_squares, 3), (numpy.dot, 2), (numpy.vdot, 2),
    *((getattr(numpy, name), 1) for name in _REDUCTIONS),
)  # fmt: skip
#: Functions that read arrays and write to the last one.
_WRITERS = (lang.matmul,)
#: Functions that give numbers for numbers, or what goes through them; those that give tuples of what is in their arguments.
_NUMERIC = (abs, bool, complex, float, int, len, max, min, pow, range, round)
_PAIRING = (enumerate, zip)
_VARIADIC = inspect.CO_VARARGS | inspect.CO_VARKEYWORDS
_DEPTH = 20
#: Stands for any number of dimensions, such as those of a tuple that grows in a loop.
_MOST = 99

#: The definition of a function, where it is known.
Source = Callable[[Any], ast.FunctionDef | ast.Lambda | None]


def only_read(function: Any, arrays: Mapping[str, int], source: Source) -> frozenset[str]:
    """The names among ``arrays`` that ``function`` surely does not write.

    ``arrays`` gives the number of dimensions of each. ``source`` gives the definition of a function, or None.
    """
    places = list(arrays)
    given = {name: frozenset({(place, arrays[name])}) for place, name in enumerate(places)}
    following = _Following(source)
    following.call(function, given)
    return frozenset(name for place, name in enumerate(places) if place not in following.written)


class _Following:
    """Follows functions; ``written`` has the places of arrays that may be written to."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.written: set[int] = set()
        self._known: dict[Any, Value] = {}
        self._busy: set[Any] = set()

    def write(self, *values: Value) -> None:
        """Note that what these values share elements with may be written to."""
        for value in values:
            self.written.update(place for place, _ in value if place >= 0)

    def call(self, function: Any, given: Mapping[str, Value]) -> Value:
        """What ``function`` returns for arguments by name; absent arguments are numbers, or have a default."""
        key = function, frozenset(given.items())
        if key in self._known:
            return self._known[key]
        tree = self.source(function)
        if tree is None or key in self._busy or len(self._busy) > _DEPTH:
            self.write(*given.values())
            return _joined(given.values()) | _OTHER
        self._busy.add(key)
        returned = self._known[key] = _Body(self, function, tree, given).follow()
        self._busy.discard(key)
        return returned


class _Body(ast.NodeVisitor):
    """One function, for arguments that share elements with arrays as given."""

    def __init__(
        self, following: _Following, function: Any, tree: ast.FunctionDef | ast.Lambda, given: Mapping[str, Value]
    ) -> None:
        self.following = following
        self.function = function
        self.statements = tree.body if isinstance(tree, ast.FunctionDef) else [ast.Return(tree.body)]
        self.variables: dict[str, Value] = dict.fromkeys(function.__code__.co_varnames, NUMBER)
        self.variables |= dict.fromkeys(function.__code__.co_cellvars, NUMBER)
        defaults = function.__defaults__ or ()
        names = function.__code__.co_varnames[: function.__code__.co_argcount]
        for name, value in zip(names[len(names) - len(defaults) :], defaults, strict=True):
            self.variables[name] = NUMBER if _is_number(value) else _OTHER
        self.variables |= given
        self.returned: Value = NUMBER
        self.changed = True

    def follow(self) -> Value:
        """What the function returns; variables are followed until nothing new is learnt of any."""
        while self.changed:
            self.changed = False
            self._visit_all(self.statements)
        return self.returned if isinstance(self.statements[-1], ast.Return) else self.returned | _OTHER

    # Statements

    def visit_Assign(self, node: ast.Assign) -> None:
        for target in node.targets:
            self._assign_from(target, node.value)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self._assign_from(node.target, node.value)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        value = self.value(node.value)
        if isinstance(node.target, ast.Name):
            self.following.write(self.value(node.target))  # of an array it is in place
            self._set(node.target.id, value)
        else:
            self._assign(node.target, value)

    def visit_For(self, node: ast.For) -> None:
        self._assign(node.target, _items(self.value(node.iter)))
        self._visit_all(node.body + node.orelse)

    def visit_Expr(self, node: ast.Expr) -> None:
        self.value(node.value)

    def visit_Return(self, node: ast.Return) -> None:
        self.returned |= _OTHER if node.value is None else self.value(node.value)

    def visit_If(self, node: ast.If | ast.While) -> None:
        self.value(node.test)
        self._visit_all(node.body + node.orelse)

    visit_While = visit_If

    def visit_Raise(self, node: ast.Raise) -> None:
        for part in (node.exc, node.cause):
            if part is not None:
                self.value(part)

    def visit_Assert(self, node: ast.Assert) -> None:
        self.value(node.test)

    def visit_Pass(self, node: ast.AST) -> None:
        """A ``pass`` does nothing."""

    visit_Break = visit_Continue = visit_Pass

    def generic_visit(self, node: ast.AST) -> None:
        """A statement that is not understood may write to all that it mentions, return it, and leave variables with it."""
        mentioned = self._mentioned(node) | _OTHER
        self.following.write(mentioned)
        self.returned |= mentioned
        for part in ast.walk(node):
            if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store):
                self._set(part.id, mentioned)

    def _visit_all(self, statements: Iterable[ast.stmt]) -> None:
        for statement in statements:
            self.visit(statement)

    # Variables

    def _assign_from(self, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
            for one, other in zip(target.elts, value.elts, strict=True):
                self._assign_from(one, other)
        elif isinstance(target, ast.Tuple) and isinstance(value, ast.Attribute) and value.attr in _SHAPES:
            self.value(value)
        else:
            self._assign(target, self.value(value))

    def _assign(self, target: ast.expr, value: Value) -> None:
        if isinstance(target, ast.Name):
            self._set(target.id, value)
        elif isinstance(target, ast.Tuple | ast.List):
            for part in target.elts:
                self._assign(part, _items(value))
        elif isinstance(target, ast.Subscript):  # to whose elements those of the value are copied
            self.following.write(self.value(target.value))
            self.value(target.slice)
        else:
            self.following.write(value)
            self.generic_visit(target)

    def _set(self, name: str, value: Value) -> None:
        known = self.variables.get(name, NUMBER)
        if not value <= known:
            self.variables[name] = known | value
            self.changed = True

    # Expressions

    def value(self, node: ast.expr) -> Value:
        """What the value of an expression may share elements with."""
        find: Callable[[Any], Value] = getattr(self, f"of_{type(node).__name__}", self.of_anything)
        return find(node)

    def of_anything(self, node: ast.expr) -> Value:
        """An expression that is not understood may write to all that it mentions."""
        self.generic_visit(node)
        return self._mentioned(node) | _OTHER

    def of_Name(self, node: ast.Name) -> Value:
        if node.id in self.variables:
            return self.variables[node.id]
        return NUMBER if _is_number(self._static(node)) else _OTHER

    def of_Constant(self, node: ast.Constant) -> Value:
        return NUMBER if _is_number(node.value) else _OTHER

    def of_Tuple(self, node: ast.Tuple) -> Value:
        inside = _joined(self.value(part) for part in node.elts)
        return _deeper(inside) if node.elts else _OTHER

    def of_BinOp(self, node: ast.BinOp) -> Value:
        return self.value(node.left) | self.value(node.right)  # a new array, but of two tuples it is a tuple

    def of_UnaryOp(self, node: ast.UnaryOp) -> Value:
        self.value(node.operand)
        return NUMBER

    def of_Compare(self, node: ast.Compare) -> Value:
        for part in (node.left, *node.comparators):
            self.value(part)
        return NUMBER

    def of_BoolOp(self, node: ast.BoolOp) -> Value:
        return _joined(self.value(part) for part in node.values)

    def of_IfExp(self, node: ast.IfExp) -> Value:
        self.value(node.test)
        return self.value(node.body) | self.value(node.orelse)

    def of_Attribute(self, node: ast.Attribute) -> Value:
        static = self._static(node)
        if static is not None:
            return NUMBER if _is_number(static) else _OTHER
        value = self.value(node.value)
        if node.attr in _FACTS:
            return NUMBER
        if node.attr in _SHAPES:
            return _OTHER
        if node.attr not in _VIEWS:
            self.following.write(value)
        return value

    def of_Subscript(self, node: ast.Subscript) -> Value:
        value = self.value(node.value)
        items = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        taken = [self._is_taken(item) for item in items]
        if isinstance(node.value, ast.Attribute) and node.value.attr in _SHAPES and all(taken):
            return NUMBER
        count, gone = sum(taken), all(taken)
        parts = ((place, _less(place, left, count)) for place, left in value)
        return frozenset((place, max(left, 0)) for place, left in parts if not gone or left > 0 or place < 0)

    def _is_taken(self, item: ast.expr) -> bool:
        """Whether an index takes the dimension that it goes along."""
        if isinstance(item, ast.Slice):
            for part in (item.lower, item.upper, item.step):
                if part is not None:
                    self.value(part)
            return False
        return OTHER not in self.value(item)

    def of_Call(self, node: ast.Call) -> Value:
        function = self._static(node.func)
        if function is None and isinstance(node.func, ast.Attribute):
            return self._method(node.func, node)
        given = [self.value(argument) for argument in node.args]
        named = {keyword.arg: self.value(keyword.value) for keyword in node.keywords}
        body = getattr(function, "__aiodev_body__", getattr(function, "py_func", function))
        starred = any(isinstance(argument, ast.Starred) for argument in node.args)
        if isinstance(body, types.FunctionType) and not _is_library(body) and not starred:
            return self._followed(body, given, named)
        every = _joined([*given, *named.values()])
        arrays = every - _OTHER
        if not arrays:
            return NUMBER if _is_library(function) or any(function is known for known in _NUMERIC) else _OTHER
        if any(function is known for known in _PAIRING) and not named:
            return _deeper(every)
        if _reads(function, len(given)) and not named and not starred:
            return NUMBER
        if any(function is known for known in _WRITERS) and not named and not starred:
            self.following.write(given[-1])
            return NUMBER
        self.following.write(arrays)
        return every | _OTHER

    def _followed(self, body: types.FunctionType, given: list[Value], named: dict[str | None, Value]) -> Value:
        """A call of a plain function."""
        code = body.__code__
        names = code.co_varnames[: code.co_argcount]
        plain = not code.co_kwonlyargcount and not code.co_flags & _VARIADIC
        if plain and len(given) <= len(names) and named.keys() <= set(names):
            by_name = {name: value for name, value in named.items() if name is not None}
            return self.following.call(body, dict(zip(names, given, strict=False)) | by_name)
        every = _joined([*given, *named.values()])
        self.following.write(every)
        return every | _OTHER

    def _method(self, function: ast.Attribute, node: ast.Call) -> Value:
        """A call of a method."""
        value = self.value(function.value)
        given = _joined(self.value(part) for part in (*node.args, *(keyword.value for keyword in node.keywords)))
        if not given - _OTHER and not node.keywords and (value == NUMBER or function.attr in _READING_METHODS):
            return NUMBER
        self.following.write(value, given)
        return value | given | _OTHER

    def _mentioned(self, node: ast.AST) -> Value:
        names = (part.id for part in ast.walk(node) if isinstance(part, ast.Name))
        return _joined(self.variables.get(name, NUMBER) for name in names)

    def _static(self, node: ast.expr) -> Any:
        """The value of a global or of a module's attribute; None for anything else."""
        if isinstance(node, ast.Attribute):
            owner = self._static(node.value)
            return vars(owner).get(node.attr) if isinstance(owner, types.ModuleType) else None
        if not isinstance(node, ast.Name) or node.id in self.variables:
            return None
        cells = self.function.__code__.co_freevars
        if node.id in cells:
            try:
                return self.function.__closure__[cells.index(node.id)].cell_contents
            except ValueError:  # it is empty
                return None
        return self.function.__globals__.get(node.id, vars(builtins).get(node.id))


def _joined(values: Iterable[Value]) -> Value:
    return frozenset().union(*values)


def _deeper(value: Value) -> Value:
    """The value of a tuple that holds this."""
    return frozenset((place, min(left + 1, _MOST)) if place >= 0 else OTHER for place, left in value)


def _items(value: Value) -> Value:
    """What is in a tuple, or along the first dimension."""
    return frozenset((place, _less(place, left, 1)) for place, left in value if left > 1 or place < 0)


def _less(place: int, left: int, count: int) -> int:
    return left if place < 0 or left == _MOST else left - count


def _is_number(value: Any) -> bool:
    return isinstance(value, bool | int | float | complex | numpy.number | numpy.bool)


def _reads(function: Any, count: int) -> bool:
    """Whether a function only reads ``count`` arrays, and gives a number or a new array."""
    if isinstance(function, numpy.ufunc):
        return count == function.nin  # one more would be for the result
    return any(function is known and count <= most for known, most in _READERS)


def _is_library(function: Any) -> bool:
    """Whether the compiler knows a function by itself, which then gives numbers, or new arrays, for numbers."""
    module = getattr(function, "__module__", None) or ""
    return module.partition(".")[0] in ("math", "numpy") or module.startswith("aiodev.lang")
