#include "passes/chunk/chunk_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>

#include "analysis/users.h"
#include "ops/bind.h"
#include "ops/op.h"
#include "ops/type_rules.h"
#include "passes/chunk/chunk_joins.h"

namespace epweave {
namespace {

bool is_sum(const Placement& p) {
  return p.is_partial() || p.is(PlacementKind::kCarried);
}

// Why a node has its placement, from those of what it takes.
class PlacementReasons {
 public:
  PlacementReasons(const Graph& graph, const Placements& placements)
      : graph_(graph), context_(*graph.context), body_(graph.step()), placements_(placements) {}

  std::string of(NodeId id) const {
    const Inputs in = inputs(id);
    const Placement& p = placements_.placement[id];
    switch (p.kind) {
      case PlacementKind::kSplit:
        return split(in);
      case PlacementKind::kLocal:
        return local(id, in);
      case PlacementKind::kPartial:
        return partial(id, in);
      case PlacementKind::kCarried:
        return fmt::format("each part goes on from the part before, and adds {}", name(in.sum));
      case PlacementKind::kTuple:
        if (is_of(id, OpFamily::kSort) && p.elements[0].is_local())
          return fmt::format("the part's rows of {}, sorted", name(in.rows));
        return in.rows ? fmt::format("results for the rows of {}", name(in.rows))
                       : fmt::format("results for {}", name(in.any()));
      default:
        return "";
    }
  }

 private:
  // The first operand of each kind.
  struct Inputs {
    NodeId rows, ordered, moved, last_moved, sum, number, tuple;
    NodeId any() const { return rows ? rows : sum ? sum : tuple ? tuple : number; }
  };
  Inputs inputs(NodeId id) const {
    Inputs in;
    std::size_t leaf = 0;
    for_each_input(context_, body_.nodes[id], [&](NodeId input) {
      const Access::Kind access = placements_.access(id, leaf++).kind;
      const Placement& p = placements_.seen_from(input, placements_.region[id]);
      if (access == Access::Kind::kWhole || access == Access::Kind::kAny || !p.is_divided()) return;
      auto first = [&](NodeId& slot) {
        if (!slot) slot = input;
      };
      if (p.is(PlacementKind::kTuple)) return first(in.tuple);
      if (tensor_of(context_, body_.nodes[input].type) == nullptr) return first(in.number);
      if (is_sum(p)) return first(in.sum);
      first(in.rows);
      first(p.is(PlacementKind::kSplit) ? in.ordered : in.moved);
      if (p.is_local()) in.last_moved = input;
    });
    return in;
  }

  std::string name(NodeId id) const {
    return id ? fmt::format("%{}", graph_.text(body_.nodes[id].name)) : "what all parts have";
  }
  bool is_of(NodeId id, OpFamily family) const {
    return body_.nodes[id].op != nullptr && body_.nodes[id].op->family == family;
  }

  std::string split(const Inputs& in) const {
    if (in.ordered && in.moved)
      return fmt::format("rows of {} written back to their tokens", name(in.last_moved));
    if (in.rows) return fmt::format("rows of {}", name(in.rows));
    if (in.tuple) return fmt::format("an element of {}", name(in.tuple));
    return fmt::format("new rows, as many as the part has ({})", name(in.any()));
  }
  std::string local(NodeId id, const Inputs& in) const {
    if (is_of(id, OpFamily::kAllToAll))
      return fmt::format("rows of {}, exchanged between ranks", name(in.rows));
    if (is_of(id, OpFamily::kIota)) return fmt::format("numbers of the part's rows ({})", name(in.any()));
    const bool is_number = tensor_of(context_, body_.nodes[id].type) == nullptr;
    if (in.rows && is_number) return fmt::format("a count of the rows of {}", name(in.rows));
    if (const NodeId index = find_index(id)) return picked(id, index);
    if (in.moved) return fmt::format("rows of {}, in their part's own order", name(in.moved));
    if (in.tuple) return fmt::format("an element of {}, in the part's own order", name(in.tuple));
    return fmt::format("the part's own ({})", name(in.any()));
  }
  // What says which rows an op picks.
  NodeId find_index(NodeId id) const {
    if (!is_of(id, OpFamily::kIndex) && !is_of(id, OpFamily::kGather) && !is_of(id, OpFamily::kIndexSelect))
      return NodeId();
    NodeId last;
    for_each_input(context_, body_.nodes[id], [&](NodeId input) { last = input; });
    return last;
  }
  std::string picked(NodeId id, NodeId index) const {
    NodeId source;
    for_each_input(context_, body_.nodes[id], [&](NodeId input) { source = source ? source : input; });
    return fmt::format("rows of {} picked by {}", name(source), name(index));
  }
  std::string partial(NodeId id, const Inputs& in) const {
    const bool is_number = tensor_of(context_, body_.nodes[id].type) == nullptr;
    if (in.rows) return fmt::format("{} over the rows of {}", is_number ? "a count" : "a sum", name(in.rows));
    if (in.tuple) return fmt::format("an element of {}", name(in.tuple));
    return fmt::format("linear in the sum {}", name(in.any()));
  }

