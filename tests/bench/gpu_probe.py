"""What the driver does, asked of libcuda alone, before anything of aiodev: ``python3 tests/bench/gpu_probe.py``.

About 25 s on one GPU. Each check is by itself; those that may crash run in processes of their own. One line a fact, and all of
them as JSON in the file that ``PROBE_JSON`` names. ``PROBE_LIBCUDA`` names another library, such as the driver's stand-in.
"""

from __future__ import annotations

import ctypes as C
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

PTX = b"""
.version 7.8
.target sm_70
.address_size 64
.visible .entry spin(.param .u64 ns)
{ .reg .u64 %r<4>; .reg .pred %p;
  ld.param.u64 %r0, [ns];
  mov.u64 %r1, %globaltimer;
L: mov.u64 %r2, %globaltimer;
  sub.u64 %r3, %r2, %r1;
  setp.lt.u64 %p, %r3, %r0;
  @%p bra L;
  ret; }
.visible .entry poke(.param .u64 at, .param .u64 v)
{ .reg .u64 %r<3>;
  ld.param.u64 %r0, [at]; ld.param.u64 %r1, [v];
  st.global.u64 [%r0], %r1;
  ret; }
\0"""

#: Takes something from a word, and sets a condition to what is left.
CONDITION = b"""
.version 6.0
.target sm_50
.address_size 64
.extern .func cudaGraphSetConditional (.param .b64 handle, .param .b32 value);
.visible .entry count_down(.param .u64 handle, .param .u64 at, .param .u64 less)
{ .reg .b64 %handle, %at, %less, %left; .reg .b32 %value;
  .param .b64 first; .param .b32 second;
  ld.param.u64 %handle, [handle]; ld.param.u64 %at, [at]; ld.param.u64 %less, [less];
  ld.global.u64 %left, [%at];
  sub.u64 %left, %left, %less;
  st.global.u64 [%at], %left;
  cvt.u32.u64 %value, %left;
  st.param.b64 [first], %handle; st.param.b32 [second], %value;
  call.uni cudaGraphSetConditional, (first, second);
  ret; }
\0"""

lib = C.CDLL(os.environ.get("PROBE_LIBCUDA", "libcuda.so.1"))
lookup = lib.cuGetProcAddress_v2
lookup.argtypes = [C.c_char_p, C.c_void_p, C.c_int, C.c_uint64, C.c_void_p]
found: dict[str, Any] = {}
facts: dict[str, Any] = {}
#: Seconds that kernels are to hold the device for, as a part of what they do on a GPU: less on the stand-in.
SCALE = float(os.environ.get("PROBE_SCALE", "1"))


def raw(name: str, *a: Any, version: int = 12000) -> int:
    """The status of a call; -1 where the driver has no such function."""
    if name not in found:
        p = C.c_void_p()
        lookup(name.encode(), C.byref(p), version, 0, None)
        found[name] = C.CFUNCTYPE(C.c_int)(p.value) if p.value else None
    if found[name] is None:
        return -1
    return int(found[name](*[C.c_int64(x) if isinstance(x, int) else x for x in a]))


def cu(name: str, *a: Any) -> None:
    """A call that must succeed."""
    s = raw(name, *a)
    if s:
        t = C.c_char_p()
        raw("cuGetErrorName", s, C.byref(t))
        raise RuntimeError(f"{name}: {s} {(t.value or b'').decode()}")


def num(name: str, *a: Any) -> int:
    """The number that a call writes where its first argument says."""
    n = C.c_int64()
    cu(name, C.byref(n), *a)
    return n.value


def ms(f: Callable[..., Any], *a: Any) -> float:
    """What a call takes."""
    t = time.perf_counter()
    f(*a)
    return round((time.perf_counter() - t) * 1e3, 3)


def hold(seconds: float) -> int:
    """Nanoseconds for a kernel that holds the device."""
    return int(seconds * SCALE * 1e9)


