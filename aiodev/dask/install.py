"""Preparing a cluster: every worker has aiodev, this version of it, and a device."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from distributed import Client

import aiodev
from aiodev._core.arguments import function, instance, integer, refusal
from aiodev.dask.errors import WorkerError
from aiodev.dask.plugin import DevicePlugin

__all__ = ["install"]


def install(
    client: Client,
    device: aiodev.Device | str | None = None,
    *,
    seed: int = 0,
    warm_up: Callable[[], object] | None = None,
) -> Any:
    """Prepare the workers of a cluster, those that join later, too, and say which device each has.

    To be called once, before arrays travel. Every worker starts its device, which becomes the default of its process; of a
    type that a host has several devices of, each worker gets another. Workers report ``aiodev_operations_pending``,
    ``aiodev_memory_bytes``, ``aiodev_loop_lag_ms`` and more as metrics, which the dashboard's table of workers shows.

    As Dask's own methods it is awaited with an asynchronous client, and blocks with any other.

    Args:
        client: of the cluster.
        device: a type, such as ``"cuda"``, of which each worker gets a device; or one device for all, such as ``"cuda:1"``.
            By default the best type that a worker has.
        seed: what the random numbers of the tasks follow from, beside their keys.
        warm_up: what each worker calls, and awaits, before it takes tasks: it launches what the tasks will, such as
            ``functools.partial(aiodev.kernels.warm_up, ["add"])``.

    Returns:
        the addresses and devices of the workers that there are; ``{}`` if they have still to come.

    Raises:
        WorkerError: a worker lacks aiodev, has another version of it, or has no such device, or shares its process with another
            worker. One that joins later and cannot take part does not say so here: its log does, and it is given no tasks.
        TypeError: an argument is of another type.

    Example:
        >>> import aiodev.dask
        >>> from dask.distributed import Client
        >>> async def main():
        ...     async with Client(n_workers=2, asynchronous=True) as client:
        ...         await aiodev.dask.install(client)
        ...         x = await client.scatter(aiodev.arange(10))
        ...         return await client.submit(aiodev.kernels.sum, x)
    """
    instance("install", "client", client, Client, "a client of dask.distributed")
    if device is not None:
        if not isinstance(device, aiodev.Device | str):
            raise refusal("install", "device", "a string such as 'cuda' or 'cuda:1', a Device, or None", device)
        aiodev.Device(device)
        device = str(device)
    if warm_up is not None:
        function("install", "warm_up", warm_up)
    plugin = DevicePlugin(device, seed=integer("install", "seed", seed, least=0), warm_up=warm_up)
    return client.sync(_install, client, plugin)


async def _install(client: Client, plugin: DevicePlugin) -> dict[str, aiodev.Device]:
    versions = await client.run(eval, "__import__('aiodev').__version__", on_error="return")
    for worker, version in versions.items():
        if isinstance(version, ImportError):
            raise WorkerError(worker, f"aiodev is not installed there ({version}); pip install 'aiodev[dask]'") from version
        if isinstance(version, Exception):
            raise WorkerError(worker, f"aiodev cannot be imported there: {version}") from version
        if version != aiodev.__version__:
            reason = f"it has aiodev {version}, and the client {aiodev.__version__}; install one version everywhere"
            raise WorkerError(worker, reason)
    try:
        await client.register_plugin(plugin)
    except Exception:  # whatever a worker raised, and whatever warming up did
        with suppress(Exception):
            await client.unregister_worker_plugin(DevicePlugin.name)
        raise
    devices: dict[str, aiodev.Device] = await client.run(aiodev.current_device)
    return devices
