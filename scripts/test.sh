#!/bin/sh
# From a bare Debian 12 to all tests: installs packages, builds, runs every test and every golden.
#   --with-torch   also the Python tests against PyTorch and torchtitan, installed from PyPI into build/venv
set -eu
cd "$(dirname "$0")/.."

torch_version=2.15.0
torchtitan_version=0.3.0

with_torch=
case ${1:-} in
'') ;;
--with-torch) with_torch=1 ;;
*)
  echo "usage: scripts/test.sh [--with-torch]" >&2
  exit 2
  ;;
esac

scripts/install_packages.sh
scripts/build.sh release
if [ -n "$with_torch" ]; then
  venv=build/venv
  # The wheels are large: installed once, and again only for other versions.
  if [ "$(cat $venv/versions 2>/dev/null)" != "$torch_version $torchtitan_version" ]; then
    echo "Installing torch $torch_version and torchtitan $torchtitan_version into $venv ..." >&2
    python3 -m venv $venv
    $venv/bin/pip install --quiet "torch==$torch_version" "torchtitan==$torchtitan_version"
    echo "$torch_version $torchtitan_version" >$venv/versions
  fi
  $venv/bin/python scripts/epweave_fx_torch_test.py
  $venv/bin/python scripts/ep_overlap_torch_test.py
  $venv/bin/python scripts/compare_with_torch.py testdata/graphs/llama3_debug_fsdp4.1_norm.epw.gz
fi
ctest --preset release
