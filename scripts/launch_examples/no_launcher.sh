#!/bin/sh
# The same without a launcher, all ranks on this host: no_launcher.sh GRAPH [OPTION...]
#
# COMMAND=check compares two graphs, A B in place of GRAPH.
# RANKS: how many (default 4). On several hosts: start rank N of all there, each with --rank, --world-size, --local-rank,
# and --rendezvous HOST:PORT of rank 0 or file:PATH in a folder that all see. Ends with rank 0's exit code, or that of
# another rank that failed.
set -eu
ranks=${RANKS:-4}
meeting=$(mktemp -d)
trap 'rm -rf "$meeting"' EXIT
rank=$ranks
others=
while [ "$rank" -gt 1 ]; do
  rank=$((rank - 1))
  "${EPWEAVE_REPLAY:-epweave-replay}" "${COMMAND:-run}" --transport nccl --device "${DEVICE:-cuda}" --rank "$rank" \
    --world-size "$ranks" --local-rank "$rank" --rendezvous "file:$meeting/ranks" "$@" &
  others="$others $!"
done
code=0
"${EPWEAVE_REPLAY:-epweave-replay}" "${COMMAND:-run}" --transport nccl --device "${DEVICE:-cuda}" --rank 0 --world-size "$ranks" \
  --local-rank 0 --rendezvous "file:$meeting/ranks" "$@" || code=$?
for process in $others; do wait "$process" || code=$?; done
exit "$code"
