"""Kernels: functions of an index that run over a shape on any device, and launches of them that are bound to arguments."""

from __future__ import annotations

import functools
import inspect
import math
import types
import weakref
from collections.abc import Callable, Collection, Mapping, Set
from typing import Any, cast, overload

from aiodev._array.array import Array
from aiodev._core import callsites
from aiodev._core.at_fork import in_child
from aiodev._core.backend.registry import registry
from aiodev._core.once import once
from aiodev._core.streams.completion import Completion
from aiodev._core.streams.current import current_stream
from aiodev._core.streams.stream import Stream
from aiodev._kernel.analysis.bounds import check_bounds
from aiodev._kernel.compile.service import PendingKernel, service
from aiodev._kernel.dispatch.launch import KernelCaller, become
from aiodev._kernel.dispatch.native_functions import as_method, native_function
from aiodev._kernel.dispatch.parameters import complete, parameters_of
from aiodev._kernel.dispatch.pending import KernelWait
from aiodev._kernel.dispatch.signature import ARRAYS, key_of
from aiodev._kernel.dispatch.specializations import Specialization, Specializations
from aiodev._kernel.dispatch.states import MOST_PARAMETERS, BoundCall
from aiodev._kernel.dispatch.submission import pack, submit
from aiodev._kernel.launch_config import LaunchConfig, LineConfig, parse_config
from aiodev._kernel.options import Options, parse_launch, parse_options

__all__ = ["BoundLaunch", "Kernel", "kernel"]

