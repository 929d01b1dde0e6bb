#!/bin/sh
# Compares overlap-ep, isolate-ep-pg and concretize with torchtitan's passes on the dumps
# (*.json.gz, format fx-dump-1) of a folder: compare_schedules.sh DIR. Prints a line per schedule;
# exit code 0 if all agree.
set -eu
case ${1:-} in -h | --help) sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0" && exit ;; esac
here=$(cd "$(dirname "$0")" && pwd)
if [ $# -ne 1 ]; then
  echo "usage: compare_schedules.sh DIR" >&2
  exit 2
fi
"$here"/../build.sh release passes_test
graphs=$(mktemp -d)
trap 'rm -rf "$graphs"' EXIT
for dump in "$1"/*.[2-6]_*.json.gz; do
  python3 "$here"/../epweave_fx.py from-dump "$dump" "$graphs/$(basename "$dump" .json.gz).epw"
done
EPWEAVE_REFERENCE_GRAPHS=$graphs "$here"/../../build/release/bin/passes_test "*real graphs*"
