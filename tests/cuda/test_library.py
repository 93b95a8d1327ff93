"""Every kernel of the library compiles for sm_90.

The kernels are recorded in processes of their own, whose libraries then never launch again what was not compiled: one for
each core, of which each compiles a share.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from aiodev._core.usable_cores import usable_cores

pytest.importorskip("numba_cuda", reason="numba-cuda is not installed: pip install 'aiodev[cuda]'")

ROOT = Path(__file__).parents[2]

_PROGRAM = """
import logging, sys, warnings
warnings.simplefilter("ignore")
logging.disable(logging.CRITICAL)
import library
from aiodev._backends.cuda.compile import compiler

found, refused = library.recorded()
share, shares = map(int, sys.argv[1:])
failures = []
recorded = [(function, spec) for function, specs in found.items() for spec in specs]
for function, spec in recorded[share::shares]:
    numbers = {argument.lstrip("A0123456789")[0] for argument in spec.arguments}
    if spec.name in library.REAL and "c" in numbers:
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
    path = f"import sys; sys.path[:0] = [{str(ROOT)!r}, {str(Path(__file__).parent)!r}]\n"
    shares = min(8, usable_cores().count)
    running = [
        subprocess.Popen(
            [sys.executable, "-c", path + _PROGRAM, str(share), str(shares)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        for share in range(shares)
    ]
    outcomes = [(process, *process.communicate(timeout=1800)) for process in running]
    for process, said, error in outcomes:
        assert process.returncode == 0, error[-3000:]
        summary, _, failures = said.partition("\n")
        assert not failures.strip(), failures
        assert int(summary.split()[0]) > 100, summary
