#include "pipeline/runner.h"

#include <fmt/format.h>

#include <chrono>
#include <new>
#include <set>
#include <tuple>
#include <unordered_map>

#include "analysis/verify_changes.h"
#include "ir/walk.h"
#include "pipeline/bind.h"

namespace epweave {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

void record_origins(Graph& graph) {
  if (!graph.origins.empty() || graph.bodies.empty()) return;
  const Body& step = graph.step();
  graph.origins.reserve(step.order.size());
  for (NodeId id : step.order) graph.origins.push_back({step.nodes[id].name, step.nodes[id].target});
}

std::string list_violations(const Graph& graph, const std::vector<Violation>& violations) {
  constexpr std::size_t kShown = 5;
  std::string text;
  for (std::size_t i = 0; i < std::min(kShown, violations.size()); ++i)
    text += "\n  " + print_violation(graph, violations[i]);
  if (violations.size() > kShown) text += fmt::format("\n  and {} more", violations.size() - kShown);
  return text;
}

// Passes take a sound structure for granted.
void refuse_broken_structure(const Graph& graph) {
  std::vector<Violation> violations;
  verify_structure(graph, violations);
  if (!violations.empty())
    throw InputError("the graph's structure is broken:" + list_violations(graph, violations));
}

// Violations that the pass is not to blame for.
class KnownViolations {
 public:
  void add(const std::vector<Violation>& violations) {
    for (const Violation& violation : violations) known_.insert(key_of(violation));
  }

  bool empty() const { return known_.empty(); }

  // Those of what was found in the graph that are new.
  std::vector<Violation> find_new(const Graph& graph, std::vector<Violation> found) const {
    if (found.empty() || known_.empty()) return found;
    const std::unordered_map<std::string_view, NodeId> step_nodes = index_step(graph);
    std::erase_if(found, [&](const Violation& v) { return is_known(graph, step_nodes, v); });
    return found;
  }

 private:
  // Invariant, body, node; without a node, the message tells violations apart.
  using Key = std::tuple<std::string, StringId, std::string>;

  static Key key_of(const Violation& v) {
    return {v.invariant, v.body, v.site.node.empty() ? v.message : v.site.node};
  }

  static std::unordered_map<std::string_view, NodeId> index_step(const Graph& graph) {
    std::unordered_map<std::string_view, NodeId> nodes;
    for (NodeId id : graph.step().order) nodes.emplace(graph.text(graph.step().nodes[id].name), id);
    return nodes;
  }

  bool is_known(const Graph& graph, const std::unordered_map<std::string_view, NodeId>& step_nodes,
                const Violation& violation) const {
    if (known_.contains(key_of(violation))) return true;
    const auto node = step_nodes.find(violation.site.node);
    if (violation.body || node == step_nodes.end()) return false;
    for (const Provenance& record : graph.step().nodes[node->second].provenance)
      for (StringId origin : record.origins)
        if (known_.contains(Key{violation.invariant, StringId(), std::string(graph.text(origin))}))
          return true;
    return false;
  }