def fact(name: str, value: Any) -> None:
    """Take a note."""
    facts[name] = value
    print(f"{name}: {value}", flush=True)


def start() -> None:
    """The context, and kernels made of PTX."""
    global dev, ctx, spin, poke, pinned, words
    fact("cuInit ms", ms(cu, "cuInit", 0))
    dev = num("cuDeviceGet", 0)
    t = time.perf_counter()
    ctx = num("cuDevicePrimaryCtxRetain", dev)
    cu("cuCtxSetCurrent", ctx)
    fact("context ms", round((time.perf_counter() - t) * 1e3))
    t = time.perf_counter()
    module = num("cuModuleLoadData", C.c_char_p(PTX))
    spin, poke = (num("cuModuleGetFunction", module, C.c_char_p(n)) for n in (b"spin", b"poke"))
    fact("PTX jit ms", round((time.perf_counter() - t) * 1e3))
    pinned = num("cuMemHostAlloc", 1 << 20, 3)
    words = (C.c_int64 * (1 << 17)).from_address(pinned)
    launch(spin, stream(), 1000)


def stream(priority: int = 0) -> int:
    """A stream that does not wait for the legacy one."""
    return num("cuStreamCreateWithPriority", 1, priority)


def launch(f: int, s: int, *args: int) -> None:
    """A kernel of one thread."""
    block = (C.c_int64 * len(args))(*args)
    size = C.c_size_t(8 * len(args))
    extra = (C.c_void_p * 5)(1, C.addressof(block), 2, C.addressof(size), 0)
    cu("cuLaunchKernel", f, 1, 1, 1, 1, 1, 1, 0, s, None, extra)


def write(s: int, i: int, v: int) -> None:
    """Have a stream write a word."""
    cu("cuStreamWriteValue64", s, pinned + 8 * i, v, 0)


def until(i: int, v: int, limit: float = 10.0) -> None:
    """Wait until a word is so much."""
    end = time.perf_counter() + limit
    while words[i] < v:
        if time.perf_counter() > end:
            raise RuntimeError(f"word {i} is {words[i]}, not {v}, after {limit} s")


def idle() -> None:
    """Wait for the device."""
    cu("cuCtxSynchronize")


def attributes() -> None:
    """What the device says that it can."""
    fact("driver", num("cuDriverGetVersion"))
    for name, code in {
        "64-bit memory operations": 122, "VMM": 102, "RDMA with VMM": 110, "pageable memory (HMM)": 88,
        "host page tables (ATS)": 100, "pools": 115, "host pointer of registered memory": 91, "compute preemption": 90,
        "copy engines": 40, "host native atomics": 86,
    }.items():  # fmt: skip
        fact(f"attribute {name}", num("cuDeviceGetAttribute", code, dev))
    a, b = C.c_int(), C.c_int()
    cu("cuCtxGetStreamPriorityRange", C.byref(a), C.byref(b))
    fact("priorities", (a.value, b.value))
    fact("CUDA_DEVICE_MAX_CONNECTIONS", os.environ.get("CUDA_DEVICE_MAX_CONNECTIONS"))


