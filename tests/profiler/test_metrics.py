"""aiodev.profiler.metrics, and what gives it to other libraries."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

import aiodev
from aiodev import profiler


def values(device: str) -> dict[str, float]:
    """The metrics of a device, by name."""
    name = str(aiodev.Device(device))
    labels = (("device", name),)
    return {metric.name: sample.value for metric in profiler.metrics() for sample in metric.samples if sample.labels == labels}


async def test_operations_are_counted(device) -> None:
    """Submitted, completed and pending operations of a device add up, streams that are gone included."""
    stream, x = aiodev.Stream(device), aiodev.empty(8, device=device)
    await stream.synchronize()
    before = values(device)
    for _ in range(3):
        stream.copy(x, np.ones(8))
    await stream.synchronize()
    after = values(device)
    assert after["aiodev_operations_submitted"] - before["aiodev_operations_submitted"] == 3
    assert after["aiodev_operations_completed"] - before["aiodev_operations_completed"] == 3
    assert after["aiodev_operations_pending"] == 0
    del stream, x
    await asyncio.sleep(0.05)
    assert values(device)["aiodev_operations_submitted"] >= after["aiodev_operations_submitted"]


async def test_failures_are_counted(device) -> None:
    """A fault is counted once, with all that did not run for it."""
    stream = aiodev.Stream(device)
    before = values(device).get("aiodev_faults", 0)
    done = stream.call(int, "x")
    stream.call(int)
    with pytest.raises(ValueError):
        await done
    assert values(device)["aiodev_faults"] - before == 1


async def test_memory_is_there(device) -> None:
    """Memory in use and allocations are those of ``aiodev.memory``."""
    before = values(device).get("aiodev_allocations", 0)
    array = aiodev.empty(100_000, dtype=np.uint8, device=device)
    after = values(device)
    assert after["aiodev_memory_allocated_bytes"] == aiodev.memory.memory_allocated(device)
    assert after["aiodev_allocations"] - before == 1
    del array


async def test_lag_while_it_is_measured() -> None:
    """The loop's lag has samples while somebody measures it."""

    def lags() -> dict[str, float]:
        (metric,) = (metric for metric in profiler.metrics() if metric.name == "aiodev_loop_lag_seconds")
        return {dict(sample.labels)["quantile"]: sample.value for sample in metric.samples}

    assert lags() == {}
    async with profiler.loop_lag():
        await asyncio.sleep(0.01)
        assert set(lags()) == {"0.5", "0.99", "1.0"}
    assert lags() == {}


def test_names_and_kinds() -> None:
    """Every metric has a description, and a name that Prometheus takes."""
    for metric in profiler.metrics():
        assert metric.name.startswith("aiodev_") and metric.name.replace("_", "").isalnum()
        assert metric.kind in ("counter", "gauge")
        assert not metric.name.endswith("_total")
        assert metric.description.endswith(".")
        assert not metric.unit or metric.name.endswith(metric.unit)


async def test_prometheus() -> None:
    """A registry that has the collector shows every metric, with its labels, whenever it is scraped."""
    client = pytest.importorskip("prometheus_client", reason="prometheus_client is not installed")
    from aiodev.interop.prometheus import Collector

    await aiodev.Stream("cpu").copy(aiodev.empty(8, device="cpu"), np.ones(8))
    registry = client.CollectorRegistry()
    registry.register(Collector())
    text = client.generate_latest(registry).decode()
    assert 'aiodev_operations_completed_total{device="cpu:0"}' in text
    for metric in profiler.metrics():
        assert f"# TYPE {metric.name}{'_total' if metric.kind == 'counter' else ''} {metric.kind}" in text


async def test_opentelemetry() -> None:
    """A meter provider that was instrumented collects every metric that has samples."""
    sdk = pytest.importorskip("opentelemetry.sdk.metrics", reason="opentelemetry-sdk is not installed")
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader

    from aiodev.interop.opentelemetry import instrument

    await aiodev.Stream("cpu").copy(aiodev.empty(8, device="cpu"), np.ones(8))
    reader = InMemoryMetricReader()
    provider = sdk.MeterProvider([reader])
    instrument(provider)
    found = {
        metric.name: metric
        for resource in reader.get_metrics_data().resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
    }
    assert {metric.name.replace("_", ".", 1) for metric in profiler.metrics() if metric.samples} <= set(found)
    points = found["aiodev.operations_completed"].data.data_points
    assert {"device": "cpu:0"} in [dict(point.attributes) for point in points]
    provider.shutdown()
