#!/bin/sh
# print_whole.sh COMMAND...: prints what the command said once it is done, so that commands beside each other do not
# talk across each other. Exits as it does.
out=$(mktemp)
trap 'rm -f "$out"' EXIT
"$@" >"$out" 2>&1
status=$?
printf '== %s\n' "$*"
cat "$out"
exit $status
