"""Operations on variables: they are called with plain arrays, and a node is made of the call.

**Problem.** A forward pass of small arrays is a chain of library calls of 1 to 3 µs each; to note one must cost about as much,
not several times that.

**How.** A call with a variable among its operands is not known to the operation, so :func:`differentiate` has it. That calls
the operation with plain arrays, and remembers, under the key that was asked for, a generated function that does the same for
the next such call: it looks up what is known of the plain operands, calls it, and makes the node and the variable. Which
gradients there are, and what is kept for them, is a :class:`Derivative`: it follows from the operation, its options and the
classes of the operands, and is found out once for each of these.

**Invariants.**

1.  The key of a variable is its class, so what is remembered goes by nothing else of it: it asks for the forms at every call.
2.  A result is a variable only if recording is on, an operand requires a gradient, and its dtype has gradients. Else it is what
    the operation gives for plain arrays.
3.  What is written to, ``out``, takes no part in a graph: neither may it be a variable of one, nor be written with one.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable, Sequence
from itertools import zip_longest
from typing import Any

from aiodev._array.array import Array
from aiodev._array.computing import kernels
from aiodev._array.dtypes import row_of
from aiodev._array.form import Form
from aiodev._autograd import modes
from aiodev._autograd.node import (
    LeftOut,
    Node,
    Noted,
    Region,
    check_version,
    is_from_before,
    number,
    stack_of,
    version_of,
)
from aiodev._autograd.variable import Variable, edge_of, is_differentiable, linked, plain_of
from aiodev._core import callsites, context
from aiodev._core.bounded_table import enter
from aiodev._core.streams.current import current_stream
from aiodev._kernel.dispatch.generated import SITE_NAMES, define
from aiodev._kernel.operation import Operation, differentiate as _hook
from aiodev._memory.buffer import Uses

__all__ = ["Derivative", "OperationNode", "differentiate"]

callsites.register_library("aiodev._autograd")
_new = object.__new__


class Derivative:
    """How the gradients of calls of one operation, with the same options, are computed.

    Gradients of operands that are no variables are not computed, and nothing is kept for them: the key of a call tells.

    Attributes:
        holomorphic: see :class:`~aiodev.Operation`.
        kept: places of the operands that are kept until then, counted with each of several.
        keeps_result: whether the result is.
        is_repeatable: whether the rules are the library's: what they submit follows from forms, options and numbers.
        compute: the gradients of all operands: a function of the node, the results' gradient, the edges that are wanted, and
            what was kept.
    """

    __slots__ = ("compute", "holomorphic", "is_repeatable", "kept", "keeps_result", "name")

    def __init__(self, operation: Operation, options: dict[str, Any], operands: Sequence[tuple[str, Any]]) -> None:
        self.name, self.holomorphic = operation.name, operation.holomorphic
        self.kept: list[int] = []
        self.keeps_result = False
        self._compile(operation, options, operands)

    def _compile(self, operation: Operation, options: dict[str, Any], operands: Sequence[tuple[str, Any]]) -> None:
        names: dict[str, Any] = {}
        rules = operation.gradients
        modules = [getattr(rule, "__module__", None) or "" for rule in rules.values() if rule is not None]
        self.is_repeatable = all(module.startswith("aiodev.") for module in modules)
        begin, parts = 0, []
        places: dict[str, range | int] = {}
        constant: set[str] = set()
        for own, value in operands:
            several = isinstance(value, list | tuple)
            if not several and value.__class__ is not Variable:
                constant.add(own)
            places[own] = range(begin, begin + len(value)) if several else begin
            begin += len(value) if several else 1
        for number_of, (own, rule) in enumerate(rules.items()):
            if rule is None or own in constant:
                continue
            names[f"rule{number_of}"] = rule
            given = ", ".join(self._argument(name, places, options, names) for name in inspect.signature(rule).parameters)
            parts.append((own, f"rule{number_of}({given})"))
        calls = dict(parts)
        results, before = [], []
        if "" in calls:
            reads = [own for own, _ in operands if own in {name.lstrip("*") for name in operation.reads}]
            names["check"], own_name = _check_joint, operation.name
            before = [f"    joint = check({own_name!r}, {len(reads)}, {calls['']})"]
            for own, _ in operands:
                if own not in reads:
                    results.append("None")
                else:
                    results.append(f"{'*' if isinstance(places[own], range) else ''}joint[{reads.index(own)}]")
        for own, _ in operands if "" not in calls else ():
            at, call = places[own], calls.get(own)
            if isinstance(at, range):
                nothing = f"({'None, ' * len(at)})"
                wanted = " or ".join(f"wanted[{k}] is not None" for k in at)
                results.append(f"*({call} if {wanted} else {nothing})" if call and at else f"*{nothing}")
            else:
                results.append(f"{call} if wanted[{at}] is not None else None" if call else "None")
        kept = "".join(f", v{k}" for k in self.kept) + (", result" if self.keeps_result else "")
        lines = [f"def compute(node, g, wanted{kept}):", *before, f"    return ({', '.join(results)},)"]
        self.compute: Callable[..., Sequence[Any]] = define(f"<aiodev gradient of {self.name}>", lines, names)["compute"]

    def _argument(self, name: str, places: dict[str, range | int], options: dict[str, Any], names: dict[str, Any]) -> str:
        """The expression of what a rule's parameter gets."""
        if name == "g":
            return "g"
        if name == "result":
            self.keeps_result = True
            return "result"
        if name == "shapes":
            own = ", ".join(f"{key!r}: {self._shape(place)}" for key, place in places.items())
            return f"{{{own}}}"
        if name in places:
            at = places[name]
            for place in at if isinstance(at, range) else (at,):
                if place not in self.kept:
                    self.kept.append(place)
            return f"v{at}" if isinstance(at, int) else f"[{', '.join(f'v{k}' for k in at)}]"
        names[f"option_{name}"] = options[name]
        return f"option_{name}"

    @staticmethod
    def _shape(place: range | int) -> str:
        if isinstance(place, int):
            return f"(node.operands[{place}] and node.operands[{place}].shape)"
        return f"[{', '.join(f'node.operands[{k}].shape' for k in place)}]"


