#!/bin/sh
# Checks that every C++ file is as clang-format writes it, that comments, those of Python, scripts
# and CMake, too, are at most 100 columns wide, and that the shell scripts are clean.
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
# Figures (indented by more than one blank) may be wider than prose.
wide=$({
  find src tools fuzz -name '*.h' -o -name '*.cc' | sort | xargs grep -nE '^ *// [^ ]' /dev/null
  git ls-files '*.py' '*.sh' '*.cmake' '*CMakeLists.txt' .ci/run | xargs grep -nE '^ *# [^ ]' /dev/null
} | grep -E '^[^:]*:[0-9]*:.{101}' | cut -d: -f1,2 || true)
if [ -n "$wide" ]; then
  printf 'check_format.sh: comments wider than 100 columns:\n%s\n' "$wide" >&2
  exit 1
fi
shellcheck scripts/*.sh scripts/dev/*.sh scripts/launch_examples/*.sh .ci/run
