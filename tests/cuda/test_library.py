"""Every kernel of the library compiles for sm_90: by default for the first real and complex arguments of each.

The kernels are recorded in processes of their own, whose libraries then never launch again what was not compiled: one for
each core, of which each compiles a part.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import selection
from programs import SUPPORT

from aiodev._core.usable_cores import usable_cores

pytest.importorskip("numba_cuda", reason="numba-cuda is not installed: pip install 'aiodev[cuda]'")

ROOT = Path(__file__).parents[2]

_PROGRAM = """
import logging, sys, warnings
warnings.simplefilter("ignore")
logging.disable(logging.CRITICAL)
import library, selection
from aiodev._backends.cuda.compile import compiler

found, refused = library.recorded()
selection.exhaustive, *selection.share, own, processes = map(int, sys.argv[1:])
failures = []
recorded = [(function, spec) for function, specs in found.items() for spec in specs]

def kind(spec):
    return spec.name, "c" in {argument.lstrip("A0123456789")[0] for argument in spec.arguments}

first = {kind(spec): spec for _, spec in reversed(recorded)}
recorded.sort(key=lambda launch: first[kind(launch[1])] is not launch[1])
for function, spec in selection.some(recorded, len(first))[own::processes]:
    if spec.name in library.REAL and kind(spec)[1]:
        continue
    try:
        compiler.compile_image(spec, (9, 0))
    except Exception as error:  # all that fail are to be listed
        failures.append(f"{function} launches {spec.name}{spec.arguments}: {str(error)[-400:]}")
print(len(recorded), "kernels of", len(found), "functions;", len(refused), "took no arguments")
if refused:
    failures.append(f"no arguments are known for {', '.join(sorted(refused))}")
print("\\n".join(failures))
"""


def test_every_kernel_compiles() -> None:
    """What the library's functions launch, for real and complex numbers, becomes a cubin."""
    path = f"import sys; sys.path[:0] = {[str(ROOT), str(SUPPORT), str(Path(__file__).parent)]}\n"
    processes = min(8, usable_cores().count)
    running = [
        subprocess.Popen(
            [sys.executable, "-c", path + _PROGRAM, *map(str, (int(selection.exhaustive), *selection.share, own, processes))],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        for own in range(processes)
    ]
    outcomes = [(process, *process.communicate(timeout=1800)) for process in running]
    for process, said, error in outcomes:
        assert process.returncode == 0, error[-3000:]
        summary, _, failures = said.partition("\n")
        assert not failures.strip(), failures
        assert int(summary.split()[0]) > 100, summary
