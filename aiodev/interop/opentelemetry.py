"""Metrics for OpenTelemetry, through its API (``pip install 'aiodev[opentelemetry]'``)."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from opentelemetry import metrics as api

from aiodev import profiler

__all__ = ["instrument"]

_UNITS = {"bytes": "By", "seconds": "s", "": "1"}


def instrument(provider: api.MeterProvider | None = None) -> None:
    """Have a meter provider observe what :func:`aiodev.profiler.metrics` has, whenever it collects.

    The instruments are named like ``aiodev.operations_submitted``. Call it once a process.

    Args:
        provider: the global one by default.
    """
    meter = api.get_meter("aiodev", "", provider)
    for metric in profiler.metrics():
        create = meter.create_observable_counter if metric.kind == "counter" else meter.create_observable_gauge
        name = metric.name.replace("_", ".", 1)
        create(name, [_observer(metric.name)], unit=_UNITS[metric.unit], description=metric.description)


def _observer(name: str) -> Callable[[api.CallbackOptions], Iterator[api.Observation]]:
    def observe(options: api.CallbackOptions) -> Iterator[api.Observation]:
        for metric in profiler.metrics():
            if metric.name == name:
                for sample in metric.samples:
                    yield api.Observation(sample.value, dict(sample.labels))

    return observe
