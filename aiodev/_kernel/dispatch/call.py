"""One call of an operation, as the operation's body sees it."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Protocol

from aiodev._array.array import Array, allocate, array_of
from aiodev._array.dtypes import can_cast, parse_dtype
from aiodev._array.layout import parse_shape
from aiodev._core.backend.device import Device
from aiodev._core.errors import LaunchError
from aiodev._core.streams.completion import Completion
from aiodev._core.streams.current import current_stream
from aiodev._core.streams.stream import Stream
from aiodev._kernel.dispatch.copying import copies
from aiodev._kernel.dispatch.repeated import CONSTANT, SCRATCH, Step
from aiodev._kernel.kernel import Kernel
from aiodev._memory.buffer import Alias, Buffer, why_read_only

__all__ = ["Call", "Number", "constants"]

#: Memory of constants, by the address that kernels are given: for who sees nothing but launches.
constants: weakref.WeakValueDictionary[int, Buffer] = weakref.WeakValueDictionary()


class _Called(Protocol):
    """The interface of an operation that a call uses (:class:`aiodev._kernel.operation.Operation`)."""

    name: str
    writes: str | None

    def resolve(self, operands: Sequence[Any]) -> Sequence[Any]: ...


class Number:
    """A number whose value the next call may change; an operation's body gets it in place of the number itself.

    It is an argument of a launch, as it is or as a number of some type. A body that decides by its value calls
    :meth:`Call.once` where another value would have other launches.

    Attributes:
        value: the number.

    Example:
        >>> import aiodev
        >>> @aiodev.operation(numbers=["factor"], reads=["x"])
        ... def describe(call, factor, x):
        ...     return repr(factor), repr(factor.astype(x.dtype))
        >>> describe(2, aiodev.ones(3, device="cpu"))
        ('<aiodev.Number 2>', '<aiodev.Number 2.0>')
    """

    __slots__ = ("__weakref__", "_name", "_operand", "value")

    def __init__(self, value: Any, operand: int, name: str) -> None:
        self.value = value
        self._operand = operand
        self._name = name

    def astype(self, dtype: Any) -> Number:
        """This number, launched as one of a type.

        Raises:
            OverflowError: the type has no such number.
        """
        wanted = parse_dtype(dtype)
        try:
            return Number(wanted.type(self.value), self._operand, self._name)
        except OverflowError:
            raise OverflowError(f"{self._name}: {self.value} is out of bounds for {wanted}") from None

    def __repr__(self) -> str:
        return f"<aiodev.Number {self.value!s}>"

    def __reduce__(self) -> Any:
        raise TypeError("a number of a call belongs to it, and is not pickled or copied; its value is")


class Call:
    """What the body of an :func:`operation` is given first: it checks, allocates and launches by it.

    The body runs where a call is not known yet. What it launched is remembered when it is called so for the second time, and
    submitted again from then on without the body, if all of this holds:

    -   All that it submitted, it submitted by :meth:`launch`: no copy, and no other operation.
    -   The arrays of its launches are operands, or what :meth:`out`, :meth:`new`, :meth:`scratch` and :meth:`constant` gave, or
        views of these.
    -   It returns operands, results that it was given by :meth:`out` or :meth:`new`, or a tuple of such.

    A body for which that does not hold is right, too, and runs at every call. One for which it does may also be run with arrays
    of symbolic lengths, for a plan that serves other lengths; what it cannot do with these leaves no plan.

    Attributes:
        device: of the operands.
        in_place: whether what is written is the array named by the operation's ``in_place``.

    Example:
        >>> import aiodev
        >>> @aiodev.kernel
        ... def scale(i, factor, x, out):
        ...     out[i] = factor * x[i]
        >>> @aiodev.operation(numbers=["factor"], reads=["x"], writes="out")
        ... def scaled(call, factor, x, /, *, out=None):
        ...     out = call.out(x.shape, x.dtype)
        ...     call.launch(scale, x.size, factor, x.reshape(-1), out.reshape(-1))
        ...     return out
        >>> scaled(2.0, aiodev.ones((2, 2), device="cpu")).numpy_blocking()
        array([[2., 2.],
               [2., 2.]])
    """

    __slots__ = (
        "__weakref__", "_dtypes", "_given", "_is_recorded", "_launched", "_operands", "_operation", "_origins", "_real",
        "_results", "_steps", "_stream", "device", "in_place",
    )  # fmt: skip

    _given: Array | None  #: to write to
    _stream: Stream | None

    def __init__(
        self,
        operation: _Called,
        operands: list[Any],
        device: Device,
        has_given: bool,
        in_place: bool,
        record: bool,
    ) -> None:
        """Of ``operands``, arrays in memory that another one has are replaced by aliases: by what the body is given."""
        self._operation = operation
        self._operands = operands
        self.device, self.in_place = device, in_place
        self._is_recorded = record
        self._origins: dict[Buffer, int] = {}  # of the buffers of arrays
        self._real: list[tuple[Array, Array]] = []  # aliases, and the operands that they stand for
        self._steps: list[Step] = []
        self._results: list[Array] = []
        self._stream = None
        self._dtypes: Sequence[Any] | None = None
        self._launched = 0
        for place, operand in enumerate(operands):
            if isinstance(operand, Array):
                if operand._buffer in self._origins:
                    alias = array_of(Alias(operand._buffer), operand._address, operand._form)
                    self._real.append((alias, operand))
                    operands[place] = operand = alias
                self._origins[operand._buffer] = place
        self._given = operands[-1] if has_given else None

    @property
    def name(self) -> str:
        """The operation's name, for messages."""
        return self._operation.name

    def __repr__(self) -> str:
        return f"<aiodev.Call of {self.name}>"

    def __reduce__(self) -> Any:
        raise TypeError("a call of an operation is over when its body returns: it is not pickled or copied")

    @property
    def stream(self) -> Stream:
        """The stream that the call submits to, which is the current one of the operands' device."""
        if self._stream is None:
            self._stream = current_stream(self.device)
        return self._stream

    @property
    def dtypes(self) -> Sequence[Any]:
        """The dtypes that the operation's rule gives for these operands, one for each, and behind them the result's."""
        if self._dtypes is None:
            self._dtypes = self._operation.resolve(self._operands)
        return self._dtypes

    def number(self, given: Any) -> Number:
        """The :class:`Number` that a parameter is, whatever type its annotation says that users give.

        Raises:
            TypeError: it is something else.
        """
        if not isinstance(given, Number):
            raise TypeError(f"{self.name}: expected a number, got {type(given).__name__}")
        return given

    # Memory

    def out(self, shape: tuple[int, ...], dtype: Any = None, *, casting: str = "no") -> Array:
        """The array to write to: the one that was given if it fits, else a new one.

        Args:
            shape: of the result.
            dtype: of the result; by default what the operation's rule says.
            casting: which other dtypes the given array may have, as NumPy calls them: ``"no"`` or ``"same_kind"``.

        Raises:
            ValueError: the given one has another shape.
            TypeError: it has another dtype, or is no array.
            LaunchError: it is on another device, or read-only.
        """
        wanted = parse_dtype(self.dtypes[-1] if dtype is None else dtype)
        out = self._given
        if out is None:
            return self.new(shape, wanted)
        name, role = self.name, self._operation.writes
        if out.shape != shape:
            raise ValueError(f"{name}: {role}: expected the shape {shape}, got {out.shape}")
        if out.dtype != wanted and not (casting != "no" and can_cast(wanted, out.dtype, casting)):
            raise TypeError(
                f"{name}: {role}: {wanted} cannot be written to {out.dtype}; aiodev.kernels.astype converts"
            )
        if not out.writable:
            raise LaunchError(name, role or "out", "an array that can be written to", f"a read-only one{why_read_only(out)}")
        return out

    def new(self, shape: int | tuple[int, ...], dtype: Any) -> Array:
        """A further result: always a new array."""
        made = self._allocate(shape, dtype)
        self._origins[made._buffer] = len(self._operands) + len(self._results)
        self._results.append(made)
        return made

    def scratch(self, shape: int | tuple[int, ...], dtype: Any) -> Array:
        """Memory for this call, whose contents nobody reads before or after it: launches of the call share it."""
        made = self._allocate(shape, dtype)
        self._origins[made._buffer] = SCRATCH
        return made

    def _allocate(self, shape: int | tuple[int, ...], dtype: Any) -> Array:
        """A fresh array, for what the call's stream is given from now on."""
        return allocate(parse_shape(shape), parse_dtype(dtype), self.stream)

    def constant(self, x: Array) -> Array:
        """An array that is the same in every call like this one, such as a table, and is kept with what is remembered.

        It must be filled already, and never be written to: calls on other streams do not wait for what fills it.
        """
        self._origins[x._buffer] = CONSTANT
        constants[x._address] = x._buffer
        return x

    def packed(self, x: Array) -> Array:
        """The array itself if it lies in C order without gaps, else a copy that does, in memory for this call."""
        if x._form.packed:
            return x
        made = self.scratch(x.shape, x.dtype)
        self.copy(made, x)
        return made

    def reshape(self, x: Array, shape: int | tuple[int, ...]) -> Array:
        """The elements in C order in another shape: a view where strides can express it, else of :meth:`packed`.

        ``x.reshape`` is the same, but where it copies the call is not remembered.
        """
        lengths = shape if isinstance(shape, tuple) else (shape,)
        if x._form.shape == lengths:
            return x
        seen = x._seen_as(lengths)
        return self.packed(x).reshape(shape) if seen is None else seen

    # Submission

    def launch(self, kernel: Kernel, shape: int | tuple[int, ...], /, *args: Any) -> Completion[None]:
        """Launch a kernel on the current stream: arguments are arrays, numbers of the call, and constants of any number type.

        A Python or NumPy number that is no :class:`Number` is taken to follow from the operands' layouts and the operation's
        options, and is a part of what is remembered.

        Raises:
            LaunchError: an argument does not fit; it is named.
        """
        lengths = shape if isinstance(shape, tuple) else (shape,)
        stream = self.stream
        if self._is_recorded:
            origins = [self._origin_of(arg) for arg in args]
            if None in origins:
                self._is_recorded = False
            values = tuple([arg.value if isinstance(arg, Number) else arg for arg in args])
            self._steps.append(Step(kernel, lengths, values, tuple(origins)))  # type: ignore[arg-type]
        else:
            values = tuple([arg.value if isinstance(arg, Number) else arg for arg in args])
        self._launched += 1
        return kernel[(*lengths, stream)](*values)

    def wait(self, done: Completion[Any]) -> None:
        """Have the call wait for something that is done once and for good, such as the loading of a library.

        The call is not remembered: others, on other streams, have to wait, too. In a capture all replays wait for it.
        """
        recording = self.stream.timeline.recording
        if recording is None:
            self.stream.wait(done)
        else:
            recording.wait_for(done)
        self.once()

    def refuse_in_capture(self, reason: str) -> None:
        """Raise CaptureError, with a reason, if what the call submits is being captured."""
        recording = self.stream.timeline.recording
        if recording is not None:
            recording.refuse(reason)

    def once(self) -> None:
        """Do not remember this call: another with operands like these would submit something else."""
        self._is_recorded = False

    def copy(self, dst: Array, src: Array) -> None:
        """Copy between arrays of one shape and dtype that have no elements in common, by launches of the call.

        Raises:
            LaunchError: their shapes or dtypes differ.
        """
        if dst.shape != src.shape or dst.dtype != src.dtype:
            expected = f"an array {src.shape} of {src.dtype}"
            raise LaunchError(self.name, "dst", expected, f"{dst.shape} of {dst.dtype}")
        if src.size:
            for kernel, lengths, args in copies(self.device, dst, src):
                self.launch(kernel, lengths, *args)

    # What becomes of it

    def _origin_of(self, arg: Any) -> int | None:
        if isinstance(arg, Array):
            return self._origins.get(arg._buffer)
        return arg._operand if isinstance(arg, Number) else CONSTANT

    def _run(self, body: Callable[..., Any], args: list[Any], key: Hashable, remember: Callable[..., None]) -> Any:
        """Run the body, remember its launches under the key, and return the operation's results."""
        if self._is_recorded:
            timeline = self.stream.timeline
            before = timeline.submitted
            returned = body(self, *args)
            if self._is_recorded and self._steps and timeline.submitted - before == self._launched:
                places = self._places_of(returned)
                if places is not None:
                    operands = [arg.value if isinstance(arg, Number) else arg for arg in self._operands]
                    remember(key, self._steps, operands, self._results, places, self.device)
        else:
            returned = body(self, *args)
        return self._without_aliases(returned) if self._real else returned

    def _places_of(self, returned: Any) -> int | tuple[int, ...] | None:
        """Which operands and results are returned; None if something else is."""
        if isinstance(returned, Array):
            known = [*self._operands, *self._results]
            return next((place for place, array in enumerate(known) if array is returned), None)
        if returned.__class__ is not tuple or not returned:
            return None
        places = [self._places_of(one) for one in returned]
        return tuple(places) if all(isinstance(place, int) for place in places) else None  # type: ignore[arg-type]

    def _without_aliases(self, returned: Any) -> Any:
        if isinstance(returned, tuple):
            return tuple([self._without_aliases(one) for one in returned])
        return next((real for alias, real in self._real if alias is returned), returned)
