"""Saving graphs: what replays need, as plain data that another process can find again.

Kernels are named: by module and qualified name, and by the digest of their source, types and options. Of the arguments of
nodes, addresses are told apart by what they point to, and written relative to that: memory that the capture has made (the
private pool), an array that is an input, a table of addresses that the library makes anew in each process. Anything else is a
constant, whose bytes are in the file.
"""

from __future__ import annotations

import bisect
import contextlib
import struct
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import numpy as np

from aiodev._array.array import Array
from aiodev._core import callsites
from aiodev._core.backend.device_info import capabilities
from aiodev._core.errors import GraphFileError
from aiodev._core.sources import compiled_by
from aiodev._core.streams.completion import Completion, Reached
from aiodev._core.streams.stream import Stream
from aiodev._graph.access import Access, accesses, span
from aiodev._graph.recorder import Branch, Node, Round
from aiodev._graph.schedule import CallStep, Run, WaitStep
from aiodev._kernel.compile.keys import SOURCES
from aiodev._kernel.compile.service import PendingKernel
from aiodev._kernel.dispatch.pending import KernelWait
from aiodev._memory.allocator import DeviceBuffer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from aiodev._core.backend.device import Device
    from aiodev._generator.recording import Recording as Draws
    from aiodev._graph.input import Input
    from aiodev._graph.memory import Memory
    from aiodev._graph.schedule import Step
    from aiodev._memory.buffer import Buffer

__all__ = ["Contents", "TABLES", "build", "describe", "form_of_array", "version"]

#: Modules with ``process_table``: a table of addresses of native functions, which kernels read.
TABLES = ("aiodev.kernels.linalg.openblas", "aiodev.kernels.fft.loops")
#: Constants begin at the same place of a cache line as they did.
LINE = 64
_address = struct.Struct("<q")


def version() -> str:
    """Of this package."""
    return str(sys.modules[__name__.partition(".")[0]].__version__)


def build() -> str:
    """What makes a kernel's key beside the kernel: this package's sources and version, and the versions of what compiles."""
    return compiled_by(*SOURCES)


def form_of_array(array: Array) -> dict[str, Any]:
    """Shape, strides and dtype as they are written."""
    return {"shape": list(array.shape), "strides": list(array.strides), "dtype": array.dtype.name}


class Contents(NamedTuple):
    """A graph, as far as it is saved.

    Attributes:
        device: where it runs.
        steps: its schedule.
        stream_ids: of the streams that were captured.
        inputs: by their names.
        words: what replays write, by address.
        draws: what it draws.
        memory: of what the capture has made.
        held: other memory.
    """

    device: Device
    steps: Sequence[Step]
    stream_ids: Sequence[int]
    inputs: Mapping[str, Input]
    words: Mapping[int, bytes]
    draws: Sequence[Draws]
    memory: Memory
    held: Mapping[Buffer, bool]


async def describe(graph: Contents, path: str) -> tuple[dict[str, Any], list[bytes]]:
    """The document of a graph, and its constants.

    Raises:
        GraphFileError: it has what cannot be saved.
    """
    return await _Writer(graph, path).write()


