"""Products against NumPy's: shapes, strides, types, and what stands in for BLAS where there is none."""

from __future__ import annotations

import contextlib
import math
import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from comparing import check, numbers, on_device
from hypothesis import given, settings, strategies as st
from hypothesis.extra import numpy as hnp
from selection import examples, some

import aiodev
import aiodev.kernels as kernels
from aiodev.kernels import linalg
from aiodev.kernels.linalg import openblas, products, tiling

FLOATING = ["f4", "f8", "c8", "c16"]


def view(base: np.ndarray[Any, Any], transpose: bool, steps: tuple[int, int]) -> tuple[Any, aiodev.Array]:
    """A view of the last two dimensions, of the host's array and of the device's."""
    array = on_device(base)
    index = (..., slice(None, None, steps[0]), slice(None, None, steps[1]))
    host, array = base[index], array[index]
    return (np.swapaxes(host, -1, -2), kernels.matrix_transpose(array)) if transpose else (host, array)


def check_product(x1: Any, x2: Any, a: aiodev.Array, b: aiodev.Array) -> None:
    """``matmul`` of arrays, next to NumPy's of the same on the host."""
    expected = np.matmul(x1, x2)
    floating = expected.dtype.kind in "fc"
    terms = np.matmul(abs(x1), abs(x2)) * max(1, math.isqrt(x1.shape[-1])) if floating else None
    check(kernels.matmul(a, b), expected, terms)
    out = on_device(np.full(expected.shape, np.nan if floating else 7).astype(expected.dtype))
    assert kernels.matmul(a, b, out=out) is out
    check(out, expected, terms)


shapes = st.sampled_from(["m,k@k,n", "k@k,n", "m,k@k", "k@k", "p,m,k@k,n", "p,m,k@p,k,n", "m,k@p,k,n", "q,1,m,k@p,k,n"])
lengths = st.sampled_from([0, 1, 2, 3, 5, 17])


@given(shapes, st.fixed_dictionaries(dict.fromkeys("mknpq", lengths)), st.sampled_from(some(["f4", "c16", "i4", "u1", "?"], 2)))
@settings(deadline=None, max_examples=examples(60))
def test_matmul_has_numpys_shapes(rule: str, sizes: dict[str, int], dtype: str) -> None:
    """Vectors, matrices, batches that broadcast, and dimensions of no length."""
    hosts = []
    for seed, side in enumerate(rule.split("@")):
        hosts.append(numbers(tuple(sizes.get(n, 1) for n in side.split(",")), dtype, seed))
    check_product(*hosts, *map(on_device, hosts))


@given(
    st.booleans(),
    st.booleans(),
    st.tuples(*[st.sampled_from([1, 2, -1])] * 2),
    st.tuples(*[st.sampled_from([1, 2, -1])] * 2),
    st.sampled_from(some(["f4", "i8"])),
    st.sampled_from([6, 20]),
)
@settings(deadline=None, max_examples=examples(60))
def test_matmul_takes_any_strides(
    flip_a: bool, flip_b: bool, steps_a: tuple[int, int], steps_b: tuple[int, int], dtype: str, size: int
) -> None:
    """Transposed operands, rows and columns that are left out or reversed; as vectors too."""
    a, b = numbers((size, size), dtype), numbers((2, size, size), dtype, 1)
    x1, left = view(a, flip_a, steps_a)
    x2, right = view(b, flip_b, steps_b)
    inner = min(x1.shape[1], x2.shape[1])
    check_product(x1[:, :inner], x2[:, :inner], left[:, :inner], right[:, :inner])
    check_product(x1[:, :inner], x2[0, :inner, 1], left[:, :inner], right[0, :inner, 1])
    check_product(x1[1, :inner], x2[1, :inner], left[1, :inner], right[1, :inner])


#: Of which the first is for those types, too, that differ from others in a routine of the library alone.
LARGE = [(300, 200, 260), (40, 1000, 900), (2000, 33, 70), (1, 1500, 700), (3000, 900, 1)]


