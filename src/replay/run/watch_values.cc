#include "replay/run/watch_values.h"

#include <fmt/format.h>

#include <algorithm>

#include "replay/values/block_cache.h"
#include "replay/values/evaluate.h"
#include "replay/values/hash.h"

namespace epweave::replay {
namespace {

constexpr std::int64_t kKeptElements = 4096;

bool has_numbers(const Tensor& tensor) {
  return tensor.numel() <= kKeptElements && !is_complex(tensor.dtype);
}

void describe_tensor(Seen& seen, const Tensor& tensor) {
  seen.kind = Seen::Kind::kTensor;
  seen.dtype = tensor.dtype;
  seen.sizes = tensor.sizes;
}

// Elements that lie row-major.
std::vector<double> read_numbers(const std::byte* bytes, DType dtype, std::int64_t count) {
  std::vector<double> numbers;
  for (std::int64_t i = 0; i < count; ++i, bytes += info(dtype).bytes)
    numbers.push_back(load_number(bytes, dtype));
  return numbers;
}

// Calls visit(d) for each of the dimensions that are asked for.
template <class Visit>
void for_each_dimension(Dimensions dimensions, std::size_t rank, const Visit& visit) {
  EPWEAVE_DCHECK(rank < 63);
  for (std::size_t d = 0; d < rank; ++d)
    if ((dimensions >> d & 1) != 0) visit(d);
}

void see_tensor(Seen& seen, const Tensor& tensor, Dimensions sliced) {
  describe_tensor(seen, tensor);
  seen.hash = hash_tensor(tensor);
  if (sliced == 0) return;
  seen.slices.resize(tensor.rank());
  for_each_dimension(sliced, tensor.rank(), [&](std::size_t d) { seen.slices[d] = hash_slices(tensor, d); });
  if (!has_numbers(tensor)) return;
  Buffer<std::byte> bytes(static_cast<std::size_t>(tensor.numel()) * tensor.element_bytes());
  gather_elements(tensor, bytes.data());
  seen.numbers = read_numbers(bytes.data(), tensor.dtype, tensor.numel());
}

Judgement judge_numbers(const Seen& whole, const std::vector<const Seen*>& parts) {
  double sum = 0;
  bool each = true;
  for (const Seen* part : parts) {
    sum += part->number;
    each = each && part->number == whole.number;
  }
  if (each || sum == whole.number) return {};
  return {Verdict::kUnverified, "numbers that are neither equal nor add up", false};
}

bool add_up(const Seen& whole, const std::vector<const Seen*>& parts) {
  if (whole.numbers.empty()) return false;
  for (std::size_t i = 0; i < whole.numbers.size(); ++i) {
    double sum = 0;
    for (const Seen* part : parts) {
      if (part->numbers.size() != whole.numbers.size()) return false;
      sum += part->numbers[i];
    }
    if (sum != whole.numbers[i]) return false;
  }
  return true;
}

Judgement judge_parts(const Seen& whole, const std::vector<const Seen*>& parts, bool is_chain) {
  const auto same_bits = [&](const Seen* part) { return part->hash == whole.hash; };
  if (std::all_of(parts.begin(), parts.end(), [&](const Seen* part) { return part->sizes == whole.sizes; })) {
    if (std::all_of(parts.begin(), parts.end(), same_bits)) return {};
    if (is_chain && same_bits(parts.back())) return {};
    const bool is_real = is_inexact(whole.dtype);
    // In float64 they may add up to the whole by chance; added in their own type they round.
    if (add_up(whole, parts)) return {Verdict::kEqual, {}, is_real};
    return {Verdict::kUnverified, "a sum of parts", is_real};
  }
  std::vector<Extents> extents;
  for (const Seen* part : parts) extents.push_back(part->sizes);
  const auto cut = find_cut(whole.sizes, extents);
  if (!cut) return {Verdict::kUnverified, "the parts' shapes do not make up the whole's", false};
  if (whole.slices.size() <= *cut || whole.slices[*cut].empty())
    return {Verdict::kUnverified, "cut along another dimension than is recorded", false};
  std::vector<std::uint64_t> joined;
  for (const Seen* part : parts)
    joined.insert(joined.end(), part->slices[*cut].begin(), part->slices[*cut].end());
  std::vector<std::uint64_t> rows = whole.slices[*cut];
  if (joined == rows) return {};
  const auto at = std::mismatch(joined.begin(), joined.end(), rows.begin()).first - joined.begin();
  std::sort(joined.begin(), joined.end());
  std::sort(rows.begin(), rows.end());
  if (joined == rows) return {Verdict::kReordered, "", false};
  if (!is_inexact(whole.dtype))
    return {Verdict::kUnverified, "integers that may count the rows of a part", false};
  return {Verdict::kDiffers,
          fmt::format("the parts laid end to end differ first at index {} of dimension {}", at, *cut), false};
}

}  // namespace

std::string_view name_of(Verdict verdict) {
  constexpr std::string_view kNames[] = {"equal",          "reordered",  "sum-order",
                                         "library-kernel", "unverified", "differs"};
  return kNames[static_cast<std::size_t>(verdict)];
}

Watcher::Watcher(const Graph& graph, RankRange ranks)
    : first_(ranks.first), sliced_(graph.step().nodes.size(), 0) {
  seen_.assign(ranks.end - ranks.first, std::vector<Seen>(graph.step().nodes.size()));
  logged_.resize(seen_.size());
}

void Watcher::slice(NodeId node, Dimensions dimensions) {
  sliced_[node.index()] |= dimensions;
}

void Watcher::see(Rank rank, NodeId node, const Value& value, RankDevice* device) {
  Seen& seen = seen_[rank - first_][node.index()];
  if (value.is_number()) {
    seen.kind = Seen::Kind::kNumber;
    seen.number = value.real();
  } else if (value.is_tensor() && (device == nullptr || value.tensor().storage->is_on_host())) {
    see_tensor(seen, value.tensor(), sliced_[node.index()]);
  } else if (value.is_tensor()) {
    log_tensor(rank, node, value.tensor(), *device);
  }
}

void Watcher::log_tensor(Rank rank, NodeId node, const Tensor& tensor, RankDevice& device) {
  describe_tensor(seen_[rank - first_][node.index()], tensor);
  Logged& logged = logged_[rank - first_].emplace_back();
  logged.node = node;
  logged.hash = device.log_hash(tensor);
  const Dimensions sliced = sliced_[node.index()];
  for_each_dimension(sliced, tensor.rank(),
                     [&](std::size_t d) { logged.slices.emplace_back(d, device.log_slices(tensor, d)); });
  if (sliced != 0 && has_numbers(tensor)) logged.numbers = device.log_elements(tensor);
}

void Watcher::read_log(Rank rank, const std::vector<std::uint64_t>& log) {
  for (const Logged& logged : std::exchange(logged_[rank - first_], {})) {
    Seen& seen = seen_[rank - first_][logged.node.index()];
    seen.hash = finish_hash(seen.dtype, seen.sizes, log.at(logged.hash));
    if (sliced_[logged.node.index()] != 0) seen.slices.resize(seen.sizes.size());
    for (const auto& [dim, place] : logged.slices) {
      const HashedRows rows = rows_of_slices(seen.dtype, seen.sizes, dim);
      std::vector<std::uint64_t>& hashes = seen.slices[dim];
      for (std::size_t i = 0; i < static_cast<std::size_t>(rows.count); ++i)
        hashes.push_back(finish_slice(rows, log.at(place + i)));
    }
    if (logged.numbers)
      seen.numbers = read_numbers(reinterpret_cast<const std::byte*>(log.data() + *logged.numbers),
                                  seen.dtype, count_elements(seen.sizes));
  }
}

Dimensions find_cut_dimensions(const Graph& a, const Graph& b, const Group& group) {
  constexpr Dimensions kAll = ~Dimensions{0};
  const auto type_of = [](const Graph& graph, NodeId node) {
    return tensor_of(*graph.context, graph.step().nodes[node].type);
  };
  const TensorType* whole = type_of(a, group.whole);
  const TensorType* part = group.values[0] ? type_of(b, group.values[0]) : nullptr;
  if (whole == nullptr || part == nullptr || whole->sizes.size() != part->sizes.size()) return kAll;
  Dimensions differing = 0;
  for (std::size_t d = 0; d < whole->sizes.size(); ++d)
    if (a.context->exprs.text(whole->sizes[d]) != b.context->exprs.text(part->sizes[d]))
      differing |= Dimensions{1} << d;
  return differing | kNumbers;
}

std::optional<std::size_t> find_cut(const Extents& whole, const std::vector<Extents>& parts) {
  std::optional<std::size_t> cut;
  for (std::size_t d = 0; d < whole.size(); ++d) {
    std::int64_t total = 0;
    bool same = true;
    for (const Extents& part : parts) {
      if (part.size() != whole.size()) return std::nullopt;
      total += part[d];
      same = same && part[d] == whole[d];
    }
    if (same) continue;
    if (cut || total != whole[d]) return std::nullopt;
    cut = d;
  }
  return cut;
}

Judgement judge(const Seen& whole, const std::vector<const Seen*>& values, const Group& group) {
  for (const Seen* value : values) {
    if (value->kind != whole.kind) return {Verdict::kDiffers, "a tensor and a number", false};
    if (whole.kind == Seen::Kind::kTensor && value->dtype != whole.dtype)
      return {Verdict::kDiffers, "the dtypes differ", false};
  }
  if (whole.kind == Seen::Kind::kNumber) return judge_numbers(whole, values);
  if (group.is_parts) return judge_parts(whole, values, group.is_chain);
  if (values[0]->hash == whole.hash) return {};
  if (values[0]->sizes != whole.sizes) return {Verdict::kUnverified, "another shape", false};
  return {Verdict::kDiffers, "the bits differ", false};
}

Tensor copy_tensor(const Tensor& tensor, Memory& memory) {
  Tensor copy = make_tensor(memory, tensor.dtype, tensor.sizes);
  gather_elements(tensor, copy.bytes());
  return copy;
}

Tensor cut_range(const Tensor& tensor, std::size_t dim, std::int64_t first, std::int64_t count) {
  Tensor part = tensor;
  part.offset += first * part.strides[dim];
  part.sizes[dim] = count;
  return part;
}

}  // namespace epweave::replay
