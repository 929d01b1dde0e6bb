#include "ops/mapping_memo.h"

namespace epweave {

const CallMapping& MappingMemo::map(const MappedCall& call) {
  push_key(call);
  const auto [number, is_new] = keys_.intern();
  if (is_new) mappings_.push_back(map_dimensions(call));
  return mappings_[number];
}

// All of the call; lists with their lengths.
void MappingMemo::push_key(const MappedCall& call) {
  const auto push_sizes = [&](const std::vector<MappedCall::Sizes>& tensors) {
    keys_.push(tensors.size());
    for (const MappedCall::Sizes& sizes : tensors) {
      keys_.push(sizes.size());
      for (const std::int64_t size : sizes) keys_.push(static_cast<std::uint64_t>(size));
    }
  };
  keys_.push(call.op->index);
  keys_.push(call.arguments.size());
  for (const MappedCall::Argument& argument : call.arguments) {
    keys_.push(static_cast<std::uint64_t>(argument.kind));
    keys_.push(static_cast<std::uint64_t>(argument.number));
    keys_.push(std::uint64_t{argument.begin} << 32 | argument.end);
  }
  push_sizes(call.tensors);
  for (std::size_t i = 0; i < call.tensors.size(); ++i)
    keys_.push(std::uint64_t{call.places[i]} << 1 | (call.is_mask[i] ? 1 : 0));
  keys_.push(call.numbers.size());
  for (const std::int64_t number : call.numbers) keys_.push(static_cast<std::uint64_t>(number));
  push_sizes(call.results);
}

}  // namespace epweave
