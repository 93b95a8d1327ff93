"""What devices know of dtypes: kinds, promotion, and the dtype that kernels compute in.

For NumPy's own dtypes these functions say what NumPy says, by the array API's names: ``can_cast``, ``finfo``, ``iinfo``,
``isdtype`` and ``result_type``. They know ``bfloat16`` as well, which NumPy takes for a dtype without a kind, and the table of
all dtypes that device arrays can have, ``DTYPES``.
"""

from __future__ import annotations

from aiodev._array.dtype_limits import FloatInfo, IntegerInfo, finfo, iinfo, isdtype
from aiodev._array.dtypes import (
    can_cast,
    compute_dtype,
    digits,
    is_stored_only,
    kind,
    kind_of_operand,
    parse_dtype,
    resolve,
    result_type,
    stand_ins,
)
from aiodev._core.dtypes import DTYPES, ElementType

__all__ = [
    "DTYPES",
    "ElementType",
    "FloatInfo",
    "IntegerInfo",
    "can_cast",
    "compute_dtype",
    "digits",
    "finfo",
    "iinfo",
    "is_stored_only",
    "isdtype",
    "kind",
    "kind_of_operand",
    "parse_dtype",
    "resolve",
    "result_type",
    "stand_ins",
]

for _name in __all__:
    _value = globals()[_name]
    if getattr(_value, "__module__", "").startswith("aiodev._"):
        _value.__module__ = "aiodev.dtypes"
del _name, _value


def __dir__() -> list[str]:
    return __all__
