#include "passes/bucket/inductor_rewriter.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <tuple>
#include <variant>

#include "passes/overlap_ep/overlap_ep_movement.h"
#include "passes/pass.h"
#include "passes/record.h"

namespace epweave {

InductorRewriter::InductorRewriter(Graph& graph, const StepModel& model, const ScheduleProblem& problem,
                                   const InductorFacts& facts, GroupCoordinates coordinates, Packing packing)
    : graph_(graph),
      model_(model),
      problem_(problem),
      f_(facts),
      facts_(find_order_facts(graph, graph.step())),
      users_(invert(facts_.inputs, graph.step().order)),
      found_(find_mergeables(graph, facts_.inputs, users_, facts_.effects, MergeScope::kAll)),
      merged_(graph, facts_.inputs, users_),
      writer_(merged_, std::move(coordinates), WaitPlace::kWithLaunch, packing, "schedule"),
      may_merge_(facts.collectives.size()),
      mergeable_(facts.collectives.size()),
      nodes_(model.nodes) {
  find_mergeable();
}

void InductorRewriter::find_mergeable() {
  for (std::size_t i = 0; i < found_.list.size(); ++i)
    for (std::uint32_t c = 0; c < f_.collectives.size(); ++c) {
      if (nodes_[f_.collectives[c].start] != found_.list[i].launch) continue;
      may_merge_[c] = nodes_[f_.collectives[c].wait] == found_.list[i].wait;
      mergeable_[c] = i + 1;
    }
}

void InductorRewriter::write(InductorBuckets& found) {
  const std::vector<NodeId> given = graph_.step().order;
  for (const auto& bucket : found.buckets) write_bucket(bucket, *found.dependences);
  merged_.redirect();
  sort(*found.dependences);
  writer_.finish();
  record_moves(given);
}

void InductorRewriter::write_bucket(const std::vector<std::uint32_t>& bucket,
                                    InductorDependences& dependences) {
  std::vector<const Mergeable*> members;
  for (const std::uint32_t c : bucket) members.push_back(&mergeable(c));
  const bool backward = graph_.step().nodes[members.front()->launch].is_backward();
  const MergedLaunch made = writer_.write(members, BucketScope{nullptr, backward, {}});
  const Place launch = add_place(made.launch, dependences);
  std::vector<Place> waits;
  for (const NodeId wait : made.waits.empty() ? std::vector{made.wait} : made.waits)
    waits.push_back(add_place(wait, dependences));
  std::vector<std::pair<Place, Place>> replaced;
  for (const std::uint32_t c : bucket) replaced.emplace_back(f_.collectives[c].start, launch);
  for (std::size_t i = 0; i < bucket.size(); ++i)
    replaced.emplace_back(f_.collectives[bucket[i]].wait, waits[std::min(i, waits.size() - 1)]);
  if (made.pack) {
    const Place pack = made.pack == made.launch ? launch : add_place(made.pack, dependences);
    for (const Mergeable* m : members)
      if (m->cast) {
        const auto at = std::ranges::find(model_.nodes, m->cast);
        replaced.emplace_back(static_cast<Place>(at - model_.nodes.begin()), pack);
      }
  }
  for (const auto& [old, now] : replaced) written_[nodes_[old]] = nodes_[now];
  dependences.transfer(replaced, [&](Place a, Place b) {
    bool takes = false;
    merged_.visit_inputs(nodes_[a], [&](NodeId input) { return !(takes = input == nodes_[b]); });
    return takes;
  });
  const auto kind = static_cast<std::size_t>(members.front()->kind);
  merged_count_[kind] += members.size();
  ++buckets_[kind];
}

Place InductorRewriter::add_place(NodeId id, InductorDependences& dependences) {
  nodes_.push_back(id);
  return dependences.add_node();
}

void InductorRewriter::sort(const InductorDependences& dependences) {
  Body& body = graph_.step();
  const NodeLists inputs = list_inputs(*graph_.context, body);
  std::vector<OrderEdge> edges = list_edges(dependences);
  std::set<std::pair<NodeId, NodeId>> known;
  std::erase_if(edges, [&](const OrderEdge& edge) {  // a dependence counts where it comes first
    return std::ranges::find(inputs[edge.after], edge.before) != inputs[edge.after].end() ||
           !known.emplace(edge.before, edge.after).second;
  });
  auto sorted = sort_stably(body, inputs, edges);
  if (const auto* cycle = std::get_if<Cycle>(&sorted))
    throw PassError("schedule.bucket-order",
                    "what keeps collectives hidden contradicts itself once they are merged: " +
                        print_path(graph_, body, *cycle),
                    site_of(graph_, body.nodes[cycle->front().after]),
                    "leave collective_bucketing out; PyTorch's bucketer stops here, too");
  merged_.reorder(std::get<StableOrder>(sorted).order);
}

// Behind the arguments of a node: what else the step needs for it, then what was added.
std::vector<OrderEdge> InductorRewriter::list_edges(const InductorDependences& dependences) const {
  std::vector<OrderEdge> edges;
  const auto current = [&](NodeId id) {
    const auto found = written_.find(id);
    return found == written_.end() ? id : found->second;
  };
  for (Place after = 0; after < problem_.size(); ++after)
    for (const Place before : problem_.inputs[after]) {
      if (takes(after, before)) continue;
      const NodeId first = current(nodes_[before]), second = current(nodes_[after]);
      if (first != second) edges.push_back({first, second, OrderReason::kReadAfterWrite, {}});
    }
  edges.insert(edges.end(), writer_.order_edges().begin(), writer_.order_edges().end());
  for (Place after = 0; after < nodes_.size(); ++after) {
    if (written_.contains(nodes_[after])) continue;
    for (const Place before : dependences.before(after))
      if (!written_.contains(nodes_[before]))
        edges.push_back({nodes_[before], nodes_[after], OrderReason::kRequested, {}});
  }
  return edges;
}

// Itself, or what shows it: no effect need say so.
bool InductorRewriter::takes(Place after, Place before) const {
  return std::ranges::any_of(model_.inputs[after], [&](Place input) {
    return input == before || (model_.kinds[input] == StepKind::kView && takes(input, before));
  });
}

void InductorRewriter::record_moves(const std::vector<NodeId>& given) {
  Body& body = graph_.step();
  IdSet<NodeId> was_given(body.nodes.size()), stays(body.nodes.size());
  for (const NodeId id : given) was_given.insert(id);
  for (const NodeId id : body.order) stays.insert(id);
  Body before = body;
  before.order = given;
  std::erase_if(before.order, [&](NodeId id) { return !stays.contains(id); });
  std::vector<NodeId> after = body.order;
  std::erase_if(after, [&](NodeId id) { return !was_given.contains(id); });
  const StringId pass = graph_.intern("schedule");
  for (const NodeId id : find_moved(before, after))
    record_moved(*graph_.context, body.nodes[id],
                 Provenance{.pass = pass, .reason = graph_.intern("where PyTorch's bucketer has it")});
}

std::vector<std::string> InductorRewriter::list_notes() const {
  std::vector<std::string> notes;
  for (const auto& [kind, name] : {std::pair(MergeKind::kAllGather, "all-gathers"),
                                   std::pair(MergeKind::kReduceScatter, "reduce-scatters"),
                                   std::pair(MergeKind::kAllReduce, "all-reduces")}) {
    const auto at = static_cast<std::size_t>(kind);
    if (buckets_[at] > 0)
      notes.push_back(fmt::format("{} {} in {} buckets", merged_count_[at], name, buckets_[at]));
  }
  if (notes.empty()) notes.push_back("no collectives are merged");
  std::size_t alone = 0;
  for (std::uint32_t c = 0; c < f_.collectives.size(); ++c)
    if (f_.collectives[c].bucket != kNoBucketKey && !may_merge_[c]) ++alone;
  if (alone > 0) {
    notes.push_back(fmt::format("{} collectives that PyTorch's bucketer would look at stay alone", alone));
    notes.insert(notes.end(), found_.left_out.begin(), found_.left_out.end());
  }
  return notes;
}

}  // namespace epweave
