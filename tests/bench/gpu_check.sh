#!/usr/bin/env bash
# What can only be checked on a GPU: versions, the driver's behaviour, the tests marked `cuda`, the figures, the memory checker.
#
#   OUT=folder WHEELS=folder CACHE=file tests/bench/gpu_check.sh SET|PART…
#
# Whatever is asked for ends within BUDGET seconds (570), whatever happens; what there is no time for is said, and counts as failed:
#
#   first       versions, a kernel compiled, and one launched; runs always, before everything else
#   probe       what the driver does, asked of libcuda alone (tests/bench/gpu_probe.py)
#   correct     the rules of every backend, programs on a device, graphs, factorisations and transforms, and waiting in the two other
#               ways to notice what is done
#   measured    what compiles, and the figures of tests/bench/gpu.py, those of waiting for each way to notice what is done
#   library     the library's own tests on the GPU, in several processes; those that EXHAUSTIVE=1 adds take three times as long
#   sanitized   memcheck and racecheck of compute-sanitizer
#
# Without arguments it is `probe correct`. It runs from a checkout and needs no network: Python is $PYTHON (python3), and wheels that lie
# in $WHEELS are taken before what is installed (`pip download --python-version 3.12 --only-binary :all: -d FOLDER …`). Needs
# numba, numba-cuda, numpy, anyio, pytest, and the toolkit's NVVM; hypothesis and ml_dtypes for the library's tests. Peers (torch,
# CuPy, cuda.core) take part where they are. Each part goes on when another fails, and tests when one of them hangs, crashes, or loses the device
# (tests/cuda/resuming.py); the exit status says whether any did. $OUT gets four files, whatever runs: log.txt, as it is written;
# figures.json, what the probe and the figures found, after each part; summary.txt; and cache.tar.gz, what was compiled, which the next
# call takes as $CACHE (of pieces, cache.tar.gz.00 and on, the name without the number). What is printed are at most 12,000 characters,
# the summary last. Three calls fill half an hour, with the machine's start: without arguments; `measured`; and BUDGET=450 with `library`.
# PYTHON='python3 tests/cuda/dry.py' SMOKE=1 runs it all on the stand-in for the driver.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
deadline=${BUDGET:-570}
piece=${CACHE_PIECE:-15000000} # bytes: larger files do not come back
OUT=${OUT:-bench-output/gpu}
mkdir -p "$OUT"
log=$OUT/log.txt
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
figures=$scratch/figures
mkdir "$figures"
read -r -a python <<<"${PYTHON:-python3}"
export PYTHONPATH=$PWD:$PWD/tests/cuda:$PWD/tests/support${PYTHONPATH:+:$PYTHONPATH} PYTHONUNBUFFERED=1 COLUMNS=180 # so that messages are not cut
export AIODEV_CACHE_DIR=${AIODEV_CACHE_DIR:-${TMPDIR:-/tmp}/aiodev-gpu-check} # which the next call finds filled
mkdir -p "$AIODEV_CACHE_DIR"

# NVVM and libdevice, where no wheel has them. A folder counts only if they are in it: `nvcc` may be a script that starts another, and
# numba-cuda prefers a wrong folder to what it would find without one.
compiler=$(readlink -f "$(command -v nvcc)" 2>/dev/null)
home=
for folder in "${CUDA_HOME:-}" "${CUDA_PATH:-}" "${compiler%/bin/nvcc}" /usr/local/cuda /usr/local/cuda-*; do
    [ -n "$folder" ] && [ -e "$folder/nvvm/libdevice/libdevice.10.bc" ] && home=$folder && break
done
unset CUDA_HOME CUDA_PATH
[ -z "$home" ] || export CUDA_HOME=$home
sanitizer=$(command -v compute-sanitizer)
for program in "$home/bin/compute-sanitizer" "$home/compute-sanitizer/compute-sanitizer" /usr/local/cuda*/bin/compute-sanitizer; do
    [ -z "$sanitizer" ] && [ -x "$program" ] && sanitizer=$program
