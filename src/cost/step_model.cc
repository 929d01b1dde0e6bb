#include "cost/step_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "analysis/aliases.h"
#include "analysis/collectives.h"
#include "analysis/order.h"
#include "base/error.h"
#include "cost/measured_costs.h"
#include "cost/prices.h"
#include "ir/walk.h"
#include "ops/bind.h"
#include "ops/op.h"

namespace epweave {
namespace {

// Each place's list without repetition, in the order of first mention.
PlaceLists without_repetition(const PlaceLists& lists, std::size_t items) {
  PlaceLists unique;
  unique.begins.assign(1, 0);
  unique.items.reserve(lists.items.size());
  std::vector<std::uint32_t> last(items, ~0U);
  for (std::uint32_t i = 0; i < lists.size(); ++i) {
    for (const Place item : lists[i])
      if (std::exchange(last[item], i) != i) unique.items.push_back(item);
    unique.begins.push_back(static_cast<std::uint32_t>(unique.items.size()));
  }
  return unique;
}

class ModelBuilder {
 public:
  ModelBuilder(const Graph& graph, const Cluster& cluster, const MeasuredCosts* measured)
      : context_(*graph.context),
        body_(graph.step()),
        extents_(graph),
        pricer_(graph, cluster, extents_),
        measured_(measured),
        facts_(find_order_facts(graph, body_)),
        places_(find_positions(body_, body_.order)) {
    model_.cluster = cluster;
    model_.nodes = body_.order;
  }

  StepModel run() {
    find_kinds();
    find_prices();
    find_orders();
    find_host_reads();
    find_storages();
    model_.assumed_symbols = extents_.assumed();
    if (measured_ != nullptr) model_.measured_on = measured_->device();
    return std::move(model_);
  }

 private:
  const Node& node(NodeId id) const { return body_.nodes[id]; }
  Place place_of(NodeId id) const { return places_[id]; }

  void find_kinds() {
    const std::size_t size = body_.order.size();
    model_.kinds.resize(size);
    model_.launches.assign(size, kNoPlace);
    for (Place place = 0; place < size; ++place) {
      const NodeId id = body_.order[place];
      model_.kinds[place] = pricer_.kind_of(id);
      if (model_.kinds[place] == StepKind::kWait)
        model_.launches[place] = place_of(find_waited_launch(context_, body_, id));
    }
  }

  void find_prices() {
    const std::size_t size = body_.order.size();
    model_.seconds.assign(size, 0);
    model_.bytes.assign(size, 0);
    model_.stops_host.assign(size, 0);
    model_.sources.assign(size, PriceSource::kNone);
    model_.groups.assign(size, kNoPlace);
    std::size_t next_launch = 0;
    for (Place place = 0; place < size; ++place) {
      const NodeId id = body_.order[place];
      if (model_.kinds[place] == StepKind::kKernel) {
        give_price(place, measured(id, pricer_.price_kernel(id, facts_.inputs[id])));
        model_.stops_host[place] = pricer_.stops_host(id);
      } else if (model_.kinds[place] == StepKind::kLaunch) {
        // What is launch and wait in one is among the facts' launches, and a kernel here.
        while (facts_.launches[next_launch].node != id) {
          ++next_launch;
          EPWEAVE_CHECK(next_launch < facts_.launches.size());
        }
        const std::uint32_t group = group_position_of(facts_.launches[next_launch].group);
        model_.groups[place] = group;
        give_price(place, measured(id, model_.step_groups[group],
                                   pricer_.price_launch(id, model_.step_groups[group])));
      }
    }
  }

  // A measured row counts more than the model.
  Price measured(NodeId id, Price price) {
    if (measured_ == nullptr) return price;
    const auto operands = pricer_.describe_operands(id);
    if (!operands) return price;
    return replace(price, measured_->find_kernel(context_.text(node(id).target), *operands),
                   model_.cluster.compute_scale);
  }
  Price measured(NodeId id, const StepGroup& group, Price price) {
    if (measured_ == nullptr || group.ranks < 2) return price;
    const auto bytes = pricer_.operand_bytes(id);
    if (!bytes) return price;
    return replace(price, measured_->find_collective(context_.text(node(id).target), group.ranks, *bytes),
                   model_.cluster.comm_scale);
  }
  static Price replace(Price price, const std::optional<MeasuredCosts::Found>& found, double scale) {
    if (!found) return price;
    price.seconds = found->seconds * scale;
    price.source = found->is_exact ? PriceSource::kMeasured : PriceSource::kInterpolated;
    return price;
  }

  void give_price(Place place, Price price) {
    model_.seconds[place] = price.seconds;
    model_.bytes[place] = price.bytes;
    model_.sources[place] = price.source;
    if (price.source != PriceSource::kUnpriced) return;
    const bool is_first = model_.unpriced.empty();
    model_.unpriced.push_back({place, std::move(price.problem), is_first ? remedy_of(place, price) : ""});
  }

