// Between a launch, or a copy between device and host, and its wait, what it writes is not there
// yet, and what it sends must stay.
//
//   %r = all_reduce_(%x)    mul(%r, 2)    reads the result without a wait
//                           mul(%x, 2)    so does this: %x is the memory that %r shows
//   %g = all_gather(%p)     zero_(%p)     overwrites what is being sent
//                           ao.wait_tensor(%host, %p)     frees it
#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <utility>

#include "analysis/aliases.h"
#include "analysis/collectives.h"
#include "analysis/storage_span.h"
#include "analysis/verify_report.h"
#include "base/few_table.h"
#include "ir/walk.h"
#include "ops/bind.h"
#include "ops/family.h"

namespace epweave {
namespace {

// Passes a value on without reading it.
bool is_free(const Node& node) {
  return node.op != nullptr && node.op->cost == CostClass::kFree;
}

// Which runs beside other calls until its wait.
bool is_copy(const Node& node) {
  return has_family(node, OpFamily::kTransfer);
}

bool writes(const Node& node) {
  return node.op != nullptr && std::ranges::any_of(node.op->params, &OpParam::is_written);
}

// Whether the value is some of the elements that its operand has, not all.
bool may_narrow(const Node& node) {
  if (node.op == nullptr || addresses_storage(node)) return true;
  return may_narrow(node.op->family);
}

class WaitCheck {
 public:
  WaitCheck(const Graph& graph, const Body& body, Facts& facts, std::vector<Violation>& out)
      : graph_(graph),
        context_(*graph.context),
        body_(body),
        out_(out),
        pending_(body.nodes.size(), NodeId()),
        waited_(body.nodes.size()),
        roots_(graph, body, facts, Showing::kView) {}

  void run() {
    std::vector<NodeId> collectives;
    for (const Walk::Step step : walk(context_, body_)) {
      const NodeId id = step.id;
      const Node& node = step.node;
      if (node.op != nullptr && node.op->reads_types_only) continue;
      if (is_wait(node)) {
        wait(id, node);
        check_freed(id, node);
      } else {
        for_each_input(context_, node, [&](NodeId input) { read(id, node, input); });
      }
      if (under_way_ > 0 && node.kind == NodeKind::kCall && !is_free(node) && !is_wait(node))
        check_memory(id, node);
      if (!is_launch(node) && !is_copy(node)) continue;
      pending_.at(id) = id;
      begin(id, node);
      if (is_launch(node)) collectives.push_back(id);
    }
    for (NodeId id : collectives)
      if (!waited_.contains(id)) fail(id, "its result is never waited on");
  }

 private:
  // Memory that a launch which nothing has waited for writes, or sends.
  struct Flight {
    NodeId launch, value;
    bool is_written = false;
  };

  void fail(NodeId id, std::string message) {
    report(graph_, body_, body_.nodes[id], "waits", std::move(message), out_);
  }
  std::string_view name(NodeId id) const { return graph_.text(body_.nodes[id].name); }

  void read(NodeId id, const Node& node, NodeId input) {
    const NodeId launch = pending_[input];
    if (!launch) return;
    if (is_free(node)) {
      pending_.at(id) = launch;
    } else {
      fail(id, fmt::format("reads the result of {} without a wait", name(launch)));
    }
  }

  // It reads nothing of what else it takes. A wait for copies fails where there is none to wait
  // for.
  void wait(NodeId id, const Node& node) {
    const Arg value = arg_of(context_, node, 0);
    if (!value.is_node()) return;
    const NodeId launch = pending_[value.as_node()];
    if (launch && completes(node, body_.nodes[launch])) {
      waited_.insert(launch);
      end(launch);
    } else if (launch || waits_for_copies(node)) {
      const char* problem =
          launch ? "which this kind of wait does not complete" : "to which no copy is under way";
      fail(id, fmt::format("waits for {}, {}", name(value.as_node()), problem));
      pending_.at(id) = launch;
    }
  }

  void begin(NodeId launch, const Node& node) {
    for_each_operand(node, [&](NodeId value, bool is_written) {
      const NodeId memory = roots_.of(value);
      flights_.at(memory).push_back({launch, value, is_written});
      memories_.at(launch).push_back(memory);
      ++under_way_;
      written_ += is_written;
    });
  }

