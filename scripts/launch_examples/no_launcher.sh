#!/bin/sh
# The same without a launcher, all ranks on this host: no_launcher.sh GRAPH [OPTION...]
#
# COMMAND=check compares two graphs, A B in place of GRAPH.
# GPUS: how many of this host's GPUs they share (default: one each). NCCL takes one process per GPU
# and host, so those that share GPUs are on different hosts in its eyes (NCCL_HOSTID) and meet over
# sockets: right, and slow. RANKS: how many (default 4). On several hosts: start rank N of all
# there, each with --rank, --world-size, --local-rank, and --rendezvous HOST:PORT of rank 0 or
# file:PATH in a folder that all see. Ends with rank 0's exit code, or that of another rank that
# failed.
set -eu
ranks=${RANKS:-4}
gpus=${GPUS:-$ranks}
if [ "$gpus" -lt "$ranks" ]; then export NCCL_SOCKET_IFNAME="${NCCL_SOCKET_IFNAME:-lo}"; fi
meeting=$(mktemp -d)
trap 'rm -rf "$meeting"' EXIT
# run RANK ARGUMENT...
run() {
  rank=$1
  shift
  if [ "$gpus" -lt "$ranks" ]; then export NCCL_HOSTID="epweave-$((rank / gpus))"; fi
  "${EPWEAVE_REPLAY:-epweave-replay}" "${COMMAND:-run}" --transport nccl --device "${DEVICE:-cuda}" --rank "$rank" \
    --world-size "$ranks" --local-rank "$((rank % gpus))" --rendezvous "file:$meeting/ranks" "$@"
}
others=
for other in $(seq 1 $((ranks - 1))); do
  run "$other" "$@" &
  others="$others $!"
done
code=0
run 0 "$@" || code=$?
for process in $others; do wait "$process" || code=$?; done
exit "$code"
