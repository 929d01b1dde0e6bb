#include "cost/memory.h"

#include <algorithm>

#include "analysis/collectives.h"
#include "analysis/effects.h"
#include "ir/types/layout.h"
#include "ops/bind.h"
#include "ops/may_copy.h"
#include "ops/op.h"

namespace epweave {
namespace {

constexpr std::int64_t kBlock = 512;  // PyTorch's allocator rounds up to it

struct Storage {
  NodeId node;  // its first value
  std::size_t device = 0;
  std::int64_t bytes = 0;
  std::uint32_t begin = 0, end = 0;  // places in the order, both included
  bool is_input = false;
};

class Liveness {
 public:
  Liveness(const Graph& graph, Extents& extents)
      : graph_(graph),
        context_(*graph.context),
        body_(graph.step()),
        extents_(extents),
        facts_(graph),
        effects_(graph, graph.step()),
        root_(body_.nodes.size()) {}

  MemoryEstimate run() {
    for (std::uint32_t place = 0; place < body_.order.size(); ++place) {
      const NodeId id = body_.order[place];
      find_root(id);
      begin(id, place);
      use_inputs(id, place);
    }
    for (DeviceMemory& device : estimate_.devices)
      find_peak(device, static_cast<std::size_t>(&device - estimate_.devices.data()));
    return std::move(estimate_);
  }

 private:
  const Node& node(NodeId id) const { return body_.nodes[id]; }

  // The storage of the input that the node shares storage with, or its own.
  void find_root(NodeId id) {
    const NodeId shared = effects_.storage_of(id);
    root_[id] = id;
    if (shared == id || is_copying_reshape(id)) return;
    bool is_found = false;
    for_each_input(context_, node(id), [&](NodeId input) {
      if (is_found || effects_.storage_of(input) != shared) return;
      root_[id] = root_[input];
      is_found = true;
    });
    if (!is_found && root_[shared]) root_[id] = root_[shared];
  }
  bool is_copying_reshape(NodeId id) {
    const OpInfo* op = node(id).op;
    const bool is_asked = op != nullptr && is_reshape(*op) && may_copy(*op);
    const Arg self = is_asked ? arg_of(context_, node(id), 0) : Arg::none();
    if (!self.is_node()) return false;
    const TensorType* before = tensor_of(context_, node(self.as_node()).type);
    const TensorType* after = tensor_of(context_, node(id).type);
    return before != nullptr && after != nullptr && before->strides.size() == before->sizes.size() &&
           !view_strides(facts_, layout_of(*before), after->sizes);
  }

  // Storages that begin with the node: its tensor, or those of the tuple that it computes.
  void begin(NodeId id, std::uint32_t place) {
    if (root_[id] != id) return;
    const Node& made = node(id);
    if (has_family(made, OpFamily::kElement)) return begin_element(id, place);
    if (!made.type) return;
    const Type& type = context_.types[made.type];
    if (type.kind == TypeKind::kTensor) {
      add(id, type.tensor, place);
    } else if (made.kind == NodeKind::kCall) {
      for (TypeId element : type.elements)
        if (const TensorType* tensor = tensor_of(context_, element)) add_element(id, *tensor, place);
    }
  }

  // An element of a tuple that was computed before; it takes over a storage that began there.
  void begin_element(NodeId id, std::uint32_t place) {
    const auto element = tuple_element(context_, body_, node(id));
    const TensorType* tensor = tensor_of(context_, node(id).type);
    if (tensor == nullptr || !element) return;
    const auto& elements = elements_[element->tuple];
    if (elements.empty()) return add(id, *tensor, place);
    std::size_t position = 0;
    const Type& type = context_.types[node(element->tuple).type];
    for (std::int64_t i = 0; i < element->index && i < static_cast<std::int64_t>(type.elements.size()); ++i)
      position += tensor_of(context_, type.elements[static_cast<std::size_t>(i)]) != nullptr;
    if (position >= elements.size()) return add(id, *tensor, place);
    storage_of_.at(id) = elements[position];
    storages_[elements[position]].node = id;
    storages_[elements[position]].end = place;
  }

