"""The library's bodies for teams, run by numba's CUDA simulator next to NumPy; that they compile is :mod:`test_library`'s.

Sizes lie around those of a team (32 threads here) and of the pieces that rows are cut into.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("numba_cuda", reason="numba-cuda is not installed: pip install 'aiodev[cuda]'")

HERE = Path(__file__).parent
ROOT = HERE.parents[1]

_PREAMBLE = """
import operator, teams, numpy as np, aiodev
kernels = teams.start(5, piece=100)
chance = np.random.default_rng(0)

def numbers(shape, code):
    x = chance.integers(-100, 100, shape) + (0 if code[0] in "biu" else chance.random(shape))
    if code[0] == "c":
        x = x + 1j * chance.random(shape)
    return np.asarray(x % 5 < 2 if code == "b1" else x).astype(code)

def check(name, x, there=None, **named):
    with np.errstate(all="ignore"):
        expected = (there or getattr(np, name))(x, **named)
    found = operator.attrgetter(name)(kernels)(aiodev.asarray(x, device="cuda"), **named).numpy_blocking()
    place = f"{name} of {x.dtype} {x.shape} {named}"
    if found.dtype.kind in "fc":
        single = found.dtype.itemsize == (4 if found.dtype.kind == "f" else 8)
        np.testing.assert_allclose(found, expected, 1e-5 if single else 1e-12, 1e-9, err_msg=place)
    else:
        np.testing.assert_array_equal(found, expected, place)
"""

REDUCTIONS = """
for n, code in ((1, "f8"), (31, "f4"), (32, "i8"), (33, "c8"), (257, "u1"), (700, "f4")):
    x = numbers(n, code)
    for name in ("mean", "std") + (("max", "argmin") if code[0] != "c" else ()):
        check(name, x)
check("sum", numbers(0, "f4"))
check("prod", numbers((3, 0), "i8"), axis=1)
for shape, code in (((40, 3), "f4"), ((5, 129), "i4"), ((3, 70, 2), "f8"), ((2, 9, 33), "f4")):
    x = numbers(shape, code)
    for axis in range(len(shape)):
        for name in ("sum", "argmax"):
            check(name, x, axis=axis)
check("var", x, axis=0)
check("var", x, axis=1)
check("var", 1e4 + 1e-3 * chance.standard_normal(3000))
check("var", 1e4 + 1e-3 * chance.standard_normal((700, 3)), axis=0)
for values in ([1.5e308, -1.5e308], [1e308, -1e308, 5, 5], [9e153] + [-1e152] * 15, [-1e308] + [1e307] * 4, [1e-300] * 40):
    def there(x, axis):
        return np.mean((x - x.astype(np.longdouble).mean(axis=axis).astype(float)) ** 2, axis=axis)
    for count in (1, 30, 300):
        check("var", np.tile(values, count)[:700], there, axis=0)
        check("var", np.tile(np.array(values)[:, None], (count, 3))[:700], there, axis=0)
for value in (np.nan, np.inf, -np.inf):
    for place in (0, 350, 699):
        x = np.ones(700)
        x[place] = value
        check("var", x)
x = numbers((2, 9, 33), "f4")
check("min", x, axis=(0, 2))
check("any", numbers((2, 300), "b1"), axis=0)
for place in (0, 69, 128):
    x = numbers(129, "f4")
    x[[place, 100]] = np.nan
    for name in ("min", "argmin", "argmax"):
        check(name, x)
    check("argmax", np.stack([x, x[::-1]], 1), axis=0)
zeros = np.zeros(200, "f8")
zeros[5] = -0.0
check("argmin", zeros)
check("argmax", -np.ones(300))
"""


PRODUCTS = """
for shape, code in (((1, 1), "f4"), ((3, 33), "c8"), ((40, 5), "i4"), ((2, 257), "f8"), ((2, 0), "f4")):
    x, y = numbers(shape, code), numbers(shape, code)
    found = kernels.vecdot(aiodev.asarray(x, device="cuda"), aiodev.asarray(y, device="cuda")).numpy_blocking()
    np.testing.assert_allclose(found, np.vecdot(x, y), 1e-5, 1e-5)
for shape, code in (((40, 5), "f4"), ((3, 300), "f8"), ((2, 33), "c16")):
    x = numbers(shape, code)
    x[1, 2] = 0
    for order in (1, 2, 3, 0, np.inf, -np.inf):
        check("linalg.vector_norm", x, np.linalg.vector_norm, axis=1, ord=order)
x[0, 3] = np.nan
check("linalg.vector_norm", x, np.linalg.vector_norm, axis=1, ord=-np.inf)
check("linalg.vector_norm", x, np.linalg.vector_norm, axis=1, ord=np.inf)
"""


SCANS = """
for shape, code in (((40, 3), "f4"), ((1, 33), "i4"), ((2, 224), "f8"), ((1, 225), "c8"), ((1, 600), "i8"), ((2, 300), "u1")):
    x = numbers(shape, code)
    check("cumulative_sum", x, np.cumulative_sum, axis=1)
check("cumulative_sum", x, np.cumulative_sum, axis=1, include_initial=True)
check("cumulative_sum", x[:, :9], np.cumulative_sum, axis=1, include_initial=True)
check("cumulative_sum", x[:, :0], np.cumulative_sum, axis=1, include_initial=True)
check("cumulative_sum", x, np.cumulative_sum, axis=0)
check("cumulative_prod", 1 + 1e-3 * numbers(400, "f8"), np.cumulative_prod)
found = kernels.cumulative_sum(aiodev.asarray(x, device="cuda"), axis=1, exclusive=True).numpy_blocking()
np.testing.assert_array_equal(found, np.cumulative_sum(x, axis=1, include_initial=True)[:, :-1])
"""


SORTS = """
def stable(x, axis=-1, descending=False):
    return np.flip(len(x) - 1 - np.argsort(x[::-1], kind="stable")) if descending else np.argsort(x, axis, kind="stable")

def ordered(x, axis=-1, descending=False):
    return np.flip(np.sort(x, axis), axis) if descending else np.sort(x, axis)

for shape, code in (((1,), "i8"), ((33,), "u2"), ((40, 5), "f4"), ((65,), "i4"), ((2, 289), "u1"), ((600,), "i2")):
    x = numbers(shape, code)
    check("sort", x, ordered)
    check("argsort", x, stable)
check("sort", numbers((300, 2), "b1"), ordered, axis=0)
check("argsort", numbers(300, "u1"), stable, descending=True)
check("argsort", np.full(300, 7, "i2"), stable)
x = np.floor(numbers(100, "f4") % 7)
x[[3, 90]], x[7] = np.nan, -0.0
check("sort", x, ordered)
check("argsort", x, stable)
"""


@pytest.mark.parametrize(
    "program", [REDUCTIONS, PRODUCTS, SCANS, SORTS], ids=["reductions", "products", "scans", "sorts"]
)
def test_teams_come_to_what_numpy_does(program: str) -> None:
    """Results are NumPy's, whatever the sizes; NaN and equal elements follow its rules."""
    path = os.pathsep.join((str(ROOT), str(HERE), os.environ.get("PYTHONPATH", "")))
    done = subprocess.run(
        [sys.executable, "-c", _PREAMBLE + program],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "NUMBA_ENABLE_CUDASIM": "1", "PYTHONPATH": path},
    )
    assert done.returncode == 0, done.stderr[-3000:]
