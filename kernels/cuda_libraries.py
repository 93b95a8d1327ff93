"""NVIDIA's libraries on CUDA devices: where their files are, and how what is new to them is prepared off the loop.

A library is found without loading it: among those that the process has loaded, in NVIDIA's wheels, and where toolkits are
installed. It is loaded, and asked what takes time (which memory a factorisation needs, the plan of a transform), by a function
in stream order, in a thread: the stream waits for that, the loop does not. What was asked once is known from then on, and a
call like that one is a plain submission, :meth:`aiodev.Stream.call_native`.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Generic, TypeVar

import aiodev

__all__ = ["PerDevice", "address_of", "find_file", "library_of", "submit"]

T = TypeVar("T")

#: In the toolkit's folder, and the system's own ones.
_IN_TOOLKITS = ("lib64", "lib", "targets/x86_64-linux/lib", "targets/sbsa-linux/lib")
_IN_SYSTEM = ("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib")


def find_file(names: tuple[str, ...], wheels: tuple[str, ...]) -> str | None:
    """The file of a library; None where there is none.

    Args:
        names: of its versions, the newest first.
        wheels: folders of NVIDIA's wheels, within those of ``sys.path``.
    """
    return next((str(path) for path in _places(names, wheels) if path.is_file()), None)


def library_of(call: aiodev.Call, on_host: Any, on_cuda: Any, name: str, work: str) -> Any:
    """The module that submits to the call's device what a library does: one of two with the same functions.

    Args:
        on_host: for devices that run code of the host.
        on_cuda: for CUDA devices; its ``find_library`` says whether NVIDIA's library is installed.
        name: of that library.
        work: what it does, as a verb.

    Raises:
        NotImplementedError: there is none.
    """
    capabilities = aiodev.capabilities(call.device)
    if capabilities.host_code:
        return on_host
    if not capabilities.cuda_interfaces:
        raise NotImplementedError(f"{call.name}: nothing {work} on {call.device}; x.to('cpu') {work} there")
    if on_cuda.find_library() is None:
        raise NotImplementedError(
            f"{call.name}: on {call.device} {name} {work}, which is not installed: pip install 'aiodev[cuda12]', or "
            f"'aiodev[cuda13]' for a driver of CUDA 13; x.to('cpu') {work} there"
        )
    return on_cuda


def _places(names: tuple[str, ...], wheels: tuple[str, ...]) -> Iterator[Path]:
    try:
        lines = Path("/proc/self/maps").read_text().splitlines()
    except OSError:
        lines = []
    loaded = {"/" + line.partition("/")[2] for line in lines if any(f"/{name}" in line for name in names)}
    yield from (Path(path) for path in sorted(loaded) if Path(path).name.startswith(names))
    toolkits = [os.environ[name] for name in ("CUDA_HOME", "CUDA_PATH") if name in os.environ]
    folders = [Path(folder) for folder in os.environ.get("LD_LIBRARY_PATH", "").split(":") if folder]
    folders += [Path(entry, place) for place in wheels for entry in sys.path if entry]
    folders += [Path(toolkit, place) for toolkit in (*toolkits, "/usr/local/cuda") for place in _IN_TOOLKITS]
    folders += [Path(folder) for folder in _IN_SYSTEM]
    yield from (folder / name for name in names for folder in folders)


def address_of(library: ctypes.CDLL, name: str) -> int:
    """Address of a library's function.

    Raises:
        AttributeError: it has none of that name.
    """
    return ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0


class PerDevice(Generic[T]):
    """What a library has for each device, made when it is first asked for; a forked child, which has no device, forgets it."""

    def __init__(self, make: Callable[[aiodev.Device, str], T]) -> None:
        self._make = make
        self._forget()
        aiodev.in_child(self._forget)

    def _forget(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[aiodev.Device, T] = {}

    def of(self, device: aiodev.Device, library: str) -> T:
        """That of a device, whose library is in a file."""
        known = self._known.get(device)
        if known is None:
            with self._lock:
                if device not in self._known:
                    self._known[device] = self._make(device, library)
                known = self._known[device]
        return known


def submit(
    call: aiodev.Call, is_known: bool, work: Callable[[aiodev.Stream], None], prepare: Callable[[], None],
    arrays: Iterable[aiodev.Array], reads: Iterable[aiodev.Array] = (),
) -> None:  # fmt: skip
    """Submit work of a library's, which writes ``arrays``, or some of them, and only ``reads`` others, to the call's stream.

    Where it is not known yet, a function in stream order prepares it first, and submits it to a stream of its own.

    Raises:
        CaptureError: it is not known, and the stream is being captured.
    """
    stream = call.stream
    if is_known:
        work(stream)
    else:
        call.refuse_in_capture(f"{call.name} of such arrays is new to its library, which prepares it: call it once before")
        stream.call(_prepare_and_run, stream.device, prepare, work, (*arrays, *reads))
    for array in arrays:
        array.record_stream(stream)
    for array in reads:
        array.record_stream(stream, writes=False)


def _prepare_and_run(
    device: aiodev.Device, prepare: Callable[[], None], work: Callable[[aiodev.Stream], None], arrays: tuple[aiodev.Array, ...]
) -> None:
    """In a thread, in stream order; the arrays live until it returns."""
    prepare()
    own = aiodev.Stream(device)
    work(own)
    own.synchronize_blocking()
