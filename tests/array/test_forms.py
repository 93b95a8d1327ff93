"""Forms: what arrays of one layout share, and what is remembered of their views."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

import aiodev
from aiodev._array import form as form_module

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


@pytest.mark.parametrize(
    ("known", "other"),
    [
        (lambda x: x[1], lambda x: x[1.0]),
        (lambda x: x[1], lambda x: x[True]),
        (lambda x: x[:, 1], lambda x: x[:, 1.0]),
        (lambda x: x[:, 1], lambda x: x[:, True]),
        (lambda x: x[:, 1], lambda x: x[:, 3]),
        (lambda x: x[:, 1], lambda x: x[:, -4]),
        (lambda x: x[1], lambda x: x[-3]),
        (lambda x: x[:2], lambda x: x[:2.0]),
        (lambda x: x[:, :2], lambda x: x[:, :2.0]),
        (lambda x: x[..., 1], lambda x: x[..., ...]),
        (lambda x: x[0, 0, 0], lambda x: x[0, 0, 0, 0]),
        (lambda x: x[0, ..., 0, 0], lambda x: x[0, 0, ..., 0, 0]),
        (lambda x: x.reshape(6, 4), lambda x: x.reshape(6.0, 4)),
        (lambda x: x.reshape((6, 4)), lambda x: x.reshape((6, 4.0))),
        (lambda x: x.transpose(0, 2, 1), lambda x: x.transpose(0, 2.0, 1)),
    ],
)
def test_what_only_equals_something_known_is_refused(
    known: Callable[[aiodev.Array], object], other: Callable[[aiodev.Array], object]
) -> None:
    """With the same words as before anything was known."""
    x = on_device()
    forget_all()
    with pytest.raises((IndexError, TypeError, ValueError)) as before:
        other(x)
    known(x)
    known(x)
    with pytest.raises(before.type) as after:
        other(x)
    assert str(after.value) == str(before.value)


items = st.one_of(st.integers(-2, 1), st.slices(3), st.just(...), st.none())


@given(st.lists(st.tuples(items, items) | st.tuples(items, items, items) | items, max_size=6))
def test_indexing_again_gives_the_same(indices: list[Any]) -> None:
    """What NumPy gives, or an error as there, the first time and later, of other arrays too."""
    expected: list[Any] = []
    for index in indices:
        try:
            expected.append(HOST[index])
        except IndexError:
            expected.append(None)
    for _ in range(2):
        x = on_device()
        for index, wanted in zip(indices, expected, strict=True):
            if wanted is None:
                with pytest.raises(IndexError):
                    x[index]
            else:
                assert np.array_equal(x[index].numpy_blocking(), wanted)


def forget_all() -> None:
    while form_module._forms:
        form_module._forget_oldest()


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forms and their views; an array that is older than what was forgotten is indexed right, and remembers anew."""
    monkeypatch.setattr(form_module, "MOST_FORMS", 40)
    monkeypatch.setattr(form_module, "MOST_VIEWS", 20)
    forget_all()
    host = np.arange(200).reshape(2, 100)
    x, form = on_device(host), on_device(host)._form
    for n in range(1, 100):
        assert np.array_equal(x[:, :n].numpy_blocking(), host[:, :n])
        assert np.array_equal(x[:, :n].T.numpy_blocking(), host[:, :n].T)
        assert len(form_module._forms) <= 40
        kept = sum(len(known.views) + len(known.orders) for known in form_module._forms.values())
        assert kept <= form_module._remembered <= 20
    assert not form.is_known and not form.views and not form.orders
    assert x._form is not form and x._form.is_known and x._form.views
    forget_all()
