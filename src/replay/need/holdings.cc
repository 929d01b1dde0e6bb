#include "replay/need/holdings.h"

#include <utility>

#include "ops/bind.h"

namespace epweave::replay {

Holdings::Holdings(const Effects& effects, const ValueSizes& sizes)
    : effects_(effects),
      sizes_(sizes),
      held_by_(effects.body().nodes.size()),
      copies_(effects.body().nodes.size(), 0) {}

void Holdings::make(NodeId id, std::uint64_t bytes) {
  hold(id, static_cast<std::uint32_t>(storages_.size()));
  storages_.push_back({id, bytes, sizes_.block_of(bytes), 1});
  made_ += bytes;
  if (sizes_.is_bounded(id)) bounded_made_ += bytes;
  bytes_ += bytes;
  blocks_ += storages_.back().block;
}

void Holdings::make_all(NodeId id) {
  for (const ResultType& result : sizes_.results_of(id))
    if (result.is_tensor) make(id, sizes_.bytes_of(result, id));
}

bool Holdings::share_operand(NodeId id) {
  const Context& context = effects_.context();
  const Node& node = effects_.body().nodes[id];
  if (const auto element = tuple_element(context, effects_.body(), node)) {
    const Storages& of_tuple = held_by_[element->tuple.index()];
    const auto at = static_cast<std::size_t>(element->index);
    if (at < of_tuple.size()) return share(id, of_tuple[at]), true;
  }
  NodeId shown;
  for_each_input(context, node, [&](NodeId input) {
    if (!shown && effects_.storage_of(input) == effects_.storage_of(id)) shown = input;
  });
  if (!shown) return false;
  for (const std::uint32_t storage : held_by_[shown.index()]) share(id, storage);
  return true;
}

void Holdings::share(NodeId id, std::uint32_t storage) {
  hold(id, storage);
  if (storage != kNoStorage) ++storages_[storage].users;
}

void Holdings::grow(NodeId maker, NodeId writer, std::uint64_t bytes) {
  const std::uint64_t block = sizes_.block_of(bytes);
  made_ += bytes;
  bounded_made_ += bytes;
  bytes_ += bytes;
  blocks_ += block;
  const auto beside = [&](NodeId holder) {
    for (const std::uint32_t storage : held_by_[holder.index()]) {
      if (storage == kNoStorage || storages_[storage].maker != maker) continue;
      storages_[storage].bytes += bytes;
      storages_[storage].block += block;
      return true;
    }
    return false;
  };
  bool is_found = beside(writer);
  for_each_input(effects_.context(), effects_.body().nodes[writer],
                 [&](NodeId input) { is_found = is_found || beside(input); });
}

void Holdings::free(NodeId id) {
  for (const std::uint32_t storage : held_by_[id.index()]) release(storage);
  held_by_[id.index()].clear();
}

void Holdings::release(std::uint32_t storage) {
  if (storage == kNoStorage || --storages_[storage].users != 0) return;
  bytes_ -= storages_[storage].bytes;
  blocks_ -= storages_[storage].block;
}

void Holdings::copy(NodeId launch, std::uint64_t bytes) {
  copies_[launch.index()] += bytes;
  copied_ += bytes;
  bytes_ += bytes;
  blocks_ += sizes_.block_of(bytes);
}

void Holdings::drop_copy(NodeId launch) {
  const std::uint64_t bytes = std::exchange(copies_[launch.index()], 0);
  if (bytes == 0) return;
  copied_ -= bytes;
  bytes_ -= bytes;
  blocks_ -= sizes_.block_of(bytes);
}

std::vector<LiveValue> Holdings::list_live() const {
  std::vector<LiveValue> live;
  for (const Storage& storage : storages_)
    if (storage.users != 0) live.push_back({storage.maker, storage.bytes});
  return live;
}

}  // namespace epweave::replay
