#!/bin/sh
# Installs PyTorch, torchtitan, transformers and ONNX from PyPI into build/venv, unless these
# versions are there.
set -eu
case ${1:-} in -h | --help) sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0" && exit ;; esac
cd "$(dirname "$0")/../.."

versions="torch==2.15.0 torchtitan==0.3.0 onnx==1.23.2 transformers==5.23.0"
venv=build/venv
[ "$(cat $venv/versions 2>/dev/null)" != "$versions" ] || exit 0
echo "Installing $versions into $venv ..." >&2
python3 -m venv $venv
# Python compiles the modules that are imported; pip would compile all 15,000.
# shellcheck disable=SC2086  # a list of words
$venv/bin/pip install --quiet --no-compile $versions
echo "$versions" >$venv/versions
