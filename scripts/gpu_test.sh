#!/usr/bin/env bash
# Everything that needs a GPU, in one command: gpu_test.sh [OPTION...] [FOLDER]
#
#   --only PART    this part alone; may be repeated. The parts, in their order: kernels, steps, memcheck, rewrite, graphs, nccl,
#                  native, measure, torch, rates, widths, racecheck, initcheck, ranks, train
#   --call N       some of the parts, within 590 s (docs/gpu.md has what each is for): 1: kernels, steps, memcheck; 2: rewrite,
#                  graphs, nccl, native; 3: measure, torch, rates, widths; 4: racecheck, initcheck, ranks, train
#   --total N      seconds of the whole: a step that would start behind them is not run, one that they cut short is no failure
#   --logs DIR     whole logs of the steps, a file each; summary.txt, a line each; report.txt, the same with what is at both ends
#                  of the logs of those that failed (default: a new folder of /tmp)
#   --seconds N    what a step may take (default 90), under compute-sanitizer and for rates three times that
#   --bare         nothing but this folder, bash and the driver: no python, no torch, no nvidia-smi
#
# FOLDER holds bin/ (epweave, epweave-replay, libepweave_cuda.so, replay_kernels_device_test,
# replay_cublas_test) and testdata/; default: the release build of this checkout, or the bundle that
# this script is in (scripts/gpu_bundle.sh). Whole training steps are those of
# testdata/gpu/NAME.txt, what `epweave-replay run -q` prints of testdata/graphs/NAME.epw.gz on the
# CPU.
#
# Where a kernel fails, each test is run alone, and of all else the whole steps; where the first run
# does not end, the tests of kernels alone are run, with 20 seconds for each, and nothing else. A
# step that fails is run again with CUDA_LAUNCH_BLOCKING=1, then under compute-sanitizer where that
# is. Prints what docs/gpu.md reports; exits 0 if all that was run passed, 1 if something failed, 2
# for a wrong command line, 77 if there is no GPU. What was not run is listed at the end.
set -u
all_parts="kernels steps memcheck rewrite graphs nccl native measure torch rates widths racecheck initcheck ranks train"
usage() {
  printf 'gpu_test.sh: %s\n' "$1" >&2
  exit 2
}
parts='' logs='' seconds=90 total=0 bare=0 folder=''
while [ $# -gt 0 ]; do
  case $1 in
    -h | --help) sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0" && exit ;;
    --only)
      case " $all_parts " in *" ${2:-} "*) ;; *) usage "--only takes one of: $all_parts" ;; esac
      parts="$parts $2" && shift ;;
    --call)
      total=590
      case ${2:-} in
        1) parts="$parts kernels steps memcheck" ;;
        2) parts="$parts rewrite graphs nccl native" ;;
        3) parts="$parts measure torch rates widths" ;;
        4) parts="$parts racecheck initcheck ranks train" ;;
        *) usage "--call takes one of: 1 2 3 4" ;;
      esac
      shift ;;
    --total)
      case ${2:-} in '' | 0 | *[!0-9]*) usage "--total takes a whole number from 1" ;; esac
      total=$2 && shift ;;
    --logs)
      [ -n "${2:-}" ] || usage "--logs needs a folder"
      logs=$2 && shift ;;
    --seconds)
      case ${2:-} in '' | 0 | *[!0-9]*) usage "--seconds takes a whole number from 1" ;; esac
      seconds=$2 && shift ;;
    --bare) bare=1 ;;
    -*) usage "unknown option $1" ;;
    *) folder=$1 ;;
  esac
  shift
done
parts=${parts:-$all_parts}
here=$(cd "$(dirname "$0")/.." && pwd)
if [ -n "$folder" ]; then here=$(cd "$folder" && pwd) || exit 2; fi
scripts=$(cd "$(dirname "$0")" && pwd)
bin=$here/bin
if [ ! -d "$bin" ]; then bin=$here/build/release/bin; fi
if [ -z "$logs" ]; then logs=$(mktemp -d); fi
mkdir -p "$logs" || exit 2
logs=$(cd "$logs" && pwd)
: >"$logs/summary.txt"
: >"$logs/report.txt"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
graphs=$here/testdata/graphs hashes=$here/testdata/gpu
EPWEAVE_TESTDATA=$here/testdata
under=''  # what a program is run under: nothing, or compute-sanitizer
export EPWEAVE_TESTDATA bin work graphs hashes scripts under
failed=0 steps=0 not_run=() again=1 last_log=''

