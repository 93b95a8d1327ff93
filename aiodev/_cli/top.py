"""``python -m aiodev top``: devices and streams of a running process, live."""

from __future__ import annotations

import sys
import threading
import time
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Iterator
from typing import Any

from aiodev.profiler.top import find_processes, read_snapshot

__all__ = ["add_arguments", "show", "top"]

_CLEAR = "\x1b[H\x1b[2J"
NOBODY = "no process of this user can be looked at; start one with AIODEV_TOP=1, or call aiodev.profiler.serve_top() in it"


def add_arguments(parser: ArgumentParser) -> None:
    """Tell the command's parser of its options."""
    parser.add_argument("pid", nargs="*", type=int, metavar="PID", help="processes to show (default: all that can be)")
    parser.add_argument("--interval", type=_seconds, default=1.0, metavar="SECONDS", help="between two looks (default: 1)")
    parser.add_argument("--count", type=_number, default=0, metavar="N", help="end after so many (default: go on)")
    parser.add_argument("--streams", type=_number, default=10, metavar="N", help="rows of streams (default: 10)")


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 <= seconds <= threading.TIMEOUT_MAX:
        raise ArgumentTypeError(f"{text}: expected a number of seconds, 0 or more")
    return seconds


def _number(text: str) -> int:
    number = int(text)
    if number < 0:
        raise ArgumentTypeError(f"{text}: expected a whole number, 0 or more")
    return number


def top(options: Namespace) -> int:
    """Run the command; returns the exit status."""
    before: dict[int, dict[str, Any]] = {}
    looks = 0
    try:
        while True:
            now = dict(_look(options.pid))
            if not now:
                missing = ", ".join(map(str, options.pid))
                print(f"no process {missing} serves" if missing else NOBODY, file=sys.stderr)
                return 1
            looks += 1
            last = looks == options.count
            if looks > 1 or last:  # a rate needs two looks
                text = "\n\n".join(show(each, before.get(pid), options.streams) for pid, each in now.items())
                print((_CLEAR if sys.stdout.isatty() else "") + text, flush=True)
            if last:
                return 0
            before = now
            time.sleep(max(0.05, options.interval))
    except KeyboardInterrupt:
        return 0
    except PermissionError as error:
        print(error, file=sys.stderr)
        return 2


def _look(processes: list[int]) -> Iterator[tuple[int, dict[str, Any]]]:
    for process in processes or find_processes():
        try:
            yield process, read_snapshot(process)
        except ProcessLookupError:  # it was killed, or has just ended
            continue


def show(now: dict[str, Any], before: dict[str, Any] | None, rows: int) -> str:
    """A process as text; rates where there is an earlier look at it."""
    values, earlier = _by_device(now), _by_device(before or now)
    seconds = now["time"] - (before or now)["time"]
    lines = [f"process {now['pid']}: {now['program']}"]
    lags: list[Any] = next((samples for name, _, samples in now["metrics"] if name == "aiodev_loop_lag_seconds"), [])
    if lags:
        median, rare, most = (f"{1e3 * value:.2f} ms" for _, value in lags)
        lines.append(f"loop lag: median {median}, 99 % {rare}, longest {most}")
    heads = f"{'done/s':>12}{'pending':>9}{'failures':>10}{'in use':>12}{'held':>12}{'allocated/s':>13}"
    lines.append(f"{'device':10}{'streams':>9}{heads}")
    for device, each in values.items():
        old = earlier.get(device, {})
        names = "aiodev_operations_completed", "aiodev_allocations"
        done, allocations = (_rate(each.get(name, 0) - old.get(name, 0), seconds) for name in names)
        lines.append(
            f"{device:10}{each.get('aiodev_streams', 0):>9,.0f}{done:>12}{each.get('aiodev_operations_pending', 0):>9,.0f}"
            f"{each.get('aiodev_faults', 0):>10,.0f}{_mebibytes(each.get('aiodev_memory_allocated_bytes', 0)):>12}"
            f"{_mebibytes(each.get('aiodev_memory_reserved_bytes', 0)):>12}{allocations:>13}"
        )
    lines.append(f"{'stream':>10}{'device':>9}{'submitted/s':>12}{'pending':>9}{'priority':>10}")
    old_streams = {each["id"]: each for each in (before or now)["streams"]}
    active = [(each["submitted"] - old_streams.get(each["id"], each)["submitted"], each) for each in now["streams"]]
    active.sort(key=lambda item: (-item[1]["pending"], -item[0]))
    for submitted, each in active[:rows]:
        lines.append(
            f"{each['id']:>10}{each['device']:>9}{_rate(submitted, seconds):>12}{each['pending']:>9,}{each['priority']:>10}"
        )
    return "\n".join(lines)


def _by_device(snapshot: dict[str, Any]) -> dict[str, dict[str, float]]:
    values: dict[str, dict[str, float]] = {}
    for name, _, samples in snapshot["metrics"]:
        for labels, value in samples:
            if "device" in labels:
                values.setdefault(labels["device"], {})[name] = value
    return values


def _rate(count: float, seconds: float) -> str:
    return f"{count / seconds:,.0f}" if seconds > 0 else ""


def _mebibytes(nbytes: float) -> str:
    return f"{nbytes / 2**20:,.1f} MiB"
