// Reading and writing self[indices], of several index tensors (index_call.h).
//
// Values that meet in one destination are added as kernels_index.cc has it; without accumulation
// the last one stays.
#include <cstring>

#include "replay/kernels/host/kernels.h"
#include "replay/kernels/host/operands.h"
#include "replay/kernels/ops/index_call.h"

namespace epweave::replay::cpu {
namespace {

std::size_t checked_index(std::int64_t index, std::int64_t size) {
  if (index < -size || index >= size)
    throw KernelError("index " + std::to_string(index) + " is out of range for a dimension of " +
                      std::to_string(size));
  return static_cast<std::size_t>(index < 0 ? index + size : index);
}
// self[indices]: where each position's block of self begins, in elements from self's first.
struct Indexed : IndexCall {
  Buffer<std::int64_t> offsets;
};

// Bool masks become the indices of their true elements.
std::vector<Value> expand_masks(KernelCall& call, const std::vector<Value>& indices) {
  std::vector<Value> expanded;
  for (const Value& index : indices) {
    if (!is_mask(index)) {
      expanded.push_back(index);
      continue;
    }
    for (const Buffer<std::int64_t>& column : find_true(index.tensor())) {
      Tensor tensor = call.make(DType::kInt64, {static_cast<std::int64_t>(column.size())});
      store_dense(column, tensor);
      expanded.push_back(tensor);
    }
  }
  return expanded;
}

Indexed resolve_indices(KernelCall& call, const Tensor& self, const std::vector<Value>& given) {
  Indexed result{read_indices(self, expand_masks(call, given)), {}};
  result.offsets.assign(static_cast<std::size_t>(count_elements(result.common)), 0);
  for (std::size_t d = 0; d < result.indices.size(); ++d) {
    if (result.indices[d].is_none()) continue;
    const Tensor& index = result.indices[d].tensor();
    const Operand operand = broadcast_operand(index, result.common);
    const Tensor full{index.dtype, result.common, operand.strides, index.offset, index.storage};
    const Buffer<std::int64_t> values = dense<std::int64_t>(full);
    for (std::size_t i = 0; i < values.size(); ++i)
      result.offsets[i] +=
          static_cast<std::int64_t>(checked_index(values[i], self.sizes[d])) * self.strides[d];
  }
  return result;
}

Value index(KernelCall& call) {
  const Tensor& self = call.tensor(0);
  const Indexed indexed = resolve_indices(call, self, call[1].items());
  Tensor out = call.make_result(0, self.dtype, indexed.sizes);
  if (out.numel() == 0) return out;
  const Tensor to = index_first(indexed, out);
  Tensor block = block_at(to, indexed.common.size(), 0);
  Tensor from{self.dtype, indexed.block_sizes, indexed.block_strides, 0, self.storage};
  // Dense blocks, single elements among them, are copied as bytes.
  const std::size_t bytes = static_cast<std::size_t>(from.numel()) * from.element_bytes();
  const bool is_dense = from.is_contiguous() && block.is_contiguous();
  const auto element = static_cast<std::int64_t>(self.element_bytes());
  for_each_position(to, indexed.common.size(), [&](std::size_t i, std::int64_t offset) {
    from.offset = self.offset + indexed.offsets[i];
    block.offset = offset;
    if (is_dense)
      std::memcpy(to.storage->data() + offset * element, from.storage->data() + from.offset * element, bytes);
    else
      copy_elements(from, block);
  });
  return out;
}

// The offset in blocks of a row-major copy of the indexed part: used to accumulate in a wider type.
template <class C>
void add_blocks(const Tensor& self, const Indexed& indexed, const Tensor& values) {
  const Buffer<C> sources = dense<C>(values);
  const std::int64_t block = count_elements(indexed.block_sizes);
  // Destinations are gathered into a dense accumulator each, in order of first use.
  std::vector<std::pair<std::int64_t, std::size_t>> order;
  for (std::size_t i = 0; i < indexed.offsets.size(); ++i) order.emplace_back(indexed.offsets[i], i);
  std::sort(order.begin(), order.end());
  Buffer<C> sum;
  Tensor target{self.dtype, indexed.block_sizes, indexed.block_strides, 0, self.storage};
  for (std::size_t i = 0; i < order.size();) {
    target.offset = self.offset + order[i].first;
    sum = dense<C>(target);
    std::size_t next = i;
    for (; next < order.size() && order[next].first == order[i].first; ++next) {
      const C* source = sources.data() + static_cast<std::int64_t>(order[next].second) * block;
      for (std::size_t j = 0; j < sum.size(); ++j) sum[j] = sum[j] + source[j];
    }
    store_dense(sum, target);
    i = next;
  }
}

void put_blocks(KernelCall& call, const Tensor& self, const Indexed& indexed, const Tensor& given, Put put) {
  if (count_elements(indexed.sizes) == 0) return;
  // The values broadcast to the indexed shape, index positions first.
  const Operand operand = broadcast_operand(given, indexed.sizes);
  const Tensor values =
      index_first(indexed, Tensor{given.dtype, indexed.sizes, operand.strides, given.offset, given.storage});
  if (put == Put::kAdd) {
    with_compute(self.dtype,
                 [&](auto tag) { add_blocks<typename decltype(tag)::type>(self, indexed, values); });
    return;
  }
  Tensor target{self.dtype, indexed.block_sizes, indexed.block_strides, 0, self.storage};
  Tensor source = block_at(values, indexed.common.size(), 0);
  for_each_position(values, indexed.common.size(), [&](std::size_t i, std::int64_t offset) {
    target.offset = self.offset + indexed.offsets[i];
    source.offset = offset;
    copy_elements(source, target);
  });
  static_cast<void>(call);
}

Value put_into(KernelCall& call, const Tensor& target) {
  put_blocks(call, target, resolve_indices(call, target, call[1].items()), call.tensor(2),
             call.boolean(3) ? Put::kAdd : Put::kReplace);
  return target;
}
Value index_put(KernelCall& call) {
  return put_into(call, copy_of(call, call.tensor(0)));
}
Value index_put_in_place(KernelCall& call) {
  return put_into(call, call.tensor(0));
}

constexpr KernelRow kRows[] = {
    {"aten._unsafe_index.Tensor", index},
    {"aten._unsafe_index_put.default", index_put},
    {"aten.index.Tensor", index},
    {"aten.index_put.default", index_put},
    {"aten.index_put_.default", index_put_in_place},
};

}  // namespace

std::span<const KernelRow> indexed_rows() {
  return kRows;
}

}  // namespace epweave::replay::cpu
