"""Object files of kernels, linked into this process by LLVM alone: neither numba nor what it imports is needed for that.

numba is imported where kernels are compiled, which is in other processes. Here it would cost every start half a second of CPU,
170,000 objects that each full collection walks with the GIL held, and some eighty megabytes.

A few kernels do need it. Code that makes Python objects, for the arguments of an exception, finds numba's *environment* of its
function by a pointer; code that allocates calls numba's allocator. So an object file says what it takes from outside
(:func:`outside`), and numba is imported for one that takes what only numba has.
"""

from __future__ import annotations

import ctypes
import functools
import struct
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from aiodev._backends.compile.disk_cache import pack, unpack
from aiodev._native.machine import llvm, make_machine, using_llvm
from aiodev._native.preload import quiet_import

__all__ = ["KernelObject", "link", "outside"]


class KernelObject(NamedTuple):
    """The object file of a kernel's entry.

    Attributes:
        symbol: the entry's.
        environments: for each environment that the code needs, the symbol of its pointer, and its constants.
        code: the file's content.
    """

    symbol: str
    environments: tuple[tuple[str, list[Any]], ...]
    code: bytes

    def to_parts(self) -> list[bytes]:
        """The parts that the disk cache keeps."""
        parts = [self.symbol.encode(), self.code]
        for symbol, constants in self.environments:
            parts += symbol.encode(), pack(constants)
        return parts

    @classmethod
    def from_parts(cls, parts: Sequence[bytes]) -> KernelObject:
        """The entry of what was kept.

        Raises:
            Exception: its constants were pickled by other versions than these.
        """
        symbol, code, *environments = parts
        pairs = zip(environments[::2], environments[1::2], strict=True)
        return cls(symbol.decode(), tuple((name.decode(), unpack(constants)) for name, constants in pairs), code)

    @property
    def needs_numba(self) -> bool:
        """Whether the code takes something from outside that numba alone can give."""
        names = outside(self.code)
        return bool(self.environments) or names is None or not all(map(_is_in_process, names))


def link(entry: KernelObject) -> int:
    """Link an object file into this process; returns the entry's address, which stays valid for ever. May import numba.

    Raises:
        ImportError: the code takes something from outside that nothing here has; LLVM would end the process.
    """
    numba: Any = _numba() if entry.needs_numba else None
    with using_llvm:
        if numba is not None:
            _check(outside(entry.code) or frozenset())
        _engine.add_object_file(llvm().object_file.ObjectFileRef.from_data(entry.code))
        _engine.finalize_object()
        for symbol, constants in entry.environments:
            pointer = ctypes.c_void_p.from_address(_engine.get_global_value_address(symbol))
            pointer.value = numba.environment(constants)
        address: int = _engine.get_function_address(entry.symbol)
    return address


@functools.cache
def _numba() -> Any:
    with quiet_import():
        from aiodev._backends.cpu.compile import runtime

        return runtime


# What an object file takes from outside

_ELF = b"\x7fELF\x02\x01"  # of 64 bits, little endian
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_SYMBOL_TABLE = 2
_TABLE = "_GLOBAL_OFFSET_TABLE_"  # which the linker makes


def outside(code: bytes) -> frozenset[str] | None:
    """The symbols that an object file does not define itself; None where its format is not ELF, and so not known here."""
    if not code.startswith(_ELF):
        return None
    (at,) = struct.unpack_from("<Q", code, 40)
    (count,) = struct.unpack_from("<H", code, 60)
    sections = [_SECTION.unpack_from(code, at + _SECTION.size * i) for i in range(count)]
    symbols = set()
    for _, kind, _, _, offset, size, strings, *_ in sections:
        if kind == _SYMBOL_TABLE:
            names = sections[strings][4]
            for name, _, _, section, _, _ in _SYMBOL.iter_unpack(code[offset : offset + size]):
                if name and not section:
                    symbols.add(code[names + name : code.index(b"\0", names + name)].decode())
    return frozenset(symbols)


@functools.cache
def _is_in_process(symbol: str) -> bool:
    """Whether C's libraries have a symbol. The interpreter has some that numba means otherwise (its objects themselves)."""
    return not symbol.lstrip("_").startswith("Py") and hasattr(ctypes.CDLL(None), symbol)


def _check(names: Collection[str]) -> None:
    address_of = llvm().address_of_symbol
    missing = sorted(name for name in names if not (_is_in_process(name) or address_of(name) or name == _TABLE))
    if missing:
        raise ImportError(f"its code takes {', '.join(missing)} from outside, which nothing here has")


def _make_engine() -> Any:
    """A linker like numba's own."""
    module = llvm().parse_assembly("")
    machine = make_machine()
    module.triple = machine.triple
    return llvm().create_mcjit_compiler(module, machine)


def _nothing() -> KernelObject:
    """A function of no use."""
    machine = make_machine()
    module = llvm().parse_assembly("define void @aiodev_nothing() { ret void }")
    module.triple = machine.triple
    return KernelObject("aiodev_nothing", (), machine.emit_object(module))


# Now, when the backend starts, and not when somebody waits for a kernel: what LLVM does once takes it two milliseconds, during
# which it keeps a core, perhaps the event loop's.
_engine = _make_engine()
link(_nothing())
