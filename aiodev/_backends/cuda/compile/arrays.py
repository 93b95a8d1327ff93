"""Arrays of numba-cuda, whatever version of NumPy is there.

numba-cuda, which is maintained no more, names ``numpy.row_stack`` while it is imported, and NumPy has none from 2.5 on
(NVIDIA/numba-cuda#907): no kernel would compile. So the name is lent to it for that moment.
"""

from __future__ import annotations

from typing import Any

import numpy

__all__ = ["implementations", "make_array", "populate_array", "shared_array"]


def _row_stack(arrays: Any) -> Any:
    return numpy.vstack(arrays)


_lent = not hasattr(numpy, "row_stack")
if _lent:
    vars(numpy)["row_stack"] = _row_stack
try:
    from numba.cuda.cudaimpl import cuda_shared_array_integer as shared_array, registry as implementations
    from numba.cuda.np.arrayobj import make_array, populate_array
finally:
    if _lent:
        del vars(numpy)["row_stack"]
