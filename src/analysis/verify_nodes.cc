// What single nodes and their annotations must satisfy: communication, chunk fields, tags,
// provenance.
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <unordered_map>

#include "analysis/collectives.h"
#include "analysis/regional_tag.h"
#include "analysis/verify_report.h"
#include "analysis/world.h"
#include "base/word_table.h"
#include "ir/walk.h"
#include "ops/bind.h"
#include "ops/collective_arguments.h"
#include "ops/may_copy.h"
#include "ops/type_rules.h"

namespace epweave {
namespace {

using GroupTable = std::unordered_map<StringId, const ProcessGroup*>;

bool says_rank(const Graph& graph) {
  const Arg* rank = find_entry(*graph.context, graph.info, "rank");
  return rank != nullptr && rank->is_int();
}

void check_collective(const Graph& graph, const Body& body, const Node& node, const GroupTable& groups,
                      std::vector<Violation>& out) {
  const auto param = node.op->find_param("group_name");
  if (!param) return;
  const StringId name = recorded_group(*graph.context, body, bind_args(*graph.context, node).values[*param]);
  if (!name) return;
  const auto group = groups.find(name);
  if (group == groups.end())
    return report(graph, body, node, "groups",
                  fmt::format("there is no process group '{}'", graph.text(name)), out);
  const std::vector<std::uint32_t>& ranks = group->second->ranks;
  if (says_rank(graph) && !ranks.empty() && std::ranges::find(ranks, own_rank(graph)) == ranks.end())
    report(graph, body, node, "groups",
           fmt::format("process group '{}' does not hold the file's own rank {}", graph.text(name),
                       own_rank(graph)),
           out);
  for (std::string& problem : find_argument_problems(*graph.context, body, node, *group->second))
    report(graph, body, node, "collectives", std::move(problem), out);
}

bool is_chunk_role(std::string_view role) {
  return role == "body" || role == "split_boundary" || role == "chunk_input" || role == "materialization";
}

std::string find_chunk_problem(const Graph& graph, const ChunkInfo& chunk) {
  if (!chunk.region) return "has chunk fields but no region";
  if (!chunk.role) return "has a region but no role";
  const std::string_view role = graph.text(chunk.role);
  if (!is_chunk_role(role)) return fmt::format("role '{}' is not known", role);
  if (role == "body" && !chunk.part) return "is in a region's body but of no part";
  if (chunk.part && *chunk.part < 0) return fmt::format("part {} is negative", *chunk.part);
  return {};
}

bool keeps_target(ProvenanceRole role) {
  return role == ProvenanceRole::kKept || role == ProvenanceRole::kMoved || role == ProvenanceRole::kBody;
}

// Whether the record has to agree with its origins' targets: not behind one that says that a pass
// made the call or rewrote it (a join that was moved is no call of its origin's op; a body part
// made concrete still was one).
bool is_call_of_origin(const Node& node, std::size_t record) {
  return std::all_of(
      node.provenance.begin(), node.provenance.begin() + static_cast<std::ptrdiff_t>(record) + 1,
      [](const Provenance& r) { return keeps_target(r.role) || r.role == ProvenanceRole::kMerged; });
}

bool is_of_family(const OpInfo* op, OpFamily family) {
  return op != nullptr && op->family == family;
}

// A slice by a coordinate becomes the element of a split where ranks take it so (specialize), and
// the other way round (generalize).
bool takes_same_piece(const Graph& graph, const Node& node, const OpInfo* origin) {
  if (is_of_family(node.op, OpFamily::kSlice)) return is_of_family(origin, OpFamily::kElement);
  if (!is_of_family(node.op, OpFamily::kElement) || !is_of_family(origin, OpFamily::kSlice)) return false;
  const Arg whole = arg_of(*graph.context, node, 0);
  return whole.is_node() && is_of_family(graph.step().nodes[whole.as_node()].op, OpFamily::kSplit);
}

// By name; none: no origin of that name.
using OriginTargets = SideTable<StringId, std::optional<StringId>>;

OriginTargets list_targets(const std::vector<Origin>& origins) {
  OriginTargets targets;
  for (const Origin& origin : origins)
    if (origin.name && !targets[origin.name]) targets.at(origin.name) = origin.target;
  return targets;
}

void check_record(const Graph& graph, const Node& node, std::size_t index, const OriginTargets& origins,
                  std::vector<Violation>& out) {
  const Provenance& record = node.provenance[index];
  auto add = [&](std::string_view invariant, std::string message) {
    report(graph, graph.step(), node, invariant, std::move(message), out);
  };
  if (record.parts != 0 && record.part >= record.parts)
    add("origin-parts", fmt::format("part {} of {}", record.part, record.parts));
  if (record.parts > most_parts(graph.step()))
    add("origin-parts", fmt::format("one of {} parts, more than a step of {} nodes has", record.parts,
                                    graph.step().nodes.size()));
  if (record.role == ProvenanceRole::kBody && record.parts == 0)
    add("origin-parts", "a body part of how many?");
  // What a pass added for no node of the input stays of no origin, whatever is done to it later.
  const Provenance& first = node.provenance[0];
  const bool is_of_none = first.role == ProvenanceRole::kAdded && first.origins.empty();
  if (record.origins.empty() && record.role != ProvenanceRole::kAdded && !is_of_none)
    add("origin-covered", fmt::format("is {} of no origin", name_of(record.role)));
  bool are_same_calls = true;  // by their targets
  for (StringId name : record.origins) {
    const std::optional<StringId> target = origins[name];
    are_same_calls = are_same_calls && target == node.target;
    if (!target) add("origin-exists", fmt::format("origin {} is not in the input graph", graph.text(name)));
  }
  if (are_same_calls) return;
  // Other origins are nodes whose place this one took too: aliases, equal computations.
  const auto has_target = [&](StringId name) {
    const std::optional<StringId> target = origins[name];
    if (!target || *target == node.target) return true;
    const OpInfo* origin = find_op(graph.text(*target));
    const bool are_reshapes =
        node.op != nullptr && origin != nullptr && is_reshape(*node.op) && is_reshape(*origin);
    return are_reshapes || takes_same_piece(graph, node, origin);
  };
  if (keeps_target(record.role) && is_call_of_origin(node, index) && !record.origins.empty() &&
      std::none_of(record.origins.begin(), record.origins.end(), has_target))
    add("origin-target",
        fmt::format("is {} of {}, which is {}", name_of(record.role), graph.text(record.origins.front()),
                    graph.text(*origins[record.origins.front()])));
}

}  // namespace

void verify_communication(const Graph& graph, Facts& facts, std::vector<Violation>& out) {
  GroupTable groups;
  for (const ProcessGroup& group : graph.groups) groups.emplace(group.name, &group);
  for (const Body& body : graph.bodies) {
    for (NodeId id : body.order)
      if (is_launch(body.nodes[id]) || is_synchronous(body.nodes[id]))
        check_collective(graph, body, body.nodes[id], groups, out);
    verify_waits(graph, body, facts, out);
  }
}

void verify_chunking(const Graph& graph, std::vector<Violation>& out) {
  for (const Body& body : graph.bodies) {
    for (NodeId id : body.order) {
      const Node& node = body.nodes[id];
      if (node.chunk == ChunkInfo()) continue;
      if (std::string problem = find_chunk_problem(graph, node.chunk); !problem.empty())
        report(graph, body, node, "chunk-fields", std::move(problem), out);
    }
  }
}

void verify_regional(const Graph& graph, std::vector<Violation>& out) {
  const RegionalTag tag(graph);
  if (!tag.may_be_on()) return;
  for (const Body& body : graph.bodies) {
    IdSet<NodeId> functions;                  // nodes that name a nested graph
    SideTable<NodeId, NodeId> first, tagged;  // calls that read such a node
    for (const Walk::Step step : walk(*graph.context, body)) {
      const NodeId id = step.id;
      const Node& node = step.node;
      if (names_graph(node)) functions.insert(id);
      if (node.kind != NodeKind::kCall) continue;
      for_each_input(*graph.context, node, [&](NodeId input) {
        if (!functions.contains(input)) return;
        if (tag.is_on(*graph.context, node)) tagged.at(input) = id;
        NodeId& reader = first.at(input);
        if (!reader) reader = id;
        if (reader == id || !tagged[input]) return;
        report(graph, body, body.nodes[input], "regional-private",
               fmt::format("both {} and {} read it; {} is tagged for regional_inductor",
                           graph.text(body.nodes[reader].name), graph.text(node.name),
                           graph.text(body.nodes[tagged[input]].name)),
               out);
      });
    }
  }
}

// The body parts of a node are 0 .. n-1, each once, in one region; so are those of a copy, which is
// computed again: one of the whole, which may be divided later, or one of each part. What names a
// nested graph may be copied for each call that names it. Of what a pass added for an origin there
// may be several calls, each of which is divided.
class BodyParts {
 public:
  BodyParts(const Graph& graph, std::vector<Violation>& out) : graph_(graph), out_(out) {}

