#!/bin/sh
# Runs everything that must hold for any graph on every dump (*.json.gz, format fx-dump-1) of a
# folder: check_all_graphs.sh DIR [--jobs N] [--only REGEX]. See check_all_graphs.py.
set -eu
case ${1:-} in -h | --help) sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0" && exit ;; esac
here=$(cd "$(dirname "$0")" && pwd)
"$here"/../build.sh release epweave
exec python3 "$here"/check_all_graphs.py "$@"
