#include "passes/schedule/inductor_memory.h"

#include <algorithm>
#include <span>
#include <utility>

#include "ops/bind.h"
#include "passes/schedule/inductor_extents.h"

namespace epweave {
namespace {

// The storages by the reference's count, made from those of the model (StepModel::shown).
class CountedStorages {
 public:
  CountedStorages(const Graph& graph, const StepModel& model)
      : context_(*graph.context), body_(graph.step()), m_(model), guessed_(graph, kExtentUnknown) {
    shown_.begins.assign(1, 0);
    taken.begins.assign(1, 0);
    made.begins.assign(1, 0);
    std::vector<Place> taken_by;  // by storage: the last place that takes it
    for (Place i = 0; i < m_.size(); ++i) {
      for (const Place input : m_.inputs[i])
        for (const std::uint32_t storage : shown_[input]) {
          taken_by.resize(homes.size(), kNoPlace);
          if (std::exchange(taken_by[storage], i) != i) taken.items.push_back(storage);
        }
      taken.begins.push_back(static_cast<std::uint32_t>(taken.items.size()));
      show(i);
      shown_.begins.push_back(static_cast<std::uint32_t>(shown_.items.size()));
      made.begins.push_back(static_cast<std::uint32_t>(made.items.size()));
    }
  }

  PlaceLists taken, made;
  std::vector<std::int64_t> bytes;
  std::vector<Place> homes;

 private:
  void show(Place i) {
    const bool is_new = m_.kinds[i] == StepKind::kWait || writes_buffer(i);
    const std::size_t first = homes.size();
    for (const std::uint32_t storage : m_.shown[i]) {
      const std::uint32_t counted =
          is_new || m_.storage_homes[storage] == i ? kNoPlace : counted_of(i, storage);
      shown_.items.push_back(counted == kNoPlace ? make(i) : counted);
    }
    if (homes.size() > first) find_bytes(body_.nodes[m_.nodes[i]].type, first);
  }

  // Of the storages from `first` on, of a node of this type: one for each of its tensors.
  void find_bytes(TypeId id, std::size_t first) {
    std::size_t next = first;
    for_each_tensor(id, [&](const TensorType& tensor) {
      const bool is_on_host = context_.text(tensor.device).starts_with("cpu");
      if (next < homes.size()) bytes[next++] = is_on_host ? 0 : guessed_.bytes(tensor);
    });
  }
  template <class Visit>
  void for_each_tensor(TypeId id, const Visit& visit) const {
    if (!id) return;
    const Type& type = context_.types[id];
    if (type.kind == TypeKind::kTensor) visit(type.tensor);
    for (const TypeId element : type.elements) for_each_tensor(element, visit);
  }

  // A launch into a buffer that it is given for its result.
  bool writes_buffer(Place i) const {
    return m_.kinds[i] == StepKind::kLaunch &&
           find_kwarg(context_, body_.nodes[m_.nodes[i]], "out") != nullptr;
  }

  // What counts for a storage of the model that the node shows: as the first operand that shows it
  // has it.
  std::uint32_t counted_of(Place i, std::uint32_t storage) const {
    for (const Place input : m_.inputs[i]) {
      const std::span<const Place> of_model = m_.shown[input];
      for (std::size_t k = 0; k < of_model.size(); ++k)
        if (of_model[k] == storage) return shown_[input][k];
    }
    return kNoPlace;
  }

  std::uint32_t make(Place i) {
    const auto storage = static_cast<std::uint32_t>(homes.size());
    homes.push_back(i);
    bytes.push_back(0);
    made.items.push_back(storage);
    return storage;
  }

  const Context& context_;
  const Body& body_;
  const StepModel& m_;
  InductorExtents guessed_;
  PlaceLists shown_;
};

}  // namespace

InductorMemory::InductorMemory(const Graph& graph, const StepModel& model) : is_call_(model.size()) {
  CountedStorages counted(graph, model);
  left_.resize(counted.homes.size());
  stays_.resize(counted.homes.size());
  for (const std::uint32_t storage : counted.taken.items) ++left_[storage];
  for (Place i = 0; i < model.size(); ++i) {
    const Node& node = graph.step().nodes[model.nodes[i]];
    is_call_[i] = node.kind == NodeKind::kCall;
    for (const std::uint32_t storage : counted.made[i]) {
      if (!is_call_[i]) live_ += counted.bytes[storage];
      stays_[storage] = graph.text(node.name).starts_with("primals");
    }
  }
  peak_ = live_;
  taken_ = std::move(counted.taken);
  made_ = std::move(counted.made);
  bytes_ = std::move(counted.bytes);
}

void InductorMemory::place(Place place) {
  if (!is_call_[place]) return;
  for (const std::uint32_t storage : made_[place]) live_ += bytes_[storage];
  peak_ = std::max(peak_, live_);
  for (const std::uint32_t storage : taken_[place])
    if (--left_[storage] == 0 && !stays_[storage]) live_ -= bytes_[storage];
}

}  // namespace epweave
