"""Forms: what arrays of one layout share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from native import load_native

import aiodev
from aiodev import kernels
from aiodev._array import form as form_module
from aiodev._array.tuning import MOST_FORMS

HOST = np.arange(24, dtype="i4").reshape(2, 3, 4)


def on_device(host: Any = HOST) -> aiodev.Array:
    """A copy on the CPU device."""
    return aiodev.asarray(host, device="cpu")


def test_arrays_of_one_layout_share_a_form() -> None:
    """So do their views; all rows have one form, and so have all columns."""
    x, y = on_device(), on_device()
    assert x._form is y._form and x[:, :2]._form is y[:, :2]._form
    assert x[0]._form is x[1]._form is y[-1]._form
    assert x[:, 1]._form is y[:, 2]._form and x.T._form is y.transpose()._form
    assert x.reshape(6, 4)._form is y.reshape((6, -1))._form
    others = x[:, :3][:, :1], aiodev.empty(x.shape, "f4", "cpu"), aiodev.broadcast_to(x, x.shape), x[..., ::-1]
    assert len({x._form, *(other._form for other in others)}) == 5


def forget_all() -> None:
    while form_module._forms:
        form_module._forget_oldest()


@pytest.mark.parametrize("index", ["__getitem__", "_full_getitem"])
def test_forms_are_bounded(index: str) -> None:
    """Native code and Python's have the same table; an array that is older than what was forgotten is indexed as any."""
    load_native()
    forget_all()
    host = np.arange(24, dtype="i4").reshape(2, 12)
    x = on_device(host)
    row, most = aiodev.empty(MOST_FORMS + 100, "i1", "cpu"), 0
    for n in range(1, row.size + 1):
        getattr(row, index)(slice(n))
        most = max(most, len(form_module._forms))
    assert most == MOST_FORMS
    forms = form_module._forms.values()
    assert x._form not in forms and row[: row.size]._form in forms
    assert np.array_equal(getattr(x, index)((slice(None), slice(3, None))).numpy_blocking(), host[:, 3:])
    same = getattr(x, index)(...)._form
    assert same is not x._form and same in forms and on_device(host)._form is same
    forget_all()


@pytest.mark.parametrize(
    "ask",
    [
        lambda x: aiodev.empty((1,) * 65, device="cpu"),
        lambda x: aiodev.zeros((1,) * 65, device="cpu"),
        lambda x: x[None],
        lambda x: x.reshape((1,) * 65),
        lambda x: aiodev.broadcast_to(x, (2, *x.shape)),
        lambda x: kernels.stack([x, x]),
        lambda x: kernels.random.normal(shape=(1,) * 65, device="cpu"),
    ],
)
def test_no_array_has_more_dimensions_than_numpys(ask: Callable[[aiodev.Array], aiodev.Array]) -> None:
    """It could not be read: it is refused where it would be made, each time; as many as NumPy's have are fine."""
    x = aiodev.ones((1,) * 64, device="cpu")
    for _ in range(2):
        with pytest.raises(ValueError, match="shape of 65 dimensions: an array has at most 64"):
            ask(x)
    assert (x + 1).numpy_blocking() == np.full(x.shape, 2)
