#!/bin/sh
# Builds and runs the libFuzzer targets (fuzz/) from the seeds in testdata/fuzz. docs/fuzzing.md
#   fuzz_targets.sh [SECONDS [TARGET...]]   each for so long (20 seconds, all targets), with a new random seed. What
#                                           it finds of new inputs is kept in build/fuzz/corpus for the next run.
#   fuzz_targets.sh --fixed                 for CI, as alike as libFuzzer allows: a fixed seed and number of
#                                           executions, from the committed seeds only; about a minute.
# What fails is kept in build/fuzz/found.
set -eu
case ${1:-} in -h | --help) sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0" && exit ;; esac
cd "$(dirname "$0")/../.."

fixed=
seconds=20
case ${1:-} in
'') ;;
--fixed) fixed=1 && shift ;;
[0-9]*) seconds=$1 && shift ;;
*)
  echo "usage: fuzz_targets.sh [SECONDS | --fixed] [TARGET...]" >&2
  exit 2
  ;;
esac
[ $# -gt 0 ] || set -- binary text json onnx pt2 expression pipeline

executions() {
  case $1 in
    text) echo 2500 ;;
    binary | json | onnx | pt2) echo 5000 ;;
    *) echo 20000 ;;
  esac
}

scripts/build.sh fuzz fuzz_targets
# What libFuzzer tries next depends on addresses, and by default on times.
same_addresses=
if [ -n "$fixed" ] && setarch -R true 2>/dev/null; then same_addresses="setarch -R"; fi

# run_target TARGET: fuzzes it and prints a line.
run_target() {
  target=$1
  corpus=build/fuzz/corpus/$target
  limit=-max_total_time=$seconds
  if [ -n "$fixed" ]; then
    corpus=build/fuzz/corpus_fixed/$target
    rm -rf "$corpus"
    limit="-seed=1 -entropic=0 -runs=$(executions "$target")"
  fi
  mkdir -p "$corpus" build/fuzz/found
  log=build/fuzz/$target.log
  # shellcheck disable=SC2086  # words
  if $same_addresses build/fuzz/bin/fuzz_"$target" "$corpus" "testdata/fuzz/$target" $limit -timeout=20 -rss_limit_mb=2048 \
    -max_len=65536 -dict=fuzz/graph.dict -artifact_prefix="build/fuzz/found/$target-" -print_final_stats=1 \
    >"$log" 2>&1; then
    awk -v target="$target" '/stat::number_of_executed_units/ {n = $2} / cov: / {for (i = 1; i < NF; i++) {
      if ($i == "cov:") c = $(i + 1); if ($i == "ft:") f = $(i + 1); if ($i == "corp:") s = $(i + 1)}}
      END {printf "%-11s%9d executions  %6d edges  %6d features  corpus %s\n", target, n, c, f, s}' "$log"
  else
    echo "$target FAILED, see $log and build/fuzz/found" >&2
    tail -40 "$log" >&2
    return 1
  fi
}

# run_every_second TARGET...: the first, the third and so on.
run_every_second() {
  row=0
  while [ $# -gt 0 ]; do
    run_target "$1" || row=1
    shift
    [ $# -eq 0 ] || shift
  done
  return $row
}

# Each has one thread: two run at the same time.
status=0
run_every_second "$@" &
beside=$!
if [ $# -gt 1 ]; then
  shift
  run_every_second "$@" || status=1
fi
wait $beside || status=1
exit $status
