#include "replay/run/shown_results.h"

#include <fmt/format.h>

#include "replay/values/compare.h"
#include "replay/values/hash.h"

namespace epweave::replay {
namespace {

Tensor make_number(const Value& number) {
  HostMemory memory;
  const DType dtype = number.is<bool>()           ? DType::kBool
                      : number.is<std::int64_t>() ? DType::kInt64
                                                  : DType::kFloat64;
  Tensor tensor = make_tensor(memory, dtype, {});
  if (dtype == DType::kBool) {
    *tensor.data<bool>() = number.as<bool>();
  } else if (dtype == DType::kInt64) {
    *tensor.data<std::int64_t>() = number.as<std::int64_t>();
  } else {
    *tensor.data<double>() = number.as<double>();
  }
  return tensor;
}

}  // namespace

void for_each_result(const Value& value, const std::string& name,
                     const std::function<void(const std::string&, const Tensor&, ResultKind)>& visit) {
  if (value.is_tensor()) {
    visit(name, value.tensor(), ResultKind::kTensor);
  } else if (value.is_number()) {
    visit(name, make_number(value), ResultKind::kNumber);
  } else if (value.is<List>()) {
    for (std::size_t i = 0; i < value.items().size(); ++i)
      for_each_result(value.items()[i], fmt::format("{}[{}]", name, i), visit);
  } else if (value.is<Dict>()) {
    for (const auto& [key, item] : value.as<Dict>().items)
      for_each_result(item, fmt::format("{}[{}]", name, key.is<Text>() ? key.as<Text>().text : "?"), visit);
  }
}

Value without_memory(const Value& value) {
  return replace_tensors(value, [](Tensor tensor) {
    tensor.storage = nullptr;
    return tensor;
  });
}

void ResultHashes::add(const Tensor& tensor) {
  results_.push_back({tensor, tensor.storage->is_on_host() ? 0 : device_->log_hash(tensor)});
}

ShownResult ResultHashes::at(std::size_t i, const std::vector<std::uint64_t>& log) const {
  const auto& [tensor, place] = results_[i];
  if (tensor.storage->is_on_host())
    return {hash_tensor(tensor), has_nan(tensor), has_not_finite(tensor),
            [&tensor = tensor] { return tensor; }};
  const std::uint64_t found = log.at(place + 1);
  return {finish_hash(tensor.dtype, tensor.sizes, log.at(place)), (found & kLogNan) != 0,
          (found & kLogNotFinite) != 0, [this, &tensor = tensor] { return device_->download(tensor); }};
}

}  // namespace epweave::replay
