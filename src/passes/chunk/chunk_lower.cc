#include <optional>
#include <span>
#include <utility>

#include "analysis/element_call.h"
#include "ir/walk.h"
#include "passes/chunk/chunk_attention.h"
#include "passes/chunk/chunk_joins.h"
#include "passes/chunk/chunk_parts.h"
#include "passes/chunk/chunk_plan.h"
#include "passes/chunk/chunk_sizes.h"
#include "passes/chunk/chunk_storage.h"
#include "passes/chunk/chunk_strides.h"
#include "passes/chunk/chunk_symbols.h"
#include "passes/chunk/chunk_values.h"
#include "passes/chunk/chunk_views.h"
#include "passes/chunk/chunk_whole_values.h"
#include "passes/chunk/chunk_wholes.h"
#include "passes/chunk/chunk_writer.h"

namespace epweave {
namespace {

// One forward walk with two memoised accessors, chunk_wholes.h and chunk_parts.h:
//
//   not divided:  whole[node]   = the node with arg -> whole(arg)
//   divided:      part[node][k] = a copy with arg -> part(arg, k), for each k
//
// Joins and splits are written at first demand, so they stand in front of their first user and
// nothing needless is written. Rows of the input's node table keep their ids; new nodes are
// appended to it.
class LoweringWalk {
 public:
  // `strided`: values whose joins must have the strides that they have (JoinStrides).
  LoweringWalk(const Graph& graph, const ChunkPlan& plan, const IdSet<NodeId>& strided)
      : in_(graph),
        plan_(plan),
        placements_(plan.placements),
        symbols_(graph, plan),
        out_(symbols_.declare()),
        writer_(graph, plan, symbols_, out_),
        sizes_(graph, out_, plan, writer_),
        joins_(graph, plan, writer_, sizes_),
        strides_(graph, out_, placements_, writer_, strided),
        storage_(graph, placements_),
        values_(plan),
        wholes_(graph, plan, out_, writer_, joins_, strides_, storage_, values_),
        parts_(graph, plan, writer_, sizes_, joins_, storage_, values_, wholes_),
        attention_(graph, plan, out_, writer_, sizes_) {}

  // What else must have been in `strided`, once it has run: then the graph is none.
  const std::vector<NodeId>& missed_strides() const { return strides_.missed(); }

  Graph run() {
    for (const auto [id, node] : walk_all(*in_.context, in_.step())) {
      if (is_in_parts(placements_, id)) {
        write_parts(id);
      } else {
        write_whole(id);
      }
    }
    sizes_.place_behind_inputs();
    out_.step().order = std::move(writer_.order());
    drop_needless();
    if (writer_.may_mention_divided_symbols()) symbols_.require_unmentioned(out_);
    symbols_.drop_from(out_);
    return std::move(out_);
  }

 private:
  Context& context() { return *out_.context; }

  void write_whole(NodeId id) {
    const Node& original = in_.step().nodes[id];
    const bool has_accesses = placements_.region[id] && takes_divided(in_, placements_, id);
    std::size_t leaf = 0;
    bool needs_type = false;
    auto take = [&](Arg arg) {
      if (!arg.is_node()) return arg;
      const NodeId input = arg.as_node();
      const Access access = has_accesses ? placements_.access(id, leaf) : Access();
      ++leaf;
      if (access.kind == Access::Kind::kAny && needs_join(input, id) && !is_wanted_whole(input))
        return parts_.part(input, 0, id);
      const NodeId taken = wholes_.whole(input, id);
      needs_type |= strides_.is_retyped(input);
      return Arg::node(taken);
    };
    const ArgRange args = context().args.map(original.args, take);
    const ArgRange kwargs = context().args.map(original.kwargs, take);
    if (args != original.args) out_.step().nodes[id].args = args;
    if (kwargs != original.kwargs) out_.step().nodes[id].kwargs = kwargs;
    const TypeId type = needs_type ? strides_.retype(id) : original.type;
    writer_.keep(id, type);
    if (needs_type) strides_.check_reader(id, id);
    if (const NodeId addressed = strides_.find_addressed(id))
      strides_.require_shows(id, values_.whole(addressed).node);
    const auto count_use = [&](NodeId taken) { writer_.count_use(taken); };
    context().args.for_each_node(args, count_use);
    context().args.for_each_node(kwargs, count_use);
    values_.set_whole(id, id, writer_.time());
    strides_.note_whole(id, type);
    storage_.write_whole(id, writer_.time());
  }