  const Graph& graph_;
  const Context& context_;
  const Body& body_;
  const Placements& placements_;
};

class Reporter {
 public:
  Reporter(const Graph& graph, const ChunkPlan& plan, const Graph& lowered)
      : graph_(graph),
        plan_(plan),
        lowered_(lowered),
        facts_(graph),
        users_(list_users(*lowered.context, lowered.step())),
        reasons_(graph, plan.placements) {}

  ChunkReport run() {
    for (const ChunkPlan::Assumed& assumed : plan_.assumed) report_.assumptions.push_back(assumed.text);
    for (std::size_t i = 0; i < plan_.placements.regions.size(); ++i) add_region(RegionId(i));
    add_nodes();
    add_claims();
    add_cuts_and_joins();
    return std::move(report_);
  }

 private:
  RegionReport& region_of(NodeId id) { return report_.regions[plan_.placements.region[id].index()]; }
  std::string_view name(NodeId id) const { return graph_.text(graph_.step().nodes[id].name); }

  void add_region(RegionId id) {
    const ChunkRegion& region = plan_.placements.regions[id.index()];
    const Division& division = plan_.division(id);
    RegionReport& report = report_.regions.emplace_back();
    report.root = graph_.text(region.root);
    report.backward = region.backward;
    report.parts = division.count();
    by_name_[{region.root, region.backward}] = id.index();
    for (StringId symbol : plan_.token_symbols) {
      if (!division.divided.contains(symbol)) continue;
      RegionReport::PartRows& rows = report.rows.emplace_back();
      rows.symbol = graph_.text(symbol);
      for (std::size_t k = 0; k < division.count(); ++k) {
        const PolyId extent = division.rows(facts_.pool(), symbol, k);
        rows.extents.emplace_back(facts_.pool().text(facts_.expr(extent)));
        if (const auto number = facts_.hint(extent)) rows.numbers.push_back(*number);
      }
      if (rows.numbers.size() != rows.extents.size()) rows.numbers.clear();
    }
  }

  void add_nodes() {
    const Placements& placements = plan_.placements;
    for (NodeId id : graph_.step().order) {
      const RegionId region = placements.region[id];
      if (!region) continue;
      if (!placements.is_divided(id)) {
        ++region_of(id).once;
        continue;
      }
      const Node& node = graph_.step().nodes[id];
      region_of(id).nodes.push_back({std::string(name(id)), std::string(graph_.text(node.target)),
                                     print_placement(placements.placement[id]), reasons_.of(id),
                                     std::string(numerics(id))});
      for_each_input(*graph_.context, node, [&](NodeId input) {
        if (placements.region[input] && placements.region[input] != region &&
            placements.has_parts_for(input, region) && handed_.insert({input, region}).second)
          ++region_of(id).handed_over;
      });
    }
  }

  // Of the whole value, beside that of the unchunked module.
  std::string_view numerics(NodeId id) const {
    const Placement& p = plan_.placements.placement[id];
    const TypeId type = graph_.step().nodes[id].type;
    bool is_regrouped = is_sum(p) && is_real(type);
    if (p.is(PlacementKind::kTuple) && type) {
      const auto& types = graph_.context->types[type].elements;
      for (std::size_t i = 0; i < std::min(types.size(), p.elements.size()); ++i)
        is_regrouped |= is_sum(p.elements[i]) && is_real(types[i]);
    }
    return is_regrouped ? "sum-order" : "chunk-equal";
  }
  bool is_real(TypeId id) const {
    const TensorType* type = tensor_of(*graph_.context, id);
    return type != nullptr && is_inexact(type->dtype);
  }

  void add_claims() {
    for (NodeId id : plan_.claims.proved_at) ++region_of(id).proved;
    for (NodeId id : plan_.claims.exchanges_at) ++region_of(id).proved_exchanges;
    for (const Assumption& assumption : plan_.placements.assumptions)
      if (assumption.is_open)
        region_of(assumption.node)
            .assumptions.push_back(fmt::format("%{} {}", name(assumption.node), assumption.text));
    for (const FrameClaims::Open& open : plan_.claims.open)
      region_of(open.node).assumptions.push_back(fmt::format("%{}: {}", name(open.node), open.why));
    for (const auto& [id, cut] : plan_.placements.attention)
      if (cut.keys)
        region_of(id).assumptions.push_back(
            fmt::format("%{}: no token attends to one of another part (attention=independent)", name(id)));
    static const OpInfo* const grouped_mm = find_op("aten._grouped_mm.default");
    for (NodeId id : graph_.step().order)
      if (graph_.step().nodes[id].op == grouped_mm && plan_.placements.region[id] &&
          plan_.placements.is_divided(id))
        region_of(id).assumptions.push_back(
            fmt::format("%{}: its group sizes count the rows of each expert", name(id)));
  }