def _conjugates(gradients: Sequence[Any]) -> tuple[Any, ...]:
    """What is complex of them, conjugated."""
    return tuple(kernels.conj(one) if one is not None and one.dtype.kind == "c" else one for one in gradients)


def _check_joint(name: str, count: int, gradients: Any) -> Sequence[Any]:
    if not isinstance(gradients, tuple | list) or len(gradients) != count:
        raise TypeError(f"{name}: gradient: expected a tuple of {count}, one for each operand that is read, got {gradients!r}")
    return gradients


class OperationNode(Node):
    """A call of an operation.

    Attributes:
        derivative: how its gradients are computed.
        kept: operands, and behind them the result: arrays, or numbers; or what stands for them.
        versions: of these, where they are arrays.
        operands: the forms of the operands; None of numbers.
    """

    __slots__ = ("derivative", "kept", "operands", "versions")

    derivative: Derivative
    kept: Any
    versions: Sequence[Any]
    operands: Sequence[Form | None]

    @property
    def name(self) -> str:
        return self.derivative.name

    @property
    def _is_repeatable(self) -> bool:
        return self.derivative.is_repeatable and self.kept.__class__ is not LeftOut

    def apply(self, gradients: Sequence[Any], wanted: Sequence[Any], create_graph: bool) -> Any:
        derivative, kept = self.derivative, self.kept
        while kept.__class__ is LeftOut:  # of a checkpoint, and of those within
            kept.region.restore()
            kept = self.kept
        for place, version in enumerate(self.versions):
            if version is not None:
                buffer = kept[place]._buffer
                if buffer._writer is not version[0] or buffer._written != version[1]:
                    check_version(buffer, version, self._shown(place))
        if create_graph:
            kept = self._linked()
        elif len(self.forms) > 1 and derivative.keeps_result:
            count = len(derivative.kept)
            kept = *kept[:count], tuple(kept[count:])
        if derivative.holomorphic and self.forms[0].dtype.kind == "c":  # which has one result
            return _conjugates(derivative.compute(self, kernels.conj(gradients[0]), wanted, *kept))
        return derivative.compute(self, gradients[0] if len(self.forms) == 1 else gradients, wanted, *kept)

    def _leave_out(self, region: Region, place: int, since: int) -> None:
        """See the base class; numbers stay, too."""
        kept = self.kept
        pairs: Any = kept.rest if kept.__class__ is LeftOut else zip(kept, self.versions, strict=True)
        sources = [self.edges[at] for at in self.derivative.kept]
        rest: list[Any] = []
        for at, (pair, source) in enumerate(zip_longest(pairs, sources)):
            stays = pair is not None and (pair[1] is None or is_from_before(source, since))
            rest.append(pair if stays else None)
            if pair is not None and not stays:
                array, version = pair
                region.noted.append(Noted(array, version, self._shown(at)))
        self.kept, self.versions = LeftOut(region, place, rest), ()

    def _take_over(self, other: Any) -> None:
        """See the base class."""
        again, own = other.kept, self.kept.rest
        if again.__class__ is LeftOut:
            self.kept = again.moved(self, [pair or made for pair, made in zip(own, again.rest, strict=True)])
            return
        pairs = [pair or made for pair, made in zip(own, zip(again, other.versions, strict=True), strict=True)]
        self.versions = [version for _, version in pairs]
        self.kept = [value for value, _ in pairs]

    def release(self) -> None:
        self.is_released = True
        self.edges = self.kept = self.versions = ()

    def _shown(self, place: int) -> str:
        kept = self.derivative.kept
        return f"operand {kept[place]}" if place < len(kept) else "the result"

    def _linked(self) -> list[Any]:
        """What was kept, as variables of the graph."""
        places = self.derivative.kept
        values = [linked(value, self.edges[at]) for at, value in zip(places, self.kept, strict=False)]
        if self.derivative.keeps_result:
            results = self.kept[len(places) :]
            made = [linked(result, (self, output)) for output, result in enumerate(results)]
            values.append(made[0] if len(made) == 1 else tuple(made))
        return values


