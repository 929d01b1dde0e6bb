#!/bin/sh
# print_whole.sh FAILED COMMAND...: prints what the command said once it is done, so that commands
# beside each other do not talk across each other. If it failed, adds a line that names it to the
# file FAILED and exits 1: xargs ends at once at 255.
failed=$1
shift
out=$(mktemp)
trap 'rm -f "$out"' EXIT
printf '== %s\n' "$*" >"$out"
status=0
"$@" >>"$out" 2>&1 || status=$?
[ $status = 0 ] || printf 'FAILED (exit %d): %s\n' $status "$*" | tee -a "$failed" >>"$out"
cat "$out"
[ $status = 0 ]
