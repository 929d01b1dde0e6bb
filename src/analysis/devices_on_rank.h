// What each rank calls the devices that a graph for all ranks calls as the file's rank does, as far
// as the traces said that it was made of.
//
//   info rank_devices = {"0": {"cuda:0": "cuda:0"}, "1": {"cuda:0": "cuda:1"}}
#pragma once

#include <map>
#include <optional>
#include <string_view>

#include "analysis/world.h"
#include "ir/graph.h"

namespace epweave {

inline constexpr std::string_view kRankDevicesKey = "rank_devices";

using DeviceNames = std::map<StringId, StringId>;  // by the file's rank's names

// "cuda" of "cuda:1".
std::string_view device_kind(std::string_view device);

// None: nothing is recorded of that rank, or an entry without a name.
std::optional<DeviceNames> devices_on_rank(const Graph& graph, Rank rank);

// Of all ranks of which they are recorded.
std::map<Rank, DeviceNames> read_rank_devices(const Graph& graph);

}  // namespace epweave