@pytest.mark.parametrize(
    ("dtype", "shape"),
    [(dtype, shape) for dtype in FLOATING for shape in some(LARGE, 2) if dtype in ("f4", "c16") or shape is LARGE[0]],
)
def test_large_products_are_cut_into_panels(dtype: str, shape: tuple[int, int, int]) -> None:
    """Panels of rows and columns, whole and with a rest, and transposed ones."""
    rows, inner, columns = shape
    a, b = numbers((rows, inner), dtype), numbers((inner, columns), dtype, 1)
    check_product(a, b, on_device(a), on_device(b))
    check_product(b.T, a.T, on_device(b).T, on_device(a).T)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("shape", [(701, 650), (71, 9001), (3, 100_003), (40_003, 70)])
@pytest.mark.parametrize("turned", [False, True], ids=["rows", "columns"])
def test_large_matrix_times_vector(dtype: str, shape: tuple[int, int], turned: bool) -> None:
    """Groups of rows and slabs, whole and with a rest; vectors and results with gaps; repeated; new results or given ones."""
    host, x = view(numbers(shape, dtype), turned, (1, 1))
    v, u = numbers((host.shape[1],), dtype, 1), numbers((host.shape[0],), dtype, 2)
    right, left = on_device(v), on_device(u)
    for _ in range(4):
        check_product(host, v, x, right)
        check_product(u, host, left, x)
    check_product(host, v[:, None], x, right[:, None])
    check_product(u[None], host, left[None], x)
    check_product(host, v[::-1], x, right[::-1])
    wide = on_device(np.full((host.shape[0], 3), 7, dtype))
    kernels.matmul(x, right, out=wide[:, 1])
    check(wide[:, 1], host @ v, np.matmul(abs(host).astype("f8"), abs(v)) * math.isqrt(v.size))
    assert (wide[:, ::2].numpy_blocking() == 7).all()


def test_batches_of_matrices_times_vectors() -> None:
    """One matrix or one vector may stand for all of them."""
    a, b = numbers((3, 600, 500), "f4"), numbers((3, 500, 1), "f4", 1)
    for x1, x2 in [(a, b), (a[:1], b), (a, b[:1]), (b.swapaxes(1, 2), a.swapaxes(1, 2))]:
        turned = x1.shape[1] == 1
        left = kernels.matrix_transpose(on_device(b)) if turned else on_device(x1)
        right = kernels.matrix_transpose(on_device(a)) if turned else on_device(x2)
        check_product(x1, x2, left, right)


def test_products_with_vectors_do_not_depend_on_the_division() -> None:
    """What is summed in which order follows from the shape alone, wherever pieces begin and whoever runs them."""
    a, b = on_device(numbers((3001, 700), "f4")), on_device(numbers((700,), "f4", 1))
    c = on_device(numbers((3001,), "f4", 2))
    for x1, x2 in ((a, b), (c, a)):
        first = kernels.matmul(x1, x2).numpy_blocking()
        assert all((kernels.matmul(x1, x2).numpy_blocking() == first).all() for _ in range(20))


def test_panels_cover_a_product_once() -> None:
    """Whatever the shape, panels are as many as the launch counts, and neither too small nor too large."""
    for rows, columns, inner in [(512, 512, 512), (1, 9, 4), (7, 1, 10**6), (5000, 130, 800)]:
        height, width = tiling.panel_of(rows, columns, inner)
        assert 1 <= height <= rows and 1 <= width <= columns
    assert tiling.panel_of(2048, 2048, 2048) == (512, 512)
    assert tiling.panel_of(50_000, 64, 128)[0] <= 4096  # one that comes late finds work
    assert tiling.panel_of(3000, 1, 3000)[0] < 1500 and tiling.panel_of(1, 3000, 3000)[1] < 1500


