#include "replay/values/tensor.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <type_traits>

#include "replay/kernels/kernel.h"
#include "replay/values/block_cache.h"

namespace epweave::replay {

struct HostMemory::Counters {
  std::atomic<std::size_t> in_use{0};
  std::atomic<std::size_t> peak{0};
  Fill fill = Fill::kNone;
};

namespace {

constexpr int kPoisonByte = 0xff;

// Elements of N bytes, and where they go; strides in elements.
template <std::int64_t N>
struct StridedCopy {
  const std::byte* from;
  std::byte* to;
  Extents sizes, from_strides, to_strides;

  void run() const {
    for (std::int64_t size : sizes)
      if (size == 0) return;
    if (sizes.empty()) {
      std::memcpy(to, from, N);
      return;
    }
    const std::size_t last = sizes.size() - 1, other = find_other();
    Extents index(sizes.size(), 0);
    while (true) {
      std::int64_t from_offset = 0, to_offset = 0;
      for (std::size_t d = 0; d < sizes.size(); ++d) {
        from_offset += index[d] * from_strides[d];
        to_offset += index[d] * to_strides[d];
      }
      copy_matrix(from + from_offset * N, to + to_offset * N, other);
      std::size_t d = last;
      for (; d-- > 0;) {
        if (d == other) continue;
        if (++index[d] < sizes[d]) break;
        index[d] = 0;
      }
      if (d > last) return;
    }
  }

 private:
  // A second dimension along which memory is read or written in sequence, if there is one.
  std::size_t find_other() const {
    const std::size_t last = sizes.size() - 1;
    for (std::size_t d = 0; d < last; ++d)
      if (sizes[d] > 1 && (from_strides[d] == 1 || to_strides[d] == 1)) return d;
    return last == 0 ? 0 : last - 1;
  }
  // The last dimension and `other`, in squares that stay in the first-level cache.
  void copy_matrix(const std::byte* source, std::byte* target, std::size_t other) const {
    constexpr std::int64_t kSquare = 32;
    const std::size_t last = sizes.size() - 1;
    const std::int64_t rows = other == last ? 1 : sizes[other], columns = sizes[last];
    const std::int64_t from_row = from_strides[other], to_row = to_strides[other],
                       from_column = from_strides[last], to_column = to_strides[last];
    if (from_column == 1 && to_column == 1) {
      for (std::int64_t i = 0; i < rows; ++i)
        std::memcpy(target + i * to_row * N, source + i * from_row * N,
                    static_cast<std::size_t>(columns * N));
      return;
    }
    for (std::int64_t top = 0; top < rows; top += kSquare)
      for (std::int64_t left = 0; left < columns; left += kSquare)
        for (std::int64_t j = left; j < std::min(left + kSquare, columns); ++j)
          for (std::int64_t i = top; i < std::min(top + kSquare, rows); ++i)
            std::memcpy(target + (i * to_row + j * to_column) * N,
                        source + (i * from_row + j * from_column) * N, N);
  }
};

void copy_strided(const StridedCopy<1>& copy, std::size_t element_bytes) {
  const auto run = [&]<std::int64_t N>(std::integral_constant<std::int64_t, N>) {
    StridedCopy<N>{copy.from, copy.to, copy.sizes, copy.from_strides, copy.to_strides}.run();
  };
  switch (element_bytes) {
    case 1:
      return run(std::integral_constant<std::int64_t, 1>{});
    case 2:
      return run(std::integral_constant<std::int64_t, 2>{});
    case 4:
      return run(std::integral_constant<std::int64_t, 4>{});
    case 8:
      return run(std::integral_constant<std::int64_t, 8>{});
    default:
      EPWEAVE_CHECK(element_bytes == 16);
      return run(std::integral_constant<std::int64_t, 16>{});
  }
}

}  // namespace

Tensor Memory::download(const Tensor& tensor) {
  return tensor;
}

Tensor Memory::borrow(const Tensor& tensor) {
  return tensor;
}

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
    if (sizes[d] < 0)
      throw KernelError(fmt::format("a tensor of {} elements along dimension {}", sizes[d], d));
    EPWEAVE_CHECK(strides[d] >= 0);
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
  copy_strided({from.bytes(), to, from.sizes, from.strides, contiguous_strides(from.sizes)}, bytes);
}

void scatter_elements(const std::byte* from, const Tensor& to) {
  const std::size_t bytes = to.element_bytes();
  if (to.is_contiguous()) {
    const std::size_t total = static_cast<std::size_t>(to.numel()) * bytes;
    if (total != 0) std::memcpy(to.bytes(), from, total);
    return;
  }
  copy_strided({from, to.bytes(), to.sizes, contiguous_strides(to.sizes), to.strides}, bytes);
}

}  // namespace epweave::replay
