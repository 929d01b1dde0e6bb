// The processes of a run find one another: rank 0 listens, the others come to it.
//
// Rank 0 listens at the first free port of those that the place names, and tells each that comes
// that it was heard; who is not heard there tries the next one. A connection that says nothing, or
// too much, is closed and holds up nobody.
//
// Each says its rank, how many ranks there are, the job's name and what it runs. Once all have
// come, rank 0 sends all what they need to go on (NCCL's unique id). It turns a process of another
// job away and goes on; where a process of its own job does not fit (another number of ranks, a
// rank that is there already, another graph), or somebody is missing at the deadline, every process
// ends with the same reason.
//
// With a file, rank 0 listens at any port and writes its addresses and a nonce there (to a
// temporary name, then renamed); the file is removed once all have come. A file that an earlier run
// left names a port where nobody, or somebody with another nonce, answers: ranks read it again
// until rank 0 has replaced it or the deadline passes.
//
// Failures are PassErrors (replay.rendezvous).
#pragma once

#include "replay/collectives/deadline.h"
#include "replay/nccl/place.h"
#include "replay/nccl/wire.h"

namespace epweave::replay::nccl {

struct RendezvousOptions {
  WaitLimit deadline;   // ranks come within its least
  std::string program;  // what is run: the same on every rank
  // Called on rank 0, before the others are let in: what all get.
  std::function<std::string()> make_ticket;
};

struct Connections {
  Socket to_coordinator;        // of every rank
  std::vector<Socket> of_rank;  // on rank 0: the other ends, by rank
  std::string ticket;
};

Connections meet(const RankPlace& place, const RendezvousOptions& options);

}  // namespace epweave::replay::nccl
