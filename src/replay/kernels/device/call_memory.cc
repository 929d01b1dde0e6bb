#include "replay/kernels/device/call_memory.h"

#include <algorithm>
#include <exception>
#include <set>

#include "replay/kernels/device/kernels.h"
#include "replay/kernels/device/pool.h"
#include "replay/kernels/device/unbacked.h"
#include "replay/run/call_values.h"
#include "replay/run/executor.h"

namespace epweave::replay::device {
namespace {

void add_word(std::string& key, std::uint64_t word) {
  key.append(reinterpret_cast<const char*>(&word), sizeof word);
}

// A tensor whose memory is nowhere and counts nothing.
Value make_operand(const ResultType& type) {
  Extents strides = type.strides.size() == type.sizes.size() ? type.strides : contiguous_strides(type.sizes);
  std::int64_t last = 0;
  for (std::size_t d = 0; d < type.sizes.size(); ++d)
    last += std::max<std::int64_t>(type.sizes[d] - 1, 0) * strides[d];
  constexpr std::uintptr_t kNowhere = std::uintptr_t{1} << 36;
  const auto keep = [](void*, std::size_t, void*) {};
  auto storage =
      std::make_shared<Storage>(reinterpret_cast<void*>(kNowhere),  // NOLINT: never looked at
                                static_cast<std::size_t>(last + 1) * info(type.dtype).bytes, keep, nullptr);
  return Tensor{type.dtype, type.sizes, std::move(strides), 0, std::move(storage)};
}

void list_tensors(const Value& value, std::vector<Tensor>& tensors) {
  if (value.is_tensor()) tensors.push_back(value.tensor());
  if (!value.is<List>()) return;
  for (const Value& item : value.items()) list_tensors(item, tensors);
}

// Operands name the queue of the launcher, so that kernels put their work there.
void give_queue(Value& value, Queue* queue) {
  if (value.is<List>()) {
    List list = value.as<List>();
    for (Value& item : list.items) give_queue(item, queue);
    value = std::move(list);
  } else if (value.is_tensor()) {
    Tensor tensor = value.tensor();
    const auto keep = [](void*, std::size_t, void*) {};
    tensor.storage =
        std::make_shared<Storage>(tensor.storage->data(), tensor.storage->bytes(), keep, nullptr, queue);
    value = std::move(tensor);
  }
}

}  // namespace

CallMemoryFinder::CallMemoryFinder(const Graph& graph, const Symbols& symbols)
    : graph_(graph), symbols_(symbols), api_(make_unbacked_device()), kernels_(make_device_kernels()) {}

const CallMemory& CallMemoryFinder::find(const Node& call) {
  std::string key;
  add_word(key, call.op->index);
  add_word(key, call.type ? call.type.index() : ~0ULL);
  for (const ArgRange range : {call.args, call.kwargs}) {
    add_word(key, range.count);
    for (const Arg arg : graph_.context->args[range]) add_key(key, arg);
  }
  const auto known = found_.find(key);
  if (known != found_.end()) return known->second;
  CallMemory memory;
  try {
    memory = run(call);
  } catch (const std::exception&) {  // the kernel refuses the call, or the data, which mean nothing
    memory = assume(call);
  }
  return found_.emplace(std::move(key), std::move(memory)).first->second;
}

void CallMemoryFinder::add_key(std::string& key, Arg arg) const {
  add_word(key, static_cast<std::uint64_t>(arg.kind()));
  if (arg.is_tree()) {
    const auto children = graph_.context->args.children(arg);
    add_word(key, children.size());
    for (const Arg child : children) add_key(key, child);
  } else if (arg.is_node()) {
    const Node& node = graph_.step().nodes[arg.as_node()];
    // Nested graphs differ by their names.
    add_word(key, node.kind == NodeKind::kGetAttr ? ~arg.bits() : node.type ? node.type.index() : ~0ULL);
  } else {
    add_word(key, arg.bits());
  }
}

Value CallMemoryFinder::make_typed(TypeId id) {
  if (!id) return {};
  const Type& type = graph_.context->types[id];
  switch (type.kind) {
    case TypeKind::kTensor: {
      const auto numbers = evaluate(symbols_, type.tensor);
      return numbers ? make_operand(*numbers) : make_operand({true, type.tensor.dtype, {0}, {1}, 0});
    }
    case TypeKind::kTuple:
    case TypeKind::kList: {
      std::vector<Value> items;
      for (const TypeId element : type.elements) items.push_back(make_typed(element));
      return type.kind == TypeKind::kTuple ? Value::tuple(std::move(items)) : Value::list(std::move(items));
    }
    case TypeKind::kScalar: {
      const auto number = type.expr ? symbols_.evaluate(type.expr) : std::nullopt;
      if (graph_.text(type.py_type) == "SymFloat") return 1.0;
      return number.value_or(1);
    }
    default:
      return {};
  }
}

Value CallMemoryFinder::make_value(NodeId id, Memory& memory) {
  const Node& node = graph_.step().nodes[id];
  if (node.kind == NodeKind::kGetAttr && node.attr.is(ArgKind::kGraph))
    if (const Body* nested = graph_.find_body(node.attr.as_name()))
      return make_function(graph_, *nested, kernels_, memory);
  return make_typed(node.type);
}

CallMemory CallMemoryFinder::run(const Node& call) {
  const auto pool = std::make_shared<Pool>(*api_, HostMemory::Fill::kNone);
  Launcher launcher(*api_, pool, nullptr, nullptr);
  std::set<const Storage*> taken;
  const Environment environment{graph_, symbols_, [&](NodeId id) -> const Value& {
                                  const auto [at, is_new] = operands_.try_emplace(id);
                                  if (!is_new) return at->second;
                                  at->second = make_value(id, launcher);
                                  give_queue(at->second, &launcher);
                                  std::vector<Tensor> tensors;
                                  list_tensors(at->second, tensors);
                                  for (const Tensor& tensor : tensors) taken.insert(tensor.storage.get());
                                  return at->second;
                                }};
  operands_.clear();
  BoundCall bound = bind_values(environment, call);
  KernelCall kernel(*call.op, std::move(bound.args), bound.given, launcher);
  const std::vector<ResultType> recorded = evaluate_results(graph_, symbols_, call.type);
  kernel.set_results(recorded);
  const Value result = kernels_.find(*call.op)(kernel);
  std::vector<Tensor> tensors;
  list_tensors(result, tensors);
  CallMemory memory;
  std::uint64_t made = 0;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (recorded.size() == tensors.size() && recorded[i].is_tensor &&
        count_elements(recorded[i].sizes) != tensors[i].numel())
      return assume(call);  // data decide
    const Storage& storage = *tensors[i].storage;
    const bool is_new = taken.insert(&storage).second;
    memory.results.push_back(is_new ? pool_block_bytes(storage.bytes()) : 0);
    made += memory.results.back();
  }
  memory.scratch = std::max<std::uint64_t>(pool->peak_bytes(), made) - made;
  return memory;
}

