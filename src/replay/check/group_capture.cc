#include "replay/check/group_capture.h"

#include <algorithm>

#include "replay/run/watch_values.h"
#include "replay/values/compare.h"

namespace epweave::replay {
namespace {

std::optional<std::size_t> find_cut_of(const Tensor& whole, const std::vector<Tensor>& values) {
  std::vector<Extents> sizes;
  for (const Tensor& value : values) sizes.push_back(value.sizes);
  return find_cut(whole.sizes, sizes);
}

// The part that holds an element of the whole; the first one where the parts are no pieces.
std::size_t find_part(const Tensor& whole, const std::vector<Tensor>& values, std::int64_t element) {
  const auto dim = find_cut_of(whole, values);
  if (!dim || element < 0) return 0;
  const std::int64_t inner = contiguous_strides(whole.sizes)[*dim];
  std::int64_t rest = element / inner % whole.sizes[*dim];
  for (std::size_t part = 0; part < values.size(); ++part) {
    if (rest < values[part].sizes[*dim]) return part;
    rest -= values[part].sizes[*dim];
  }
  return 0;
}

// The parts laid end to end; the last one where they are no pieces.
Tensor join(const Tensor& whole, const std::vector<Tensor>& values, Memory& memory) {
  const auto dim = find_cut_of(whole, values);
  if (!dim) return values.back();
  Tensor joined = make_tensor(memory, whole.dtype, whole.sizes);
  std::int64_t first = 0;
  for (const Tensor& value : values) {
    scatter_elements(value.bytes(), cut_range(joined, *dim, first, value.sizes[*dim]));
    first += value.sizes[*dim];
  }
  return joined;
}

}  // namespace

Observer GroupCapture::observe(const std::vector<NodeId>& nodes, std::vector<Tensor>& to) {
  return [this, nodes, &to](Rank rank, NodeId node, const Value& value, RankDevice* device) {
    const auto at = std::find(nodes.begin(), nodes.end(), node);
    if (rank != rank_ || at == nodes.end() || !value.is_tensor()) return;
    const Tensor tensor = device == nullptr ? value.tensor() : device->download(value.tensor());
    to[static_cast<std::size_t>(at - nodes.begin())] = copy_tensor(tensor, memory_);
  };
}

void GroupCapture::locate(NodeCheck& found) {
  const Tensor& whole = whole_[0];
  if (whole.storage == nullptr) return;
  for (const Tensor& value : values_)
    if (value.storage == nullptr || value.dtype != whole.dtype) return;
  found.difference = compare_tensors(whole, join(whole, values_, memory_));
  found.node = group_.values[find_part(whole, values_, found.difference->index)];
}

}  // namespace epweave::replay
