"""Translator from native functions to one LLVM module: a subset of Python, for words, straight from the syntax tree.

**Problem.** The executor is some two hundred small functions that call each other. numba infers the types of each anew for
everyone who calls it, optimises and links each by itself, and generates machine code for it, though nobody calls it by address:
20 s. Here all values are words, so there is nothing to infer: each function is translated once, in milliseconds, into one
module, which LLVM optimises once, as a whole.

**What is understood.** Assignments to names and fields; ``if``, ``while``, ``for`` over ``range`` or constants, ``break``,
``continue``, ``return``, ``raise MemoryError("…")``; arithmetic and logic of words, comparisons, ``min``, ``max``; calls of
native functions, intrinsics and C functions by their names. Constants are the module's, or those of an enclosing function.
Anything else is refused, by its line. Floor division, remainder and the order and laziness of evaluation are Python's; a
division by 0 gives 0.

**Structs** (:mod:`aiodev._native.fields`). A word may be known to be the address of a struct, or to refer to a cell
or an atomic (:mod:`aiodev._native.kinds`). Then it has that struct's fields, and may only go where one of these is
expected. All this is known when a function is translated: what remains are loads, stores and additions.

A function that may raise, or calls one that may, returns a second word beside its own: 0, or the address of the message.
"""

from __future__ import annotations

import ast
import linecache
import operator
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from llvmlite import ir

from aiodev._core.parsing import parse
from aiodev._native import intrinsics
from aiodev._native.compile import External, Function, Intrinsic
from aiodev._native.fields import WORD as WORD_BYTES, Atomic, Cell, Kind, Reference, Struct, sizeof
from aiodev._native.kinds import Kinds, Null, Signature, TranslationError, annotated, names_of

WORD = ir.IntType(64)
_HALF = ir.IntType(32)
_OUTCOME = ir.LiteralStructType([WORD, WORD])

_ARITHMETIC: dict[type, tuple[str, Callable[[int, int], int]]] = {
    ast.Add: ("add", operator.add),
    ast.Sub: ("sub", operator.sub),
    ast.Mult: ("mul", operator.mul),
    ast.BitAnd: ("and_", operator.and_),
    ast.BitOr: ("or_", operator.or_),
    ast.BitXor: ("xor", operator.xor),
    ast.LShift: ("shl", operator.lshift),
    ast.RShift: ("ashr", operator.rshift),
    ast.FloorDiv: ("", operator.floordiv),
    ast.Mod: ("", operator.mod),
}
_COMPARISONS: dict[type, tuple[str, Callable[[int, int], bool]]] = {
    ast.Eq: ("==", operator.eq),
    ast.NotEq: ("!=", operator.ne),
    ast.Lt: ("<", operator.lt),
    ast.LtE: ("<=", operator.le),
    ast.Gt: (">", operator.gt),
    ast.GtE: (">=", operator.ge),
}
#: An atomic's methods.
_METHODS: dict[str, Intrinsic] = {
    "load": intrinsics.load,
    "load_fence": intrinsics.load_fence,
    "exchange": intrinsics.exchange,
    "store": intrinsics.store,
    "store_fence": intrinsics.store_fence,
    "fetch_add": intrinsics.fetch_add,
    "fetch_min": intrinsics.fetch_min,
    "compare_exchange": intrinsics.compare_exchange,
}


class Definition(ir.Function):  # type: ignore[misc]  # llvmlite has no types
    """A function that is let go of, but for its text, once it is complete.

    What it is made of refers to each other. All functions of a package are a hundred thousand objects: the collector would walk
    them again and again while they are made, and hold the GIL for a tenth of a second when it finds them.
    """

    _text = ""

    def write(self) -> None:
        """Keep the text in place of the instructions; who calls it needs its type alone."""
        self._text = super().__str__()
        for block in self.blocks:
            block.instructions.clear()
            block.terminator = None
        self.blocks.clear()

    def __str__(self) -> str:
        return self._text or str(super().__str__())


