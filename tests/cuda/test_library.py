"""Every kernel of the library compiles for sm_90.

The kernels are recorded in a process of its own, whose library then never launches again what was not compiled.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("numba_cuda", reason="numba-cuda is not installed: pip install 'aiodev[cuda]'")

ROOT = Path(__file__).parents[2]

_PROGRAM = """
import logging, warnings
warnings.simplefilter("ignore")
logging.disable(logging.CRITICAL)
import library
from aiodev._backends.cuda import compiler

found, refused = library.recorded()
failures = []
for function, specs in found.items():
    for spec in specs:
        numbers = {argument.lstrip("A0123456789")[0] for argument in spec.arguments}
        if spec.name in library.REAL and "c" in numbers:
            continue
        try:
            compiler.compile_image(spec, (9, 0))
        except Exception as error:
            failures.append(f"{function} launches {spec.name}{spec.arguments}: {str(error)[-400:]}")
print(sum(map(len, found.values())), "kernels of", len(found), "functions;", len(refused), "took no arguments")
print("\\n".join(failures))
"""


def test_every_kernel_compiles() -> None:
    """What the library's functions launch, for real and complex numbers, becomes a cubin."""
    path = f"import sys; sys.path[:0] = [{str(ROOT)!r}, {str(Path(__file__).parent)!r}]\n"
    done = subprocess.run(
        [sys.executable, "-c", path + _PROGRAM], capture_output=True, text=True, timeout=400, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr[-3000:]
    summary, _, failures = done.stdout.partition("\n")
    assert not failures.strip(), failures
    assert int(summary.split()[0]) > 100, summary
