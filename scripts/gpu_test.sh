#!/bin/sh
# Everything that needs a GPU, in one command: gpu_test.sh [FOLDER]
#
# FOLDER holds bin/ (epweave, epweave-replay, libepweave_cuda.so, replay_kernels_device_test, replay_cublas_test) and testdata/; default:
# the release build of this checkout, or the bundle that this script is in (scripts/gpu_bundle.sh). Prints what
# docs/gpu.md reports; exits 0 if all passed, 1 if something failed, 77 if there is no GPU to run on.
set -u
case ${1:-} in -h | --help) sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0" && exit ;; esac
here=$(cd "$(dirname "$0")/.." && pwd)
if [ $# -gt 0 ]; then here=$(cd "$1" && pwd); fi
bin=$here/bin
if [ ! -d "$bin" ]; then bin=$here/build/release/bin; fi
if [ -d "$here/lib" ]; then LD_LIBRARY_PATH=$here/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}; export LD_LIBRARY_PATH; fi
EPWEAVE_TESTDATA=$here/testdata
export EPWEAVE_TESTDATA
graphs=$here/testdata/graphs
# Libraries of NVIDIA's Python packages, where nobody names others.
packaged() {
  python3 -c 'import glob, site, sys
for folder in site.getsitepackages() + [site.getusersitepackages()]:
    for found in sorted(glob.glob(folder + "/nvidia/*/lib/" + sys.argv[1])):
        print(found)
        sys.exit()' "$1" 2>/dev/null
}
if [ -z "${EPWEAVE_CUBLASLT:-}" ]; then
  found=$(packaged libcublasLt.so.13)
  if [ -n "$found" ]; then EPWEAVE_CUBLASLT=$found; export EPWEAVE_CUBLASLT; fi
fi
if [ -z "${EPWEAVE_NCCL:-}" ]; then
  found=$(packaged libnccl.so.2)
  if [ -n "$found" ]; then EPWEAVE_NCCL=$found; export EPWEAVE_NCCL; fi
fi
not_run=
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0

say() { printf '\n== %s\n' "$*"; }
# attempt NAME COMMAND...: one line for the report, the output below it; a failure is counted.
attempt() {
  name=$1
  shift
  start=$(date +%s)
  if "$@" >"$work/out" 2>&1; then verdict=passed; else verdict="FAILED (exit $?)"; failed=1; fi
  printf '%s: %s, %s s\n' "$name" "$verdict" $(($(date +%s) - start))
  sed 's/^/    /' "$work/out" | tail -25
}

say "is there a GPU"
small=$graphs/llama3_debug_fsdp4.1_norm.epw.gz
status=0
"$bin/epweave-replay" run "$small" --device cuda -v >"$work/out" 2>&1 || status=$?
if [ "$status" -ne 0 ]; then
  cat "$work/out"
  if [ "$status" -eq 77 ]; then
    echo "nothing was run on a GPU"
    exit 77
  fi
  echo "the first run on the GPU failed"
  exit 1
fi
grep 'device:' "$work/out"
if command -v nvidia-smi >/dev/null; then nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader; fi
"$bin/epweave-replay" --version

say "kernels: the GPU's bits against the CPU's"
attempt kernels env EPWEAVE_TEST_DEVICE=cuda "$bin/replay_kernels_device_test"

say "whole steps, 4 virtual ranks: the CPU's bits against the GPU's"
for name in llama3_debug_fsdp4.1_norm dsv3_debug_ep2.1b_remat dsv3_debug_ep2_sdpa_r030.1b_remat qwen3_moe_ep2.1b_remat; do
  g=$graphs/$name.epw.gz
  [ -f "$g" ] || continue
  attempt "$name cpu against cuda" "$bin/epweave-replay" check "$g" "$g" --device-a cpu --device-b cuda
done

say "chunked and scheduled against original, on the GPU, memory poisoned, ranks delayed"
for name in dsv3_debug_ep2.1b_remat qwen3_moe_ep2.1b_remat; do
  g=$graphs/$name.epw.gz
  [ -f "$g" ] || continue
  if ! "$bin/epweave" rewrite "$g" --preset ep-overlap -o "$work/new.epw" >"$work/out" 2>&1; then
    cat "$work/out"
    failed=1
    continue
  fi
  attempt "$name ep-overlap" "$bin/epweave-replay" check "$g" "$work/new.epw" --device cuda --poison --jitter 1
