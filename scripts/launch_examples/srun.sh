#!/bin/sh
# A rank per GPU through Slurm: srun.sh GRAPH [OPTION...]
#
# COMMAND=check compares two graphs, A B in place of GRAPH.
# RANKS: how many (default 4), RANKS_PER_NODE of them on each host (default: all). srun sets
# SLURM_PROCID, SLURM_NTASKS and SLURM_LOCALID; the ranks meet at the first host of
# SLURM_STEP_NODELIST, at a port that follows from the job's number. Every task sees all GPUs of its
# host and takes the one of its SLURM_LOCALID; with --gpus-per-task=1 it sees one, and takes that.
# GRAPH must be on a file system that all hosts see.
set -eu
ranks=${RANKS:-4}
exec "${SRUN:-srun}" --ntasks "$ranks" --ntasks-per-node "${RANKS_PER_NODE:-$ranks}" --kill-on-bad-exit=1 \
  "${EPWEAVE_REPLAY:-epweave-replay}" "${COMMAND:-run}" --transport nccl --device "${DEVICE:-cuda}" "$@"
