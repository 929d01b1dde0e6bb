// A strided tensor over shared storage, as PyTorch has it.
//
// A tensor is dtype, sizes, strides and offset (in elements) over a storage of bytes that it shares
// with its views: what is written through one is seen through all. A storage belongs to one device;
// only code of that device reads its bytes. Elements lie in memory as torch lays them out: bfloat16
// and float16 as 16 bits, bool as one byte 0 or 1, complex64 as two floats.
//
// Invariant of every tensor made here: all elements it addresses lie inside its storage
// (`check_bounds`).
#pragma once

#include <complex>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <vector>

#include "base/error.h"
#include "ir/types/type.h"

namespace epweave::replay {

using Extents = std::vector<std::int64_t>;

class Queue;
struct Tensor;

// A block of memory, freed with its last user.
class Storage {
 public:
  using Free = void (*)(void* data, std::size_t bytes, void* context);

  Storage(void* data, std::size_t bytes, Free free, void* context, Queue* queue = nullptr)
      : data_(static_cast<std::byte*>(data)), bytes_(bytes), free_(free), context_(context), queue_(queue) {}
  ~Storage() { free_(data_, bytes_, context_); }
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  std::byte* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }
  // The device's queue on which it is used (queue.h); null: host memory.
  Queue* queue() const { return queue_; }
  bool is_on_host() const { return queue_ == nullptr; }

 private:
  std::byte* data_;
  std::size_t bytes_;
  Free free_;
  void* context_;
  Queue* queue_;
};

// Where tensors come from: host memory, or a CUDA device's.
class Memory {
 public:
  virtual ~Memory() = default;
  // `bytes` of uninitialised memory, aligned to 64 bytes.
  virtual std::shared_ptr<Storage> allocate(std::size_t bytes) = 0;
  // A tensor of host memory in this memory.
  virtual Tensor place(const Tensor& host) = 0;
  // The same tensor in host memory; a device is waited for.
  virtual Tensor download(const Tensor& tensor);

  // Host memory is as good for one run as for the next. A device's ends with its run: what later
  // runs use too lies beside it, and is freed between runs only.
  virtual bool outlives_run() const { return true; }
  virtual std::shared_ptr<Storage> allocate_beyond(std::size_t bytes) { return allocate(bytes); }
  // A tensor that an earlier run made so, to be used in this one.
  virtual Tensor borrow(const Tensor& tensor);
};

// Host memory; counts the bytes in use of all who share it. `poison` fills new and freed memory
// with 0xff bytes: NaN in every floating type, true and -1 elsewhere, so that what nobody wrote is
// noticed.
class HostMemory : public Memory {
 public:
  enum class Fill { kNone, kPoison };
  explicit HostMemory(Fill fill = Fill::kNone);
  std::shared_ptr<Storage> allocate(std::size_t bytes) override;
  Tensor place(const Tensor& host) override;
  std::size_t peak_bytes() const;

 private:
  struct Counters;
  std::shared_ptr<Counters> counters_;
};

// Row-major strides; an extent of 0 counts as 1, as in torch.
Extents contiguous_strides(std::span<const std::int64_t> sizes);
std::int64_t count_elements(std::span<const std::int64_t> sizes);

struct Tensor {
  DType dtype = DType::kFloat32;
  Extents sizes;
  Extents strides;
  std::int64_t offset = 0;
  std::shared_ptr<Storage> storage;

  std::size_t rank() const { return sizes.size(); }
  std::int64_t numel() const { return count_elements(sizes); }
  std::int64_t size(std::int64_t dim) const { return sizes[wrap(dim)]; }
  std::int64_t stride(std::int64_t dim) const { return strides[wrap(dim)]; }
  std::size_t wrap(std::int64_t dim) const {
    return static_cast<std::size_t>(dim < 0 ? dim + static_cast<std::int64_t>(sizes.size()) : dim);
  }
  std::size_t element_bytes() const { return info(dtype).bytes; }
  // Row-major without gaps; strides of extents of 1 and of empty tensors do not matter.
  bool is_contiguous() const;

  // The first element. T must fit the dtype (std::uint16_t for the 16-bit floats).
  template <class T>
  T* data() const {
    EPWEAVE_DCHECK(sizeof(T) == element_bytes());
    return reinterpret_cast<T*>(storage->data()) + offset;
  }
  std::byte* bytes() const { return storage->data() + offset * static_cast<std::int64_t>(element_bytes()); }

  // The same storage seen otherwise. Throws CheckError where that would leave the storage.
  Tensor view(Extents new_sizes, Extents new_strides, std::int64_t new_offset) const;
};

// A new tensor; strides row-major where none are given. Not initialised.
Tensor make_tensor(Memory& memory, DType dtype, Extents sizes);
Tensor make_tensor(Memory& memory, DType dtype, Extents sizes, Extents strides);

// Throws CheckError if an element lies outside of the storage.
void check_bounds(const Tensor& tensor);

// Host tensors only: copies the elements in row-major order out of, or into, a strided tensor.
void gather_elements(const Tensor& from, std::byte* to);
void scatter_elements(const std::byte* from, const Tensor& to);

}  // namespace epweave::replay
