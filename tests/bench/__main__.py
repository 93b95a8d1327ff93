"""``python tests/bench``: figures, each next to its peers.

Figures come in groups, and each group has a table in the documentation (``--rst docs`` writes those that were measured whole).
``--smoke`` only shows that everything runs; its figures mean nothing.
"""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path

import answers
import autograd_steps
import core_device
import core_fairness
import core_loop
import core_overload
import core_submit
import crowded
import dask_cluster
import generators
import graphs
import kernel_cold
import kernel_compile
import kernel_launch
import kernel_loops
import kernel_small
import library_elementwise
import library_factorizations
import library_linalg
import library_reductions
import library_shapes
import library_sizes
import library_sorting
import memory
import quotas
import services
import text_generation
import text_training
from harness import Run, measure, write_json, write_rst
from picture import draw_group, draw_readme

GROUPS = {
    "core": (core_submit, core_device, core_loop, core_overload),
    "fairness": (core_fairness,),
    "crowded": (crowded, quotas, services, answers),
    "kernels": (kernel_launch, kernel_small, kernel_loops, kernel_compile, kernel_cold),
    "graphs": (graphs,),
    "generate": (text_generation, text_training),
    "memory": (memory,),
    "library": (library_elementwise, library_reductions, library_linalg, library_sorting),
    "factorizations": (library_factorizations,),
    "sizes": (library_sizes,),
    "shapes": (library_shapes,),
    "random": (generators,),
    "autograd": (autograd_steps,),
    "dask": (dask_cluster,),
}
#: Groups whose figures are times next to the same peers, so that one picture shows all of them.
DRAWN = {"library", "random"}
FIGURES = {name: figure for modules in GROUPS.values() for module in modules for name, figure in module.FIGURES.items()}


def figures_of(group: str) -> list[str]:
    """The names of a group's figures."""
    return [name for module in GROUPS[group] for name in module.FIGURES]


def main() -> None:
    """Parse the command line, measure, write."""
    parser = argparse.ArgumentParser(prog="python tests/bench", description=__doc__)
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"groups ({', '.join(GROUPS)}) or figures ({', '.join(FIGURES)}); all"
    )
    parser.add_argument("--smoke", action="store_true", help="as little as possible of everything")
    parser.add_argument("--repeats", type=int, default=7, help="rounds, of which the median counts (default: 7)")
    parser.add_argument("--passes", type=int, default=1, help="times that all is measured, of which the median counts")
    parser.add_argument("--json", type=Path, default=Path("bench-output/bench.json"), help="where to write the outcome")
    parser.add_argument("--rst", type=Path, help="folder to write performance-GROUP.txt and the pictures to")
    options = parser.parse_args()
    if min(options.repeats, options.passes) < 1:
        parser.error("there are no fewer rounds or passes than one")
    if unknown := set(options.names) - set(FIGURES) - set(GROUPS):
        parser.error(f"nothing is called {', '.join(sorted(unknown))}")
    chosen = options.names or list(GROUPS)
    names = list(dict.fromkeys(n for name in chosen for n in (figures_of(name) if name in GROUPS else [name])))
    if options.rst and not options.rst.is_dir():
        parser.error(f"{options.rst} is no folder")
    run = Run(options.smoke, options.repeats, options.passes)
    figures = asyncio.run(measure({name: FIGURES[name] for name in names}, run))
    write_json(options.json, list(figures.values()), run)
    if options.rst:
        for group in GROUPS:
            if set(figures_of(group)) <= set(names):
                measured = [figures[name] for name in figures_of(group) if name in figures]
                write_rst(options.rst / f"performance-{group}.txt", measured, run)
                if group in DRAWN:
                    draw_group(measured, options.rst / f"performance-{group}.svg")
        if {"await-hot", "busy-loop"} <= set(figures):
            draw_readme(figures["await-hot"], figures["busy-loop"], options.rst / "performance.svg")


if __name__ == "__main__":
    main()
