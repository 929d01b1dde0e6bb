#include "analysis/devices_on_rank.h"

#include <string>

#include "base/parse_number.h"

namespace epweave {
namespace {

DeviceNames read_names(const Context& context, Arg dict) {
  DeviceNames names;
  const auto entries = context.args.children(dict);
  for (std::size_t i = 0; i + 1 < entries.size(); i += 2)
    if (entries[i].is(ArgKind::kText) && entries[i + 1].is(ArgKind::kText))
      names.emplace(entries[i].as_name(), entries[i + 1].as_name());
  return names;
}

}  // namespace

std::string_view device_kind(std::string_view device) {
  return device.substr(0, device.find(':'));
}

std::optional<DeviceNames> devices_on_rank(const Graph& graph, Rank rank) {
  const Context& context = *graph.context;
  const Arg* all = find_entry(context, graph.info, kRankDevicesKey);
  const Arg* own = all != nullptr ? find_entry(context, *all, std::to_string(rank)) : nullptr;
  if (own == nullptr || !own->is(ArgKind::kDict)) return std::nullopt;
  DeviceNames names = read_names(context, *own);
  if (names.empty()) return std::nullopt;
  return names;
}

std::map<Rank, DeviceNames> read_rank_devices(const Graph& graph) {
  const Context& context = *graph.context;
  std::map<Rank, DeviceNames> ranks;
  const Arg* all = find_entry(context, graph.info, kRankDevicesKey);
  if (all == nullptr || !all->is(ArgKind::kDict)) return ranks;
  const auto entries = context.args.children(*all);
  for (std::size_t i = 0; i + 1 < entries.size(); i += 2) {
    if (!entries[i].is(ArgKind::kText) || !entries[i + 1].is(ArgKind::kDict)) continue;
    if (const auto rank = parse_number<Rank>(context.text(entries[i].as_name())))
      ranks.emplace(*rank, read_names(context, entries[i + 1]));
  }
  return ranks;
}

}  // namespace epweave
