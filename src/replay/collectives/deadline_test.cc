#include "replay/collectives/deadline.h"

#include <catch2/catch.hpp>
#include <thread>

#include "ir/text/text.h"
#include "replay/collectives/transport.h"
#include "replay/values/tensor.h"

namespace epweave::replay {
namespace {

using std::chrono::milliseconds;

// Rank 0 launches after one time and waits; rank 1 launches after another. Why rank 0 gave up, or
// nothing.
std::string meet_slowly(WaitLimit limit, milliseconds of_rank_0, milliseconds of_rank_1) {
  const Graph graph = parse_text(R"(epweave text 1
group 7 ranks=[0, 1]
graph
  %x = placeholder : f32[1]
  %g = _c10d_functional.all_gather_into_tensor.default(%x, 2, "7") : f32[2]
  %w = _c10d_functional.wait_tensor.default(%g) : f32[2]
  output([%w])
)",
                                 "test.txt");
  const World world = derive_world(graph);
  LocalTransport transport(world, limit);
  HostMemory memory;
  Contribution part;
  part.what = "%g";
  part.sizes = {1};
  part.data = memory.allocate(4);
  std::thread other([&] {
    std::this_thread::sleep_for(of_rank_1);
    try {
      transport.meet(1, transport.post(1, "7", part));
    } catch (const Aborted&) {
    }
  });
  std::string problem;
  std::this_thread::sleep_for(of_rank_0);
  try {
    transport.meet(0, transport.post(0, "7", part));
  } catch (const CollectiveError& error) {
    problem = error.what();
  }
  other.join();
  return problem;
}

}  // namespace

TEST_CASE("a deadline that grows is ten times the longest that a rank took between waits") {
  WaitLimit limit = milliseconds(500);
  Deadline fixed(limit);
  limit.grows = true;
  Deadline growing(limit);
  for (Deadline* deadline : {&fixed, &growing}) deadline->took(milliseconds(40));
  CHECK(growing.text() == "0.5 s (--deadline)");
  for (Deadline* deadline : {&fixed, &growing}) {
    deadline->took(milliseconds(120));
    deadline->took(milliseconds(60));
  }
  CHECK(growing.now() == milliseconds(1200));
  CHECK(growing.text() == "1.2 s (--deadline)");
  CHECK(fixed.text() == "0.5 s (--deadline)");
}

TEST_CASE("a rank waits longer for another one where it took long itself, unless it is told how long") {
  WaitLimit limit = milliseconds(50);
  CHECK(meet_slowly(limit, milliseconds(0), milliseconds(2000)) ==
        "rank 0 waited 0.05 s (--deadline):\n"
        "  rank 0: waits for rank 1 in collective 0 on group 7: %g of f32[1]\n"
        "  rank 1: computes");
  limit.grows = true;
  CHECK(meet_slowly(limit, milliseconds(300), milliseconds(800)).empty());
}

}  // namespace epweave::replay
