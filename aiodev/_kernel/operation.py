"""Operations: functions of arrays that submit kernels, and what of a call is found out once.

**Problem.** A function of arrays of any layout finds out at every call which kernels to launch, over what, with which views,
constants and scratch memory. All of that follows from the layouts of its operands and from its options. For small arrays it
takes several times as long as submitting and computing.

An operation says which of its parameters are what: arrays that it reads, the array that it writes, numbers, and options, which
are all others. Its body gets a :class:`~aiodev._kernel.dispatch.call.Call` and launches by it. What the user calls hands its
arguments to native code (:mod:`aiodev._kernel.dispatch.native.operation`), which makes a key of the layouts and the options,
looks it up, and calls what :mod:`aiodev._kernel.dispatch.repeated` has made of an earlier call; or what is here, where the key
is not known. As long as there is no native code no call is remembered, and none has a key.

**Invariants.**

1.  All that a body launches by its call is submitted to the stream that is current for the operands' device, in that order,
    whether the body runs or what is remembered does.
2.  The key tells apart all that may decide what is submitted: of an array its form, of a number its class, of an option its
    class and value. What a body sees of its operands beyond that are a :class:`~aiodev._kernel.dispatch.call.Number` and
    addresses.
    Calls that differ in lengths and strides alone are a family, which may have plans for all that the body decides alike
    (:mod:`aiodev._kernel.symbolic`).
3.  Which operand an argument of a launch is follows from its buffer. Operands that share a buffer get aliases of it first, so
    that ``f(x, x.T)`` is not taken for ``f(x, y)``.
4.  A call is remembered when it comes for the second time, and only if everything that the stream was given meanwhile
    was launched by the call.

5.  What is read is what was there before the call. Of an operand that has elements in common with what is written a copy is
    read; but not of one in the very same place, if the operation is elementwise, or says that it may be (``in_place``).
6.  The form of an array that is no plain :class:`~aiodev._array.array.Array`, as a variable is of which gradients are wanted,
    is not in the key, but its class. So a call with one is never taken for one without, which pays nothing for that there are
    such; :mod:`aiodev._autograd.recording` has the call, and may remember it under its key.

Every call passes here with its operands by role and its results, so what concerns all operations belongs here: recording a
stream, which takes the steps of a call, into ``Call.launch`` and the native function. Differentiation finds its rules here,
as attributes of :class:`Operation`.
"""

from __future__ import annotations

import functools
import inspect
import linecache
import weakref
from collections.abc import Callable, Hashable, Sequence
from types import CodeType, FunctionType
from typing import Any, Concatenate, NoReturn, ParamSpec, Protocol, TypeVar

import numpy as np

from aiodev._array.array import Array, FreedArray
from aiodev._array.dtypes import has_dtype, kind_of_operand
from aiodev._array.form import Form
from aiodev._array.overlap import may_overlap, overlap, overlap_elsewhere
from aiodev._core import callsites
from aiodev._core.arguments import advice
from aiodev._core.at_fork import in_child
from aiodev._core.backend.device import Device
from aiodev._core.bounded_table import enter
from aiodev._core.errors import LaunchError
from aiodev._core.hooks import Hook
from aiodev._core.streams.current import current_stream
from aiodev._core.streams.stream import Stream
from aiodev._kernel.dispatch import native_functions
from aiodev._kernel.dispatch.call import Call, Number
from aiodev._kernel.dispatch.family import Family
from aiodev._kernel.dispatch.native_functions import native_function
from aiodev._kernel.dispatch.repeated import Step, make_repeated
from aiodev._kernel.dispatch.specializations import Specialization
from aiodev._kernel.dispatch.states import MOST_PARAMETERS, Apart, OperationCall
from aiodev._kernel.symbolic.plan import Attempt
from aiodev._kernel.tuning import MOST_CALLS, MOST_STEPS

__all__ = ["Operation", "differentiate", "operation"]

P = ParamSpec("P")
R = TypeVar("R", covariant=True)
#: From the operands' kinds (a dtype, a Python number's class, None) to a dtype for each, and behind them the result's.
Rule = Callable[..., Sequence[Any]]

