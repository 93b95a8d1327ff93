"""What a forked child finds of backends and streams: what starts afresh there, and what cannot be used."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import pytest
from forking import run

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")


def test_counting_devices_does_not_stand_in_the_way() -> None:
    """Backends that were asked what there is, and not started, start in the child."""
    run(
        """
        aiodev.register_backend("sim", SimulatedBackend)
        assert aiodev.device_count("sim") == 2 and aiodev.device_count("cpu") >= 1
        aiodev.get_device_properties("sim:1"), aiodev.available_backends(), aiodev.current_device()
        in_child(lambda: (use("cpu"), use("sim:1")))
        use("sim:1")
        """
    )


def test_the_cpu_starts_afresh() -> None:
    """A CPU backend that the parent has started starts again in the child, and goes on in the parent."""
    run(
        """
        use("cpu")

        def child():
            assert not aiodev.is_initialized("cpu") and aiodev.is_available("cpu")
            use("cpu")

        before = aiodev.get_backend("cpu")
        in_child(child)
        in_child(lambda: in_child(child))
        assert aiodev.get_backend("cpu") is before
        use("cpu")
        """
    )


def test_other_backends_do_not() -> None:
    """One that has a driver raises in the child, says what to do, and counts as unavailable."""
    run(
        """
        aiodev.register_backend("sim", SimulatedBackend)
        aiodev.init_blocking("sim")

        def child():
            for ask in (aiodev.Stream, aiodev.device, aiodev.init_blocking, aiodev.set_device):
                assert "spawn" in str(raises(aiodev.BadForkError, ask, "sim"))
            assert not aiodev.is_available("sim") and aiodev.device_count("sim") == 0
            assert aiodev.available_backends() == ("cpu",) and aiodev.current_device().type == "cpu"
            use("cpu")
            in_child(lambda: raises(aiodev.BadForkError, aiodev.init_blocking, "sim"))

        in_child(child)
        use("sim")
        """
    )


def test_streams_belong_to_their_process() -> None:
    """A stream of the parent raises in the child, at once, whatever is done with it."""
    run(
        """
        stream, bounded = aiodev.Stream("cpu"), aiodev.Stream("cpu", maxsize=1)
        done = stream.call(sum, [1])
        done.synchronize_blocking(30)

        def child():
            raises(aiodev.BadForkError, stream.call, sum, [1])
            raises(aiodev.BadForkError, stream.synchronize_blocking, 30)
            for theirs in (stream, bounded):
                raises(aiodev.BadForkError, theirs.record_event)
                raises(aiodev.BadForkError, theirs.as_one)
                raises(aiodev.BadForkError, theirs.drain().send, None)
                assert theirs.query() and theirs.qsize() == 0
            use("cpu")

        in_child(child)
        """
    )


@pytest.mark.parametrize("in_flight", [False, True])
def test_synchronizing_waits_for_what_the_child_has_submitted(in_flight: bool) -> None:
    """The streams of the parent are nothing to a child that names none of them; its own failures it is told."""
    run(
        """
        import asyncio
        stream, dropped = aiodev.Stream("cpu"), aiodev.Stream("cpu")
        stream.call(sum, [1]).synchronize_blocking(30)
        gate, behind = dropped._gate(), dropped.call(sum, [1])
        if sys.argv[1] == "True":
            del dropped
        else:
            gate.open()
            behind.synchronize_blocking(30)

        def child():
            def ways():
                yield lambda: aiodev.synchronize_blocking("cpu", 30)
                yield lambda: asyncio.run(aiodev.synchronize("cpu"))

            for synchronize in ways():
                synchronize()
                done = aiodev.Stream("cpu").call(time.sleep, 0.05)
                synchronize()
                assert done.query()
                failing = aiodev.Stream("cpu")
                failing.call(int, "x")
                raises(ValueError, synchronize)
                synchronize()

        in_child(lambda: (child(), in_child(child)))
        gate.open()
        assert behind.synchronize_blocking(30) == 1
        """,
        str(in_flight),
    )


def test_a_fork_waits_for_a_start() -> None:
    """A start in progress comes to its end first, so that the child inherits no half-made state."""
    run(
        """
        from aiodev._core.backend.registry import registry
        starting, may_start = threading.Event(), threading.Event()

        class Slow(SimulatedBackend):
            def start(self):
                starting.set()
                assert may_start.wait(30)
                super().start()

        aiodev.register_backend("sim", Slow)
        heard = []
        threading.Thread(target=aiodev.init_blocking, args=("sim",)).start()
        assert starting.wait(30)
        starter = registry.handle("sim").starter
        join = starter.join

        def join_when_heard(timeout):
            heard.append(timeout)
            may_start.set()
            join(timeout)

        starter.join = join_when_heard
        in_child(lambda: raises(aiodev.BadForkError, aiodev.init_blocking, "sim"))
        assert heard and aiodev.is_initialized("sim")
        """
    )


def test_a_fork_while_the_cpu_starts() -> None:
    """Streams may be made just before a fork: both sides work."""
    run(
        """
        stream = aiodev.Stream("cpu")
        done = stream.call(sum, [1, 2])
        in_child(lambda: use("cpu"))
        assert done.synchronize_blocking(30) == 3
        """
    )


def test_a_thread_that_starts_a_backend_may_fork() -> None:
    """A fork from inside a start does not wait for itself."""
    run(
        """
        class Forking(SimulatedBackend):
            def start(self):
                in_child(lambda: use("cpu"))
                super().start()

        aiodev.register_backend("sim", Forking)
        use("sim")
        """
    )


def test_queued_calls_survive() -> None:
    """What waits for a start that has not begun happens in both processes."""
    run(
        """
        from aiodev._core.backend.registry import registry
        seen = []
        registry.handle("cpu").call_when_started(lambda: seen.append(os.getpid()))

        def child():
            aiodev.init_blocking("cpu")
            assert seen == [os.getpid()]

        in_child(child)
        aiodev.init_blocking("cpu")
        assert seen == [os.getpid()]
        """
    )


def test_forks_from_many_threads() -> None:
    """Threads that fork while others start and use backends neither hang nor break each other."""
    run(
        """
        aiodev.register_backend("sim", SimulatedBackend)

        def work(device):
            for _ in range(5):
                in_child(lambda: use("cpu"))
                use(device)

        threads = [threading.Thread(target=work, args=(d,)) for d in ("cpu", "sim", "cpu", "sim")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(50)
            assert not thread.is_alive()
        """
    )


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_multiprocessing(tmp_path: object, method: str) -> None:
    """Processes of ``multiprocessing`` use the CPU, however they are made, after the parent has used it."""
    program = f"{tmp_path}/program.py"
    with open(program, "w") as file:
        file.write(
            textwrap.dedent(
                f"""
                import multiprocessing
                import aiodev

                def add(numbers):
                    return aiodev.Stream("cpu").call(sum, numbers).synchronize_blocking(30)

                if __name__ == "__main__":
                    assert add([1, 2]) == 3
                    with multiprocessing.get_context({method!r}).Pool(2) as pool:
                        assert pool.map(add, [[1, 2], [3, 4], [5, 6]]) == [3, 7, 11]
                """
            )
        )
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


def test_finished_work_of_the_parent_orders_nothing() -> None:
    """Work of the parent that was done before the fork is still done in the child, to wait for and to query."""
    run(
        """
        stream = aiodev.Stream("cpu")
        done = stream.call(sum, [1])
        done.synchronize_blocking(30)
        event = stream.record_event()

        def child():
            assert done.query() and event.query() and stream.query() and stream.empty()

        in_child(child)
        """
    )


def test_an_array_that_only_its_constructor_has_written() -> None:
    """It is read in the child, and not computed with."""
    run(
        """
        x = aiodev.arange(3, device="cpu")

        def child():
            assert x.numpy_blocking().tolist() == [0, 1, 2]
            with aiodev.Stream("cpu"):
                raises(aiodev.BadForkError, lambda: x + 1)

        in_child(child)
        """
    )


def test_a_guard_around_the_fork() -> None:
    """The parent's current stream is of no use in the child, and the child's default stream is its own."""
    run(
        """
        default = aiodev.default_stream("cpu")
        with aiodev.Stream("cpu") as stream:
            def child():
                raises(aiodev.BadForkError, aiodev.current_stream().call, sum, [1])
                own = aiodev.default_stream("cpu")
                assert own is not default
                for guard in (own, aiodev.Stream()):
                    with guard:
                        assert aiodev.current_stream() is guard
                        assert guard.call(sum, [1]).synchronize_blocking(30) == 1
                with aiodev.device("cpu"):
                    raises(aiodev.BadForkError, aiodev.current_stream().call, sum, [1])

            in_child(child)
            assert aiodev.current_stream() is stream
        """
    )


def test_another_thread_reads_a_native_struct() -> None:
    """What is found out once of a field takes no lock, which a thread of the parent would hold for good in the child."""
    run(
        """
        import signal
        from aiodev._native.fields import Field, Struct

        class Looked(Struct):
            size: int

        holding, over = threading.Event(), threading.Event()

        def wait_in_it(field):
            holding.set()
            assert over.wait(30)
            return False

        place = vars(Field)["is_place"]
        find = next(name for name, value in vars(place).items() if name != "__doc__" and callable(value))
        found = getattr(place, find)
        setattr(place, find, wait_in_it)
        thread = threading.Thread(target=lambda: Looked.fields["size"].is_place)
        thread.start()
        assert holding.wait(30)
        setattr(place, find, found)

        class Other(Struct):
            size: int

        def child():
            signal.alarm(20)
            assert not Other.fields["size"].is_place
            use("cpu")

        in_child(child)
        over.set()
        thread.join()
        """
    )
