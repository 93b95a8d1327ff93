"""Source of CUDA entries, generated from a kernel's types.

The argument block is that of the CPU (:mod:`aiodev._backends.cpu.compile.entry_source`): 8-byte words. On a GPU each word is a
parameter of its own, so that a launch is one copy of the block, and arrays are made of registers.

An entry is run by every thread of the grid. Each dimension of the shape has one of the grid, the last along x, and a thread
strides over the shape by the grid: any grid covers any shape, neighbouring threads read neighbouring elements, and no
index is ever divided.

Where teams run the body, an index is a block's: all its threads go through the loops alike, so the body may have barriers.
There is one behind each call, before what it shared is used again.
"""

from __future__ import annotations

from typing import Final

from aiodev._core.backend.kernel_arguments import WORD, KernelArgument

__all__ = ["entry_source", "parameters"]

#: Axes of the grid for the dimensions of a shape, outermost first.
_AXES: Final = {1: ("x",), 2: ("y", "x"), 3: ("z", "y", "x")}
_INDICES: Final = ("i", "j", "k")


def parameters(ndim: int, arguments: list[KernelArgument]) -> list[bool]:
    """For each word of the block of a launch, whether it is the address of an array."""
    pointers = [False] * (ndim + sum(argument.words for argument in arguments))
    for argument in arguments:
        if argument.is_array:
            pointers[argument.offset // WORD] = True
    return pointers


def entry_source(name: str, ndim: int, arguments: list[KernelArgument], team: bool = False) -> str:
    """Source of ``name(w0, w1, …)``; it needs the names that :mod:`aiodev._backends.cuda.compile.compiler` gives it."""
    words = [f"w{i}" for i in range(len(parameters(ndim, arguments)))]
    lines = [f"def {name}({', '.join(words)}):"]
    for position, argument in enumerate(arguments):
        first = argument.offset // WORD
        given = words[first : first + argument.words]
        if argument.is_array:
            lines.append(
                f"    a{position} = array_of(T{position}, {given[0]}, ({''.join(f'{w}, ' for w in given[1:])}))"
            )
        else:
            lines.append(f"    a{position} = scalar_of(T{position}, ({', '.join(given)},))")
    indent = "    "
    for dimension, axis in enumerate(_AXES[ndim]):
        index = _INDICES[dimension]
        lines += [
            f"{indent}{index} = {'block' if team else 'first'}_{axis}()",
            f"{indent}while {index} < w{dimension}:",
        ]
        indent += "    "
    values = "".join(f", a{position}" for position in range(len(arguments)))
    lines.append(f"{indent}body({', '.join(_INDICES[:ndim])}{values})")
    if team:
        lines.append(f"{indent}barrier()")
    for dimension, axis in reversed(list(enumerate(_AXES[ndim]))):
        index = _INDICES[dimension]
        lines.append(f"{indent}{index} = advance({index}, {'blocks' if team else 'stride'}_{axis}())")
        indent = indent[4:]
    return "\n".join(lines) + "\n"