  // A row of measured costs, where one can be of this call.
  std::string remedy_of(Place place, const Price& price) {
    const NodeId id = model_.nodes[place];
    if (model_.kinds[place] != StepKind::kKernel) return price.remedy;
    const auto operands = pricer_.describe_operands(id);
    if (!operands) return price.remedy;
    return fmt::format(
        "write what it takes into \"ops\" of a file for --costs (costs= of a pass), with microseconds in "
        "the place of T: {{\"op\": \"{}\", \"operands\": \"{}\", \"samples\": 1, \"min\": T, \"p10\": T, "
        "\"p50\": T, \"p90\": T, \"p99\": T, \"max\": T}}",
        context_.text(node(id).target), *operands);
  }

  std::uint32_t group_position_of(Arg group) {
    const auto known = std::ranges::find(group_args_, group);
    if (known != group_args_.end()) return static_cast<std::uint32_t>(known - group_args_.begin());
    group_args_.push_back(group);
    model_.step_groups.push_back(pricer_.group_of(group));
    return static_cast<std::uint32_t>(group_args_.size() - 1);
  }

  void find_orders() {
    const auto size = static_cast<Place>(body_.order.size());
    model_.inputs.begins.assign(1, 0);
    model_.inputs.items.reserve(facts_.inputs.total());
    std::vector<std::pair<Place, Place>> pairs;
    pairs.reserve(facts_.inputs.total() + facts_.effects.order_edges().size());
    for (Place place = 0; place < size; ++place) {
      for (const NodeId input : facts_.inputs[body_.order[place]]) {
        model_.inputs.items.push_back(place_of(input));
        pairs.emplace_back(place, place_of(input));
      }
      model_.inputs.begins.push_back(static_cast<std::uint32_t>(model_.inputs.items.size()));
    }
    for (const OrderEdge& edge : facts_.effects.order_edges())
      pairs.emplace_back(place_of(edge.after), place_of(edge.before));
    model_.before = without_repetition(list_pairs(size, pairs), size);
    model_.after = invert(model_.before);
  }

  void find_host_reads() {
    for (const OrderEdge& edge : list_host_read_edges(facts_))
      model_.host_reads.emplace_back(place_of(edge.before), place_of(edge.after));
    std::ranges::sort(model_.host_reads);
    auto& reads = model_.host_reads;
    reads.erase(std::unique(reads.begin(), reads.end()), reads.end());
  }

  // ------------------------------------------------------------------------- storages

  using Storages = std::vector<std::uint32_t>;

  void find_storages() {
    model_.shown.begins.assign(1, 0);
    PlaceLists touched{.begins = {0}, .items = {}};
    for (Place place = 0; place < body_.order.size(); ++place) {
      find_roots(place);
      for (const Place input : model_.inputs[place]) append(touched, model_.shown[input]);
      append(touched, model_.shown[place]);
      if (model_.kinds[place] == StepKind::kWait && model_.cluster.hold_inputs != 0)
        for (const Place operand : model_.inputs[model_.launches[place]])
          append(touched, model_.shown[operand]);
      touched.begins.push_back(static_cast<std::uint32_t>(touched.items.size()));
    }
    model_.storages = without_repetition(touched, model_.storage_bytes.size());
    model_.storage_users.assign(model_.storage_bytes.size(), 0);
    for (const std::uint32_t storage : model_.storages.items) ++model_.storage_users[storage];
    for (Place place = 0; place < body_.order.size(); ++place) {
      if (node(body_.order[place]).kind != NodeKind::kOutput) continue;
      for (const std::uint32_t storage : model_.storages[place])
        if (model_.storage_lives[storage] == StorageLife::kResult)
          model_.storage_lives[storage] = StorageLife::kOutput;
    }
  }

  static void append(PlaceLists& lists, std::span<const Place> items) {
    lists.items.insert(lists.items.end(), items.begin(), items.end());
  }

  // The storages that the node's value shows.
  void find_roots(Place place) {
    const NodeId id = body_.order[place];
    if (const std::optional<Place> shown = shown_place(place)) {
      const Storages roots(model_.shown[*shown].begin(), model_.shown[*shown].end());
      append(model_.shown, roots);
    } else if (const auto element = computed_element(id)) {
      const std::span<const Place> of_tuple = model_.shown[place_of(element->tuple)];
      const Storages roots(of_tuple.begin(), of_tuple.end());
      append_element(roots, *element);
    } else if (node(id).kind != NodeKind::kOutput) {
      make_storages(place);
    }
    model_.shown.begins.push_back(static_cast<std::uint32_t>(model_.shown.items.size()));
  }

  std::optional<Place> shown_place(Place place) {
    const NodeId id = body_.order[place];
    if (may_copy(node(id)) && model_.kinds[place] == StepKind::kKernel) return std::nullopt;
    if (const NodeId shown = shown_operand(context_, body_, id)) return place_of(shown);
    if (model_.kinds[place] != StepKind::kView || computed_element(id)) return std::nullopt;
    // A view whose schema does not say of what.
    for (const Place input : model_.inputs[place])
      if (model_.shown.begins[input] != model_.shown.begins[input + 1]) return input;
    return std::nullopt;
  }

