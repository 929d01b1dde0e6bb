#!/bin/sh
# From a bare Debian 12 to a rewritten graph: installs packages, builds, chunks and schedules the MoE layers of
# a real DeepSeek-V3 training graph, and shows what changed. Arguments: [GRAPH] [OUTPUT].
set -eu
cd "$(dirname "$0")/.."

graph=${1:-testdata/graphs/dsv3_debug_ep2.1b_remat.epw.gz}
output=${2:-build/quickstart.epw}
preset='ep-overlap{roots=layers.*.moe,dim=batch,parts=2}'

scripts/install_packages.sh
scripts/build.sh release epweave
epweave=build/release/bin/epweave

echo
echo "+ epweave rewrite $graph --preset '$preset' -o $output"
"$epweave" rewrite "$graph" --preset "$preset" -o "$output" --time-passes
"$epweave" verify "$output"
echo
python3 scripts/compare_stats.py "$epweave" "$graph" "$output"
