"""Numbers among a kernel's arguments, as the bytes that it is given.

Most are ints and floats of Python, which are read where they lie and converted here. What has other numbers packs them as
``struct`` does, which takes as long as a launch's other arguments together, and knows why one does not fit its type.
"""

from __future__ import annotations

from aiodev._kernel.dispatch.signature import DOUBLE, SINGLE
from aiodev._kernel.dispatch.states import KnownView
from aiodev._native.compile import inner
from aiodev._native.fields import WORD, Cell
from aiodev._native.intrinsics import copy_memory, double_of, on_stack, put, single_of
from aiodev._native.objects import Bytes, Float, Object, as_int, call, clear_error, decrement, error_is_set, new_int

__all__ = ["put_number", "put_word"]

#: Of a number of ``float32``: all but its sign, and of an infinity.
_MAGNITUDE, _INFINITY = 0x7FFFFFFF, 0x7F800000
#: The same of ``float64``.
_DOUBLE_MAGNITUDE, _DOUBLE_INFINITY = (1 << 63) - 1, 0x7FF << 52


@inner
def put_number(known: KnownView, form: int, pack: int, number: Object, to: int) -> int:
    """Write a number at an address, as its form says (``signature.number_form``); how many bytes it has, 0 with an exception.

    ``pack`` packs what is neither an int nor a float, or does not fit.
    """
    done = 0
    if number.type == known.float_class:
        done = _put_double(form, Float(number.address).bits, to)
    elif number.type == known.int_class:
        word = as_int(number.address)
        if word != -1 or error_is_set() == 0:
            done = _put_int(form, word, to)
        else:
            clear_error()
    return WORD if done != 0 else _put_packed(pack, number, to)


@inner
def put_word(form: int, pack: int, word: int, to: int) -> int:
    """The same for a number that is in a word."""
    if _put_int(form, word, to):
        return WORD
    number = new_int(word)
    if number == 0:
        return 0
    nbytes = _put_packed(pack, Object(number), to)
    decrement(number)
    return nbytes


@inner
def _put_packed(pack: int, number: Object, to: int) -> int:
    words: Cell[int] = Cell(on_stack(WORD))
    words.value = number.address
    packed = call(pack, words, 1, 0)
    if packed == 0:
        return 0
    nbytes = Bytes(packed).length
    copy_memory(to, Bytes(packed).content, nbytes)
    decrement(packed)
    return nbytes


@inner
def _put_int(form: int, word: int, to: int) -> int:
    """Write an int in a word; 0 where the form has none, or it does not fit."""
    if 0 < form <= DOUBLE:
        return _put_double(form, double_of(word), to)
    if form > 0:
        unused = 64 - form
        if word << unused >> unused != word:
            return 0
        put(to, word if unused == 0 else word & ((1 << form) - 1))
        return 1
    if form == 0 or word < 0 or word >> (-form - 1) > 1:
        return 0
    put(to, word)
    return 1


@inner
def _put_double(form: int, bits: int, to: int) -> int:
    """Write a number of ``float64``; 0 where it does not become one of the form."""
    if form == DOUBLE:
        put(to, bits)
        return 1
    if form != SINGLE:
        return 0
    single = single_of(bits)
    if single & _MAGNITUDE == _INFINITY and bits & _DOUBLE_MAGNITUDE != _DOUBLE_INFINITY:
        return 0
    put(to, single)
    return 1