_kernels: weakref.WeakSet[Kernel] = weakref.WeakSet()
callsites.register_library(__package__)
_at = types.MethodType


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

    def __init__(
        self,
        function: Callable[..., None],
        ndim: int,
        options: Options,
        uniform: bool | Collection[str] | None = None,
        reads: Collection[str] = (),
    ) -> None:
        self._parameters = parameters_of(function, ndim)
        self.name = function.__name__
        if not self.name.isidentifier():
            raise TypeError(f"{self.name}: a kernel has a name, and writes to its arguments; use def")
        self.ndim = ndim
        self.py_func = function
        self._bodies: dict[str, Callable[..., None]] = {}
        self._launch_options: dict[str, Options] = {}
        self._names = [parameter.name for parameter in self._parameters]
        named = {"reads": reads} if isinstance(uniform, bool | None) else {"reads": reads, "uniform": uniform}
        for option, names in named.items():
            if not isinstance(names, list | tuple | Set) or not all(isinstance(n, str) and n in self._names for n in names):
                raise TypeError(f"{self.name}: {option}={names!r}: expected names among ({', '.join(self._names)})")
        self._specializations = Specializations(
            self.name, ndim, self._names, function, self._bodies, options, self._launch_options, uniform, tuple(reads)
        )
        functools.update_wrapper(self, function)
        _kernels.add(self)

    @property
    def __aiodev_body__(self) -> Callable[..., None]:
        """What another kernel that calls this one calls."""
        return self.py_func

    @property
    def implementations(self) -> Mapping[str, Callable[..., None]]:
        """Hand-written bodies by device type."""
        return types.MappingProxyType(self._bodies)

    def implementation(
        self, device_type: str, *, block: int | None = None, grid: int | None = None, team: bool = False
    ) -> Callable[[Callable[..., None]], Callable[..., None]]:
        """Decorator: use this body on one type of device instead of ``py_func``; it takes the same parameters.

        On CUDA devices it may say how it is launched; the CPU has no such choices, and refuses them when it compiles.

        Args:
            device_type: such as ``"cpu"`` or ``"cuda"``.
            block: threads of a block; what occupies the device best, up to 256, by default.
            grid: blocks of the grid at most; some for each multiprocessor by default. Blocks stride over the shape.
            team: all ``block`` threads run the body together for each index, along ``threadIdx.x``: they may share memory and
                meet at barriers. Without it each index is one thread's, and threads must not wait for each other.

        Raises:
            TypeError: it takes others.
            ValueError: the kernel was already launched on that type of device, or a number makes no sense.
        """
        options = parse_launch(block, grid, team)

        def register(body: Callable[..., None]) -> Callable[..., None]:
            if [p.name for p in parameters_of(body, self.ndim)] != self._names:
                signature = inspect.signature(body)
                raise TypeError(
                    f"{self.name}: the {device_type} body takes {signature}, the kernel ({', '.join(self._names)})"
                )
            if self._specializations.launched_on(device_type):
                raise ValueError(f"{self.name} was already launched on {device_type}")
            self._bodies[device_type] = body
            self._launch_options[device_type] = options
            return body

        return register

    def __reduce__(self) -> str:
        """By reference, as functions are pickled and copied: another process imports the module that defines it."""
        return self.py_func.__qualname__

    def _parts(self) -> tuple[tuple[Any, ...], dict[str, Callable[..., None]], dict[str, Options]]:
        """What it was made of, its hand-written bodies, and their options: for processes that cannot import its module."""
        own = self._specializations
        arguments = self.py_func, self.ndim, own._options, own._uniform, own._reads
        return arguments, dict(self._bodies), dict(self._launch_options)

    def __repr__(self) -> str:
        where = f"{self.py_func.__module__}.{self.py_func.__qualname__}"
        return f"<aiodev.Kernel {where}({', '.join(self._names)}), ndim={self.ndim}>"

    # Without these, to iterate over a kernel would be to ask for kernel[0], kernel[1] and so on, without an end.
    __iter__ = None
    __contains__ = None

    def _choose(self, shape: Any) -> Callable[..., Completion[None]]:
        """The kernel over ``shape``, or over ``(shape, stream)``; call it to launch.

        Raises:
            LaunchError: the shape is none, or has another number of dimensions.
        """
        if self.ndim != 1:
            return _at(self._call, parse_config(self.name, self.ndim, shape))
        if shape.__class__ is int:
            return _at(self._call, shape)
        if shape.__class__ is tuple and len(shape) == 2:
            length, stream = shape
            if length.__class__ is int and stream.__class__ is Stream:
                return _at(self._call, shape)
        size, _, stream = parse_config(self.name, 1, shape)
        return _at(self._call, size if stream is None else (size, stream))

    #: Native code does what is usual there, and calls this else.
    __getitem__ = _choose

    def __call__(self, *args: Any) -> None:
        """Run the body for one index, here, in Python: what a call from another kernel's body means, compiled or not.

        Raises:
            TypeError: it was meant as a launch, which needs a shape.
        """
        is_short = len(args) != self.ndim + len(self._names)
        if is_short or any(isinstance(arg, Array) for arg in args):  # whose elements are not to be had one by one
            shape = ", ".join(map(repr, args[: self.ndim])) if not is_short else "shape"
            raise TypeError(
                f"{self.name} is a kernel; launch it over a shape, which goes in brackets: "
                f"{self.name}[{shape}]({', '.join(self._names)})"
            )
        self.py_func(*args)

    async def compile(self, *args: Any, device: Any = None) -> None:
        """Compile for the types of ``args`` ahead of time, off the loop; the result is kept on disk.

        The device is that of the arrays, or else ``device`` (default: the current one).

        Raises:
            CompileError: it does not compile; ``log`` is the compiler's message.
            LaunchError: the arguments do not fit.
        """
        await KernelWait(self._loading_of(args, device))

    def prepare(self, *args: Any, device: Any = None) -> bool:
        """Whether the code for the types of ``args`` is there; if not, it is loaded or compiled in the background.

        It does not wait, and may be called from any thread. The device is that of the arrays, or else ``device`` (default: the
        current one). Code that does not compile is never there; :meth:`compile` and launches say why.

        Raises:
            LaunchError: the arguments do not fit.

        Example:
            >>> import aiodev
            >>> @aiodev.kernel
            ... def halve(i, x):
            ...     x[i] /= 2
            >>> async def main():
            ...     x = aiodev.ones(3)
            ...     halve.prepare(x)
            ...     await halve.compile(x)
            ...     print(halve.prepare(x))
            >>> import asyncio; asyncio.run(main())
            True
        """
        return self._loading_of(args, device).ready

    def bind(self, config: Any, /, *args: Any, **named: Any) -> BoundLaunch:
        """A launch with everything fixed, to be made again and again: calling it submits, for less than a plain launch.

        ``config`` is what the brackets of a plain launch hold: a shape, or ``(shape, stream)``. Without a stream it is the one
        that is current now, wherever the launch is called. The arrays are kept alive, and their contents are those of the
        moment when it runs.

        Raises:
            LaunchError: an argument does not fit; it is named.

        Example:
            >>> import aiodev
            >>> @aiodev.kernel
            ... def increment(i, x):
            ...     x[i] += 1
            >>> async def main():
            ...     x = aiodev.zeros(3)
            ...     step = increment.bind(3, x)
            ...     for _ in range(1000):
            ...         step()
            ...     print(await x.numpy())
            >>> import asyncio; asyncio.run(main())
            [1000. 1000. 1000.]
        """
        size, shape, stream = parse_config(self.name, self.ndim, config)
        args = complete(self.name, self._parameters, args, named)
        if stream is None:
            stream = current_stream()
        specialization = self._specializations.of(args, stream.device)
        check_bounds(self.name, self._names, specialization.bounds, shape, args)
        block = pack(self.name, self._names, specialization.signature, shape, args)

        def launch_slowly(site: int) -> Completion[None]:
            return submit(specialization, stream, size, block, args, site)

        return BoundLaunch(self, specialization, stream, shape, args, block, launch_slowly)

    def _loading_of(self, args: tuple[Any, ...], device: Any) -> PendingKernel:
        """The code for the types of the arguments, on their device, or on ``device``."""
        where = next((key[0] for key in map(key_of, args) if key is not None), None)
        if device is not None or where is None:
            where = registry.resolve(device)[1]
        return self._specializations.of(complete(self.name, self._parameters, args), where).loading

    # Launching

    @once
    def _caller(self) -> KernelCaller:
        """What launches; a kernel that is never launched does without."""
        caller = KernelCaller(self.ndim, self._parameters, self._launch_slowly)
        caller.renew(self._specializations.recent)
        return caller

    @once
    def _call(self) -> Callable[..., Completion[None]]:
        """What launches, given a configuration and arguments."""
        return self._caller.call

    @once
    def _line_call(self) -> Callable[..., Completion[None]] | None:
        """The same; None where there is more than one index."""
        return self._call if self.ndim == 1 else None

    def _launch_slowly(self, config: LineConfig | LaunchConfig, *args: Any, **named: Any) -> Completion[None]:
        """Launch with every check, and remember the types."""
        site = callsites.here()
        args = complete(self.name, self._parameters, args, named)
        size, shape, stream = parse_config(self.name, 1, config) if self.ndim == 1 else cast("LaunchConfig", config)
        if stream is None:
            stream = current_stream()
        specialization = self._specializations.of(args, stream.device)
        check_bounds(self.name, self._names, specialization.bounds, shape, args)
        block = pack(self.name, self._names, specialization.signature, shape, args)
        if specialization.loading.ready:
            self._specializations.remember(specialization, self._renew)
            self._caller.quicken()
        return submit(specialization, stream, size, block, args, site)

    def _forget(self) -> None:
        """Start afresh in a forked child."""
        self._specializations.forget()
        self._renew()

    def _renew(self) -> None:
        caller = self.__dict__.get("_caller")
        if caller is not None:
            caller.renew(self._specializations.recent)


