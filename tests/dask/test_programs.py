"""Random programs of tasks against NumPy: values, order, failures and cancellations, on two workers."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

import dask_tasks
import numpy as np
import pytest
from selection import some

import aiodev
from aiodev import kernels

#: Tasks of a program.
LENGTH = 60
SHAPE = (4, 6)


class Failed(Exception):
    """What the model has in the place of a value that a failure has taken."""


def model_of_failure(x: np.ndarray) -> np.ndarray:
    """What the model has of it."""
    if (x < 0).any():
        raise Failed
    return x * 2


#: Of each operation: how many values it takes, the task, the model.
OPERATIONS: list[tuple[int, Any, Any]] = [
    (1, kernels.negative, np.negative),
    (2, kernels.add, np.add),
    (2, dask_tasks.awaited, lambda x, y: x - y * np.sign(x.max())),
    (2, dask_tasks.in_two_streams, lambda x, y: x * y + x),
    (1, dask_tasks.refuse_negative, model_of_failure),
    (1, lambda x: dask_tasks.first_view(dask_tasks.views(x)), lambda x: x[::-1] + 1),
]


@pytest.mark.parametrize("seed", some(range(20), 3))
async def test_a_random_program_gives_what_numpy_gives(
    client: Any, workers: list[str], until: Callable[..., Any], seed: int
) -> None:
    """Tasks of any kind on either worker; what depends on a failure has that failure, and nothing else does."""
    chance = random.Random(seed)
    values = np.random.default_rng(seed).integers(-3, 4, (3, *SHAPE)).astype(float)
    futures = [(await client.scatter([aiodev.asarray(value, device="cpu")], hash=False))[0] for value in values]
    model: list[Any] = list(values)
    bystanders = []
    for _ in range(LENGTH):
        count, task, expected = chance.choice(OPERATIONS)
        chosen = [chance.randrange(len(model)) for _ in range(count)]
        worker = {} if chance.random() < 0.5 else {"workers": [chance.choice(workers)], "allow_other_workers": True}
        futures.append(client.submit(task, *(futures[place] for place in chosen), pure=False, **worker))
        try:
            given = [model[place] for place in chosen]
            model.append(Failed if any(value is Failed for value in given) else expected(*given))
        except Failed:
            model.append(Failed)
        if chance.random() < 0.1:
            bystanders.append(client.submit(dask_tasks.held, "never", pure=False, **worker))
        if chance.random() < 0.3:
            await asyncio.sleep(0)
    await client.cancel(bystanders)
    for future, expected in zip(futures, model, strict=True):
        if expected is Failed:
            with pytest.raises(aiodev.KernelError, match="negative"):
                await future
        else:
            np.testing.assert_array_equal(await (await future).numpy(), expected)

    async def is_idle() -> bool:
        return not any((await client.run(dask_tasks.pending)).values())

    await until(is_idle)  # what was cancelled is gone
    for notes in (await client.run(dask_tasks.take_notes)).values():
        assert "never" not in notes
