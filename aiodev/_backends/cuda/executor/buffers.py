"""Command buffers: commands that are executed together, as CUDA graphs.

The first time a buffer's commands are submitted to the queue's stream, one after the other: code that a kernel's first launch
loads, and what a library does when it is first called, does not become a part of a graph. The second time they are captured,
on a stream that serves nothing else, and instantiated; from then on an execution is one call of the driver. Both wait until
nothing of the queue is ahead, and are the poller's.

What an execution patches is written when its turn comes: to memory of the device by the stream, ahead of the commands; to
arguments of kernels by changing the nodes of the executable graph, which graphs that were launched before do not see. Where
arguments of other commands have changed the commands are captured anew, and the executable graph is updated from that.

A kernel that can fail says which command it is, by a negative number in place of an operation's; which operation, follows from
there being one such execution at most in the driver's hands. All kernels of such a buffer look at the queue's fault record;
that there is nothing else behind one that can fail is for who makes the buffer to see.

What the driver does not capture is submitted each time, as the first time.

A block that runs as a value in the device's memory says is a conditional node, whose body is captured on a stream of its own.
A kernel (:mod:`aiodev._backends.cuda.executor.ptx`) sets the node's condition: ahead of it, and at the end of each round
of a loop. It looks at the queue's fault record as well: what follows a failure does not run, and no loop goes on behind one.
Only the device can tell which commands of such a buffer are to run, so it is captured the first time already, and what the
driver refuses fails. Handles of conditions belong to the graph that they were made for: where any argument has changed, that is
made anew.

A signal is a kernel of ours, too. Which queue it signals, it finds in a word of the device's memory, which each execution
patches: so that no argument changes.
"""

from __future__ import annotations

from aiodev._backends.cuda.executor.copies import write_pattern
from aiodev._backends.cuda.executor.driver import call, word_here
from aiodev._backends.cuda.executor.foreign_calls import call_here, note_outcome
from aiodev._backends.cuda.executor.grids import lay_out
from aiodev._backends.cuda.executor.progress import driver_failed, write_completion
from aiodev._backends.cuda.structs import (
    ARGUMENT,
    OP_BLOCK,
    OP_COPY,
    OP_END,
    OP_EXECUTE,
    OP_FILL,
    OP_LAUNCH,
    OP_SIGNAL,
    RELAXED,
    Buffer,
    Device,
    Entry,
    ForeignCalls,
    Parameters,
    Queue,
    Step,
)
from aiodev._backends.cuda.tuning import WARMED
from aiodev._backends.executor.locking import lock, unlock
from aiodev._native.compile import inner
from aiodev._native.fields import WORD, Cell, sizeof
from aiodev._native.intrinsics import copy_memory, get, put

_NOT_FOUND = 500
_CONDITIONAL, _WHILE = 13, 1  #: CU_GRAPH_NODE_TYPE_CONDITIONAL, CU_GRAPH_COND_TYPE_WHILE
_ASSIGN_DEFAULT, _SET = 1, 1  #: CU_GRAPH_COND_ASSIGN_DEFAULT, CU_STREAM_SET_CAPTURE_DEPENDENCIES


@inner
def is_prepared(operation: int, a: int) -> bool:
    """Whether handing an operation on needs no more than a call or two of the driver."""
    if operation != OP_EXECUTE:
        return True
    buffer = Buffer(a)
    return buffer.count == 0 or (buffer.executable != 0 and buffer.refused == 0)


@inner
def following(step: Step) -> Step:
    """The next command."""
    return Step(step.parameters.arguments.address + 2 * step.nbytes)


@inner
def give_words(buffer: Buffer, address: int, nbytes: int) -> None:
    """Have ``extra`` be so many bytes of a kernel's parameters."""
    buffer.extra[0].value = 1
    buffer.extra[1].value = address
    buffer.extra[2].value = 2
    buffer.extra[3].value = buffer.parameter_bytes.address
    buffer.extra[4].value = 0
    buffer.parameter_bytes.value = nbytes


@inner
def give_parameters(buffer: Buffer, step: Step) -> None:
    """Have ``extra`` and the grid be those of a launch."""
    parameters = step.parameters
    give_words(buffer, parameters.address, sizeof(Parameters) + step.nbytes)
    lay_out(Entry(step.entry), Cell(parameters.arguments.address), buffer.grid)


@inner
def launch_step(device: Device, buffer: Buffer, step: Step, stream: int) -> int:
    """Launch a kernel of a buffer; the driver's status."""
    function = Entry(step.entry).functions[device.index].value
    if function == 0:
        return _NOT_FOUND
    give_parameters(buffer, step)
    grid = buffer.grid
    return call(
        device.driver.cuLaunchKernel, function, grid.columns, grid.rows, grid.planes, grid.wide, grid.high, 1, 0, stream, 0,
        buffer.extra,
    )  # fmt: skip