  std::set<Key> known_;
};

[[noreturn]] void blame(const PassCall& call, const Graph& graph, const std::vector<Violation>& violations) {
  throw CheckError(fmt::format("pass '{}' broke the graph ({} violations; this is a bug of the tool):{}",
                               call.pass->name, violations.size(), list_violations(graph, violations)));
}

// The violations of the run's input at what these of a result were computed from; none if one of
// them stands on nodes that are sound in the input.
std::vector<Violation> find_causes(const std::vector<Violation>& of_input, const Graph& result,
                                   const std::vector<Violation>& found) {
  std::unordered_map<std::string_view, const Violation*> broken;
  for (const Violation& v : of_input)
    if (!v.body) broken.emplace(v.site.node, &v);
  const Body& step = result.step();
  IdVector<NodeId, const Violation*> causes(step.nodes.size());
  std::unordered_map<std::string_view, const Violation*> by_name;
  for (const auto [id, node] : walk_all(*result.context, step)) {
    const Violation*& cause = causes[id];
    const auto take = [&](StringId name) {
      if (const auto at = broken.find(result.text(name)); cause == nullptr && at != broken.end())
        cause = at->second;
    };
    take(node.name);
    for (const Provenance& record : node.provenance)
      for (StringId origin : record.origins) take(origin);
    for_each_input(*result.context, node, [&](NodeId input) {
      if (cause == nullptr) cause = causes[input];
    });
    by_name.emplace(result.text(node.name), cause);
  }
  std::vector<Violation> listed;
  std::set<const Violation*> known;
  for (const Violation& v : found) {
    const auto at = by_name.find(v.site.node);
    if (v.body || at == by_name.end() || at->second == nullptr) return {};
    if (known.insert(at->second).second) listed.push_back(*at->second);
  }
  return listed;
}

// A pass takes it that recorded types and groups are right. Where it came to grief for want of
// that, it is the graph that is at fault.
[[noreturn]] void refuse_broken(const PassCall& call, const Graph& given,
                                const std::vector<Violation>& violations, std::string_view ended) {
  throw PassError("pipeline.broken-graph",
                  fmt::format("pass '{}' cannot rewrite a graph that does not verify:{}\n  so that {}",
                              call.pass->name, list_violations(given, violations), ended),
                  violations.front().site,
                  "mend what is recorded until `epweave verify` accepts the graph, or trace it again");
}

class Run {
 public:
  Run(Graph graph, const Pipeline& pipeline, const RunnerOptions& options)
      : pipeline_(pipeline), options_(options), binder_(graph, pipeline), graph_(std::move(graph)) {
    if (options_.verify != VerifyPolicy::kOff)
      known_.add(options_.input_violations ? *options_.input_violations : verify_graph(graph_));
    if (options_.verify == VerifyPolicy::kOff || !known_.empty()) unsound_ = graph_;
    is_typed_ = !unsound_;
    record_origins(graph_);
    for (const Origin& origin : graph_.origins) is_origin_.insert(origin.name);
  }

  Graph run() {
    std::string sha256 = options_.input_sha256;
    for (std::size_t i = 0; i < pipeline_.calls.size(); ++i) {
      PassCall& call = pipeline_.calls[i];
      if (options_.hooks.before_pass) options_.hooks.before_pass(call);
      try {
        call = binder_.bind(i, graph_);
        run_pass(i, std::exchange(sha256, {}));
      } catch (const std::exception& error) {
        report_failure(i, error.what());
        throw;
      }
    }
    return std::move(graph_);
  }

 private:
  void run_pass(std::size_t position, std::string sha256) {
    const PassCall& call = pipeline_.calls[position];
    const auto start = Clock::now();
    PassResult result = apply(call);
    const double seconds = seconds_since(start);
    const bool changed = !same_code(graph_, result.graph);
    complete_provenance(call, result.graph);
    result.graph.passes.push_back(
        {.name = std::string(call.pass->name),
         .options = print_options(call.options),
         .tool = options_.tool,
         .nodes_before = static_cast<std::uint32_t>(graph_.step().order.size()),
         .nodes_after = static_cast<std::uint32_t>(result.graph.step().order.size()),
         .input_sha256 = std::move(sha256),
         .notes = result.notes});
    const bool is_checked = is_verified(position, changed);
    const double verify_seconds = is_checked ? verify(call, result.graph) : 0;
    is_typed_ = is_checked ? known_.empty() : is_typed_ && !changed && keeps_types(result.graph, graph_);
    if (options_.hooks.after_pass)
      options_.hooks.after_pass({.position = position,
                                 .count = pipeline_.calls.size(),
                                 .call = call,
                                 .before = graph_,
                                 .after = result.graph,
                                 .notes = result.notes,
                                 .changed = changed,
                                 .seconds = seconds,
                                 .verify_seconds = verify_seconds});
    graph_ = std::move(result.graph);
  }

  PassResult apply(const PassCall& call) const {
    try {
      return call.pass->run(graph_, call.options);
    } catch (const PassError&) {
      throw;
    } catch (const InputError&) {
      throw;
    } catch (const UsageError&) {
      throw;
    } catch (const std::bad_alloc&) {
      throw;
    } catch (const std::exception& error) {
      const std::vector<Violation> violations = verify_given();
      if (violations.empty()) throw;
      refuse_broken(call, *unsound_, violations, error.what());
    }
  }

