"""The argument block of a launch: where in it each argument of a kernel is.

The block is a row of 8-byte little-endian words: the launch's shape (``ndim`` words), then the scalars in order (one word
each, ``complex128`` two), then the arrays in order. An array is its data address and its shape, and its strides in bytes when
its layout is ``A``. Whoever packs a block (:mod:`aiodev._kernel.dispatch`) and whoever reads one (the backends) agree on this.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from aiodev._core.dtypes import DTYPES, ElementType

__all__ = ["WORD", "KernelArgument", "address_offsets", "parse_arguments"]

WORD: Final = 8  #: bytes of a word
_ARRAY: Final = re.compile(r"A(\d+)([a-z]+\d+)([CA])(r?)")
_SCALAR: Final = re.compile(r"[a-z]+\d+")


class KernelArgument(NamedTuple):
    """One argument of a kernel, and its place in the argument block of a launch.

    Example:
        >>> spec = aiodev.KernelSpec("scale", lambda i, x, a: None, ndim=1, arguments=("A2f4A", "f8"))
        >>> x, a = spec.parse_arguments()
        >>> x.is_array, x.element.name, x.offset  # behind the launch's shape and the number
        (True, 'float32', 16)
        >>> a.is_array, a.offset
        (False, 8)
    """

    dtype: str  #: its code in :data:`aiodev.dtypes.DTYPES`
    ndim: int = -1  #: dimensions of an array, or -1 for a scalar
    layout: str = ""  #: ``C`` or ``A``; empty for a scalar
    readonly: bool = False  #: whether an array may only be read
    offset: int = 0  #: where its words begin, in bytes

    @property
    def is_array(self) -> bool:
        """Whether it is an array."""
        return self.ndim >= 0

    @property
    def element(self) -> ElementType:
        """What there is to know of its dtype."""
        return DTYPES[self.dtype]

    @property
    def itemsize(self) -> int:
        """Bytes of a scalar, or of an element."""
        return DTYPES[self.dtype].itemsize

    @property
    def words(self) -> int:
        """How many words it takes. Those of an array are its address, its shape and, if its layout is ``A``, its strides."""
        if not self.is_array:
            return 2 if self.dtype == "c16" else 1
        return 1 + self.ndim * (1 if self.layout == "C" else 2)


def parse_arguments(ndim: int, descriptors: Sequence[str]) -> list[KernelArgument]:
    """The arguments of a kernel of ``ndim`` dimensions, with their places in the block.

    Raises:
        ValueError: a descriptor that is none.
    """
    parsed = [_parse(descriptor) for descriptor in descriptors]
    offset = WORD * ndim
    placed: dict[int, KernelArgument] = {}
    for wants_array in (False, True):
        for position, argument in enumerate(parsed):
            if argument.is_array is wants_array:
                placed[position] = argument._replace(offset=offset)
                offset += WORD * argument.words
    return [placed[position] for position in range(len(parsed))]


@functools.lru_cache(1 << 12)
def address_offsets(ndim: int, descriptors: tuple[str, ...]) -> tuple[int, ...]:
    """Where a block of such a kernel has the addresses of arrays, in bytes; remembered, since each launch of a graph asks."""
    return tuple([argument.offset for argument in parse_arguments(ndim, descriptors) if argument.is_array])


def _parse(descriptor: str) -> KernelArgument:
    if match := _ARRAY.fullmatch(descriptor):
        ndim, dtype, layout, readonly = match.groups()
        return KernelArgument(dtype, int(ndim), layout, bool(readonly))
    if _SCALAR.fullmatch(descriptor):
        return KernelArgument(descriptor)
    raise ValueError(f"{descriptor!r} describes no argument: expected a dtype code or A<ndim><dtype><C|A>[r]")
