// Tensors in files of the safetensors format.
//
//   8 bytes   n: length of the header, little-endian, at most 100,000,000
//   n bytes   {"x": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, ..., "__metadata__": {...}}
//   the rest  the tensors' elements, row-major, little-endian, one tensor after the other
//
// A file is refused where the reference implementation (the `safetensors` package) refuses it: a
// header that is longer than the file or its limit, or does not begin with `{`; a name twice; a
// tensor whose offsets do not fit its dtype and shape; tensors that overlap, leave a gap, or do not
// end where the file ends. Memory is taken for the header, whose length the file's size has
// confirmed, and for what a caller asks to read.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "replay/values/tensor.h"

namespace epweave::replay {

struct StoredTensor {
  DType dtype = DType::kFloat32;
  Extents sizes;
  std::uint64_t first = 0, last = 0;  // bytes [first, last) behind the header

  bool operator==(const StoredTensor&) const = default;
};
using StoredTensors = std::map<std::string, StoredTensor, std::less<>>;

// What a header says of the `data_bytes` bytes behind it. Throws InputError, without the file's
// name.
StoredTensors parse_safetensors_header(std::string_view header, std::uint64_t data_bytes);

// An open file, whose header has been checked. Reading does not change it: any thread may.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(std::string path);  // throws InputError
  ~SafetensorsFile();
  SafetensorsFile(const SafetensorsFile&) = delete;
  SafetensorsFile& operator=(const SafetensorsFile&) = delete;

  const std::string& path() const { return path_; }
  const StoredTensors& tensors() const { return tensors_; }
  // Bytes of a tensor from `offset` on. Throws InputError if the file cannot be read (any more).
  void read(const StoredTensor& tensor, std::uint64_t offset, std::span<std::byte> to) const;

 private:
  void read_at(std::uint64_t offset, std::span<std::byte> to) const;

  std::string path_;
  int file_;
  std::uint64_t data_ = 0;  // where it begins
  StoredTensors tensors_;
};

struct TensorToStore {
  std::string name;  // unique
  Tensor tensor;
};
// Gives the file's bytes, piece by piece, in order of decreasing element size, then of name (as the
// package does, so that elements are aligned). The same tensors give the same bytes. Throws
// InputError naming a tensor of a dtype that the format does not have.
void encode_safetensors(std::vector<TensorToStore> tensors,
                        const std::function<void(std::string_view)>& give);

}  // namespace epweave::replay