class Module:
    """Functions as they are translated; ``ir`` is LLVM's view of them."""

    def __init__(self, name: str) -> None:
        self.ir = ir.Module(name)
        self._done: dict[Function, Definition] = {}
        self._under_way: set[Function] = set()
        self._trees: dict[str, dict[tuple[str, int], ast.FunctionDef]] = {}
        self._signatures: dict[Function, Signature] = {}

    def add(self, function: Function) -> Definition:
        """A function, internal to the module, and all that it calls."""
        if function not in self._done:
            if function in self._under_way:
                raise TranslationError(f"{function.name} calls itself")
            self._under_way.add(function)
            self._done[function] = made = _Body(self, function).translate()
            made.write()
            self._under_way.remove(function)
        return self._done[function]

    def external(self, name: str, result: ir.Type, parameters: Iterable[ir.Type]) -> ir.Function:
        """A C function of this process."""
        declared = self.ir.globals.get(name)
        return declared or ir.Function(self.ir, ir.FunctionType(result, list(parameters)), name)

    def text(self, text: str) -> ir.GlobalVariable:
        """A constant C string."""
        data = bytearray(text.encode() + b"\0")
        kind = ir.ArrayType(ir.IntType(8), len(data))
        variable = ir.GlobalVariable(self.ir, kind, self.ir.get_unique_name("text"))
        variable.initializer, variable.linkage, variable.global_constant = ir.Constant(kind, data), "internal", True
        return variable

    def tree(self, function: Function) -> ast.FunctionDef:
        """The syntax tree of a function's definition."""
        code = function.py_func.__code__
        if code.co_filename not in self._trees:
            text = "".join(linecache.getlines(code.co_filename, function.py_func.__globals__))
            definitions = [node for node in ast.walk(parse(text)) if isinstance(node, ast.FunctionDef)]
            self._trees[code.co_filename] = {
                (node.name, min([node.lineno, *(each.lineno for each in node.decorator_list)])): node for node in definitions
            }
        return self._trees[code.co_filename][code.co_name, code.co_firstlineno]

    def signature(self, function: Function) -> Signature:
        """The signature that a function's annotations declare."""
        if function not in self._signatures:
            tree, names = self.tree(function), names_of(function)
            kinds = tuple(annotated(each.annotation, names) for each in tree.args.args)
            self._signatures[function] = Signature(kinds, annotated(tree.returns, names))
        return self._signatures[function]


def may_raise(function: ir.Function) -> bool:
    """Whether a translated function returns a second word."""
    return bool(function.function_type.return_type == _OUTCOME)


