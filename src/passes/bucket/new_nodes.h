// Writes calls for a bucket, one behind the other: named, typed, with the labels of what they stand
// for. Where they stand in the step is the caller's.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ir/facts.h"
#include "ops/type_memo.h"
#include "passes/bucket/merged_graph.h"

namespace epweave {

class NewNodes {
 public:
  explicit NewNodes(MergedGraph& merged);

  // The next nodes are like this one, but for what a call is: it outlives them.
  void write_like(const Node& model) { model_ = &model; }
  // ... and are there for this launch, on its device.
  void write_for(NodeId launch) { site_ = launch; }
  // Those written since the last call of it.
  std::vector<NodeId> take() { return std::exchange(made_, {}); }
  // The step, once all are written and placed.
  void finish() { merged_.finish(facts_, types_); }

  NodeId add(std::string_view target, std::vector<Arg> args, std::vector<Arg> kwargs = {});
  NodeId add_wait(NodeId result);
  NodeId add_view(NodeId of, const std::vector<std::int64_t>& sizes);
  NodeId add_buffer(std::int64_t elements, DType dtype);
  // As the dtype, mostly the one that it has, and by another name: what torch's trace of the cut
  // leaves.
  NodeId add_bit_view(NodeId of, DType dtype);
  // A copy where no view has the sizes. One of `sizes` may be -1: so many as there are.
  NodeId add_reshape(NodeId of, const std::vector<std::int64_t>& sizes);

  Arg list(std::span<const Arg> items);
  Arg numbers(std::span<const std::int64_t> items);
  std::vector<Arg> keyword(std::string_view name, Arg value);
  std::vector<std::int64_t> sizes_of(NodeId value) const;
  bool is_contiguous(const TensorType& type);

 private:
  StringId fresh_name(std::string_view base);

  MergedGraph& merged_;
  Graph& graph_;
  Context& context_;
  Facts facts_;
  TypeMemo types_;
  IdSet<StringId> names_;
  std::map<std::string, int> last_number_;  // by the base of a name
  const Node* model_ = nullptr;
  NodeId site_;
  std::vector<NodeId> made_;
};

}  // namespace epweave
