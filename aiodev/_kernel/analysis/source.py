"""Analysis of a body's source: what it does with its parameters.

It answers three questions. Which arrays does the body write? A read-only array is refused there. Which does it surely not
write? A failure of the kernel leaves those as they are (:mod:`aiodev._kernel.analysis.read_only`). And what does it combine a
scalar with? A weak scalar takes the type of that. Where there is no source, as at a plain prompt, nothing is known and nothing
is refused here; the compiler still refuses a write to a read-only array.

The text counts only if it compiles to the very code of the body: a file may have been edited since it was imported. An array
that is wrongly taken as read-only would be read before the kernel has written it.

The analysis runs at a kernel's first launch, on the loop's thread. So it reads no more of the file than the body's lines, and
remembers its result for the code object, which many functions may share.
"""

from __future__ import annotations
import __future__

import ast
import dis
import functools
import inspect
import linecache
import operator
import textwrap
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import CodeType, ModuleType
from typing import Any

from aiodev._core.parsing import parse
from aiodev._kernel.analysis.read_only import only_read

__all__ = ["BodyUse", "analyse", "definition"]

_FUTURE = functools.reduce(operator.or_, (getattr(__future__, name).compiler_flag for name in __future__.all_feature_names))


@dataclass(slots=True)
class BodyUse:
    """How a body uses its parameters, by name.

    Attributes:
        written: parameters that are surely written to.
        partners: for each scalar-like parameter, the arrays whose elements appear in the same statement.
        integral: parameters that are used where only an integer will do, or in a way that is not understood.
        known: whether there is a source.
        function: the body.
        promised: parameters that the body is said to only read.
    """

    written: set[str] = field(default_factory=set)
    partners: dict[str, set[str]] = field(default_factory=dict)
    integral: set[str] = field(default_factory=set)
    known: bool = True
    function: Callable[..., None] | None = None
    promised: frozenset[str] = frozenset()

    def promising(self, names: Iterable[str]) -> BodyUse:
        """This use with parameters that the user promises not to write, nor to write through views of them.

        Raises:
            TypeError: the body surely writes one.
        """
        names = tuple(names)
        broken = self.written.intersection(names)
        if broken:
            raise TypeError(f"reads={names!r}: the body writes {', '.join(sorted(broken))}")
        return replace(self, promised=frozenset(names))

    def only_read(self, arrays: Mapping[str, int]) -> frozenset[str]:
        """Which of these arrays the body surely does not write; ``arrays`` has their numbers of dimensions by name."""
        if not self.known or self.promised.issuperset(arrays):
            return self.promised
        try:
            return self.promised | only_read(self.function, arrays, definition)
        except RecursionError:  # expressions nested so deep that they cannot be followed
            return self.promised


_known: weakref.WeakKeyDictionary[CodeType, dict[tuple[str, ...], BodyUse]] = weakref.WeakKeyDictionary()
_definitions: weakref.WeakKeyDictionary[CodeType, ast.FunctionDef | ast.Lambda | None] = weakref.WeakKeyDictionary()


def analyse(function: Callable[..., None], parameters: tuple[str, ...]) -> BodyUse:
    """How ``function`` uses ``parameters``."""
    known = _known.setdefault(function.__code__, {})
    use = known.get(parameters)
    if use is None:
        try:
            tree = definition(function)
            use = None if tree is None else _analyse_tree(tree, parameters)
        except RecursionError:  # expressions nested so deep that they cannot be followed
            use = None
        known[parameters] = use = use or BodyUse(integral=set(parameters), known=False)
    return replace(use, function=function)


def _analyse_tree(tree: ast.AST, parameters: tuple[str, ...]) -> BodyUse:
    use = BodyUse()
    names = frozenset(parameters)
    nodes, parents = _walk(tree)
    for node in nodes:
        if isinstance(node, ast.Subscript):
            if isinstance(node.ctx, ast.Store):
                use.written |= _roots(node.value) & names
        elif isinstance(node, ast.Call):
            if node.args and _called(node).startswith("atomic_"):
                use.written |= _roots(node.args[0]) & names
        elif isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign | ast.Expr | ast.Return):
            _note_partners(node, names, use)
    for node in nodes:
        if not isinstance(node, ast.Name) or node.id not in names:
            continue
        if isinstance(node.ctx, ast.Store) or not _meets_elements(node, parents):
            use.integral.add(node.id)
    return use


def _walk(tree: ast.AST) -> tuple[list[ast.AST], dict[ast.AST, ast.AST]]:
    """Every node that matters, and each one's parent. What has no children is not looked into."""
    nodes: list[ast.AST] = [tree]
    parents: dict[ast.AST, ast.AST] = {}
    for node in nodes:
        for name in node._fields:
            value = getattr(node, name, None)
            for child in value if value.__class__ is list else (value,):
                if isinstance(child, ast.AST) and child._fields:
                    parents[child] = node
                    nodes.append(child)
    return nodes, parents


def definition(function: Callable[..., Any]) -> ast.FunctionDef | ast.Lambda | None:
    """The definition in the source that the function's code is of, or None."""
    code = function.__code__
    if code not in _definitions:
        _definitions[code] = _definition(function)
    return _definitions[code]


