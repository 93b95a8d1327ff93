#!/usr/bin/env bash
# What can only be checked on a GPU: versions, the tests marked `cuda`, the figures, the memory checker.
#
#   OUT=folder tests/bench/gpu_check.sh SET|PART…
#
# Each set ends within ten minutes, whatever happens:
#
#   correct     the rules of every backend, programs on a device, and waiting in the two other ways to notice what is done
#   measured    what compiles, and the figures of tests/bench/gpu.py, those of waiting for each way to notice what is done
#   sanitized   memcheck and racecheck of compute-sanitizer
#   library     the library's own tests with the GPU as their default device
#
# Without arguments it is `correct`. Needs numba-cuda, numpy, anyio, hypothesis and pytest; peers (torch, CuPy, cuda.core) take part where
# they are. Each part goes on when another fails; the exit status says whether any did. $OUT gets log.txt and the figures as JSON.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
OUT=${OUT:-bench-output/gpu}
mkdir -p "$OUT"
log=$OUT/log.txt
export PYTHONPATH=$PWD${PYTHONPATH:+:$PYTHONPATH} AIODEV_CACHE_DIR=${AIODEV_CACHE_DIR:-$(mktemp -d)} PYTHONUNBUFFERED=1
python=${PYTHON:-python3}
# Without the project's settings, which ask for plugins that such machines lack.
test=("$python" -m pytest -q -rfE -p no:cacheprovider -c /dev/null --rootdir "$PWD" --import-mode=importlib)
wanted=" versions "
for name in "${@:-correct}"; do
    case $name in
    correct) wanted+="rules device callback event " ;;
    measured) wanted+="compiler figures figures-callback figures-event " ;;
    sanitized) wanted+="memcheck racecheck " ;;
    *) wanted+="$name " ;;
    esac
done
failed=0

part() { # name, limit in seconds, command…
    local name=$1 limit=$2 began=$SECONDS
    shift 2
    if [[ $wanted != *" $name "* ]]; then
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

part versions 50 bash -c "nvidia-smi; $python -VV; $python - <<'PY'
import importlib.metadata as m
for name in ('numba', 'numba-cuda', 'llvmlite', 'cuda-core', 'cuda-bindings', 'cuda-toolkit', 'nvidia-cublas', 'nvidia-nvjitlink', 'numpy', 'torch', 'cupy-cuda12x',
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
part rules 160 "${test[@]}" tests/cuda/test_device.py -k test_rule
part device 220 "${test[@]}" tests/cuda/test_device.py -k 'not test_rule'
for way in callback event; do
    part "$way" 80 env AIODEV_CUDA_WAIT="$way" "${test[@]}" tests/cuda/test_device.py -k 'wak or wait or random_programs'
done
part compiler 110 "${test[@]}" tests/cuda/test_compiler.py
part figures 270 "$python" tests/bench/gpu.py --json "$OUT/figures-poll.json"
for way in callback event; do
    part "figures-$way" 70 env AIODEV_CUDA_WAIT="$way" "$python" tests/bench/gpu.py waiting --json "$OUT/figures-$way.json"
done
for tool in memcheck racecheck; do
    if command -v compute-sanitizer >/dev/null; then
        part "$tool" 250 compute-sanitizer --tool "$tool" --error-exitcode 9 \
            "${test[@]}" tests/cuda/test_device.py -k 'dimensions or atomics or library'
    else
        part "$tool" 10 echo "compute-sanitizer is not installed: left out"
    fi
done
part library 530 "${test[@]}" tests/kernels tests/array tests/generator
exit $failed
