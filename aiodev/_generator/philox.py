"""Philox4x32-10 in plain integers, for what the host derives from a seed.

J. K. Salmon, M. A. Moraes, R. O. Dror, D. E. Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC11 (2011), section
4.3. The kernels have a form of their own, which the same known answers hold for.
"""

from __future__ import annotations

__all__ = ["child_seed", "philox"]

Words = tuple[int, int, int, int]

_LOW = 0xFFFFFFFF
_MULTIPLIERS = 0xD2511F53, 0xCD9E8D57
_STEPS = 0x9E3779B9, 0xBB67AE85
#: The third counter word of derived seeds, "seed" in ASCII: drawing never comes there.
_DERIVED = 0x73656564
_FEISTEL_ROUNDS = 4


def philox(counter: Words, key: tuple[int, int]) -> Words:
    """The block of four words for a counter and a key, low words first."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        p0, p1 = _MULTIPLIERS[0] * c0, _MULTIPLIERS[1] * c2
        c0, c1, c2, c3 = (p1 >> 32) ^ c1 ^ k0, p1 & _LOW, (p0 >> 32) ^ c3 ^ k1, p0 & _LOW
        k0, k1 = (k0 + _STEPS[0]) & _LOW, (k1 + _STEPS[1]) & _LOW
    return c0, c1, c2, c3


def child_seed(seed: int, index: int) -> int:
    """The seed of child ``index`` of the generators with ``seed``.

    A Feistel network over 64 bits, whose round function is Philox under the parent's seed. For one parent it is a bijection
    (every Feistel network is), so no two indices give one seed; and with four rounds of a pseudorandom function it
    cannot be told from a random one (M. Luby, C. Rackoff, "How to construct pseudorandom permutations", 1988).
    """
    left, right = index >> 32, index & _LOW
    for round_ in range(_FEISTEL_ROUNDS):
        mixed = philox((right, round_, _DERIVED, _LOW), (seed & _LOW, seed >> 32))[0]
        left, right = right, left ^ mixed
    return left << 32 | right
