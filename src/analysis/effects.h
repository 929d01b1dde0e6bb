// What the calls of a body do besides computing their value: which storage they read and write, and
// which order that forces on them.
//
// Values share storage where an op's row says so (views, in-place and `out=` ops), where a wait
// hands on the tensor it waited for, and where two attributes name the same constant. Values that
// may share storage are in one class, named by its first value.
//
//   buf = empty([8])
//   a, b = view(buf), view(buf)
//   split_with_sizes_copy.out(x, [4, 4], out=[a])     writes the class of buf
//   y = mul(b, 2)                                     reads it: y stays behind the write
//
// A symbol in an argument is a number that an earlier node read: its user stays behind that node.
//
// Conservative where it must be: an op without a row may write what it reads and is ordered against
// every other effect; `reshape` may copy, so it reads; a wait completes its launch, so it writes
// the result and reads the operands a last time. Views read nothing. Elements of a tuple that an op
// computes are separate.
//
// `order_edges` gives the pairs that must stay in order beyond data dependences; a permutation of
// the body that keeps those and the data dependences computes the same values.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "ir/graph.h"

namespace epweave {

enum class OrderReason : std::uint8_t {
  kData,            // `after` takes the value of `before`
  kReadAfterWrite,  // of the same storage
  kWriteAfterRead,
  kWriteAfterWrite,
  kRandom,         // both draw from the random number generator
  kUnknownEffect,  // one of the two has no row in the op table
  kLaunchOrder,    // launches on one process group
  kHostRead,       // the host reads a copy that is complete only behind `before`
  kRequested,      // the caller's own constraint
};
std::string_view name_of(OrderReason reason);  // "reads what the other wrote", ...

// `before` must execute before `after`.
struct OrderEdge {
  NodeId before, after;
  OrderReason reason = OrderReason::kData;
  NodeId about;  // storage: the first value of its class; launches: none
};

struct StorageAccess {
  NodeId storage;
  bool writes = false;
};

class Effects {
 public:
  // Both must outlive the effects; the body is the step or a nested graph. `also` is called for
  // each node that executes, in order: what else is to be found out about a large body needs no
  // walk of its own.
  using Visit = std::function<void(NodeId, const Node&)>;
  Effects(const Graph& graph, const Body& body, const Visit& also = {});

  const Context& context() const { return context_; }
  const Body& body() const { return body_; }

  // The first value of the class of values that may share storage with this one.
  NodeId storage_of(NodeId value) const { return storage_[value]; }
  // Whether some node writes the storage.
  bool is_written(NodeId storage) const { return written_.contains(storage); }
  // Accesses of a node to storage that some node writes, each storage once.
  std::span<const StorageAccess> accesses_of(NodeId node) const {
    return {accesses_.data() + begins_[node.index()], begins_[node.index() + 1] - begins_[node.index()]};
  }
  // Order between nodes that data dependences do not (always) imply.
  const std::vector<OrderEdge>& order_edges() const { return edges_; }

 private:
  enum class TouchKind : std::uint8_t { kRead, kWrite, kRandom, kEffect, kUnknown };
  struct Touch {
    NodeId node;
    NodeId operand;  // of kRead and kWrite
    TouchKind kind;
  };

  void find_touches(NodeId id, const Node& node);
  void find_accesses();

  const Graph& graph_;
  const Context& context_;
  const Body& body_;
  std::vector<Touch> touches_;  // by execution order of the nodes; only while the effects are being found
  IdSet<NodeId> written_;       // storages
  std::vector<std::uint32_t> begins_;
  std::vector<StorageAccess> accesses_;
  IdVector<NodeId, NodeId> storage_;
  std::vector<OrderEdge> edges_;
};

// Whether the node touches the elements of its operands (views and size queries do not).
bool reads_elements(const Node& node);

}  // namespace epweave
