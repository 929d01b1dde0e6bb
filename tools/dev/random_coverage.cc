#include "random_coverage.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <span>

#include "placement/rules/placement_rules.h"

namespace epweave {
namespace {

constexpr std::string_view kWholeOnly = "its arguments are never divided";
constexpr std::string_view kRankShared = "no model broadcasts activations";
constexpr std::string_view kAsserted =
    "asserts cannot be executed; testdata/chunk/c18_*, rounded_size_asserted";
constexpr std::string_view kGolden = "needs a graph of its own; testdata/chunk/refuse_*";
constexpr std::string_view kTopk = "of a topk's gradient, not generated; testdata/chunk/scatter_values";
constexpr std::string_view kDense = "of dense layers, not generated; testdata/chunk/op_*, refuse_op_*";
constexpr std::string_view kEmbedding =
    "tables of divided modules get no gradient; testdata/chunk/embedding_backward_*";
constexpr std::string_view kTagged =
    "policies write no such tag; testdata/memory, recompute_test, partition_test";
constexpr std::string_view kUnsharded =
    "parameters of random steps are whole; recompute_test, reference_test";
constexpr std::string_view kImages = "random steps have no images; testdata/chunk/convolution_batch";
constexpr std::string_view kMapped =
    "not generated; testdata/chunk/mapped_*, refuse_mapped_*, and the mapping's own tests by execution";
constexpr std::string_view kTrace = "traces never hold it; testdata/chunk";

struct Reason {
  std::string_view name, why_not;
};

constexpr Reason kOperations[] = {
    {"_dtensor.mesh_get_process_group.default", kWholeOnly},
    {"device_mesh._get_submesh.<packet>", kWholeOnly},
    {"device_mesh._runtime_compute_coordinate_on_dim.default", kWholeOnly},
    {"coor.current_device.default", kWholeOnly},
    {"aten._assert_scalar.default", kAsserted},
    {"aten.sym_constrain_range.default", kAsserted},
    {"aten.sym_constrain_range_for_size.default", kAsserted},
    {"operator.and_", kAsserted},
    {"operator.or_", kAsserted},
    {"operator.not_", kAsserted},
    {"torch.sym_not", kAsserted},
    {"operator.eq", kAsserted},
    {"operator.ne", kAsserted},
    {"operator.ge", kAsserted},
    {"operator.gt", kAsserted},
    {"operator.le", kAsserted},
    {"operator.lt", kAsserted},
    {"aten._assert_async.default", kAsserted},
    {"aten._assert_async.msg", kAsserted},
    {"aten._assert_tensor_metadata.default", kAsserted},
    {"_c10d_functional.broadcast.default", kRankShared},
    {"aten.embedding_dense_backward.default", kEmbedding},
    {"aten.flip.default", kDense},
    {"aten.one_hot.default", kDense},
    {"aten.tril.default", kDense},
    {"aten.view.dtype", kDense},
    {"aten.cummax.default", kDense},
    {"aten.cumprod.default", kDense},
    {"aten.scatter_add_.default", kDense},
    {"aten.scatter.src", kTopk},
    {"aten.scatter_.src", kTopk},
    {"aten.addmm.default", kDense},
    {"aten.all.dim", kDense},
    {"aten.all.dims", kDense},
    {"aten.any.default", kDense},
    {"aten.any.dim", kDense},
    {"aten.any.dims", kDense},
    {"aten.argmax.default", kDense},
    {"aten.baddbmm.default", kDense},
    {"aten.convolution.default", kImages},
    {"aten.convolution_backward.default", kImages},
    {"aten.copy_.default", kDense},
    {"aten.detach_.default", kDense},
    {"aten.div_.Scalar", kDense},
    {"aten.div_.Tensor", kDense},
    {"aten.glu.default", kDense},
    {"aten.glu_backward.default", kDense},
    {"aten.index_add.default", kDense},
    {"aten.index_add_.default", kDense},
    {"aten.logsumexp.default", kDense},
    {"aten.mean.default", kDense},
    {"aten.mul_.Scalar", kDense},
    {"aten.nansum.default", kDense},
    {"aten.mul_.Tensor", kDense},
    {"aten.native_layer_norm.default", kDense},
    {"aten.native_layer_norm_backward.default", kDense},
    {"aten.repeat.default", kDense},
    {"aten.stack.default", kDense},
    {"aten.sub_.Scalar", kDense},
    {"aten.sub_.Tensor", kDense},
};

constexpr Reason kPlacements[] = {
    {"Ambiguous", "refused where it is used"},
    {"Unordered", "refused where it is used"},
    {"taken by prefix",
     "of attention with a causal table of blocks, not generated; testdata/chunk/attention_prefix_*"},
};

constexpr Reason kRefusals[] = {
    {"chunk.attention", ""},
    {"chunk.random", ""},
    {"chunk.block-border", ""},
    {"chunk.block-mask", ""},
    {"chunk.blocks", kGolden},
    {"chunk.unknown-order", ""},
    {"chunk.already-chunked", ""},
    {"chunk.along-divided", ""},
    {"chunk.baked-extent", kGolden},
    {"chunk.broken-extent", ""},
    {"chunk.combination", ""},
    {"chunk.counted-rows", kGolden},
    {"chunk.extent", ""},
    {"chunk.foreign-exchange", ""},
    {"chunk.foreign-positions", ""},
    {"chunk.index", kTrace},
    {"chunk.inner-factor", ""},
    {"chunk.local-wanted-whole", ""},
    {"chunk.mask", kGolden},
    {"chunk.mixed-dimensions", kGolden},
    {"chunk.mixed-extents", ""},
    {"chunk.mixed-orders", ""},
    {"chunk.no-exchange", ""},
    {"chunk.no-modules", kGolden},
    {"chunk.no-part", ""},
    {"chunk.no-region", ""},
    {"chunk.no-rule", kGolden},
    {"chunk.no-token-symbol", ""},
    {"chunk.no-type", kTrace},
    {"chunk.nothing-divided", kGolden},
    {"chunk.outside-symbol", kGolden},
    {"chunk.overlapping-roots", ""},
    {"chunk.own-sum", ""},
    {"chunk.part-type", ""},
    {"chunk.positions-as-data", ""},
    {"chunk.raw-symbol", kTrace},
    {"chunk.read-after-update", ""},
    {"chunk.reduction", ""},
    {"chunk.regrouped-rows", ""},
    {"chunk.reshape", kGolden},
    {"chunk.rounded-rows", ""},
    {"chunk.several-indices", ""},
    {"chunk.sizes", ""},
    {"chunk.split-sizes", ""},
    {"chunk.strides", kGolden},
    {"chunk.too-many-parts", ""},
    {"chunk.two-token-extents", ""},
    {"chunk.uneven", kGolden},
    {"chunk.unknown-extent", kGolden},
    {"chunk.unproved-rows", kGolden},
    {"chunk.update-changes-rows", ""},
    {"chunk.update-not-a-sum", kGolden},
    {"chunk.update-of-parts", kGolden},
    {"chunk.update-of-view", ""},
    {"chunk.update-outside", ""},
    {"chunk.whole-groups", ""},
    {"chunk.whole-positions", ""},
    {"chunk.whole-rows", ""},
    {"chunk.whole-splits", ""},
    {"chunk.written-apart", ""},
    {"chunk.written-zeros", ""},
    {"cpu-offload.view", kTagged},
    {"memory-policy.budget", ""},
    {"memory-policy.save", ""},
    {"partition.backward", ""},
    {"partition.budget", ""},
    {"partition.cut", ""},
    {"partition.random", kTagged},
    {"partition.region-budget", "no call is in a region with a budget; goldens region_budget_*"},
    {"partition.tag", "no call has a partitioner_tag; goldens required_*"},
    {"partition.tangent-read", "no tangent is an input; goldens j52_*"},
    {"partition.tangent-written", "no tangent is an input; goldens j52_*"},
    {"recompute.random", kTagged},
    {"recompute.regions", "forward of a step ends before backward begins; recompute_test"},
    {"recompute.repeated", "a chain runs recompute once; golden recompute_other_policy"},
};

constexpr Reason kTags[] = {
    {"end of an unshard chain, reshard=never", kUnsharded},
    {"unshard chain, reshard=always", kUnsharded},
    {"as what it takes", ""},
    {"a number", ""},
    {"draws random numbers", ""},
    {"named by save", ""},
    {"its op is saved by policy", ""},
    {"each second product of a layer", ""},
    {"policy", ""},
    {"computed again in a higher layer, too", ""},
    {"cheapest for the budget", ""},
    {"dearer to compute again, or not needed", ""},
    {"saved on the host", ""},
};

constexpr std::string_view kPhases[] = {
    "copies token counts",
    "behind the token-count copies",
    "the token-count copies need it",
    "launches exchange",
    "fills the time",
    "needs it",
    "follows exchange",
};

std::string_view name_of(Access::Kind kind) {
  switch (kind) {
    case Access::Kind::kPart:
      return "taken by part";
    case Access::Kind::kPrefix:
      return "taken by prefix";
    case Access::Kind::kWhole:
      return "taken whole";
    case Access::Kind::kSlice:
      return "taken by slice";
    case Access::Kind::kChain:
      return "taken in turn";
    case Access::Kind::kAny:
      return "taken for its type";
  }
  return {};
}

std::string_view find_reason(std::span<const Reason> reasons, std::string_view name) {
  const auto found = std::ranges::find_if(reasons, [&](const Reason& reason) { return reason.name == name; });
  return found == reasons.end() ? std::string_view() : found->why_not;
}

std::vector<std::string> missing_of(const std::vector<Listed>& list,
                                    const std::map<std::string, std::size_t>& counts) {
  std::set<std::string> rules;
  for (const Listed& each : list)
    if (!each.rule.empty() && (counts.contains(each.name) || !each.why_not.empty())) rules.insert(each.rule);
  std::vector<std::string> names;
  for (const Listed& each : list)
    if (each.why_not.empty() && !counts.contains(each.name) && !rules.contains(each.rule))
      names.push_back(each.name);
  return names;
}

std::string print_section(std::string_view title, const std::vector<Listed>& list,
                          const std::map<std::string, std::size_t>& counts) {
  std::size_t reached = 0;
  for (const Listed& each : list) reached += counts.contains(each.name);
  std::string text = fmt::format("{}: {} of {} reached\n", title, reached, list.size());
  for (const auto& [name, count] : counts) text += fmt::format("  {:8} {}\n", count, name);
  for (const Listed& each : list)
    if (!counts.contains(each.name))
      text += fmt::format("  not      {}: {}\n", each.name,
                          !each.why_not.empty() ? each.why_not
                          : each.rule.empty()   ? "must be reached"
                                                : "as others of its kind: " + each.rule);
  return text;
}

}  // namespace

std::vector<Listed> listed_operations() {
  std::vector<Listed> list;
  for (const OpInfo& op : ops()) {
    const PlacementRule rule = find_placement_rule(op);
    if (rule == nullptr) continue;
    const bool is_mapped = rule == by_factors || rule == by_factors_in_place;
    list.push_back({std::string(op.target),
                    std::string(is_mapped ? kMapped : find_reason(kOperations, op.target)),
                    is_mapped ? "by its mapping"
                              : fmt::format("{} {}{}", name_of(op.family), name_of(op.linearity),
                                            op.writes ? " in place" : "")});
  }
  std::ranges::sort(list, {}, &Listed::name);
  return list;
}

std::vector<Listed> listed_placements() {
  std::vector<Listed> list;
  for (const char* name : {"Whole", "Split", "Split in blocks", "Local", "Partial", "Carried", "tuple",
                           "Ambiguous", "Unordered", "taken by part", "taken by prefix", "taken whole",
                           "taken by slice", "taken in turn", "taken for its type"})
    list.push_back({name, std::string(find_reason(kPlacements, name))});
  return list;
}

std::vector<Listed> listed_refusals() {
  std::vector<Listed> list;
  for (const Reason& reason : kRefusals)
    list.push_back({std::string(reason.name), std::string(reason.why_not)});
  std::ranges::sort(list, {}, &Listed::name);
  return list;
}

std::vector<Listed> listed_phases() {
  std::vector<Listed> list;
  for (const std::string_view phase : kPhases) list.push_back({std::string(phase), {}});
  return list;
}

std::vector<Listed> listed_tags() {
  std::vector<Listed> list;
  for (const Reason& reason : kTags) list.push_back({std::string(reason.name), std::string(reason.why_not)});
  return list;
}

void Coverage::count_plan(const Graph& graph, const ChunkPlan& plan) {
  const Placements& placements = plan.placements;
  for (NodeId id : graph.step().order) {
    if (!placements.region[id]) continue;
    bool any = false;
    for_each_input(*graph.context, graph.step().nodes[id], [&](NodeId input) {
      any |= placements.seen_from(input, placements.region[id]).is_divided();
    });
    std::size_t leaf = 0;
    for_each_input(*graph.context, graph.step().nodes[id], [&](NodeId) {
      const std::size_t i = leaf++;
      if (any) ++placements_[std::string(name_of(placements.access(id, i).kind))];
    });
    if (any) ++operations_[std::string(graph.text(graph.step().nodes[id].target))];
    const Placement& p = placements.placement[id];
    const std::string name = p.is(PlacementKind::kTuple) ? "tuple" : print_placement(p);
    ++placements_[p.is(PlacementKind::kSplit) && p.blocks ? "Split in blocks"
                                                          : name.substr(0, name.find('('))];
  }
}

void Coverage::count_schedule(const Graph& scheduled) {
  for (NodeId id : scheduled.step().order)
    for (const Provenance& record : scheduled.step().nodes[id].provenance) {
      if (!record.reason) continue;
      const std::string_view reason = scheduled.text(record.reason);
      for (const std::string_view phase : kPhases)
        if (reason.find(phase) != reason.npos) {
          ++phases_[std::string(phase)];
          break;
        }
    }
}

void Coverage::count_tags(const Graph& tagged) {
  for (NodeId id : tagged.step().order)
    for (const Provenance& record : tagged.step().nodes[id].provenance)
      if (record.reason && tagged.text(record.pass) == "memory-policy")
        ++tags_[std::string(tagged.text(record.reason))];
}

std::string Coverage::print() const {
  return print_section("operations", listed_operations(), operations_) +
         print_section("placements", listed_placements(), placements_) +
         print_section("refusals", listed_refusals(), refusals_) +
         print_section("phases", listed_phases(), phases_) + print_section("tags", listed_tags(), tags_);
}

std::vector<std::string> Coverage::missing() const {
  std::vector<std::string> all;
  auto add = [&](const std::vector<Listed>& list, const Counts& counts) {
    for (std::string& name : missing_of(list, counts)) all.push_back(std::move(name));
  };
  add(listed_operations(), operations_);
  add(listed_placements(), placements_);
  add(listed_refusals(), refusals_);
  add(listed_phases(), phases_);
  add(listed_tags(), tags_);
  return all;
}

std::size_t Coverage::refused() const {
  std::size_t count = 0;
  for (const auto& [name, times] : refusals_) count += times;
  return count;
}

}  // namespace epweave
