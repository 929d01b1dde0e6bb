#include "replay/nccl/communicators.h"

#include <catch2/catch.hpp>
#include <thread>

#include "replay/kernels/device/device.h"

namespace epweave::replay::nccl {
namespace {

using std::chrono::milliseconds;

// What stands for NCCL: a communicator that is there at once, and gathers that are in progress so
// long, as where another rank is not there yet.
milliseconds in_progress{0};
Clock::time_point called_at;
Api make_slow_api() {
  Api api{};
  api.init_rank = [](Comm* comm, int, UniqueId, int, Config*) {
    *comm = reinterpret_cast<Comm>(comm);  // never looked into
    return Result::kSuccess;
  };
  api.split = [](Comm comm, int, int, Comm* made, Config*) {
    *made = comm;
    return Result::kSuccess;
  };
  api.all_gather = [](const void*, void*, std::size_t, int, Comm, void*) {
    called_at = Clock::now();
    return Result::kInProgress;
  };
  api.get_async_error = [](Comm, Result* error) {
    *error = Clock::now() - called_at < in_progress ? Result::kInProgress : Result::kSuccess;
    return Result::kSuccess;
  };
  api.finalize = api.destroy = api.abort = [](Comm) { return Result::kSuccess; };
  return api;
}

// Takes down what it is told of waiting.
class WaitNotes : public Transport {
 public:
  Ticket post(Rank, const std::string&, Contribution) override { return {}; }
  Meeting meet(Rank, const Ticket& ticket) override {
    return {ticket.meeting->contributions, ticket.meeting->members, 0, "", 0};
  }
  std::size_t member_count(Rank, const std::string&) const override { return 1; }
  void finish(Rank) override {}
  void abort(const std::string&) override {}
  void waited(std::chrono::nanoseconds time) override { waited_ += time; }
  std::chrono::nanoseconds waited_{};
};

struct OneRankAlone {
  OneRankAlone() : world(make_world()), graphs{{world, {"7"}}} {}
  static World make_world() {
    World world;
    world.groups["7"].of_rank = {{0}};
    return world;
  }
  const Api api = make_slow_api();
  const World world;
  const std::vector<GraphGroups> graphs;
  std::unique_ptr<Device> device = device::open_emulated_device();
  WaitNotes transport;
  Deadline deadline{WaitLimit(milliseconds(60'000))};
  Communicators communicators{{api, *device, transport, 1, 0, graphs, {}, deadline}};
};

}  // namespace

TEST_CASE("a call of NCCL that is in progress waits for the other ranks") {
  OneRankAlone rank;
  const std::string group = "7";
  const std::vector<Rank> members{0};
  in_progress = milliseconds(300);
  rank.communicators.gather({group, members, nullptr, 0}, nullptr, nullptr, 0);
  CHECK(rank.transport.waited_ >= milliseconds(300));
  in_progress = milliseconds(0);
}

TEST_CASE("work is on the device from when it has begun until it is done") {
  OneRankAlone rank;
  const auto look = [&] {
    std::this_thread::sleep_for(milliseconds(200));
    return rank.communicators.time_on_device();
  };
  std::atomic<bool> has_begun = false, is_done = false;
  rank.communicators.watch({"a", [&] { return has_begun.load(); }, [&] { return is_done.load(); }});
  CHECK(look() == milliseconds(0));
  has_begun = true;
  const std::chrono::nanoseconds once = look();
  CHECK(once > milliseconds(0));
  CHECK(look() > once);
  is_done = true;
  look();  // the watchdog takes it off its list
  const std::chrono::nanoseconds behind = look();
  CHECK(look() == behind);
  rank.communicators.unwatch();
}

}  // namespace epweave::replay::nccl
