// Makes the nodes of a chunked graph: unique names, types by rule, labels, provenance.
//
//   writer.append(writer.make({.name = "x_split", .target = "aten.split_with_sizes.default", ...}))
//
// puts a typed call behind the last node of the order, with x as its origin and the region's labels
// on it.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ir/facts.h"
#include "ops/type_memo.h"
#include "passes/chunk/chunk_plan.h"
#include "passes/chunk/chunk_symbols.h"
#include "passes/chunk/chunk_views.h"

namespace epweave {

// A call that the pass makes up, in the name of `origin` for `region`.
struct NewCall {
  std::string name;
  std::string_view target;
  std::vector<Arg> args;
  ArgRange kwargs;
  std::string_view chunk_role;
  std::string_view chunk_proof;
  ProvenanceRole role = ProvenanceRole::kAdded;
  NodeId origin;
  RegionId region;
  std::optional<std::size_t> part;
};

class ChunkWriter {
 public:
  // Appends to the node table of `chunked`; rows of the input graph keep their ids.
  ChunkWriter(const Graph& graph, const ChunkPlan& plan, const PartSymbols& symbols, Graph& chunked);

  Node make(const NewCall& call);
  // A copy of a region's node for one part, but for its arguments.
  Node make_part(NodeId original, std::size_t part);
  // A second, whole copy of a region's node, but for its arguments; and why there is one.
  Node make_again(NodeId original, std::string_view reason);
  // Appends a second node that names the same nested graph, and why there is one.
  NodeId repeat(NodeId function, std::string_view reason);
  Arg list(const std::vector<Arg>& items) { return context().args.add_tree(ArgKind::kList, items); }
  ArgRange memory_format(std::string_view format);

  // Types the node and appends it to the table; the caller puts it into the order.
  NodeId add(Node node);
  NodeId append(Node node);
  // A value that stands for the whole `original`: the recorded type is kept where it says the same.
  NodeId append_whole(Node node, NodeId original);
  // A node of the input graph that stays, and its type.
  void keep(NodeId id, TypeId type);
  // Types it anew where its arguments' types changed: joins may have other strides than the value
  // they rejoin.
  TypeId retype(NodeId id);

  // That a node of the input graph that stays takes the value.
  void count_use(NodeId value) { ++uses_.at(value); }
  // Of all nodes that were written.
  UseCounts take_uses() { return std::move(uses_); }

  Facts& facts() { return facts_; }
  std::vector<NodeId>& order() { return order_; }
  // How many nodes stand in the order.
  std::size_t time() const { return order_.size(); }
  std::string_view name(NodeId id) const { return out_.text(out_.step().nodes[id].name); }
  // Whether a node that was written may have a type with a symbol that a divided node bound.
  bool may_mention_divided_symbols() const { return mentions_; }
  const TensorType* tensor(NodeId id) const { return tensor_of(*out_.context, out_.step().nodes[id].type); }

 private:
  Context& context() { return *out_.context; }
  StringId fresh_name(std::string_view base);
  bool is_name(StringId name);
  // Whether the type has a symbol that has twins now.
  bool is_mentioning(TypeId type);
  void set_chunk(Node& node, RegionId region, std::string_view role, std::optional<std::size_t> part);
  TypeId type_of(const Node& node);
  bool says_the_same(TypeId type, TypeId recorded);

  const Graph& in_;
  const ChunkPlan& plan_;
  const PartSymbols& symbols_;
  Graph& out_;
  Facts facts_;
  TypeMemo types_;
  StringId pass_;
  std::optional<IdSet<StringId>> names_;  // of the nodes of the input graph, once asked for
  IdSet<StringId> made_names_;
  std::string part_name_;
  enum class Mention : std::uint8_t { kUnknown, kNo, kYes };
  SideTable<TypeId, Mention> mention_;
  bool mentions_ = false;
  std::vector<NodeId> order_;
  UseCounts uses_;
};

}  // namespace epweave
