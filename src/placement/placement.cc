#include "placement/placement.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "analysis/effects.h"
#include "analysis/element_call.h"
#include "analysis/module_path.h"
#include "ir/walk.h"
#include "ops/bind.h"
#include "ops/op.h"
#include "ops/traffic.h"
#include "placement/chunk_roots.h"
#include "placement/node_regions.h"
#include "placement/obstacles.h"
#include "placement/outside_placements.h"
#include "placement/recorded_types.h"
#include "placement/region_updates.h"
#include "placement/rules/placement_rules.h"

namespace epweave {

Placement Placement::tuple(std::vector<Placement> elements) {
  return {PlacementKind::kTuple, -1, std::move(elements)};
}

bool Placement::is_divided() const {
  if (kind == PlacementKind::kTuple)
    return std::any_of(elements.begin(), elements.end(), [](const Placement& p) { return p.is_divided(); });
  return kind != PlacementKind::kWhole;
}

std::string print_placement(const Placement& p) {
  switch (p.kind) {
    case PlacementKind::kWhole:
      return "Whole";
    case PlacementKind::kSplit:
      return fmt::format("Split({}{})", p.dim, p.blocks ? " in blocks" : "");
    case PlacementKind::kLocal:
      return p.dim < 0 ? "Local" : fmt::format("Local({})", p.dim);
    case PlacementKind::kPartial:
      return "Partial";
    case PlacementKind::kCarried:
      return "Carried";
    case PlacementKind::kAmbiguous:
      return "Ambiguous";
    case PlacementKind::kUnordered:
      return "Unordered";
    case PlacementKind::kTuple:
      break;
  }
  std::string text = "(";
  for (std::size_t i = 0; i < p.elements.size(); ++i)
    text += (i > 0 ? ", " : "") + print_placement(p.elements[i]);
  return text + ")";
}

namespace {

std::size_t hash(const Placement& p) {
  std::size_t h = mix_hash(static_cast<std::size_t>(p.kind), static_cast<std::size_t>(p.dim));
  h = mix_hash(mix_hash(h, p.blocks.index()), p.any_order ? 1 : 0);
  for (const Placement& element : p.elements) h = mix_hash(h, hash(element));
  return h;
}

}  // namespace

void PlacementTable::set(NodeId id, const Placement& placement) {
  const std::size_t h = hash(placement);
  std::uint32_t number = index_.find(h, [&](std::uint32_t i) { return distinct_[i] == placement; });
  if (number == HashIndex::kNone) {
    number = static_cast<std::uint32_t>(distinct_.size());
    distinct_.push_back(placement);
    index_.insert(h, number);
  }
  numbers_.at(id) = number;
}

void Placements::set_access(NodeId node, const std::vector<Access>& accesses) {
  access_begin_.at(node) = static_cast<std::uint32_t>(accesses_.size());
  accesses_.insert(accesses_.end(), accesses.begin(), accesses.end());
}

namespace {

// Whether the token numbers are a grid of [1, sequence]: all integers that are given as one are.
bool has_one_sequence(const Graph& graph) {
  const Body& step = graph.step();
  bool is_found = false;
  for (std::size_t place = 0; place < graph.inputs.size() && place < step.order.size(); ++place) {
    const TensorType* type = tensor_of(*graph.context, step.nodes[step.order[place]].type);
    const bool is_grid = graph.text(graph.inputs[place].role) == "user" && type != nullptr &&
                         type->rank() == 2 && !is_floating(type->dtype);
    if (!is_grid) continue;
    if (graph.context->exprs.constant(type->sizes[0]) != 1) return false;
    is_found = true;
  }
  return is_found;
}

void require_tokens(const Graph& graph, const TokenExtents& tokens) {
  if (!tokens.symbols().empty()) return;
  if (tokens.is_inner())
    throw PassError(
        "chunk.no-token-symbol",
        "dim=seq divides the second dimension of the [batch, sequence] inputs, which is a plain "
        "number in all of them",
        {},
        "trace with a symbolic sequence length, name the second dimension to symbolize where it makes the "
        "symbol (inputs=[NAME:1], of a preset symbolize=[NAME:1]), or divide the batch (dim=batch)");
  if (tokens.has_symbolic_grid())
    throw PassError("chunk.no-token-symbol",
                    "dim=batch divides the first dimension of the [batch, sequence] inputs, which is a "
                    "plain number in all "
                    "of them; the second is a symbol",
                    {}, "divide the sequence (dim=seq), or trace with a symbolic batch");
  if (has_one_sequence(graph))
    throw PassError("chunk.no-token-symbol", "the batch is one sequence, which has no parts", {},
                    "divide along the sequence: symbolize{inputs=[NAME:1]},chunk{dim=seq}, of a preset "
                    "symbolize=[NAME:1],dim=seq, with each input that has one");
  throw PassError("chunk.no-token-symbol",
                  "no user input has a symbolic first dimension: the token count is a plain number", {},
                  "run symbolize before chunk (-p symbolize,chunk; --preset ep-overlap{symbolize=yes})");
}

class Inference {
 public:
  Inference(const Graph& graph, const PlacementOptions& options, TokenExtents& tokens, Facts& facts)
      : graph_(graph),
        step_(graph.step()),
        options_(options),
        tokens_(tokens),
        facts_(facts),
        types_(facts),
        matcher_(options.roots, graph.context->strings),
        outside_(graph, tokens, facts, result_.outside),
        regions_(graph, options.join, matcher_, roots_, result_),
        updates_(graph, result_),
        call_(graph, result_, tokens, facts, options),
        obstacles_(graph) {
    result_.effects = std::make_shared<const Effects>(graph, step_);
    result_.region = SideTable<NodeId, RegionId>(step_.nodes.size(), RegionId());
    result_.placement = result_.outside = PlacementTable(step_.nodes.size());
  }