@pytest.mark.parametrize("dtype", ["f4", "c16", "i2"])
def test_out_may_have_any_strides(dtype: str) -> None:
    """Columns that are contiguous, and gaps, of which nothing is written."""
    a, b = numbers((3, 50, 20), dtype), numbers((3, 20, 40), dtype, 1)
    turned = on_device(np.zeros((3, 40, 50), dtype))
    kernels.matmul(on_device(a), on_device(b), out=kernels.matrix_transpose(turned))
    np.testing.assert_allclose(turned.numpy_blocking().swapaxes(1, 2), a @ b, rtol=1e-4, atol=1e-4)
    gaps = on_device(np.full((3, 100, 120), 7, dtype))
    kernels.matmul(on_device(a), on_device(b), out=gaps[:, ::2, ::3])
    expected = np.full((3, 100, 120), 7, dtype)
    expected[:, ::2, ::3] = a @ b
    np.testing.assert_allclose(gaps.numpy_blocking(), expected, rtol=1e-4, atol=1e-4)


def test_types_are_promoted() -> None:
    """As NumPy has it."""
    a, b = numbers((4, 5), "i2"), numbers((5, 3), "f4")
    check(kernels.matmul(on_device(a), on_device(b)), a @ b, 100)
    c = numbers((5, 3), "c8")
    check(kernels.matmul(on_device(b).T, on_device(c)), b.T @ c, 100)


@given(st.data(), st.sampled_from(some(["f4", "f8", "c8", "i4", "?"], 2)))
@settings(deadline=None, max_examples=examples(40))
def test_vecdot(data: st.DataObject, dtype: str) -> None:
    """Over any axis, of shapes that broadcast; the first is conjugated."""
    length = data.draw(st.sampled_from([0, 1, 7, 5000]))
    found = data.draw(hnp.mutually_broadcastable_shapes(num_shapes=2, max_dims=2, max_side=3, min_side=0))
    hosts = [numbers((*shape, length), dtype, n) for n, shape in enumerate(found.input_shapes)]
    expected = (hosts[0].conj() * hosts[1]).sum(-1, dtype=np.result_type(*hosts))
    terms = abs(hosts[0] * hosts[1]).sum(-1) * 10
    check(kernels.vecdot(*map(on_device, hosts)), expected, terms)
    if all(host.ndim > 1 for host in hosts):
        moved = [on_device(np.ascontiguousarray(host.swapaxes(-1, -2))) for host in hosts]
        check(kernels.vecdot(*moved, axis=-2), expected, terms)


@pytest.mark.parametrize("axes", [3, -1, ([3], [0]), ([0, 0], [0, 1])])
def test_tensordot_refuses_axes(axes: Any) -> None:
    """More than there are, others than there are, and one axis twice."""
    x = on_device(np.ones((2, 2)))
    with pytest.raises(ValueError, match="tensordot"):
        kernels.tensordot(x, x, axes=axes)


def test_tensordot() -> None:
    """Over the last and the first dimensions, or named ones."""
    a, b = numbers((3, 4, 5), "f8"), numbers((4, 5, 6), "f8", 1)
    x, y = on_device(a), on_device(b)
    check(kernels.tensordot(x, y), np.tensordot(a, b), 100)
    check(kernels.tensordot(x, y, axes=([1], [-3])), np.tensordot(a, b, axes=([1], [0])), 100)
    check(kernels.tensordot(x, x, axes=0), np.tensordot(a, a, axes=0), 100)


def test_wrong_arguments_name_themselves() -> None:
    """Shapes that do not fit, something else than arrays, results that do not fit."""
    x = on_device(np.ones((3, 4)))
    with pytest.raises(ValueError, match=r"\(3, 4\) and \(3, 4\)"):
        kernels.matmul(x, x)
    with pytest.raises(ValueError, match="1 dimension"):
        kernels.matmul(x, on_device(1.0))
    with pytest.raises(TypeError, match=r"argument x2.*asarray"):
        kernels.matmul(x, np.ones((4, 2)))
    with pytest.raises(ValueError, match=r"matmul: out: expected the shape \(3, 3\), got \(3, 4\)"):
        kernels.matmul(x, x.T, out=x)
    with pytest.raises(TypeError, match="matmul: out: float64 cannot be written to float32"):
        kernels.matmul(x, x.T, out=on_device(np.ones((3, 3), "f4")))
    with pytest.raises(ValueError, match="axis 2"):
        kernels.vecdot(x, x, axis=2)
    with pytest.raises(ValueError, match=r"matmul: stacks: the shapes \(2,\) and \(3,\) do not broadcast"):
        kernels.matmul(on_device(np.ones((2, 4, 4))), on_device(np.ones((3, 4, 4))))
    with pytest.raises(ValueError, match="vecdot: the shapes"):
        kernels.vecdot(on_device(np.ones((2, 4))), x)
    with pytest.raises(ValueError, match="2 dimensions"):
        kernels.matrix_transpose(on_device(np.ones(3)))


