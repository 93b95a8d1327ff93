"""Calls that are repeated as several launches, one of which makes what the next one takes."""

from __future__ import annotations

import numpy as np
import pytest
from comparing import on_device

import aiodev
import aiodev.kernels as kernels


def test_weighted_histograms_and_densities_again_and_again() -> None:
    """Bins by number, by edges of the host and of the device, in turns; shapes and edges that do not fit are refused by all."""
    rng = np.random.default_rng(14)
    for turn in range(4):
        x, y = rng.normal(size=(7, 30)), rng.integers(1, 5, (7, 30))
        edges = np.sort(rng.normal(size=6))
        ours = on_device(x), on_device(y)
        for bins in (5, edges):
            given = [bins, on_device(edges)] if bins is edges else [bins]
            for limits in (None, (-1.0, 1.0 + turn)) if bins is not edges else (None,):
                for weights in (None, x, y):
                    for density in (False, True):
                        own = None if weights is None else ours[0] if weights is x else ours[1]
                        expected, ends = np.histogram(x, bins, limits, density, weights)
                        for ways in given:
                            found, where = kernels.histogram(ours[0], ways, range=limits, weights=own, density=density)
                            assert found.dtype == (np.int64 if weights is None and not density else np.float64)
                            np.testing.assert_allclose(found.numpy_blocking(), expected, rtol=1e-9)
                            np.testing.assert_allclose(where.numpy_blocking(), ends, rtol=1e-14)
        with pytest.raises(ValueError, match="weights have the shape"):
            kernels.histogram(ours[0], 5, weights=ours[1].T)
        with pytest.raises(ValueError, match="range is for a number"):
            kernels.histogram(ours[0], given[1], range=(0, 1))


def test_searching_other_types_again_and_again() -> None:
    """What is searched and what for become one type; a sorter puts it in order; any of them may have gaps."""
    rng = np.random.default_rng(15)
    for _ in range(4):
        x, y = rng.integers(-9, 9, 20), rng.normal(size=(3, 8)).astype("f4") * 5
        order, line = np.argsort(x, kind="stable"), np.sort(x)
        ours, theirs, sorter = on_device(line), on_device(y), on_device(order)
        pairs = [
            (kernels.searchsorted(ours, theirs), np.searchsorted(line, y)),
            (kernels.searchsorted(ours[::2], theirs.T, side="right"), np.searchsorted(line[::2], y.T, "right")),
            (kernels.searchsorted(on_device(line.astype("f4")), ours), np.searchsorted(line, line)),
            (kernels.searchsorted(on_device(x), theirs, sorter=sorter), np.searchsorted(x, y, sorter=order)),
            (
                kernels.searchsorted(on_device(x), ours, side="right", sorter=sorter),
                np.searchsorted(line, line, "right"),
            ),
            (kernels.searchsorted(ours[:0], theirs, sorter=sorter[:0]), np.zeros((3, 8))),
        ]
        assert all(np.array_equal(found.numpy_blocking(), expected) for found, expected in pairs)
        with pytest.raises(ValueError, match="sorter has the shape"):
            kernels.searchsorted(on_device(x), on_device(y), sorter=on_device(order[:3]))


def test_writing_at_indices_again_and_again() -> None:
    """Arrays of any type and shape that fits, and numbers, which are those of each call; what does not fit is refused."""
    rng = np.random.default_rng(16)
    for turn in range(4):
        places, values = rng.permutation(12)[:5], rng.integers(0, 9, 5)
        where, given = on_device(places), on_device(values)
        for number in (turn, 0.5 + turn, np.float32(turn)):
            host, x = np.ones((3, 4), "f4"), on_device(np.ones((3, 4), "f4"))
            host.flat[places] = number
            assert kernels.put(x, where, number) is x
            kernels.scatter_add(x, where, number)
            host.flat[places] += np.float32(number)
            for own, theirs in ((given, values), (given[:1], values[:1]), (on_device(values.astype("f4")), values)):
                kernels.scatter_add(x, where, own)
                host.flat[places] += theirs
            kernels.scatter_add(x, on_device(places[:2] % 3), given[:2].reshape(2, 1), axis=0)
            np.add.at(host, places[:2] % 3, values[:2].reshape(2, 1))
            columns, view = host.T.copy(), on_device(host.T.copy())
            kernels.put(view.T, where, given)
            columns.T.flat[places] = values
            assert np.array_equal(x.numpy_blocking(), host) and np.array_equal(view.numpy_blocking(), columns)
        small = on_device(np.zeros(12, "u1"))
        kernels.put(small, where, 7)
        with pytest.raises(TypeError, match="cannot be written to uint8"):
            kernels.put(small, where, -1)
        with pytest.raises(TypeError, match="cannot be written to uint8"):
            kernels.put(small, where, 1.5)
        with pytest.raises(TypeError, match="integers as indices"):
            kernels.scatter_add(small, on_device(values * 0.5), 1)


def test_norms_of_integers_again_and_again() -> None:
    """They are converted first; long rows, and rows that lie in several dimensions, too."""
    rng = np.random.default_rng(17)
    for _ in range(4):
        for host in (rng.integers(-5, 5, (3, 4, 5)), rng.integers(-5, 5, (2, 9000)), rng.normal(size=9000)):
            for axis in (None, 0, host.ndim - 1, (0, host.ndim - 1) if host.ndim == 3 else None):
                moved = host.reshape(-1) if axis is None else host
                expected = np.sqrt((moved * moved).sum(axis))
                found = kernels.linalg.vector_norm(on_device(host), axis=axis).numpy_blocking()
                np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_products_of_all_kinds_again_and_again() -> None:
    """Batches, integers, operands of two types, transposed and repeated ones, and sums over axes that are named."""
    rng = np.random.default_rng(18)
    for turn in range(4):
        a, b = rng.normal(size=(3, 4, 5)), rng.integers(0, 9, (3, 5, 4))
        x, y, z = on_device(a), on_device(b), on_device(b.astype("f8"))
        pairs = [
            (kernels.matmul(x, z), a @ b),
            (kernels.matmul(x, y), a @ b),
            (kernels.matmul(y, y.transpose(0, 2, 1)), b @ b.mT),
            (kernels.matmul(x[turn % 2 :], z[turn % 2 :]), a[turn % 2 :] @ b[turn % 2 :]),
            (kernels.tensordot(x, z, axes=([2], [1])), np.tensordot(a, b, ([2], [1]))),
            (kernels.tensordot(x[0], z[0], axes=1), np.tensordot(a[0], b[0], 1)),
            (kernels.tensordot(x[0], z[0].T, axes=2), np.tensordot(a[0], b[0].T, 2)),
        ]
        for found, expected in pairs:
            assert found.shape == expected.shape and found.dtype == expected.dtype
            np.testing.assert_allclose(found.numpy_blocking(), expected, rtol=1e-12, atol=1e-12)
        out = aiodev.empty((4, 4, 3), "f8", "cpu").transpose(2, 0, 1)
        assert kernels.matmul(x, z, out=out) is out
        np.testing.assert_allclose(out.numpy_blocking(), a @ b, rtol=1e-12, atol=1e-12)
        with pytest.raises(TypeError, match="expected an integer"):
            kernels.tensordot(x[0], y[0], axes=([1.0], [0]))
        with pytest.raises(ValueError, match="different lengths"):
            kernels.tensordot(x[0], y[0], axes=([0], [0, 1]))
