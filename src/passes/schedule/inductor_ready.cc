#include "passes/schedule/inductor_ready.h"

#include <algorithm>

namespace epweave {

void InductorReady::add(Place i) {
  if (is_off_path(i)) {
    off_path_.push({f_.is_needed_by_scatter[i] ? 0U : 1U, 0, i});
    if (f_.roles[i] == InductorRole::kLaunch)
      potential_bytes_[collective_of(i).key] += collective_of(i).bytes;
  } else {
    on_path_.push({f_.needed_by[i], local_priority(i), i});
  }
}

// Waits that are exposed come last, what leads to a collective alone first.
std::int32_t InductorReady::local_priority(Place i) const {
  if (f_.roles[i] == InductorRole::kWait) return exposed(i) != 0 ? 1 : 0;
  return leads_to_collective(i) ? -1 : 0;
}

bool InductorReady::leads_to_collective(Place i) const {
  while (f_.value_users[i].size() == 1) {
    const Place user = f_.value_users[i].front();
    if (f_.value_inputs[user] != 1) return false;
    if (f_.roles[user] == InductorRole::kLaunch && !is_scheduled_[user]) return true;
    if (!f_.is_cheap[user]) return false;
    i = user;
  }
  return false;
}

std::vector<Place> InductorReady::pop(bool is_memory_short) {
  if (off_path_.empty() || !may_take_off_path(off_path_.top().place, is_memory_short))
    return {on_path_.pop().place};
  std::vector<Place> batch{off_path_.pop().place};
  if (knobs_.max_off_bucket_bytes && f_.roles[batch[0]] == InductorRole::kLaunch) pop_of_same_key(batch);
  return batch;
}

bool InductorReady::may_take_off_path(Place i, bool is_memory_short) const {
  if (on_path_.empty() || is_scheduled_[i]) return true;
  if (f_.roles[i] == InductorRole::kWait) return exposed(i) == 0 || is_memory_short;
  if (knobs_.max_off_bucket_bytes && f_.roles[i] == InductorRole::kLaunch)
    return potential_bytes_[collective_of(i).key] >= *knobs_.max_off_bucket_bytes;
  return f_.is_needed_by_scatter[i] && std::int64_t{i} <= last_on_path_;
}

// Collectives that might share a bucket with the first of the batch are started behind it, up to
// the bytes of a bucket. (One that was started ahead counts, too: it takes the others along.)
void InductorReady::pop_of_same_key(std::vector<Place>& batch) {
  const std::uint32_t key = collective_of(batch[0]).key;
  std::int64_t bytes = collective_of(batch[0]).bytes;
  std::vector<std::size_t> taken;
  for (std::size_t i = 0; i < off_path_.items().size(); ++i) {
    const Place other = off_path_.items()[i].place;
    if (is_scheduled_[other] || f_.roles[other] != InductorRole::kLaunch) continue;
    const InductorCollective& collective = collective_of(other);
    if (collective.key != key || bytes + collective.bytes > *knobs_.max_off_bucket_bytes) continue;
    bytes += collective.bytes;
    batch.push_back(other);
    taken.push_back(i);
  }
  off_path_.remove(taken);
}

void InductorReady::note_taken(Place i) {
  if (!is_off_path(i)) {
    last_on_path_ = std::max(last_on_path_, std::int64_t{i});
  } else if (f_.roles[i] == InductorRole::kLaunch) {
    potential_bytes_[collective_of(i).key] -= collective_of(i).bytes;
  }
}

}  // namespace epweave
