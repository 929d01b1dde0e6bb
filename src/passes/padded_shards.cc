#include "passes/padded_shards.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "ir/facts.h"
#include "ir/types/layout.h"
#include "ops/bind.h"
#include "ops/family.h"
#include "ops/op.h"
#include "passes/pieces.h"

namespace epweave {
namespace {

class PadReader {
 public:
  explicit PadReader(const Graph& graph)
      : graph_(graph), context_(*graph.context), facts_(graph), finder_(context_) {}

  PaddedShards run() {
    found_.shards = find_uneven_shards(graph_);
    if (found_.shards.empty()) return std::move(found_);
    found_.sizes.resize(found_.shards.size());
    for (std::size_t s = 0; s < found_.shards.size(); ++s) shard_of_.at(found_.shards[s].value) = s;
    for (NodeId id : graph_.step().order) read(id);
    for (std::size_t s = 0; s < found_.shards.size(); ++s) {
      const TensorType* shard = tensor_of(context_, graph_.step().nodes[found_.shards[s].value].type);
      if (found_.sizes[s].size() != shard->rank()) fail(s, "nothing pads it to a whole shard");
      found_.are_whole = found_.are_whole && shard->sizes == found_.sizes[s];
    }
    return std::move(found_);
  }

 private:
  static constexpr std::size_t kNone = ~std::size_t{0};

  void fail(std::size_t shard, std::string_view why) {
    if (!found_.problem)
      found_.problem = fmt::format("{} is cut unevenly ({})", describe(graph_, found_.shards[shard]), why);
  }

  void read(NodeId id) {
    const Node& call = graph_.step().nodes[id];
    if (call.kind == NodeKind::kOutput) return;
    const bool is_pad = has_family(call, OpFamily::kPad);
    bool takes_shard = false;
    for_each_input(context_, call, [&](NodeId input) {
      if (const std::size_t padded = padded_of_[input]; padded != kNone) use_padded(padded, id);
      const std::size_t shard = shard_of_[input];
      if (shard == kNone) return;
      takes_shard = true;
      if (is_pad)
        take_pad(shard, id);
      else if (has_family(call, OpFamily::kAllGather))
        take_whole(shard);
      else if (is_shown(call))
        shard_of_.at(id) = shard;
      else
        fail(shard, fmt::format("%{} takes it as it is", graph_.text(call.name)));
    });
    if (!found_.pads_all)
      found_.pads_all = is_pad ? !takes_shard && pads_piece_by_nothing(call) : scatters_padded_bucket(call);
  }

  // A reduce-scatter of what was packed from several tensors, of more elements than those have.
  bool scatters_padded_bucket(const Node& scatter) {
    if (!has_family(scatter, OpFamily::kReduceScatter)) return false;
    Arg packed = arg_of(context_, scatter, 0);
    while (packed.is_node() && is_shown(graph_.step().nodes[packed.as_node()]))
      packed = arg_of(context_, graph_.step().nodes[packed.as_node()], 0);
    return packed.is_node() && packs_more(graph_.step().nodes[packed.as_node()]);
  }

  static bool is_shown(const Node& node) {
    return node.op != nullptr && keeps_numbers(node.op->family) && !node.op->writes;
  }

  bool packs_more(const Node& bucket) {
    const TensorType* result = tensor_of(context_, bucket.type);
    if (bucket.op == nullptr || result == nullptr) return false;
    const Arg pieces = arg_of(context_, bucket, 0);
    if (!pieces.is_list()) return false;
    std::vector<ExprId> lengths;
    for (Arg piece : context_.args.children(pieces)) {
      const TensorType* type =
          piece.is_node() ? tensor_of(context_, graph_.step().nodes[piece.as_node()].type) : nullptr;
      if (type == nullptr) return false;
      lengths.push_back(product(facts_, type->sizes));
    }
    const ExprId more = context_.exprs.sub(product(facts_, result->sizes), sum(facts_, lengths));
    const auto number = context_.exprs.constant(facts_.normalize(more));
    return number && *number > 0;
  }

  bool pads_piece_by_nothing(const Node& pad) {
    const Arg piece = arg_of(context_, pad, 0), amounts = arg_of(context_, pad, 1);
    return amounts.is_list() &&
           std::ranges::all_of(context_.args.children(amounts),
                               [](Arg amount) { return amount.is_int() && amount.as_int() == 0; }) &&
           piece.is_node() && finder_.find(graph_.step(), graph_.step().nodes[piece.as_node()]);
  }

  void use_padded(std::size_t shard, NodeId id) {
    const Node& call = graph_.step().nodes[id];
    if (is_shown(call))
      padded_of_.at(id) = shard;
    else if (!has_family(call, OpFamily::kAllGather) && !found_.other_use)
      found_.other_use = fmt::format("{} is cut unevenly (%{} takes it, padded)",
                                     describe(graph_, found_.shards[shard]), graph_.text(call.name));
  }

  // All ranks give a gather as much: what is gathered as it is, is a whole shard.
  void take_whole(std::size_t shard) {
    take(shard, tensor_of(context_, graph_.step().nodes[found_.shards[shard].value].type)->sizes);
  }

  void take_pad(std::size_t shard, NodeId id) {
    const Node& pad = graph_.step().nodes[id];
    const TensorType* padded = tensor_of(context_, pad.type);
    if (padded == nullptr || !arg_of(context_, pad, 1).is_list())
      return fail(shard, fmt::format("%{} has no type, or no list of amounts", graph_.text(pad.name)));
    found_.pads.insert(id);
    padded_of_.at(id) = shard;
    take(shard, padded->sizes);
  }

  void take(std::size_t shard, const std::vector<ExprId>& whole) {
    std::vector<ExprId>& sizes = found_.sizes[shard];
    if (sizes.empty()) sizes = whole;
    if (sizes != whole) fail(shard, "it is gathered in several sizes");
  }

  const Graph& graph_;
  Context& context_;
  Facts facts_;
  PieceFinder finder_;
  PaddedShards found_;
  SideTable<NodeId, std::size_t> shard_of_{kNone};   // of inputs, and casts and views of them
  SideTable<NodeId, std::size_t> padded_of_{kNone};  // of pads of those, and casts and views of these
};

}  // namespace

PaddedShards read_padded_shards(const Graph& graph) {
  return PadReader(graph).run();
}

}  // namespace epweave
