#!/bin/sh
# Checks that every C++ file is as clang-format writes it, and that the shell scripts are clean.
# --fix formats instead.
set -eu
case ${1:-} in -h | --help) sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0" && exit ;; esac
cd "$(dirname "$0")/../.."

case ${1:-} in
'') mode="--dry-run -Werror" ;;
--fix) mode=-i ;;
*)
  echo "usage: check_format.sh [--fix]" >&2
  exit 2
  ;;
esac
# shellcheck disable=SC2086  # two words
find src tools fuzz -name '*.h' -o -name '*.cc' | sort | xargs clang-format --style=file $mode || {
  echo "check_format.sh: run scripts/dev/check_format.sh --fix" >&2
  exit 1
}
shellcheck scripts/*.sh scripts/dev/*.sh scripts/launch_examples/*.sh .ci/run