  Placements run() {
    roots_ = select_roots(graph_, options_, matcher_);
    require_unchunked(graph_, roots_, matcher_);
    require_tokens(graph_, tokens_);
    outside_.find_sharing_ranks();
    find_memory_of_draws();
    result_.unused_patterns = roots_.unused_patterns;
    result_.unmatched_patterns = roots_.unmatched_patterns;
    for (const auto [id, node] : walk(*graph_.context, step_)) {
      outside_.infer(id);
      if (const RegionId region = regions_.find(id)) {
        result_.region.at(id) = region;
        if (!obstacles_.is_behind_one(id)) visit(id, region);
      }
      updates_.note_writes(id);
    }
    obstacles_.require_none();
    leave_out_undivided();
    return std::move(result_);
  }

 private:
  void refuse(NodeId id, const PlacementRefusal& refusal) {
    const Node& node = step_.nodes[id];
    std::string inputs;
    for_each_input(*graph_.context, node, [&](NodeId input) {
      inputs += fmt::format("{}{}: {}", inputs.empty() ? "" : ", ", graph_.text(step_.nodes[input].name),
                            print_placement(result_.seen_from(input, result_.region[id])));
    });
    obstacles_.add(id, PassError(refusal.id,
                                 fmt::format("{} cannot run on parts of the tokens: {} (arguments {})",
                                             graph_.text(node.target), refusal.problem, inputs),
                                 site_of(graph_, node), remedy_of(refusal)));
  }

  std::string remedy_of(const PlacementRefusal& refusal) const {
    if (!refusal.remedy.empty()) return refusal.remedy;
    std::string remedy = "select roots that leave this operation outside";
    if (refusal.id == "chunk.along-divided" || refusal.id == "chunk.combination" ||
        refusal.id == "chunk.mixed-orders")
      if (const ProcessGroup* group = find_tensor_parallel_group())
        remedy += fmt::format(
            "; the graph is tensor-parallel (group '{}', axis tp, {} ranks): a part has rows of each rank's "
            "share of the tokens, and what cuts across the shares needs a trace with tensor-parallel degree "
            "1",
            graph_.text(group->name), group->ranks.size());
    return remedy;
  }

  const ProcessGroup* find_tensor_parallel_group() const {
    for (const ProcessGroup& group : graph_.groups)
      if (group.ranks.size() > 1 && group.axes && group.axes->size() == 1 &&
          graph_.text(group.axes->front()) == "tp")
        return &group;
    return nullptr;
  }

  void visit(NodeId id, RegionId region) {
    bool any_divided = false;
    for_each_input(*graph_.context, step_.nodes[id],
                   [&](NodeId input) { any_divided |= result_.seen_from(input, region).is_divided(); });
    if (!any_divided) return;
    try {
      divide(id, region);
    } catch (const PlacementRefusal& refusal) {
      refuse(id, refusal);
    }
  }

  void divide(NodeId id, RegionId region) {
    const Node& node = step_.nodes[id];
    if (node.chunk.role)
      throw PlacementRefusal{"chunk.already-chunked", "it already belongs to a part of a chunked region",
                             "chunk a graph once, with all patterns in one list: roots=[A,B]"};
    const PlacementRule rule = find_rule(id);
    if (rule == nullptr)
      throw PlacementRefusal{
          "chunk.no-rule", "there is no placement rule for this operation",
          node.op == nullptr
              ? "select roots that leave it outside, or add a row for it to the op table and a placement rule"
              : "select roots that leave it outside"};
    call_.begin(id);
    check_types(id);
    updates_.check_before(id, region);
    const Placement placement = rule(call_);
    call_.require_all_considered();
    call_.require_sums(placement);
    if (call_.relied_on().value) updates_.check_content(call_.relied_on());
    updates_.check_after(id, placement, region);
    result_.set_access(id, call_.accesses());
    for (const Assumption& assumption : call_.assumptions()) result_.assumptions.push_back(assumption);
    if (!placement.is_divided()) return;
    if (call_.cut()) result_.attention.emplace(id, *call_.cut());
    has_division_.insert(region);
    for_each_input(*graph_.context, node, [&](NodeId input) {
      if (!result_.shares_parts(input, region) && result_.seen_from(input, region).is_divided())
        regions_.note_taken(input, region);
    });
    result_.placement.set(id, placement);
    result_.divided.push_back(id);
    updates_.note_placed(id, placement);
  }

