"""Counts of an allocator, by torch's names."""

from __future__ import annotations

import ctypes

__all__ = ["COUNTS", "Totals", "summarise"]

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


#: What is counted, in words of memory; native code reads and writes the first five.
COUNTS = (
    "allocated", "allocated_ever", "allocations", "frees", "peak_allocated", "collected", "device_allocations", "device_frees",
    "ordered", "out_of_memory", "passed_over", "peak_reserved", "peak_segments", "reserved", "reserved_ever", "retries",
    "segments", "segments_ever", "waits",
)  # fmt: skip


class Totals(ctypes.Structure):
    """The accounts of a device, its private pools included.

    They are exact under the GIL: each change is one statement that calls nothing of Python's.
    """

    __slots__ = ("address", "limit")
    _fields_ = [(name, ctypes.c_int64) for name in COUNTS]

    def __init__(self) -> None:
        super().__init__()
        self.address = ctypes.addressof(self)
        self.limit = None

    address: int  # of the first count
    limit: int | None  # bytes that may be reserved; None for any number
    allocated: int  # bytes in use
    allocated_ever: int
    peak_allocated: int
    allocations: int
    frees: int
    reserved: int  # bytes held from the backend
    reserved_ever: int
    peak_reserved: int
    segments: int
    segments_ever: int
    peak_segments: int
    device_allocations: int  # calls to the backend
    device_frees: int
    retries: int
    out_of_memory: int
    collected: int  # bytes given back at the threshold
    ordered: int  # blocks still in use elsewhere that served a stream ordered after that use
    passed_over: int  # requests for which there was a block, but none whose use was ordered before
    waits: int  # streams held until memory that others used was free

    def reserve(self, nbytes: int) -> None:
        """Count bytes that the backend gave."""
        self.device_allocations += 1
        self.reserved += nbytes
        self.reserved_ever += nbytes
        self.peak_reserved = max(self.peak_reserved, self.reserved)

    def unreserve(self, nbytes: int) -> None:
        """Count bytes that went back to the backend."""
        self.device_frees += 1
        self.reserved -= nbytes

    def add_segment(self) -> None:
        """Count a new segment."""
        self.segments += 1
        self.segments_ever += 1
        self.peak_segments = max(self.peak_segments, self.segments)

    def remove_segment(self) -> None:
        """Count a segment that was given back."""
        self.segments -= 1

    def reset_peaks(self) -> None:
        """Start the peaks from what is now."""
        self.peak_allocated = self.allocated
        self.peak_reserved = self.reserved
        self.peak_segments = self.segments

    def as_dict(self) -> dict[str, int]:
        """The counts by torch's names."""
        living = self.allocations - self.frees
        counts = _series("allocated_bytes", self.allocated, self.peak_allocated, self.allocated_ever)
        counts |= _series("reserved_bytes", self.reserved, self.peak_reserved, self.reserved_ever)
        counts |= _series("segment", self.segments, self.peak_segments, self.segments_ever)
        counts |= {
            "allocation.all.current": living,
            "allocation.all.allocated": self.allocations,
            "allocation.all.freed": self.frees,
            "num_alloc_retries": self.retries,
            "num_ooms": self.out_of_memory,
            "num_device_alloc": self.device_allocations,
            "num_device_free": self.device_frees,
            "num_ordered_reuses": self.ordered,
            "num_passed_over": self.passed_over,
            "num_waits_for_memory": self.waits,
            "gc_collected_bytes": self.collected,
        }
        return counts


def _series(name: str, current: int, peak: int, ever: int) -> dict[str, int]:
    return {
        f"{name}.all.current": current,
        f"{name}.all.peak": peak,
        f"{name}.all.allocated": ever,
        f"{name}.all.freed": ever - current,
    }


def summarise(device: object, totals: Totals) -> str:
    """The table of bytes and counts that ``memory_summary`` shows."""
    counts = totals.as_dict()
    lines = [f"memory of {device}", f"{'':18}{'now':>12}{'peak':>12}{'ever':>12}{'freed':>12}"]
    for title, name in (("allocated", "allocated_bytes"), ("reserved", "reserved_bytes")):
        cells = (counts[f"{name}.all.{field}"] for field in ("current", "peak", "allocated", "freed"))
        lines.append(f"{title:18}" + "".join(f"{_bytes(cell):>12}" for cell in cells))
    cells = (counts[f"segment.all.{field}"] for field in ("current", "peak", "allocated", "freed"))
    lines.append(f"{'segments':18}" + "".join(f"{cell:>12,}" for cell in cells))
    living, ever, freed = (counts[f"allocation.all.{field}"] for field in ("current", "allocated", "freed"))
    lines.append(f"{'allocations':18}{living:>12,}{'':>12}{ever:>12,}{freed:>12,}")
    lines.append(
        f"{totals.retries:,} retries, {totals.out_of_memory:,} out of memory, {totals.passed_over:,} requests passed "
        f"over a cached block that was still in use"
    )
    return "\n".join(lines)


def _bytes(count: int) -> str:
    value, unit = float(count), _UNITS[0]
    for unit in _UNITS:
        if abs(value) < 1024 or unit == _UNITS[-1]:
            break
        value /= 1024
    return f"{count} B" if unit == "B" else f"{value:.1f} {unit}"
