#include "cost/live_bytes.h"

#include <algorithm>

namespace epweave {

LiveBytes::LiveBytes(const StepModel& model) : model_(model) {
  clear();
}

void LiveBytes::clear() {
  left_ = model_.storage_users;
  live_ = peak_ = model_.input_bytes;
  peak_at_ = kNoPlace;
}

LiveBytes::Change LiveBytes::change(Place place) const {
  Change change;
  for (const std::uint32_t storage : model_.storages[place]) {
    if (model_.storage_lives[storage] == StorageLife::kInput) continue;
    const std::int64_t bytes = model_.storage_bytes[storage];
    if (model_.storage_homes[storage] == place) change.made += bytes;
    if (left_[storage] == 1 && model_.storage_lives[storage] == StorageLife::kResult) change.freed += bytes;
  }
  return change;
}

void LiveBytes::place(Place place) {
  const Change now = change(place);
  for (const std::uint32_t storage : model_.storages[place]) --left_[storage];
  live_ += now.made;
  if (peak_at_ == kNoPlace || live_ > peak_) {
    peak_ = live_;
    peak_at_ = place;
  }
  live_ -= now.freed;
}

PeakMemory find_peak(const StepModel& model, std::span<const Place> order) {
  LiveBytes memory(model);
  for (const Place place : order) memory.place(place);
  return {memory.peak(), memory.peak_at()};
}

std::int64_t bound_peak(const StepModel& model) {
  std::int64_t most = 0;
  for (Place place = 0; place < model.size(); ++place) {
    std::int64_t bytes = 0;
    for (const std::uint32_t storage : model.storages[place])
      if (model.storage_lives[storage] != StorageLife::kInput) bytes += model.storage_bytes[storage];
    most = std::max(most, bytes);
  }
  return model.input_bytes + most;
}

}  // namespace epweave