done

say "native math: products by cuBLASLt"
# Where the library takes other algorithms for other numbers of rows nothing is verified: that is no failure, a difference is.
check_native() {
  "$bin/epweave-replay" check "$@" --device cuda --math native >"$work/native" 2>&1
  cat "$work/native"
  tail -1 "$work/native" | grep -qx -e 'same' -e 'not verified'
}
# With pinned rows no product may take another algorithm; those that the library refused are printed.
check_pinned() {
  status=0
  "$bin/epweave-replay" check "$@" --device cuda --math native --pin-rows --json >"$work/pinned" 2>"$work/messages" ||
    status=$?
  python3 - "$work/pinned" <<'PYTHON'
import json
import sys

with open(sys.argv[1]) as file:
    report = json.load(file)
changes = report["library_kernels"]["changes"]
for change in changes:
    print(f"rank {change['rank']}: {change['origin']}: A {change['a']}, B {change['b']}")
nodes = sum(rank["nodes"].get("library-kernel", 0) for rank in report["ranks"])
print(f"{report['verdict']}, {len(changes)} products took another algorithm, {nodes} library-kernel nodes")
sys.exit(0 if report["verdict"] in ("same", "not verified") and not changes and nodes == 0 else 1)
PYTHON
  judged=$?
  cat "$work/messages"
  [ "$judged" -eq 0 ] && [ "$status" -le 1 ]
}
# The same hashes twice.
repeat_native() {
  "$bin/epweave-replay" run "$1" --device cuda --math native -q >"$work/once" &&
    "$bin/epweave-replay" run "$1" --device cuda --math native -q >"$work/twice" && diff "$work/once" "$work/twice"
}
if "$bin/epweave-replay" run "$small" --device cuda --math native --json >"$work/out" 2>&1; then
  grep -e '"cublaslt"' -e '"determinism"' "$work/out"
  attempt "products beside those of portable math" env EPWEAVE_TEST_DEVICE=cuda "$bin/replay_cublas_test" '[gpu]'
  grep '"algorithm"' "$work/out" | sort | uniq -c | sort -rn | head -20
  for name in llama3_debug_fsdp4.1_norm dsv3_debug_ep2.1b_remat qwen3_moe_ep2.1b_remat; do
    g=$graphs/$name.epw.gz
    [ -f "$g" ] || continue
    attempt "$name twice in native math" repeat_native "$g"
    "$bin/epweave" rewrite "$g" --preset ep-overlap -o "$work/new.epw" >/dev/null 2>&1 || continue
    attempt "$name ep-overlap, native" check_native "$g" "$work/new.epw"
    attempt "$name ep-overlap, native, pinned rows" check_pinned "$g" "$work/new.epw"
  done
elif grep -q 'replay.no-cublaslt' "$work/out"; then
  echo "cuBLASLt is not installed: nothing was run in native math"
  not_run="$not_run, native math not run"
else
  cat "$work/out"
  failed=1
fi

say "seconds of a step"
for name in llama3_debug_fsdp4.1_norm dsv3_debug_ep2.1b_remat qwen3_moe_ep2.1b_remat; do
  g=$graphs/$name.epw.gz
  [ -f "$g" ] || continue
  attempt "$name on the GPU" "$bin/epweave-replay" run "$g" --device cuda
done

say "stretches as CUDA graphs: the same hashes, and a step's time without and with them"
# Each stretch is captured in the first run and launched again in the others; the device may refuse none.
with_graphs() {
  rm -f "$work/messages"
  "$bin/epweave-replay" run "$@" --device cuda --warm-up 2 --repeat 10 >"$work/plain" 2>"$work/messages" &&
    "$bin/epweave-replay" run "$@" --device cuda --warm-up 2 --repeat 10 --cuda-graphs >"$work/graphs" \
      2>>"$work/messages"
  status=$?
  cat "$work/messages"
  [ "$status" -eq 0 ] && diff "$work/plain" "$work/graphs" && grep -q ' [1-9][0-9]* replayed' "$work/messages" &&
    ! grep -q -e 'refused a graph' -e 'was interrupted' "$work/messages"
}
for name in llama3_debug_fsdp4.1_norm dsv3_debug_ep2.1b_remat qwen3_moe_ep2.1b_remat; do
  g=$graphs/$name.epw.gz
  [ -f "$g" ] || continue
  attempt "$name with CUDA graphs" with_graphs "$g"
  case $not_run in *native*) continue ;; esac
  attempt "$name with CUDA graphs, native math" with_graphs "$g" --math native