  void check(const Node& node) {
    const Provenance* copied = find_copy_record(node);
    const Provenance* part = copied;  // which of the copies, where no later pass divided it
    bool is_divided = false;
    for (const Provenance& record : node.provenance) {
      if (record.role == ProvenanceRole::kAdded) return;
      const bool is_before = copied != nullptr && &record < copied;
      if (is_before && makes_nodes(record.role))
        part = record.role == ProvenanceRole::kBody ? &record : nullptr;
      if (is_before || record.role != ProvenanceRole::kBody || is_copy_record(record)) continue;
      is_divided = true;
      add(node, record, record, copied);
    }
    if (copied != nullptr && !is_divided && !names_graph(node) && part != nullptr)
      add(node, *copied, *part, copied);
  }

 private:
  void add(const Node& node, const Provenance& record, const Provenance& which, const Provenance* copied) {
    if (record.origins.empty() || which.part >= which.parts || which.parts > most_parts(graph_.step()))
      return;
    const StringId origin = record.origins.front();
    made_.push(std::uint64_t{origin.index()} << 32 | which.part);
    made_.push(std::uint64_t{record.pass.index()} << 32 | (copied == nullptr ? 0 : copied->pass.index() + 1));
    if (!made_.intern().is_new)
      report(graph_, graph_.step(), node, "origin-parts",
             fmt::format("is a second part {} of {}", which.part, graph_.text(origin)), out_);
  }

  const Graph& graph_;
  std::vector<Violation>& out_;
  WordTable made_;  // an origin and its part; the passes that divided or copied it, and that copied it before
};

std::uint32_t most_parts(const Body& step) {
  constexpr std::size_t kOfSmallSteps = 4096;
  return static_cast<std::uint32_t>(std::max(step.nodes.size(), kOfSmallSteps));
}

void verify_provenance(const Graph& graph, std::vector<Violation>& out) {
  if (graph.passes.empty()) return;
  BodyParts parts(graph, out);
  const OriginTargets origins = list_targets(graph.origins);
  for (const auto [id, node] : walk_records(graph.step(), graph.step().order)) {
    if (node.provenance.empty())
      report(graph, graph.step(), node, "origin-covered", "has no provenance", out);
    for (std::size_t i = 0; i < node.provenance.size(); ++i) check_record(graph, node, i, origins, out);
    parts.check(node);
  }
}

}  // namespace epweave
