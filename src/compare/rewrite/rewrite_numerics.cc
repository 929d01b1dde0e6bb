#include "compare/rewrite/rewrite_numerics.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "analysis/collectives.h"
#include "analysis/returned_values.h"
#include "analysis/users.h"
#include "ops/bind.h"
#include "ops/op.h"
#include "ops/sorting.h"

namespace epweave {
namespace {

class OutputClassifier {
 public:
  OutputClassifier(const RewriteClaims& claims, const StorageWriters& writers)
      : claims_(claims),
        graph_b_(claims.graph_b()),
        context_(*graph_b_.context),
        b_(graph_b_.step()),
        writers_b_(writers),
        inputs_b_(list_inputs(context_, b_)),
        numerics_(b_.nodes.size()) {
    // Of data, Effects has those between a number and the calls that name its symbol.
    for (const OrderEdge& edge : writers.effects().order_edges())
      if (edge.reason == OrderReason::kData) named_numbers_.at(edge.after).push_back(edge.before);
  }

  std::vector<RewriteOutput> run() {
    classify();
    list_results();
    list_updates();
    return std::move(outputs_);
  }

 private:
  // Whether sums of such values are the same in whatever order, as those of integers are. What is
  // not known may be rounded. A tuple's elements are computed together.
  bool is_exact(TypeId id) const {
    if (!id) return false;
    const Type& type = context_.types[id];
    switch (type.kind) {
      case TypeKind::kTensor:
        return !is_inexact(type.tensor.dtype);
      case TypeKind::kScalar:
        return context_.text(type.py_type) != "SymFloat";
      case TypeKind::kTuple:
      case TypeKind::kList:
        return std::ranges::all_of(type.elements, [&](TypeId element) { return is_exact(element); });
      case TypeKind::kValue:
        return !type.value.is(ArgKind::kReal);
    }
    return false;
  }

  // A part in which a kernel orders equal keys as it likes.
  bool orders_freely(NodeId id) const {
    const Node& node = b_.nodes[id];
    if (claims_[id].kind != ClaimKind::kPart) return false;
    return has_family(node, OpFamily::kTopK) ||
           (has_family(node, OpFamily::kSort) && !keeps_equal_in_order(context_, node));
  }

  // Of the whole, what names a number's symbol names it as the sum of its parts' symbols.
  bool adds_named_numbers(NodeId id) const {
    return claims_[id].kind != ClaimKind::kPart &&
           std::ranges::any_of(named_numbers_[id], [this](NodeId number) {
             return claims_[number].kind == ClaimKind::kPart && !is_exact(b_.nodes[number].type);
           });
  }

  // (x + p0) + p1, where A adds p0 + p1 to x, is a sum of other summands, too: what the first part
  // adds to is all of a value. A later part adds to that, or to what the part before it left.
  bool regroups(NodeId id) const {
    const Claim& claim = claims_[id];
    if (claim.regrouped) return true;
    if (claim.kind == ClaimKind::kJoin) return claim.first_part != claim.part;  // by sums
    if (claim.kind != ClaimKind::kPart || !accumulates(context_, b_.nodes[id])) return false;
    const Arg written = arg_of(context_, b_.nodes[id], 0);
    return written.is_node() && claims_.is_whole(written.as_node());
  }

  void classify() {
    for (NodeId id : b_.order) {
      Numerics& numerics = numerics_[id];
      for (NodeId input : inputs_b_[id]) numerics = std::max(numerics, numerics_[input]);
      for (NodeId number : named_numbers_[id]) numerics = std::max(numerics, numerics_[number]);
      for (const SeenWrite& write : writers_b_.seen_by(id))
        numerics = std::max(numerics, numerics_[write.writer]);
      if (orders_freely(id)) numerics = std::max(numerics, Numerics::kChunkEqual);
      if (is_exact(b_.nodes[id].type)) continue;
      if (regroups(id) || adds_named_numbers(id)) {
        numerics = Numerics::kSumOrder;
      } else if (claims_[id].kind == ClaimKind::kPart) {
        numerics = std::max(numerics, Numerics::kChunkEqual);
      }
    }
  }

  void list_results() {
    const std::vector<Arg> returned = list_returned(graph_b_);
    for (std::size_t i = 0; i < returned.size(); ++i) {
      const bool has_role = i < graph_b_.outputs.size() && graph_b_.outputs[i].role;
      list_value(returned[i],
                 has_role ? describe_output(graph_b_, graph_b_.outputs[i]) : fmt::format("output {}", i));
    }
  }

  // Values in lists and dicts are results of their own.
  void list_value(Arg value, const std::string& what) {
    if (value.is_node()) {
      outputs_.push_back({what, std::string(graph_b_.text(b_.nodes[value.as_node()].name)),
                          as_left_by_step(value.as_node())});
    } else if (value.is_tree()) {
      const auto items = context_.args.children(value);
      const std::size_t step = value.is(ArgKind::kDict) ? 2 : 1;  // behind its key
      for (std::size_t i = step - 1; i < items.size(); i += step)
        list_value(items[i], fmt::format("{}[{}]", what, name_item(items, i, step)));
    }
  }

  std::string name_item(std::span<const Arg> items, std::size_t i, std::size_t step) const {
    if (step == 1) return std::to_string(i);
    const Arg key = items[i - 1];
    if (key.is_int()) return std::to_string(key.as_int());
    if (key.is(ArgKind::kBool)) return key.as_bool() ? "True" : "False";
    return key.is(ArgKind::kText) ? std::string(graph_b_.text(key.as_name())) : "?";
  }

  // Which may be later than the value was made.
  Numerics as_left_by_step(NodeId value) const {
    Numerics numerics = numerics_[value];
    for (const SeenWrite& write : writers_b_.left_in(value))
      numerics = std::max(numerics, numerics_[write.writer]);
    return numerics;
  }

  // The last write to each input.
  void list_updates() {
    SideTable<NodeId, NodeId> last;
    for (NodeId id : b_.order)
      for (const StorageAccess& access : writers_b_.effects().accesses_of(id))
        if (access.writes && !is_wait(b_.nodes[id])) last.at(access.storage) = id;
    std::size_t position = 0;
    for (NodeId id : b_.order) {
      if (b_.nodes[id].kind != NodeKind::kPlaceholder) continue;
      const StringId fqn = position < graph_b_.inputs.size() ? graph_b_.inputs[position].fqn : StringId();
      ++position;
      if (const NodeId writer = last[id])
        outputs_.push_back({fmt::format("update of {}", graph_b_.text(fqn ? fqn : b_.nodes[id].name)),
                            std::string(graph_b_.text(b_.nodes[writer].name)), numerics_[writer]});
    }
  }

  const RewriteClaims& claims_;
  const Graph& graph_b_;
  const Context& context_;
  const Body& b_;
  const StorageWriters& writers_b_;
  NodeLists inputs_b_;
  SideTable<NodeId, std::vector<NodeId>> named_numbers_;  // of a call: those whose symbols it names
  IdVector<NodeId, Numerics> numerics_;
  std::vector<RewriteOutput> outputs_;
};

}  // namespace

std::string_view name_of(Numerics numerics) {
  static constexpr std::array<std::string_view, 3> kNames = {"reorder", "chunk-equal", "sum-order"};
  return kNames[static_cast<std::size_t>(numerics)];
}

std::vector<RewriteOutput> classify_outputs(const RewriteClaims& claims, const StorageWriters& writers) {
  return OutputClassifier(claims, writers).run();
}

}  // namespace epweave
