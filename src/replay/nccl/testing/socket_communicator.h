// Test only: a communicator as connections between processes of one machine, a Unix socket for each
// pair of ranks.
#pragma once

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "replay/nccl/nccl_api.h"

namespace epweave::replay::nccl {

struct CommTag {
  std::string name;
  int rank = 0, size = 1;
  std::vector<int> peers;  // connections, by rank
  std::atomic<Result> state{Result::kInProgress};
  std::atomic<bool> is_aborted = false;
  std::atomic<int> polls_in_progress = 0;  // after a call, so that callers poll
  int splits = 0;
  std::thread helper;  // of init or split

  ~CommTag() {
    for (int peer : peers)
      if (peer >= 0) close(peer);
  }
};

inline constexpr std::chrono::milliseconds kLook{20};  // how often a wait looks whether it was aborted

// Moves all bytes one way on a connection; false where it ended or the communicator was aborted.
bool transfer(CommTag& comm, int peer, void* data, std::size_t bytes, short direction);

// Connects to the ranks below, takes connections of those above.
bool connect_all(CommTag& comm);

struct SplitPart {
  std::int32_t color = 0, key = 0;
};

// In the order of the keys, the ranks of the same colour are a communicator of their own.
// Null where a rank does not answer.
std::shared_ptr<CommTag> split(CommTag& parent, SplitPart own, int number);

}  // namespace epweave::replay::nccl