  std::optional<TupleElement> computed_element(NodeId id) const {
    return tuple_element(context_, body_, node(id));
  }

  // Of a computed tuple, whose tensors have a storage each.
  void append_element(const Storages& roots, const TupleElement& element) {
    const TypeId tuple = node(element.tuple).type;
    if (!tuple) return append(model_.shown, roots);
    std::size_t position = 0;
    const auto& elements = context_.types[tuple].elements;
    for (std::int64_t i = 0; i < element.index && i < static_cast<std::int64_t>(elements.size()); ++i)
      position += pricer_.tensors_of(elements[static_cast<std::size_t>(i)]).size();
    if (element.index >= static_cast<std::int64_t>(elements.size())) return append(model_.shown, roots);
    const std::size_t count = pricer_.tensors_of(elements[static_cast<std::size_t>(element.index)]).size();
    for (std::size_t i = position; i < std::min(position + count, roots.size()); ++i)
      model_.shown.items.push_back(roots[i]);
  }

  void make_storages(Place place) {
    const Node& made = node(body_.order[place]);
    const bool is_input = made.kind != NodeKind::kCall;
    for (const PricedTensor& tensor : pricer_.tensors_of(made.type)) {
      model_.shown.items.push_back(static_cast<std::uint32_t>(model_.storage_bytes.size()));
      const std::int64_t bytes = tensor.on_host ? 0 : tensor.stored;
      model_.storage_bytes.push_back(bytes);
      if (!tensor.on_host && !tensor.is_known) ++model_.unsized_storages;
      model_.storage_homes.push_back(place);
      model_.storage_lives.push_back(is_input ? StorageLife::kInput : StorageLife::kResult);
      if (is_input) model_.input_bytes += bytes;
    }
  }

  const Context& context_;
  const Body& body_;
  Extents extents_;
  Pricer pricer_;
  const MeasuredCosts* measured_;  // null: none
  OrderFacts facts_;
  IdVector<NodeId, std::uint32_t> places_;
  std::vector<Arg> group_args_;
  StepModel model_;
};

}  // namespace

std::string_view name_of(StepKind kind) {
  static constexpr std::array<std::string_view, 8> kNames = {"free",   "view",   "allocation", "host",
                                                             "kernel", "launch", "wait",       "item"};
  return kNames[static_cast<std::size_t>(kind)];
}

std::string_view name_of(PriceSource source) {
  static constexpr std::array<std::string_view, kPriceSources> kNames = {
      "none", "modelled", "assumed", "measured", "interpolated", "unpriced"};
  return kNames[static_cast<std::size_t>(source)];
}

PlaceLists list_pairs(std::size_t size, std::span<const std::pair<Place, Place>> pairs) {
  PlaceLists lists;
  lists.begins.assign(size + 1, 0);
  lists.items.resize(pairs.size());
  for (const auto& pair : pairs) ++lists.begins[pair.first + 1];
  for (std::size_t i = 1; i <= size; ++i) lists.begins[i] += lists.begins[i - 1];
  std::vector<std::uint32_t> next(lists.begins.begin(), lists.begins.end() - 1);
  for (const auto& [first, second] : pairs) lists.items[next[first]++] = second;
  return lists;
}

PlaceLists invert(const PlaceLists& lists) {
  PlaceLists inverse;
  inverse.begins.assign(lists.size() + 1, 0);
  inverse.items.resize(lists.items.size());
  for (const Place item : lists.items) ++inverse.begins[item + 1];
  for (std::size_t i = 1; i <= lists.size(); ++i) inverse.begins[i] += inverse.begins[i - 1];
  std::vector<std::uint32_t> next(inverse.begins.begin(), inverse.begins.end() - 1);
  for (Place place = 0; place < lists.size(); ++place)
    for (const Place item : lists[place]) inverse.items[next[item]++] = place;
  return inverse;
}

StepModel model_step(const Graph& graph, const Cluster& cluster, const MeasuredCosts* measured) {
  return ModelBuilder(graph, cluster, measured).run();
}

void require_prices(const Graph& graph, const StepModel& model) {
  if (model.unpriced.empty()) return;
  const auto& [place, reason, remedy] = model.unpriced.front();
  const std::size_t others = model.unpriced.size() - 1;
  throw PassError("simulate.unpriced",
                  "nothing says what the call costs: " + reason +
                      (others == 0   ? ""
                       : others == 1 ? "; 1 other has no price either"
                                     : "; " + std::to_string(others) + " others have no price either"),
                  site_of(graph, graph.step().nodes[model.nodes[place]]),
                  (remedy.empty() ? "" : remedy + "; or ") +
                      "take such calls to be free: --unpriced free (unpriced=free of a pass or preset)");
}

void require_measured(const StepModel& model, const MeasuredCosts& costs, const std::string& path) {
  for (const PriceSource source : model.sources)
    if (is_measured(source)) return;
  throw InputError(
      fmt::format("{}: none of its {} rows is for a kernel or collective of this graph: measure it with "
                  "`epweave-replay run G --costs FILE`",
                  path, costs.rows()));
}

}  // namespace epweave
