#include "analysis/devices_on_rank.h"

#include <string>

namespace epweave {

std::optional<std::map<StringId, StringId>> devices_on_rank(const Graph& graph, Rank rank) {
  const Context& context = *graph.context;
  const Arg* all = find_entry(context, graph.info, kRankDevicesKey);
  const Arg* own = all != nullptr ? find_entry(context, *all, std::to_string(rank)) : nullptr;
  if (own == nullptr || !own->is(ArgKind::kDict)) return std::nullopt;
  std::map<StringId, StringId> names;
  const auto entries = context.args.children(*own);
  for (std::size_t i = 0; i + 1 < entries.size(); i += 2)
    if (entries[i].is(ArgKind::kText) && entries[i + 1].is(ArgKind::kText))
      names.emplace(entries[i].as_name(), entries[i + 1].as_name());
  return names;
}

}  // namespace epweave