@pytest.mark.parametrize("dtype", FLOATING)
def test_without_blas_loops_compute(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no OpenBLAS is found, the table has zeros, and all works."""
    monkeypatch.setattr(openblas, "_tables", {})
    monkeypatch.setattr(openblas, "_loaded", [openblas._table(None)])
    monkeypatch.setattr(products, "_units", {})
    a, b = numbers((70, 80), dtype), numbers((80, 90), dtype, 1)
    check_product(a, b, on_device(a), on_device(b))
    a, b = numbers((300, 200), dtype), numbers((200, 260), dtype, 1)
    check_product(a, b, on_device(a), on_device(b))


_FRESH = """
import asyncio, ctypes, threading, numpy as np
import aiodev, aiodev.kernels as kernels
from aiodev.kernels.linalg import openblas

submitted, fill = threading.Event(), openblas._fill

def fill_when_submitted(host):
    assert submitted.wait(60)
    fill(host)

async def main():
    openblas._fill = fill_when_submitted
    stream = aiodev.Stream("cpu")
    async with stream:
        x = aiodev.ones((64, 64))
        results = [kernels.matmul(x, x) for _ in range(3)]
        submitted.set()
        for result in results:
            assert (await result.numpy() == 64).all()
asyncio.run(main())
if openblas.library_name():
    own = openblas._function(openblas._libraries[0], openblas._SETTINGS, "get_num_threads")()
    shared = openblas._function(ctypes.CDLL(openblas.library_name()), openblas._SETTINGS, "get_num_threads")()
    print(own, shared)
"""


def test_the_library_is_a_copy_with_one_thread() -> None:
    """Products submitted while it loads wait for it; NumPy's own instance keeps its threads."""
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "2"}
    done = subprocess.run([sys.executable, "-c", _FRESH], env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    if openblas.library_name():
        assert done.stdout.split() == ["1", "2"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_multiplies() -> None:
    """With the library that its parent has loaded."""
    x = on_device(np.ones((8, 8)))
    kernels.matmul(x, x).numpy_blocking()
    code = "import os, numpy as np, aiodev, aiodev.kernels as k\n" + _FORK
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.stdout.split() == ["8.0", "8.0"], done.stderr


_FORK = """
def once():
    x = aiodev.asarray(np.ones((8, 8)), device="cpu")
    print(k.matmul(x, x).numpy_blocking()[0, 0], flush=True)
once()
child = os.fork()
if not child:
    once()
    os._exit(0)
os.waitpid(child, 0)
"""


@pytest.mark.parametrize("rows", [1, 300])
def test_what_a_failed_stream_only_read_stays_as_it_was(rows: int) -> None:
    """Weights that requests share: one request that fails takes its own results along, and no others'."""
    weights = on_device(np.ones((64, 64), "f4"))
    weights.numpy_blocking(60)

    def fail() -> None:
        raise OSError

    with aiodev.Stream("cpu") as stream:
        x = aiodev.ones((rows, 64), "f4")
        stream.call(fail)
        results = [
            kernels.matmul(x, weights),
            kernels.matmul(weights, x[0]),
            kernels.softmax(weights),
            linalg.norm(weights),
        ]
    for result in results:
        with pytest.raises(aiodev.DependencyError):
            result.numpy_blocking(60)
    assert (weights.numpy_blocking(60) == 1).all()
    for _ in range(4):  # so that whoever synchronises the device next is told of nothing
        with contextlib.suppress(OSError, aiodev.DependencyError):
            aiodev.synchronize_blocking("cpu")
