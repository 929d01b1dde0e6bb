// Collectives of one rank's run: launched, completed where their result is waited for.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "replay/bounds/error_bounds.h"
#include "replay/run/call_values.h"
#include "replay/run/executor.h"
#include "replay/run/rank_clock.h"
#include "replay/run/rank_runner.h"

namespace epweave::replay {

// Whether the step before made the compute stream wait for the collective's.
enum class Joined : std::uint8_t { kNo, kYes };
// Where bounds are made: whether the other graph has the same numbers as arguments of a call.
enum class Known : std::uint8_t { kNo, kYes };

class RankCollectives {
 public:
  // `bounds`: null where nothing is bounded.
  RankCollectives(const Graph& graph, const RankSetup& setup, const RunOptions& options, RankClock& clock,
                  ErrorBounds* bounds)
      : graph_(graph), setup_(setup), options_(options), clock_(clock), bounds_(bounds) {}

  // The result, or of a coalesced call the list of them, to be read only once it is complete.
  // Throws KernelError where the call is not legal, CollectiveError where the ranks disagree.
  Value launch(const Step& step, const Node& node, const BoundCall& bound, Known numbers);
  // What a launch sends.
  MeasuredNode describe(const OpInfo& op, const BoundCall& bound) const;

  // The collective, if one is pending, that makes this storage; all results of a coalesced one.
  void complete(const Storage* storage, Joined joined);
  void complete_all();

  bool is_pending(const Value& value) const;
  // Throws KernelError where the value, or one in its list, is pending.
  void require_complete(const Value& value) const;

 private:
  // A launch whose results are not there yet: one, or of a coalesced call one for each operand. Who
  // waits for one of them waits for all, as for the kernel that a library makes of them.
  struct Pending {
    struct Part {
      Transport::Ticket ticket;
      Tensor operand, result;
      Tensor bound = {}, ideal = {};  // of the result, where bounds are made; the latter where it has one
      HostExchange::Underway exchanged = {};
    };
    std::vector<Part> parts;
    NodeId node;
    std::uint32_t stream = 0;
    bool is_bounded = false;
    Known numbers = Known::kYes;
    bool is_sum = false;
  };

  // The operand's elements, row-major, in memory of their own.
  std::shared_ptr<Storage> copy_operand(const Tensor& operand);
  // What the operand's bounds and ideals are, for the other members; and memory for the result's.
  // On a device the copy of the operand must come behind them on the stream: who waits for it waits
  // for them.
  void hand_over_bounds(const Tensor& operand, std::size_t members, Pending& pending, Contribution& part);
  std::shared_ptr<Storage> hand_over(const Tensor& tensor, std::uint32_t stream);
  // Posts the last of the parts so far.
  void launch_part(const Node& node, const BoundCall& bound, Pending& pending);
  // Where the other members are processes of their own it starts once all have launched.
  void start_exchange(Pending& pending);
  std::vector<Meeting> meet_all(const Pending& pending);
  // Once all members have launched. The other ranks have their turns meanwhile, and of this one
  // nothing is underway.
  Meeting meet(const Transport::Ticket& ticket);

  // Where no process lies between the ranks: what they hand over carries no ideals there.
  void bound_part(const Pending& pending, const Pending::Part& part, const Meeting& meeting);
  // What the members handed over makes `result`; false: nothing does.
  bool complete_with(std::optional<std::vector<Contribution>> contributions, const Meeting& meeting,
                     std::uint32_t stream, const Tensor& result);
  void take_exchanged(const Pending& pending, const Pending::Part& part);
  // No bound: nothing bounds the result.
  void set_bound(const Pending& pending, const Tensor& result, const std::optional<Tensor>& bound);

  const Graph& graph_;
  const RankSetup& setup_;
  const RunOptions& options_;
  RankClock& clock_;
  ErrorBounds* bounds_;
  std::unordered_map<const Storage*, std::shared_ptr<Pending>> pending_;  // by the storage of a result
};

}  // namespace epweave::replay
