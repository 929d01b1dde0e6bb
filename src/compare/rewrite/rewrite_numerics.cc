#include "compare/rewrite/rewrite_numerics.h"

#include <fmt/format.h>

#include <algorithm>

#include "analysis/collectives.h"
#include "analysis/users.h"
#include "ops/bind.h"
#include "ops/op.h"

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
        numerics_(b_.nodes.size()) {}

  std::vector<RewriteOutput> run() {
    classify();
    list_results();
    list_updates();
    return std::move(outputs_);
  }

 private:
  // Sums of others are exact.
  bool is_rounded(NodeId id) const {
    const TensorType* type = claims_.tensor_b(id);
    return type != nullptr && (is_floating(type->dtype) || is_complex(type->dtype));
  }

  // Part by part, to what all parts share: what is there is a sum over the parts.
  bool adds_to_whole(NodeId id) const {
    const Arg into = arg_of(context_, b_.nodes[id], 0);
    return claims_[id].kind == ClaimKind::kPart && accumulates(context_, b_.nodes[id]) &&
           (claims_.is_carried(claims_[id].origin) || (into.is_node() && claims_.is_whole(into.as_node())));
  }

  void classify() {
    for (NodeId id : b_.order) {
      Numerics& numerics = numerics_[id];
      for (NodeId input : inputs_b_[id]) numerics = std::max(numerics, numerics_[input]);
      for (const SeenWrite& write : writers_b_.seen_by(id))
        numerics = std::max(numerics, numerics_[write.writer]);
      if (!is_rounded(id)) continue;
      const Claim& claim = claims_[id];
      static const OpInfo* const add = find_op("aten.add.Tensor");
      const bool regroups =
          (claim.kind == ClaimKind::kJoin && b_.nodes[id].op == add) || claim.regrouped || adds_to_whole(id);
      if (regroups) {
        numerics = Numerics::kSumOrder;
      } else if (claim.kind == ClaimKind::kPart) {
        numerics = std::max(numerics, Numerics::kChunkEqual);
      }
    }
  }

  void list_results() {
    if (b_.order.empty()) return;
    const Node& output = b_.nodes[b_.order.back()];
    std::vector<NodeId> returned;
    if (output.kind == NodeKind::kOutput && !output.args.empty()) {
      const Arg result = context_.args[output.args].front();
      const auto items = result.is_list() ? context_.args.children(result) : context_.args[output.args];
      for (const Arg& item : items) returned.push_back(item.is_node() ? item.as_node() : NodeId());
    }
    for (std::size_t i = 0; i < returned.size(); ++i) {
      std::string what = fmt::format("output {}", i);
      if (i < graph_b_.outputs.size() && graph_b_.outputs[i].role) {
        const OutputRole& role = graph_b_.outputs[i];
        what = role.fqn ? fmt::format("{} of {}", graph_b_.text(role.role), graph_b_.text(role.fqn))
                        : std::string(graph_b_.text(role.role));
      }
      if (!returned[i]) continue;
      // As the step leaves it, which may be later than the value was made.
      Numerics numerics = numerics_[returned[i]];
      for (const SeenWrite& write : writers_b_.left_in(returned[i]))
        numerics = std::max(numerics, numerics_[write.writer]);
      outputs_.push_back({what, std::string(graph_b_.text(b_.nodes[returned[i]].name)), numerics});
    }
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