def costs() -> None:
    """What calls take, on the host and to the end."""
    s, n = stream(), 400
    e = num("cuEventCreate", 2)
    out = C.c_int64()
    host = (C.c_char * 65536)()
    d = num("cuMemAlloc", 1 << 20)
    for name, f in {
        "launch": lambda i: launch(poke, s, d, i), "write": lambda i: write(s, 1, i),
        "record": lambda i: cu("cuEventRecord", e, s), "query": lambda i: raw("cuStreamQuery", s),
        "get current": lambda i: cu("cuCtxGetCurrent", C.byref(out)),
        "attribute of host": lambda i: raw("cuPointerGetAttribute", C.byref(out), 2, C.addressof(host)),
        "attribute of device": lambda i: cu("cuPointerGetAttribute", C.byref(out), 2, d),
        "copy 8 B on device": lambda i: cu("cuMemcpyAsync", d, d + 64, 8, s),
        "copy 64 KiB from ordinary": lambda i: cu("cuMemcpyAsync", d, C.addressof(host), 65536, s),
    }.items():  # fmt: skip
        f(0)
        idle()
        t = time.perf_counter()
        for i in range(n):
            f(i)
        host_us = (time.perf_counter() - t) / n * 1e6
        idle()
        end_us = (time.perf_counter() - t) / n * 1e6
        fact(f"us a call, with ~1 of ctypes: {name}", (round(host_us, 2), "to the end", round(end_us, 2)))
    t = time.perf_counter()
    for i in range(n):
        launch(poke, s, d, i), write(s, 2, i + 1)
    until(2, n)
    fact("us a launch with its write, to the end", round((time.perf_counter() - t) / n * 1e6, 2))
    fact("status of an ordinary address", raw("cuPointerGetAttribute", C.byref(out), 2, C.addressof(host)))


def order() -> None:
    """A kernel's store to host memory is there when the stream's write behind it is."""
    s, bad = stream(), 0
    for i in range(1, 3001):
        launch(poke, s, pinned + 8 * 64, i)
        write(s, 128, i)
        until(128, i)
        bad += words[64] != i
    fact("stores that came after the counter (of 3000)", bad)


def across() -> None:
    """A wait for a counter in host memory, and one by event: from one stream's end to the other's."""
    a, b = stream(), stream()
    e = num("cuEventCreate", 2)
    for name in ("value", "event", "value", "event"):
        t = time.perf_counter()
        k = words[200]
        for _ in range(200):
            k += 1
            launch(spin, a, 1000)
            write(a, 200, k)
            if name == "value":
                cu("cuStreamWaitValue64", b, pinned + 1600, k, 0)
            else:
                cu("cuEventRecord", e, a), cu("cuStreamWaitEvent", b, e, 0)
            launch(spin, b, 1000)
            write(b, 201, k)
            cu("cuStreamWaitValue64", a, pinned + 1608, k, 0)
        until(201, k)
        fact(f"us a round of two streams by {name}", round((time.perf_counter() - t) / 200 * 1e6, 1))


def depth() -> None:
    """How many operations a busy stream takes before a submission blocks; whether other threads' calls then do."""
    for label, pair in (("launches", False), ("launches, each with its write", True)):
        s, other = stream(), stream()
        beside, longest = threading.Event(), {"launch": 0.0, "query": 0.0}

        def call_others(other: int = other, beside: threading.Event = beside, longest: dict[str, float] = longest) -> None:
            cu("cuCtxSetCurrent", ctx)
            while not beside.wait(0.005):
                longest["launch"] = max(longest["launch"], ms(launch, spin, other, 10))
                longest["query"] = max(longest["query"], ms(raw, "cuStreamQuery", other))

        thread = threading.Thread(target=call_others)
        thread.start()
        launch(spin, s, hold(0.4))
        n, worst = 0, 0.0
        while worst < 20 and n < 5000:
            t = time.perf_counter()
            launch(spin, s, 10)
            if pair:
                write(s, 300, n)
            worst = max(worst, (time.perf_counter() - t) * 1e3)
            n += 1
        beside.set()
        thread.join()
        fact(f"{label} behind a kernel until one blocks for 20 ms", n if n < 5000 else "none of 5000")
        fact("    which took ms", round(worst, 1))
        fact(f"    meanwhile the longest calls of another thread on another stream, {label}, ms", longest)
        idle()
    s, other, event = stream(), stream(), num("cuEventCreate", 1 | 2)
    launch(spin, s, hold(0.3))
    cu("cuEventRecord", event, s)

    def wait() -> None:
        cu("cuCtxSetCurrent", ctx)
        cu("cuEventSynchronize", event)

    thread = threading.Thread(target=wait)
    thread.start()
    time.sleep(0.02)
    fact("a launch while another thread waits for an event, ms", round(ms(launch, spin, other, 10), 2))
    thread.join()
    idle()
    streams = [stream() for _ in range(96)]
    aim, worst = words[301] + 1, 0.0
    launch(spin, streams[0], hold(0.4))
    write(streams[0], 301, aim)
    for s in streams[1:]:
        cu("cuStreamWaitValue64", s, pinned + 8 * 301, aim, 0)
    for _ in range(128):
        for s in streams[1:]:
            t = time.perf_counter()
            launch(spin, s, 10), write(s, 302, 1)
            worst = max(worst, (time.perf_counter() - t) * 1e3)
    fact("longest submission, 95 streams x 256 entries behind a wait, ms", round(worst, 1))
    idle()


