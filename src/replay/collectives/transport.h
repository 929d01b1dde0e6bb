// Collectives: what they mean, how launches are checked against each other, and how virtual ranks,
// threads of one process, do them. (Ranks that are processes of their own:
// nccl/remote_transport.h.)
//
// A launch posts a copy of this rank's operand and goes on; the wait blocks until every member of
// the group has posted the launch of the same number on that group, and computes this rank's result
// from the copies. So nothing depends on timing: the n-th launch of a group on each rank is one
// collective.
//
// Meaning and order of sums, for members in the order of the group (ranks ascending in every
// derived group):
//   all_to_all_single   member i's result: for each member j, in order, the rows that j sends to i
//   all_gather          the operands in order, along dimension 0
//   reduce_scatter      member i's result: slice i of dimension 0 of the sum
//   all_reduce          the reduction of all operands
//   sum                 ((x_0 + x_1) + x_2) + ..: float32 for float16, bfloat16 and float32,
//                       rounded to the dtype once at the end; float64 for float64; integers wrap;
//                       complex64 by parts in float32
//   avg                 the sum divided by the number of members, before the rounding
//   max, min            NaN if any operand is; product as sum
//   broadcast           the operand of member `src`
//
// Before data moves, the members' launches are checked against each other: same op, dtype and
// reduction, sizes that fit, and for all_to_all_single every split that i sends to j is the one
// that j expects from i. A mismatch is a CollectiveError with every rank's numbers. If no rank can
// make progress any more, or the deadline passes, the error says what each rank waits for.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include "replay/collectives/deadline.h"
#include "replay/collectives/groups.h"
#include "replay/values/tensor.h"

namespace epweave::replay {

// The ranks' collectives do not match, or are stuck. The run failed: exit 1.
class CollectiveError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Thrown in the other ranks once one has failed; not reported.
class Aborted : public std::runtime_error {
 public:
  Aborted() : std::runtime_error("another rank failed") {}
};

enum class CollectiveKind : std::uint8_t { kAllToAll, kAllGather, kReduceScatter, kAllReduce, kBroadcast };

// One rank's part of a collective.
struct Contribution {
  CollectiveKind kind = CollectiveKind::kAllGather;
  std::string what;       // "%a = _c10d_functional.all_reduce.default", for messages
  std::string reduction;  // "sum", "avg", "max", "min", "product"; empty where nothing is reduced
  std::int64_t source = 0;
  DType dtype = DType::kFloat32;
  Extents sizes;
  std::vector<std::int64_t> sends, receives;  // rows to and from each member: all_to_all
  std::shared_ptr<Storage> data;              // row-major copy of the operand
  std::shared_ptr<Storage> bound;             // float32 per element, where bounds are made (error_bounds.h)
  std::shared_ptr<Storage> ideal;             // float64 per element, where bounds are made (ideal_values.h)
  std::shared_ptr<void> ready;                // on a device: the event behind the copy
  // What is above `data` is the graph's: it is the same for every member, and none need ask.
  bool is_graphs = false;
};

// A collective that all its members have posted, seen by one of them.
struct Meeting {
  const std::vector<Contribution>& contributions;  // by member
  const std::vector<Rank>& members;
  std::size_t member = 0;  // this one
  std::string group;
  std::uint64_t number = 0;  // of the launch on that group
};

// Where the bytes of a member's result come from; for all_to_all, all_gather and broadcast.
struct Piece {
  std::size_t member = 0;
  std::size_t from = 0, to = 0, bytes = 0;
};
std::vector<Piece> list_pieces(const Meeting& meeting);
// The first element of the sum that is the member's, of the reducing ones.
std::size_t first_reduced(const Meeting& meeting);
enum class Reduction : std::uint8_t { kSum, kAvg, kMax, kMin, kProduct };
Reduction find_reduction(const std::string& name);  // throws CollectiveError

// The members of the rank's group. Throws CollectiveError if they are not known.
const std::vector<Rank>& find_members(const World& world, Rank rank, const std::string& group);
// One line about a launch: operation, dtype, sizes, splits.
std::string describe(const Contribution& part);

// One collective: its members' contributions.
struct Posted {
  std::string group;
  std::uint64_t number = 0;
  std::vector<Rank> members;
  std::vector<Contribution> contributions;  // by member
  std::vector<bool> posted;
  std::size_t missing = 0;
};
// Throws CollectiveError with every rank's numbers if the launches do not fit.
void check_contributions(const Posted& meeting);

// The same collective of the bounds that the members handed over, whose result bounds the
// operands'; none where nothing bounds the reduction (a product).
std::optional<std::vector<Contribution>> find_bound_contributions(const std::vector<Contribution>& parts);
// The same collective of the ideals; none where some member has none.
std::optional<std::vector<Contribution>> find_ideal_contributions(const std::vector<Contribution>& parts);

// The member's result, from contributions in host memory.
void write_result(const Meeting& meeting, const Tensor& result);

// How the ranks of a run meet.
class Transport {
 public:
  struct Ticket {
    std::shared_ptr<Posted> meeting;
    std::size_t member = 0;  // this rank's place in the group
  };

  virtual ~Transport() = default;
  // A run of a graph with these groups starts: launches are counted from 0. A transport of one run
  // has its groups already.
  virtual void begin(const World& world) { static_cast<void>(world); }
  // Throws CollectiveError if the group's members are not known.
  virtual Ticket post(Rank rank, const std::string& group, Contribution contribution) = 0;
  // Blocks until all members have posted, and checks the contributions: what a result is made from.
  // Valid as long as the ticket.
  virtual Meeting meet(Rank rank, const Ticket& ticket) = 0;
  virtual std::size_t member_count(Rank rank, const std::string& group) const = 0;
  // The rank will post no more in this run. Where ranks are processes, waits until none will.
  virtual void finish(Rank rank) = 0;
  virtual void abort(const std::string& problem) = 0;  // wakes all who wait
  // Of the time since the rank's last wait here, so much was a wait for the others, too: on the
  // device, or in the library that moves data.
  virtual void waited(std::chrono::nanoseconds) {}
  // Why all ranks stop, where they are processes; empty while they go on.
  virtual std::string failure() { return {}; }
};

// The failure that another process tells of within a second, while `is_over` does not say that none
// is waited for any more; empty: none does. What goes wrong here may follow from it: data that a
// lost device sent arrive before the news.
std::string await_failure(Transport& transport, const std::function<bool()>& is_over);

// All ranks are threads of this process. Who waits when one aborts throws Aborted.
class LocalTransport : public Transport {
 public:
  LocalTransport(const World& world, WaitLimit limit);

  Ticket post(Rank rank, const std::string& group, Contribution contribution) override;
  Meeting meet(Rank rank, const Ticket& ticket) override;
  // Meets, and writes this rank's result from host memory.
  void complete(Rank rank, const Ticket& ticket, const Tensor& result);

  std::size_t member_count(Rank rank, const std::string& group) const override;
  void finish(Rank rank) override;
  void abort(const std::string& problem) override;

 private:
  struct Waiting {
    std::shared_ptr<Posted> meeting;
    WaitClock clock;
    bool finished = false;
  };
  bool nobody_can_go_on() const;
  std::string describe_waiting() const;
  void fail(const std::string& reason);

  const World& world_;
  Deadline deadline_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool aborted_ = false;
  std::vector<Waiting> ranks_;
  std::map<std::pair<Rank, std::string>, std::uint64_t> launched_;
  std::map<std::tuple<std::string, Rank, std::uint64_t>, std::shared_ptr<Posted>> open_;
};

}  // namespace epweave::replay
