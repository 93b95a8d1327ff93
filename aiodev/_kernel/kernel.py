"""Kernels: functions of an index that run over a shape on any device."""

from __future__ import annotations

import functools
import inspect
import struct
import threading
import types
import weakref
from collections.abc import Callable, Collection, Mapping
from typing import Any, overload

from aiodev._core import sites
from aiodev._core.backend import KernelSpec
from aiodev._core.completion import Completion
from aiodev._core.current import current_stream
from aiodev._core.device import Device
from aiodev._core.errors import LaunchError
from aiodev._core.registry import registry
from aiodev._core.stream import Stream
from aiodev._kernel.analysis import BodyUse, analyse
from aiodev._kernel.launch import BRANCHES, MISSING, Variant, generate_call
from aiodev._kernel.loaded import GatedCompletion, wait_for
from aiodev._kernel.options import Options, parse_options
from aiodev._kernel.place import Place, parse_place
from aiodev._kernel.service import Loading, service
from aiodev._kernel.signature import ARRAY, FORMATS, Signature, describe
from aiodev._kernel.snapshot import capture

__all__ = ["Kernel", "kernel"]

_EMPTY = inspect.Parameter.empty
_MOST_PATIENCE = 1024
_kernels: weakref.WeakSet[Kernel] = weakref.WeakSet()


