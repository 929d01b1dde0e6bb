// A tensor's elements in row-major order: where they lie, or a copy.
#pragma once

#include <cstddef>

#include "replay/values/block_cache.h"
#include "replay/values/tensor.h"

namespace epweave::replay {

class RowMajor {
 public:
  explicit RowMajor(const Tensor& tensor)
      : size_(static_cast<std::size_t>(tensor.numel()) * tensor.element_bytes()) {
    if (tensor.is_contiguous()) {
      data_ = tensor.bytes();
      return;
    }
    copy_.resize(size_);
    gather_elements(tensor, copy_.data());
    data_ = copy_.data();
  }
  RowMajor(const RowMajor&) = delete;
  RowMajor& operator=(const RowMajor&) = delete;

  const std::byte* data() const { return data_; }
  std::size_t size() const { return size_; }

 private:
  Buffer<std::byte> copy_;
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace epweave::replay
