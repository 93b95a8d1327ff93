"""``python examples/service/load.py``: three ways to wait for the device, under the same load, in one run.

For each, a service is started, and clients that ask for a digit, read the answer and ask again, for some seconds. The
clients' latencies and the service's own heartbeat are compared, in a table and a picture.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import platform
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import numpy as np

import aiodev

WAYS = {"block": "blocking the loop", "thread": "asyncio.to_thread", "await": "aiodev"}


@dataclass
class Round:
    """What one way came to in one round; times in ms."""

    rate: float  #: answers per second
    wrong: int  #: predictions that differ from scikit-learn's labels
    latencies: np.ndarray
    lag: dict[str, float]  #: quantile → how late the service's 1 ms timer was

    def figures(self) -> list[float]:
        """The numbers of the table."""
        p50, p99 = np.quantile(self.latencies, [0.5, 0.99])
        return [self.rate, float(p50), float(p99), self.lag["0.5"], self.lag["0.99"], self.lag["1"]]


@dataclass
class Outcome:
    """What one way came to."""

    way: str
    rounds: list[Round] = field(default_factory=list)

    def figures(self) -> list[float]:
        """The medians over the rounds."""
        return np.median([one.figures() for one in self.rounds], axis=0).tolist()

    def latencies(self) -> np.ndarray:
        """Those of all rounds."""
        return np.concatenate([one.latencies for one in self.rounds])


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


async def drive(url: str, clients: int, seconds: float) -> Round:
    """Ask until the time is over."""
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    requests = [request({"pixels": image.tolist(), "timeout_ms": 10_000}) for image in images]
    latencies: list[float] = []
    sent = wrong = 0

    async def ask(until: float) -> None:
        """One client: a connection that is kept, and one request at a time. No HTTP library, which would take more time
        than the service does."""
        nonlocal sent, wrong
        place = urlsplit(url)
        reading, writing = await asyncio.open_connection(place.hostname, place.port)
        while time.perf_counter() < until:
            number, sent = sent % len(requests), sent + 1
            began = time.perf_counter()
            writing.write(requests[number])
            digit = json.loads(await answer(reading))["digit"]
            latencies.append((time.perf_counter() - began) * 1e3)
            wrong += int(digit != labels[number])
        writing.close()

    async with httpx.AsyncClient(base_url=url, timeout=30) as client:
        await ready(client)
        began = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for _ in range(clients):
                group.create_task(ask(began + seconds))
        rate = len(latencies) / (time.perf_counter() - began)
        lag = {}
        for line in (await client.get("/metrics")).text.splitlines():
            if line.startswith("loop_lag_seconds"):
                name, value = line.split()
                lag[name.split('"')[1]] = float(value) * 1e3
    return Round(rate, wrong, np.array(latencies), lag)


def request(body: object) -> bytes:
    """A request of HTTP/1.1."""
    content = json.dumps(body).encode()
    return b"POST /predict HTTP/1.1\r\nHost: service\r\nContent-Length: %d\r\n\r\n" % len(content) + content


async def answer(reading: asyncio.StreamReader) -> bytes:
    """The content of a response."""
    head = await reading.readuntil(b"\r\n\r\n")
    if not head.startswith(b"HTTP/1.1 200"):
        raise RuntimeError(head.decode())
    length = head.lower().split(b"content-length:", 1)[1].split(b"\r\n", 1)[0]
    return await reading.readexactly(int(length))


async def ready(client: httpx.AsyncClient) -> None:
    """Wait until the service answers; the first start fits the network."""
    while True:
        with contextlib.suppress(httpx.TransportError):
            if (await client.get("/health")).is_success:
                return
        await asyncio.sleep(0.05)


HEADINGS = ("requests/s", "p50", "p99", "lag p50", "lag p99", "lag worst")


def print_table(outcomes: list[Outcome]) -> None:
    """Throughput, latency, and how late the service's timer was."""
    print(" " * 20 + "".join(f"{heading:>12}" for heading in HEADINGS))
    for outcome in outcomes:
        rate, *times = outcome.figures()
        print(f"{WAYS[outcome.way]:20}{rate:12.0f}" + "".join(f"{ms:9.2f} ms" for ms in times))
    total, wrong = (
        sum(f(one) for o in outcomes for one in o.rounds) for f in (lambda r: r.latencies.size, lambda r: r.wrong)
    )
    print(f"{wrong} of {total} predictions differ from the labels")


def write_rst(outcomes: list[Outcome], path: Path, clients: int, seconds: float) -> None:
    """The table of the documentation."""
    cpuinfo = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    models = [line.split(":", 1)[1].strip() for line in cpuinfo.splitlines() if "model name" in line]
    versions = {"python": platform.python_version(), "aiodev": aiodev.__version__}
    versions |= {name: metadata.version(name) for name in ("numpy", "numba", "starlette", "uvicorn")}
    lines = [
        ".. Written by examples/service/load.py; not by hand.",
        "",
        f"{models[0] if models else platform.machine()}, {os.cpu_count()} cores, {time.strftime('%Y-%m-%d')}; "
        + ", ".join(f"{name} {version}" for name, version in versions.items())
        + f"; {clients} clients, medians of {len(outcomes[0].rounds)} rounds of {seconds:g} s; load average "
        f"{os.getloadavg()[0]:.1f} at the end.",
        "",
        ".. list-table::",
        "   :header-rows: 1",
        "",
        "   * - how it waits",
        *(f"     - {heading}" for heading in HEADINGS),
    ]
    for outcome in outcomes:
        rate, *times = outcome.figures()
        lines += [f"   * - {WAYS[outcome.way]}", f"     - {rate:.0f}", *(f"     - {ms:.2f} ms" for ms in times)]
    path.write_text("\n".join(lines) + "\n")


def draw(outcomes: list[Outcome], path: Path) -> None:
    """The latencies' distributions."""
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    figure, chart = plt.subplots(figsize=(8, 3.5), layout="constrained")
    parts = np.linspace(0, 100, 500)
    for outcome in outcomes:
        chart.plot(np.percentile(outcome.latencies(), parts), parts, label=WAYS[outcome.way])
    chart.set(xscale="log", xlabel="ms from request to answer", ylabel="% of the requests")
    chart.legend()
    chart.grid(color="0.92")
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
    print(f"the distributions are in {path}")


async def main(clients: int, seconds: float, rounds: int) -> list[Outcome]:
    """Run all three, in turns."""
    outcomes = [Outcome(way) for way in WAYS]
    for _ in range(rounds):
        for outcome in outcomes:
            async with service(outcome.way) as url:
                outcome.rounds.append(await drive(url, clients, seconds))
    return outcomes


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--seconds", type=float, default=5.0, help="for each way, in each round")
    parser.add_argument("--rounds", type=int, default=1, help="of which the medians are shown")
    parser.add_argument("--picture", type=Path, help="where to draw the latencies' distributions")
    parser.add_argument("--rst", type=Path, help="folder to write performance-service.txt and .svg to")
    options = parser.parse_args()
    outcomes = asyncio.run(main(options.clients, options.seconds, options.rounds))
    print_table(outcomes)
    if options.picture:
        draw(outcomes, options.picture)
    if options.rst:
        write_rst(outcomes, options.rst / "performance-service.txt", options.clients, options.seconds)
        draw(outcomes, options.rst / "performance-service.svg")