  std::vector<Violation> verify_given() const {
    return unsound_ ? verify_graph(*unsound_) : std::vector<Violation>();
  }

  // "kept" for nodes that no pass has said anything about.
  void complete_provenance(const PassCall& call, Graph& graph) const {
    const StringId pass = graph.intern(call.pass->name);
    Body& step = graph.step();
    for (NodeId id : step.order) {
      if (!std::as_const(step.nodes)[id].provenance.empty()) continue;  // its page stays shared
      Node& node = step.nodes[id];
      if (!is_origin_.contains(node.name))
        throw CheckError(fmt::format("pass '{}' made node '{}' without saying where it comes from",
                                     call.pass->name, graph.text(node.name)));
      append_provenance(*graph.context, node,
                        {.pass = pass, .role = ProvenanceRole::kKept, .origins = {node.name}});
    }
  }

  // What a pass left as it was has been checked.
  bool is_verified(std::size_t position, bool changed) const {
    switch (options_.verify) {
      case VerifyPolicy::kOff:
        return false;
      case VerifyPolicy::kEnd:
        return position + 1 == pipeline_.calls.size();
      case VerifyPolicy::kEach:
        return changed;
    }
    return true;
  }

  // Seconds spent.
  double verify(const PassCall& call, const Graph& graph) const {
    const auto start = Clock::now();
    const std::vector<Violation> violations =
        known_.find_new(graph, is_typed_ ? verify_changes(graph, graph_) : verify_graph(graph));
    if (!violations.empty()) judge(call, graph, violations);
    return seconds_since(start);
  }

  [[noreturn]] void judge(const PassCall& call, const Graph& graph,
                          const std::vector<Violation>& violations) const {
    const std::vector<Violation> causes = find_causes(verify_given(), graph, violations);
    if (causes.empty()) blame(call, graph, violations);
    refuse_broken(call, *unsound_, causes,
                  "its result breaks: " + print_violation(graph, violations.front()));
  }

  void report_failure(std::size_t position, const char* what) const {
    if (!options_.hooks.on_failure) return;
    Pipeline remaining;
    remaining.calls.assign(pipeline_.calls.begin() + static_cast<std::ptrdiff_t>(position),
                           pipeline_.calls.end());
    options_.hooks.on_failure({.position = position,
                               .call = pipeline_.calls[position],
                               .input = graph_,
                               .remaining = print_pipeline(remaining),
                               .what = what});
  }

  Pipeline pipeline_;  // its options written out as far as it has run
  const RunnerOptions& options_;
  Binder binder_;
  Graph graph_;
  std::optional<Graph> unsound_;  // the graph given, where it is not known to verify
  bool is_typed_ = false;         // each call of graph_ is known to fit its schema and its type
  IdSet<StringId> is_origin_;
  KnownViolations known_;
};

bool same_node(const ArgPool& args, const Node& a, const Node& b) {
  return a.name == b.name && a.target == b.target && a.kind == b.kind && a.has_custom == b.has_custom &&
         a.backward == b.backward && a.seq_nr == b.seq_nr && args.equal(a.args, b.args) &&
         args.equal(a.kwargs, b.kwargs) && args.equal(a.attr, b.attr) && a.type == b.type &&
         a.module == b.module && a.source == b.source && a.recompute == b.recompute && a.ep == b.ep &&
         a.chunk == b.chunk && a.extra == b.extra;
}

bool same_body(const ArgPool& args, const Body& a, const Body& b) {
  if (a.name != b.name || a.order != b.order) return false;
  for (NodeId id : a.order)
    if (!a.nodes.shares(b.nodes, id) && !same_node(args, a.nodes[id], b.nodes[id])) return false;
  return true;
}

}  // namespace

Graph run_pipeline(Graph graph, const Pipeline& pipeline, const RunnerOptions& options) {
  if (!options.input_violations) refuse_broken_structure(graph);
  return Run(std::move(graph), pipeline, options).run();
}

bool same_code(const Graph& a, const Graph& b) {
  if (a.bodies.size() != b.bodies.size()) return false;
  for (std::size_t i = 0; i < a.bodies.size(); ++i)
    if (!same_body(a.context->args, a.bodies[i], b.bodies[i])) return false;
  return true;
}

}  // namespace epweave
