"""Loading graphs from files: kernels are found by name, memory is made anew, and addresses are put where they belong."""

from __future__ import annotations

import importlib
import itertools
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from aiodev._array.array import Array, make_array
from aiodev._array.creation import asarray
from aiodev._array.dtypes import parse_dtype
from aiodev._array.overlap import may_overlap, overlap
from aiodev._core import callsites
from aiodev._core.backend.device import Device
from aiodev._core.backend.interface import KernelSpec
from aiodev._core.backend.registry import registry
from aiodev._core.cache_directory import cache
from aiodev._core.errors import GraphFileError
from aiodev._core.streams.completion import Completion
from aiodev._core.streams.stream import Stream
from aiodev._generator.defaults import default_generator
from aiodev._generator.recording import Recording as Draws
from aiodev._graph.memory import Memory
from aiodev._graph.recorder import Branch, Node, Round
from aiodev._graph.schedule import Run, Step, WaitStep
from aiodev._graph.serialize import TABLES, build, form_of_array, version
from aiodev._kernel.compile.keys import cache_key
from aiodev._kernel.compile.service import PendingKernel, service
from aiodev._kernel.compile.snapshot import Snapshot, Uncapturable, capture
from aiodev._kernel.kernel import Kernel

if TYPE_CHECKING:
    from aiodev._core.timeline.recording import Effect
    from aiodev._generator.generator import Generator
    from aiodev._memory.buffer import Buffer

__all__ = ["Loaded", "check_document", "find_kernels"]

_address = struct.Struct("<q")


