#include "compare/ranks/bucket_slots.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "compare/ranks/rank_baked.h"
#include "ops/bind.h"
#include "ops/named_arg.h"
#include "ops/op.h"
#include "ops/traffic.h"

namespace epweave {
namespace {

class SlotCheck {
 public:
  SlotCheck(const Graph& graph, std::uint32_t rank)
      : graph_(graph), context_(*graph.context), body_(graph.step()), rank_(rank) {}

  std::vector<RankViolation> find() {
    for (NodeId id : body_.order)
      if (const OpInfo* op = body_.nodes[id].op; op != nullptr && op->family == OpFamily::kAllGather)
        check(body_.nodes[id]);
    return std::move(found_);
  }

 private:
  void check(const Node& gather) {
    const Arg out = named_arg(context_, gather, "out"), own = arg_of(context_, gather, 0);
    const auto place = find_place(named_arg(context_, gather, "group_name"));
    if (!out.is_node() || !own.is_node() || !place) return;
    const Node& buffer = body_.nodes[out.as_node()];
    if (buffer.op == nullptr || traffic_of(*buffer.op) != Traffic::kSlot) return;
    const auto position = buffer.op->find_param("rank");
    const Arg written = position ? arg_of(context_, buffer, *position) : Arg::none();
    if (written.is_int() && written.as_int() != *place)
      fail(out.as_node(), *position, written.as_int(), *place);
    check_sent(own.as_node(), out.as_node(), *place);
  }

  // What is sent is a piece of the buffer, as many elements behind its begin as the members before
  // send.
  void check_sent(NodeId own, NodeId buffer, std::int64_t place) {
    const Node& node = body_.nodes[own];
    const TensorType *sent = tensor_of(context_, node.type),
                     *all = tensor_of(context_, body_.nodes[buffer].type);
    const bool is_piece =
        has_family(node, OpFamily::kSlice) && arg_of(context_, node, 0) == Arg::node(buffer);
    if (!is_piece || sent == nullptr || all == nullptr || sent->rank() != 1) return;
    const auto begin = number(sent->offset), base = number(all->offset), count = number(sent->sizes[0]);
    if (!begin || !base || !count || *begin - *base == place * *count) return;
    fail(own, node.op->find_param("start").value_or(2), *begin - *base, place * *count);
  }

  void fail(NodeId node, std::size_t argument, std::int64_t value, std::int64_t wanted) {
    RankViolation made{
        .invariant = "ranks-baked",
        .message = fmt::format("{} is the slot of another rank in the bucket; this rank's is {} {}", value,
                               wanted, print_place(graph_, node)),
        .ranks = {rank_}};
    made.nodes = {std::string(graph_.text(body_.nodes[node].name))};
    made.argument = static_cast<std::uint32_t>(argument);
    made.value = value;
    made.expression = fmt::format("{}", wanted);
    found_.push_back(std::move(made));
  }

  std::optional<std::int64_t> number(ExprId expr) const {
    return expr ? context_.exprs.constant(expr) : std::optional<std::int64_t>(0);
  }

  // Of the rank among the members; none: the group is not known, or it is none of them.
  std::optional<std::int64_t> find_place(Arg group) const {
    const ProcessGroup* row = graph_.find_group(recorded_group(context_, body_, group));
    if (row == nullptr) return std::nullopt;
    const auto at = std::ranges::find(row->ranks, rank_);
    return at == row->ranks.end() ? std::nullopt : std::optional(at - row->ranks.begin());
  }

  const Graph& graph_;
  const Context& context_;
  const Body& body_;
  std::uint32_t rank_;
  std::vector<RankViolation> found_;
};

}  // namespace

std::vector<RankViolation> find_foreign_slots(const Graph& graph, std::uint32_t rank) {
  return SlotCheck(graph, rank).find();
}

}  // namespace epweave
