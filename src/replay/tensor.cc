#include "replay/tensor.h"

#include <atomic>
#include <cstring>

#include "replay/block_cache.h"

namespace epweave::replay {

struct HostMemory::Counters {
  std::atomic<std::size_t> in_use{0};
  std::atomic<std::size_t> peak{0};
  Fill fill = Fill::kNone;
};

namespace {

constexpr int kPoisonByte = 0xff;

// Calls visit(offset) for each element in row-major order.
template <class Visit>
void for_each_offset(const Tensor& tensor, const Visit& visit) {
  const std::int64_t count = tensor.numel();
  if (count == 0) return;
  Extents index(tensor.rank(), 0);
  std::int64_t offset = tensor.offset;
  for (std::int64_t i = 0; i < count; ++i) {
    visit(offset);
    for (std::size_t d = tensor.rank(); d-- > 0;) {
      offset += tensor.strides[d];
      if (++index[d] < tensor.sizes[d]) break;
      offset -= tensor.strides[d] * tensor.sizes[d];
      index[d] = 0;
    }
  }
}

}  // namespace

HostMemory::HostMemory(Fill fill) : counters_(std::make_shared<Counters>()) {
  counters_->fill = fill;
}

std::shared_ptr<Storage> HostMemory::allocate(std::size_t bytes) {
  void* data = take_block(bytes);
  const std::size_t taken = block_bytes(bytes);
  const std::size_t now = counters_->in_use += taken;
  std::size_t peak = counters_->peak;
  while (peak < now && !counters_->peak.compare_exchange_weak(peak, now)) {
  }
  if (counters_->fill == Fill::kPoison) std::memset(data, kPoisonByte, taken);
  const auto free_block = [](void* block, std::size_t size, void* context) {
    auto* counters = static_cast<std::shared_ptr<Counters>*>(context);
    if ((*counters)->fill == Fill::kPoison) std::memset(block, kPoisonByte, block_bytes(size));
    (*counters)->in_use -= block_bytes(size);
    give_block(block, size);
    delete counters;
  };
  return std::make_shared<Storage>(data, bytes, free_block, new std::shared_ptr<Counters>(counters_));
}

Tensor HostMemory::place(const Tensor& host) {
  return host;
}

std::size_t HostMemory::peak_bytes() const {
  return counters_->peak;
}

Extents contiguous_strides(std::span<const std::int64_t> sizes) {
  Extents strides(sizes.size());
  std::int64_t stride = 1;
  for (std::size_t d = sizes.size(); d-- > 0;) {
    strides[d] = stride;
    stride *= std::max<std::int64_t>(sizes[d], 1);
  }
  return strides;
}

std::int64_t count_elements(std::span<const std::int64_t> sizes) {
  std::int64_t count = 1;
  for (std::int64_t size : sizes) count *= size;
  return count;
}

bool Tensor::is_contiguous() const {
  std::int64_t expected = 1;
  for (std::size_t d = rank(); d-- > 0;) {
    if (sizes[d] == 0) return true;
    if (sizes[d] != 1 && strides[d] != expected) {
      // An extent of 0 further out makes the tensor empty after all.
      return numel() == 0;
    }
    expected *= sizes[d];
  }
  return true;
}

Tensor Tensor::view(Extents new_sizes, Extents new_strides, std::int64_t new_offset) const {
  Tensor result{dtype, std::move(new_sizes), std::move(new_strides), new_offset, storage};
  check_bounds(result);
  return result;
}

Tensor make_tensor(Memory& memory, DType dtype, Extents sizes) {
  Extents strides = contiguous_strides(sizes);
  return make_tensor(memory, dtype, std::move(sizes), std::move(strides));
}

Tensor make_tensor(Memory& memory, DType dtype, Extents sizes, Extents strides) {
  EPWEAVE_CHECK(sizes.size() == strides.size());
  std::int64_t last = 0;
  bool is_empty = false;
  for (std::size_t d = 0; d < sizes.size(); ++d) {
    EPWEAVE_CHECK(sizes[d] >= 0 && strides[d] >= 0);
    if (sizes[d] == 0) is_empty = true;
    last += (sizes[d] - 1) * strides[d];
  }
  const std::size_t elements = is_empty ? 0 : static_cast<std::size_t>(last) + 1;
  std::shared_ptr<Storage> storage = memory.allocate(elements * info(dtype).bytes);
  return Tensor{dtype, std::move(sizes), std::move(strides), 0, std::move(storage)};
}

void check_bounds(const Tensor& tensor) {
  EPWEAVE_CHECK(tensor.sizes.size() == tensor.strides.size());
  std::int64_t first = tensor.offset, last = tensor.offset;
  for (std::size_t d = 0; d < tensor.rank(); ++d) {
    EPWEAVE_CHECK(tensor.sizes[d] >= 0);
    if (tensor.sizes[d] == 0) return;
    (tensor.strides[d] < 0 ? first : last) += (tensor.sizes[d] - 1) * tensor.strides[d];
  }
  const auto bytes = static_cast<std::int64_t>(tensor.element_bytes());
  EPWEAVE_CHECK(first >= 0 && (last + 1) * bytes <= static_cast<std::int64_t>(tensor.storage->bytes()));
}

void gather_elements(const Tensor& from, std::byte* to) {
  const std::size_t bytes = from.element_bytes();
  if (from.is_contiguous()) {
    const std::size_t total = static_cast<std::size_t>(from.numel()) * bytes;
    if (total != 0) std::memcpy(to, from.bytes(), total);
    return;
  }
  const std::byte* base = from.storage->data();
  for_each_offset(from, [&](std::int64_t offset) {
    std::memcpy(to, base + offset * static_cast<std::int64_t>(bytes), bytes);
    to += bytes;
  });
}

void scatter_elements(const std::byte* from, const Tensor& to) {
  const std::size_t bytes = to.element_bytes();
  if (to.is_contiguous()) {
    const std::size_t total = static_cast<std::size_t>(to.numel()) * bytes;
    if (total != 0) std::memcpy(to.bytes(), from, total);
    return;
  }
  std::byte* base = to.storage->data();
  for_each_offset(to, [&](std::int64_t offset) {
    std::memcpy(base + offset * static_cast<std::int64_t>(bytes), from, bytes);
    from += bytes;
  });
}

}  // namespace epweave::replay
