#!/bin/sh
# Builds and runs the libFuzzer targets (fuzz/), each for some seconds, from the seeds in testdata/fuzz.
# fuzz_targets.sh [SECONDS [TARGET...]]; 20 seconds, all targets. What they find of new inputs is kept in
# build/fuzz/corpus and used by the next run; what fails in build/fuzz/found. docs/fuzzing.md
set -eu
cd "$(dirname "$0")/.."

seconds=${1:-20}
[ $# -eq 0 ] || shift
[ $# -gt 0 ] || set -- binary text json onnx pt2 expression pipeline

scripts/build.sh fuzz fuzz_targets
failed=
for target in "$@"; do
  mkdir -p "build/fuzz/corpus/$target" build/fuzz/found
  log=build/fuzz/$target.log
  if build/fuzz/bin/fuzz_"$target" "build/fuzz/corpus/$target" "testdata/fuzz/$target" \
    -max_total_time="$seconds" -timeout=20 -rss_limit_mb=2048 -max_len=65536 -dict=fuzz/graph.dict \
    -artifact_prefix="build/fuzz/found/$target-" -print_final_stats=1 >"$log" 2>&1; then
    printf '%-11s' "$target"
    awk '/stat::number_of_executed_units/ {n = $2} / cov: / {for (i = 1; i < NF; i++) {
      if ($i == "cov:") c = $(i + 1); if ($i == "ft:") f = $(i + 1); if ($i == "corp:") s = $(i + 1)}}
      END {printf "%9d executions  %6d edges  %6d features  corpus %s\n", n, c, f, s}' "$log"
  else
    echo "$target FAILED, see $log and build/fuzz/found" >&2
    tail -40 "$log" >&2
    failed=1
  fi
done
[ -z "$failed" ]
