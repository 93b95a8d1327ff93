"""DLPack's description of an array, as plain data; :mod:`aiodev._array.capsules` makes and reads the capsules.

Source of the numbers and of the rules: ``dlpack.h`` 1.1 and the "Python specification for DLPack".
"""

from __future__ import annotations

from typing import NamedTuple

from aiodev._array.dtypes import DType
from aiodev._array.layout import Shape

__all__ = ["CPU", "CUDA", "VERSION", "Tensor"]

#: Device types.
CPU, CUDA = 1, 2
#: The newest version that is known here.
VERSION = (1, 0)


class Tensor(NamedTuple):
    """An array as a capsule describes it."""

    address: int  #: of the first element
    device: tuple[int, int]  #: DLPack's device type, and index
    dtype: DType
    shape: Shape
    strides: Shape  #: in bytes
    read_only: bool
    copied: bool = False