  void end(NodeId launch) {
    for (NodeId memory : std::exchange(memories_.at(launch), {})) {
      std::vector<Flight>& flights = flights_.at(memory);
      const auto flight = std::ranges::find(flights, launch, &Flight::launch);
      --under_way_;
      written_ -= flight->is_written;
      flights.erase(flight);
    }
  }

  std::span<const Flight> flights_of(NodeId memory) const {
    const std::vector<Flight>* flights = flights_.find(memory);
    return flights == nullptr ? std::span<const Flight>() : *flights;
  }

  void check_freed(NodeId id, const Node& node) {
    const NodeId freed = under_way_ > 0 ? find_freed(context_, node) : NodeId();
    if (!freed) return;
    for (const Flight& flight : flights_of(roots_.of(freed)))
      fail(id, fmt::format("frees {}, which {} {} until it is waited on", name(freed), name(flight.launch),
                           flight.is_written ? "writes" : "sends"));
  }

  void check_memory(NodeId id, const Node& node) {
    if (written_ == 0 && !writes(node)) return;
    for_each_operand(node, [&](NodeId value, bool is_written) {
      if (pending_[value]) return;  // is reported as a read of the result
      const NodeId memory = roots_.of(value);
      const std::span<const Flight> flights = flights_of(memory);
      const auto flight = std::ranges::find_if(flights, [&](const Flight& other) {
        return (is_written || other.is_written) && overlap(memory, value, other.value);
      });
      if (flight == flights.end()) return;
      fail(id, fmt::format("{} {}, which {} {} until it is waited on", is_written ? "writes" : "reads",
                           name(value), name(flight->launch), flight->is_written ? "writes" : "sends"));
    });
  }

  // What a call of an op without a row writes is not known.
  template <class Visit>
  void for_each_operand(const Node& node, const Visit& visit) const {
    if (node.op == nullptr)
      for_each_input(context_, node, [&](NodeId value) {
        if (tensor_of(context_, body_.nodes[value].type) != nullptr) visit(value, false);
      });
    for (std::size_t i = 0; node.op != nullptr && i < node.op->params.size(); ++i)
      context_.args.for_each_node(arg_of(context_, node, i), [&](NodeId value) {
        if (tensor_of(context_, body_.nodes[value].type) != nullptr)
          visit(value, node.op->params[i].is_written);
      });
  }

  // Whether values of one memory are known to share elements.
  bool overlap(NodeId memory, NodeId x, NodeId y) {
    const NodeId all_x = find_all(x), all_y = find_all(y);
    if (all_x == all_y || all_x == memory || all_y == memory) return true;
    const TensorType &of_x = *tensor_of(context_, body_.nodes[x].type),
                     &of_y = *tensor_of(context_, body_.nodes[y].type);
    const auto span_x = find_storage_span(context_.exprs, of_x),
               span_y = find_storage_span(context_.exprs, of_y);
    return of_x.dtype == of_y.dtype && span_x && span_y && share_elements(*span_x, *span_y);
  }
  // The value, or what it shows all elements of.
  NodeId find_all(NodeId value) {
    return climb(value, all_,
                 [&](NodeId id) { return may_narrow(body_.nodes[id]) ? NodeId() : roots_.shown_by(id); });
  }

  const Graph& graph_;
  const Context& context_;
  const Body& body_;
  std::vector<Violation>& out_;
  SideTable<NodeId, NodeId> pending_;  // the launch or copy whose result this is, unwaited
  IdSet<NodeId> waited_;
  FewTable<NodeId, std::vector<Flight>> flights_;   // by memory: its first value
  FewTable<NodeId, std::vector<NodeId>> memories_;  // of a launch; empty once it is waited for
  std::size_t under_way_ = 0, written_ = 0;         // of flights
  MemoryRoots roots_;
  SideTable<NodeId, NodeId> all_;
};

}  // namespace

void verify_waits(const Graph& graph, const Body& body, Facts& facts, std::vector<Violation>& out) {
  WaitCheck(graph, body, facts, out).run();
}

}  // namespace epweave