  // Random numbers are drawn once, of the joined rows, and so is the memory made that they are
  // written to.
  PlacementRule find_rule(NodeId id) const {
    const Node& node = step_.nodes[id];
    if (node.op == nullptr) return nullptr;
    const bool is_drawn = node.op->is_random || (leaves_unset(*node.op) && drawn_into_.contains(id));
    return is_drawn ? draw_once : find_placement_rule(*node.op);
  }

  void find_memory_of_draws() {
    for (const auto [id, node] : walk(*graph_.context, step_))
      if (node.op != nullptr && node.op->is_random)
        for (const StorageAccess& access : result_.effects->accesses_of(id))
          if (access.writes) drawn_into_.insert(access.storage);
  }

  // Rules read dimensions off the recorded types.
  void check_types(NodeId id) {
    const Node& node = step_.nodes[id];
    if (!node.type && !node.op->returns.empty() && !is_untyped_element(node))
      throw PlacementRefusal{"chunk.no-type", "it has no recorded type", "export the graph with types"};
    if (std::string problem = find_wrong_record(graph_, node, tokens_, types_); !problem.empty())
      throw PlacementRefusal{
          "chunk.no-type", std::move(problem),
          "export the graph with its own types again, or select roots that leave this operation outside"};
  }

  // Of a tuple that records no tensor for it either: what a kernel leaves out, or a number.
  bool is_untyped_element(const Node& node) const {
    const NodeId tuple = tuple_of(*graph_.context, node);
    if (!tuple || !step_.nodes[tuple].type) return false;
    const Arg index = arg_of(*graph_.context, node, 1);
    if (!index.is_int() || index.as_int() < 0) return false;
    const std::vector<TypeId>& elements = graph_.context->types[step_.nodes[tuple].type].elements;
    const auto i = static_cast<std::size_t>(index.as_int());
    return i < elements.size() &&
           (!elements[i] || graph_.context->types[elements[i]].kind == TypeKind::kValue);
  }

  // Of all modules of a pattern some may have nothing to do with tokens. One that exchanges tokens
  // has.
  void leave_out_undivided() {
    const bool may_leave_out = options_.dense && !result_.divided.empty();
    std::vector<RegionId> renumbered;
    std::vector<ChunkRegion> kept;
    for (std::size_t i = 0; i < result_.regions.size(); ++i) {
      const bool is_kept = has_division_.contains(RegionId(i));
      if (!is_kept && !may_leave_out) fail_undivided(RegionId(i));
      renumbered.push_back(is_kept ? RegionId(kept.size()) : RegionId());
      (is_kept ? kept : result_.undivided).push_back(result_.regions[i]);
    }
    if (result_.undivided.empty()) return;
    result_.regions = std::move(kept);
    for (NodeId id : step_.order)
      if (result_.region[id]) result_.region.at(id) = renumbered[result_.region[id].index()];
  }
  [[noreturn]] void fail_undivided(RegionId id) const {
    const ChunkRegion& region = result_.regions[id.index()];
    throw PassError(
        "chunk.nothing-divided",
        fmt::format("nothing in region '{}' ({}) is divided: no value that enters it has a token extent",
                    graph_.text(region.root), region.backward ? "backward" : "forward"),
        site_of_region(id),
        "leave the module out of the roots, or check that the token dimension is symbolic where the module "
        "reads it; where the step cuts its tokens into micro-batches, say into how many: "
        "symbolize{inputs=[tokens:0/2]}");
  }

  // Where its first node is.
  Site site_of_region(RegionId region) const {
    for (const auto [id, node] : walk(step_))
      if (result_.region[id] == region) return site_of(graph_, node);
    return {};
  }

  const Graph& graph_;
  const Body& step_;
  const PlacementOptions& options_;
  TokenExtents& tokens_;
  Facts& facts_;
  TypeMemo types_;
  ModuleMatcher matcher_;
  ChunkRoots roots_;
  Placements result_;
  OutsidePlacements outside_;
  NodeRegions regions_;
  RegionUpdates updates_;
  PlacementCall call_;
  Obstacles obstacles_;
  IdSet<RegionId> has_division_;
  IdSet<NodeId> drawn_into_;  // storages
};

}  // namespace

Placements infer_placements(const Graph& graph, const PlacementOptions& options, TokenExtents& tokens,
                            Facts& facts) {
  return Inference(graph, options, tokens, facts).run();
}

}  // namespace epweave
