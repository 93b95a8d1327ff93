"""Metrics: what a monitoring system asks a process for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, NamedTuple

from aiodev._core.backend.device import Device
from aiodev._core.timeline.timeline import operation_totals
from aiodev._core.timeline.vector_clock import totals
from aiodev._kernel.compile.service import totals as kernel_totals
from aiodev._memory.allocators import pools
from aiodev._memory.stats import Totals
from aiodev.profiler.lag import recent_lags

__all__ = ["Metric", "Sample", "counters", "metrics"]

_NO_LABELS: Mapping[str, str] = {}


class Sample(NamedTuple):
    """One value of a metric.

    Example:
        >>> from aiodev.profiler import Sample
        >>> Sample({"device": "cpu:0"}, 3).value
        3
    """

    labels: Mapping[str, str]
    value: float


class Metric(NamedTuple):
    """A metric, with a sample for each device, or one for the process.

    Example:
        >>> from aiodev.profiler import Metric, Sample
        >>> Metric("aiodev_streams", "gauge", "Streams that are alive.", "", [Sample({"device": "cpu:0"}, 3)]).kind
        'gauge'
    """

    name: str  #: as Prometheus has it, but without ``_total``
    kind: Literal["counter", "gauge"]  #: a counter never falls while the process lives
    description: str
    unit: str  #: ``bytes``, ``seconds``, or empty for numbers of things
    samples: list[Sample]


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
        {'device': 'cpu:0'}
    """
    memory = {device: pool.totals for device, pool in list(pools.items())}
    found = [*_of_operations(operation_totals()), *_of_memory(memory)]
    for name, value in counters().items():
        found.append(Metric(f"aiodev_{name}", "counter", _COUNTERS[name], "", [Sample(_NO_LABELS, value)]))
    lags, quantiles = recent_lags(), (0.5, 0.99, 1.0)
    places = [min(len(lags) - 1, int(q * len(lags))) for q in quantiles]
    samples = [Sample({"quantile": str(q)}, lags[at] / 1e9) for q, at in zip(quantiles, places, strict=True) if lags]
    description = "How late a timer of the event loop was, in the last ten seconds."
    found.append(Metric("aiodev_loop_lag_seconds", "gauge", description, "seconds", samples))
    return found


_COUNTERS = {
    "events_recorded": "Events recorded.",
    "waits_elided": "Waits between streams that were ordered already.",
    "waits_enqueued": "Waits between streams that a device was given.",
    "kernels_compiled": "Kernels compiled.",
    "kernels_loaded": "Kernels found in the disk cache.",
}


def _of_operations(found: Mapping[Device, tuple[int, int, int, int]]) -> list[Metric]:
    rows = [({"device": str(device)}, values) for device, values in sorted(found.items(), key=lambda item: str(item[0]))]
    faults = "Failures, and withdrawals that came to their turn."
    return [
        Metric("aiodev_streams", "gauge", "Streams that are alive.", "", [Sample(d, v[0]) for d, v in rows]),
        Metric("aiodev_operations_submitted", "counter", "Operations submitted.", "", [Sample(d, v[1]) for d, v in rows]),
        Metric("aiodev_operations_completed", "counter", "Operations completed.", "", [Sample(d, v[2]) for d, v in rows]),
        Metric("aiodev_operations_pending", "gauge", "Operations not done.", "", [Sample(d, v[1] - v[2]) for d, v in rows]),
        Metric("aiodev_faults", "counter", faults, "", [Sample(d, v[3]) for d, v in rows]),
    ]


def _of_memory(found: Mapping[Device, Totals]) -> list[Metric]:
    rows = [({"device": str(device)}, each) for device, each in sorted(found.items(), key=lambda item: str(item[0]))]
    gauge: Final = "gauge"
    counter: Final = "counter"
    return [
        Metric(name, kind, description, unit, [Sample(device, getattr(each, attribute)) for device, each in rows])
        for name, kind, description, unit, attribute in (
            ("aiodev_memory_allocated_bytes", gauge, "Memory in use.", "bytes", "allocated"),
            ("aiodev_memory_reserved_bytes", gauge, "Memory that the allocator holds.", "bytes", "reserved"),
            ("aiodev_memory_peak_allocated_bytes", gauge, "The most memory that was in use.", "bytes", "peak_allocated"),
            ("aiodev_allocations", counter, "Allocations.", "", "allocations"),
            ("aiodev_out_of_memory", counter, "Requests that found no memory.", "", "out_of_memory"),
            ("aiodev_waits_for_memory", counter, "Streams held until memory was free.", "", "waits"),
        )
    ]
