#!/bin/sh
# Configures and builds one preset: build.sh [release|asan|fuzz] [target...]. Says how far it is.
set -eu
case ${1:-} in -h | --help) sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0" && exit ;; esac
cd "$(dirname "$0")/.."

preset=${1:-release}
case $preset in
release | asan | fuzz) ;;
*)
  echo "build.sh: there is no preset '$preset': release, asan or fuzz" >&2
  exit 2
  ;;
esac
[ $# -eq 0 ] || shift
launcher=
if command -v ccache >/dev/null; then launcher=-DCMAKE_CXX_COMPILER_LAUNCHER=ccache; fi

mkdir -p build
log=build/$preset.log
# What ccache must overlook where headers are precompiled (its manual says so); an object does not
# depend on either.
CCACHE_SLOPPINESS=${CCACHE_SLOPPINESS:-pch_defines,time_macros}
export CCACHE_SLOPPINESS
echo "Building ($preset; log in $log) ..." >&2
# ${x:+} leaves out what is empty.
if ! { cmake --preset "$preset" ${launcher:+"$launcher"} >"$log" 2>&1 &&
  scripts/dev/show_progress.py "$log" cmake --build --preset "$preset" ${1:+--target "$@"}; }; then
  grep -E 'error|FAILED|Error' "$log" | head -50 >&2 || true
  tail -20 "$log" >&2
  exit 1
fi
