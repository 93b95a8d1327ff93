#!/usr/bin/env bash
# What can only be checked on a GPU: versions, the tests marked `cuda`, the memory checker, the figures. Writes to $OUT.
#
# Run from the root of the tree, with numba-cuda, numpy, anyio and pytest importable; peers (torch, CuPy) take part where they are.
# Each part goes on when another fails; the exit status says whether any did.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
OUT=${OUT:-bench-output/gpu}
mkdir -p "$OUT"
export PYTHONPATH=$PWD${PYTHONPATH:+:$PYTHONPATH} AIODEV_CACHE_DIR=${AIODEV_CACHE_DIR:-$(mktemp -d)} PYTHONUNBUFFERED=1
python=${PYTHON:-python3}
failed=0

part() { # name, limit in seconds, command…
    local name=$1 limit=$2 began=$SECONDS
    shift 2
    echo "── $name"
    if timeout --kill-after=10 "$limit" "$@" >"$OUT/$name.txt" 2>&1; then
        echo "   ok, $((SECONDS - began)) s"
    else
        echo "   FAILED, $((SECONDS - began)) s"
        failed=1
    fi
    tail -n "${LINES_SHOWN:-25}" "$OUT/$name.txt"
}

part versions 120 bash -c "nvidia-smi; $python -VV; $python - <<'PY'
import importlib, importlib.metadata as m
for name in ('aiodev', 'numba', 'numba-cuda', 'cuda-core', 'cuda-bindings', 'cuda-toolkit', 'numpy', 'torch', 'cupy-cuda12x',
             'cupy-cuda13x', 'anyio', 'pytest', 'nvidia-ml-py'):
    try:
        print(name, m.version(name))
    except m.PackageNotFoundError:
        print(name, 'not installed')
from aiodev._backends.cuda import CUDABackend
backend = CUDABackend()
print('unavailable:', backend.unavailable_reason())
print('devices:', backend.device_count(), backend.device_properties(0))
PY"
part rules 240 "$python" -m pytest -q -rfE -p no:cacheprovider tests/cuda/test_device.py -k test_rule
part device 300 "$python" -m pytest -q -rfE -p no:cacheprovider tests/cuda/test_device.py -k 'not test_rule'
part rules-callback 240 env AIODEV_CUDA_WAIT=callback "$python" -m pytest -q -rfE -p no:cacheprovider tests/cuda/test_device.py -k 'test_rule and wake'
part compiler 200 "$python" -m pytest -q -rfE -p no:cacheprovider tests/cuda/test_compiler.py
if [ -n "${LIBRARY_TESTS:-}" ]; then  # the default device is the GPU: the library's own tests run there
    part library 590 "$python" -m pytest -q -x -rfE -p no:cacheprovider tests/kernels tests/array
fi
part figures 240 "$python" tests/bench/gpu.py --json "$OUT/figures-poll.json"
part figures-callback 240 env AIODEV_CUDA_WAIT=callback "$python" tests/bench/gpu.py --json "$OUT/figures-callback.json"
if command -v compute-sanitizer >/dev/null; then
    for tool in memcheck racecheck; do
        part "$tool" 240 compute-sanitizer --tool "$tool" --error-exitcode 9 \
            "$python" -m pytest -q -p no:cacheprovider tests/cuda/test_device.py -k 'dimensions or atomics or library'
    done
else
    echo "── compute-sanitizer: not installed, left out"
fi
exit $failed
