#!/bin/sh
# What takes too long for every change, on the job that asked for one artifact for all ranks:
# torchtitan's DeepSeek-V3 debug model, DP 4 x TP 2 x EP 4 on 8 ranks. nightly.sh [FOLDER]
#
# 1. All 8 ranks are traced; the graph joined of ranks 0, 1, 2 and 4 becomes each rank's own trace
#    again, and 8 virtual ranks replay it beside its rewrite (scripts/compare_ranks.py). FOLDER
#    keeps the traces, and those that are there are taken.
# 2. Five steps are trained on the CPU with one artifact and with a trace on each rank, by 8
#    processes where memory suffices, else by 4 (scripts/train_artifact.py): each loss, norm and
#    parameter must have the same bits; as traced and normalised, and with each MoE layer chunked
#    and scheduled.
# 3. Each pass and preset, with each choice of each option, on graphs for all ranks and then
#    specialize, against specialize and then the pass, on every rank (check_commutes.py; of most, the
#    tests try one rank, and fewer choices on whole traces).
#
# 4. The wheel is built from nothing, installed and used: its programs take no library but glibc
#    from the machine.
# 5. A wheel is used in bare chroots of Debian 12 and 13, and both write the same bytes
#    (try_on_debian.sh); left out, with a line that says so, where it cannot make them (no
#    debootstrap, not root).
#
# Needs a release build and build/venv (scripts/dev/torch_venv.sh). About 20 minutes of processor
# time, and twice as many to compile both wheels. Exits non-zero if anything fails.
set -eu
case ${1:-} in -h | --help) sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0" && exit ;; esac
cd "$(dirname "$0")/../.."
python=build/venv/bin/python
EPWEAVE=$PWD/build/release/bin/epweave
export EPWEAVE
job="--model deepseek_v3 --dp-shard 4 --tp 2 --ep 4"

# shellcheck disable=SC2086  # lists of words
$python scripts/compare_ranks.py $job --all-ranks --given 0,1,2,4 ${1:+--keep "$1"}
$python scripts/train_artifact.py
$python scripts/train_artifact.py --layers 2 --rewrite 'ep-overlap{symbolize=yes}'
$python scripts/dev/check_commutes.py --epweave "$EPWEAVE" --all-ranks testdata/general/*.epw.gz \
  testdata/graphs/dsv3_debug_ep2_coor.0_traced.epw.gz testdata/graphs/llama3_debug_fsdp2_tp2_coor.0_traced.epw.gz
python3 scripts/dev/package_test.py --wheel
if [ "$(id -u)" = 0 ] && command -v debootstrap >/dev/null; then
  scripts/dev/try_on_debian.sh
else
  echo "nightly.sh: not tried on bare systems: that needs root and debootstrap" >&2
fi
