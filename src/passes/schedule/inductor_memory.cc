#include "passes/schedule/inductor_memory.h"

#include <algorithm>

namespace epweave {

InductorMemory::InductorMemory(const Graph& graph, const StepModel& model)
    : model_(model),
      left_(model.storage_bytes.size()),
      stays_(model.storage_bytes.size()),
      is_call_(model.size()) {
  for (Place i = 0; i < model.size(); ++i) {
    const Node& node = graph.step().nodes[model.nodes[i]];
    is_call_[i] = node.kind == NodeKind::kCall;
    for (const std::uint32_t storage : model.storages[i]) {
      if (model.storage_homes[storage] != i) {
        ++left_[storage];
        continue;
      }
      if (!is_call_[i]) live_ += model.storage_bytes[storage];
      stays_[storage] = graph.text(node.name).starts_with("primals");
    }
  }
  peak_ = live_;
}

void InductorMemory::place(Place place) {
  if (!is_call_[place]) return;
  for (const std::uint32_t storage : model_.storages[place])
    if (model_.storage_homes[storage] == place) live_ += model_.storage_bytes[storage];
  peak_ = std::max(peak_, live_);
  for (const std::uint32_t storage : model_.storages[place])
    if (model_.storage_homes[storage] != place && --left_[storage] == 0 && !stays_[storage])
      live_ -= model_.storage_bytes[storage];
}

}  // namespace epweave
