"""``python tests/bench``: the figures of the runtime core, each next to its peers.

``--smoke`` only shows that everything runs; its figures mean nothing.
"""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path

import core_device
import core_loop
import core_submit
import kernel_launch
from harness import Figure, Run, print_table, write_json, write_rst

FIGURES = {
    "launch": core_submit.launch,
    "bound-launch": kernel_launch.bound_launch,
    "await-hot": core_submit.await_hot,
    "await-parked": core_submit.await_parked,
    "await-done": core_submit.await_done,
    "order": core_submit.order,
    "throughput": core_submit.throughput,
    "busy-loop": core_device.busy_loop,
    "handover": core_device.handover,
    "parked-time": core_loop.parked_time,
    "parked-memory": core_loop.parked_memory,
    "lag": core_loop.lag,
    "import": core_loop.import_time,
}


async def measure(names: list[str], run: Run) -> list[Figure]:
    """Measure the named figures, printing each as it comes."""
    figures = []
    for name in names:
        figures.append(await FIGURES[name](run))
        print_table(figures[-1:])
    return figures


def main() -> None:
    """Parse the command line, measure, write."""
    parser = argparse.ArgumentParser(prog="python tests/bench", description=__doc__)
    parser.add_argument("figures", nargs="*", metavar="FIGURE", help=f"which ones (default: all): {', '.join(FIGURES)}")
    parser.add_argument("--smoke", action="store_true", help="as little as possible of everything")
    parser.add_argument("--repeats", type=int, default=7, help="rounds, of which the median counts (default: 7)")
    parser.add_argument("--json", type=Path, default=Path("bench-output/core.json"), help="where to write the outcome")
    parser.add_argument("--rst", type=Path, help="write the table for the documentation, too")
    options = parser.parse_args()
    if unknown := set(options.figures) - set(FIGURES):
        parser.error(f"no figure is called {', '.join(sorted(unknown))}")
    run = Run(options.smoke, options.repeats)
    figures = asyncio.run(measure(options.figures or list(FIGURES), run))
    write_json(options.json, figures, run)
    if options.rst:
        write_rst(options.rst, figures, run)


if __name__ == "__main__":
    main()
