// Which rank this process is, of how many, and where the ranks meet: from options, or from the
// variables of the launcher that started it.
//
//   launcher   rank                          ranks                  on this host
//   torchrun   RANK                          WORLD_SIZE             LOCAL_RANK
//   srun       SLURM_PROCID                  SLURM_NTASKS           SLURM_LOCALID
//   mpirun     OMPI_COMM_WORLD_RANK          ..._SIZE               ..._LOCAL_RANK     (Open MPI)
//              PMI_RANK                      PMI_SIZE               MPI_LOCALRANKID    (MPICH, Intel MPI)
//
// How many ranks are on this host: LOCAL_WORLD_SIZE; of SLURM_STEP_TASKS_PER_NODE or
// SLURM_TASKS_PER_NODE, the entry of SLURM_NODEID; OMPI_COMM_WORLD_LOCAL_SIZE; MPI_LOCALNRANKS.
//
// The first launcher whose rank and number of ranks are both set is taken. The ranks meet at
// MASTER_ADDR and MASTER_PORT. Under torchrun that port is the launcher's own while
// TORCHELASTIC_USE_AGENT_STORE is True: the ranks meet at one of those behind it (another job's
// launcher may have the next). Where there is no
// MASTER_ADDR, srun's ranks meet at the first host of SLURM_STEP_NODELIST, and mpirun's on this
// host if all are here. Where there is no MASTER_PORT, the port is 20000 and a number below 20000
// that the job's name gives, or one behind it.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "replay/collectives/groups.h"

namespace epweave::replay::nccl {

struct PlaceOptions {
  std::optional<Rank> rank, ranks, local_rank;
  std::string rendezvous;  // "HOST:PORT", "file:PATH", or empty: as the launcher says
};

struct RankPlace {
  Rank rank = 0, ranks = 1, local_rank = 0;
  Rank local_ranks = 1;  // on this host; 1 where the launcher does not say
  std::string host;
  std::uint16_t port = 0;
  std::uint16_t ports = 1;  // from `port` on: rank 0 listens at the first that is free
  std::string file;         // instead of host and port
  std::string job;          // names the job, so that ranks of two jobs do not meet; may be empty
  std::string launcher;     // "torchrun", "srun", "mpirun", "options"
};

// The value of an environment variable, or null.
using Variables = std::function<const char*(const char* name)>;

// Throws UsageError naming what is missing or wrong.
RankPlace find_place(const PlaceOptions& options, const Variables& variables);

// "node[03-05,09],login" -> "node03".
std::string first_host(const std::string& node_list);

// "2(x3),1" says that each of three hosts has 2 tasks and a fourth has 1. None: it does not say of
// that host.
std::optional<std::uint32_t> tasks_of_host(std::string_view tasks, std::size_t host);

}  // namespace epweave::replay::nccl