class _Body:
    """One function."""

    def __init__(self, module: Module, function: Function) -> None:
        self.module, self.function = module, function
        code = function.py_func.__code__
        self.tree = module.tree(function)
        self.kinds = Kinds(function, self.tree, module.signature)
        self.parameters: tuple[str, ...] = code.co_varnames[: code.co_argcount]
        self.raises = any(self._may_raise(node) for node in ast.walk(self.tree))
        result = _OUTCOME if self.raises else WORD
        kind = ir.FunctionType(result, [WORD] * len(self.parameters))
        self.ir = Definition(module.ir, kind, module.ir.get_unique_name(function.name))
        self.ir.linkage = "internal"
        self.ir.attributes.add("nounwind")
        self.builder = ir.IRBuilder(self.ir.append_basic_block("entry"))
        self.places = {name: self.builder.alloca(WORD, name=name) for name in code.co_varnames}
        self.loops: list[tuple[Any, Any]] = []  #: where to go on, and where when it is over

    def _may_raise(self, node: ast.AST) -> bool:
        if isinstance(node, ast.Raise):
            return True
        called = self.kinds.meaning(node.func) if isinstance(node, ast.Call) else None
        return isinstance(called, Function) and may_raise(self.module.add(called))

    def translate(self) -> Definition:
        entry = self.builder.block
        self.builder.position_at_end(self.block("body"))
        for name, argument in zip(self.parameters, self.ir.args, strict=True):
            self.builder.store(argument, self.places[name])
        begin = self.builder.block
        self.run(self.tree.body)
        if not self.builder.block.is_terminated:
            self.leave(self.constant(0))
        self.builder.position_at_end(entry)
        self.builder.branch(begin)
        return self.ir

    def block(self, name: str) -> Any:
        return self.ir.append_basic_block(name)

    def constant(self, value: int) -> Any:
        return ir.Constant(WORD, (value + 2**63) % 2**64 - 2**63)

    def leave(self, result: Any) -> None:
        if self.raises:
            result = self.builder.insert_value(ir.Constant(_OUTCOME, [0, 0]), result, 0)
        self.builder.ret(result)

    def fail(self, message: Any) -> None:
        self.builder.ret(self.builder.insert_value(ir.Constant(_OUTCOME, [0, 0]), message, 1))

    # Statements

    def run(self, statements: Iterable[ast.stmt]) -> None:
        for statement in statements:
            if self.builder.block.is_terminated:
                return
            method = getattr(self, f"run_{type(statement).__name__}", None)
            if method is None:
                raise self.kinds.refuse(statement)
            method(statement)

    def run_Pass(self, node: ast.Pass) -> None:
        pass

    def run_Expr(self, node: ast.Expr) -> None:
        if not isinstance(node.value, ast.Constant):  # a docstring
            self.value(node.value)

    def run_Return(self, node: ast.Return) -> None:
        if node.value is not None:
            self.kinds.expect(node, "the result", self.kinds.of(node.value), self.kinds.signature.result)
        self.leave(self.constant(0) if node.value is None else self.word(node.value))

    def run_Raise(self, node: ast.Raise) -> None:
        call = node.exc
        if isinstance(call, ast.Call) and self.kinds.meaning(call.func) is MemoryError and len(call.args) == 1:
            message = call.args[0]
            if isinstance(message, ast.Constant) and isinstance(message.value, str):
                self.fail(self.builder.ptrtoint(self.module.text(message.value), WORD))
                return
        raise self.kinds.refuse(node, "an exception other than MemoryError with a constant message")

    def run_Assign(self, node: ast.Assign) -> None:
        items = node.value.elts if isinstance(node.value, ast.Tuple) else [node.value]
        values = [(self.kinds.of(item), self.word(item)) for item in items]
        for target in node.targets:
            names = target.elts if isinstance(target, ast.Tuple) else [target]
            if len(names) != len(values):
                raise self.kinds.refuse(node)
            for name, (kind, value) in zip(names, values, strict=True):
                self.assign(name, value, kind)

    def run_AnnAssign(self, node: ast.AnnAssign) -> None:
        if not isinstance(node.target, ast.Name) or node.value is None:
            raise self.kinds.refuse(node)
        self.kinds.known.setdefault(node.target.id, annotated(node.annotation, self.kinds.names))
        self.assign(node.target, self.word(node.value), self.kinds.of(node.value))

    def run_AugAssign(self, node: ast.AugAssign) -> None:
        if isinstance(node.target, ast.Name):
            before = self.builder.load(self.places[node.target.id])
        else:
            before = self.value(node.target)
        self.kinds.expect(node, ast.unparse(node.target), self.kinds.of(node.target), None)
        self.assign(node.target, self.as_word(self.compute(node, before, self.value(node.value))))

    def assign(self, target: ast.expr, value: Any, kind: Kind = None) -> None:
        if isinstance(target, ast.Name):
            known = self.kinds.known
            if known.get(target.id, Null) is Null:
                known[target.id] = kind
            self.kinds.expect(target, target.id, kind, known[target.id])
            self.builder.store(value, self.places[target.id])
            return
        if not isinstance(target, ast.Attribute):
            raise self.kinds.refuse(target)
        place = self.kinds.cell(target.value)
        if place is not None and target.attr == "value":
            self.kinds.expect(target, ast.unparse(target), kind, place.content)
            intrinsics.put.emit(self.builder, self.word(target.value), value)
            return
        field = self.kinds.field(target)
        if field.is_place:
            raise self.kinds.refuse(target, f"an assignment to {ast.unparse(target)}, which lies in the struct,")
        self.kinds.expect(target, ast.unparse(target), kind, field.kind)
        intrinsics.put.emit(self.builder, self.offset(self.word(target.value), field.offset), value)

    def offset(self, address: Any, nbytes: int) -> Any:
        return self.builder.add(address, self.constant(nbytes))

    def run_If(self, node: ast.If) -> None:
        condition = self.truth(node.test)
        if isinstance(condition, int):
            self.run(node.body if condition else node.orelse)
            return
        then, otherwise, after = self.block("then"), self.block("else"), self.block("after")
        self.builder.cbranch(condition, then, otherwise)
        for block, statements in ((then, node.body), (otherwise, node.orelse)):
            self.builder.position_at_end(block)
            self.run(statements)
            self.go(after)
        self.builder.position_at_end(after)

    def go(self, block: Any) -> None:
        if not self.builder.block.is_terminated:
            self.builder.branch(block)

    def run_While(self, node: ast.While) -> None:
        if node.orelse:
            raise self.kinds.refuse(node, "else behind a loop")
        head, body, after = self.block("while"), self.block("do"), self.block("after")
        self.builder.branch(head)
        self.builder.position_at_end(head)
        condition = self.truth(node.test)
        if isinstance(condition, int):
            self.builder.branch(body if condition else after)
        else:
            self.builder.cbranch(condition, body, after)
        self.loop(node.body, body, head, after)

    def loop(self, statements: list[ast.stmt], body: Any, following: Any, after: Any) -> None:
        self.builder.position_at_end(body)
        self.loops.append((following, after))
        self.run(statements)
        self.loops.pop()
        self.go(following)
        self.builder.position_at_end(after)

    def run_For(self, node: ast.For) -> None:
        if node.orelse:
            raise self.kinds.refuse(node, "else behind a loop")
        if isinstance(node.iter, ast.Tuple):
            self.unroll(node, node.iter)
            return
        if not isinstance(node.iter, ast.Call) or self.kinds.meaning(node.iter.func) is not range:
            raise self.kinds.refuse(node.iter)
        given = [self.value(item) for item in node.iter.args]
        start, stop, step = (0, given[0], 1) if len(given) == 1 else (*given, 1)[:3]
        if not isinstance(step, int) or step <= 0:
            raise self.kinds.refuse(node.iter, "a step that is not a positive constant")
        with self.builder.goto_entry_block():
            counter = self.builder.alloca(WORD)
        self.builder.store(self.as_word(start), counter)
        stop = self.as_word(stop)
        head, body, following, after = (self.block(name) for name in ("for", "do", "next", "after"))
        self.builder.branch(head)
        self.builder.position_at_end(head)
        self.builder.cbranch(self.builder.icmp_signed("<", self.builder.load(counter), stop), body, after)
        self.builder.position_at_end(body)
        self.assign(node.target, self.builder.load(counter))
        self.loop(node.body, body, following, after)
        self.builder.position_at_end(following)
        self.builder.store(self.builder.add(self.builder.load(counter), self.constant(step)), counter)
        self.builder.branch(head)
        self.builder.position_at_end(after)

    def unroll(self, node: ast.For, items: ast.Tuple) -> None:
        after = self.block("after")
        for item in items.elts:
            body, following = self.block("do"), self.block("next")
            self.assign(node.target, self.word(item))
            self.builder.branch(body)
            self.builder.position_at_end(body)
            self.loops.append((following, after))
            self.run(node.body)
            self.loops.pop()
            self.go(following)
            self.builder.position_at_end(following)
        self.builder.branch(after)
        self.builder.position_at_end(after)

    def run_Break(self, node: ast.Break) -> None:
        self.builder.branch(self.loops[-1][1])

    def run_Continue(self, node: ast.Continue) -> None:
        self.builder.branch(self.loops[-1][0])

    # Expressions: an int of Python where it is constant, a truth of one bit, or a word

    def word(self, node: ast.expr) -> Any:
        """The value as LLVM's word."""
        return self.as_word(self.value(node))

    def as_word(self, value: Any) -> Any:
        if isinstance(value, int):
            return self.constant(int(value))
        return self.builder.zext(value, WORD) if value.type != WORD else value

    def truth(self, node: ast.expr) -> Any:
        """Whether it is not 0: a bit, or an int of Python."""
        if self.kinds.cell(node) is not None:
            raise self.kinds.refuse(node, f"the truth of {ast.unparse(node)}, which is where a word is,")
        value = self.value(node)
        if isinstance(value, int) or value.type != WORD:
            return value
        return self.builder.icmp_signed("!=", value, self.constant(0))

    def value(self, node: ast.expr) -> Any:
        method = getattr(self, f"value_{type(node).__name__}", None)
        if method is None:
            raise self.kinds.refuse(node)
        return method(node)

    def value_Attribute(self, node: ast.Attribute) -> Any:
        place = self.kinds.cell(node.value)
        if node.attr == "address":
            return self.word(node.value)
        if place is not None:
            if node.attr != "value":
                raise self.kinds.refuse(node, f"{ast.unparse(node)}: {place.form.__name__} has no such attribute; it")
            return intrinsics.get.emit(self.builder, self.word(node.value))
        field = self.kinds.field(node)
        address = self.offset(self.word(node.value), field.offset)
        return address if field.is_place else intrinsics.get.emit(self.builder, address)

    def value_Subscript(self, node: ast.Subscript) -> Any:
        """The struct, cell or atomic so many further."""
        kind = self.kinds.of(node.value)
        if kind is None or isinstance(node.slice, ast.Slice):
            raise self.kinds.refuse(node, f"{ast.unparse(node)}, of which no struct is known,")
        nbytes = WORD_BYTES if isinstance(kind, Reference) else sizeof(kind)
        address, index = self.word(node.value), self.value(node.slice)
        if isinstance(index, int):
            return self.offset(address, index * nbytes)
        return self.builder.add(address, self.builder.mul(self.as_word(index), self.constant(nbytes)))

    def value_Constant(self, node: ast.Constant) -> int:
        if node.value is None:
            return 0
        if not isinstance(node.value, int):
            raise self.kinds.refuse(node, repr(node.value))
        return int(node.value)

    def value_Name(self, node: ast.Name) -> Any:
        if node.id in self.kinds.local:
            return self.builder.load(self.places[node.id])
        meaning = self.kinds.meaning(node)
        if not isinstance(meaning, int):
            raise self.kinds.refuse(node, node.id)
        return int(meaning)

    def value_UnaryOp(self, node: ast.UnaryOp) -> Any:
        if isinstance(node.op, ast.Not):
            condition = self.truth(node.operand)
            return int(not condition) if isinstance(condition, int) else self.builder.not_(condition)
        self.kinds.expect(node, ast.unparse(node.operand), self.kinds.of(node.operand), None)
        value = self.value(node.operand)
        if isinstance(node.op, ast.USub):
            return -value if isinstance(value, int) else self.builder.neg(self.as_word(value))
        if isinstance(node.op, ast.Invert):
            return ~value if isinstance(value, int) else self.builder.not_(self.as_word(value))
        raise self.kinds.refuse(node)

    def value_BinOp(self, node: ast.BinOp) -> Any:
        for operand in (node.left, node.right):
            self.kinds.expect(node, f"an operand of {ast.unparse(node)}", self.kinds.of(operand), None)
        left = self.value(node.left)
        return self.compute(node, left, self.value(node.right))

    def compute(self, node: ast.BinOp | ast.AugAssign, left: Any, right: Any) -> Any:
        kind = type(node.op)
        if kind not in _ARITHMETIC:
            raise self.kinds.refuse(node, kind.__name__)
        instruction, constant = _ARITHMETIC[kind]
        if isinstance(left, int) and isinstance(right, int):
            return constant(left, right)
        if not instruction:
            return self.divide(kind is ast.FloorDiv, self.as_word(left), right)
        return getattr(self.builder, instruction)(self.as_word(left), self.as_word(right))

    def divide(self, quotient: bool, left: Any, right: Any) -> Any:
        """The floor of a quotient, or the remainder that has the divisor's sign; 0 for a divisor of 0."""
        builder = self.builder
        if isinstance(right, int) and right > 0 and right & (right - 1) == 0:
            if quotient:
                return builder.ashr(left, self.constant(right.bit_length() - 1))
            return builder.and_(left, self.constant(right - 1))
        zero, divisor = self.constant(0), self.as_word(right)
        none = builder.icmp_signed("==", divisor, zero)
        # The least word by -1 is more than a word holds; processors trap there, as they do for 0.
        opposite = builder.icmp_signed("==", divisor, self.constant(-1))
        safe = builder.select(builder.or_(none, opposite), self.constant(1), divisor)
        rest = builder.srem(left, safe)
        apart = builder.icmp_signed("<", builder.xor(rest, divisor), zero)
        off = builder.and_(builder.icmp_signed("!=", rest, zero), apart)
        if quotient:
            word = builder.sub(builder.sdiv(left, safe), builder.zext(off, WORD))
            word = builder.select(opposite, builder.neg(left), word)
        else:
            word = builder.add(rest, builder.select(off, divisor, zero))
        return builder.select(none, zero, word)

    def value_Compare(self, node: ast.Compare) -> Any:
        for before, operation, after in zip([node.left, *node.comparators], node.ops, node.comparators, strict=False):
            self.kinds.expect_comparable(node, operation, self.kinds.of(before), self.kinds.of(after))
        left = self.value(node.left)
        if len(node.ops) == 1:
            return self.compare(node.ops[0], left, self.value(node.comparators[0]))
        seen = [left]

        def link(operation: ast.cmpop, right: ast.expr) -> Callable[[], Any]:
            def evaluate() -> Any:
                seen.append(self.value(right))
                return self.compare(operation, *seen[-2:])

            return evaluate

        return self.lazily(
            [link(operation, right) for operation, right in zip(node.ops, node.comparators, strict=True)], until=False
        )

    def compare(self, operation: ast.cmpop, left: Any, right: Any) -> Any:
        operation = {ast.Is: ast.Eq(), ast.IsNot: ast.NotEq()}.get(type(operation), operation)
        if type(operation) not in _COMPARISONS:
            raise self.kinds.refuse(operation)
        text, constant = _COMPARISONS[type(operation)]
        if isinstance(left, int) and isinstance(right, int):
            return int(constant(left, right))
        return self.builder.icmp_signed(text, self.as_word(left), self.as_word(right))

    def value_BoolOp(self, node: ast.BoolOp) -> Any:
        parts = [partial(self.value, each) for each in node.values]
        return self.lazily(parts, until=isinstance(node.op, ast.Or))

    def lazily(self, parts: Sequence[Callable[[], Any]], until: bool) -> Any:
        """The first value whose truth is ``until``, else the last one; what follows it is not evaluated."""
        with self.builder.goto_entry_block():
            place = self.builder.alloca(WORD)
        after = self.block("after")
        for number, part in enumerate(parts):
            value = self.as_word(part())
            self.builder.store(value, place)
            if number < len(parts) - 1:
                following = self.block("or" if until else "and")
                truth = self.builder.icmp_signed("!=", value, self.constant(0))
                self.builder.cbranch(truth, *((after, following) if until else (following, after)))
                self.builder.position_at_end(following)
        self.builder.branch(after)
        self.builder.position_at_end(after)
        return self.builder.load(place)

    def value_IfExp(self, node: ast.IfExp) -> Any:
        condition = self.truth(node.test)
        if isinstance(condition, int):
            return self.value(node.body if condition else node.orelse)
        with self.builder.goto_entry_block():
            place = self.builder.alloca(WORD)
        then, otherwise, after = self.block("then"), self.block("else"), self.block("after")
        self.builder.cbranch(condition, then, otherwise)
        for block, part in ((then, node.body), (otherwise, node.orelse)):
            self.builder.position_at_end(block)
            self.builder.store(self.word(part), place)
            self.builder.branch(after)
        self.builder.position_at_end(after)
        return self.builder.load(place)

    def value_Call(self, node: ast.Call) -> Any:
        if node.keywords or any(isinstance(item, ast.Starred) for item in node.args):
            raise self.kinds.refuse(node, "an argument by name or star")
        if isinstance(node.func, ast.Attribute):
            return self.call_method(node, node.func)
        called = self.kinds.meaning(node.func)
        if called is min or called is max:
            return self.extreme("<" if called is min else ">", [self.value(item) for item in node.args])
        if called is sizeof and len(node.args) == 1:
            return sizeof(self.kinds.meaning(node.args[0]))
        words = [self.word(item) for item in node.args]
        if isinstance(called, type) and issubclass(called, (Struct, Cell)) and len(words) == 1:
            return words[0]
        if isinstance(called, Intrinsic):
            result = called.emit(self.builder, *words)
            return self.constant(0) if result is None else result
        if isinstance(called, External):
            return self.call_external(called, words)
        if not isinstance(called, Function):
            raise self.kinds.refuse(node, f"a call of {ast.unparse(node.func)}")
        function = self.module.add(called)
        if len(words) != len(function.args):
            raise self.kinds.refuse(node, f"a call of {called.name} with {len(words)} arguments")
        for name, item, expected in zip(
            called.py_func.__code__.co_varnames, node.args, self.module.signature(called).parameters, strict=False
        ):
            self.kinds.expect(item, f"{name} of {called.py_func.__name__}", self.kinds.of(item), expected)
        result = self.builder.call(function, words)
        if not may_raise(function):
            return result
        message = self.builder.extract_value(result, 1)
        with self.builder.if_then(self.builder.icmp_signed("!=", message, self.constant(0)), likely=False):
            self.fail(message)
        return self.builder.extract_value(result, 0)

    def call_method(self, node: ast.Call, method: ast.Attribute) -> Any:
        """A method of an atomic."""
        place = self.kinds.cell(method.value)
        if place is None or not issubclass(place.form, Atomic) or method.attr not in _METHODS:
            raise self.kinds.refuse(node, f"a call of {ast.unparse(method)}")
        for item in node.args:
            self.kinds.expect(item, ast.unparse(method.value), self.kinds.of(item), place.content)
        result = _METHODS[method.attr].emit(self.builder, self.word(method.value), *map(self.word, node.args))
        return self.constant(0) if result is None else result

    def extreme(self, order: str, values: list[Any]) -> Any:
        result = values[0]
        for value in values[1:]:
            if isinstance(result, int) and isinstance(value, int):
                result = min(result, value) if order == "<" else max(result, value)
            else:
                result, value = self.as_word(result), self.as_word(value)
                result = self.builder.select(self.builder.icmp_signed(order, value, result), value, result)
        return result

    def call_external(self, called: External, words: list[Any]) -> Any:
        kinds = {"int64": WORD, "int32": _HALF, "void": ir.VoidType()}
        result, parameters = called.signature.result.name, [each.name for each in called.signature.parameters]
        function = self.module.external(called.name, kinds[result], [kinds[each] for each in parameters])
        given = [
            self.builder.trunc(word, _HALF) if kind == "int32" else word
            for word, kind in zip(words, parameters, strict=True)
        ]
        returned = self.builder.call(function, given)
        if result == "void":
            return self.constant(0)
        return self.builder.sext(returned, WORD) if result == "int32" else returned
