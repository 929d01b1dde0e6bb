// NCCL's communicators of one process, and the watchdog over them.
//
// The world's communicator is made from the unique id, each process group's by splitting it: the
// ranks that share a group are one colour, in the order of the group. Graphs whose groups of one
// name have the same members share them. All are non-blocking: a call that is in progress is
// polled, and a thread is never inside NCCL for long, so that communicators can be aborted. Work
// that follows is queued only when NCCL has queued its own.
//
// The watchdog looks at the communicators and at the work that is underway. It fails the run
// (Transport::abort) where NCCL reports an error, or where work has begun and is not done by the
// deadline; wherever the run fails, it aborts all communicators, so that whoever waits for the
// device goes on, and finds that the run failed.
#pragma once

#include <atomic>
#include <functional>
#include <list>
#include <map>
#include <mutex>
#include <thread>

#include "replay/collectives/exchange.h"
#include "replay/nccl/nccl_library.h"
#include "replay/nccl/wire.h"
#include "replay/run/rank_device.h"

namespace epweave::replay::nccl {

// The groups that a graph launches collectives on.
struct GraphGroups {
  const World& world;
  std::vector<std::string> names;  // in the same order on every rank
};

struct CommunicatorSetup {
  const Api& api;
  Device& device;  // that this process's threads use
  Transport& transport;
  Rank ranks = 1, rank = 0;
  const std::vector<GraphGroups>& graphs;
  UniqueId id{};
  const Deadline& deadline;
  Sums sums = Sums::kOwn;
};

class Communicators : public Exchange {
 public:
  // Throws CollectiveError if NCCL fails.
  explicit Communicators(const CommunicatorSetup& setup);
  ~Communicators() override;
  Communicators(const Communicators&) = delete;
  Communicators& operator=(const Communicators&) = delete;

  void exchange(const Channel& channel, std::span<const Parcel> sends,
                std::span<const Parcel> receives) override;
  void gather(const Channel& channel, const void* from, void* to, std::size_t bytes) override;
  void broadcast(const Channel& channel, const Parcel& source, void* to) override;
  // Integers' averages, complex numbers and integers of 16 bits are none of NCCL's.
  bool adds_up(DType dtype, Reduction reduction) const override;
  void reduce_scatter(const Channel& channel, const LibrarySum& sum) override;
  void all_reduce(const Channel& channel, const LibrarySum& sum) override;
  void require_sound() override;
  void watch(Underway work) override;
  std::chrono::nanoseconds time_on_device() const override { return on_device_.load(); }
  void unwatch() override;

  // What this rank had queued and is not done, a line each; as it was when the run failed, once it
  // has.
  std::string describe_pending();
  // Ends all communicators in order; after the last collective of all ranks.
  void close();

 private:
  struct Work {
    Underway underway;
    std::optional<Clock::time_point> begun;
  };

  void make(const CommunicatorSetup& setup);
  void hold(Comm comm);  // with calls_ held
  // The communicator of the members that share a group with this rank.
  Comm split(Comm world, const std::string& group, const std::vector<Rank>& members);
  Comm find(const Channel& channel);
  using Reduce = decltype(Api::all_reduce);
  void reduce(const Channel& channel, const LibrarySum& sum, Reduce call, const char* what);
  // Throws if NCCL failed; waits while it is in progress, and, where it says success, for
  // `written`: a communicator that a thread of NCCL writes.
  using CallName = std::function<std::string()>;
  void finish_call(Result result, Comm comm, const CallName& what, Comm* written = nullptr);
  std::string explain(Result result, Comm comm, std::string_view what) const;
  void require_open();  // with calls_ held: throws once all were aborted
  void guard();
  std::string find_problem();     // empty: none
  void note_work(bool is_begun);  // at this look: that some work has begun and is not done
  std::string find_error();       // of NCCL, with calls_ held; empty: none
  // A process that ended is better known to rank 0 than to NCCL: waits for its word before it gives
  // this one.
  void give_problem(const std::string& problem);
  std::string list_pending() const;
  void abort_all();

  const Api& api_;
  Device& device_;
  Transport& transport_;
  const Deadline& deadline_;
  Rank rank_;
  Sums sums_;
  std::mutex calls_;         // held in each call of NCCL
  std::vector<Comm> comms_;  // the world's first
  std::list<Comm> made_;     // where NCCL writes those it makes by splitting, maybe from a thread of its own
  std::map<std::pair<std::string, std::vector<Rank>>, Comm> of_group_;  // by name and members
  bool is_aborted_ = false;
  std::mutex work_mutex_;
  std::list<Work> work_;
  std::string pending_at_failure_;
  Clock::time_point looked_at_ = Clock::now();  // by the watchdog
  std::atomic<std::chrono::nanoseconds> on_device_{};
  std::atomic<bool> is_ending_ = false;
  std::thread watchdog_;
};

}  // namespace epweave::replay::nccl