_operations: weakref.WeakSet[Operation] = weakref.WeakSet()
#: Calls an operation with arrays of a subclass among its operands: a function of the operation, the key and the arguments.
differentiate: Hook[..., Any] = Hook("aiodev._autograd.recording")


class OperationFunction(Protocol[P, R]):
    """What :func:`operation` makes: a plain function, with an attribute."""

    __name__: str
    operation: Operation

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R: ...


class Operation:
    """What there is to know of an operation, ``function.operation`` of a function that :func:`operation` has made.

    Attributes:
        name: for messages.
        reads: parameters that are arrays, or numbers if they are in ``numbers``, too.
        numbers: parameters that are numbers.
        writes: the parameter that is written to, or None.
        in_place: the parameter that may be the same array as that, or None.
        holomorphic: of gradients of complex numbers, which None, the default, refuses. True: the function is complex
            differentiable, so the conjugates of what rules make of conjugates are its gradients. False: the rules see to it.

    Example:
        >>> import aiodev.kernels
        >>> aiodev.kernels.add.operation
        <aiodev.Operation add of (x1, x2), writes out>
    """

    def __init__(
        self,
        body: Callable[..., Any],
        name: str,
        reads: Sequence[str],
        numbers: Sequence[str],
        writes: str | None,
        in_place: str | None,
        dtypes: Rule | None,
        elementwise: bool,
        most: int,
    ) -> None:
        self.name, self.writes, self.in_place = name, writes, in_place
        self.holomorphic: bool | None = None
        self.reads, self.numbers = tuple(reads), tuple(numbers)
        self._body, self._rule, self._most = body, dtypes, most
        self._resolved: dict[tuple[Any, ...], Sequence[Any]] = {}
        #: How a gradient reaches an operand, by its name, or all of them at once, under ``""``; see :meth:`gradient`.
        self.gradients: dict[str, Callable[..., Any] | None] = {}
        #: Where none is declared: finds them, from the operands; None where it cannot. Declared ones take their place.
        self.derive: Callable[[Sequence[Any]], dict[str, Callable[..., Any] | None] | None] | None = None
        self._is_derived = False
        #: What was found out of these, by the keys of calls.
        self.derivatives: dict[Hashable, Any] = {}
        #: What was called before: a function of the operands, by the options and the operands' forms.
        self.known: dict[Hashable, Callable[..., Any]] = {}
        self._met: dict[Hashable, None] = {}  # once
        #: By what calls of other lengths have in common.
        self.families: dict[Hashable, Family] = {}
        self._elementwise = elementwise
        _, *parameters = inspect.signature(body).parameters.values()
        names = [parameter.name for parameter in parameters]
        if any(parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD) for parameter in parameters):
            raise TypeError(f"{name}: an operation has a parameter for each argument, no *args and no **kwargs")
        self._several = {own[1:] for own in self.reads if own[:1] == "*"}
        if elementwise and self._several:
            raise TypeError(f"{name}: an elementwise operation has no sequences of arrays")
        roles = {*(own.lstrip("*") for own in self.reads), *self.numbers}
        unknown = sorted({*roles, writes or names[0], in_place or names[0]} - set(names)) if names else sorted(roles)
        if unknown:
            raise TypeError(f"{name}: {', '.join(unknown)}: no such parameter among ({', '.join(names)})")
        #: Places, in the order of the parameters, of those that are operands; the written one is the last.
        self._operands = [place for place, own in enumerate(names) if own in roles and own != writes]
        if writes is not None:
            self._operands.append(names.index(writes))
        self._names, self._parameters = names, parameters
        self._keywords = [own.name for own in parameters if own.kind is own.KEYWORD_ONLY]
        self._positional = len(names) - len(self._keywords)
        _operations.add(self)

    def __repr__(self) -> str:
        operands = ", ".join(self._names[place] for place in self._operands[: len(self._operands) - (self.writes is not None)])
        return f"<aiodev.Operation {self.name} of ({operands})" + (f", writes {self.writes}>" if self.writes else ">")

    def __reduce__(self) -> NoReturn:
        """It holds code and memory of this process; its function is pickled and copied, by reference."""
        raise TypeError("operations are not pickled or copied; the function is, by reference")

    def gradient(self, joint: Callable[..., Any] | None = None, /, **operands: Callable[..., Any] | None) -> Any:
        """Declare how the gradient of the result becomes that of the operands: a function for each, or one for all.

        A function is given what it has parameters for, by their names: ``g``, the gradient of the result, or a tuple where the
        operation returns one; an operand, or the ``result``, which are kept until then; an option; and ``shapes``, those of the
        operands by name, for which nothing is kept. It returns an array, or None, which is 0. That is summed to the operand's
        shape where operands were broadcast, and converted to its dtype. What it computes it computes by differentiable
        functions of arrays, so that it can be differentiated again.

        Args:
            joint: of all operands that are read: returns a tuple of as many, in their order. To be used as a decorator.
            operands: by the operand's name; None for one that the result does not depend on smoothly, as ``floor``. Of an
                operand that is a sequence of arrays the function returns as many gradients.

        Raises:
            TypeError: there is no such operand, a parameter is none of the above, or both kinds are given.

        Example:
            >>> import aiodev
            >>> from aiodev import autograd
            >>> @aiodev.kernel
            ... def cube_elements(i, x, out):
            ...     out[i] = x[i] * x[i] * x[i]
            >>> @aiodev.operation(reads=["x"], writes="out")
            ... def cube(call, x, /, *, out=None):
            ...     out = call.out(x.shape, x.dtype)
            ...     call.launch(cube_elements, x.size, x.reshape(-1), out.reshape(-1))
            ...     return out
            >>> cube.operation.gradient(x=lambda g, x: 3 * g * x * x)
            >>> async def main():
            ...     x = autograd.Variable(aiodev.asarray([1.0, 2.0], device="cpu"))
            ...     await autograd.backward(cube(x).sum())
            ...     return await x.grad.tolist()
            >>> import asyncio; asyncio.run(main())
            [3.0, 12.0]
        """
        if joint is not None:
            self._declare({"": joint, **operands})
            return joint
        self._declare(operands)
        return None

    def _declare(self, rules: dict[str, Callable[..., Any] | None]) -> None:
        several = "" in rules and len(rules) > 1
        if (self.gradients and not self._is_derived) or several or not rules:
            raise TypeError(f"{self.name}: gradient: expected a function for each operand, or one for all, once")
        known = {"g", "result", "shapes", *self._names} - {self.writes}
        for own, rule in rules.items():
            if own and own not in self.reads and f"*{own}" not in self.reads:
                raise TypeError(f"{self.name}: gradient: {own}: no operand among ({', '.join(self.reads)}) is called so")
            unknown = [] if rule is None else [name for name in inspect.signature(rule).parameters if name not in known]
            if unknown:
                raise TypeError(f"{self.name}: gradient: {', '.join(unknown)}: expected any of {', '.join(sorted(known))}")
        self.gradients, self._is_derived = rules, False
        self.forget()

    def gradients_for(self, operands: Sequence[Any]) -> dict[str, Callable[..., Any] | None]:
        """The gradients that are declared, or those that are derived for the first operands."""
        if not self.gradients and self.derive is not None:
            gradients = self.derive(operands)
            if gradients is not None:
                self.gradients, self._is_derived = gradients, True
        return self.gradients

    def forget(self) -> None:
        """Forget all calls; they are found out again."""
        self.known.clear()
        self.derivatives.clear()
        self._met.clear()
        self.families.clear()

    def resolve(self, operands: Sequence[Any]) -> Sequence[Any]:
        """The dtypes that the rule gives for operands."""
        count = len(operands) - (self.writes is not None)
        kinds = tuple([_kind_of(operand) for operand in operands[:count]])
        dtypes = self._resolved.get(kinds)
        if dtypes is None:
            if self._rule is None:
                raise TypeError(f"{self.name}: the operation has no rule of dtypes; give operation(dtypes=…), or a dtype here")
            dtypes = self._resolved[kinds] = self._rule(*kinds)
        return dtypes

    # Calls

    def function(self) -> Callable[..., Any]:
        """The function that users call."""
        names = self._names
        namespace: dict[str, Any] = {}
        shown, kind = [], None
        for parameter in self._parameters:
            if kind is inspect.Parameter.POSITIONAL_ONLY and parameter.kind is not kind:
                shown.append("/")
            if parameter.kind is inspect.Parameter.KEYWORD_ONLY and kind is not parameter.kind:
                shown.append("*")
            kind = parameter.kind
            if parameter.default is parameter.empty:
                shown.append(parameter.name)
            else:
                namespace[f"_default_{parameter.name}"] = parameter.default
                shown.append(f"{parameter.name}=_default_{parameter.name}")
        if kind is inspect.Parameter.POSITIONAL_ONLY:
            shown.append("/")
        own = self._native_call()

        def call(*given: Any) -> Any:
            function = native_function("call_operation", own) if len(names) <= MOST_PARAMETERS else None
            if function is None:  # the native code is not there, yet or for good
                return self._call_slowly(None, *given)
            namespace["_call"] = function
            return function(*given)

        namespace["_call"] = call
        lines = [f"def operation({', '.join(shown)}):", f"    return _call({', '.join(names)})"]
        namespace["__name__"] = __name__  # a library's, to whom looks for the place of a call
        exec(_compiled("\n".join(lines)), namespace)
        made = namespace["operation"]
        made.__code__ = made.__code__.replace(co_name=self._body.__name__, co_qualname=self._body.__qualname__)
        signature = inspect.signature(self._body)
        made.__name__, made.__qualname__ = self._body.__name__, self._body.__qualname__
        made.__module__, made.__doc__ = self._body.__module__, self._body.__doc__
        made.__signature__ = signature.replace(parameters=self._parameters)
        annotations = getattr(self._body, "__annotations__", {})
        made.__annotations__ = {own: annotations[own] for own in (*names, "return") if own in annotations}
        made.__wrapped__ = self._body  # by whose globals annotations are read
        made.operation = self
        self._function = made
        return made  # type: ignore[no-any-return]

    def _native_call(self) -> OperationCall:
        """What native calls go by."""
        places = range(len(self._names))
        options = [(place, _usual_class(self._parameters[place].default)) for place in places if place not in self._operands]
        operands = [(place, self._names[place] in self._several) for place in self._operands]
        in_place = None
        if self.in_place is not None:
            in_place = self._names.index(self.in_place), self._operands[-1]
        count, known, families = len(self._names), self.known, self.families
        return OperationCall(count, options, operands, in_place, known, families, self._call_slowly, _freeze)

    def _call_plainly(self, *given: Any) -> Any:
        """Call it with all of its arguments, in the order of its parameters."""
        count = self._positional
        return self._function(*given[:count], **dict(zip(self._keywords, given[count:], strict=True)))

    def _call_slowly(self, key: tuple[Any, ...] | None, *given: Any) -> Any:
        """Run the body, or a plan for all lengths; or leave it to variables, or to what stands for arrays.

        On a bounded stream the call is made anew, as one operation for which there is room.
        """
        stream = self._stream_of(given)
        if not stream._is_admitted:
            with stream.as_one():
                return self._call_plainly(*given)
        kind = family = None
        recurs = False
        if key is not None:
            kind = tuple([one.key if one.__class__ is Form else one for one in key])
            family = self.families.get(kind)
            if family is not None and family.plans:
                is_looked_at = not family.is_plain_turn()
                recurs = is_looked_at and key in self._met and key not in self.known
                if recurs:  # if that comes to nothing, others are looked at before it is again
                    family.served += 1
                    self._met.pop(key, None)
                else:
                    result = self._serve(family, given)
                    if result is not None:
                        if is_looked_at:
                            enter(self._met, key, None, self._most)
                        return result
        for place in self._operands:
            value = given[place]
            if value.__class__ is not Array:
                if hasattr(value, "__aiodev_operation__"):
                    return value.__aiodev_operation__(self, given)
                if _has_variables(value):
                    return differentiate.call(self, key, given)
        apart = self._take_apart(given)
        if apart is not None:
            return self._call_plainly(*apart)
        args, operands, device = list(given), [], None
        for place in self._operands:
            own, value = self._names[place], given[place]
            if own in self._several:
                try:
                    args[place] = values = list(value)
                except (TypeError, RuntimeError):  # nothing iterable, or a future
                    shown = type(value).__name__
                    raise TypeError(f"{self.name}: argument {own}: expected a sequence of arrays, got {shown}") from None
                if not isinstance(value, list | tuple):  # which can be looked at once
                    return self._call_plainly(*args)
                for number, one in enumerate(values):
                    device = self._check(f"{own}[{number}]", own, one, device)
                operands += values
                continue
            device = self._check(own, own, value, device)
            if own in self.numbers and _is_number(value):
                value = Number(value, len(operands), f"{self.name}: argument {own}")
            operands.append(value)
        if device is None and any(own in self.numbers for own in self.reads):
            raise TypeError(f"{self.name}: expected an array among the arguments, got numbers only")
        record = recurs or key in self._met and key not in self.known
        others = None
        if key is not None and not record:
            family = family or Family()
            others = family.meet([one for one in key if one.__class__ is Form])
        written = None if self.writes is None else given[self._operands[-1]]
        in_place = self.in_place is not None and written is given[self._names.index(self.in_place)]
        where = device or current_stream().device
        call = Call(self, operands, where, written is not None, in_place, record or others is not None)

        def filled(operands: Sequence[Any]) -> list[Any]:
            """The arguments, in the order of the parameters."""
            begin = 0
            for place in self._operands:
                if self._names[place] in self._several:
                    count = len(args[place])
                    args[place] = operands[begin : begin + count]
                    begin += count
                else:
                    args[place] = operands[begin]
                    begin += 1
            return args

        attempt = None if family is None or others is None else Attempt(family, call, filled, others)
        remember = functools.partial(self._remember, attempt)
        result = call._run(self._pass, filled(operands), key, remember)
        if attempt is not None and not (native_functions.are_there() and _are_ready(_specializations(call._steps, where))):
            attempt.family.put_off()
        if key is not None and not record:  # what the body has refused is not kept, nor what it was given
            enter(self._met, key, None, self._most)
            if family is not None and kind not in self.families:
                enter(self.families, kind, family, self._most)
        return result

    def _stream_of(self, given: Sequence[Any]) -> Stream:
        """The stream that a call submits to."""
        for place in self._operands:
            value = given[place]
            for one in value if isinstance(value, list | tuple) else (value,):
                if one.__class__ is Array:
                    return current_stream(one.device)
        return current_stream()

    def _serve(self, family: Family, given: Sequence[Any]) -> Any:
        """Submit by the plan that takes these operands; None where there is none."""
        operands = self._flat(given) if self._several else [given[place] for place in self._operands]
        for plan in family.plans:
            result = plan(*operands)
            if result is not None:
                family.note(plan)
                return result
        return None

    def _flat(self, given: Sequence[Any]) -> list[Any]:
        """The operands, those of sequences one by one."""
        operands: list[Any] = []
        for place in self._operands:
            if self._names[place] in self._several:
                operands += given[place]
            else:
                operands.append(given[place])
        return operands

    def _take_apart(self, given: Sequence[Any]) -> list[Any] | None:
        """The arguments, with copies of operands that have elements of what is written; None where there are none."""
        out = None if self.writes is None else given[self._operands[-1]]
        if out.__class__ is not Array:
            return None
        args, is_changed = list(given), False
        for place in self._operands[:-1]:
            own, value = self._names[place], given[place]
            several = own in self._several and isinstance(value, list | tuple)
            before = value if several else [value]
            after = [self._as_it_was(own, one, out) for one in before]
            if any(one is not other for one, other in zip(before, after, strict=True)):
                args[place], is_changed = after if several else after[0], True
        return args if is_changed else None

    def _as_it_was(self, own: str, value: Any, out: Any) -> Any:
        """What is read of an operand: itself, or a copy if it has elements of what is written."""
        if value.__class__ is not Array or not may_overlap(value, out):
            return value
        if own == self.in_place and not overlap_elsewhere(value, out):
            return out if overlap(value, out) else value
        shares = overlap_elsewhere if self._elementwise else overlap
        return value._copied(value.device) if shares(value, out) else value

    def _conditions(self, operands: Sequence[Any]) -> list[Apart]:
        """When a call with operands like these is to be taken apart: conditions of the repeated one."""
        last = len(operands) - 1
        if self.writes is None or not isinstance(operands[last], Array):
            return []
        shares, conditions = overlap_elsewhere if self._elementwise else overlap, []
        for k, operand in enumerate(operands[:last]):
            if isinstance(operand, Array):
                may_be = self._elementwise or (not self._several and self._names[self._operands[k]] == self.in_place)
                conditions.append(Apart(k, last, may_be, shares))
        return conditions

    def _pass(self, call: Call, *args: Any) -> Any:
        """Call the body with arguments in the order of its parameters."""
        count = self._positional
        return self._body(call, *args[:count], **dict(zip(self._keywords, args[count:], strict=True)))

    def _check(self, shown: str, own: str, value: Any, device: Device | None) -> Device | None:
        """See that an operand is what its role says; gives the device that all arrays are on."""
        is_number = own in self.numbers and own not in self.reads
        if isinstance(value, Array) and not is_number:
            where = value._buffer.source.device
            if device is not None and where is not device:
                raise LaunchError(self.name, shown, f"an array on {device}", str(where))
            return where
        optional = self._parameters[self._names.index(own)].default is None
        if value is None and optional:
            return device
        if own in self.numbers and _is_number(value):
            return device
        if own == self.writes and optional:
            raise TypeError(f"{self.name}: {own}: expected an aiodev.Array, got {type(value).__name__}")
        expected = "a number" if is_number else "an array or a number" if own in self.numbers else "an array"
        if isinstance(value, np.ndarray):
            found = f"got a NumPy array in host memory{advice(value)}"
            raise TypeError(f"{self.name}: argument {shown}: expected {expected}, {found}")
        raise TypeError(f"{self.name}: argument {shown}: expected {expected}, got {type(value).__name__}")

    def _remember(
        self,
        attempt: Attempt | None,
        key: Hashable,
        steps: Sequence[Step],
        operands: Sequence[Any],
        results: Sequence[Array],
        returned: int | tuple[int, ...],
        device: Device,
    ) -> None:
        if len(steps) > MOST_STEPS:
            return
        specializations = _specializations(steps, device)
        if _are_ready(specializations):
            apart = self._conditions(operands)
            launch = make_repeated(specializations, steps, operands, results, returned, apart)
            if launch is not None:
                enter(self.known, key, launch, self._most)
                self._met.pop(key, None)
            if attempt is not None:
                attempt.plan(self._pass, steps, returned, specializations, apart)