  void add_element(NodeId tuple, const TensorType& tensor, std::uint32_t place) {
    elements_.at(tuple).push_back(storages_.size());
    push(tuple, tensor, place);
  }
  void add(NodeId id, const TensorType& tensor, std::uint32_t place) {
    storage_of_.at(id) = storages_.size();
    push(id, tensor, place);
  }
  void push(NodeId id, const TensorType& tensor, std::uint32_t place) {
    const Count bytes = extents_.storage_bytes(tensor);
    estimate_.unknown += !bytes;
    const bool is_input = node(id).kind != NodeKind::kCall;
    storages_.push_back({.node = id,
                         .device = device_position(tensor.device),
                         .bytes = (bytes.value_or(0) + kBlock - 1) / kBlock * kBlock,
                         .begin = place,
                         .end = place,
                         .is_input = is_input});
  }
  std::size_t device_position(StringId device) {
    const auto found = std::ranges::find(estimate_.devices, device, &DeviceMemory::device);
    if (found != estimate_.devices.end()) return static_cast<std::size_t>(found - estimate_.devices.begin());
    estimate_.devices.push_back({.device = device});
    return estimate_.devices.size() - 1;
  }

  void use_inputs(NodeId id, std::uint32_t place) {
    for_each_input(context_, node(id), [&](NodeId input) { use(input, place); });
    if (const NodeId launch = find_waited_launch(context_, body_, id))
      for_each_input(context_, node(launch), [&](NodeId operand) { use(operand, place); });
  }
  void use(NodeId id, std::uint32_t place) {
    if (const std::size_t storage = storage_of_[root_[id]]; storage != kNoStorage)
      storages_[storage].end = std::max(storages_[storage].end, place);
    for (std::size_t storage : elements_[root_[id]])  // the tuple as a whole
      if (node(body_.order[place]).kind == NodeKind::kOutput) storages_[storage].end = place;
  }

  void find_peak(DeviceMemory& memory, std::size_t device) {
    std::vector<std::int64_t> change(body_.order.size() + 1);
    for (const Storage& storage : storages_) {
      if (storage.device != device) continue;
      if (storage.is_input) {
        memory.inputs += storage.bytes;
      } else {
        change[storage.begin] += storage.bytes;
        change[storage.end + 1] -= storage.bytes;
      }
    }
    std::int64_t live = memory.inputs;
    std::uint32_t at = 0;
    for (std::uint32_t place = 0; place < body_.order.size(); ++place) {
      live += change[place];
      if (place != 0 && live <= memory.peak) continue;
      memory.peak = live;
      at = place;
    }
    memory.at = body_.order[at];
    for (const Storage& storage : storages_)
      if (storage.device == device && !storage.is_input && storage.begin <= at && at <= storage.end)
        memory.largest.push_back({storage.node, storage.bytes});
    std::ranges::stable_sort(memory.largest, std::greater(), &LiveStorage::bytes);
    if (memory.largest.size() > kLargest) memory.largest.resize(kLargest);
  }

  static constexpr std::size_t kNoStorage = ~std::size_t{0};

  const Graph& graph_;
  const Context& context_;
  const Body& body_;
  Extents& extents_;
  Facts facts_;
  Effects effects_;
  IdVector<NodeId, NodeId> root_;  // the first value of the storage
  SideTable<NodeId, std::size_t> storage_of_{kNoStorage};
  SideTable<NodeId, std::vector<std::size_t>> elements_;  // storages of a computed tuple, in order
  std::vector<Storage> storages_;
  MemoryEstimate estimate_;
};

}  // namespace

MemoryEstimate estimate_memory(const Graph& graph, Extents& extents) {
  if (graph.bodies.empty()) return {};
  return Liveness(graph, extents).run();
}

}  // namespace epweave
