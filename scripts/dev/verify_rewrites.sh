#!/bin/sh
# Rewrites every graph of a folder (testdata/graphs), smallest first, in several ways and has
# `epweave verify A B` prove each result. Graphs that a pass declines are counted. Exits 1 if a
# result is not proved.
set -eu
case ${1:-} in -h | --help) sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0" && exit ;; esac
cd "$(dirname "$0")/../.."

folder=${1:-testdata/graphs}
if [ ! -d "$folder" ]; then
  echo "usage: verify_rewrites.sh [FOLDER]" >&2
  exit 2
fi
epweave=${EPWEAVE:-build/release/bin/epweave}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
proved=0 declined=0 failed=0
find "$folder" -maxdepth 1 -name '*.epw' -printf '%s %p\n' -o -name '*.epw.gz' -printf '%s %p\n' | sort -n | cut -d' ' -f2- > "$work/graphs"
while read -r graph; do
  for pipeline in 'dce,canonicalize,dedup-unshard' 'chunk{parts=2}' 'chunk{parts=4}' 'chunk{parts=8}' 'chunk{parts=3}' \
    'chunk{parts=3},dce,canonicalize,dedup-unshard' 'chunk{roots=layers.*,join=regions,cast=exact}' \
    'chunk{roots=layers.*,dense=true,attention=independent,contract=own-sums}' 'chunk{dim=seq,parts=2}' \
    'chunk{roots=[layers.*.moe:4,layers.*.attention:2],require-exchange=false,grad-accumulation=eager},overlap-ep{require-exchange=false},dce,concretize' \
    'isolate-ep-pg,reassign-pgs,concretize' 'symbolize,chunk{parts=2},overlap-ep,concretize' preset; do
    if [ "$pipeline" = preset ]; then set -- --preset ep-overlap; else set -- -p "$pipeline"; fi
    status=0
    "$epweave" rewrite "$graph" "$@" --verify off -q -o "$work/b.epw" 2>"$work/error" || status=$?
    if [ "$status" -eq 4 ]; then
      declined=$((declined + 1))
    elif [ "$status" -ne 0 ]; then
      failed=$((failed + 1))
      echo "FAILED $graph $pipeline: rewrite gives $status"
      head -3 "$work/error"
    elif "$epweave" verify "$graph" "$work/b.epw" -q >"$work/result"; then
      proved=$((proved + 1))
    else
      failed=$((failed + 1))
      echo "FAILED $graph $pipeline"
      head -3 "$work/result"
    fi
  done
done <"$work/graphs"
echo "$proved proved, $declined declined by a pass, $failed not proved"
[ "$failed" -eq 0 ]
