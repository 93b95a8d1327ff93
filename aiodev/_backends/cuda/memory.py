"""Device memory of the CUDA backend: the driver's allocations, and ranges of addresses that memory is mapped into.

A range is an address reservation (``cuMemAddressReserve``). Behind each of its granules is physical memory of its own
(``cuMemCreate``, ``cuMemMap``), because the driver unmaps whole handles only, and the allocator above gives back whatever
granules are free. A handle is released as soon as it is mapped: the mapping alone then keeps the memory, and unmapping frees
it, so there is no table of handles to keep.

The driver's own granule is 2 MiB. Since each costs three calls, a granule here is larger on a large device: at most a 4096th of
its memory, so that what the rounding of a range's end can waste does not matter.
"""

from __future__ import annotations

import ctypes
import struct
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import cast

from aiodev._backends.cuda.driver import Driver, DriverError
from aiodev._backends.cuda.executor.progress import is_sticky
from aiodev._backends.cuda.tuning import LEAST_GRANULES
from aiodev._core.errors import DeviceLostError
from aiodev._native.compile import Function

__all__ = ["DeviceMemory"]

_PORTABLE = 1 | 2  # CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP
_VIRTUAL_MEMORY = 102  # CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED
_REMOTE_ACCESS = 110  # CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED
_PINNED, _ON_DEVICE, _READ_WRITE = 1, 1, 3  # CU_MEM_ALLOCATION_TYPE_…, CU_MEM_LOCATION_TYPE_…, CU_MEM_ACCESS_FLAGS_PROT_…
_MINIMUM = 0  # CU_MEM_ALLOC_GRANULARITY_MINIMUM


