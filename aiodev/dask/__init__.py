"""More than one machine: arrays, devices and coroutine tasks for ``dask.distributed`` (``pip install 'aiodev[dask]'``).

Importing it has Dask send arrays of aiodev as they are, header and frames. :func:`install` gives the workers of a cluster
their devices, and each task a stream. Scheduling, moving data, retries and the dashboard are Dask's own, and so are the ways
to submit tasks: coroutine functions run on a worker's loop, side by side, and plain ones in its threads.
"""

from __future__ import annotations

import aiodev as _aiodev
from aiodev.dask import pickling as _pickling, serializers as _serializers, tokens as _tokens  # noqa: F401  (tell Dask)
from aiodev.dask.blocks import map_blocks
from aiodev.dask.errors import WorkerError
from aiodev.dask.halo import stencil
from aiodev.dask.install import install
from aiodev.dask.plugin import DevicePlugin
from aiodev.dask.reductions import all_reduce, data_parallel, tree_reduce
from aiodev.dask.service import Service

__all__ = [
    "DevicePlugin",
    "Service",
    "WorkerError",
    "all_reduce",
    "data_parallel",
    "install",
    "map_blocks",
    "stencil",
    "tree_reduce",
]

_aiodev.register_library(__name__)

for _name in __all__:
    _value = globals()[_name]
    if getattr(_value, "__module__", "").startswith("aiodev.dask."):
        _value.__module__ = "aiodev.dask"
del _name, _value


def __dir__() -> list[str]:
    return __all__
