"""The same numbers on every kind of device and processor."""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import aiodev
from aiodev.kernels import random
from aiodev.testing import SimulatedBackend

Draw = Callable[[aiodev.Generator], aiodev.Array]

COUNT = 10_007

#: Integers, and floats that are exact: the same bits everywhere.
EXACT: dict[str, Draw] = {
    "random_raw": lambda g: random.random_raw(COUNT, generator=g),
    "random float32": lambda g: random.random(COUNT, dtype="f4", generator=g),
    "random float64": lambda g: random.random(COUNT, generator=g),
    "bernoulli": lambda g: random.bernoulli(0.3, COUNT, generator=g),
    "integers": lambda g: random.integers(-7, 3 << 30, COUNT, generator=g),
    "integers of 64 bits": lambda g: random.integers(-(2**62), 2**63, COUNT, generator=g),
    "permutation": lambda g: random.permutation(COUNT, generator=g),
    "choice": lambda g: random.choice(10**12, 100, False, generator=g),
    "weighted choice": lambda g: random.choice(100, 50, False, np.arange(100.0), generator=g),
    "categorical": lambda g: random.categorical(np.arange(100.0), COUNT, generator=g),
    "multinomial": lambda g: random.multinomial(COUNT, [1, 2, 3], generator=g),
    "poisson of small mean": lambda g: random.poisson(3, COUNT, generator=g),
    "poisson of large mean": lambda g: random.poisson(300, COUNT, generator=g),
}
#: Transformed numbers: units in the last place by which devices may differ.
TRANSFORMED: dict[str, tuple[Draw, int]] = {
    "uniform float32": (lambda g: random.uniform(-3, 5, COUNT, dtype="f4", generator=g), 1),
    "normal float32": (lambda g: random.standard_normal(COUNT, dtype="f4", generator=g), 4),
    "normal float64": (lambda g: random.standard_normal(COUNT, generator=g), 4),
    "exponential float32": (lambda g: random.exponential(2, COUNT, dtype="f4", generator=g), 4),
    "exponential float64": (lambda g: random.exponential(2, COUNT, generator=g), 4),
    "gamma": (lambda g: random.gamma(2.5, 1, COUNT, generator=g), 4),
    "gamma of small parameter": (lambda g: random.gamma(0.3, 1, COUNT, generator=g), 4),
}

#: The beginning of the SHA-256 of each on the CPU. A program's numbers must not change with a release: a change here is one of
#: the contract, and belongs in the changelog.
KNOWN = {
    "random_raw": "2fa95ca580efc41b",
    "random float32": "e696e10678af804d",
    "random float64": "b0507ae9c01556cb",
    "bernoulli": "6dc2d12321cc2860",
    "integers": "7c922fe12b7ad008",
    "integers of 64 bits": "506ef792c65250bd",
    "permutation": "e85cf3b1148b86da",
    "choice": "4bf863edfaea5c62",
    "weighted choice": "94f760f5ad1a6f4c",
    "categorical": "046a62251c24bf32",
    "multinomial": "15db257bc49135f5",
    "poisson of small mean": "0775a24a3c6fe4b0",
    "poisson of large mean": "9faa713ee4654501",
    "uniform float32": "9e636966fc0590c8",
    "normal float32": "e06676817b433628",
    "normal float64": "de9726c881412bb5",
    "exponential float32": "ac533b83cded15f5",
    "exponential float64": "9026242331be786a",
    "gamma": "238a5bcda78a5c2b",
    "gamma of small parameter": "828bba369eb87435",
}


def numbers(draw: Draw, device: str) -> np.ndarray:
    """Of one seed."""
    return draw(aiodev.Generator(device).manual_seed(2**63 + 12345)).numpy_blocking()


@pytest.fixture(params=["cuda"])
def device(request: pytest.FixtureRequest) -> str:
    """A device other than the CPU."""
    if not aiodev.is_available(request.param):
        pytest.skip(f"there is no {request.param} device here")
    return str(request.param)


@pytest.mark.cuda
@pytest.mark.parametrize("name", EXACT)
def test_exact_numbers_are_the_same_bits(name: str, device: str) -> None:
    """On the CPU and elsewhere."""
    np.testing.assert_array_equal(numbers(EXACT[name], device), numbers(EXACT[name], "cpu"))


@pytest.mark.cuda
@pytest.mark.parametrize("name", TRANSFORMED)
def test_transformed_numbers_agree(name: str, device: str) -> None:
    """To some units in the last place."""
    draw, ulps = TRANSFORMED[name]
    expected = numbers(draw, "cpu")
    distance = np.abs(numbers(draw, device).astype(np.float64) - expected) / np.spacing(np.abs(expected))
    assert distance.max() <= ulps


@pytest.mark.parametrize("name", KNOWN)
def test_the_numbers_of_a_seed_stay_what_they_are(name: str) -> None:
    """From release to release, and on every processor."""
    draw = EXACT[name] if name in EXACT else TRANSFORMED[name][0]
    assert hashlib.sha256(numbers(draw, "cpu").tobytes()).hexdigest().startswith(KNOWN[name])


