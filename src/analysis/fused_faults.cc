// What keeps fused calls from being written out.
#include <fmt/format.h>

#include "analysis/fused_products.h"
#include "analysis/users.h"
#include "analysis/verify_report.h"
#include "ir/facts.h"
#include "ops/bind.h"
#include "ops/op.h"
#include "ops/type_rules.h"

namespace epweave {
namespace {

class FaultFinder {
 public:
  FaultFinder(const Graph& graph, const Body& body)
      : graph_(graph),
        context_(*graph.context),
        body_(body),
        facts_(graph),
        users_(list_users(context_, body)) {}

  std::vector<Violation> run(NodeId call) {
    found_.clear();
    check_types(body_.nodes[call]);
    if (found_.empty() && body_.nodes[call].op->family != OpFamily::kMatmulScatter) check_elements(call);
    return std::move(found_);
  }

 private:
  void check_types(const Node& node) {
    if (std::string problem = find_schema_problem(context_, node); !problem.empty())
      return report(graph_, body_, node, "schema", std::move(problem), found_);
    try {
      const TypeId type = infer_type(facts_, graph_, body_, node);
      if (!type)
        report(graph_, body_, node, "type", "has operands whose types are not recorded", found_);
      else if (node.type && !reaches_same_elements(facts_, context_, type, node.type))
        report(graph_, body_, node, "type",
               fmt::format("recorded {}, the arguments give {}", print_type(context_, node.type),
                           print_type(context_, type)),
               found_);
    } catch (const TypeMismatch& mismatch) {
      report(graph_, body_, node, "type", mismatch.what(), found_);
    }
  }

  // What was gathered, and the products; or both tensors of a pair.
  void check_elements(NodeId call) {
    if (is_exchange_pair(body_.nodes[call])) {
      for (NodeId user : users_[call]) find_element(call, user, 2);
      return;
    }
    const auto products = arg_of(context_, body_.nodes[call], 1).children().count;
    for (NodeId user : users_[call]) {
      const auto element = find_element(call, user, 2);
      if (!element || *element == 0) continue;
      for (NodeId taker : users_[user]) find_element(call, taker, products);
    }
  }

  std::optional<std::int64_t> find_element(NodeId call, NodeId user, std::uint32_t count) {
    const Node& node = body_.nodes[user];
    const auto element = tuple_element(context_, body_, node);
    const std::size_t before = found_.size();
    if (node.op != nullptr) check_types(node);
    if (element && element->index >= 0 && element->index < std::int64_t{count}) return element->index;
    if (found_.size() == before)
      report(graph_, body_, node, "type",
             fmt::format("takes more of the result of %{} than an element of it: take elements with getitem",
                         graph_.text(body_.nodes[call].name)),
             found_);
    return std::nullopt;
  }

  const Graph& graph_;
  Context& context_;
  const Body& body_;
  Facts facts_;
  const NodeLists users_;
  std::vector<Violation> found_;
};

}  // namespace

std::vector<FusedFault> find_fused_faults(const Graph& graph, WrittenOut kinds) {
  std::vector<FusedFault> faults;
  for (const Body& body : graph.bodies) {
    std::vector<NodeId> calls;
    for (NodeId id : body.order)
      if (is_written_out(body.nodes[id], kinds)) calls.push_back(id);
    if (calls.empty()) continue;
    FaultFinder finder(graph, body);
    for (NodeId id : calls)
      for (Violation& violation : finder.run(id))
        faults.push_back({body.nodes[id].name, std::move(violation)});
  }
  return faults;
}

}  // namespace epweave
