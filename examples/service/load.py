"""``python examples/service/load.py``: three ways to wait for the device, under the same load, in one run.

For each, a service is started, and clients that ask for a digit, read the answer and ask again, for some seconds. The
clients' latencies and the service's own heartbeat are compared, in a table and a picture.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import numpy as np

WAYS = {"block": "blocking the loop", "thread": "asyncio.to_thread", "await": "aiodev"}


@dataclass
class Outcome:
    """What one way came to."""

    way: str
    seconds: float = 0.0
    wrong: int = 0  #: predictions that differ from scikit-learn's labels
    latencies: list[float] = field(default_factory=list)  #: seconds
    lag: dict[str, float] = field(default_factory=dict)  #: quantile → seconds late, of the service's 1 ms timer


@contextlib.asynccontextmanager
async def service(way: str) -> AsyncIterator[str]:
    """A running service; gives its address, and ends it gracefully."""
    program = Path(__file__).parent
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(program), "--wait", way, stdout=asyncio.subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        async with asyncio.timeout(120):
            yield (await process.stdout.readline()).decode().strip()
    finally:
        process.terminate()
        await asyncio.wait_for(process.wait(), 30)


async def drive(url: str, outcome: Outcome, clients: int, seconds: float, most: int) -> None:
    """Ask until the time is over, or ``most`` requests were sent."""
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    bodies = [{"pixels": image.tolist(), "timeout_ms": 10_000} for image in images]
    sent = 0

    async def ask(client: httpx.AsyncClient, until: float) -> None:
        nonlocal sent
        while time.perf_counter() < until and sent < most:
            number, sent = sent % len(bodies), sent + 1
            began = time.perf_counter()
            answer = (await client.post("/predict", json=bodies[number])).raise_for_status().json()
            outcome.latencies.append(time.perf_counter() - began)
            outcome.wrong += int(answer["digit"] != labels[number])

    limits = httpx.Limits(max_connections=clients)
    async with httpx.AsyncClient(base_url=url, limits=limits, timeout=30) as client:
        await ready(client)
        began = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for _ in range(clients):
                group.create_task(ask(client, began + seconds))
        outcome.seconds = time.perf_counter() - began
        for line in (await client.get("/metrics")).text.splitlines():
            if line.startswith("loop_lag_seconds"):
                name, value = line.split()
                outcome.lag[name.split('"')[1]] = float(value)


async def ready(client: httpx.AsyncClient) -> None:
    """Wait until the service answers; the first start fits the network."""
    while True:
        with contextlib.suppress(httpx.TransportError):
            if (await client.get("/health")).is_success:
                return
        await asyncio.sleep(0.05)


def print_table(outcomes: list[Outcome]) -> None:
    """Throughput, latency, and how late the service's timer was."""
    print(f"{'':20}{'requests/s':>12}{'p50':>10}{'p99':>10}{'lag p99':>10}{'worst':>10}{'wrong':>8}")
    for outcome in outcomes:
        p50, p99 = np.quantile(outcome.latencies, [0.5, 0.99]) * 1e3
        rate, share = len(outcome.latencies) / outcome.seconds, outcome.wrong / len(outcome.latencies)
        lag, worst = outcome.lag["0.99"] * 1e3, outcome.lag["1"] * 1e3
        print(f"{WAYS[outcome.way]:20}{rate:12.0f}{p50:7.1f} ms{p99:7.1f} ms{lag:7.1f} ms{worst:7.1f} ms{share:8.1%}")


def draw(outcomes: list[Outcome], path: Path) -> None:
    """The latencies' distributions."""
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    figure, chart = plt.subplots(figsize=(8, 3.5), layout="constrained")
    for outcome in outcomes:
        sorted_ms = np.sort(outcome.latencies) * 1e3
        chart.plot(sorted_ms, np.linspace(0, 100, sorted_ms.size), label=WAYS[outcome.way])
    chart.set(xscale="log", xlabel="ms from request to answer", ylabel="% of the requests")
    chart.legend()
    figure.savefig(path)
    print(f"the distributions are in {path}")


async def main(clients: int, seconds: float, most: int, picture: Path | None) -> None:
    """Run all three."""
    outcomes = [Outcome(way) for way in WAYS]
    for outcome in outcomes:
        async with service(outcome.way) as url:
            await drive(url, outcome, clients, seconds, most)
    print_table(outcomes)
    if picture is not None:
        draw(outcomes, picture)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--seconds", type=float, default=5.0, help="for each way")
    parser.add_argument("--most", type=int, default=100_000, help="requests for each way")
    parser.add_argument("--picture", type=Path, default=None)
    options = parser.parse_args()
    asyncio.run(main(options.clients, options.seconds, options.most, options.picture))
