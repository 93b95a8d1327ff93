"""Figures on a GPU, each next to its peers in one run: ``python tests/bench/gpu.py [NAME…] [--smoke] [--json FILE]``.

Peers that are not installed, or that fail, are left out, which is said. A figure that fails does not cost the others, and the
outcome is written after each, so that a run that is cut short is not lost.
"""

from __future__ import annotations

import argparse
import asyncio
import faulthandler
import time
import traceback
from pathlib import Path

import gpu_launching
import gpu_moving
import gpu_replaying
import gpu_waiting
from gpu_peers import DEVICE
from harness import Figure, Run, print_table, write_json

import aiodev

GROUPS = {"launching": gpu_launching, "waiting": gpu_waiting, "moving": gpu_moving, "replaying": gpu_replaying}
#: Seconds after which a figure counts as hanging: the stacks are printed, and the program ends.
HANGS = 60
FIGURES = {name: figure for module in GROUPS.values() for name, figure in module.FIGURES.items()}


async def measure(names: list[str], run: Run, json: Path | None) -> int:
    """Measure the named figures; how many failed."""
    await aiodev.init("cuda")
    print(aiodev.get_device_properties(DEVICE))
    found: list[Figure] = []
    failed = 0
    for name in names:
        began = time.perf_counter()
        faulthandler.dump_traceback_later(HANGS, exit=True)
        try:
            figure = await FIGURES[name](run)
        except Exception:  # the other figures are wanted all the same
            failed += 1
            print(f"\n{name}: FAILED")
            traceback.print_exc(limit=-3)
            continue
        finally:
            faulthandler.cancel_dump_traceback_later()
        found.append(figure)
        print_table([figure], run)
        print(f"    {time.perf_counter() - began:.1f} s", flush=True)
        if json is not None:
            write_json(json, found, run)
    return failed


def main() -> None:
    """Parse the command line, measure, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"{', '.join(GROUPS)}; or {', '.join(FIGURES)}; all")
    parser.add_argument("--smoke", action="store_true", help="as little as possible of everything")
    parser.add_argument("--repeats", type=int, default=5, help="rounds, of which the median counts (default: 5)")
    parser.add_argument("--json", type=Path, help="where to write the outcome")
    options = parser.parse_args()
    if unknown := set(options.names) - set(FIGURES) - set(GROUPS):
        parser.error(f"nothing is called {', '.join(sorted(unknown))}")
    chosen = options.names or list(GROUPS)
    names = [n for name in chosen for n in (GROUPS[name].FIGURES if name in GROUPS else [name])]
    run = Run(options.smoke, options.repeats)
    raise SystemExit(1 if asyncio.run(measure(list(dict.fromkeys(names)), run, options.json)) else 0)


if __name__ == "__main__":
    main()