@inner
def last_node(device: Device, stream: int) -> int:
    """The node that what is captured next depends on; 0 where there is not one."""
    state: Cell[int] = Cell(word_here())
    nodes: Cell[int] = Cell(word_here())
    count: Cell[int] = Cell(word_here())
    count.value = nodes.value = 0
    status = call(device.driver.cuStreamGetCaptureInfo, stream, state, 0, 0, nodes, count)
    return get(nodes.value) if status == 0 and count.value == 1 else 0


@inner
def launch_our_own(queue: Queue, device: Device, buffer: Buffer, step: Step, stream: int, function: int, count: int) -> int:
    """Launch a kernel of ours: its words are the fault record that it looks at, and the step's arguments; the driver's status.

    Those of ``count`` that come behind are in their places.
    """
    words, arguments = buffer.own_parameters, step.parameters.arguments
    words[0].value = queue.record if buffer.fallible != 0 else 0
    words[1].value = arguments[0].value
    words[2].value = arguments[1].value
    give_words(buffer, words.address, count * WORD)
    return call(device.driver.cuLaunchKernel, function, 1, 1, 1, 1, 1, 1, 0, stream, 0, buffer.extra)


@inner
def set_condition(queue: Queue, device: Device, buffer: Buffer, block: Step, stream: int) -> int:
    """Have a kernel look whether a block is to run, on a stream that is captured; the driver's status."""
    buffer.own_parameters[3].value = block.node
    return launch_our_own(queue, device, buffer, block, stream, device.set_condition, 4)


@inner
def begin_block(queue: Queue, device: Device, buffer: Buffer, block: Step, stream: int, inside: int) -> int:
    """Add a conditional node to what is captured on ``stream``, and have ``inside`` be captured into its body.

    Returns the driver's status; unless that is 0, ``inside`` is not captured.
    """
    driver = device.driver
    state: Cell[int] = Cell(word_here())
    graph: Cell[int] = Cell(word_here())
    handle: Cell[int] = Cell(word_here())
    nodes: Cell[int] = Cell(word_here())
    count: Cell[int] = Cell(word_here())
    node: Cell[int] = Cell(word_here())
    graph.value = handle.value = nodes.value = count.value = node.value = 0
    status = call(driver.cuStreamGetCaptureInfo, stream, state, 0, graph, 0, 0)
    if status == 0:  # no block runs whose condition nobody has set
        status = call(driver.cuGraphConditionalHandleCreate, handle, graph.value, device.context, 0, _ASSIGN_DEFAULT)
    if status == 0:
        block.node = handle.value
        status = set_condition(queue, device, buffer, block, stream)
    if status == 0:
        status = call(driver.cuStreamGetCaptureInfo, stream, state, 0, 0, nodes, count)
    words = buffer.block_parameters
    if status == 0:
        for i in range(32):
            words[i].value = 0
        words[0].value = _CONDITIONAL
        words[2].value = handle.value
        words[3].value = block.entry | 1 << 32
        words[5].value = device.context
        status = call(driver.cuGraphAddNode, node, graph.value, nodes.value, count.value, words)
    if status == 0:
        status = call(driver.cuStreamUpdateCaptureDependencies, stream, node, 1, _SET)
    if status == 0:
        status = call(driver.cuStreamBeginCaptureToGraph, inside, get(words[4].value), 0, 0, 0, RELAXED)
    return status


@inner
def end_block(queue: Queue, device: Device, buffer: Buffer, block: Step, inside: int) -> int:
    """End the capture of a body, whose last kernel looks whether there is another round of it; the driver's status."""
    body: Cell[int] = Cell(word_here())
    body.value = outcome = 0
    if block.entry == _WHILE:
        outcome = set_condition(queue, device, buffer, block, inside)
    status = call(device.driver.cuStreamEndCapture, inside, body)
    return outcome if outcome != 0 else status


@inner
def submit_step(queue: Queue, device: Device, buffer: Buffer, step: Step, number: int, stream: int, noted: bool) -> int:
    """Submit a command that is no block's beginning or end; 0, or its status, as of :func:`make_calls` where that was it."""
    operation, size = step.operation, step.size
    arguments = step.parameters.arguments
    outcome = 0
    if operation == OP_LAUNCH:
        step.parameters.record = queue.record if buffer.fallible != 0 else 0
        step.parameters.value = -1 - number
        if size > 0:
            outcome = launch_step(device, buffer, step, stream)
            Entry(step.entry).launched |= 1 << device.index
            if noted:
                step.node = last_node(device, stream) if outcome == 0 else 0
    elif operation == OP_COPY:
        if size > 0:
            outcome = call(device.driver.cuMemcpyAsync, arguments[0].value, arguments[1].value, size, stream)
    elif operation == OP_FILL:
        if size > 0:
            outcome = write_pattern(device, stream, arguments[0].value, size, arguments[1].address, step.entry)
    elif operation == OP_SIGNAL:
        outcome = launch_our_own(queue, device, buffer, step, stream, device.signal, 3)
    else:
        outcome = call_here(queue, stream, ForeignCalls(arguments.address))
    return outcome