  bool needs_join(NodeId id, NodeId user) const {
    return placements_.has_parts_for(id, placements_.region[user]) && !values_.whole(id).node;
  }
  bool is_wanted_whole(NodeId id) {
    if (!wanted_whole_) wanted_whole_ = find_wanted_whole(in_, placements_);
    return wanted_whole_->contains(id);
  }

  void write_parts(NodeId id) {
    if (attention_.has_summands(id)) return write_sums(id);
    for (std::size_t k = 0; k < plan_.division(placements_.region[id]).count(); ++k) {
      // Arguments first: what they demand stands in front of the part.
      const Node& original = in_.step().nodes[id];
      std::size_t leaf = 0;
      auto take = [&](Arg arg) {
        // Token counts in there are the whole's.
        if (arg.is(ArgKind::kSymbolic))
          return Arg::symbolic(symbols_.with_twins(writer_.facts(), arg.as_expr(), k));
        return arg.is_node() ? parts_.argument(id, arg.as_node(), leaf++, k) : arg;
      };
      const ArgRange args = context().args.map(original.args, take);
      const ArgRange kwargs = context().args.map(original.kwargs, take);
      Node node = writer_.make_part(id, k);
      node.args = args;
      node.kwargs = kwargs;
      attention_.adapt(id, k, node);
      const NodeId made = writer_.append(std::move(node));
      strides_.require_shows_alike(id, made);
      values_.parts_of(id)[k] = Arg::node(made);
    }
    values_.set_parts_time(id, writer_.time());
    storage_.write_parts(id, writer_.time());
  }

  // The gradient of keys or values, of which each part of the call gives summands for all parts
  // before it, too.
  void write_sums(NodeId id) {
    const std::span<Arg> calls = values_.parts_of(tuple_of(*in_.context, in_.step().nodes[id]));
    const std::vector<NodeId> sums = attention_.write_sums(id, std::vector<Arg>(calls.begin(), calls.end()));
    for (std::size_t k = 0; k < sums.size(); ++k) values_.parts_of(id)[k] = Arg::node(sums[k]);
    values_.set_parts_time(id, writer_.time());
  }

  void drop_needless() {
    std::vector<NodeId> candidates = parts_.numbers_in_parts();
    const std::vector<NodeId> parts = wholes_.list_needless_parts();
    candidates.insert(candidates.end(), parts.begin(), parts.end());
    drop_unused(out_, NodeId(in_.step().nodes.size()), std::move(candidates), writer_.take_uses());
  }

  const Graph& in_;
  const ChunkPlan& plan_;
  const Placements& placements_;
  const PartSymbols symbols_;
  Graph out_;
  ChunkWriter writer_;
  PartSizes sizes_;
  PartJoins joins_;
  JoinStrides strides_;
  PartedStorage storage_;
  ChunkedValues values_;
  WholeAccess wholes_;
  PartAccess parts_;
  PartAttention attention_;
  std::optional<IdSet<NodeId>> wanted_whole_;  // once something asks
};

}  // namespace

Graph lower_chunks(const Graph& graph, const ChunkPlan& plan) {
  for (IdSet<NodeId> strided;;) {
    LoweringWalk lowering(graph, plan, strided);
    Graph chunked = lowering.run();
    if (lowering.missed_strides().empty()) return chunked;
    for (NodeId id : lowering.missed_strides()) strided.insert(id);
  }
}

}  // namespace epweave
