#!/bin/sh
# Wrong rewrites by the hundred thousand: long_wrong_rewrites.sh FOLDER [SHARE [RUNS]]
#
# 10^5 of random steps (chunked, scheduled, bucketed), 10^5 small programs on rows, 10^4 of real
# graphs, DeepSeek-V3 as torchtitan traces it among them, with few tokens and layers
# (docs/wrong_rewrites.md). SHARE: that part of each count, such as 0.1. RUNS: an extended regular
# expression of the names of runs to make, such as 'dsv3|halves'. What each run printed is in
# FOLDER, with pairs that are accepted and wrong, made small; at the end a row for each run is
# printed for the page's table. Two runs go side by side. Needs a release build; about an hour on
# two idle cores. Exits non-zero if a wrong rewrite is accepted.
set -eu
case ${1:--h} in -h | --help) sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0" && exit ;; esac
folder=$1
share=${2:-1}
runs=${3:-.}
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
rm -f "$folder/failed"
cd "$(dirname "$0")/../.."
# The programs as they are now, whatever is built meanwhile.
cp build/release/bin/check_wrong_rewrites build/release/bin/check_row_programs "$folder/"
commit=$(git rev-parse --short HEAD)

count() { awk -v n="$1" -v share="$share" 'BEGIN { printf "%d", n * share < 1 ? 1 : n * share }'; }
# small NAME LAYERS: a traced step with 16 tokens, of which a mutant is executed in a second.
small() {
  build/release/bin/epweave resize "testdata/graphs/$1.1b_remat.epw.gz" --set tokens=16 --set "layers=$2" \
    -o "$folder/$1.epw" -q
}
small dsv3_debug_ep2 2
small dsv3_debug_fsdp2_tp2_ep4 2
small llama3_debug_fsdp4 2
own=testdata/own_model/step.epw.gz
preset='ep-overlap{roots=layers.*.moe,parts=2,symbolize=yes}'
memory='memory-policy{policy=full},recompute'
grid='ep-overlap{roots=blocks.*.moe,parts=2,symbolize=yes}'
# shellcheck disable=SC2016  # for the shell that runs each
{
  # Some 60 of 100 steps have a rewrite, with 30 mutants each.
  for i in 0 1 2 3 4 5; do echo "wrong_rewrites random_$i --first ${i}000000 --count $(count 1000) --mutants 30"; done
  for i in 1 2 3 4; do echo "row_programs rows_$i --first ${i}0000000 --count $(count 28000)"; done
  for i in 6 7 8; do echo "wrong_rewrites random_$i --first ${i}000000 --count $(count 1000) --mutants 30 --keep-original"; done
  echo "wrong_rewrites dsv3_preset --graph $folder/dsv3_debug_ep2.epw --pipeline $preset --mutants $(count 1500)"
  echo "wrong_rewrites tp_preset --graph $folder/dsv3_debug_fsdp2_tp2_ep4.epw --pipeline $preset --mutants $(count 700)"
  echo "wrong_rewrites tp_bucket --graph $folder/dsv3_debug_fsdp2_tp2_ep4.epw --pipeline bucket{plan=overlap} --mutants $(count 2000)"
  echo "wrong_rewrites llama_bucket --graph $folder/llama3_debug_fsdp4.epw --pipeline bucket{plan=blocks} --mutants $(count 3000)"
  echo "wrong_rewrites llama_memory --graph $folder/llama3_debug_fsdp4.epw --pipeline $memory --mutants $(count 3000)"
  for name in dsv3_debug_ep2 dsv3_debug_fsdp2_tp2_ep4 llama3_debug_fsdp4; do
    echo "wrong_rewrites halves_$name --graph $folder/$name.epw --halves --mutants $(count 1500)"
  done
  echo "wrong_rewrites own_preset --graph $own --pipeline $grid --mutants $(count 3000)"
  echo "wrong_rewrites own_bucket --graph $own --pipeline bucket{plan=overlap} --mutants $(count 2000)"
  echo "wrong_rewrites own_memory --graph $own --pipeline $memory --mutants $(count 2000)"
} | awk -v runs="$runs" '$2 ~ runs' | xargs -P 2 -L 1 sh -c 'folder=$1 program=check_$2 name=$3; shift 3
  nice -n 19 "$folder/$program" "$@" --save "$folder/$name" >"$folder/$name.log" 2>&1 ||
    echo "$name: exit code $?" >>"$folder/failed"' run "$folder"

printf '| at %s | pairs, mutants, or programs |\n|---|---|\n' "$commit"
for log in "$folder"/*.log; do
  printf '| %s | %s |\n' "$(basename "$log" .log)" "$(grep -m1 -E ' pairs, | programs: ' "$log" || echo "no figures: $(tail -1 "$log")")"
done
[ ! -e "$folder/failed" ] || { cat "$folder/failed" && exit 1; }