  void add_cuts_and_joins() {
    std::map<std::pair<StringId, RegionReport*>, std::size_t> joins;
    for (NodeId id : lowered_.step().order) {
      const Node& node = lowered_.step().nodes[id];
      if (node.provenance.empty()) continue;
      const Provenance& record = *(node.provenance.end() - 1);
      if (record.origins.empty() || !record.region || !record.backward) continue;
      const auto region = by_name_.find({record.region, *record.backward});
      if (region == by_name_.end()) continue;
      RegionReport& report = report_.regions[region->second];
      const std::string_view target = lowered_.text(node.target);
      const auto args = lowered_.context->args[node.args];
      if (record.role == ProvenanceRole::kSplit && target == "aten.split_with_sizes.default")
        report.cut.push_back(value_of(
            record, fmt::format("along {}", args.size() > 2 && args[2].is_int() ? args[2].as_int() : 0), id));
      if (record.role != ProvenanceRole::kMaterialize) continue;
      const auto dim = find_joined_dim(*lowered_.context, lowered_.step(), id);
      const bool is_add = target == "aten.add.Tensor" || target == "operator.add";
      if (!dim && !is_add) continue;
      const std::string how =
          dim ? fmt::format("cat along {}", *dim) : fmt::format("sum of {} parts", report.parts);
      // A sum of several parts is several additions; the last one is the whole.
      const auto [known, is_new] = joins.try_emplace({record.origins.front(), &report}, report.joined.size());
      if (is_new)
        report.joined.push_back(value_of(record, how, id));
      else
        report.joined[known->second] = value_of(record, how, id);
    }
  }
  RegionReport::Value value_of(const Provenance& record, std::string how, NodeId id) const {
    return {std::string(lowered_.text(record.origins.front())), type_of(record.origins.front()),
            std::move(how), wanted_by(id)};
  }
  std::string type_of(StringId origin) const {
    if (origins_.empty())
      for (NodeId id : graph_.step().order) origins_.emplace(graph_.step().nodes[id].name, id);
    const auto found = origins_.find(origin);
    if (found == origins_.end()) return "";
    const std::string type = print_type(*graph_.context, graph_.step().nodes[found->second].type);
    return type.starts_with("(") ? type
                                 : type.substr(0, type.find_first_of("{@"));  // layout and device aside
  }
  // The first that takes the value.
  std::string wanted_by(NodeId id) const {
    const auto users = users_[id];
    if (users.empty()) return "";
    const Node& user = lowered_.step().nodes[users[0]];
    if (has_family(user, OpFamily::kElement)) return wanted_by(users[0]);
    std::string text = fmt::format("for %{}", lowered_.text(user.name));
    if (user.module) text += fmt::format(" in {}", lowered_.text(user.module));
    if (users.size() > 1) text += fmt::format(" and {} more", users.size() - 1);
    return text;
  }

  const Graph& graph_;
  const ChunkPlan& plan_;
  const Graph& lowered_;
  Facts facts_;
  const NodeLists users_;
  const PlacementReasons reasons_;
  std::map<std::pair<StringId, bool>, std::size_t> by_name_;
  std::set<std::pair<NodeId, RegionId>> handed_;
  mutable std::map<StringId, NodeId> origins_;
  ChunkReport report_;
};

}  // namespace

ChunkReport report_chunks(const Graph& graph, const ChunkPlan& plan, const Graph& lowered) {
  return Reporter(graph, plan, lowered).run();
}

std::string print_region_title(const RegionReport& region) {
  std::string text = fmt::format("region {} {}: {} parts", region.root,
                                 region.backward ? "backward" : "forward", region.parts);
  for (const RegionReport::PartRows& rows : region.rows) {
    text += fmt::format(", {} = {}", rows.symbol, fmt::join(rows.extents, " + "));
    if (!rows.numbers.empty()) text += fmt::format(" ({})", fmt::join(rows.numbers, " + "));
  }
  return text;
}

std::vector<std::string> list_decisions(const ChunkReport& report) {
  std::vector<std::string> lines;
  for (const std::string& text : report.assumptions) lines.push_back(fmt::format("assumes {}", text));
  for (const RegionReport& region : report.regions) {
    lines.push_back(print_region_title(region));
    for (const auto& value : region.cut)
      lines.push_back(fmt::format("  cut     %{} {} {}, {}", value.name, value.type, value.how, value.why));
    for (const auto& value : region.joined)
      lines.push_back(fmt::format("  joined  %{} {}: {}, {}", value.name, value.type, value.how, value.why));
    if (region.handed_over > 0)
      lines.push_back(fmt::format("  taken in parts from other regions: {} values", region.handed_over));
    if (region.proved > 0)
      lines.push_back(fmt::format("  proved  rows keep to their tokens in {}", print_proved(region.proved)));
    if (region.proved_exchanges > 0)
      lines.push_back(fmt::format("  proved  {} rows to the ranks that the whole sends them to",
                                  region.proved_exchanges == 1
                                      ? "1 exchange sends"
                                      : fmt::format("{} exchanges send", region.proved_exchanges)));
    for (const std::string& text : region.assumptions) lines.push_back(fmt::format("  assumes {}", text));
  }
  return lines;
}

}  // namespace epweave
