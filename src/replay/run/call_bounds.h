// Which of a rank's calls get bounds (bounds/error_bounds.h), and what numbers of the host make of
// that:
//
//   %s = sum(%x)        bounded: the other graph adds up in another order
//   %n = _local_scalar_dense(%s)     a number that the other graph may not have: in doubt
//   %y = mul(%x, %n)    nothing is known of its elements
//   %z = zeros([%n])    nor of its size; what both graphs were seen to have is in no doubt
//
// Of a run in which nothing is bounded all of it does nothing.
#pragma once

#include <memory>

#include "replay/bounds/error_bounds.h"
#include "replay/kernels/kernel.h"
#include "replay/run/rank_runner.h"

namespace epweave::replay {

class CallBounds {
 public:
  // `values`: of nodes that were run, by node. All must outlive this.
  CallBounds(const Program& program, const RunOptions& options, Memory& memory,
             const std::vector<Value>& values);

  // Null where nothing is bounded.
  ErrorBounds* bounds() const { return bounds_.get(); }

  enum class How : std::uint8_t {
    kNone,
    kExact,    // it could have bounds, and what it takes has none
    kInDoubt,  // it takes a number that the other graph may not have
    kFollows,
  };
  // In front of a call and behind it: bounds are those of what it reads.
  How begin(NodeId id, const KernelCall& call);
  void end(NodeId id, How how, const BoundedCall& call);

  // Of a call without a kernel: sizes follow from numbers and other sizes, but where both graphs
  // were seen to have the same.
  void hand_on_doubt(NodeId id) { hand_on_doubt(id, nullptr); }
  bool takes_number_in_doubt(const Node& node) const { return takes_one_of(node, numbers_in_doubt_); }

 private:
  void hand_on_doubt(NodeId id, const KernelCall* call);
  bool needs_bounds(NodeId id, const KernelCall& call) const;
  void follow_number(NodeId id, const BoundedCall& call);
  void follow_in_doubt(NodeId id, const BoundedCall& call);
  bool takes_one_of(const Node& node, const IdSet<NodeId>& nodes) const;
  bool finds_size_in_doubt(const Node& node, const KernelCall& call) const;

  const Context& context_;
  const Body& body_;
  const RunOptions& options_;
  const std::vector<Value>& values_;
  const std::unique_ptr<ErrorBounds> bounds_;  // or null
  IdSet<NodeId> numbers_in_doubt_;             // read where there is a bound, and computed from those
  IdSet<NodeId> sizes_in_doubt_;               // values whose sizes may be others in the other graph
};

}  // namespace epweave::replay
