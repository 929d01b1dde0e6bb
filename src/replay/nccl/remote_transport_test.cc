#include "replay/nccl/remote_transport.h"

#include <catch2/catch.hpp>
#include <thread>
#include <utility>

#include "replay/nccl/coordinator.h"

namespace epweave::replay::nccl {
namespace {

using std::chrono::milliseconds;

// Two ranks, who tell one another something after a time of their own. Why rank 0 gave up, or
// nothing.
std::string share_slowly(WaitLimit limit, milliseconds of_rank_0, milliseconds of_rank_1) {
  std::pair<Socket, Socket> ends_0 = make_socket_pair(), ends_1 = make_socket_pair();
  std::vector<Socket> ranks;
  ranks.push_back(std::move(ends_0.second));
  ranks.push_back(std::move(ends_1.second));
  Coordinator coordinator(std::move(ranks));
  const auto tell = [&](Socket& socket, milliseconds after, std::string& problem) {
    Deadline deadline(limit);
    RemoteTransport transport(std::move(socket), deadline);
    std::this_thread::sleep_for(after);
    try {
      transport.share("found");
      transport.conclude("done");
    } catch (const CollectiveError& error) {
      problem = error.what();
    }
  };
  std::string of_0, of_1;
  std::thread other([&] { tell(ends_1.first, of_rank_1, of_1); });
  tell(ends_0.first, of_rank_0, of_0);
  other.join();
  return of_0;
}

}  // namespace

TEST_CASE("a process waits longer for the others where it took long itself, unless it is told how long") {
  WaitLimit limit = milliseconds(50);
  const std::string problem = share_slowly(limit, milliseconds(0), milliseconds(2000));
  CHECK(problem.starts_with("rank 0: waited for what the others found, 0.05 s (--deadline)"));
  limit.grows = true;
  CHECK(share_slowly(limit, milliseconds(300), milliseconds(800)).empty());
}

TEST_CASE("what a process waited for the others elsewhere is no time of its own") {
  WaitLimit limit = milliseconds(50);
  limit.grows = true;
  const auto deadline_behind = [&](milliseconds waited) {
    std::pair<Socket, Socket> ends = make_socket_pair();
    std::vector<Socket> ranks;
    ranks.push_back(std::move(ends.second));
    Coordinator coordinator(std::move(ranks));
    Deadline deadline(limit);
    RemoteTransport transport(std::move(ends.first), deadline);
    transport.share("begin");
    std::this_thread::sleep_for(milliseconds(400));
    transport.waited(waited);
    transport.share("found");
    transport.conclude("done");
    return deadline.now();
  };
  CHECK(deadline_behind(milliseconds(0)) >= milliseconds(4000));
  CHECK(deadline_behind(milliseconds(390)) < milliseconds(4000));
}

}  // namespace epweave::replay::nccl
