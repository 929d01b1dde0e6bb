#!/bin/sh
# A rank per GPU through Open MPI: mpirun.sh GRAPH [OPTION...]
#
# COMMAND=check compares two graphs, A B in place of GRAPH.
# RANKS: how many (default 4). mpirun sets OMPI_COMM_WORLD_RANK, ..._SIZE and ..._LOCAL_RANK
# (MPICH's mpiexec: PMI_RANK, PMI_SIZE, MPI_LOCALRANKID). On one host no more is needed. On several,
# MASTER_ADDR must name the host of rank 0, and every host needs it: mpirun -x MASTER_ADDR -x
# MASTER_PORT. epweave-replay itself uses no MPI.
set -eu
ranks=${RANKS:-4}
if [ -n "${MASTER_ADDR:-}" ]; then
  set -- -x MASTER_ADDR -x MASTER_PORT "${EPWEAVE_REPLAY:-epweave-replay}" "${COMMAND:-run}" --transport nccl --device "${DEVICE:-cuda}" "$@"
else
  set -- "${EPWEAVE_REPLAY:-epweave-replay}" "${COMMAND:-run}" --transport nccl --device "${DEVICE:-cuda}" "$@"
fi
exec "${MPIRUN:-mpirun}" -n "$ranks" "$@"