done

say "measured timeline and costs"
measure() {
  "$bin/epweave-replay" run "$small" --device cuda --warm-up 2 --repeat 5 --nvtx --timeline "$work/timeline.json" \
    --costs "$work/costs.json" && ls -l "$work/timeline.json" "$work/costs.json" && head -40 "$work/costs.json"
}
attempt "llama3_debug_fsdp4.1_norm measured" measure

say "ops beside PyTorch's on the same GPU"
if python3 -c 'import torch, torchtitan, safetensors; assert torch.cuda.is_available()' 2>/dev/null; then
  for name in llama3_debug_fsdp4.1_norm dsv3_debug_ep2.1b_remat qwen3_moe_ep2.1b_remat; do
    g=$graphs/$name.epw.gz
    [ -f "$g" ] || continue
    for math in portable native; do
      attempt "$name, $math, beside PyTorch" python3 "$here/scripts/bench_replay.py" "$g" --replay "$bin/epweave-replay" \
        --device cuda --math "$math" --with-torch --runs 5
    done
  done
else
  echo "PyTorch with a GPU, torchtitan and safetensors are not installed: nothing was compared with them"
fi

say "NCCL: one rank, then a GPU for each rank"
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
# against_cpu RANKS GRAPH: a process for each rank; loss, norms and hashes must be what the CPU's virtual ranks have.
against_cpu() {
  "$bin/epweave-replay" run "$2" -q >"$work/expected" || return
  RANKS=$1 DEVICE=cuda EPWEAVE_REPLAY=$bin/epweave-replay "$here/scripts/launch_examples/no_launcher.sh" "$2" \
    >"$work/found" || return
  diff "$work/expected" "$work/found"
}
# check_against_cpu RANKS A B [OPTION...]: two graphs compared by a process for each rank; the verdict, and all that is printed, must
# be what the CPU's virtual ranks give.
check_against_cpu() {
  ranks=$1 a=$2 b=$3
  shift 3
  expected=0
  "$bin/epweave-replay" check "$a" "$b" -q >"$work/expected" || expected=$?
  found=0
  RANKS=$ranks COMMAND=check DEVICE=cuda EPWEAVE_REPLAY=$bin/epweave-replay \
    "$here/scripts/launch_examples/no_launcher.sh" "$a" "$b" --deadline 600 "$@" >"$work/found" || found=$?
  diff "$work/expected" "$work/found" && tail -1 "$work/found" && [ "$found" -eq "$expected" ]
}
gpus=$(nvidia-smi -L 2>/dev/null | wc -l)
if "$bin/epweave-replay" run "$work/one.txt" --device cuda --transport nccl --rank 0 --world-size 1 \
  --rendezvous 127.0.0.1:29500 --json >"$work/out" 2>&1 || ! grep -q 'replay.no-nccl' "$work/out"; then
  grep '"nccl_' "$work/out"
  attempt "one rank over NCCL" against_cpu 1 "$work/one.txt"
  attempt "one rank over NCCL, check" check_against_cpu 1 "$work/one.txt" "$work/one.txt"
  attempt "one rank over NCCL, check of the CPU's bits against the GPU's" check_against_cpu 1 "$work/one.txt" \
    "$work/one.txt" --device-a cpu
  for name in llama3_debug_fsdp4.1_norm dsv3_debug_ep2.1b_remat qwen3_moe_ep2.1b_remat; do
    g=$graphs/$name.epw.gz
    if [ "$gpus" -lt 4 ]; then echo "$name over NCCL: not run, there are $gpus GPUs"; continue; fi
    [ -f "$g" ] || continue
    attempt "$name over NCCL, 4 GPUs" against_cpu 4 "$g"
    "$bin/epweave" rewrite "$g" --preset ep-overlap -o "$work/new.epw" >/dev/null 2>&1 || continue
    attempt "$name ep-overlap, check over NCCL, 4 GPUs" check_against_cpu 4 "$g" "$work/new.epw"
  done
else
  echo "NCCL is not installed: nothing was run over it"
  not_run="$not_run, NCCL not run"
fi

say "result"
if [ "$failed" -ne 0 ]; then echo "something failed on the GPU"; exit 1; fi
echo "passed on the GPU$not_run"
