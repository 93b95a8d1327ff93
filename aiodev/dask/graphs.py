"""Many tasks that depend on each other, as one submission.

To submit them one by one costs client and scheduler a message and a future for each. In a graph the results in between belong
to the scheduler alone, which lets go of them when they have been used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from dask._task_spec import Task, TaskRef
from dask.base import tokenize
from dask.utils import funcname
from distributed import Client, Future

__all__ = ["Graph"]


class Graph:
    """Tasks to be submitted together.

    Args:
        name: of what they belong to.
        identity: what tells these tasks from others of that name; what has the same identity has the same keys.
        inputs: futures that tasks depend on.
    """

    def __init__(self, name: str, identity: Any, inputs: Iterable[Future]) -> None:
        self._inputs = list(inputs)
        self._token = f"{name}-{tokenize(identity, [future.key for future in self._inputs])}"
        self._tasks: dict[str, Task] = {}

    def __len__(self) -> int:
        return len(self._tasks)

    def given(self) -> list[TaskRef]:
        """The results of the inputs."""
        return [TaskRef(future.key) for future in self._inputs]

    def add(self, function: Callable[..., Any], *arguments: Any) -> TaskRef:
        """Add a task; among its arguments may be results of others. Returns its result."""
        key = f"{funcname(function).strip('_')}-{self._token}-{len(self._tasks)}"
        self._tasks[key] = Task(key, function, *arguments)
        return TaskRef(key)

    def submit(self, client: Client, results: Sequence[TaskRef]) -> list[Future]:
        """Submit all; returns the futures of some results."""
        futures: list[Future] = client.get(self._tasks, [result.key for result in results], sync=False)
        return futures
