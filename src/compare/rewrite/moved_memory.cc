#include "compare/rewrite/moved_memory.h"

#include <algorithm>
#include <utility>

#include "compare/rewrite/conditions.h"

namespace epweave {
namespace {

// Whether a range meets none that is there, and adds it.
bool add_apart(std::map<std::int64_t, std::int64_t>& ranges, const Run& run) {
  const auto next = ranges.lower_bound(run.first);
  if (next != ranges.end() && next->first < run.first + run.count) return false;
  if (next != ranges.begin() && std::prev(next)->second > run.first) return false;
  ranges.emplace_hint(next, run.first, run.first + run.count);
  return true;
}

}  // namespace

std::size_t MovedMemory::add(MovedStorage storage) {
  storages_in_[storage.memory].push_back(storages_.size());
  storages_.push_back(std::move(storage));
  return storages_.size() - 1;
}

std::optional<Sequence> MovedMemory::elements_of(const MovedView& view) const {
  const MovedStorage& storage = storages_[view.storage];
  if (!holds(Condition::kReadsArrived, !storage.sent) || !lies_in(view)) return {};
  const Sequence& content = storage.content.elements;
  const auto runs = runs_of(view.sizes, view.strides, view.offset, content.size());
  if (!runs) return {};
  Sequence elements;
  for (const Run& run : *runs) elements.append(content, run.first, run.count);
  return elements.is_followed() ? std::optional(std::move(elements)) : std::nullopt;
}

bool MovedMemory::put(const MovedView& view, const Sequence& what) {
  Sequence& old = storages_[view.storage].content.elements;
  const auto runs = runs_of(view.sizes, view.strides, view.offset, old.size());
  if (!runs) return false;
  Sequence content;
  std::int64_t done = 0, at = 0;
  for (const Run& run : *runs) {
    if (run.first < at) return false;
    content.append(old, at, run.first - at);
    content.append(what, done, run.count);
    done += run.count;
    at = run.first + run.count;
  }
  content.append(old, at, old.size() - at);
  if (!content.is_followed() || !terms_.reserve(std::ssize(content.pieces()) - std::ssize(old.pieces())))
    return false;
  old = std::move(content);
  return true;
}

bool MovedMemory::write(const MovedView& view, const MovedContent& what, NodeId writer) {
  MovedStorage& storage = storages_[view.storage];
  const std::int64_t count = *count_of(view.sizes);
  const bool is_all = count == storage.content.elements.size();
  if (!lies_in(view) && !(is_all && !view.is_own)) return false;
  if (count > what.elements.size() || !put(view, what.elements)) return false;
  if (is_all) storage.content.own_start.reset();
  for (std::size_t other : storages_in_[storage.memory])
    if (other != view.storage) forget(other, writer);
  disturb_launches(storage.memory, writer);
  storage.content.packed = std::max(storage.content.packed, what.packed);
  return true;
}

void MovedMemory::begin_own_part(std::size_t storage, ExprId start, NodeId place) {
  storages_[storage].content.own_start = start;
  storages_[storage].content.place = place;
}

void MovedMemory::forget(std::size_t storage, NodeId writer) {
  Sequence& content = storages_[storage].content.elements;
  Sequence unknown;
  unknown.append(
      {.term = terms_.intern({.kind = TermKind::kUnknown, .what = writer.index()}), .count = content.size()});
  content = std::move(unknown);
}

void MovedMemory::forget(const MovedView& view, NodeId writer) {
  Sequence unknown;
  unknown.append({.term = terms_.intern({.kind = TermKind::kUnknown, .what = writer.index()}),
                  .count = *count_of(view.sizes)});
  if (!lies_in(view) || !put(view, unknown)) forget(view.storage, writer);
}

void MovedMemory::begin_launch(std::size_t storage, NodeId sent) {
  storages_[storage].sent = sent;
  under_way_.push_back(storage);
}

void MovedMemory::end_launch(std::size_t storage) {
  storages_[storage].sent = {};
  std::erase(under_way_, storage);
}

void MovedMemory::disturb_launches(NodeId memory, NodeId writer) {
  for (std::size_t storage : under_way_)
    if (!holds(Condition::kLaunchesUndisturbed,
               storages_[storage].sent != memory && storages_[storage].memory != memory))
      forget(storage, writer);
}

bool MovedMemory::show_apart(const MovedView& view) {
  MovedStorage& storage = storages_[view.storage];
  for (std::size_t other : storages_in_[storage.memory])
    if (may_share(view.storage, other) && !storages_[other].shown.empty()) return false;
  const auto runs = runs_of(view.sizes, view.strides, view.offset, storage.content.elements.size());
  return std::ranges::all_of(*runs, [&](const Run& run) { return add_apart(storage.shown, run); });
}

bool MovedMemory::is_shown(NodeId memory) {
  return std::ranges::any_of(storages_in_[memory],
                             [&](std::size_t storage) { return !storages_[storage].shown.empty(); });
}

// Whether the view's offset counts from where the storage's elements begin now.
bool MovedMemory::lies_in(const MovedView& view) const {
  return storages_[view.storage].content.own_start.has_value() == view.is_own;
}

// Of two storages of one memory. Results of one launch are apart.
bool MovedMemory::may_share(std::size_t storage, std::size_t other) const {
  const NodeId list = storages_[storage].list;
  return other != storage && (!list || storages_[other].list != list);
}

}  // namespace epweave