class Loaded:
    """What a file holds, made on a device; as a recorder to the graph that takes it.

    Attributes:
        steps: the schedule.
        nodes: all nodes, in the order of the steps.
        call_sites: of each node.
        inputs: what the file has of each.
        numbers: inputs that are numbers, with what they are.
        places: of each input, where its address is.
        arrays: the inputs that are arrays.
    """

    def __init__(
        self, path: str, document: Mapping[str, Any], constants: bytes, device: Device, arrays: Mapping[str, Array],
        kernels: Sequence[PendingKernel],
    ) -> None:  # fmt: skip
        self._path, self._document, self._device = path, document, device
        self.arrays, self._kernels = dict(arrays), kernels
        self.inputs: Mapping[str, Any] = document["inputs"]
        self.memory = Memory(device, None)
        self.held: dict[Buffer, bool] = {}
        self.followed: set[Buffer] = set()
        self.kept: list[object] = []
        self.draws: dict[Generator, Draws] = {}
        self.awaited: list[Completion[Any]] = []
        self.effects: list[Effect] = []
        self.stream_ids: list[int] = document["streams"]
        self.steps: list[Step] = []
        self.nodes: list[Node] = []
        self.call_sites: list[int] = []
        self.numbers: dict[str, tuple[Array, np.ndarray[Any, Any]]] = {}
        self.places: dict[str, list[tuple[Run, int, int, int]]] = {name: [] for name in arrays}
        self._make_memory(constants)
        for step in document["steps"]:
            self.steps.append(self._wait(step) if "nodes" not in step else self._run(step))
        for name, form in document["inputs"].items():
            if form["number"] is not None:
                place, content = form["number"]
                dtype = parse_dtype(form["dtype"])
                array = self._array_at(place, form)
                self.numbers[name] = array, np.frombuffer(bytes.fromhex(content), dtype).reshape(())
        for first, last, count in document["draws"]:
            words = {"shape": [2], "strides": [8], "dtype": "uint64"}
            draws = Draws(default_generator(device), self._array_at(first, words))
            draws.last = draws.words if last == first else self._array_at(last, words)
            draws.count = count
            self.draws[draws.generator] = draws

    def _make_memory(self, constants: bytes) -> None:
        """Memory for what the capture has made, for constants, and of tables."""
        stream, at = Stream(self._device), 0
        self._bases: dict[str, list[Array | None]] = {"pool": [], "constant": [], "table": [], "nothing": [None]}
        for nbytes in self._document["pool"]:
            buffer = self.memory.allocate(nbytes, stream.timeline)
            array = make_array(buffer, buffer.address, (nbytes,), np.dtype(np.uint8), None, True)
            self._bases["pool"].append(array)
            self.kept.append(array)
        for skew, nbytes in self._document["constants"]:
            content = np.zeros(skew + nbytes, np.uint8)
            content[skew:] = np.frombuffer(constants, np.uint8, nbytes, at)
            at += nbytes
            with stream:
                array = asarray(content, device=self._device)
            self._bases["constant"].append(array[skew:])
            self.held[array._buffer] = True
            self.kept.append(array)
        for name in self._document["tables"]:
            if name not in TABLES:
                raise GraphFileError(self._path, f"it uses the table of {name}, which this version of aiodev does not have")
            try:
                table, done = importlib.import_module(name).process_table(self._device)
            except NotImplementedError as error:
                raise GraphFileError(self._path, str(error)) from error
            self._bases["table"].append(table)
            self.held[table._buffer] = False
            self.awaited += [] if done is None else [done]
        if at:
            self.awaited.append(stream.call(int))  # replays come after the copies

    def _wait(self, step: Mapping[str, Any]) -> WaitStep:
        return WaitStep(step["lane"], step["other"], step["after"])

    def _run(self, step: Mapping[str, Any]) -> Run:
        run = Run(step["lane"], [], len(self.nodes))
        for k, one in enumerate(step["nodes"]):
            node = self._node(step["lane"], one)
            for at, kind, which, distance in one["places"]:
                if kind == "input":
                    self.places[which].append((run, k, at, distance))
                word = _address.pack(self._address_of(kind, which, distance))
                node.block = node.block[:at] + word + node.block[at + 8 :]
            run.nodes.append(node)
        for node, one in zip(run.nodes, step["nodes"], strict=True):
            if isinstance(node, Branch):
                node.target, node.distance = run.nodes[one["target"]], one["distance"]
        self.nodes += run.nodes
        return run

    def _node(self, lane: int, one: Mapping[str, Any]) -> Node:
        block, site = bytes.fromhex(one["block"]), callsites.enter_node(one["site"], len(self.call_sites))
        self.call_sites.append(site)
        node: Node
        if one["kind"] == "branch":
            node = Branch(lane, one["label"], block, site)
        elif one["kind"] == "signal":
            node = Round(lane, self._array_at(one["at"], one["rows"]), site)
        else:
            kernel = self._kernels[one["kernel"]] if "kernel" in one else None
            entry = 0 if kernel is None else kernel.entry
            node = Node(lane, 0, one["kind"], entry, one["size"], block, site, kernel)
        node.is_inside = one["inside"]
        return node

    def _base(self, kind: str, which: Any) -> Array | None:
        return self.arrays[which] if kind == "input" else self._bases[kind][which]

    def _address_of(self, kind: str, which: Any, distance: int) -> int:
        base = self._base(kind, which)
        return 0 if base is None else base._address + distance

    def _array_at(self, place: Sequence[Any], form: Mapping[str, Any]) -> Array:
        base = self._base(place[0], place[1])
        if base is None:
            raise GraphFileError(self._path, "it names memory that it does not have; save the graph anew")
        strides = tuple(form["strides"])
        shape, dtype = tuple(form["shape"]), parse_dtype(form["dtype"])
        return make_array(base._buffer, base._address + place[2], shape, dtype, strides, True)