# say TEXT: to the terminal and the summary.
say() { printf '%s\n' "$*" | tee -a "$logs/summary.txt" "$logs/report.txt"; }
# show LOG: what is at both ends of a log, and what says that something failed between them, into
# the report.
show() {
  local lines
  lines=$(wc -l <"$1") || return
  {
    echo "---- $(basename "$1"), $lines lines"
    if [ "$lines" -le 60 ]; then
      cut -c 1-300 "$1"
    else
      head -n 15 "$1" | cut -c 1-300
      echo "---- lines that say so"
      grep -n -m 15 -i -e 'failed' -e 'error' -e 'differ' "$1" | cut -c 1-300
      echo "---- the last"
      tail -n 25 "$1" | cut -c 1-300
    fi
    echo "----"
  } >>"$logs/report.txt"
}
leave_out() {
  not_run+=("$1")
  say "not run: $1"
}

# Libraries of NVIDIA's Python packages, where nobody names others.
packaged() {
  [ "$bare" -eq 0 ] || return
  python3 -c 'import glob, site, sys
for folder in site.getsitepackages() + [site.getusersitepackages()]:
    for found in sorted(glob.glob(folder + "/nvidia/*/lib/" + sys.argv[1])):
        print(found)
        sys.exit()' "$1" 2>/dev/null
}
for name in libcublasLt.so.13 libcublasLt.so.12; do
  [ -n "${EPWEAVE_CUBLASLT:-}" ] || EPWEAVE_CUBLASLT=$(packaged $name)
done
[ -n "${EPWEAVE_NCCL:-}" ] || EPWEAVE_NCCL=$(packaged libnccl.so.2)
export EPWEAVE_CUBLASLT EPWEAVE_NCCL

# ---- steps -------------------------------------------------------------------------------