def _specializations(steps: Sequence[Step], device: Device) -> list[Specialization]:
    """The compiled kernels of launches."""
    return [step.kernel._specializations.of(step.args, device) for step in steps]


def _are_ready(specializations: Sequence[Specialization]) -> bool:
    """Whether all are loaded."""
    return all(specialization.loading.ready for specialization in specializations)


def _has_variables(value: Any) -> bool:
    """Whether an operand, or one of several, is an array of a subclass; those that were freed are errors of another kind."""
    if isinstance(value, list | tuple):
        return any(one.__class__ is not Array and _has_variables(one) for one in value)
    return isinstance(value, Array) and not isinstance(value, FreedArray)


def _is_number(value: Any) -> bool:
    """Whether a value is a number of Python's, or of NumPy's that devices have, ``bfloat16`` included."""
    return isinstance(value, bool | int | float | complex) or isinstance(value, np.generic) and has_dtype(value.dtype)


def _kind_of(operand: Any) -> Any:
    """What types follow from: a dtype, a Python number's class, or None."""
    if operand.__class__ is Array:
        return operand._form.dtype
    value = operand.value if isinstance(operand, Number) else operand
    return None if value is None else kind_of_operand(value)


def _usual_class(default: Any) -> type:
    """The class of which most values of an option are: the only one whose values are in a key as they are.

    Values of others may equal one of these, as True and 1.0 equal 1.
    """
    return next((kind for kind in (bool, float) if isinstance(default, kind)), int)


