#!/bin/sh
# From a bare Debian 12 to a rewritten graph: installs packages, builds, chunks and schedules the
# MoE layers of a real DeepSeek-V3 training graph, shows what changed, and runs both graphs on
# virtual ranks to compare what they compute. Arguments: [GRAPH] [OUTPUT]; a given graph is not run.
set -eu
case ${1:-} in -h | --help) sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0" && exit ;; esac
cd "$(dirname "$0")/.."

graph=${1:-testdata/graphs/dsv3_debug_ep2.1b_remat.epw.gz}
output=${2:-build/quickstart.epw}
preset='ep-overlap{roots=layers.*.moe,dim=batch,parts=2}'

scripts/install_packages.sh
scripts/build.sh release epweave epweave-replay
epweave=build/release/bin/epweave

echo
echo "+ epweave rewrite $graph --preset '$preset' -o $output"
"$epweave" rewrite "$graph" --preset "$preset" -o "$output" --time-passes
"$epweave" verify "$output"
echo
python3 scripts/compare_stats.py "$epweave" "$graph" "$output"
# A graph of another size may need more memory or time than there is.
if [ $# -eq 0 ]; then
  echo
  echo "+ epweave-replay check $graph $output"
  build/release/bin/epweave-replay check "$graph" "$output"
fi
