"""Kinds of words: of which struct a word in a native function is the address, or to which cell or atomic it refers.

A parameter or result has the kind of its annotation, a local that of its annotation or of what is first assigned to it, and a
cast, ``Queue(address)``, gives a word another one. A word may only go where its kind is expected. ``None`` is 0, and goes
wherever an address does.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from aiodev._native.compile import Function
from aiodev._native.fields import Field, Kind, Reference, Struct, kind_of

__all__ = ["Kinds", "Null", "Signature", "TranslationError", "annotated", "names_of"]

#: Methods of an atomic that give a word of the kind that it holds; the others give a number.
CONTENT_METHODS = {"load", "load_fence", "exchange"}


class TranslationError(Exception):
    """A native function uses what native code has not."""


class Null(Struct):
    """The kind of ``None``, which is an address of any kind."""


@dataclass(frozen=True)
class Signature:
    """The kinds of a function's words."""

    parameters: tuple[Kind, ...]
    result: Kind


def names_of(function: Function) -> dict[str, Any]:
    """The values of the names in a function that it does not assign."""
    code, names = function.py_func.__code__, {**vars(builtins), **function.py_func.__globals__}
    for name, cell in zip(code.co_freevars, function.py_func.__closure__ or (), strict=True):
        names[name] = cell.cell_contents
    return names


def annotated(annotation: ast.expr | None, names: dict[str, Any]) -> Kind:
    """The kind that an annotation says."""
    return None if annotation is None else kind_of(eval(ast.unparse(annotation), names))


def fits(given: Kind, expected: Kind) -> bool:
    """Whether a word of one kind may go where another is expected."""
    if given == expected or expected is None and given is Null:
        return True
    if isinstance(given, Reference) and isinstance(expected, Reference):
        return issubclass(given.form, expected.form) and (given.content == expected.content or given.content is None)
    if isinstance(given, Reference) or isinstance(expected, Reference):
        return given is Null
    return given is Null or given is not None and expected is not None and issubclass(given, expected)


def described(kind: Kind) -> str:
    """A kind, for a message."""
    if kind is None or kind is Null:
        return "int" if kind is None else "None"
    return f"{kind.form.__name__}[{described(kind.content)}]" if isinstance(kind, Reference) else kind.__name__


class Kinds:
    """The kinds of the words of one function.

    Attributes:
        names: the values of the names that it does not assign.
        local: the names that it assigns.
        signature: the kinds of its parameters and of its result.
        known: the kinds of local names, as far as they are known by now.
    """

    def __init__(self, function: Function, tree: ast.FunctionDef, signature_of: Callable[[Function], Signature]) -> None:
        code = function.py_func.__code__
        self._function, self._tree, self._signature_of = function, tree, signature_of
        self.names = names_of(function)
        self.local = set(code.co_varnames)
        self.signature = signature_of(function)
        self.known: dict[str, Kind] = dict(
            zip(code.co_varnames[: code.co_argcount], self.signature.parameters, strict=True)
        )

    def refuse(self, node: ast.AST, what: str = "") -> TranslationError:
        """The error that names the line, and what is not understood there."""
        line = getattr(node, "lineno", self._tree.lineno)
        place = f"{self._function.py_func.__code__.co_filename}:{line}"
        return TranslationError(f"{place}: {what or type(node).__name__} is not understood in native code")

    def meaning(self, node: ast.AST) -> Any:
        """The value of a name that is not assigned here; None for any other expression."""
        if isinstance(node, ast.Name) and node.id not in self.local:
            return self.names.get(node.id)
        return None

    def expect(self, node: ast.AST, what: str, given: Kind, expected: Kind) -> None:
        """Refuse a word of another kind than what is expected."""
        if not fits(given, expected):
            raise self.refuse(node, f"{described(given)} where {what} is {described(expected)}: it")

    def expect_comparable(self, node: ast.Compare, operation: ast.cmpop, left: Kind, right: Kind) -> None:
        """Refuse what is compared by address without saying so: an order of addresses, or words of several kinds."""
        same = isinstance(operation, ast.Eq | ast.NotEq | ast.Is | ast.IsNot) and (fits(left, right) or fits(right, left))
        if (left is not None or right is not None) and not same or isinstance(left, Reference):
            raise self.refuse(node, f"{ast.unparse(node)}, {described(left)} and {described(right)},")

    def of(self, node: ast.expr) -> Kind:
        """The kind of an expression's word."""
        if isinstance(node, ast.Constant) and node.value is None:
            return Null
        if isinstance(node, ast.Name):
            return self.known.get(node.id)
        if isinstance(node, ast.IfExp):
            kinds = self.of(node.body), self.of(node.orelse)
            return kinds[1] if fits(*kinds) else kinds[0]
        if isinstance(node, ast.Subscript):
            return self.of(node.value)
        if isinstance(node, ast.Attribute):
            place = self.cell(node.value)
            if place is not None:
                return place.content if node.attr == "value" else None
            return None if node.attr == "address" else self.field(node).kind
        if isinstance(node, ast.Call):
            return self._of_call(node)
        return None

    def _of_call(self, node: ast.Call) -> Kind:
        if isinstance(node.func, ast.Attribute):
            place = self.cell(node.func.value)
            return place.content if place is not None and node.func.attr in CONTENT_METHODS else None
        called = self.meaning(node.func)
        if isinstance(called, type):
            return kind_of(called)
        return self._signature_of(called).result if isinstance(called, Function) else None

    def cell(self, node: ast.expr) -> Reference | None:
        """The cell or the atomic that an expression refers to, if any."""
        kind = self.of(node)
        return kind if isinstance(kind, Reference) else None

    def field(self, node: ast.Attribute) -> Field:
        """The field that an attribute is."""
        struct = self.of(node.value)
        if struct is None or struct is Null or isinstance(struct, Reference):
            raise self.refuse(node, f"{ast.unparse(node)}, of which no struct is known,")
        if node.attr not in struct.fields:
            raise self.refuse(node, f"{ast.unparse(node)}: {struct.__name__} has no such field; it")
        return struct.fields[node.attr]
