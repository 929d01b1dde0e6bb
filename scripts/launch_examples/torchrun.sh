#!/bin/sh
# A rank per GPU of this host: torchrun.sh GRAPH [OPTION...]
#
# COMMAND=check compares two graphs, A B in place of GRAPH.
# RANKS: how many (default 4). torchrun sets RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and
# MASTER_PORT; the ranks meet at one of the 8 ports after MASTER_PORT, which torchrun itself uses.
# EPWEAVE_REPLAY and TORCHRUN name other programs.
# Several hosts, on each of them:  torchrun --nnodes 2 --node-rank 0 (or 1) --nproc-per-node 8
#   --master-addr HOST0 --master-port 29500 --no-python epweave-replay run GRAPH --transport nccl --device cuda
set -eu
exec "${TORCHRUN:-torchrun}" --nproc-per-node "${RANKS:-4}" --master-port "${MASTER_PORT:-29500}" --no-python \
  "${EPWEAVE_REPLAY:-epweave-replay}" "${COMMAND:-run}" --transport nccl --device "${DEVICE:-cuda}" "$@"