def _definition(function: Callable[..., Any]) -> ast.FunctionDef | ast.Lambda | None:
    code = function.__code__
    lines = linecache.getlines(code.co_filename, function.__globals__)
    text = "".join(lines[code.co_firstlineno - 1 : _last_line(code)])
    try:
        tree = parse(textwrap.dedent(text))
    except SyntaxError:  # such as a lambda, or a last line that runs on: this finds where they end, and is slow
        try:
            tree = parse(textwrap.dedent(inspect.getsource(function)))
        except (OSError, TypeError, SyntaxError):
            return None
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.Lambda) and _compiles_to(node, function):
            return node
    return None


def _compiles_to(node: ast.FunctionDef | ast.Lambda, function: Callable[..., Any]) -> bool:
    code, values = function.__code__, function.__globals__
    if getattr(node, "name", "<lambda>") != code.co_name:
        return False
    # As it stood: inside of a function that has the names which it takes from around it, in a module that imports modules.
    at: Any = {"lineno": 1, "col_offset": 0}
    imports = [
        ast.Import([ast.alias(name, **at)], **at) for name in code.co_names if isinstance(values.get(name), ModuleType)
    ]
    around = ast.arguments([], [ast.arg(name, **at) for name in code.co_freevars], None, [], [], None, [])
    inside = ast.Expr(node, **at) if isinstance(node, ast.Lambda) else node
    module = ast.Module([*imports, ast.FunctionDef("around", around, [inside], [], **at)], [])
    flags = code.co_flags & _FUTURE
    try:
        compiled = compile(module, code.co_filename, "exec", flags, dont_inherit=True)
    except (SyntaxError, ValueError):
        return False
    outer = next(constant for constant in compiled.co_consts if isinstance(constant, CodeType))
    return any(isinstance(constant, CodeType) and _same(constant, code) for constant in outer.co_consts)


def _same(one: CodeType, other: CodeType) -> bool:
    """Whether two definitions have the same code, wherever they were written."""
    names = ("co_names", "co_varnames", "co_freevars", "co_cellvars", "co_argcount", "co_kwonlyargcount")
    if any(getattr(one, name) != getattr(other, name) for name in names) or len(one.co_consts) != len(other.co_consts):
        return False
    if one.co_code != other.co_code and _steps(one) != _steps(other):
        return False
    return all(
        _same(a, b)
        if isinstance(a, CodeType) and isinstance(b, CodeType)
        else type(a) is type(b) and (a == b and repr(a) == repr(b) or isinstance(a, frozenset) and a == b)
        for a, b in zip(one.co_consts, other.co_consts, strict=True)
    )


def _steps(code: CodeType) -> list[tuple[str, object]]:
    """The instructions of a code object, without what depends on the rest of the module, such as calls of imported names."""
    return [
        (step.opname.replace("LOAD_METHOD", "LOAD_ATTR"), step.argval if step.opcode not in dis.hasjrel else None)
        for step in dis.get_instructions(code)
        if step.opname not in ("PUSH_NULL", "PRECALL", "EXTENDED_ARG", "NOP") and not isinstance(step.argval, CodeType)
    ]


def _last_line(code: CodeType) -> int:
    own = max((position[1] or 0 for position in code.co_positions()), default=0)
    return max([own, *(_last_line(constant) for constant in code.co_consts if isinstance(constant, CodeType))])


def _roots(node: ast.expr) -> set[str]:
    """The name that a chain of subscripts and attributes starts from."""
    while isinstance(node, ast.Subscript | ast.Attribute):
        node = node.value
    return {node.id} if isinstance(node, ast.Name) else set()


def _called(node: ast.Call) -> str:
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def _elements(node: ast.AST) -> set[str]:
    """Names whose elements are read in ``node``, not counting what is only used as an index."""
    if isinstance(node, ast.Subscript):
        return _roots(node.value)
    return {name for child in ast.iter_child_nodes(node) for name in _elements(child)}


# Scalars


def _note_partners(statement: ast.stmt, names: frozenset[str], use: BodyUse) -> None:
    value = getattr(statement, "value", None)
    if value is None:
        return
    arrays = _elements(value)
    if isinstance(statement, ast.AugAssign):
        arrays |= _elements(statement.target)
    for node in _outside_indices(value):
        if isinstance(node, ast.Name) and node.id in names and node.id not in arrays:
            use.partners.setdefault(node.id, set()).update(arrays)


def _outside_indices(node: ast.AST) -> Iterator[ast.AST]:
    yield node
    if not isinstance(node, ast.Subscript):
        for child in ast.iter_child_nodes(node):
            yield from _outside_indices(child)


def _meets_elements(node: ast.AST, parents: dict[ast.AST, ast.AST]) -> bool:
    """Whether a parameter is in a sum or product with elements of arrays; a Python int elsewhere stays an integer."""
    parent = parents.get(node)
    while isinstance(parent, ast.UnaryOp):
        node, parent = parent, parents.get(parent)
    if not (isinstance(parent, ast.BinOp) and isinstance(parent.op, ast.Add | ast.Sub | ast.Mult)):
        return False
    return bool(_elements(parent.right if parent.left is node else parent.left))
