"""Options of a kernel's decorator, as the plain data that goes into its key and to the compiler."""

from __future__ import annotations

from collections.abc import Collection, Set

from aiodev._core.arguments import shown

__all__ = ["FASTMATH_FLAGS", "Options", "parse_launch", "parse_options"]

#: Sorted pairs of an option that is on and its value: True, a number, or the sorted names of flags.
Options = tuple[tuple[str, bool | int | tuple[str, ...]], ...]

#: LLVM's flags for floating-point instructions, and what each lets the compiler do.
FASTMATH_FLAGS = {
    "afn": "put approximations in the place of functions",
    "arcp": "multiply by a reciprocal instead of dividing",
    "contract": "fuse a product and a sum into one operation with one rounding",
    "ninf": "assume that nothing is infinite",
    "nnan": "assume that nothing is NaN",
    "nsz": "take no care of the sign of zero",
    "reassoc": "reorder sums and products",
}


def parse_options(boundscheck: bool, fastmath: bool | Collection[str]) -> Options:
    """The decorator's options that are on.

    Raises:
        TypeError: ``fastmath`` is neither a bool nor names.
        ValueError: one of them is no flag of LLVM's.
    """
    options: list[tuple[str, bool | int | tuple[str, ...]]] = []
    if boundscheck:
        options.append(("boundscheck", True))
    if not isinstance(fastmath, bool | list | tuple | Set):
        raise TypeError(f"fastmath={fastmath!r}: expected True, False or a set of flags, such as {{'contract', 'nsz'}}")
    if not isinstance(fastmath, bool):
        for flag in fastmath:
            if not isinstance(flag, str) or flag not in FASTMATH_FLAGS:
                raise ValueError(f"fastmath: {flag!r} is no flag; there are {', '.join(FASTMATH_FLAGS)}")
        fastmath = set(fastmath) == set(FASTMATH_FLAGS) or tuple(sorted(set(fastmath)))
    if fastmath:
        options.append(("fastmath", fastmath))
    return tuple(options)


def parse_launch(block: int | None, grid: int | None, team: bool) -> Options:
    """The launch options of a hand-written body.

    Raises:
        TypeError: ``team`` is no truth value.
        ValueError: a number that is not positive, or a team of unknown size.
    """
    for name, value in (("block", block), ("grid", grid)):
        if value is not None and (not isinstance(value, int) or value < 1):
            raise ValueError(f"{name}={value!r}: expected a positive number")
    if not isinstance(team, bool):
        raise TypeError(f"team={shown(team)}: expected True or False")
    if team and block is None:
        raise ValueError("team=True: say how many threads run the body together, as in block=256")
    given = {"block": block, "grid": grid, "team": team or None}
    return tuple((name, value) for name, value in given.items() if value is not None)