def check_document(path: str, document: Mapping[str, Any], device: Device, arrays: Mapping[str, Array]) -> None:
    """Raise for what does not fit this process, this device or these arrays."""
    if document["aiodev"] != version() or document["build"] != build():
        other = f"; here is {version()}" if document["aiodev"] != version() else " from other sources, or with another compiler"
        reason = f"it was saved by aiodev {document['aiodev']}{other}"
        raise GraphFileError(path, f"{reason}: save the graph anew")
    if document["device"] != device.type:
        raise GraphFileError(path, f"it is a graph for {document['device']} devices, and {device} is none; capture one there")
    wanted = {name: form for name, form in document["inputs"].items() if form["number"] is None}
    if wanted.keys() != arrays.keys():
        names = ", ".join(wanted) or "none"
        raise TypeError(f"Graph.load: expected the arrays {names}, got {', '.join(arrays) or 'none'}")
    for name, form in wanted.items():
        array = arrays[name]
        if array.device is not device:
            raise ValueError(f"Graph.load: {name}: expected an array on {device}, got one on {array.device}")
        array_form = form_of_array(array)
        if any(array_form[key] != form[key] for key in array_form):
            was, own = (_shown(one) for one in (form, array_form))
            raise ValueError(f"Graph.load: {name}: expected {was}, got {own}; a graph is captured for one of them")
        if form["written"] and not array.writable:
            raise ValueError(f"Graph.load: {name}: the graph writes to it, and this one is read-only")
    for one, other in itertools.combinations(wanted, 2):
        x, y = arrays[one], arrays[other]
        if (wanted[one]["written"] or wanted[other]["written"]) and may_overlap(x, y) and overlap(x, y):
            raise ValueError(f"Graph.load: {other}: it shares memory with {one!r}, and one of them is written to")


def _shown(form: Mapping[str, Any]) -> str:
    return f"shape {tuple(form['shape'])}, strides {tuple(form['strides'])}, dtype {form['dtype']}"


def find_kernels(path: str, document: Mapping[str, Any], device: Device) -> list[PendingKernel]:
    """The kernels of a graph, by name; those that have none, from the cache of compiled code. Blocks.

    Raises:
        GraphFileError: one is not there any more, or has another source, or its code is nowhere.
    """
    return [_find_kernel(path, one, device) for one in document["kernels"]]


def _find_kernel(path: str, one: Mapping[str, Any], device: Device) -> PendingKernel:
    handle, name = registry.handle(device.type), f"{one['module']}:{one['qualname']}"
    spec = KernelSpec(
        one["name"], _nowhere, one["ndim"], tuple(one["arguments"]), _tuples(one["options"]), one["key"], one["uniform"],
        None if one["paced_by"] is None else tuple(one["paced_by"]),
    )  # fmt: skip
    if "<" not in one["qualname"]:
        body, is_there = _look_up(one["module"], one["qualname"], device)
        if body is not None:
            snapshot, known = capture(body), spec._replace(function=body)
            if _key_of(known._replace(key=""), snapshot) == spec.key:
                return service.load_once(handle, known, snapshot)
            if is_there:
                raise GraphFileError(path, f"kernel {name} is not what it was when the graph was saved; capture the graph anew")
    loading = service.find_cached(handle, spec)
    if loading is None:
        where = f"the cache ({cache.directory() or 'which is off'})"
        reason = f"kernel {name} is not there under its name, and {where} does not have its code"
        raise GraphFileError(path, f"{reason}; call what was captured once, or capture the graph anew")
    return loading


def _key_of(spec: KernelSpec, snapshot: Snapshot) -> str:
    try:
        return cache_key(spec, snapshot)
    except Uncapturable:  # it is a function of another kind that has the name
        return ""


def _look_up(module: str, qualname: str, device: Device) -> tuple[Callable[..., Any] | None, bool]:
    """The body of a kernel by its name, or None; and whether the name is a kernel's, so that nothing else is looked for."""
    try:
        definition: Any = importlib.import_module(module)
        for part in qualname.split("."):
            definition = getattr(definition, part)
    except (ImportError, AttributeError):
        return None, False
    if isinstance(definition, Kernel):
        return definition.implementations.get(device.type, definition.py_func), True
    return (definition, False) if getattr(definition, "__code__", None) is not None else (None, False)


def _tuples(value: Any) -> Any:
    return tuple(_tuples(one) for one in value) if isinstance(value, list) else value


def _nowhere(*args: Any) -> None:
    """Stand for a body that is not there: its code came from the cache."""
    raise RuntimeError("the body of this kernel is not in this process")
