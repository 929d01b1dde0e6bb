#!/bin/sh
# Everything that needs a GPU, in one command: gpu_test.sh [FOLDER]
#
# FOLDER holds bin/ (epweave, epweave-replay, libepweave_cuda.so, replay_device_test) and testdata/; default:
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
if ! "$bin/epweave-replay" run "$small" --device cuda -v >"$work/out" 2>&1; then
  cat "$work/out"
  if grep -q 'no GPU can be used\|has no CUDA part' "$work/out"; then
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
attempt kernels env EPWEAVE_TEST_DEVICE=cuda "$bin/replay_device_test"

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

say "seconds of a step"
for name in llama3_debug_fsdp4.1_norm dsv3_debug_ep2.1b_remat qwen3_moe_ep2.1b_remat; do
  g=$graphs/$name.epw.gz
  [ -f "$g" ] || continue
  attempt "$name on the GPU" "$bin/epweave-replay" run "$g" --device cuda
done

say "result"
if [ "$failed" -ne 0 ]; then echo "something failed on the GPU"; exit 1; fi
echo "all passed on the GPU"