done

if [ -n "${WHEELS:-}" ]; then
    site=$scratch/site
    mkdir "$site"
    install() {
        timeout 60 "${python[@]}" -m pip install -q --no-index --no-deps --no-compile --no-cache-dir --disable-pip-version-check \
            --upgrade --target "$site" "$@" >>"$log" 2>&1
    }
    wheels=("$WHEELS"/*.whl)
    ! install "${wheels[@]}" || wheels=()
    for wheel in "${wheels[@]}"; do # each by itself: one that is for another Python does not cost the others
        install "$wheel" && continue
        if [[ $wheel == *-none-any.whl ]] && "${python[@]}" -m zipfile -e "$wheel" "$site" >>"$log" 2>&1; then continue; fi
        echo "left out, since it cannot be installed: $wheel" | tee -a "$log"
    done
    PYTHONPATH=$site:$PYTHONPATH
fi
# What an earlier machine compiled: the executor's code for the same processor, kernels for the same folder.
if [ -n "${CACHE:-}" ]; then
    cat "$CACHE"* 2>>"$log" | tar -xz --no-same-owner -C "$AIODEV_CACHE_DIR" 2>>"$log" || echo "cannot be unpacked: $CACHE" | tee -a "$log"
fi

# Without the project's settings, which ask for plugins that such machines lack.
test=(
    "${python[@]}" -m pytest -q -rfE --tb=short --durations=5 --disable-warnings --continue-on-collection-errors
    --exhaustive -p resuming -p no:cacheprovider -p no:asyncio -c /dev/null --rootdir "$PWD" --import-mode=importlib
)
parts=(first)
[ $# -gt 0 ] || set -- probe correct
for name in "$@"; do
    case $name in
    correct) parts+=(rules device graphs factors callback rows-callback event rows-event) ;;
    measured) parts+=(compiler launching moving replaying waiting waiting-callback waiting-event) ;;
    sanitized) parts+=(memcheck racecheck) ;;
    *) parts+=("$name") ;;
    esac
done
wanted=" ${parts[*]} "
room=$((8000 / ${#parts[@]})) # characters of what a part has said that are shown
failed=0 summary=""

begin() { # name: whether it is wanted
    [[ $wanted == *" $1 "* ]] || return 1
    name=$1 began=$SECONDS written=$(stat -c %s "$log" 2>/dev/null || echo 0)
    wanted=${wanted/ $1 / }
    printf '\n── %s\n' "$name" | tee -a "$log"
}

# To the file, not through a pipe: a process that outlives its parent would hold that open.
limited() { # file, seconds, command…: fewer seconds, where the whole would take longer than it may
    local left=$((deadline - SECONDS))
    [ "$left" -gt 5 ] || { echo "no time is left" >>"$1" && return 124; }
    timeout --kill-after=5 $(($2 < left ? $2 : left)) "${@:3}" </dev/null >>"$1" 2>&1
}

counted() { # what pytest said of all its processes together
    grep -aE '^(=+ )?[0-9]+ (passed|failed|skipped|error|deselected|xfailed|warning).* in [0-9.]+s' |
        grep -oE '[0-9]+ (passed|failed|skipped|error)' |
        awk '{ n[$2] += $1 } END { for (k in n) printf "%d %s, ", n[k], k }' | sed 's/, $//'
}

gather() { # the figures so far as one document, by the names of the parts
    local file separator='{'
    for file in "$figures"/*.json; do
        [ -s "$file" ] && printf '%s"%s": ' "$separator" "$(basename "$file" .json)" && cat "$file" && separator=$',\n'
    done >"$figures/all"
    [ ! -s "$figures/all" ] || { cat "$figures/all" && echo '}'; } >"$OUT/figures.json"
}

end() { # status, what was said
    local outcome=ok said
    case $1 in
    0) ;;
    77) outcome="LEFT OUT" ;; # for want of a program: no failure
    124) outcome="NO TIME" failed=1 ;;
    *) outcome=FAILED failed=1 ;;
    esac
    said=$(tail -c "+$((written + 1))" "$log")
    tail -n 30 <<<"$said" | cut -c 1-200 | tail -c "$room"
    printf '── %s: %s, %d s\n' "$name" "$outcome" $((SECONDS - began)) | tee -a "$log"
    summary+=$(printf '%-17s %-8s %4d s  %s; %s ended early' "$name" "$outcome" $((SECONDS - began)) "$(counted <<<"$said")" \
        "$(grep -ac '^── ended during' <<<"$said")" | sed 's/  ; /  /; s/[ ;]*0 ended early$//')$'\n'
}

part() { # name, limit in seconds, command…
    begin "$1" || return 0
    limited "$log" "${@:2}"
    end $?
    gather
}

# Prints where the tests that have begun are kept: 0 when all have run and passed, 124 when time ran out.
attempts() { # file, name, limit in seconds, arguments of pytest…: in as many processes as it takes
    local left status=0 known=-1 begun=$scratch/$2.begun ended=$((SECONDS + $3))
    : >"$begun"
    while left=$((ended - SECONDS)) && [ "$left" -gt 5 ] && [ "$(wc -l <"$begun")" -gt "$known" ]; do
        known=$(wc -l <"$begun")
        AIODEV_TESTS_BEGUN=$begun limited "$1" "$left" "${test[@]}" "${@:4}" || status=$?
        [ "$(tail -n 1 "$begun")" = finished ] && break
        printf '── ended during %s\n' "$(tail -n 1 "$begun")" >>"$1"
    done
    [ "$(tail -n 1 "$begun")" = finished ] || status=${status/#0/124}
    return "$status"
}

tests() { # name, limit in seconds, arguments of pytest…
    begin "$1" || return 0
    attempts "$log" "$@"
    end $?
}

side_by_side() { # name, limit in seconds, FILE:SHARES…: each in processes of its own, as many at once as there are cores, since most is compiling
    begin "$1" || return 0
    local file share own shares until=$((SECONDS + $2)) status=0 found each=$scratch/$1 all=()
    mkdir "$each"
    for file in "${@:3}"; do # the longest first
        shares=${file##*:} file=${file%:*}
        for ((share = 0; share < shares; share++)); do
            while [ "$(jobs -rp | wc -l)" -ge "$(nproc)" ]; do sleep 0.2; done
            own=$(basename "$file").$share
            all+=("$own")
            (
                export ON_GPU_SHARE=$share/$shares status=0
                attempts "$each/$own.said" "$name-$own" $((until - SECONDS)) -p on_gpu "$file" || status=$?
                echo "${status/#5/0}" >"$each/$own.status" # of few tests a share may have none
            ) &
        done
    done
    wait
    for own in "${all[@]}"; do
        printf '── %s\n' "$own" >>"$log"
        cat "$each/$own.said" >>"$log"
        found=$(cat "$each/$own.status")
        [ "$found" = 0 ] || [ "$status" = 1 ] || status=$found
    done
    grep -ahE '^(── failed:|ERROR) ' "$each"/*.said >>"$log" # again, where it is shown
    end "$status"
}

{
    command -v nvidia-smi >/dev/null && timeout 20 nvidia-smi --query-gpu=name,driver_version,memory.total,mig.mode.current --format=csv,noheader
    echo "CUDA_HOME=${CUDA_HOME:-}; in $PWD; $(nproc) cores; $(uname -r)"
    ldconfig -p | grep -E 'libcuda\.so|libnvvm|libnvJitLink|libcublas\.so'
} 2>&1 | tee -a "$log" | cut -c 1-160 | head -n 12
part first 150 "${python[@]}" tests/bench/gpu_first.py
PROBE_JSON=$figures/probe.json part probe 90 "${python[@]}" tests/bench/gpu_probe.py
tests rules 150 tests/cuda/test_device.py -k test_rule
tests device 190 tests/cuda/test_device.py -k 'not test_rule'
# Each graph is replayed as the driver's own: tests name the CPU, which is the GPU here; one looks at that name.
tests graphs 120 -p on_gpu tests/graph/test_{programs,blocks,rows,draws,capture,graphed,fork,large}.py -k 'cpu and not beside_each_other'
side_by_side factors 150 tests/kernels/test_factorizations.py:10 tests/kernels/test_fft.py:5
for way in callback event; do
    AIODEV_CUDA_WAIT=$way tests "$way" 70 tests/cuda/test_device.py -k 'wak or wait or random_programs'
    AIODEV_CUDA_WAIT=$way tests "rows-$way" 40 -p on_gpu tests/graph/test_rows.py -k cpu
done
tests compiler 90 tests/cuda/test_compiler.py
for group in launching moving replaying waiting; do
    part "$group" 90 "${python[@]}" tests/bench/gpu.py "$group" ${SMOKE:+--smoke} --json "$figures/$group.json"
done
for way in callback event; do
    AIODEV_CUDA_WAIT=$way part "waiting-$way" 55 "${python[@]}" tests/bench/gpu.py waiting ${SMOKE:+--smoke} --json "$figures/waiting-$way.json"
done
everything=("${test[@]}") test=()
for word in "${everything[@]}"; do
    [ "$word" = --exhaustive ] && [ -z "${EXHAUSTIVE:-}" ] || test+=("$word")
done
AIODEV_TESTS_LIMIT=150 side_by_side library "$deadline" \
    tests/kernels/test_elementwise.py:8 tests/kernels/test_indexing.py:6 tests/kernels/test_normalization.py:6 \
    tests/kernels/test_reductions.py:4 tests/kernels/test_outputs.py:4 tests/kernels/test_bfloat16_library.py:3 \
    tests/kernels/test_random.py:3 tests/kernels/test_scans.py:3 \
    tests/kernels/test_sorting.py:3 tests/kernels/test_axes.py:2 tests/kernels/test_creation.py:2 \
    tests/kernels/test_norms.py:2 tests/kernels/test_products.py:2 tests/kernels/test_random_choice.py:2 \
    tests/kernels/test_searching.py:2 tests/kernels/test_convolution.py:2 tests/kernels/test_attention.py:1 \
    tests/kernels/test_fusion.py:1 tests/kernels/test_inputs_kept.py:1 tests/kernels/test_joining.py:1 \
    tests/kernels/test_random_words.py:1 tests/kernels/test_repeating.py:1 tests/kernels/test_repeating_arguments.py:1 \
    tests/kernels/test_repeating_steps.py:1 tests/kernels/test_tracing.py:1
test=("${everything[@]}")
for tool in memcheck racecheck; do
    if [ -z "$sanitizer" ]; then
        part "$tool" 10 bash -c 'echo "compute-sanitizer is not installed"; exit 77'
        continue
    fi
    plain=("${test[@]}")
    # That an address is none of the driver's is asked for each copy, and refused for ordinary memory: no error of ours.
    test=("$sanitizer" --tool "$tool" --error-exitcode 9 --report-api-errors no --target-processes application-only "${plain[@]}")
    AIODEV_TESTS_LIMIT=120 tests "$tool" 240 tests/cuda/test_device.py -k 'dimensions or atomics or library or teams'
    test=("${plain[@]}")
done
for name in $wanted; do
    echo "there is no part called $name" | tee -a "$log"
    summary+="$name: there is no such part"$'\n' failed=1
done
rm -f "$OUT"/cache.tar.gz*
timeout 20 tar -czf "$OUT/cache.tar.gz" -C "$AIODEV_CACHE_DIR" . 2>>"$log"
if [ "$(stat -c %s "$OUT/cache.tar.gz")" -gt "$piece" ]; then
    split -b "$piece" -d -a 2 "$OUT/cache.tar.gz" "$OUT/cache.tar.gz." && rm "$OUT/cache.tar.gz"
fi
printf '\n%s' "$summary" | cut -c 1-140 | tee -a "$log" | tee "$OUT/summary.txt"
exit $failed