def differentiate(operation: Operation, key: Hashable, given: Sequence[Any]) -> Any:
    """Call an operation with variables among its operands; remember how, where it may be called so again."""
    names, count = operation._names, len(operation._operands) - (operation.writes is not None)
    operands = [(names[place], given[place]) for place in operation._operands[:count]]
    out = None if operation.writes is None else given[operation._operands[-1]]
    plain = [_plain_operand(value) if place in operation._operands else value for place, value in enumerate(given)]
    mode = modes.current()
    flat = [one for _, value in operands for one in (value if isinstance(value, list | tuple) else (value,))]
    edges = tuple([edge_of(value) for value in flat])
    is_recorded = mode.enabled and any(edge is not None for edge in edges)
    if mode.enabled and out is not None and (is_recorded or edge_of(out) is not None):
        raise RuntimeError(
            f"{operation.name}: {operation.writes}: what is written to takes no part in a graph; "
            f"leave it out, or use detach() or no_grad"
        )
    result = operation._call_plainly(*plain)
    if out is not None and result is plain_of(out):
        return out
    rules = operation.gradients_for([plain[place] for place in operation._operands[: len(operation.reads)]])
    if rules and not any(rules.values()):  # it never has a gradient
        if key is not None and out is None and not operation._several:
            _remember(operation, key, given, None)
        return result
    if not is_recorded:
        return result
    results = result if isinstance(result, tuple) else (result,)
    if not any(row_of(one.dtype).kind in "fc" for one in results):
        return result
    if not rules:
        raise NotImplementedError(
            f"{operation.name}: no gradient is declared for it; use detach() or no_grad where none is needed, or declare one "
            f"by `operation.gradient`"
        )
    if operation.holomorphic is None:
        refuse_complex(operation.name, [*results, *(plain_of(one) for one in flat if isinstance(one, Array))])
    places = {*operation._operands}
    options = {names[place]: value for place, value in enumerate(given) if place not in places}
    derivative = operation.derivatives.get(key)
    if derivative is None:
        derivative = Derivative(operation, options, operands)
        if key is not None:
            enter(operation.derivatives, key, derivative, operation._most)
    if key is not None and out is None and result.__class__ is Array and not operation._several:
        _remember(operation, key, given, derivative)
    return _recorded(derivative, flat, edges, result, mode)


