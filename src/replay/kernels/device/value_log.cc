#include "replay/kernels/device/value_log.h"

#include <algorithm>
#include <utility>

#include "replay/kernels/host/elements.h"
#include "replay/values/merge_dimensions.h"

namespace epweave::replay::device {
namespace {

constexpr std::size_t kWord = sizeof(std::uint64_t);

std::int64_t as_index(std::size_t value) {
  return static_cast<std::int64_t>(value);
}

// Elements of 16 bytes are two of 8.
Tensor in_words(const Tensor& tensor) {
  if (tensor.element_bytes() <= kWord) return tensor;
  const auto parts = as_index(tensor.element_bytes() / kWord);
  Tensor split = tensor;
  split.dtype = DType::kInt64;
  split.offset *= parts;
  for (std::int64_t& stride : split.strides) stride *= parts;
  split.sizes.push_back(parts);
  split.strides.push_back(1);
  return split;
}

Tensor with_merged_dimensions(Tensor tensor) {
  std::int64_t* const strides[] = {tensor.strides.data()};
  const std::size_t rank = merge_dimensions(tensor.sizes, strides);
  tensor.sizes.resize(rank);
  tensor.strides.resize(rank);
  return tensor;
}

// Threads of a block are as many for a row as it has chains; blocks are so many that all of a GPU's
// multiprocessors have several, and that few add to one sum.
void divide(HashTask& task) {
  constexpr std::int64_t kBlocksAtLeast = 4096, kMostChains = 16;
  const std::int64_t chains = math::count_chains(task.inner);
  while ((1 << task.thread_bits) < HashTask::kThreads && (std::int64_t{1} << task.thread_bits) < chains)
    ++task.thread_bits;
  task.rows_each = task.chains_each = 1;
  const std::int64_t most = (chains + HashTask::kThreads - 1) / HashTask::kThreads;
  task.chains_each = std::clamp<std::int64_t>(task.blocks() / kBlocksAtLeast, 1, std::min(most, kMostChains));
  task.rows_each = std::clamp<std::int64_t>(task.blocks() / kBlocksAtLeast, 1, task.outer);
}

}  // namespace

std::size_t ValueLog::add_hash(const Tensor& tensor) {
  const FirstWord place = reserve(2);
  add_sums(tensor, rows_of(tensor.dtype, tensor.sizes), place.in_words, word(place.in_words + 1));
  return place.in_log;
}

std::size_t ValueLog::add_slices(const Tensor& tensor, std::size_t dim) {
  const HashedRows rows = rows_of_slices(tensor.dtype, tensor.sizes, dim);
  const FirstWord place = reserve(static_cast<std::size_t>(rows.count));
  add_sums(tensor, rows, place.in_words, nullptr);
  return place.in_log;
}

std::size_t ValueLog::add_elements(const Tensor& tensor) {
  const std::size_t width = tensor.element_bytes(), bytes = static_cast<std::size_t>(tensor.numel()) * width;
  const FirstWord place = reserve((bytes + kWord - 1) / kWord);
  if (bytes == 0) return place.in_log;
  const Tensor to{tensor.dtype, tensor.sizes, contiguous_strides(tensor.sizes),
                  as_index(place.in_words * kWord / width), words_.storage};
  cpu::copy_elements(tensor, to);
  return place.in_log;
}

std::vector<std::uint64_t> ValueLog::take() {
  read();
  words_ = {};  // the next ones begin with zeros
  return std::exchange(log_, {});
}

void ValueLog::add_sums(const Tensor& tensor, const HashedRows& rows, std::size_t sums,
                        std::uint64_t* found) {
  static_assert(static_cast<std::uint64_t>(kLogNan) == kFoundNan &&
                static_cast<std::uint64_t>(kLogNotFinite) == kFoundNotFinite);
  if (tensor.numel() == 0) return;
  const Tensor elements = with_merged_dimensions(in_words(tensor));
  HashTask task{};
  task.is_dense = tensor.is_contiguous();
  task.from.data = elements.bytes();
  if (!task.is_dense) {
    task.shape = shape_of(elements.sizes);
    task.from = plain_strides(elements);
  }
  task.bytes = bytes_of_element(elements);
  task.outer = rows.outer;
  task.count = rows.count;
  task.inner = rows.inner;
  task.floats = floats_of(tensor.dtype);
  task.sums = word(sums);
  task.found = found;
  divide(task);
  launcher_.launch(task, task.blocks(), {&tensor, &words_});
}

ValueLog::FirstWord ValueLog::reserve(std::size_t count) {
  const std::size_t there = words_.storage == nullptr ? 0 : static_cast<std::size_t>(words_.numel());
  if (used_ + count > there) {
    read();
    if (count > there) {
      words_ = {};  // the next ones may take its place
      words_ = make_tensor(launcher_, DType::kInt64, {as_index(std::max(count, kLogBytes / kWord))});
    }
    check(api_.fill(launcher_.stream(), words_.bytes(), 0, words_.storage->bytes()), "fill memory");
  }
  const FirstWord place{log_.size() + used_, used_};
  used_ += count;
  return place;
}

void ValueLog::read() {
  if (used_ == 0) return;
  const Tensor used = launcher_.download(words_.view({as_index(used_)}, {1}, 0));
  const auto* words = used.data<std::uint64_t>();
  log_.insert(log_.end(), words, words + used_);
  used_ = 0;
}

}  // namespace epweave::replay::device
