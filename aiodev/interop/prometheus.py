"""Metrics for Prometheus, through ``prometheus_client`` (``pip install 'aiodev[prometheus]'``)."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector as _Collector

from aiodev import profiler

__all__ = ["Collector"]


class Collector(_Collector):
    """Gives a registry of ``prometheus_client`` what :func:`aiodev.profiler.metrics` has, when it is scraped.

    ``REGISTRY.register(Collector())`` is all there is to do, once a process. Counters get ``_total`` behind their names.
    """

    def collect(self) -> Iterator[Metric]:
        """The metrics as they are now."""
        families = {"counter": CounterMetricFamily, "gauge": GaugeMetricFamily}
        for metric in profiler.metrics():
            names = [name for name, _ in metric.samples[0].labels] if metric.samples else []
            family = families[metric.kind](metric.name, metric.description, labels=names)
            for sample in metric.samples:
                family.add_metric([value for _, value in sample.labels], sample.value)
            yield family
