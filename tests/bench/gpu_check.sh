#!/usr/bin/env bash
# What can only be checked on a GPU: versions, the tests marked `cuda`, the figures, the memory checker.
#
#   OUT=folder tests/bench/gpu_check.sh [PART…]
#
# Needs numba-cuda, numpy, anyio, hypothesis and pytest; peers (torch, CuPy) take part where they are. Without arguments all parts
# run but `library`, the library's own tests with the GPU as their default device, which takes long. Each part goes on when another
# fails; the exit status says whether any did. $OUT gets log.txt and the figures as JSON.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
OUT=${OUT:-bench-output/gpu}
mkdir -p "$OUT"
log=$OUT/log.txt
export PYTHONPATH=$PWD${PYTHONPATH:+:$PYTHONPATH} AIODEV_CACHE_DIR=${AIODEV_CACHE_DIR:-$(mktemp -d)} PYTHONUNBUFFERED=1
python=${PYTHON:-python3}
# Without the project's settings, which ask for plugins that such machines lack.
test=("$python" -m pytest -q -rfE -p no:cacheprovider -c /dev/null --rootdir "$PWD" --import-mode=importlib)
wanted=("${@:-all}")
failed=0

part() { # name, limit in seconds, command…
    local name=$1 limit=$2 began=$SECONDS
    shift 2
    if [[ " ${wanted[*]} " != *" $name "* && " ${wanted[*]} " != *" all "* ]]; then
        return
    fi
    printf '\n── %s\n' "$name" | tee -a "$log"
    timeout --kill-after=10 "$limit" "$@" 2>&1 | tee -a "$log" | tail -n 40
    if [ "${PIPESTATUS[0]}" = 0 ]; then
        printf '── %s: ok, %d s\n' "$name" $((SECONDS - began)) | tee -a "$log"
    else
        printf '── %s: FAILED, %d s\n' "$name" $((SECONDS - began)) | tee -a "$log"
        failed=1
    fi
}

part versions 120 bash -c "nvidia-smi; $python -VV; $python - <<'PY'
import importlib.metadata as m
for name in ('numba', 'numba-cuda', 'llvmlite', 'cuda-core', 'cuda-bindings', 'cuda-toolkit', 'numpy', 'torch', 'cupy-cuda12x',
             'cupy-cuda13x', 'anyio', 'pytest', 'nvidia-ml-py'):
    try:
        print(name, m.version(name))
    except m.PackageNotFoundError:
        print(name, 'not installed')
from aiodev._backends.cuda import CUDABackend
backend = CUDABackend()
print('unavailable:', backend.unavailable_reason())
print('devices:', [backend.device_properties(i) for i in range(backend.device_count())])
PY"
part rules 240 "${test[@]}" tests/cuda/test_device.py -k test_rule
part device 300 "${test[@]}" tests/cuda/test_device.py -k 'not test_rule'
part callback 200 env AIODEV_CUDA_WAIT=callback "${test[@]}" tests/cuda/test_device.py -k 'test_rule or random_programs'
part compiler 200 "${test[@]}" tests/cuda/test_compiler.py
part figures 240 "$python" tests/bench/gpu.py --json "$OUT/figures-poll.json"
part figures-callback 240 env AIODEV_CUDA_WAIT=callback "$python" tests/bench/gpu.py --json "$OUT/figures-callback.json"
if command -v compute-sanitizer >/dev/null; then
    for tool in memcheck racecheck; do
        part "$tool" 240 compute-sanitizer --tool "$tool" --error-exitcode 9 \
            "${test[@]}" tests/cuda/test_device.py -k 'dimensions or atomics or library'
    done
else
    echo "── compute-sanitizer is not installed: left out" | tee -a "$log"
fi
if [[ " ${wanted[*]} " == *" library "* ]]; then
    part library 590 "${test[@]}" tests/kernels tests/array tests/generator
fi
exit $failed
