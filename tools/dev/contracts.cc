#include "contracts.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <map>
#include <mutex>
#include <sstream>
#include <vector>

#include "analysis/collectives.h"
#include "analysis/effects.h"
#include "analysis/flex_attention.h"
#include "ir/facts.h"
#include "ir/text/text.h"
#include "ops/bind.h"
#include "ops/named_arg.h"
#include "ops/op.h"
#include "replay/run/executor.h"

namespace epweave {
namespace {

using replay::Rank;

// The lines of the text form that say what the caller reads.
std::vector<std::string> list_interface(const Graph& graph) {
  std::vector<std::string> lines;
  std::istringstream text(print_text(graph));
  for (std::string line; std::getline(text, line);) {
    const bool is_input = line.find(" = placeholder") != std::string::npos;
    const bool is_of_world = line.starts_with("info rank") || line.starts_with("info world_size") ||
                             line.starts_with("info global_meshes");
    if (line.starts_with("graph ")) break;  // a nested one
    if (is_input)
      line = line.substr(line.find(" = placeholder"), line.find(" from(") - line.find(" = placeholder"));
    // Types of inputs may have numbers for symbols.
    if (is_input && line.find(" role=") != std::string::npos) line = line.substr(line.find(" role="));
    if (is_input || is_of_world || line.starts_with("output ")) lines.push_back(line);
  }
  return lines;
}

// A statement of B that some numbers that A allows make false: those that it was traced with and
// multiples of these, and any small ones for numbers that A does not know.
std::string find_false_statement(const Graph& a, const Graph& b) {
  ExprPool& exprs = b.context->exprs;
  std::map<StringId, const Symbol*> of_a;
  for (const Symbol& symbol : a.symbols) of_a[symbol.name] = &symbol;
  for (std::int64_t times : {1, 2, 3}) {
    const auto number_of = [&](StringId name) -> std::optional<std::int64_t> {
      const auto known = of_a.find(name);
      if (known == of_a.end()) return times;
      return known->second->hint ? std::optional(*known->second->hint * times) : std::nullopt;
    };
    const auto is_false = [&](ExprId statement) {
      const auto value = exprs.evaluate(exprs.poly(statement), number_of);
      return value && value->num == 0;
    };
    const auto exceeds = [&](StringId name, const std::optional<ExprId>& bound, bool is_upper) {
      const auto limit = bound ? exprs.evaluate(exprs.poly(*bound), number_of) : std::nullopt;
      const auto number = number_of(name);
      return limit && limit->den == 1 && number && (is_upper ? *number > limit->num : *number < limit->num);
    };
    const auto allows = [&](const Symbol& symbol) {
      const bool is_within =
          !exceeds(symbol.name, symbol.lower, false) && !exceeds(symbol.name, symbol.upper, true);
      return is_within && (!symbol.asserts || std::ranges::none_of(*symbol.asserts, is_false));
    };
    if (!std::ranges::all_of(a.symbols, allows)) continue;
    // How large another number may be, its call says.
    const auto is_unsaid = [&](const Symbol& symbol) {
      if (of_a.contains(symbol.name)) return !allows(symbol);
      return symbol.asserts && std::ranges::any_of(*symbol.asserts, is_false);
    };
    for (const Symbol& symbol : b.symbols)
      if (is_unsaid(symbol)) return fmt::format("what it says of {} need not be so", b.text(symbol.name));
  }
  return "";
}

// Elements that the rank sends, as traced.
std::int64_t count_sent(const Graph& graph) {
  Facts facts(graph);
  const Context& context = *graph.context;
  std::int64_t all = 0;
  for (NodeId id : graph.step().order) {
    const Node& node = graph.step().nodes[id];
    if (!is_launch(node)) continue;
    context.args.for_each_node(arg_of(context, node, 0), [&](NodeId sent) {
      const TensorType* type = tensor_of(context, graph.step().nodes[sent].type);
      std::int64_t count = type != nullptr ? 1 : 0;
      for (std::size_t d = 0; type != nullptr && d < type->rank(); ++d)
        count *= facts.hint(type->sizes[d]).value_or(1);
      all += count;
    });
  }
  return all;
}

// Whether each FlexAttention call's mask is made for as many keys as the call takes, as traced.
bool masks_all_keys(const Graph& graph) {
  Facts facts(graph);
  const Context& context = *graph.context;
  return std::ranges::all_of(graph.step().order, [&](NodeId id) {
    const auto call = FlexCall::read(graph, graph.step().nodes[id]);
    if (!call) return true;
    const Arg keys = named_arg(context, graph.step().nodes[id], "key"), length = call->mask[kFlexKeyLength];
    const TensorType* type =
        keys.is_node() ? tensor_of(context, graph.step().nodes[keys.as_node()].type) : nullptr;
    const TypeId number = length.is_node() ? graph.step().nodes[length.as_node()].type : TypeId();
    const auto made_for = length.is_int() ? std::optional(length.as_int())
                          : number && context.types[number].kind == TypeKind::kScalar
                              ? facts.hint(context.types[number].expr)
                              : std::nullopt;
    return type != nullptr && made_for && made_for == facts.hint(type->sizes[2]);
  });
}

// A launch that sends from the memory that it fills, elsewhere than from the rank's own place: what
// arrives first may be sent on.
std::string find_overlapping_launch(const Graph& graph, const ContractSetup& setup) {
  struct Launch {
    NodeId node, sent, filled;
    std::string group;
  };
  const Context& context = *graph.context;
  std::vector<Launch> launches;
  for (NodeId id : graph.step().order) {
    const Node& node = graph.step().nodes[id];
    const auto at = is_launch(node) ? node.op->find_param("out") : std::nullopt;
    const Arg sent = at ? arg_of(context, node, 0) : Arg(), filled = at ? arg_of(context, node, *at) : Arg();
    const Arg group = at ? arg_of(context, node, group_position(*node.op)) : Arg();
    if (sent.is_node() && filled.is_node() && group.is(ArgKind::kText))
      launches.push_back({id, sent.as_node(), filled.as_node(), std::string(context.text(group.as_name()))});
  }
  if (launches.empty()) return "";
  const replay::World world = replay::derive_world(graph);
  std::mutex mutex;
  std::map<std::pair<Rank, std::uint32_t>, replay::Tensor> values;
  replay::RunOptions options;
  options.types = replay::RecordedTypes::kReport;
  options.observer = [&](Rank rank, NodeId node, const replay::Value& value, replay::RankDevice*) {
    const std::scoped_lock lock(mutex);
    if (value.is_tensor()) values.emplace(std::pair(rank, node.index()), value.tensor());
  };
  replay::InputData data = std::uint64_t{1};
  data.recipe = &setup.recipe;
  try {
    replay::run_ranks(graph, world, setup.kernels, replay::make_inputs(graph, world, setup.kernels, data),
                      options);
  } catch (const std::exception&) {
    return "";  // is not executable
  }
  for (const Launch& launch : launches)
    for (Rank rank = 0; rank < world.size; ++rank) {
      const auto sent = values.find({rank, launch.sent.index()}),
                 filled = values.find({rank, launch.filled.index()});
      if (sent == values.end() || filled == values.end()) continue;
      const replay::Tensor &from = sent->second, &to = filled->second;
      const std::vector<Rank>& members = world.groups.at(launch.group).of_rank[rank];
      const auto place = std::ranges::find(members, rank) - members.begin();
      if (from.storage == to.storage && from.offset - to.offset != place * from.numel())
        return fmt::format("on rank {} %{} sends what it fills", rank,
                           graph.text(graph.step().nodes[launch.node].name));
    }
  return "";
}

// What may write the memory that a launch sends before it is waited for: the replay copies it
// first, a device need not.
std::string find_written_in_flight(const Graph& graph) {
  const Body& body = graph.step();
  const Effects effects(graph, body);
  std::map<NodeId, NodeId> under_way;  // by launch: the memory that it sends
  for (NodeId id : body.order) {
    const Node& node = body.nodes[id];
    if (is_wait(node)) {
      under_way.erase(find_waited_launch(*graph.context, body, id));
      continue;
    }
    for (const StorageAccess& access : effects.accesses_of(id))
      for (const auto& [launch, sent] : under_way)
        if (access.writes && access.storage == sent)
          return fmt::format("%{} may write what %{} sends", graph.text(node.name),
                             graph.text(body.nodes[launch].name));
    const Arg sent = is_launch(node) ? arg_of(*graph.context, node, 0) : Arg();
    if (sent.is_node()) under_way[id] = effects.storage_of(sent.as_node());
  }
  return "";
}

// What may look at memory that a wait has freed.
std::string find_use_of_freed(const Graph& graph) {
  const Body& body = graph.step();
  const Effects effects(graph, body);
  std::map<NodeId, NodeId> freed;  // by memory: the wait
  for (NodeId id : body.order) {
    const Node& node = body.nodes[id];
    for (const StorageAccess& access : effects.accesses_of(id))
      if (const auto wait = freed.find(access.storage); wait != freed.end() && !is_wait(node))
        return fmt::format("%{} may look at what %{} has freed", graph.text(node.name),
                           graph.text(body.nodes[wait->second].name));
    if (const NodeId value = find_freed(*graph.context, node)) freed[effects.storage_of(value)] = id;
  }
  return "";
}

}  // namespace

std::string find_broken_contract(const Graph& a, const Graph& b, const ContractSetup& setup) {
  if (list_interface(a) != list_interface(b)) return "the interface is another";
  if (std::string fault = find_false_statement(a, b); !fault.empty()) return fault;
  if (masks_all_keys(a) && !masks_all_keys(b)) return "a mask is made for another number of keys";
  if (count_sent(b) > count_sent(a)) return "it sends more";
  if (find_written_in_flight(a).empty())
    if (std::string fault = find_written_in_flight(b); !fault.empty()) return fault;
  if (find_use_of_freed(a).empty())
    if (std::string fault = find_use_of_freed(b); !fault.empty()) return fault;
  return find_overlapping_launch(b, setup);
}

}  // namespace epweave
