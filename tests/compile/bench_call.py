"""What a launch costs in Python alone: ``python tests/compile/bench_call.py``, with a stream that submits nothing."""

from __future__ import annotations

import sys
import timeit
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
sys.path.insert(0, str(Path(__file__).parents[2]))

from kernel_fakes import arrays

from aiodev import Device
from aiodev._core import callsites, context
from aiodev._core.backend.registry import registry
from aiodev._kernel.analysis.source import analyse
from aiodev._kernel.dispatch.signature import describe
from aiodev._kernel.dispatch.specializations import Specialization
from aiodev._kernel.kernel import BoundLaunch, Kernel, kernel


class _Stream:
    """Takes every submission and does nothing."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.timeline = object()

    def _launch(self, *submission: Any) -> int:
        return 1


class _Loaded:
    entry, ready = 1, True


@kernel
def saxpy4(i: int, x: Any, y: Any, z: Any, out: Any) -> None:
    out[i] = x[i] + y[i] * z[i]


@kernel
def saxpy(i: int, a: float, x: Any, y: Any, out: Any) -> None:
    out[i] = a * x[i] + y[i]


def remember(launched: Kernel, device: Device, *args: Any) -> Specialization:
    """Have the call function know these types."""
    keys = tuple(getattr(arg, "_key", type(arg)) for arg in args)
    use = analyse(launched.py_func, tuple(launched._names))
    signature = describe(launched.name, launched.ndim, launched._names, args, device, use)
    variant = Specialization(keys, device, signature, _Loaded())
    launched._specializations.remember(variant, launched._generate)
    return variant


def main() -> None:
    """Print a table."""
    device = registry.resolve("cpu")[1]
    stream: Any = _Stream(device)
    stream._launch = lambda entry, size, block, site: 1
    context.replace(device=device, stream=stream)
    w, x, y, z = arrays(*(np.zeros(8) for _ in range(4)))
    variant = remember(saxpy4, device, w, x, y, z)
    bound = BoundLaunch(saxpy4, variant, stream, (8,), (w, x, y, z), bytes(72), print)
    remember(saxpy, device, 2.0, x, y, z)
    a, b, c = np.zeros(8), np.zeros(8), np.zeros(8)
    over = saxpy4[8]
    rows = {
        "np.add(a, b, out=c)": lambda: np.add(a, b, out=c),
        "nothing": lambda: None,
        "kernel[8]": lambda: saxpy4[8],
        "over(w, x, y, z)": lambda: over(w, x, y, z),
        "kernel[8](w, x, y, z)": lambda: saxpy4[8](w, x, y, z),
        "kernel[8](2.0, x, y, z)": lambda: saxpy[8](2.0, x, y, z),
        "bound()": bound,
        "the site": lambda: callsites.here(0),
    }
    for name, call in rows.items():
        times = timeit.repeat(call, number=20_000, repeat=7)
        print(f"{name:28s} {min(times) / 20_000 * 1e6:6.3f} µs")


if __name__ == "__main__":
    main()