class _Writer:
    """Makes the document of one graph."""

    def __init__(self, graph: Contents, path: str) -> None:
        self._graph, self._path = graph, path
        self._runs = [step for step in graph.steps if isinstance(step, Run)]
        self._pool = graph.memory.spans
        self._pool_starts = [first for first, _ in self._pool]
        self._inputs: dict[tuple[int, int, int], tuple[str, int]] = {}  # by run, node and place: which, and how far behind it
        for name, one in graph.inputs.items():
            for run, k, at, distance in one.places:
                self._inputs[id(run), k, at] = name, distance
        self._kernels: dict[PendingKernel, int] = {}
        self._constants: list[tuple[int, int]] = []
        self._tables: list[tuple[int, int, str]] = []

    def _refuse(self, reason: str, node: Node | None = None) -> NoReturn:
        place = None if node is None else callsites.describe_site(node.site)
        raise GraphFileError(self._path, reason if place is None else f"{reason} (captured at {place})")

    async def write(self) -> tuple[dict[str, Any], list[bytes]]:
        """The document and the constants."""
        graph = self._graph
        for step in graph.steps:
            if isinstance(step, CallStep):
                place = callsites.describe_site(step.call.site)
                self._refuse(
                    f"the graph calls {step.call.name}, a function of the host (captured at {place}), which is not saved; "
                    "call it between two replays"
                )
        if len(graph.draws) > 1:
            self._refuse("the graph draws from several generators; let it draw from one")
        await Stream(graph.device).call(build)  # reads sources, the first time
        await self._finish_constants()
        self._find_tables()
        self._constants = self._find_constants()
        document = {
            "aiodev": version(),
            "build": build(),
            "device": graph.device.type,
            "streams": graph.stream_ids,
            "pool": [last - first for first, last in self._pool],
            "constants": [[first % LINE, last - first] for first, last in self._constants],
            "tables": [name for _, _, name in self._tables],
            "inputs": {name: self._input(name) for name in graph.inputs},
            "draws": [[*map(self._place, (one.words._address, one.last._address)), one.count] for one in graph.draws],
            "steps": [self._step(step) for step in graph.steps],
            "kernels": [self._kernel(kernel) for kernel in self._kernels],
        }
        return document, [await self._read(first, last) for first, last in self._constants]

    async def _finish_constants(self) -> None:
        """Wait for the kernels' code, and for what writes to memory that is saved."""
        for run in self._runs:
            for node in run.nodes:
                if node.kernel is not None:
                    await KernelWait(node.kernel)
        for buffer in self._graph.held:
            for timeline, value in buffer.pending():
                await Reached(timeline, value)

    def _find_tables(self) -> None:
        device = self._graph.device
        if not capabilities(device).host_code:
            return
        for name in TABLES:
            module = sys.modules.get(name)
            if module is not None:
                with contextlib.suppress(NotImplementedError):  # no such table here: no kernel reads one
                    table, _ = module.process_table(device)
                    self._tables.append((table._address, table._address + table.nbytes, name))

    # Memory

    def _accesses(self) -> Iterator[tuple[Run, int, Node, Access]]:
        for run in self._runs:
            for k, node in enumerate(run.nodes):
                for access in accesses(node):
                    yield run, k, node, access

    def _find_constants(self) -> list[tuple[int, int]]:
        """Where memory is that is neither the pool's, nor an input's, nor a table: ascending, and apart from each other."""
        spans: list[tuple[int, int]] = []
        held = [buffer for buffer in self._graph.held if isinstance(buffer, DeviceBuffer)]
        own = [(buffer.address, buffer.address + buffer.block.size) for buffer in held]
        for run, k, node, access in self._accesses():
            _, address, first, last, writes, *_ = access
            if (id(run), k, access.at) in self._inputs or self._in_pool(address) or first == last:
                continue
            if any(begin <= address < end for begin, end, _ in self._tables):
                continue
            if node.kind == "copy" and writes and not any(begin <= first and last <= end for begin, end in own):
                self._refuse("the graph copies to memory of the host, which is not saved; read the array after a replay", node)
            if node.kernel is not None and _calls_native(node.kernel.spec.function):
                name = node.kernel.spec.name
                for argument in node.kernel.spec.parse_arguments():
                    if argument.offset == access.at and argument.dtype == "u8":
                        self._refuse(f"kernel {name} calls native functions, whose addresses are of this process", node)
            spans.append((first, last))
        for name, one in self._graph.inputs.items():
            if not one.is_number:
                low, high = span(one.array)
                if any(first < high and low < last for first, last in spans):
                    self._refuse(f"input {name!r}: the graph uses its memory otherwise, too; name the array that has all of it")
        joined: list[tuple[int, int]] = []
        for first, last in sorted(spans):
            if joined and first <= joined[-1][1]:
                joined[-1] = joined[-1][0], max(joined[-1][1], last)
            else:
                joined.append((first, last))
        return joined

    def _in_pool(self, address: int) -> bool:
        place = bisect.bisect_right(self._pool_starts, address) - 1
        return place >= 0 and address < self._pool[place][1]

    def _place(self, address: int) -> list[Any]:
        """Where an address is, of memory that is not an input's."""
        place = bisect.bisect_right(self._pool_starts, address) - 1
        if place >= 0 and address < self._pool[place][1]:
            return ["pool", place, address - self._pool_starts[place]]
        for k, (first, last, _) in enumerate(self._tables):
            if first <= address < last:
                return ["table", k, address - first]
        for k, (first, last) in enumerate(self._constants):
            if first <= address < last:
                return ["constant", k, address - first]
        return ["nothing", 0, 0]  # of an array without elements

    async def _read(self, first: int, last: int) -> bytes:
        """Memory of the device, or of the host, when what writes to it is done."""
        stream, host = Stream(self._graph.device), np.empty(last - first, np.uint8)
        timeline = stream.timeline
        copied = timeline.queue, host.__array_interface__["data"][0], first, last - first
        value = timeline.submit_with((host, self._graph), host.nbytes, timeline.operations.copy, *copied)
        await Completion(timeline, value)
        return host.tobytes()

    # Parts of the document

    def _input(self, name: str) -> dict[str, Any]:
        one = self._graph.inputs[name]
        described = {**form_of_array(one.array), "number": None, "written": one.written}
        if one.is_number:
            words = self._graph.words
            first, nbytes = one.array._address, one.array.nbytes
            content = b"".join(words[at] for at in range(first, first + nbytes, 8))[:nbytes]
            described["number"] = [self._place(first), content.hex()]
        return described

    def _step(self, step: Any) -> dict[str, Any]:
        if isinstance(step, WaitStep):
            return {"lane": step.lane, "other": step.other, "after": step.step}
        numbers = {node: k for k, node in enumerate(step.nodes)}
        return {"lane": step.lane, "nodes": [self._node(step, k, node, numbers) for k, node in enumerate(step.nodes)]}

    def _node(self, run: Run, k: int, node: Node, numbers: dict[Node, int]) -> dict[str, Any]:
        if node.kind == "native":
            self._refuse("the graph calls native functions by their addresses, which are of this process", node)
        places = [[access.at, *self._address_place(run, k, access)] for access in accesses(node)]
        described = {
            "kind": node.kind, "size": node.size, "block": node.block.hex(), "places": places,
            "site": callsites.describe_site(node.site) or "", "inside": node.is_inside,
        }  # fmt: skip
        if node.kernel is not None:
            described["kernel"] = self._kernels.setdefault(node.kernel, len(self._kernels))
        if isinstance(node, Branch):
            described |= {"label": node.label, "target": numbers[node.target], "distance": node.distance}
        if isinstance(node, Round):
            described["rows"] = form_of_array(node.rows)
            described["at"] = self._array_place(node.rows)
        return described

    def _address_place(self, run: Run, k: int, access: Access) -> list[Any]:
        known = self._inputs.get((id(run), k, access.at))
        return ["input", *known] if known is not None else self._place(access.address)

    def _array_place(self, array: Array) -> list[Any]:
        """Where an array begins that is no argument of a node."""
        for name, one in self._graph.inputs.items():
            first, last = span(one.array)
            if not one.is_number and first <= array._address < last:
                return ["input", name, array._address - one.array._address]
        return self._place(array._address)

    def _kernel(self, kernel: PendingKernel) -> dict[str, Any]:
        spec = kernel.spec
        function: Callable[..., Any] = spec.function
        if not spec.key:
            self._refuse(f"kernel {spec.name} depends on a value that has no bytes of its own, and so has no digest")
        return {
            "name": spec.name, "module": function.__module__, "qualname": function.__qualname__, "ndim": spec.ndim,
            "arguments": list(spec.arguments), "options": _plain(spec.options), "key": spec.key, "uniform": spec.uniform,
            "paced_by": None if spec.paced_by is None else list(spec.paced_by),
        }  # fmt: skip


def _plain(value: Any) -> Any:
    return [_plain(one) for one in value] if isinstance(value, tuple) else value


def _calls_native(function: Any, seen: set[int] | None = None) -> bool:
    """Whether a body, or a function that it calls, calls native functions by their addresses."""
    seen = set() if seen is None else seen
    function = getattr(function, "__aiodev_body__", function)
    code = getattr(function, "__code__", None)
    if code is None or id(code) in seen:
        return False
    seen.add(id(code))
    if "call_native" in code.co_names:
        return True
    return any(_calls_native(function.__globals__.get(name), seen) for name in code.co_names)