def apart() -> None:
    """Whether streams wait for each other."""
    low, high = facts["priorities"]
    for label, priorities in (("one priority", [0]), ("three priorities", [0, (low + high) // 2, high])):
        for n in (8, 32, 96):
            streams = [stream(priorities[i % len(priorities)]) for i in range(n)]
            t = time.perf_counter()
            for r in range(2):
                for i, s in enumerate(streams):
                    launch(spin, s, hold(0.01)), write(s, 400 + i, r + 1)
            idle()
            fact(f"2 x 10 ms on {n} streams of {label}, each with its write, ms", round((time.perf_counter() - t) * 1e3))


def blocked() -> None:
    """Calls while a kernel of 300 ms is running: those that take as long wait for the device."""
    s, other = stream(), stream()
    host = (C.c_char * (1 << 20))()
    d = num("cuMemAlloc", 4 << 20)
    kept: dict[str, int] = {}
    prop = (C.c_char * 32).from_buffer_copy(b"\1\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0".ljust(32, b"\0"))
    access = (C.c_char * 12).from_buffer_copy(b"\1\0\0\0\0\0\0\0\3\0\0\0")
    size = 32 << 20

    def mapped() -> None:
        kept["a"] = num("cuMemAddressReserve", size, 0, 0, 0)
        h = num("cuMemCreate", size, prop, 0)
        cu("cuMemMap", kept["a"], size, 0, h, 0)
        cu("cuMemRelease", h)

    def module() -> None:
        m = num("cuModuleLoadData", C.c_char_p(PTX + b" "))
        kept["f"] = num("cuModuleGetFunction", m, C.c_char_p(b"spin"))

    calls = {
        "cuStreamCreate": lambda: stream(), "cuEventCreate": lambda: num("cuEventCreate", 2),
        "cuMemAlloc 256 MiB": lambda: kept.update(m=num("cuMemAlloc", 1 << 28)),
        "cuMemHostAlloc 1 MiB": lambda: num("cuMemHostAlloc", 1 << 20, 3),
        "cuMemCreate and cuMemMap 32 MiB": mapped,
        "cuMemSetAccess 32 MiB": lambda: cu("cuMemSetAccess", kept["a"], size, access, 1),
        "cuMemUnmap 32 MiB": lambda: cu("cuMemUnmap", kept["a"], size), "load a module": module,
        "its first launch": lambda: launch(kept["f"], other, 10),
        "cuMemGetInfo": lambda: num("cuMemGetInfo", C.byref(C.c_size_t())),
        "copy 64 KiB of ordinary memory, other stream": lambda: cu("cuMemcpyAsync", d, C.addressof(host), 65536, other),
        "copy 64 KiB of ordinary memory, the busy stream": lambda: cu("cuMemcpyAsync", d, C.addressof(host), 65536, s),
        "cuMemsetD2D32Async of 65536 rows, other stream": lambda: cu("cuMemsetD2D32Async", d, 16, 7, 1, 65536, other),
        "cuMemFree 256 MiB": lambda: cu("cuMemFree", kept["m"]),
    }  # fmt: skip
    for name, call in calls.items():
        launch(spin, s, hold(0.3))
        try:
            fact(f"beside a kernel of 300 ms, ms: {name}", ms(call))
        except RuntimeError as error:
            fact(f"beside a kernel of 300 ms: {name}", str(error))
        idle()


def host_function() -> None:
    """How soon the driver calls one, and goes on."""
    times: list[Any] = []
    s = stream()
    called = C.CFUNCTYPE(None, C.c_void_p)(lambda _: times.append(time.perf_counter()))
    for _ in range(20):
        end, t = words[500] + 1, time.perf_counter()
        cu("cuLaunchHostFunc", s, called, None)
        write(s, 500, end)
        until(500, end)
        times[-1] = (times[-1] - t, time.perf_counter() - t)
    fact("host function, us: called, stream goes on", tuple(round(sorted(x[i] for x in times)[10] * 1e6) for i in (0, 1)))


def captures() -> None:
    """Whether asking after the whole context, or the legacy stream, costs another stream's capture."""
    others = {
        "cuCtxRecordEvent": lambda e: raw("cuCtxRecordEvent", ctx, e, version=12050),
        "cuEventRecord on the legacy stream": lambda e: raw("cuEventRecord", e, 1),
        "cuStreamQuery of another stream": lambda e: raw("cuStreamQuery", other),
        "cuEventQuery": lambda e: raw("cuEventQuery", e),
        "cuStreamIsCapturing of the legacy stream": lambda e: raw("cuStreamIsCapturing", 1, C.byref(C.c_int())),
    }
    other = stream()
    for name, call in others.items():
        s, e, graph = stream(), num("cuEventCreate", 2), C.c_void_p()
        if raw("cuStreamBeginCapture", s, 2) == -1:
            fact("captures", "this driver has none")
            return
        raw("cuThreadExchangeStreamCaptureMode", C.byref(C.c_int(2)))
        launch(poke, s, pinned, 1)
        status = call(e)
        fact(f"beside a capture: {name}", (status, "then ending the capture", raw("cuStreamEndCapture", s, C.byref(graph))))


def conditions() -> None:
    """Whether a graph may have a loop, whose condition a kernel sets that is compiled from PTX; and what a round takes."""
    module, driver = C.c_int64(), num("cuDriverGetVersion")
    status = raw("cuModuleLoadData", C.byref(module), C.c_char_p(CONDITION)) if driver >= 12040 else -1
    print(f"driver {driver}, compiling the kernel that sets a condition: {status}", flush=True)
    if status != 0:
        return
    count_down = num("cuModuleGetFunction", module.value, C.c_char_p(b"count_down"))
    s, inside, at = stream(), stream(), pinned + 8 * 300
    state, graph, handle, nodes, count, node, body = (C.c_int64() for _ in range(7))
    said = [raw("cuStreamBeginCapture", s, 2), raw("cuStreamGetCaptureInfo", s, C.byref(state), 0, C.byref(graph), 0, 0)]
    said.append(raw("cuGraphConditionalHandleCreate", C.byref(handle), graph.value, ctx, 0, 1, version=12030))
    launch(count_down, s, handle.value, at, 0)
    said.append(raw("cuStreamGetCaptureInfo", s, C.byref(state), 0, 0, C.byref(nodes), C.byref(count)))
    given = (C.c_int64 * 32)(13, 0, handle.value, 1 | 1 << 32, 0, ctx)
    said.append(raw("cuGraphAddNode", C.byref(node), graph.value, nodes.value, count.value, given, version=12020))
    said.append(raw("cuStreamUpdateCaptureDependencies", s, C.byref(node), 1, 1))
    print(f"statuses until the loop's node is there: {said}", flush=True)
    first = C.c_int64.from_address(given[4]).value
    said = [raw("cuStreamBeginCaptureToGraph", inside, first, 0, 0, 0, 2, version=12030)]
    launch(count_down, inside, handle.value, at, 1)
    said += [raw("cuStreamEndCapture", inside, C.byref(body)), raw("cuStreamEndCapture", s, C.byref(graph))]
    executable = C.c_int64()
    said.append(raw("cuGraphInstantiateWithFlags", C.byref(executable), graph.value, 0))
    print(f"statuses until it is instantiated: {said}; the body is the node's: {first == body.value}", flush=True)
    for rounds in (0, 3, 1000):
        words[300] = rounds
        t = time.perf_counter()
        said = [raw("cuGraphLaunch", executable.value, s), raw("cuCtxSynchronize")]
        took = (time.perf_counter() - t) * 1e6
        print(f"{rounds} rounds: {said}, {words[300]} left, {took:.0f} us", flush=True)


def alone(mode: str) -> None:
    """In a process of its own: what may crash."""
    start()
    if mode == "conditions":
        conditions()
    elif mode == "destroyed":
        s = stream()
        cu("cuStreamDestroy", s)
        print("cuStreamIsCapturing of a destroyed stream:", raw("cuStreamIsCapturing", s, C.byref(C.c_int())), flush=True)
        whole = raw("cuCtxRecordEvent", ctx, num("cuEventCreate", 2), version=12050)
        print("cuCtxRecordEvent after its end:", whole, flush=True)
        print("cuEventRecord on it:", raw("cuEventRecord", num("cuEventCreate", 2), s), flush=True)
    elif mode == "lost":
        s, t = stream(), time.perf_counter()
        launch(poke, s, 0x10, 1)
        write(s, 1, 1)
        while (status := raw("cuStreamQuery", s)) == 600:
            pass
        after = (time.perf_counter() - t) * 1e3
        print(f"after {after:.1f} ms cuStreamQuery says {status}; the counter is {words[1]}", flush=True)
        wrote, allocated = raw("cuStreamWriteValue64", s, pinned, 1, 0), raw("cuMemAlloc", C.byref(C.c_int64()), 64)
        print(f"write: {wrote} alloc: {allocated}", flush=True)
    elif mode == "fork":
        words[5] = 7
        child = os.fork()
        if child == 0:
            seen = words[5]
            words[5] = 9
            os._exit(seen)
        status = os.waitpid(child, 0)[1]
        print(f"child: {status} (1792 = it read 7; 11 = it crashed); the parent now sees {words[5]}", flush=True)
    elif mode == "exit":
        s, e = stream(), num("cuEventCreate", 3)
        launch(spin, s, hold(3))
        cu("cuEventRecord", e, s)

        def wait() -> None:
            cu("cuCtxSetCurrent", ctx)
            raw("cuEventSynchronize", e)

        threading.Thread(target=wait, daemon=True).start()
        time.sleep(0.2)
        print("leaving with 3 s of work and a thread in the driver", flush=True)


def main() -> int:
    """One check after the other, whichever fails; how many did."""
    os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "32")
    failed = 0
    for check in (start, attributes, costs, order, across, host_function, captures, blocked, depth, apart):
        began = time.perf_counter()
        try:
            check()
        except Exception as error:  # the others say more
            failed += 1
            fact(f"FAILED {check.__name__}", f"{type(error).__name__}: {error}")
        print(f"── {check.__name__}: {time.perf_counter() - began:.1f} s", flush=True)
    for mode in ("conditions", "destroyed", "lost", "fork", "exit"):
        began = time.perf_counter()
        try:
            done = subprocess.run([sys.executable, __file__, mode], capture_output=True, text=True, timeout=40)
        except subprocess.TimeoutExpired:
            fact(mode, "hangs")
        else:
            took = f"{time.perf_counter() - began:.1f} s"
            fact(mode, (done.returncode, done.stdout.strip().splitlines()[-6:], done.stderr[-200:], took))
    if "PROBE_JSON" in os.environ:
        Path(os.environ["PROBE_JSON"]).write_text(json.dumps(facts))
    return failed


if __name__ == "__main__":
    if len(sys.argv) > 1:
        alone(sys.argv[1])
    else:
        raise SystemExit(main())