@inner
def walk(queue: Queue, device: Device, buffer: Buffer, stream: int, noted: bool) -> int:
    """Submit the commands to a stream, until one fails; 0, or its status, as of :func:`make_calls` where that was it.

    Blocks need a stream that is captured. If ``noted``, the nodes that commands become are.
    """
    depth = 0
    own = stream
    outcome = 0
    step = buffer.first
    for number in range(buffer.count):
        if outcome != 0:
            break
        if step.operation == OP_BLOCK:
            inside = device.block_streams[depth].value
            outcome = begin_block(queue, device, buffer, step, own, inside)
            if outcome == 0:
                own = inside
                depth += 1
        elif step.operation == OP_END:
            outcome = end_block(queue, device, buffer, Step(step.entry), own)
            depth -= 1
            own = stream if depth == 0 else device.block_streams[depth - 1].value
        else:
            outcome = submit_step(queue, device, buffer, step, number, own, noted)
        step = following(step)
    body: Cell[int] = Cell(word_here())
    for place in range(depth):
        call(device.driver.cuStreamEndCapture, device.block_streams[depth - 1 - place].value, body)
    return outcome


@inner
def capture(queue: Queue, device: Device, buffer: Buffer, noted: bool, graph: Cell[int]) -> int:
    """Capture the commands into a graph; as :func:`walk`. Needs the lock of captures."""
    graph.value = 0
    stream = device.capture_stream
    status = call(device.driver.cuStreamBeginCapture, stream, RELAXED)
    if status != 0:
        return status
    outcome = walk(queue, device, buffer, stream, noted)
    status = call(device.driver.cuStreamEndCapture, stream, graph)
    return outcome if outcome != 0 else status


@inner
def give_back(device: Device, buffer: Buffer) -> None:
    """Destroy the graphs of a buffer that nothing executes. Needs the context."""
    if buffer.executable != 0:
        call(device.driver.cuGraphExecDestroy, buffer.executable)
    if buffer.graph != 0:
        call(device.driver.cuGraphDestroy, buffer.graph)
    buffer.executable = buffer.graph = 0


@inner
def remember(buffer: Buffer) -> None:
    """Note that the nodes have the arguments as they are."""
    step = buffer.first
    for _ in range(buffer.count):
        arguments = step.parameters.arguments.address
        copy_memory(arguments + step.nbytes, arguments, step.nbytes)
        step = following(step)


@inner
def instantiate(queue: Queue, device: Device, buffer: Buffer) -> int:
    """Make the executable graph, or update it to what the commands are now; as :func:`walk`."""
    graph: Cell[int] = Cell(word_here())
    lock(device.capture_lock)
    outcome = 0
    if buffer.blocks != 0:
        give_back(device, buffer)
    if buffer.executable != 0:
        outcome = capture(queue, device, buffer, False, graph)
        if outcome == 0 and call(device.driver.cuGraphExecUpdate, buffer.executable, graph.value, buffer.outcome) != 0:
            give_back(device, buffer)
        if graph.value != 0:
            call(device.driver.cuGraphDestroy, graph.value)
    if outcome == 0 and buffer.executable == 0:
        outcome = capture(queue, device, buffer, buffer.blocks == 0, graph)
        buffer.graph = graph.value
        if outcome == 0:
            executable: Cell[int] = Cell(word_here())
            executable.value = 0
            outcome = call(device.driver.cuGraphInstantiateWithFlags, executable, buffer.graph, 0)
            buffer.executable = executable.value if outcome == 0 else 0
    unlock(device.capture_lock)
    if outcome != 0:
        give_back(device, buffer)
    buffer.record = queue.record
    remember(buffer)
    return outcome


