// What calls do with the memory of their tensors is what that memory allows.
//
//   %w = ao.wait_tensor(%host, %x)    mul(%x, 2)          the wait has freed the memory of %x
//   as_strided(%x: [8], [4], [4])                         asks for the 13th element of 8
//   %e = expand(%b: [1], [8])         add_(%e, 1)         adds to one element eight times
//
// Extents that are symbols count as the numbers that they were when traced.
#include <fmt/format.h>

#include <optional>

#include "analysis/aliases.h"
#include "analysis/collectives.h"
#include "analysis/effects.h"
#include "analysis/storage_span.h"
#include "analysis/verify_report.h"
#include "ir/facts.h"
#include "ops/bind.h"
#include "ops/op.h"
#include "ops/type_rules.h"

namespace epweave {
namespace {

// Whether the call may write a tensor several of whose elements are one: each gets the same number
// (fill_, masked_fill_), or those that it writes are chosen by indices (torch checks
// neither).
bool may_write_twice(const OpInfo& op) {
  if (op.family == OpFamily::kIndexPut || op.family == OpFamily::kIdentity) return true;
  const auto value = op.find_param("value");
  return op.family == OpFamily::kElementwise && value && !op.params[*value].kwarg_only;
}

class StorageCheck {
 public:
  StorageCheck(const Graph& graph, Facts& facts, std::vector<Violation>& out)
      : graph_(graph),
        context_(*graph.context),
        body_(graph.step()),
        facts_(facts),
        out_(out),
        roots_(graph, body_, facts, Showing::kCopy) {}

  void run() {
    for (NodeId id : body_.order) {
      const Node& node = body_.nodes[id];
      if (frees_ && takes_elements(node)) check_freed(node);
      if (node.op == nullptr) continue;
      if (addresses_storage(node)) check_bounds(id, node);
      if (node.op->writes && !may_write_twice(*node.op)) check_overlap(node);
      if (const NodeId freed = find_freed(context_, node)) {
        freed_.at(roots_.of(freed)) = id;
        frees_ = true;
      }
    }
  }

 private:
  void fail(const Node& node, std::string_view invariant, std::string message) {
    report(graph_, body_, node, invariant, std::move(message), out_);
  }
  std::string_view name(NodeId id) const { return graph_.text(body_.nodes[id].name); }

  static bool takes_elements(const Node& node) {
    if (node.op != nullptr && (is_wait(node) || node.op->reads_types_only)) return false;
    return reads_elements(node) || node.kind == NodeKind::kOutput;
  }

  void check_freed(const Node& node) {
    for_each_input(context_, node, [&](NodeId input) {
      if (tensor_of(context_, body_.nodes[input].type) == nullptr) return;
      const NodeId wait = freed_[roots_.of(input)];
      if (wait)
        fail(node, "freed-memory",
             fmt::format("takes %{}, whose memory %{} has freed", name(input), name(wait)));
    });
  }

  // Of memory that a call made for its result alone. That of an input, or of one of several
  // results, may be larger than what these show.
  void check_bounds(NodeId id, const Node& node) {
    const NodeId root = roots_.of(id);
    const TensorType* shown = tensor_of(context_, node.type);
    const TensorType* made = tensor_of(context_, body_.nodes[root].type);
    if (root == id || shown == nullptr || made == nullptr || !makes_memory(body_.nodes[root])) return;
    counts_as_traced_ = false;
    const auto number_of = [&](ExprId expr) { return number(expr); };
    const auto reached = find_storage_span(*shown, number_of), memory = find_storage_span(*made, number_of);
    if (shown->dtype == made->dtype && reached && memory && reached->begin < reached->end &&
        reached->end > memory->end)
      fail(node, "memory-bounds",
           fmt::format("reaches {} elements into the memory of %{}, which has {}{}", reached->end, name(root),
                       memory->end, as_traced()));
  }

  static bool makes_memory(const Node& node) {
    return node.op != nullptr && node.op->family != OpFamily::kElement && !node.op->is_view &&
           !node.op->writes;
  }

  void check_overlap(const Node& node) {
    for (std::size_t i = 0; i < node.op->params.size(); ++i) {
      if (!node.op->params[i].is_written) continue;
      context_.args.for_each_node(arg_of(context_, node, i), [&](NodeId written) {
        const TensorType* type = tensor_of(context_, body_.nodes[written].type);
        counts_as_traced_ = false;
        if (type != nullptr && repeats_elements(*type))
          fail(node, "write-overlap",
               fmt::format("writes %{}, several of whose elements are one: {}{}", name(written),
                           print_type(context_, body_.nodes[written].type), as_traced()));
      });
    }
  }

  bool repeats_elements(const TensorType& type) {
    bool repeats = false;
    for (std::size_t d = 0; d < type.strides.size(); ++d) {
      const auto extent = number(type.sizes[d]);
      if (extent == 0) return false;
      repeats = repeats || (context_.exprs.constant(type.strides[d]) == 0 && extent.value_or(0) > 1);
    }
    return repeats;
  }

  // Also of what it was when traced; none: that is not recorded.
  std::optional<std::int64_t> number(ExprId expr) {
    const PolyId normal = facts_.normalize(expr);
    if (const auto constant = context_.exprs.constant(normal)) return constant;
    counts_as_traced_ = true;
    return facts_.hint(normal);
  }
  // Behind a message that rests on such numbers.
  std::string_view as_traced() const { return counts_as_traced_ ? ", as traced" : ""; }

  const Graph& graph_;
  const Context& context_;
  const Body& body_;
  Facts& facts_;
  bool counts_as_traced_ = false;  // what is checked rests on numbers that symbols had when traced
  std::vector<Violation>& out_;
  MemoryRoots roots_;
  SideTable<NodeId, NodeId> freed_;  // by memory: the wait
  bool frees_ = false;
};

}  // namespace

void verify_storage(const Graph& graph, Facts& facts, std::vector<Violation>& out) {
  StorageCheck(graph, facts, out).run();
}

}  // namespace epweave