# time_left: what a step may take now: its limit, or what is left of the whole; 0: nothing.
time_left() {
  local left=$seconds
  if [ "$total" -ne 0 ] && [ $((total - SECONDS)) -lt "$left" ]; then left=$((total - SECONDS)); fi
  if [ "$left" -lt 1 ]; then left=0; fi
  echo "$left"
}
# in_time LOG COMMAND...: its exit code; 124 or 137 where it ran past its time.
in_time() {
  local log=$1 limit
  shift
  limit=$(time_left)
  if [ "$limit" -eq 0 ]; then
    echo "no time is left" >"$log"
    return 124
  fi
  timeout -k 5 "$limit" bash -c '"$@"' step "$@" >"$log" 2>&1
}
ran_out() { [ "$1" -eq 124 ] || [ "$1" -eq 137 ]; }
how_it_ended() {
  case $1 in
    0) echo passed ;;
    124 | 137) echo "FAILED (ran past ${2:-$seconds} s)" ;;
    *) echo "FAILED (exit $1)" ;;
  esac
}
# attempt NAME COMMAND...: a line for the summary, the output in a file; a failure is counted, and
# looked into unless `again` is 0.
attempt() {
  local name=$1 log status start limit
  shift
  limit=$(time_left)
  if [ "$limit" -eq 0 ]; then
    leave_out "$name: no time is left (--total $total)"
    return 0
  fi
  steps=$((steps + 1))
  log=$(printf '%s/%02d-%s' "$logs" "$steps" "$(printf '%s' "$name" | tr -c 'A-Za-z0-9_.\n' '-')")
  start=$SECONDS status=0 last_log=$log
  in_time "$log.log" "$@" || status=$?
  if ran_out "$status" && [ "$limit" -lt "$seconds" ]; then
    leave_out "$name: cut short after $((SECONDS - start)) s (--total $total)"
    return 0
  fi
  say "$name: $(how_it_ended "$status"), $((SECONDS - start)) s: $(tail -n 1 "$log.log" | cut -c 1-160)"
  [ "$status" -ne 0 ] || return 0
  failed=$((failed + 1))
  show "$log.log"
  if [ "$again" -ne 0 ]; then look_into "$log" "$@"; fi
  return "$status"
}
# tests_alone LOG: each test of the kernels in a process of its own, four at a time: a kernel that
# crashes takes the device from all tests behind it, and one that does not end the time. The first
# two that fail are looked into.
tests_alone() {
  local log=$1 names=() number=0 fail=() cut=0 status
  mapfile -t names < <("$bin/replay_kernels_device_test" --list-test-names-only 2>/dev/null | sed 's/[],[\]/\\&/g')
  if [ ${#names[@]} -lt 2 ]; then return 1; fi
  for name in "${names[@]}"; do
    if [ "$number" -ge 4 ]; then wait -n; fi
    number=$((number + 1))
    (
      limit=$(time_left) status=0
      in_time "$log.alone-$number.log" tests replay_kernels_device_test "$name" || status=$?
      if ran_out "$status" && [ "$limit" -lt "$seconds" ]; then status="cut"; fi
      echo "$status" >"$log.alone-$number.status"
    ) &
  done
  wait
  for ((number = 1; number <= ${#names[@]}; ++number)); do
    status=$(cat "$log.alone-$number.status")
    if [ "$status" = 0 ]; then continue; fi
    if [ "$status" = cut ]; then
      cut=$((cut + 1))
      continue
    fi
    fail+=("$number")
    say "  alone, too: ${names[number - 1]}: $(how_it_ended "$status"): $(grep -m 1 -A 1 -e 'FAILED:' -e 'error:' "$log.alone-$number.log" |
      tr -s '\n ' ' ' | cut -c 1-160)"
    show "$log.alone-$number.log"
  done
  say "  tests that fail alone: ${#fail[@]} of ${#names[@]}$(if [ "$cut" -ne 0 ]; then echo ", $cut of them not run: no time is left (--total $total)"; fi)"
  for number in "${fail[@]:0:2}"; do
    look_into "$log.alone-$number" tests replay_kernels_device_test "${names[number - 1]}"
  done
}
# look_into LOG COMMAND...: the failed step once more, with launches that wait, then under
# compute-sanitizer.
look_into() {
  local log=$1 found=0 limit
  shift
  limit=$(time_left)
  CUDA_LAUNCH_BLOCKING=1 in_time "$log.blocking.log" "$@" || found=$?
  say "  with CUDA_LAUNCH_BLOCKING=1: $(how_it_ended "$found" "$limit"): $(tail -n 1 "$log.blocking.log" | cut -c 1-160)"
  if [ "$found" -ne 0 ]; then show "$log.blocking.log"; fi
  if command -v compute-sanitizer >/dev/null; then
    found=0 limit=$(time_left)
    EPWEAVE_DEVICE_BLOCKS=whole under="compute-sanitizer --error-exitcode 9" in_time "$log.sanitizer.log" "$@" || found=$?
    say "  under compute-sanitizer: $(how_it_ended "$found" "$limit"): $(tail -n 1 "$log.sanitizer.log" | cut -c 1-160)"
    if [ "$found" -ne 0 ]; then show "$log.sanitizer.log"; fi
  else
    say "  under compute-sanitizer: not run, it is not installed"
  fi
}
replay() { $under "$bin/epweave-replay" "$@"; }
tests() { EPWEAVE_TEST_DEVICE=cuda $under "$bin/$1" "${@:2}"; }
# same_hashes NAME [OPTION...]: the GPU's hashes of a whole step are those of the CPU, which are in
# a file. The last line says how many ranks differ, and what the first of them found.
same_hashes() {
  local name=$1
  shift
  replay run "$graphs/$name.epw.gz" --device cuda -q "$@" >"$work/found" || return
  diff "$hashes/$name.txt" "$work/found" >"$work/differences" && return
  cat "$work/differences"
  echo "$(grep -c '^>' "$work/differences") of $(wc -l <"$hashes/$name.txt") ranks are not as on the CPU: $(grep -m 1 '^>' "$work/differences")"
  return 1
}
check_rewrite() {
  local name=$1
  shift
  replay check "$graphs/$name.epw.gz" "$work/$name.epw" --device cuda "$@"
}
# Where the library takes other algorithms for other numbers of rows nothing is verified: that is no
# failure, a difference is.
check_native() {
  check_rewrite "$1" --math native >"$work/native" 2>&1
  cat "$work/native"
  tail -n 1 "$work/native" | grep -qx -e same -e 'not verified'
}
# With pinned rows no product may take another algorithm; those that the library refused are
# printed.
check_pinned() {
  check_rewrite "$1" --math native --pin-rows >"$work/pinned" 2>&1
  cat "$work/pinned"
  tail -n 1 "$work/pinned" | grep -qx -e same -e 'not verified' && ! grep -q 'another algorithm of the library' "$work/pinned"
}
# All products are the library's, with the same hashes twice.
repeat_native() {
  replay run "$graphs/$1.epw.gz" --device cuda --math native >"$work/once" 2>"$work/messages"
  local status=$?
  cat "$work/messages"
  [ "$status" -eq 0 ] && grep -qx '\([1-9][0-9]*\) of \1 products by cuBLASLt' "$work/messages" &&
    replay run "$graphs/$1.epw.gz" --device cuda --math native -q >"$work/twice" && diff "$work/once" "$work/twice"
}
# Each stretch is captured in the first runs and launched again in the others; the device may refuse
# none.
with_graphs() {
  local g=$graphs/$1.epw.gz status
  shift
  replay run "$g" "$@" --device cuda --warm-up 2 --repeat 10 >"$work/plain" 2>"$work/messages" &&
    replay run "$g" "$@" --device cuda --warm-up 2 --repeat 10 --cuda-graphs >"$work/graphs" 2>>"$work/messages"
  status=$?
  cat "$work/messages"
  [ "$status" -eq 0 ] && diff "$work/plain" "$work/graphs" && grep -q ' [1-9][0-9]* replayed' "$work/messages" &&
    ! grep -q -e 'refused a graph' -e 'was interrupted' "$work/messages"
}
measure() {
  local graph=$1
  shift
  replay run "$graph" "$@" --device cuda --warm-up 2 --repeat 5 --nvtx --timeline "$work/timeline.json" --costs "$work/costs.json" &&
    [ -s "$work/timeline.json" ] && head -40 "$work/costs.json"
}
# against_cpu RANKS GRAPH: a process for each rank; loss, norms and hashes must be what the CPU's
# virtual ranks have.
against_cpu() {
  "$bin/epweave-replay" run "$2" -q >"$work/expected" || return
  RANKS=$1 GPUS=$shared DEVICE=cuda EPWEAVE_REPLAY=$bin/epweave-replay "$scripts/launch_examples/no_launcher.sh" "$2" \
    >"$work/found" || return
  diff "$work/expected" "$work/found"
}
# ranks_of NAME: of a whole step.
ranks_of() { grep -c '^rank ' "$hashes/$1.txt"; }
# hashes_over_nccl NAME: the same of a whole step, whose hashes are in a file.
hashes_over_nccl() {
  RANKS=$(ranks_of "$1") GPUS=$shared DEVICE=cuda EPWEAVE_REPLAY=$bin/epweave-replay "$scripts/launch_examples/no_launcher.sh" \
    "$graphs/$1.epw.gz" -q >"$work/found" && diff "$hashes/$1.txt" "$work/found"
}
# hang_over_nccl GRAPH: one of two ranks stands still between its steps; the other ends soon behind
# its deadline, with exit 1 and the reason: the collective was not done, or, where NCCL waits for
# the other one before it queues it, not queued.
hang_over_nccl() {
  local rank status=0 processes=()
  for rank in 0 1; do
    NCCL_HOSTID=epweave-$rank NCCL_SOCKET_IFNAME=lo "$bin/epweave-replay" run "$1" --transport nccl --device cuda --rank $rank \
      --world-size 2 --local-rank 0 --rendezvous "file:$work/hang" --deadline 5 --repeat 100000 >"$work/rank$rank" 2>&1 &
    processes+=($!)
  done
  sleep 6
  kill -STOP "${processes[1]}"
  wait "${processes[0]}" || status=$?
  kill -KILL "${processes[1]}"
  cat "$work/rank0"
  [ "$status" -eq 1 ] && grep -q -e 'all_reduce.* was not done within 5 s (--deadline)' \
    -e 'NCCL did not .* (collective [0-9]* on group 7) within 5 s (--deadline)' "$work/rank0"
}
# check_over_nccl ALONE RANKS A B [OPTION...]: two graphs compared by a process for each rank; the
# verdict, and all that is printed, must be what virtual ranks give with the options ALONE.
check_over_nccl() {
  local alone=$1 ranks=$2 a=$3 b=$4 expected=0 found=0
  shift 4
  # shellcheck disable=SC2086  # a list of words
  "$bin/epweave-replay" check "$a" "$b" -q $alone >"$work/expected" || expected=$?
  RANKS=$ranks GPUS=$shared COMMAND=check DEVICE=cuda EPWEAVE_REPLAY=$bin/epweave-replay \
    "$scripts/launch_examples/no_launcher.sh" "$a" "$b" --deadline 600 "$@" >"$work/found" || found=$?
  diff "$work/expected" "$work/found" && tail -n 1 "$work/found" && [ "$found" -eq "$expected" ]
}
# checked TOOL [TESTS]: the tests of kernels under a tool of compute-sanitizer.
checked() {
  export EPWEAVE_DEVICE_BLOCKS=whole  # so that reading beyond a tensor is seen
  under="compute-sanitizer --tool $1 --error-exitcode 9"
  tests replay_kernels_device_test "${@:2}"
}
# resize_widths: two layers of DeepSeek-V3 16B, 2,048 tokens for each of 8 ranks, in $work.
resize_widths() {
  "$bin/epweave" resize "$graphs/dsv3_16b_ep8.1b_remat.epw.gz" --set tokens=2048 --set layers=2 -o "$work/widths.epw"
}
export -f replay tests same_hashes check_rewrite check_native check_pinned repeat_native with_graphs measure \
  against_cpu ranks_of hashes_over_nccl hang_over_nccl check_over_nccl checked \
  resize_widths

# ---- is there a GPU -----------------------------------------------------------------------

names=()
for file in "$hashes"/*.txt; do
  name=$(basename "$file" .txt)
  if [ -f "$graphs/$name.epw.gz" ]; then names+=("$name"); else leave_out "$name: $graphs/$name.epw.gz is not there"; fi
done
if [ ${#names[@]} -eq 0 ]; then
  say "no whole step: $hashes has no NAME.txt whose graph is there"
  exit 1
fi
first=$graphs/${names[0]}.epw.gz
for candidate in "${names[@]}"; do  # the smallest is the first to be run
  if [ "$(wc -c <"$graphs/$candidate.epw.gz")" -lt "$(wc -c <"$first")" ]; then first=$graphs/$candidate.epw.gz; fi
done
status=0
in_time "$logs/00-first-run.log" replay run "$first" --device cuda -v || status=$?
if [ "$status" -eq 77 ]; then
  tail -n 3 "$logs/00-first-run.log"
  say "nothing was run on a GPU: there is none. Not run: ${parts# }"
  exit 77
fi
say "$(grep 'device:' "$logs/00-first-run.log" || echo "device: unknown")"
if [ "$status" -ne 0 ]; then
  tail -n 5 "$logs/00-first-run.log"
  say "the first run on the GPU: $(how_it_ended "$status"), the log is $logs/00-first-run.log"
  show "$logs/00-first-run.log"
  if ran_out "$status"; then
    case " $parts " in
      *" kernels "*)
        if [ "$seconds" -gt 20 ]; then seconds=20; fi
        tests_alone "$logs/00-first-run" ;;
    esac
    say "nothing else was run: ${parts# }"
    exit 1
  fi
fi
gpus=1
if [ "$bare" -eq 0 ] && command -v nvidia-smi >/dev/null; then
  say "$(nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader)"
  gpus=$(nvidia-smi -L 2>/dev/null | wc -l)
fi
say "$("$bin/epweave-replay" --version | head -n 1)"

# rewrite NAME: its rewrite in $work, made once, on the CPU; a graph without a mixture of experts
# has none.
rewrite() {
  local status=0
  [ ! -f "$work/$1.epw" ] || return 0
  [ ! -f "$work/$1.declined" ] || return 4
  "$bin/epweave" rewrite "$graphs/$1.epw.gz" --preset ep-overlap -o "$work/$1.epw" >"$logs/00-rewrite-$1.log" 2>&1 || status=$?
  if [ "$status" -eq 4 ]; then
    : >"$work/$1.declined"
    leave_out "$1, ep-overlap: $(grep -v '^ ' "$logs/00-rewrite-$1.log" | tail -n 1)"
  elif [ "$status" -ne 0 ]; then
    failed=$((failed + 1))
    say "$1, ep-overlap: epweave rewrite $(how_it_ended "$status")"
  fi
  return "$status"
}

# ---- parts --------------------------------------------------------------------------------

# Of the steps that the device computes otherwise, `check` names the first node. That says more than
# the step once more, which takes minutes under compute-sanitizer: only the first that fails is
# looked into, and behind `check`.
part_steps() {
  local looks_into=$again again=0 log
  for name in "${names[@]}"; do
    if attempt "$name, hashes of the CPU" same_hashes "$name" --poison; then continue; fi
    log=$last_log
    attempt "$name, the first node that differs" replay check "$graphs/$name.epw.gz" "$graphs/$name.epw.gz" \
      --device-a cpu --device-b cuda
    if [ "$looks_into" -ne 0 ]; then look_into "$log" same_hashes "$name" --poison; fi
    looks_into=0
  done
}
part_kernels() {
  local again=0
  attempt "kernels, bits of the CPU" tests replay_kernels_device_test || tests_alone "$last_log" ||
    look_into "$last_log" tests replay_kernels_device_test
}
part_rewrite() {
  for name in "${names[@]}"; do
    if rewrite "$name"; then attempt "$name, ep-overlap" check_rewrite "$name" --poison --jitter 1; fi
  done
}
has_cublaslt() {
  if [ -z "${cublaslt:-}" ]; then
    cublaslt=there
    in_time "$logs/00-cublaslt.log" replay run "$first" --device cuda --math native --json ||
      ! grep -q 'replay.no-cublaslt' "$logs/00-cublaslt.log" || cublaslt=missing
  fi
  [ "$cublaslt" = there ]
}
part_native() {
  attempt "attention on tensor cores beside that of portable math" tests replay_kernels_device_test '*fused*'
  if ! has_cublaslt; then
    leave_out "native: cuBLASLt is not installed"
    return
  fi
  attempt "products beside those of portable math" tests replay_cublas_test '[gpu]'
  for name in "${names[@]}"; do
    attempt "$name twice in native math" repeat_native "$name"
    rewrite "$name" || continue
    attempt "$name, ep-overlap, native" check_native "$name"
    attempt "$name, ep-overlap, native, pinned rows" check_pinned "$name"
  done
}
part_graphs() {
  for name in "${names[@]}"; do
    attempt "$name with CUDA graphs" with_graphs "$name"
    if has_cublaslt; then attempt "$name with CUDA graphs, native math" with_graphs "$name" --math native; fi
  done
  has_cublaslt || leave_out "graphs, native math: cuBLASLt is not installed"
}
part_measure() { attempt "a measured step" measure "$first"; }
part_widths() {
  if [ ! -f "$graphs/dsv3_16b_ep8.1b_remat.epw.gz" ]; then
    leave_out "widths: $graphs/dsv3_16b_ep8.1b_remat.epw.gz is not there"
    return
  fi
  attempt "two layers of DeepSeek-V3 16B, 2,048 tokens a rank" resize_widths || return
  attempt "their step, portable" measure "$work/widths.epw"
  if has_cublaslt; then attempt "their step, native" measure "$work/widths.epw" --math native; fi
}
# sanitize TOOL [TESTS]
sanitize() {
  if ! command -v compute-sanitizer >/dev/null; then
    leave_out "$1: compute-sanitizer is not installed"
    return
  fi
  local seconds=$((seconds * 3)) again=0
  attempt "kernels under $1" checked "$@"
}
part_memcheck() { sanitize memcheck; }
# Where threads of a block share memory: of all tests it takes too long.
part_racecheck() { sanitize racecheck '*products*,*softmax*'; }
part_initcheck() { sanitize initcheck '*products*,*softmax*,maps*'; }
part_rates() {
  if [ "$bare" -ne 0 ] || ! command -v python3 >/dev/null; then
    leave_out "rates: no python3, or --bare"
    return
  fi
  local seconds=$((seconds * 3)) options=()
  if [ -z "$(find_missing_for_torch 2>&1)" ]; then options+=(--with-torch); fi
  if command -v ncu >/dev/null; then options+=(--profile); fi
  attempt "rates of single ops" python3 "$scripts/dev/gpu_rates.py" --replay "$bin/epweave-replay" "${options[@]}"
}
# find_missing MODULE...: which of them, or a GPU, PyTorch lacks, in a line; nothing where all is.
find_missing() {
  python3 - "$scripts" "$@" <<'PYTHON'
import importlib
import sys
sys.path.insert(0, sys.argv[1])
missing = []
for name in sys.argv[2:]:
    try:
        importlib.import_module(name)
    except ImportError as error:
        missing.append(str(error))
if not missing and not sys.modules["torch"].cuda.is_available():
    missing.append("PyTorch sees no GPU")
print("; ".join(missing))
PYTHON
}
find_missing_for_torch() { find_missing torch safetensors.torch epweave_fx; }  # the last needs the package epweave, which needs protobuf
part_torch() {
  if [ "$bare" -ne 0 ]; then
    leave_out "torch: --bare"
    return
  fi
  local missing
  missing=$(find_missing_for_torch 2>&1) || missing=${missing:-python3 does not run}
  if [ -n "$missing" ]; then
    leave_out "torch: $missing"
    return
  fi
  for name in "${names[@]}"; do
    for math in portable native; do
      attempt "$name, $math, beside PyTorch" python3 "$scripts/bench_replay.py" "$graphs/$name.epw.gz" \
        --replay "$bin/epweave-replay" --device cuda --math "$math" --with-torch --runs 5
    done
  done
}
# has_nccl: also whether ranks share GPUs, and a graph of one rank.
has_nccl() {
  cat >"$work/one.txt" <<'GRAPH'
epweave text 1
group 7 ranks=[0]
graph
  %x = placeholder : f32[4, 4] role=user which=x
  %g = _c10d_functional.all_reduce.default(%x, "sum", "7") : f32[4, 4]
  %s = _c10d_functional.reduce_scatter_tensor.default(%x, "avg", 1, "7") : f32[4, 4]
  %a = _c10d_functional.all_to_all_single.default(%x, [4], [4], "7") : f32[4, 4]
  %b = _c10d_functional.broadcast.default(%x, 0, "7") : f32[4, 4]
  %h = _c10d_functional.all_gather_into_tensor.default(%x, 1, "7") : f32[4, 4]
  %wg = _c10d_functional.wait_tensor.default(%g) : f32[4, 4]
  %ws = _c10d_functional.wait_tensor.default(%s) : f32[4, 4]
  %wa = _c10d_functional.wait_tensor.default(%a) : f32[4, 4]
  %wb = _c10d_functional.wait_tensor.default(%b) : f32[4, 4]
  %wh = _c10d_functional.wait_tensor.default(%h) : f32[4, 4]
  output([%wg, %ws, %wa, %wb, %wh])
GRAPH
  shared=4
  if [ "$gpus" -lt 4 ]; then shared=$gpus; fi
  export shared
  if [ -z "${nccl:-}" ]; then
    nccl=there
    in_time "$logs/00-nccl.log" replay run "$work/one.txt" --device cuda --transport nccl --rank 0 --world-size 1 \
      --rendezvous "file:$work/meeting" --json || ! grep -q 'replay.no-nccl' "$logs/00-nccl.log" || nccl=missing
  fi
  [ "$nccl" = there ]
}
part_nccl() {
  if ! has_nccl; then
    leave_out "nccl: NCCL is not installed"
    return
  fi
  attempt "one rank over NCCL" against_cpu 1 "$work/one.txt"
  attempt "one rank over NCCL, check" check_over_nccl "" 1 "$work/one.txt" "$work/one.txt"
  attempt "one rank over NCCL, check of the CPU's bits against the GPU's" check_over_nccl "" 1 "$work/one.txt" \
    "$work/one.txt" --device-a cpu
  sed -e 's/ranks=\[0\]/ranks=[0, 1]/' -e '/%[sabh] =/d' -e '/%w[sabh] =/d' -e 's/output.*/output([%wg])/' "$work/one.txt" >"$work/two.txt"
  attempt "a rank that stands still" hang_over_nccl "$work/two.txt"
}
# Bounds are the CPU's work, and `rewrite` compares with them: here all ranks are on the GPU, alone
# and as processes.
part_ranks() {
  if ! has_nccl; then
    leave_out "ranks: NCCL is not installed"
    return
  fi
  if [ "$gpus" -lt 4 ]; then leave_out "ranks, a GPU for each of 4 ranks: $gpus GPUs are known of; ranks share them"; fi
  for name in "${names[@]}"; do
    attempt "$name over NCCL" hashes_over_nccl "$name"
    if rewrite "$name"; then
      attempt "$name, ep-overlap, check over NCCL" check_over_nccl "--device cuda --bounds none" "$(ranks_of "$name")" \
        "$graphs/$name.epw.gz" "$work/$name.epw" --bounds none
    fi
  done
}
# One artifact for all ranks beside a trace on each, of the largest job that there are GPUs for;
# losses and norms by step are said.
part_train() {
  if [ "$bare" -ne 0 ]; then
    leave_out "train: --bare"
    return
  fi
  local missing seconds=$((seconds * 5)) again=0
  missing=$(find_missing torch torchtitan epweave_fx 2>&1) || missing=${missing:-python3 does not run}
  if [ -n "$missing" ]; then
    leave_out "train: $missing"
  elif [ "$gpus" -lt 2 ]; then
    leave_out "train: $gpus GPUs are known of, and the smallest job has 2 ranks"
  else
    if [ "$gpus" -lt 8 ]; then leave_out "train, DP 4 x TP 2 x EP 4 on 8 GPUs: $gpus GPUs are known of; a smaller job is trained"; fi
    last_log=''
    attempt "training with one artifact for all ranks" env EPWEAVE="$bin/epweave" python3 "$scripts/train_artifact.py" --device cuda
    [ -n "$last_log" ] || return 0
    while read -r line; do say "  $line"; done < <(grep -e '^DeepSeek' -e '^step ' -e '^[a-z0-9-]*:$' "$last_log.log")
  fi
}
# All is made of kernels. Where one fails, the steps say in seconds which values are others for it.
done_parts='' kernels_fail=0
for part in $parts; do
  if [ "$kernels_fail" -ne 0 ] && [ "$part" != steps ]; then continue; fi
  say "== $part"
  "part_$part"
  done_parts="$done_parts $part"
  if [ "$part" = kernels ] && [ "$failed" -ne 0 ]; then kernels_fail=1 again=0; fi
done

say "== result"
for part in "${not_run[@]}"; do say "not run: $part"; done
for part in $all_parts; do
  case " $parts " in
    *" $part "*) case " $done_parts " in *" $part "*) ;; *) say "not run: $part (a kernel fails)" ;; esac ;;
    *) say "not run: $part (not asked for)" ;;
  esac
done
if [ "$failed" -ne 0 ] || [ "$status" -ne 0 ]; then
  say "something failed on the GPU: $failed of $steps steps; whole logs are in $logs, in short $logs/report.txt"
  exit 1
fi
say "passed on the GPU: $steps steps; whole logs are in $logs"