std::uint64_t CallMemoryFinder::count_elements_of(TypeId id) const {
  if (!id) return 0;
  const Type& type = graph_.context->types[id];
  std::uint64_t count = 0;
  for (const TypeId element : type.elements) count += count_elements_of(element);
  const auto numbers = type.kind == TypeKind::kTensor ? evaluate(symbols_, type.tensor) : std::nullopt;
  return count + (numbers ? static_cast<std::uint64_t>(count_elements(numbers->sizes)) : 0);
}

CallMemory CallMemoryFinder::assume(const Node& call) {
  constexpr std::uint64_t kCopies = 3, kWidest = 8;
  CallMemory memory;
  std::uint64_t elements = count_elements_of(call.type);
  for_each_input(*graph_.context, call,
                 [&](NodeId input) { elements += count_elements_of(graph_.step().nodes[input].type); });
  memory.scratch = kCopies * kWidest * elements;
  for (const ResultType& type : evaluate_results(graph_, symbols_, call.type))
    if (type.is_tensor)
      memory.results.push_back(call.op->is_view || call.op->writes
                                   ? 0
                                   : pool_block_bytes(static_cast<std::size_t>(count_elements(type.sizes)) *
                                                      info(type.dtype).bytes));
  return memory;
}

}  // namespace epweave::replay::device
