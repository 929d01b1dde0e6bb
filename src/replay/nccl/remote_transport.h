// How ranks that are processes of their own meet: through the coordinator of rank 0.
//
// A transport of several runs: begin() and finish() are around each; share() and conclude() are
// called between runs.
//
// A launch whose sizes and splits depend on computed values is posted with them; once all members
// have posted, every rank has all of them, checks them, and only then moves data. One that the
// graph alone says in full (Contribution::is_graphs) waits for nobody: the ranks run one graph.
// When the run fails anywhere, who waits here throws a CollectiveError with the reasons of all
// ranks, and failure() tells them to who does not.
#pragma once

#include <atomic>
#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>

#include "replay/collectives/transport.h"
#include "replay/nccl/wire.h"

namespace epweave::replay::nccl {

// What is to be added to this rank's clock for rank 0's, in seconds, and how far off that may be.
struct ClockOffset {
  double seconds = 0, within = 0;
};

class RemoteTransport : public Transport {
 public:
  RemoteTransport(Socket coordinator, Deadline& deadline);  // which outlives it
  ~RemoteTransport() override;

  void begin(const World& world) override;  // kept until the next one begins
  Ticket post(Rank rank, const std::string& group, Contribution contribution) override;
  Meeting meet(Rank rank, const Ticket& ticket) override;
  std::size_t member_count(Rank rank, const std::string& group) const override {
    return find_members(*world_, rank, group).size();
  }
  void finish(Rank rank) override;
  // Tells all ranks, and waits until they have been told.
  void abort(const std::string& problem) override;
  std::string failure() override;
  void waited(std::chrono::nanoseconds time) override { clock_.leave_out(time); }

  // Gives a text to all ranks and waits until all have given one; they come by rank.
  std::vector<std::string> share(const std::string& text);
  // Asks rank 0 for its time a few times; the shortest way there and back says most.
  ClockOffset compare_clocks();
  // Gives this rank's report and waits until all ranks have; rank 0 gets all of them, by rank.
  std::vector<std::string> conclude(const std::string& report);

 private:
  void listen();
  void take(const Frame& frame);
  void send(FrameKind kind, const std::string& text);
  void set_failure(const std::string& reason);  // with the lock held
  // Sends what all ranks send, and waits until rank 0 has answered all. `what`: of the others, for
  // the message if it does not.
  void meet_all(FrameKind kind, const std::string& text, const char* what);
  [[noreturn]] void throw_failure(std::unique_lock<std::mutex>& lock);

  const World* world_ = nullptr;
  Socket socket_;
  Deadline& deadline_;
  WaitClock clock_;  // of the one thread that waits here
  std::mutex mutex_, sending_;
  std::condition_variable changed_;
  std::string failure_;
  bool has_aborted_ = false, is_done_ = false;
  bool is_answered_ = false;                 // what meet_all() waits for
  double their_time_ = 0, answered_at_ = 0;  // of rank 0's clock; when it came
  std::atomic<bool> is_leaving_ = false;
  std::vector<std::string> texts_;  // of all ranks, of the last answer that had some
  std::map<std::string, std::uint64_t> launched_;
  std::map<std::pair<std::string, std::uint64_t>, std::shared_ptr<Posted>> waiting_;
  std::thread listener_;
};

}  // namespace epweave::replay::nccl
