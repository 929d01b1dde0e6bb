// What is remembered of a rank's values, in words of device memory (run/rank_device.h): sums of
// hashes and copies of small tensors, queued on the compute stream. The host waits once, at the
// end, or where the words are full.
#pragma once

#include <cstdint>
#include <vector>

#include "replay/kernels/device/launcher.h"
#include "replay/values/hash.h"

namespace epweave::replay::device {

// Of device memory, from the first value on; more where one tensor needs more.
inline constexpr std::size_t kLogBytes = std::size_t{4} << 20;

class ValueLog {
 public:
  ValueLog(DeviceApi& api, Launcher& launcher) : api_(api), launcher_(launcher) {}

  std::size_t add_hash(const Tensor& tensor);
  std::size_t add_slices(const Tensor& tensor, std::size_t dim);
  std::size_t add_elements(const Tensor& tensor);
  std::vector<std::uint64_t> take();  // waits

 private:
  // Of the first of some words.
  struct FirstWord {
    std::size_t in_log = 0, in_words = 0;
  };
  FirstWord reserve(std::size_t count);  // zeroed words
  void read();
  void add_sums(const Tensor& tensor, const HashedRows& rows, std::size_t sums, std::uint64_t* found);
  std::uint64_t* word(std::size_t i) const { return words_.data<std::uint64_t>() + i; }

  DeviceApi& api_;
  Launcher& launcher_;
  Tensor words_;                    // [words] of the device
  std::size_t used_ = 0;            // of them
  std::vector<std::uint64_t> log_;  // what was read of them so far
};

}  // namespace epweave::replay::device
