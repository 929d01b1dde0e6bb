#!/bin/sh
# Compiles each source file by itself, without precompiled headers, by clang: shows what a file uses
# and does not include, which the builds hide. Some minutes; nothing is written.
#   check_alone.sh [FILE...]   these files, else all of src, tools and fuzz but tests
set -eu
case ${1:-} in -h | --help) sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0" && exit ;; esac
cd "$(dirname "$0")/../.."

scripts/build.sh release epweave epweave-replay  # makes headers
# shellcheck disable=SC2046  # words
[ $# -gt 0 ] || set -- $(git ls-files 'src/*.cc' 'tools/*.cc' 'fuzz/*.cc' ':!*_test.cc')
generated=$(find build/release -type d -name embedded -printf ' -I%p')
# shellcheck disable=SC2086  # words
printf '%s\n' "$@" | xargs -P "$(nproc)" -n 1 \
  clang++-14 -std=c++20 -fsyntax-only -w -DFMT_SHARED '-DEPWEAVE_SOURCE_DIR="x"' '-DFUZZED_FORMAT=kText' \
  -Isrc -Itools -Ibuild/release/device_build -Ibuild/release/proto $generated