def digest() -> str:
    """Of some of them, on the CPU."""
    found = hashlib.sha256()
    transformed = [
        TRANSFORMED[name][0] for name in ("normal float32", "exponential float64", "gamma of small parameter")
    ]
    for draw in (EXACT["random_raw"], EXACT["random float64"], EXACT["integers"], *transformed):
        found.update(numbers(draw, "cpu").tobytes())
    return found.hexdigest()


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="names processors of x86-64")
def test_vector_instructions_change_nothing() -> None:
    """Code for an old processor, without wide vectors or fused multiply-adds, gives the same bits as for this one."""
    code = (
        "import importlib.util as u, sys; s = u.spec_from_file_location('m', sys.argv[1]); m = u.module_from_spec(s)\n"
    )
    code += "s.loader.exec_module(m); print(m.digest())"
    command = [sys.executable, "-c", code, __file__]
    # The executor would be compiled for it, too.
    environment = {**os.environ, "AIODEV_EXECUTOR": "python", "NUMBA_CPU_NAME": "nehalem", "NUMBA_CPU_FEATURES": ""}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == digest()


SIMULATED = """
import numpy as np
from numba import cuda
from aiodev.kernels.random import block

@cuda.jit
def philox(arguments, out):
    i = cuda.grid(1)
    if i < out.shape[0]:
        out[i, 0], out[i, 1], out[i, 2], out[i, 3] = block(arguments[i, 0], arguments[i, 1], arguments[i, 2])

full = 2**64 - 1
arguments = np.array(
    [(0, 0, 0), (full, full, full), (0x85A308D3243F6A88, 0x0370734413198A2E, 0x299F31D0A4093822)], np.uint64
)
out = np.zeros((3, 4), np.uint32)
philox[2, 2](arguments, out)
print(*(f"{word:08x}" for word in out.ravel()))
"""


def test_the_known_answers_in_the_cuda_simulator() -> None:
    """Random123's vectors, where numba-cuda runs the function thread by thread."""
    pytest.importorskip("numba_cuda", reason="numba-cuda is not installed: pip install 'aiodev[cuda]'")
    environment = {**os.environ, "NUMBA_ENABLE_CUDASIM": "1", "PYTHONWARNINGS": "ignore"}
    done = subprocess.run(
        [sys.executable, "-c", SIMULATED], env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [
        *("6627e8d5", "e169c58d", "bc57ac4c", "9b00dbd8"),
        *("408f276d", "41c83b0e", "a20bc7c6", "6d5451fd"),
        *("d16cfe09", "94fdcceb", "5001e420", "24126ea1"),
    ]


FUSED = """
import sys, warnings
warnings.simplefilter("ignore")
from unittest import mock
from aiodev._backends.cuda.compile import compiler
from aiodev._core.backend.interface import KernelSpec
from aiodev.kernels.random import choices, normals
from aiodev.kernels.random import gamma_poisson, uniforms

f4, f8 = "u8 u8 f4 f4 f4 A1f4C", "u8 u8 f8 f8 f8 A1f8C"
bodies = [
    (fill._kernel(values, per_block, 1)._direct.py_func, arguments)
    for fill in (uniforms._fill_random, uniforms._fill_uniform, normals._fill_normal, normals._fill_exponential)
    for values, per_block, arguments in ((fill._single, 4, f4), (fill._double, 2, f8))
]
bodies += [
    (gamma_poisson._draw_gamma._direct.py_func, "u8 u8 f8 f8 f8 f8 A1f8C"),
    (gamma_poisson._draw_few._direct.py_func, "u8 u8 f8 f8 A1i8C"),
    (gamma_poisson._draw_many._direct.py_func, "u8 u8 f8 f8 f8 f8 f8 f8 A1i8C"),
    (choices._draw_races._direct.py_func, "u8 u8 A1f8C A1f8C"),
]
compile_cuda = compiler.compile_cuda

def fused(body, arguments, allowed):
    texts = []
    def compile_with(*args, nvvm_options, cc, **named):
        result = compile_cuda(*args, nvvm_options={**nvvm_options, "fma": allowed}, cc=cc, **named)
        texts.append(result.library)
        return result
    with mock.patch.object(compiler, "compile_cuda", compile_with):
        compiler.compile_image(KernelSpec(body.__name__, body, 1, tuple(arguments.split())), (9, 0))
    return sum(text.count("fma.rn") for text in texts[0].get_asm_strs(cc=(9, 0)))

for body, arguments in bodies:
    print(body.__name__, fused(body, arguments, 0), fused(body, arguments, 1))
"""


def test_cudas_compiler_fuses_no_product() -> None:
    """Which would round otherwise than the CPU does: with leave to, it makes the same multiply-adds as without."""
    pytest.importorskip("numba_cuda", reason="numba-cuda is not installed: pip install 'aiodev[cuda]'")
    done = subprocess.run([sys.executable, "-c", FUSED], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    counts = [line.split() for line in done.stdout.splitlines()]
    assert len(counts) == 12
    assert [without for _, without, _ in counts] == [leave for _, _, leave in counts], done.stdout
    assert sum(int(count) for _, count, _ in counts) > 100


@pytest.mark.parametrize("draw", ["categorical", "multinomial", "choice"])
def test_weights_say_on_which_device(draw: str, register: Any) -> None:
    """Weights on a device that is not the current one are drawn from there, where nothing else is said."""
    name = register(SimulatedBackend)
    weights = aiodev.ones(4, "f4", f"{name}:1")
    functions = {
        "categorical": lambda **named: random.categorical(weights, 3, **named),
        "multinomial": lambda **named: random.multinomial(3, weights, **named),
        "choice": lambda **named: random.choice(4, 3, p=weights, **named),
    }
    with aiodev.device(f"{name}:0"):
        found = functions[draw]()
        assert found.device == weights.device and found.numpy_blocking().shape == ((4,) if draw == "multinomial" else (3,))
        with pytest.raises(ValueError, match=f"{name}:1"):
            functions[draw](device=f"{name}:0")