@inner
def write_patches(queue: Queue, device: Device, patches: int, nbytes: int) -> int:
    """Write what is patched: arguments here, since what was handed on before has its own; memory of the device by the stream.

    Returns the driver's status.
    """
    for number in range(nbytes // (2 * WORD)):
        address, word = get(patches + 2 * WORD * number), get(patches + 2 * WORD * number + WORD)
        if address & ARGUMENT != 0:
            if get(address ^ ARGUMENT) != word:
                put(address ^ ARGUMENT, word)
                device.patched.fetch_add(1)
        else:
            status = call(device.driver.cuStreamWriteValue64, queue.stream, address, word, 0)
            if status != 0:
                return status
    return 0


@inner
def is_changed(step: Step) -> bool:
    """Whether its node has other arguments."""
    arguments = step.parameters.arguments.address
    different = False
    for at in range(0, step.nbytes, WORD):
        different = different or get(arguments + at) != get(arguments + step.nbytes + at)
    return different


@inner
def is_stale(buffer: Buffer) -> bool:
    """Whether arguments have changed that no node can be given: those of what is no kernel, and all where there are blocks."""
    step = buffer.first
    for _ in range(buffer.count):
        if (step.operation != OP_LAUNCH or buffer.blocks != 0) and is_changed(step):
            return True
        step = following(step)
    return False


@inner
def change_nodes(device: Device, buffer: Buffer) -> int:
    """Give the executable graph the arguments of kernels that have changed; the driver's status."""
    step = buffer.first
    for _ in range(buffer.count):
        if step.node != 0 and is_changed(step):
            entry = Entry(step.entry)
            give_parameters(buffer, step)
            grid, words = buffer.grid, buffer.node_parameters
            words[0].value = entry.functions[device.index].value
            words[1].value = grid.columns | grid.rows << 32
            words[2].value = grid.planes | grid.wide << 32
            words[3].value = grid.high | 1 << 32
            words[4].value = words[5].value = 0
            words[6].value = buffer.extra.address
            words[7].value = words[8].value = 0
            status = call(device.driver.cuGraphExecKernelNodeSetParams, buffer.executable, step.node, words)
            if status != 0:
                return status
            arguments = step.parameters.arguments.address
            copy_memory(arguments + step.nbytes, arguments, step.nbytes)
        step = following(step)
    return 0


@inner
def submit_commands(queue: Queue, device: Device, buffer: Buffer, is_new: bool, patched: int) -> int:
    """Launch the graph, or submit the commands where there is none yet; as :func:`walk`."""
    blocks = buffer.blocks != 0
    if buffer.refused == 0 and (blocks or not (buffer.runs == 0 and buffer.count <= WARMED)):
        outcome = 0
        if is_new or (not blocks and buffer.seen != patched and change_nodes(device, buffer) != 0):
            outcome = instantiate(queue, device, buffer)
        buffer.seen = patched
        if outcome == 0:
            return call(device.driver.cuGraphLaunch, buffer.executable, queue.stream)
        buffer.refused = outcome
    return buffer.refused if blocks else walk(queue, device, buffer, queue.stream, False)


@inner
def may_be_stale(queue: Queue, device: Device, buffer: Buffer, patched: bool) -> bool:
    """Whether an execution, which changes arguments if ``patched``, may have the commands captured anew."""
    if buffer.fallible != 0 and buffer.record != queue.record:
        return True
    if not patched and buffer.seen == device.patched.load():
        return False
    step = buffer.first
    for _ in range(buffer.count):
        if step.operation != OP_LAUNCH:
            return True
        step = following(step)
    return False


@inner
def can_fail(buffer: Buffer) -> bool:
    """Whether there is a kernel among the commands that can."""
    step = buffer.first
    for _ in range(buffer.count):
        if step.operation == OP_LAUNCH and Entry(step.entry).fallible != 0:
            return True
        step = following(step)
    return False


@inner
def execute(queue: Queue, device: Device, value: int, buffer: Buffer, patches: int, nbytes: int) -> bool:
    """Execute a buffer as operation ``value``; False: not yet."""
    if buffer.runs == 0 and buffer.blocks != 0:  # when it was made, its kernels may not have been loaded
        buffer.fallible = 1 if can_fail(buffer) else 0
    fallible = buffer.fallible != 0
    if buffer.count > 0 and buffer.executable == 0 and queue.completed.load() != value - 1:
        return False
    outcome = write_patches(queue, device, patches, nbytes)
    if buffer.count > 0 and outcome == 0:
        patched = device.patched.load()
        is_new = buffer.executable == 0 or (fallible and buffer.record != queue.record)
        is_new = is_new or (buffer.seen != patched and is_stale(buffer))
        if is_new and queue.completed.load() != value - 1:
            return False
        if fallible:
            queue.executing = value
            queue.executing_buffer = buffer
            queue.last_fallible.value = value
        outcome = submit_commands(queue, device, buffer, is_new, patched)
        buffer.runs += 1
    if outcome >> 32 != 0:
        note_outcome(queue, value, outcome)
    elif outcome != 0:
        driver_failed(queue, device, value, outcome)
    return write_completion(queue, device, value, fallible)