_hook.provide(differentiate)


def refuse_complex(name: str, arrays: Sequence[Any]) -> None:
    """Raise NotImplementedError where an array is of complex numbers, for an operation that does not say how they go."""
    if any(row_of(one.dtype).kind == "c" for one in arrays):
        raise NotImplementedError(
            f"{name}: no gradient is declared for complex numbers; use detach() or no_grad where none is needed, or set "
            f"`operation.holomorphic`"
        )


def _plain_operand(value: Any) -> Any:
    return type(value)(map(plain_of, value)) if isinstance(value, list | tuple) else plain_of(value)


def _recorded(derivative: Derivative, flat: Sequence[Any], edges: Sequence[Any], result: Any, mode: modes.Mode) -> Any:
    """Make the node of a call, and the variables of its results."""
    results = result if isinstance(result, tuple) else (result,)
    node = _new(OperationNode)
    node.derivative = derivative
    node.edges = edges
    node.forms = tuple([one._form for one in results])
    kept = [plain_of(flat[place]) for place in derivative.kept]
    if derivative.keeps_result:
        kept += results
    node.kept = kept
    node.versions = [version_of(one._buffer) if isinstance(one, Array) else None for one in kept]
    node.operands = tuple([one._form if isinstance(one, Array) else None for one in flat])
    node.stream, node.sequence, node.site = current_stream(results[0].device), number(), callsites.here(3)
    node.hooks, node.is_released, node.stack = None, False, stack_of(mode)
    made = [
        linked(one, (node, output)) if is_differentiable(one._form) else one for output, one in enumerate(results)
    ]
    return tuple(made) if isinstance(result, tuple) else made[0]


def _remember(operation: Operation, key: Any, given: Sequence[Any], derivative: Derivative | None) -> None:
    """Have the next call with these options, and operands of these classes, make its node by a function of its own.

    Without a derivative there is no node to make.
    """
    places = operation._operands
    constants: dict[str, Any] = {}
    count = len(places) - (operation.writes is not None)
    prefix = key[: len(key) - len(places)]
    for k, one in enumerate(prefix):
        constants[f"p{k}"] = one
    forms, plain, edges, kinds = [], [], [], []
    for k, place in enumerate(places):
        value = given[place]
        if value.__class__ is Variable:
            plain.append(f"a{k} = x{k}._plain")
            forms.append(f"a{k}._form")
            kinds.append(f"a{k}._form")
        elif isinstance(value, Array):
            plain.append(f"a{k} = x{k}")
            forms.append(f"a{k}._form")
            kinds.append(f"a{k}._form")
        else:
            plain.append(f"a{k} = x{k}")
            forms.append(f"x{k}.__class__")
            kinds.append("None")
        if k < count:
            edges.append(value.__class__ is Variable)
    slow = []
    for place, value in enumerate(given):
        if place in places:
            slow.append(f"a{places.index(place)}")
        else:
            constants[f"o{place}"] = value
            slow.append(f"o{place}")
    arguments = ", ".join(f"x{k}" for k in range(len(places)))
    first = next(k for k, place in enumerate(places) if isinstance(given[place], Array))
    lines = [f"def launch({arguments}):", *(f"    {line}" for line in plain)]
    lines += [
        f"    device = a{first}._form.device",
        "    stream = context().stream",
        "    if stream is None or stream.device is not device:",
        "        stream = current(device)",
        "    _from = _getframe(2)",
        "    _site = _site_of(id(_from.f_code))",
        "    if _site == 0 and (_back := _from.f_back) is not None:",
        "        _from, _site = _back, _site_of(id(_back.f_code))",
        "    _site = _site + _from.f_lasti if _site else _outside(_from)",
        f"    key = ({', '.join([*(f'p{k}' for k in range(len(prefix))), *forms])},)",
        "    _launch = find(key)",
        f"    result = None if _launch is None else _launch({', '.join(f'a{k}' for k in range(len(places)))}, stream, _site)",
        "    if result is None:",
        f"        result = slow(key, {', '.join(slow)})",
    ]
    constants |= {
        "find": operation.known.get, "slow": operation._call_slowly, "modes": modes.current, "Uses": Uses, "new": _new,
        "version_of": version_of, "context": context.current, "current": current_stream, "OperationNode": OperationNode,
        "Variable": Variable, "derivative": derivative, "number": number, "stack_of": stack_of, **SITE_NAMES,
    }  # fmt: skip
    if derivative is not None and derivative.holomorphic is None:
        arrays = ", ".join(["result", *(f"a{k}" for k in range(count) if isinstance(given[places[k]], Array))])
        lines.append(f"    refuse_complex({operation.name!r}, ({arrays},))")
        constants["refuse_complex"] = refuse_complex
    if derivative is not None:
        lines += _recording_lines(derivative, given, places, edges, kinds[:count])
    else:
        lines.append("    return result")
    launch = define(f"<aiodev recorded call of {operation.name}>", lines, constants)["launch"]
    enter(operation.known, key, launch, operation._most)


