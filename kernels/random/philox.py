"""Philox4x32-10, as kernels compute it.

J. K. Salmon, M. A. Moraes, R. O. Dror, D. E. Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC11 (2011), section
4.3. Checked against the known answers that its authors publish with Random123.

A word is held in 64 bits, of which only the lower 32 mean anything until the end: what stands above does not reach a product
of lower halves, and xor keeps the halves apart. So a round is two widening multiplications, two shifts and two three-way
xors, which vector units do for all lanes at once, and no step depends on how a target rounds or promotes.
"""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["HALF", "LOW", "block", "double_word"]

LOW = np.uint64(0xFFFFFFFF)
HALF = np.uint64(32)
_ROUNDS = 10
_M0, _M1 = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_W0, _W1 = np.uint64(0x9E3779B9), np.uint64(0xBB67AE85)


def block(low: Any, high: Any, seed: Any) -> Any:
    """Four words of 32 bits, each a ``uint64``, for a counter of 128 bits in two halves and a key of 64.

    Draws count in ``low``. ``high`` is 0 but for elements that need more words than one block has: those take further
    blocks with the same ``low``, which belongs to no other draw.

    Example:
        >>> import aiodev, numpy as np
        >>> from aiodev.kernels import random
        >>> [int(word) for word in random.block(np.uint64(0), np.uint64(0), np.uint64(1))]
        [3823634032, 3842641596, 2515673792, 3054873127]
        >>> random.random_raw(4, generator=aiodev.Generator("cpu").manual_seed(1)).numpy_blocking().tolist()
        [3823634032, 3842641596, 2515673792, 3054873127]
    """
    c0, c1, c2, c3 = low, low >> HALF, high, high >> HALF
    k0, k1 = seed & LOW, seed >> HALF
    for _ in range(_ROUNDS):
        p0, p1 = _M0 * (c0 & LOW), _M1 * (c2 & LOW)
        c0, c1, c2, c3 = (p1 >> HALF) ^ c1 ^ k0, p1, (p0 >> HALF) ^ c3 ^ k1, p0
        k0, k1 = k0 + _W0, k1 + _W1
    return c0 & LOW, c1 & LOW, c2 & LOW, c3 & LOW


def double_word(first: Any, second: Any) -> Any:
    """Two words as one of 64 bits; the first is the low one."""
    return first | (second << HALF)
