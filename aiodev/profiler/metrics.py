"""Metrics: what a monitoring system asks a process for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from aiodev._core.backend.device import Device
from aiodev._core.timeline.timeline import living
from aiodev._core.timeline.vector_clock import totals
from aiodev._kernel.compile.service import totals as kernel_totals
from aiodev._memory.allocators import pools
from aiodev._memory.stats import Totals
from aiodev.profiler.lag import recent_lags

__all__ = ["Metric", "Sample", "counters", "metrics"]

GAUGE: Final = "gauge"
COUNTER: Final = "counter"


class Sample(NamedTuple):
    """One value of a metric.

    Example:
        >>> from aiodev.profiler import Sample
        >>> dict(Sample((("device", "cpu:0"),), 3).labels)
        {'device': 'cpu:0'}
    """

    labels: tuple[tuple[str, str], ...]  #: names and values
    value: float


class Metric(NamedTuple):
    """A metric, with a sample for each device, or one for the process.

    Example:
        >>> from aiodev.profiler import Metric, Sample
        >>> Metric("aiodev_streams", "gauge", "Streams that are alive.", "", (Sample((("device", "cpu:0"),), 3),)).kind
        'gauge'
    """

    name: str  #: as Prometheus has it, but without ``_total``
    kind: str  #: ``counter`` or ``gauge``; a counter never falls while the process lives
    description: str
    unit: str  #: ``bytes``, ``seconds``, or empty for numbers of things
    samples: tuple[Sample, ...]


def counters() -> dict[str, int]:
    """Totals of this process so far.

    ``events_recorded``: calls of ``record``. ``waits_enqueued``: waits of a stream for another that the device had to
    be given. ``waits_elided``: those that were ordered already, so that nothing was enqueued. ``kernels_compiled``:
    kernels, each for one combination of types, that no process had compiled before. ``kernels_loaded``: those that were
    found in the disk cache. Subtract two readings to see what a piece of a program does.

    Example:
        >>> from aiodev import profiler
        >>> stream = aiodev.Stream("cpu")
        >>> before = profiler.counters()["waits_elided"]
        >>> stream.wait_stream(stream)  # a stream follows itself
        >>> profiler.counters()["waits_elided"] - before
        1
    """
    return {name: getattr(source, name) for source in (totals, kernel_totals) for name in sorted(source.__slots__)}


def metrics() -> list[Metric]:
    """What there is to monitor, as it is now: of each device operations, streams and memory; of the process its counters.

    The loop's lag of the last ten seconds has samples while :func:`loop_lag` or :func:`profile` measures it. Starts nothing and
    waits for nothing. Any thread may ask.

    Example:
        >>> from aiodev import profiler
        >>> stream = aiodev.Stream("cpu")
        >>> {metric.name: metric for metric in profiler.metrics()}["aiodev_streams"].samples[0].labels
        (('device', 'cpu:0'),)
    """
    memory = {device: pool.totals for device, pool in list(pools.items())}
    collected = [*_of_operations(living.totals()), *_of_memory(memory)]
    for name, value in counters().items():
        collected.append(Metric(f"aiodev_{name}", "counter", _COUNTERS[name], "", (Sample((), value),)))
    lags, quantiles = recent_lags(), (0.5, 0.99, 1.0)
    places = [min(len(lags) - 1, int(q * len(lags))) for q in quantiles]
    samples = tuple(Sample((("quantile", str(q)),), lags[at] / 1e9) for q, at in zip(quantiles, places, strict=True) if lags)
    description = "How late a timer of the event loop was, in the last ten seconds."
    collected.append(Metric("aiodev_loop_lag_seconds", "gauge", description, "seconds", samples))
    return collected


_COUNTERS = {
    "events_recorded": "Events recorded.",
    "waits_elided": "Waits between streams that were ordered already.",
    "waits_enqueued": "Waits between streams that a device was given.",
    "kernels_compiled": "Kernels compiled.",
    "kernels_loaded": "Kernels found in the disk cache.",
}


def _of_operations(found: Mapping[Device, tuple[int, int, int, int]]) -> list[Metric]:
    faults = "Failures, and withdrawals that came to their turn."
    rows = {device: (streams, given, done, given - done, failed) for device, (streams, given, done, failed) in found.items()}
    return [
        Metric(name, kind, description, "", _by_device({device: row[place] for device, row in rows.items()}))
        for place, (name, kind, description) in enumerate(
            (
                ("aiodev_streams", GAUGE, "Streams that are alive."),
                ("aiodev_operations_submitted", COUNTER, "Operations submitted."),
                ("aiodev_operations_completed", COUNTER, "Operations completed."),
                ("aiodev_operations_pending", GAUGE, "Operations not done."),
                ("aiodev_faults", COUNTER, faults),
            )
        )
    ]


def _of_memory(found: Mapping[Device, Totals]) -> list[Metric]:
    return [
        Metric(name, kind, description, unit, _by_device({device: getattr(each, own) for device, each in found.items()}))
        for name, kind, description, unit, own in (
            ("aiodev_memory_allocated_bytes", GAUGE, "Memory in use.", "bytes", "allocated"),
            ("aiodev_memory_reserved_bytes", GAUGE, "Memory that the allocator holds.", "bytes", "reserved"),
            ("aiodev_memory_peak_allocated_bytes", GAUGE, "The most memory that was in use.", "bytes", "peak_allocated"),
            ("aiodev_allocations", COUNTER, "Allocations.", "", "allocations"),
            ("aiodev_out_of_memory", COUNTER, "Requests that found no memory.", "", "out_of_memory"),
            ("aiodev_waits_for_memory", COUNTER, "Streams held until memory was free.", "", "waits"),
        )
    ]


def _by_device(found: Mapping[Device, float]) -> tuple[Sample, ...]:
    values = {str(device): value for device, value in found.items()}
    return tuple(Sample((("device", device),), values[device]) for device in sorted(values))
