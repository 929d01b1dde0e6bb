#include "resize/resize.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "analysis/layers.h"
#include "analysis/verify.h"
#include "base/nearest_name.h"
#include "passes/pass.h"
#include "resize/layer_count.h"
#include "resize/remedies.h"
#include "resize/token_size.h"

namespace epweave {
namespace {

constexpr std::string_view kLayers = "layers";

[[noreturn]] void fail_name(const std::string& name, const std::vector<NamedSize>& sizes) {
  std::vector<std::string_view> names;
  for (const NamedSize& size : sizes) names.push_back(size.name);
  const std::string_view near = nearest_name(name, names);
  throw PassError("resize.name",
                  fmt::format("the graph has no size '{}'{}", name,
                              near.empty() ? "" : fmt::format("; did you mean '{}'?", near)),
                  {},
                  names.empty() ? "the graph has neither an input of tokens nor modules layers.N"
                                : fmt::format("set one of {}", fmt::join(names, ", ")));
}

void require_size(const NamedSize& size, std::int64_t value) {
  if (size.name == kLayers && value > size.value)
    throw PassError("resize.size",
                    fmt::format("the graph has {} layers and cannot have {}", size.value, value), {},
                    "trace the model with more layers: resize keeps the first ones");
  constexpr std::int64_t kMost = std::int64_t{1} << 26;  // its square, times a width, is a number of 64 bits
  if (value > kMost)
    throw PassError("resize.size", fmt::format("{} = {} is more than {}", size.name, value, kMost), {},
                    "set a smaller size");
  if (value < 1)
    throw PassError("resize.size", fmt::format("{} = {} is not a size", size.name, value), {},
                    "set 1 or more");
}

// The nodes of the first graph are what records of nodes name.
void begin_records(Graph& graph) {
  if (!graph.origins.empty()) return;
  const Body& step = graph.step();
  for (NodeId id : step.order) graph.origins.push_back({step.nodes[id].name, step.nodes[id].target});
}

void record_kept(Graph& graph) {
  const StringId pass = graph.intern("resize");
  for (NodeId id : graph.step().order) {
    Node& node = graph.step().nodes[id];
    if (node.provenance.empty())
      append_provenance(*graph.context, node,
                        {.pass = pass, .role = ProvenanceRole::kKept, .origins = NameList(node.name)});
  }
}

// What the graph keeps at its own sizes, it must keep at the others.
void require_sound(const Graph& before, const Graph& after) {
  const std::vector<Violation> violations = verify_graph(after);
  if (violations.empty()) return;
  std::set<std::pair<std::string, std::string>> known;
  for (const Violation& violation : verify_graph(before))
    known.emplace(violation.invariant, violation.site.node);
  for (const Violation& violation : violations)
    if (!known.contains({violation.invariant, violation.site.node}))
      throw PassError(
          "resize.type",
          fmt::format("at the new sizes the graph breaks '{}': {}", violation.invariant, violation.message),
          violation.site, "a number of this call does not follow the size: " + find_other_way(before));
}

}  // namespace

std::vector<NamedSize> list_sizes(const Graph& graph) {
  std::vector<NamedSize> sizes;
  for (const TokenDim& dim : find_token_dims(graph))
    sizes.push_back({.name = dim.name,
                     .value = dim.value,
                     .form = dim.symbol ? std::string(graph.context->exprs.text(dim.extent)) : "number",
                     .appears = {fmt::format("{}:{}", dim.input, dim.dim)},
                     .divisor = dim.symbol ? dim.per_symbol * dim.divisor : 1});
  if (const std::int64_t layers = count_layers(graph); layers > 0)
    sizes.push_back({.name = std::string(kLayers),
                     .value = layers,
                     .form = "modules",
                     .appears = {fmt::format("{}.{{0..{}}}", find_block_list(graph), layers - 1)}});
  return sizes;
}

Resized resize(const Graph& graph, const std::vector<SizeSetting>& settings) {
  const std::vector<NamedSize> sizes = list_sizes(graph);
  Resized result{.graph = graph, .notes = {}};
  begin_records(result.graph);
  for (const SizeSetting& setting : settings) {
    const auto size = std::ranges::find(sizes, setting.name, &NamedSize::name);
    if (size == sizes.end()) fail_name(setting.name, sizes);
    require_size(*size, setting.value);
  }
  // Fewer layers first: less is left to change.
  for (const bool of_layers : {true, false})
    for (const SizeSetting& setting : settings) {
      if ((setting.name == kLayers) != of_layers) continue;
      const std::int64_t now = std::ranges::find(sizes, setting.name, &NamedSize::name)->value;
      if (setting.value == now) continue;
      if (of_layers) {
        result.graph = keep_layers(result.graph, setting.value, result.notes);
        continue;
      }
      for (const TokenDim& dim : find_token_dims(result.graph))
        if (dim.name == setting.name) {
          result.graph = set_tokens(result.graph, dim, setting.value, result.notes);
          break;
        }
    }
  record_kept(result.graph);
  require_sound(graph, result.graph);
  return result;
}

}  // namespace epweave
