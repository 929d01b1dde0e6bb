#include "replay/run/placed_inputs.h"

#include <algorithm>

#include "replay/values/block_cache.h"

namespace epweave::replay {

Value on_host(RankDevice* device, const Value& value) {
  if (device == nullptr) return value;
  return replace_tensors(value, [&](const Tensor& tensor) { return device->download(tensor); });
}

const Value& PlacedInputs::place_next(const RankInputs& inputs) {
  EPWEAVE_CHECK(placed_.size() < inputs.size());
  return placed_.emplace_back(place(inputs, placed_.size()));
}

Value PlacedInputs::place(const RankInputs& inputs, std::size_t i) {
  if (!inputs[i].is_tensor()) return inputs[i];
  if (kept_ == nullptr || i >= program_.written.size() || program_.written[i])
    return setup_.memory.place(inputs[i].tensor());
  kept_->resize(inputs.size());
  Value& kept = (*kept_)[i];
  if (kept.is_none()) kept = setup_.memory.place(inputs[i].tensor());
  return kept;
}

void PlacedInputs::bring_back(const RankInputs& inputs) const {
  for (std::size_t i = 0; i < std::min(placed_.size(), program_.written.size()); ++i) {
    if (!program_.written[i]) continue;
    const Value value = on_host(setup_.device, placed_[i]);
    if (!value.is_tensor()) continue;
    Buffer<std::byte> bytes(static_cast<std::size_t>(value.tensor().numel()) *
                            value.tensor().element_bytes());
    gather_elements(value.tensor(), bytes.data());
    scatter_elements(bytes.data(), inputs[i].tensor());
  }
}

}  // namespace epweave::replay