as_method(Kernel, "__getitem__", "choose_launch")


# Calling a ``partial`` costs less than calling an object with a ``__call__`` in Python, by about a tenth of a launch.
class BoundLaunch(functools.partial[Completion[None]]):
    """A kernel bound to its arguments, a shape and a stream by :meth:`Kernel.bind`; ``bound()`` launches it.

    It may be called by any thread, any number of times, while earlier launches of it are pending. A call returns a
    :class:`Completion` as a plain launch does, raises what that raises where the stream is full or closed, and fails with the
    stream where that has failed. An error names the place of the call.

    Attributes:
        kernel: what is launched.
        shape: over how many indices, a tuple.
        stream: where.
        arguments: of the kernel; the arrays among them live as long as this does.

    Example:
        >>> import aiodev
        >>> @aiodev.kernel
        ... def increment(i, x):
        ...     x[i] += 1
        >>> x = aiodev.zeros(3, device="cpu")
        >>> step = increment.bind(3, x)
        >>> done = [step() for _ in range(10)]
        >>> x.numpy_blocking()
        array([10., 10., 10.])
    """

    kernel: Kernel
    shape: tuple[int, ...]
    stream: Stream
    arguments: tuple[Any, ...]

    def __new__(
        cls,
        kernel: Kernel,
        specialization: Specialization,
        stream: Stream,
        shape: tuple[int, ...],
        arguments: tuple[Any, ...],
        block: bytes,
        slow: Callable[[int], Completion[None]],
    ) -> BoundLaunch:
        pattern, loading = specialization.signature.pattern, specialization.loading
        kinds = "".join(kind for kind in pattern if kind in ARRAYS)
        buffers = [a._buffer for a, kind in zip(arguments, pattern, strict=True) if kind in ARRAYS]
        own = BoundCall(stream, loading.entry, math.prod(shape), block, buffers, kinds)
        bound: weakref.ref[BoundLaunch]  # which is not to keep itself alive

        def launch_slowly() -> Completion[None]:
            made = bound()
            if loading.ready and made is not None and len(buffers) <= MOST_PARAMETERS:
                launch = native_function("launch_bound", own)
                if launch is not None:
                    become(made, launch)
            return slow(callsites.here())

        made = super().__new__(cls, launch_slowly)
        bound = weakref.ref(made)
        made.kernel, made.shape, made.stream, made.arguments = kernel, shape, stream, arguments
        return made

    def __repr__(self) -> str:
        lengths = ", ".join(map(str, self.shape))
        return f"<aiodev.BoundLaunch {self.kernel.name}[{lengths}] on {self.stream!r}>"

    def __reduce__(self) -> Any:
        raise TypeError("a bound launch belongs to its process: it holds device memory and a stream")