class DeviceMemory:
    """Memory of one device, and page-locked memory of the host; thread-safe, as the driver is.

    Once the device is lost, asking for memory raises DeviceLostError, and giving it back does nothing: it is gone.

    Args:
        driver: the driver.
        index: the device's, for messages.
        ordinal: the driver's number for the device.
        context: its primary context.
        total: bytes that the device has.
    """

    def __init__(self, driver: Driver, index: int, ordinal: int, context: int, total: int) -> None:
        self.driver, self.index, self.context, self.total = driver, index, context, total
        doing = f"asking how cuda:{index} maps memory"
        #: Entered around whatever may wait for the device.
        self.waiting: Callable[[], AbstractContextManager[None]] = nullcontext
        self.granularity = 0  #: bytes that ranges are mapped in; 0 where the device cannot
        self._reserved: dict[int, tuple[int, int]] = {}  # what the driver reserved, by the first address of a range
        self._access = struct.pack("<iii", _ON_DEVICE, ordinal, _READ_WRITE)  # CUmemAccessDesc
        if driver.number("cuDeviceGetAttribute", _VIRTUAL_MEMORY, ordinal, doing=doing):
            remote = driver.number("cuDeviceGetAttribute", _REMOTE_ACCESS, ordinal, doing=doing) != 0
            least = (remote and self._try(ordinal, True, doing)) or self._try(ordinal, False, doing)
            self.granularity = self._least = least
            while 0 < 2 * self.granularity * LEAST_GRANULES <= total:
                self.granularity *= 2

    def _try(self, ordinal: int, remote: bool, doing: str) -> int:
        """The driver's granularity, if it really maps such memory; 0 if not, which not every virtual machine says before."""
        # CUmemAllocationProp: type, shareable handles, location, a word for Windows, compression, RDMA, usage, padding.
        self._kind = struct.pack("<iiiiQBBH4x", _PINNED, 0, _ON_DEVICE, ordinal, 0, 0, int(remote), 0)
        try:
            with self.driver.bound(self.context):
                least = self.driver.number("cuMemGetAllocationGranularity", self._kind, _MINIMUM, doing=doing)
            self.granularity = self._least = least
            address = self.reserve(least)
            try:
                with suppress(MemoryError):  # others have it all at present
                    self.map(address, least)
                    self.unmap(address, least)
            finally:
                self.release(address, least)
        except DriverError:
            self.granularity = 0
            return 0
        return least

    # Allocations

    def allocate(self, nbytes: int) -> int:
        """Address of fresh device memory."""
        if nbytes > self.total:
            raise MemoryError(f"{nbytes:,} bytes asked for, cuda:{self.index} has {self.total:,}")
        with self._doing(f"allocating {nbytes:,} bytes") as doing:
            return self.driver.number("cuMemAlloc", max(1, nbytes), doing=doing)

    def deallocate(self, address: int, nbytes: int) -> None:
        """Give back what ``allocate`` gave. The driver may wait for all of the device's work."""
        with suppress(DeviceLostError), self._doing(f"freeing {nbytes:,} bytes") as doing:
            self.driver.call("cuMemFree", address, doing=doing)

    def info(self) -> tuple[int, int]:
        """Bytes free and in total."""
        total = ctypes.c_size_t()
        with self._doing("asking for the memory") as doing:
            free = self.driver.number("cuMemGetInfo", ctypes.byref(total), doing=doing)
        return free, min(total.value, self.total)

    def allocate_pinned(self, nbytes: int) -> int:
        """Address of page-locked host memory, which every device can reach at that address."""
        if nbytes > sys.maxsize:  # which the driver would be told as another size
            raise MemoryError(f"{nbytes:,} bytes of page-locked memory asked for")
        with self._doing(f"allocating {nbytes:,} bytes of page-locked memory") as doing:
            return self.driver.number("cuMemHostAlloc", max(1, nbytes), _PORTABLE, doing=doing)

    def deallocate_pinned(self, address: int) -> None:
        """Give back what ``allocate_pinned`` gave."""
        with suppress(DeviceLostError), self._doing("freeing page-locked memory") as doing:
            self.driver.call("cuMemFreeHost", address, doing=doing)

    # Ranges

    def reserve(self, nbytes: int) -> int:
        """First of ``nbytes`` addresses that are nobody else's; they cannot be touched.

        It is a multiple of our granularity, for which the driver is not asked: its alignment is that of its own granule.
        """
        size = nbytes + self.granularity - self._least
        with self._doing(f"reserving {nbytes:,} bytes of addresses") as doing:
            reserved = self.driver.number("cuMemAddressReserve", size, 0, 0, 0, doing=doing)
        address = -(-reserved // self.granularity) * self.granularity
        self._reserved[address] = reserved, size
        return address

    def map(self, address: int, nbytes: int) -> None:
        """Put memory behind a part of a range, one handle a granule; if one cannot be had, none is."""
        with self._doing(f"mapping {nbytes:,} bytes") as doing:
            end = address
            try:
                while end < address + nbytes:
                    self._map_granule(end, doing)
                    end += self.granularity
                self.driver.call("cuMemSetAccess", address, nbytes, self._access, 1, doing=doing)
            except BaseException:  # Ctrl-C too: nothing may stay mapped that nobody knows of
                with suppress(MemoryError, DriverError):  # the first failure is what counts
                    self._unmap(address, end - address, doing)
                raise

    def _map_granule(self, address: int, doing: str) -> None:
        handle = self.driver.number("cuMemCreate", self.granularity, self._kind, 0, doing=doing)
        try:
            self.driver.call("cuMemMap", address, self.granularity, 0, handle, 0, doing=doing)
        finally:
            self.driver.call("cuMemRelease", handle, doing=doing)

    def unmap(self, address: int, nbytes: int) -> None:
        """Give the memory back; the addresses stay reserved."""
        with suppress(DeviceLostError), self._doing(f"unmapping {nbytes:,} bytes") as doing:
            self._unmap(address, nbytes, doing)

    def _unmap(self, address: int, nbytes: int, doing: str) -> None:
        for granule in range(address, address + nbytes, self.granularity):
            self.driver.call("cuMemUnmap", granule, self.granularity, doing=doing)

    def release(self, address: int, nbytes: int) -> None:
        """Give a range back."""
        with suppress(DeviceLostError), self._doing(f"giving {nbytes:,} bytes of addresses back") as doing:
            self.driver.call("cuMemAddressFree", *self._reserved[address], doing=doing)
            del self._reserved[address]

    @contextmanager
    def _doing(self, what: str) -> Iterator[str]:
        """With the context current; gives what a message says is being done. A lost device is DeviceLostError."""
        try:
            with self.waiting(), self.driver.bound(self.context):
                yield f"{what} on cuda:{self.index}"
        except DriverError as error:
            if cast(Function, is_sticky).py_func(error.status):
                reason = f"{error.status_name} ({error.status}): {error.text}"
                raise DeviceLostError(f"cuda:{self.index}", reason) from error
            raise
