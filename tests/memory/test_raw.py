"""Memory by address, page-locked arrays, sites and pictures."""

from __future__ import annotations

import ctypes
import gc
import xml.etree.ElementTree
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import aiodev
from aiodev import memory
from aiodev._memory.pinned import PinnedCache
from aiodev.testing.latch import Latch
from aiodev.testing.simulated import SimulatedBackend

MIB = 1 << 20


@pytest.fixture(scope="module")
def sim() -> str:
    """The name of a simulated backend."""
    if "sim" not in aiodev.available_backends():
        aiodev.register_backend("sim", SimulatedBackend)
    aiodev.init_blocking("sim")
    return "sim"


def test_an_address_is_freed_once(sim: str) -> None:
    """Twice, inside, and foreign are errors that say so; the accounts follow."""
    before = memory.memory_allocated("cpu")
    address = memory.allocate(5000, "cpu")
    assert address % 256 == 0 and memory.memory_allocated("cpu") == before + 5120
    ctypes.memset(address, 1, 5000)
    with pytest.raises(ValueError, match="4 bytes inside of the allocation"):
        memory.free(address + 4)
    memory.free(address)
    assert memory.memory_allocated("cpu") == before
    for wrong in (address, 12345, np.zeros(3).ctypes.data):
        with pytest.raises(ValueError, match="freed twice, or not ours"):
            memory.free(wrong)
    with pytest.raises(ValueError, match="nbytes: .* got int -1"):
        memory.allocate(-1, "cpu")
    with pytest.raises(ValueError, match="the stream is of cpu:0"):
        memory.allocate(1, sim, aiodev.Stream("cpu"))


def test_an_address_is_freed_in_stream_order() -> None:
    """What its stream was given before may still use it: another stream gets other memory."""
    stream, other = aiodev.Stream("cpu"), aiodev.Stream("cpu")
    address = memory.allocate(3 * MIB, stream=stream)
    with Latch(stream):
        memory.free(address)
        elsewhere = memory.allocate(3 * MIB, stream=other)
        again = memory.allocate(3 * MIB, stream=stream)
        assert elsewhere != address == again
        memory.free(elsewhere)
        memory.free(again)


def test_page_locked_arrays_are_cached(device: str = "cpu") -> None:
    """By powers of two; a dropped one serves the next of its size; views keep the memory."""
    memory.empty_cache(device)
    held = memory.host_memory_stats(device)["reserved_bytes.current"]
    x = memory.empty_pinned((300, 7), "float32", device)
    assert (x.shape, x.dtype, x.flags.c_contiguous, x.flags.writeable) == ((300, 7), np.float32, True, True)
    address = x.ctypes.data
    assert address % 256 == 0
    view = x[10:]
    del x
    assert memory.host_memory_stats(device)["allocated_bytes.current"] >= 16384
    y = memory.empty_pinned(300 * 7, "float32", device)
    assert y.ctypes.data != address
    del view
    z = memory.pin(np.arange(2100, dtype=np.float32), device)
    assert z.ctypes.data == address and z[-1] == 2099
    assert memory.host_memory_stats(device)["reserved_bytes.current"] == held + 2 * 16384
    del y, z
    memory.empty_cache(device)
    assert memory.host_memory_stats(device)["reserved_bytes.current"] == held
    assert memory.empty_pinned(0, device=device).shape == (0,)


def test_page_locked_memory_is_given_back_while_others_allocate() -> None:
    """A thread takes a block, and another one makes a bin for blocks of another size, while a third one empties the cache."""

    class Contested(list[tuple[int, int]]):
        def pop(self, *_: Any) -> tuple[int, int]:
            block = super().pop()
            if not self:
                raise IndexError  # somebody else has it
            cache.bins.setdefault(1 << 20, [])
            return block

    returned: list[tuple[int, int]] = []
    backend = SimpleNamespace(deallocate_pinned=lambda index, address: returned.append((index, address)))
    cache = PinnedCache(SimpleNamespace(backend=backend))  # type: ignore[arg-type]
    cache.bins[4096] = Contested([(0, 1), (0, 2), (0, 3)])
    cache.reserved = 2 * 4096
    cache.empty()
    assert (returned, cache.reserved) == ([(0, 3), (0, 2)], 0)


async def test_a_page_locked_array_is_not_reused_under_a_copy() -> None:
    """A copy in flight holds it, dropped or not; so does what another library was given."""
    stream = aiodev.Stream("cpu")
    x = aiodev.empty(1000, "uint8", "cpu")
    for use in (lambda host: stream.copy(x, host), lambda host: memory.record_stream(host, stream)):
        host = memory.pin(np.full(1000, 7, np.uint8), "cpu")
        address = host.ctypes.data
        with Latch(stream):
            use(host)
            del host
            gc.collect()
            taken = memory.empty_pinned(1000, "uint8", "cpu")
            assert taken.ctypes.data != address
        await stream.synchronize()
        assert (await x.numpy() == 7).all()
        stream.timeline.release()
        del taken


def test_a_backend_without_page_locked_memory_says_so(sim: str) -> None:
    """It is asked for by name."""
    with pytest.raises(NotImplementedError, match="'sim' has no page-locked memory"):
        memory.empty_pinned(8, device=sim)


def test_sites_are_recorded_when_asked_for() -> None:
    """The line of the program that allocated, also through the library; nothing when it is off."""
    plain = aiodev.empty(1000, "uint8", "cpu")
    memory.record_memory_history(True, "cpu")
    try:
        recorded = aiodev.zeros(5000, "uint8", "cpu")
    finally:
        memory.record_memory_history(False, "cpu")
    later = aiodev.empty(9000, "uint8", "cpu")
    sites = {block["address"]: block["site"] for s in memory.memory_snapshot("cpu") for block in s["blocks"]}
    assert sites[plain._address] is None
    site = sites[recorded._address]
    assert site is not None and site.startswith(__file__)
    line = Path(__file__).read_text().splitlines()[int(site.rpartition(":")[2]) - 1]
    assert "aiodev.zeros(5000" in line
    assert later.nbytes == 9000


def test_a_snapshot_is_drawn_as_it_is() -> None:
    """One bar for each block, as wide as it is large; states by colour; the text tells the size."""
    stream = aiodev.Stream("cpu")
    with aiodev.stream(stream):
        kept, freed = aiodev.empty(3 * MIB, "u1"), aiodev.empty(5 * MIB, "u1")
        address = freed._address
        with Latch(stream):
            stream.copy(freed[:1], bytearray(1))
            del freed
            snapshot = memory.memory_snapshot("cpu")
    picture = memory.draw_snapshot(snapshot)
    root = xml.etree.ElementTree.fromstring(picture)
    bars: list[Any] = [e for e in root.iter("{http://www.w3.org/2000/svg}rect") if len(e)]
    titles = [bar[0].text for bar in bars]
    assert len(bars) == sum(len(segment["blocks"]) for segment in snapshot)
    kept_bar = next(bar for bar in bars if f"at {kept._address:#x}, in use" in bar[0].text)
    freed_bar = next(bar for bar in bars if f"at {address:#x}, freed, work not done" in bar[0].text)
    assert float(freed_bar.get("width")) == pytest.approx(5 / 3 * float(kept_bar.get("width")), rel=0.01)
    assert any(f"{3 * MIB:,} bytes" in title for title in titles)
    assert memory.draw_snapshot([]).startswith("<svg")
