// The table where the launches of all processes meet: a thread of rank 0.
//
// Every launch comes here whose sizes the graph leaves open; when all members of a group have
// posted the launch of the same number, each gets all contributions (sizes, splits; no data). So
// every rank checks the same numbers and finds the same mismatch before anything moves. A run ends
// for all ranks at once; between runs all may tell one another what they found. The coordinator
// also sees who waits for whom, and that a process ended: then, or when a rank says that it failed,
// all ranks are told the reasons and what each of them waits for.
#pragma once

#include <memory>
#include <vector>

#include "replay/collectives/transport.h"
#include "replay/nccl/wire.h"

namespace epweave::replay::nccl {

std::string encode(const Contribution& part);
Contribution decode_contribution(Reader& reader);

class Coordinator {
 public:
  explicit Coordinator(std::vector<Socket> ranks);
  ~Coordinator();  // returns once all ranks know how it ended
  Coordinator(const Coordinator&) = delete;
  Coordinator& operator=(const Coordinator&) = delete;

 private:
  struct Table;
  std::unique_ptr<Table> table_;
};

}  // namespace epweave::replay::nccl
