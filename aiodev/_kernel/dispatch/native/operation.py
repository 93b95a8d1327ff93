"""Calls of operations: what earlier ones have left is looked up by a key, of the options and of what the operands are.

What is not known, or no longer what it was, and what has no key, is called slowly, in Python.
"""

from __future__ import annotations

from aiodev._kernel.dispatch.native.submit import CALL_BYTES, OBJECTS_BYTES, known_objects
from aiodev._kernel.dispatch.states import (
    MOST_PARAMETERS,
    ArrayView,
    FamilyView,
    FormView,
    KnownView,
    OperandPlace,
    OperationCallView,
    OperationPlan,
)
from aiodev._kernel.tuning import RECURS
from aiodev._native.compile import inner, method
from aiodev._native.fields import WORD, Cell
from aiodev._native.intrinsics import on_stack
from aiodev._native.objects import (
    List,
    Object,
    Tuple,
    as_int,
    call,
    clear_error,
    decrement,
    dict_item,
    error_is_set,
    error_matches,
    increment,
    is_true,
    new_int,
    new_tuple,
)

__all__ = ["call_operation"]

#: What stands for a result where a call is not known: no address.
_UNKNOWN = 1
#: What stands for a number of operands where these have no key.
_NONE = -1


@method
def call_operation(own: OperationCallView, given: Cell[int], count: int, names: Tuple | None) -> int:
    """Call an operation with all of its arguments, in the order of its parameters."""
    known = known_objects()
    operands: Cell[int] = Cell(on_stack(OBJECTS_BYTES))
    lengths: Cell[int] = Cell(on_stack(OBJECTS_BYTES))
    number = _NONE
    if names is None and count == OperationPlan(own.plan.content.address).parameters:
        number = _hold(known, own, given, operands, lengths)
    key = 0
    result = _UNKNOWN
    if number != _NONE:
        key = _key_of(known, own, given, operands, number, lengths)
        launch = dict_item(own.known, key) if key != 0 else 0
        if launch != 0:
            result = _call(known, launch, operands, number)
        elif error_is_set() == 0:
            result = _call_by_plan(known, own, Tuple(key), operands, number)
        elif error_matches(known.type_error_class):  # an option has no hash: the body may know what is wrong
            clear_error()
            if key != 0:
                decrement(key)
            key = 0
        else:
            result = 0
        for place in range(number):
            decrement(operands[place].value)
    if result == _UNKNOWN:
        result = _call_slowly(known, own, key, given, count)
    if key != 0:
        decrement(key)
    return result


@inner
def _hold(
    known: KnownView, own: OperationCallView, given: Cell[int], operands: Cell[int], lengths: Cell[int]
) -> int:
    """Take references to the operands, those of sequences, which have ``lengths``, one by one; how many they are."""
    plan = OperationPlan(own.plan.content.address)
    places = OperandPlace(plan.options[plan.option_count].address)
    held = 0
    sequences = 0
    for number in range(plan.operand_count):
        value = Object(given[places[number].place].value)
        if places[number].is_sequence == 0:
            increment(value)
            operands[held].value = value.address
            held += 1
            continue
        items = Tuple(value.address).items
        if value.type == known.list_class:
            items = Cell(List(value.address).items)
        elif value.type != known.tuple_class:
            return _let_go(operands, held)
        length = Tuple(value.address).length
        if held + length + plan.operand_count > MOST_PARAMETERS:
            return _let_go(operands, held)
        for at in range(length):
            increment(items[at].value)
            operands[held].value = items[at].value
            held += 1
        lengths[sequences].value = length
        sequences += 1
    return held


@inner
def _let_go(operands: Cell[int], count: int) -> int:
    """Give references back: the operands have no key."""
    for place in range(count):
        decrement(operands[place].value)
    return _NONE


@inner
def _key_of(
    known: KnownView, own: OperationCallView, given: Cell[int], operands: Cell[int], number: int, lengths: Cell[int]
) -> int:
    """The key of a call, a new tuple, or 0 with an exception.

    In it are the options, the lengths of sequences if there are several, whether the call is in place, and the operands' forms.
    """
    plan = OperationPlan(own.plan.content.address)
    key = new_tuple(plan.option_count + plan.length_count + (plan.in_place >= 0) + number)
    if key == 0:
        return 0
    items = Tuple(key).items
    made = plan.option_count
    for place in range(plan.option_count):
        part = _option(known, own, given[plan.options[place].value].value, own.classes.items[place].value)
        items[place].value = part
        if part == 0:
            decrement(key)
            return 0
    for place in range(plan.length_count):
        items[made].value = new_int(lengths[place].value)
        made += 1
    if plan.in_place >= 0:
        same = known.arrays.true if given[plan.in_place].value == given[plan.written].value else known.arrays.false
        increment(same)
        items[made].value = same
        made += 1
    for place in range(number):
        operand = Object(operands[place].value)
        part = operand.type
        if part == known.array_class and ArrayView(operand.address).form.address != 0:
            part = ArrayView(operand.address).form.address
        increment(part)
        items[made + place].value = part
    return key


@inner
def _option(known: KnownView, own: OperationCallView, value: int, usual: int) -> int:
    """What of an option is in the key, a new reference: itself where nothing else equals it; 0 with an exception."""
    kind = Object(value).type
    is_plain: int = value == known.none or kind == known.str_class or kind == usual
    if kind == usual and usual == known.float_class:
        is_plain = is_true(value)  # 0.0 equals -0.0
    if is_plain:
        increment(value)
        return value
    words: Cell[int] = Cell(on_stack(WORD))
    words.value = value
    return call(own.freeze, words, 1, 0)


@inner
def _call(known: KnownView, function: int, operands: Cell[int], number: int) -> int:
    """Call what may know a call; 0 with an exception."""
    increment(function)
    result = call(function, operands, number, 0)
    decrement(function)
    if result == known.none:
        decrement(result)
        return _UNKNOWN
    return result


@inner
def _call_by_plan(known: KnownView, own: OperationCallView, key: Tuple, operands: Cell[int], number: int) -> int:
    """Have the plan of a family serve a call, but for one in so many, which is looked at; 0 with an exception."""
    kind = new_tuple(key.length)
    if kind == 0:
        return 0
    for place in range(key.length):
        part = key.items[place].value
        if Object(part).type == known.form_class:
            part = FormView(part).key
        increment(part)
        Tuple(kind).items[place].value = part
    family = FamilyView(dict_item(own.families, kind))
    decrement(kind)
    if family.address == 0:
        return 0 if error_is_set() != 0 else _UNKNOWN
    if as_int(family.served) % RECURS == 0:
        return _UNKNOWN
    increment(family)
    result = _call(known, family.plan, operands, number)
    if result != _UNKNOWN and result != 0:
        last = family.served
        served = new_int(as_int(last) + 1)
        if served != 0:
            family.served = served
            decrement(last)
        else:
            clear_error()  # one more or less is no matter
    decrement(family)
    return result


@inner
def _call_slowly(known: KnownView, own: OperationCallView, key: int, given: Cell[int], count: int) -> int:
    """Have Python call it."""
    words: Cell[int] = Cell(on_stack(CALL_BYTES))
    words.value = key if key != 0 else known.none
    for place in range(count):
        words[1 + place].value = given[place].value
    return call(own.slow, words, 1 + count, 0)
