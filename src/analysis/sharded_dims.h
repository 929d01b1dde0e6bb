// Which dimensions of a step's values hold shards of parameters' dimensions.
//
//   tok_embeddings.weight : bf16[1024, 256], traced as [2048, 256]      dimension 0: 1024 of 2048, along axis tp
//
// A parameter's local extents are compared with its global ones, and followed forward through each
// op's mapping of dimensions (ops/mapping.h). Gathers along an axis of the mesh put shards of that
// axis together, and axes along which the parameter's gradient is all-reduced hold copies (replicas
// of HSDP).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "analysis/packed_gathers.h"
#include "analysis/world.h"
#include "ir/facts.h"
#include "ir/graph.h"
#include "ops/mapping.h"
#include "ops/mesh_calls.h"

namespace epweave {

// Ranks that are `stride` apart, `extent` of them.
struct RankAxis {
  StringId name;
  std::uint32_t stride = 1, extent = 1;

  std::int64_t coordinate(std::uint32_t rank) const { return rank / stride % extent; }
};

// A dimension holds `local` of `global` places: the shard of a parameter's dimension along some of
// these axes of its mesh.
struct ShardedDim {
  std::int64_t local = 0, global = 0;
  std::vector<RankAxis> axes;  // that may be among them
};

// By dimension; none: not a shard.
using ShardedDims = std::vector<std::optional<ShardedDim>>;
using ShardedValue = std::vector<ShardedDims>;  // each tensor of a tuple

// The axis along which the shard is cut: all that it could be.
std::vector<RankAxis> fitting_axes(const ShardedDim& shard);

// As a graph records it: [places here, of how many, [[axis, stride, extent], ..]].
Arg write_shard(Context& context, const std::optional<ShardedDim>& shard);
std::optional<ShardedDim> read_shard(const Context& context, Arg record);
// The items of a record, if it is a list of that many.
std::span<const Arg> items_of(const Context& context, Arg list, std::size_t count);

// The entry of an input's role that records the shards of a saved value.
inline constexpr std::string_view kShardsKey = "shards";

class ShardFinder {
 public:
  ShardFinder(const Graph& graph, Facts& facts);

  // Of a tensor's dimension.
  const ShardedDim* find(NodeId id, std::int64_t dim) const;
  // Along which the parameters are cut, and local extents.
  const std::vector<ShardedDim>& all() const { return all_; }

  // As inputs of another graph record it; none: nothing is known.
  std::optional<Arg> describe(NodeId id) const;

 private:
  // What the graph that these inputs are saved values of knew (describe_shards).
  void read_recorded();

  void read_parameters();

  using Rules = std::vector<GroupRule>;

  // By parameter: the groups whose ranks all get one gradient, as it is summed whole over them.
  // These ranks hold one shard.
  std::map<StringId, Rules> list_reduced();

  // Calls after which ranks that had one value still have one: they choose no part of it, which
  // could be each rank's own.
  static bool keeps_shares(const OpInfo& op);

  // Those of all its operands, and its own. A reduce-scatter gives each rank of its group another
  // share.
  Rules rules_of_result(const Node& node, const std::map<NodeId, Rules>& reduced);
  // Whether ranks that differ along the one have one place along the other.
  static bool is_apart(const GroupRule& x, const GroupRule& y);
  static bool has_rule(const Rules& rules, const GroupRule& wanted);

  static void erase_axis(std::vector<RankAxis>& axes, const GroupRule& rule);

  static std::vector<RankAxis> axes_of(const MeshValue& mesh);

  void add_parameter(NodeId id, const TensorType& tensor, Arg global, const std::vector<RankAxis>& axes);

  void visit(NodeId id, const Node& node);

  const ShardedValue* operand(const Node& node, std::size_t position) const;

  // As large as the first operand, place by place.
  void copy(NodeId id, const Node& node);

  void take_element(NodeId id, const Node& node);

  // Shards along the group's axis are put together along the first dimension.
  void gather(NodeId id, NodeId from, const Node& launch);

  std::optional<GroupRule> rule_of_call(const Node& node);

  std::optional<GroupRule> rule_of(Arg group);

  void map(NodeId id, const Node& node);

  static void hand_on(const CallMapping& mapping, const ShardedDim& shard, std::span<const Factor> factors,
                      ShardedValue& made);

  void keep(NodeId id, ShardedValue value);

  const Graph& graph_;
  const Context& context_;
  Facts& facts_;
  std::uint32_t world_size_ = 0;
  PackedGathers packed_;
  std::map<NodeId, ShardedValue> values_;
  std::vector<ShardedDim> all_;
};

}  // namespace epweave