class Kernel:
    """A function of an index, compiled for each device and each combination of types that it is launched with.

    ``kernel[shape](*args)`` launches it on the current stream, ``kernel[shape, stream](*args)`` on a given one, and returns a
    :class:`Completion`. The first launch with new types returns as fast as any other: a worker process compiles, and the
    stream waits for it. Launches do not wait for the host, and the host does not wait for them.

    Python scalars are weak: beside ``float32`` arrays, ``2.0`` is a ``float32``. Arrays that overlap must not be written by one
    index and read by another: the order of indices is not defined.

    Attributes:
        name: the function's name.
        ndim: how many indices the body takes, and how many lengths a shape has.
        py_func: the plain function, for reading and debugging.
        implementations: hand-written bodies by device type; other types use ``py_func``.

    Example:
        >>> import aiodev, numpy
        >>> @aiodev.kernel
        ... def saxpy(i, a, x, y, out):
        ...     out[i] = a * x[i] + y[i]
        >>> async def main():
        ...     x, y = aiodev.ones(4), aiodev.ones(4)
        ...     out = aiodev.empty(4)
        ...     saxpy[4](2.0, x, y, out)
        ...     print(await out.numpy())
        >>> import asyncio; asyncio.run(main())
        [3. 3. 3. 3.]
    """

    def __init__(self, function: Callable[..., None], ndim: int, options: Options) -> None:
        self.name = function.__name__
        self.ndim = ndim
        self.py_func = function
        self._options = options
        self._bodies: dict[str, Callable[..., None]] = {}
        self._parameters = _parameters(function, ndim)
        self._names = [parameter.name for parameter in self._parameters]
        self._variants: dict[tuple[Any, ...], Variant] = {}
        self._recent: list[Variant] = []
        self._misses, self._patience = 0, 1
        self._lock = threading.Lock()
        functools.update_wrapper(self, function)
        self._call = self._generate()
        _kernels.add(self)

    @property
    def __aiodev_body__(self) -> Callable[..., None]:
        """What another kernel that calls this one calls."""
        return self.py_func

    @property
    def implementations(self) -> Mapping[str, Callable[..., None]]:
        """Hand-written bodies by device type."""
        return types.MappingProxyType(self._bodies)

    def implementation(self, device_type: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
        """Decorator: use this body on one type of device instead of ``py_func``; it takes the same parameters.

        Raises:
            TypeError: it takes others.
            ValueError: the kernel was already launched on that type of device.
        """

        def register(body: Callable[..., None]) -> Callable[..., None]:
            if [p.name for p in _parameters(body, self.ndim)] != self._names:
                found = inspect.signature(body)
                raise TypeError(
                    f"{self.name}: the {device_type} body takes {found}, the kernel ({', '.join(self._names)})"
                )
            if any(variant.device.type == device_type for variant in self._variants.values()):
                raise ValueError(f"{self.name} was already launched on {device_type}")
            self._bodies[device_type] = body
            return body

        return register

    def __repr__(self) -> str:
        where = f"{self.py_func.__module__}.{self.py_func.__qualname__}"
        return f"<aiodev.Kernel {where}({', '.join(self._names)}), ndim={self.ndim}>"

    def __getitem__(self, shape: Any) -> Callable[..., Completion]:
        """The kernel over ``shape``, or over ``(shape, stream)``; call it to launch.

        Raises:
            LaunchError: the shape is none, or has another number of dimensions.
        """
        if self.ndim == 1:
            if shape.__class__ is int:
                return types.MethodType(self._call, shape)
            if shape.__class__ is tuple and len(shape) == 2:
                length, stream = shape
                if length.__class__ is int and stream.__class__ is Stream:
                    return types.MethodType(self._call, (length, (length,), stream))
        return types.MethodType(self._call, parse_place(self.name, self.ndim, shape))

    def __call__(self, *args: Any) -> None:
        """Run the body for one index, here, in Python: what a call from another kernel's body means, compiled or not.

        Raises:
            TypeError: it was meant as a launch, which needs a shape.
        """
        if len(args) != self.ndim + len(self._names):
            raise TypeError(
                f"{self.name} is a kernel; launch it over a shape: {self.name}[shape]({', '.join(self._names)})"
            )
        self.py_func(*args)

    async def compile(self, *args: Any, device: Any = None) -> None:
        """Compile for the types of ``args`` ahead of time, off the loop; the result is kept on disk.

        The device is that of the arrays, or else ``device`` (default: the current one).

        Raises:
            CompileError: it does not compile; ``log`` is the compiler's message.
            LaunchError: the arguments do not fit.
        """
        where = next((key[0] for arg in args if (key := getattr(arg, "_key", None)) is not None), None)
        if device is not None or where is None:
            where = registry.resolve(device)[1]
        await wait_for(self._variant(self._bind(args), where).loading)

    # Launching

    def _bind(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """The arguments, with defaults for those that are not given.

        Raises:
            LaunchError: too few or too many.
        """
        args += tuple(p.default for p in self._parameters[len(args) :])
        missing = [name for name, value in zip(self._names, args, strict=False) if value is MISSING or value is _EMPTY]
        if missing or len(args) != len(self._names):
            found = f"{len(args) - len(missing)}" + (f" (not {', '.join(missing)})" if missing else "")
            expected = f"{len(self._names)} arguments ({', '.join(self._names)})"
            raise LaunchError(self.name, missing[0] if missing else None, expected, found)
        return args

    def _launch_slowly(self, place: int | Place, args: tuple[Any, ...]) -> Completion:
        """Launch with every check, and remember the types."""
        args = self._bind(args)
        size, shape, stream = parse_place(self.name, self.ndim, place) if isinstance(place, int) else place
        if stream is None:
            stream = current_stream()
        variant = self._variant(args, stream.device)
        block = self._block(variant, shape, args)
        loading = variant.loading
        site = sites.here(2)
        if loading.ready:
            self._remember(variant)
            value = stream._launch(loading.entry, size, block, site)
            completion = Completion(stream.timeline, value)
        else:
            completion = self._launch_gated(stream, loading, size, block, site)
        for arg, kind in zip(args, variant.signature.pattern, strict=True):
            if kind == ARRAY:
                arg._buffer._stamp(stream.timeline, completion.value)
        return completion

    def _launch_gated(self, stream: Stream, loading: Loading, size: int, block: bytes, site: int) -> Completion:
        """Launch code that is not there yet: the stream waits for it, and fails if it does not come."""
        gate = stream._gate()
        try:
            value = stream._launch(loading.entry, size, block, site)
        except BaseException:
            gate.open()
            raise
        loading.when_done(gate.open)
        completion = GatedCompletion(stream.timeline, value)
        completion.gate = gate.value
        return completion

    def _block(self, variant: Variant, shape: tuple[int, ...], args: tuple[Any, ...]) -> bytes:
        signature = variant.signature
        try:
            words = signature.pack(*shape, *signature.numbers(args))
        except (struct.error, OverflowError, TypeError) as error:
            raise self._unpackable(signature, args, error) from None
        return b"".join((words, *(a._packed for a, kind in zip(args, signature.pattern, strict=True) if kind == ARRAY)))

    def _unpackable(self, signature: Signature, args: tuple[Any, ...], error: Exception) -> LaunchError:
        for name, code, value in zip(self._names, signature.descriptors, args, strict=True):
            if code in FORMATS and not _fits(code, value):
                return LaunchError(self.name, name, f"a number that fits {code}", repr(value))
        return LaunchError(self.name, None, "numbers that fit their types", str(error))

    # Variants

    def _variant(self, args: tuple[Any, ...], device: Device) -> Variant:
        keys = tuple(key if (key := getattr(arg, "_key", None)) is not None else type(arg) for arg in args)
        found = self._variants.get((device, keys))
        if found is None:
            with self._lock:
                found = self._variants.get((device, keys))
                if found is None:
                    found = self._variants[device, keys] = self._make_variant(keys, args, device)
        return found

    def _make_variant(self, keys: tuple[Any, ...], args: tuple[Any, ...], device: Device) -> Variant:
        body = self._bodies.get(device.type, self.py_func)
        signature = describe(self.name, self.ndim, self._names, args, device, lambda: self._use)
        spec = KernelSpec(self.name, body, self.ndim, signature.descriptors, self._options)
        loading = self._loading(spec, device)
        return Variant(keys, device, signature, loading)

    def _loading(self, spec: KernelSpec, device: Device) -> Loading:
        """What other variants of the same types share: an int and a bool may both be packed as one type."""
        for variant in self._variants.values():
            known = variant.loading
            if known.backend.name == device.type and known.spec.arguments == spec.arguments and known.error is None:
                return known
        loading = Loading(registry.entry(device.type), spec, capture(spec.function))
        service.load(loading)
        return loading

    @functools.cached_property
    def _use(self) -> BodyUse:
        return analyse(self.py_func, tuple(self._names))

    def _remember(self, variant: Variant) -> None:
        """Give a combination of types a branch of its own in the call function.

        Generating one costs as much as a hundred slow launches, so a kernel whose types keep changing does it ever less often.
        """
        with self._lock:
            self._misses += 1
            if variant in self._recent or self._misses < self._patience:
                return
            self._misses, self._patience = 0, min(2 * self._patience, _MOST_PATIENCE)
            same = [known for known in self._recent if known.signature.pattern == variant.signature.pattern]
            self._recent = [variant, *same][:BRANCHES]
            self._call = self._generate()

    def _forget(self) -> None:
        """Start afresh in a forked child, with its backend: what is compiled is still in the cache."""
        self._lock = threading.Lock()
        self._variants.clear()
        self._recent = []
        self._call = self._generate()

    def _generate(self) -> Callable[..., Completion]:
        return generate_call(self.name, self.ndim, self._parameters, self._recent, self._launch_slowly)


def _forget_after_fork() -> None:
    service.forget_after_fork()
    for known in list(_kernels):
        known._forget()


registry.after_fork.append(_forget_after_fork)


def _fits(code: str, value: Any) -> bool:
    try:
        struct.pack("<" + FORMATS[code], *((value.real, value.imag) if code[0] == "c" else (value,)))
    except (struct.error, OverflowError, TypeError):
        return False
    return True


def _parameters(function: Callable[..., None], ndim: int) -> list[inspect.Parameter]:
    """The parameters after the indices.

    Raises:
        TypeError: too few for the indices, or of a kind that a kernel cannot have.
    """
    found = list(inspect.signature(function).parameters.values())
    if len(found) < ndim:
        raise TypeError(
            f"{function.__name__}: a kernel of {ndim} dimension(s) takes {ndim} indices first, then arguments"
        )
    for parameter in found:
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.POSITIONAL_ONLY):
            raise TypeError(f"{function.__name__}: parameter {parameter}: a kernel's parameters are plain ones")
        if parameter.name.startswith("_"):
            raise TypeError(f"{function.__name__}: parameter {parameter.name}: names must not begin with an underscore")
    return found[ndim:]


@overload
def kernel(function: Callable[..., None], /) -> Kernel: ...


@overload
def kernel(
    *, ndim: int = 1, boundscheck: bool = False, fastmath: bool | Collection[str] = False
) -> Callable[[Callable[..., None]], Kernel]: ...


def kernel(
    function: Callable[..., None] | None = None,
    /,
    *,
    ndim: int = 1,
    boundscheck: bool = False,
    fastmath: bool | Collection[str] = False,
) -> Kernel | Callable[[Callable[..., None]], Kernel]:
    """Decorator: make a :class:`Kernel` of a function whose first ``ndim`` parameters are indices.

    The body is Python that numba compiles. It may call plain functions, which are compiled with it, and what
    :mod:`aiodev.lang` has.

    Args:
        ndim: 1, 2 or 3.
        boundscheck: raise IndexError for an index that is out of bounds; without it, that is undefined.
        fastmath: let the compiler reorder and contract floating-point arithmetic, and assume that nothing is NaN or infinite;
            or a set of LLVM's flags, for a part of that: ``{"contract", "reassoc"}`` lets a sum be vectorised and keeps NaN.
            The flags are ``afn``, ``arcp``, ``contract``, ``ninf``, ``nnan``, ``nsz`` and ``reassoc``.

    Example:
        >>> import aiodev
        >>> @aiodev.kernel(ndim=2)
        ... def transpose(i, j, x, out):
        ...     out[j, i] = x[i, j]
        >>> transpose.ndim
        2
    """
    if ndim not in (1, 2, 3):
        raise ValueError(f"ndim={ndim!r}: a kernel has 1, 2 or 3 dimensions")
    options = parse_options(boundscheck, fastmath)

    def decorate(function: Callable[..., None]) -> Kernel:
        return Kernel(function, ndim, options)

    return decorate if function is None else decorate(function)
