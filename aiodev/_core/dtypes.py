"""The table of element types: what every part of the library knows of a dtype, in one row.

A row is plain data, since the compilers of the backends read it as well as arrays do. Who needs more of a dtype than NumPy
says (how a capsule or a kernel's signature names it, how a number of it is passed, what it is computed in) asks here.

**Storage and computation.** A dtype whose ``computed`` is another one is a way of storing numbers: kernels load its elements
as ``computed``, and round once, when they store. Nothing else is special about ``float16`` and ``bfloat16``.

**Adding one** is a row here and, where numba does not know it, its format (:mod:`aiodev._backends.compile.stored`), which
the compilers of all backends load and store by.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["DTYPES", "ElementType", "element_type"]


class ElementType(NamedTuple):
    """A row of the table: all that the library knows of a dtype.

    Attributes:
        name: NumPy's and the user's name.
        kind: ``b``, ``i``, ``u``, ``f`` or ``c``, as NumPy has them for its own dtypes.
        itemsize: bytes of an element.
        digits: binary digits of a number, without its sign and exponent: floats count up to 2**digits, integers to one less.
        code: its name in the descriptors of kernels' arguments.
        dlpack: DLPack's type code and bits.
        packing: how ``struct`` packs a number of it into 8-byte words. Empty where it cannot: as ``computed``.
        computed: the name of the compute dtype.
        package: the package that defines it for NumPy, where that is another one.

    Example:
        >>> from aiodev.dtypes import DTYPES
        >>> row = DTYPES["bf2"]
        >>> row.name, row.itemsize, row.computed, row.is_stored_only
        ('bfloat16', 2, 'float32', True)
    """

    name: str
    kind: str
    itemsize: int
    digits: int
    code: str
    dlpack: tuple[int, int]
    packing: str
    computed: str
    package: str = ""

    @property
    def is_stored_only(self) -> bool:
        """Whether it is computed in another dtype."""
        return self.computed != self.name


_INT, _UINT, _FLOAT, _BFLOAT, _COMPLEX, _BOOL = 0, 1, 2, 4, 5, 6

#: By code. Numbers are little endian.
DTYPES = {
    row.code: row
    for row in (
        ElementType("bool", "b", 1, 1, "b1", (_BOOL, 8), "?7x", "bool"),
        ElementType("int8", "i", 1, 7, "i1", (_INT, 8), "b7x", "int8"),
        ElementType("int16", "i", 2, 15, "i2", (_INT, 16), "h6x", "int16"),
        ElementType("int32", "i", 4, 31, "i4", (_INT, 32), "i4x", "int32"),
        ElementType("int64", "i", 8, 63, "i8", (_INT, 64), "q", "int64"),
        ElementType("uint8", "u", 1, 8, "u1", (_UINT, 8), "B7x", "uint8"),
        ElementType("uint16", "u", 2, 16, "u2", (_UINT, 16), "H6x", "uint16"),
        ElementType("uint32", "u", 4, 32, "u4", (_UINT, 32), "I4x", "uint32"),
        ElementType("uint64", "u", 8, 64, "u8", (_UINT, 64), "Q", "uint64"),
        ElementType("bfloat16", "f", 2, 8, "bf2", (_BFLOAT, 16), "", "float32", "ml_dtypes"),
        ElementType("float16", "f", 2, 11, "f2", (_FLOAT, 16), "e6x", "float32"),
        ElementType("float32", "f", 4, 24, "f4", (_FLOAT, 32), "f4x", "float32"),
        ElementType("float64", "f", 8, 53, "f8", (_FLOAT, 64), "d", "float64"),
        ElementType("complex64", "c", 8, 24, "c8", (_COMPLEX, 64), "ff", "complex64"),
        ElementType("complex128", "c", 16, 53, "c16", (_COMPLEX, 128), "dd", "complex128"),
    )
}
_by_name = {row.name: row for row in DTYPES.values()}


def element_type(name: str) -> ElementType:
    """The row of a dtype.

    Raises:
        KeyError: no device has it.
    """
    return _by_name[name]