def _freeze(value: Any) -> Hashable:
    """What equals that of another option only if both are of one class and equal, in all of their parts and their signs."""
    if value.__class__ is list or isinstance(value, tuple):
        return value.__class__, *[one if one.__class__ is int else _freeze(one) for one in value]
    if isinstance(value, np.ndarray):
        return np.ndarray, value.dtype, value.shape, value.tobytes()
    if isinstance(value, np.generic):
        return value.__class__, value.dtype, value.tobytes()
    if isinstance(value, float | complex):
        return value.__class__, repr(value)
    return value.__class__, value


@functools.lru_cache(1024)
def _compiled(source: str) -> CodeType:
    """The code of a function, which is the same for many operations; tracebacks show it."""
    filename = f"<aiodev operation {hash(source):x}>"
    linecache.cache[filename] = (len(source), None, source.splitlines(True), filename)
    return compile(source, filename, "exec")


def operation(
    body: None = None,
    /,
    *,
    reads: Sequence[str] = (),
    numbers: Sequence[str] = (),
    writes: str | None = None,
    in_place: str | None = None,
    dtypes: Rule | None = None,
    name: str | None = None,
    elementwise: bool = False,
    most: int = MOST_CALLS,
) -> Callable[[Callable[Concatenate[Call, P], R]], OperationFunction[P, R]]:
    """Decorator: make an operation on arrays of a function that submits it by a :class:`Call`, its first argument.

    What is called is a plain function of the others. It checks that operands are arrays of one device, and calls the function;
    or, where it was called before with operands of the same layouts and with the same options, submits what was submitted
    then, for about what plain launches cost. Any thread may call it; nothing waits.

    Args:
        reads: names of the parameters that are arrays; those whose default is None may be None. ``"*xs"``: a list or tuple.
        numbers: names of the parameters that are numbers, whose values are another thing at every call: the function is given a
            :class:`Number`. A parameter that is in both may be an array or a number.
        writes: the parameter that is an array to write to. Where it may be None, ``call.out`` makes the result then.
        in_place: the parameter that may be the same array as that; then ``call.in_place`` says so. Of any other operand that
            has elements of what is written, a copy is read.
        dtypes: from each operand's dtype, or the class of a Python number, or None, to what it becomes, and behind these the
            result's dtype; asked once for each combination. It is ``call.dtypes``, and what ``call.out`` takes by default.
        name: for messages; the function's by default.
        elementwise: that each element of the result follows from those in the same place, where the arrays broadcast to its
            shape. So every operand may be the array that is written, or lie in the very same place.
        most: calls that are remembered; when there are more, the oldest are forgotten.

    All other parameters are options, such as an axis. Calls are told apart by their values and classes, so the body may decide
    by them as it likes. An option that cannot be hashed has the body run at every call.

    Raises:
        TypeError: there is no parameter of such a name; or it was written without parentheses.

    Example:
        >>> import aiodev, numpy as np
        >>> @aiodev.kernel
        ... def add_up(i, x, out):
        ...     for k in range(x.shape[1]):
        ...         out[i] += x[i, k]
        >>> @aiodev.operation(reads=["x"], writes="out")
        ... def add_rows(call, x, /, *, out=None):
        ...     rows, _ = x.shape
        ...     out = call.out((rows,), x.dtype)
        ...     call.launch(add_up, rows, x, out)
        ...     return out
        >>> totals = aiodev.zeros(2, device="cpu")
        >>> add_rows(aiodev.ones((2, 3), device="cpu"), out=totals).numpy_blocking()
        array([3., 3.])
    """
    if body is not None:
        given = getattr(body, "__name__", type(body).__name__)
        raise TypeError(
            f"operation: got {given} itself; write @aiodev.operation(reads=[...], writes=...) above it, which says what its "
            "parameters are"
        )
    for names in (reads, numbers):
        if not isinstance(names, list | tuple) or not all(isinstance(own, str) for own in names):
            raise TypeError(f"operation: {names!r}: expected a sequence of names")

    def decorate(body: Callable[Concatenate[Call, P], R]) -> OperationFunction[P, R]:
        if isinstance(body, FunctionType):
            callsites.enter_library(body.__code__)  # what it submits is its callers' doing
        own = name if name is not None else body.__name__
        return Operation(body, own, reads, numbers, writes, in_place, dtypes, elementwise, most).function()  # type: ignore[return-value]

    return decorate


def _forget_after_fork() -> None:
    for known in list(_operations):
        known.forget()


in_child(_forget_after_fork)