def _recording_lines(
    derivative: Derivative, given: Sequence[Any], places: Sequence[int], edges: Sequence[bool], kinds: Sequence[str]
) -> list[str]:
    """Source lines that make a node and a variable of ``result``, where that is to be recorded."""
    used = [k for k, is_variable in enumerate(edges) if is_variable]
    kept = [f"a{k}" for k in derivative.kept]
    is_array = [isinstance(given[places[k]], Array) for k in derivative.kept]
    if derivative.keeps_result:
        kept.append("result")
        is_array.append(True)
    versions: list[str] = []
    lines = [
        "    mode = modes()",
        "    if not mode.enabled:",
        "        return result",
    ]
    for k in used:
        lines += [f"    e{k} = x{k}._edge", f"    if e{k} is True:", f"        e{k} = x{k}"]
    lines += [f"    if {' and '.join(f'e{k} is None' for k in used)}:", "        return result"]
    for position, (name, array) in enumerate(zip(kept, is_array, strict=True)):
        if not array:
            versions.append("None")
            continue
        versions.append(f"(w{position}, u{position})")
        lines += [
            f"    b = {name}._buffer",
            f"    w{position} = b._writer",
            f"    u{position} = b._written",
            f"    if w{position}.__class__ is Uses:",
            f"        w{position}, u{position} = version_of(b)",
        ]
    edge_values = [f"e{k}" if is_variable else "None" for k, is_variable in enumerate(edges)]
    lines += [
        "    form = result._form",
        "    node = new(OperationNode)",
        "    node.derivative = derivative",
        f"    node.edges = ({', '.join(edge_values)},)",
        "    node.forms = (form,)",
        f"    node.kept = ({''.join(f'{name}, ' for name in kept)})",
        f"    node.versions = ({''.join(f'{version}, ' for version in versions)})",
        f"    node.operands = ({', '.join(kinds)},)",
        "    node.stream = stream",
        "    node.sequence = number()",
        "    node.site = _site",
        "    node.hooks = None",
        "    node.is_released = False",
        "    node.stack = stack_of(mode) if mode.anomaly else None",
        "    made = new(Variable)",
        "    made._buffer = result._buffer",
        "    made._address = result._address",
        "    made._form = form",
        "    made._packed = made._grad = made._hooks = made._post_hooks = None",
        "    made._plain = result",
        "    made._edge = (node, 0)",
        "    return made",
    ]
    return lines
