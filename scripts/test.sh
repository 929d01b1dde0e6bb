#!/bin/sh
# From a bare Debian 12 to all tests: installs packages, builds, runs every test and every golden.
#   --with-torch   also the Python tests against PyTorch, torchtitan, transformers and ONNX, installed from PyPI into build/venv
set -eu
case ${1:-} in -h | --help) sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0" && exit ;; esac
cd "$(dirname "$0")/.."

with_torch=
case ${1:-} in
'') ;;
--with-torch) with_torch=1 ;;
*)
  echo "usage: scripts/test.sh [--with-torch]" >&2
  exit 2
  ;;
esac

scripts/install_packages.sh --tests
scripts/build.sh release
failed=$(mktemp)  # a line for each test with PyTorch that failed
trap 'rm -f "$failed"' EXIT
status=0
if [ -n "$with_torch" ]; then
  scripts/dev/torch_venv.sh
  # Each mostly has one thread: two run at the same time. All run, whichever fails.
  xargs -P 2 -L 1 scripts/dev/print_whole.sh "$failed" build/venv/bin/python <<END || status=1
scripts/dev/torchtitan_torch_test.py
scripts/dev/train_entry_on_cpu.py --steps 2 --accumulate 2
scripts/dev/package_test.py --wheel --programs build/release/bin
scripts/dev/epweave_fx_torch_test.py
scripts/dev/ep_overlap_torch_test.py
-W ignore scripts/dev/artifact_torch_test.py
-W ignore scripts/dev/memory_torch_test.py
-W ignore scripts/dev/own_model_torch_test.py
-W ignore scripts/dev/pt2_torch_test.py
-W ignore scripts/dev/placements_torch_test.py
-W ignore scripts/dev/torch_lists.py
scripts/dev/check_onnx_form.py --need-onnx --passes testdata/graphs --only 'ep2.1b_remat|_r030.5_schedule'
scripts/compare_with_torch.py testdata/graphs/llama3_debug_fsdp4.1_norm.epw.gz
END
fi
ctest --preset release || status=1
# ctest has listed those of its own.
cat "$failed"
exit $status
