#!/usr/bin/env bash
# What can only be checked on a GPU: versions, the tests marked `cuda`, the figures, the memory checker.
#
#   OUT=folder WHEELS=folder tests/bench/gpu_check.sh SET|PART…
#
# Each set ends within ten minutes, whatever happens:
#
#   correct     the rules of every backend, programs on a device, and waiting in the two other ways to notice what is done
#   measured    what compiles, and the figures of tests/bench/gpu.py, those of waiting for each way to notice what is done
#   sanitized   memcheck and racecheck of compute-sanitizer
#   library     the library's own tests with the GPU as their default device
#
# Without arguments it is `correct`. It runs from a checkout and needs no network: Python is $PYTHON (python3), and wheels that lie
# in $WHEELS are unpacked before what is installed. Needs numba, numba-cuda, numpy, anyio, hypothesis, pytest, and the toolkit's NVVM;
# peers (torch, CuPy, cuda.core) take part where they are. Each part goes on when another fails, and tests when one of them
# hangs, crashes, or loses the device (tests/cuda/resuming.py); the exit status says whether any did. $OUT gets log.txt, as it is
# written, and the figures as JSON. PYTHON='python3 tests/cuda/dry.py' runs it all on the stand-in for the driver.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
OUT=${OUT:-bench-output/gpu}
mkdir -p "$OUT"
log=$OUT/log.txt
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
read -r -a python <<<"${PYTHON:-python3}"
export PYTHONPATH=$PWD:$PWD/tests/cuda${PYTHONPATH:+:$PYTHONPATH} PYTHONUNBUFFERED=1
export AIODEV_CACHE_DIR=${AIODEV_CACHE_DIR:-${TMPDIR:-/tmp}/aiodev-gpu-check} # which the next call finds filled
if [ -z "${CUDA_HOME:-}" ]; then # NVVM and libdevice, where no wheel has them
    compiler=$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)
    [ -e "$compiler" ] && CUDA_HOME=$(dirname "$(dirname "$(readlink -f "$compiler")")") && export CUDA_HOME
fi
if [ -n "${WHEELS:-}" ]; then
    site=${TMPDIR:-/tmp}/aiodev-gpu-site
    rm -rf "$site"
    "${python[@]}" -m pip install -q --no-index --no-deps --no-compile --no-cache-dir --target "$site" "$WHEELS"/*.whl || exit
    PYTHONPATH=$site:$PYTHONPATH
fi
# Without the project's settings, which ask for plugins that such machines lack.
test=("${python[@]}" -m pytest -q -rfE -p resuming -p no:cacheprovider -c /dev/null --rootdir "$PWD" --import-mode=importlib)
wanted=" first "
for name in "${@:-correct}"; do
    case $name in
    correct) wanted+="rules device callback event " ;;
    measured) wanted+="compiler launching moving waiting waiting-callback waiting-event " ;;
    sanitized) wanted+="memcheck racecheck " ;;
    *) wanted+="$name " ;;
    esac
done
failed=0

begin() { # name: whether it is wanted
    [[ $wanted == *" $1 "* ]] || return 1
    name=$1 began=$SECONDS written=$(stat -c %s "$log" 2>/dev/null || echo 0)
    printf '\n── %s\n' "$name" | tee -a "$log"
}

# To the file, not through a pipe: a process that outlives its parent would hold that open.
limited() { # seconds, command…
    timeout --kill-after=5 "$@" </dev/null >>"$log" 2>&1
}

end() { # status
    local outcome=ok
    [ "$1" = 0 ] || outcome=FAILED failed=1
    tail -c "+$((written + 1))" "$log" | tail -n 30 | cut -c 1-300
    printf '── %s: %s, %d s\n' "$name" "$outcome" $((SECONDS - began)) | tee -a "$log"
}

part() { # name, limit in seconds, command…
    begin "$1" || return 0
    limited "${@:2}"
    end $?
}

tests() { # name, limit in seconds, arguments of pytest…: in as many processes as it takes
    begin "$1" || return 0
    local left status=0 known=-1 begun=$scratch/$1.begun
    : >"$begun"
    while left=$(($2 - (SECONDS - began))) && [ "$left" -gt 5 ] && [ "$(wc -l <"$begun")" -gt "$known" ]; do
        known=$(wc -l <"$begun")
        AIODEV_TESTS_BEGUN=$begun limited "$left" "${test[@]}" "${@:3}" || status=1
        [ "$(tail -n 1 "$begun")" = finished ] && break
        printf '── ended during %s\n' "$(tail -n 1 "$begun")" >>"$log"
    done
    [ "$(tail -n 1 "$begun")" = finished ] || status=1
    end $status
}

command -v nvidia-smi >/dev/null && nvidia-smi | tee -a "$log"
part first 90 "${python[@]}" tests/bench/gpu_first.py
tests rules 150 tests/cuda/test_device.py -k test_rule
tests device 190 tests/cuda/test_device.py -k 'not test_rule'
for way in callback event; do
    AIODEV_CUDA_WAIT=$way tests "$way" 70 tests/cuda/test_device.py -k 'wak or wait or random_programs'
done
tests compiler 90 tests/cuda/test_compiler.py
for group in launching moving waiting; do
    part "$group" 90 "${python[@]}" tests/bench/gpu.py "$group" --json "$OUT/$group.json"
done
for way in callback event; do
    AIODEV_CUDA_WAIT=$way part "waiting-$way" 55 "${python[@]}" tests/bench/gpu.py waiting --json "$OUT/waiting-$way.json"
done
for tool in memcheck racecheck; do
    if ! command -v compute-sanitizer >/dev/null; then
        part "$tool" 10 echo "compute-sanitizer is not installed: left out"
        continue
    fi
    plain=("${test[@]}")
    # That an address is none of the driver's is asked for each copy, and refused for ordinary memory: no error of ours.
    test=(compute-sanitizer --tool "$tool" --error-exitcode 9 --report-api-errors no --target-processes application-only "${plain[@]}")
    AIODEV_TESTS_LIMIT=120 tests "$tool" 240 tests/cuda/test_device.py -k 'dimensions or atomics or library or teams'
    test=("${plain[@]}")
done
AIODEV_TESTS_LIMIT=150 tests library 480 tests/kernels tests/array tests/generator
exit $failed