def _forget_after_fork() -> None:
    service.forget_after_fork()
    for known in list(_kernels):
        known._forget()


in_child(_forget_after_fork)


@overload
def kernel(function: Callable[..., None], /) -> Kernel: ...


@overload
def kernel(
    *,
    ndim: int = 1,
    boundscheck: bool = False,
    fastmath: bool | Collection[str] = False,
    uniform: bool | Collection[str] | None = None,
    reads: Collection[str] = (),
) -> Callable[[Callable[..., None]], Kernel]: ...


def kernel(
    function: Callable[..., None] | None = None,
    /,
    *,
    ndim: int = 1,
    boundscheck: bool = False,
    fastmath: bool | Collection[str] = False,
    uniform: bool | Collection[str] | None = None,
    reads: Collection[str] = (),
) -> Kernel | Callable[[Callable[..., None]], Kernel]:
    """Decorator: make a :class:`Kernel` of a function whose first ``ndim`` parameters are indices.

    The body is Python that numba compiles. It may call plain functions, which are compiled with it, and what
    :mod:`aiodev.lang` has.

    Args:
        ndim: 1, 2 or 3.
        boundscheck: raise IndexError for an index that is out of bounds; without it, that is undefined, but for launches that
            are longer than an array that the body surely indexes by its own index: those are refused. Always on in debug mode.
        fastmath: let the compiler reorder and contract floating-point arithmetic, and assume that nothing is NaN or infinite;
            or a set of LLVM's flags, for a part of that: ``{"contract", "reassoc"}`` lets a sum be vectorised and keeps NaN.
            The flags are ``afn``, ``arcp``, ``contract``, ``ninf``, ``nnan``, ``nsz`` and ``reassoc``.
        uniform: every index takes about as long as any other, and waits for nothing. By default that is taken to be so of a
            body without loops that calls none. On the CPU, a thread that waits for such a kernel computes a part of it
            meanwhile, an event loop's too for as long as the loop has nothing else to do. It does as well where the bounds
            of all loops are made of scalars and lengths, once a launch with the same has been timed; and a thread that is
            blocked does with any that was short so far; unless this is False.
            Where that is not seen, such as of a body that calls native code, give the names of the parameters whose numbers
            or lengths say how long an index takes.
        reads: names of arrays that the body only reads, where that is not seen. It is seen of what the body reads by itself,
            by slices, and by plain functions that it calls. What it gives to anything else, or uses in a function that is
            defined inside of it, counts as written: when the kernel fails, or does not run since something before it
            failed, its contents are not usable any more. At a prompt that keeps no source nothing is seen.

    Raises:
        TypeError: ``reads`` or ``uniform`` has a name that is no parameter; when it is launched, ``reads`` has one that the
            body writes.

    Example:
        >>> import aiodev
        >>> @aiodev.kernel(ndim=2)
        ... def transpose(i, j, x, out):
        ...     out[j, i] = x[i, j]
        >>> transpose.ndim
        2
    """
    if type(ndim) is not int or ndim not in (1, 2, 3):
        raise ValueError(f"ndim={ndim!r}: a kernel has 1, 2 or 3 dimensions")
    if not isinstance(boundscheck, bool):
        raise TypeError(f"boundscheck={boundscheck!r}: expected True or False")
    if not isinstance(uniform, bool | list | tuple | Set | None):
        raise TypeError(f"uniform={uniform!r}: expected True, False, None or names of parameters")
    options = parse_options(boundscheck, fastmath)

    def decorate(function: Callable[..., None]) -> Kernel:
        return Kernel(function, ndim, options, uniform, reads)

    return decorate if function is None else decorate(function)
