// Runs a case of testdata/kernels/cases.json (made by scripts/dev/kernel_conformance.py from
// PyTorch's CPU kernels) through a kernel and says how the kernel differs. For tests.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <set>

#include "replay/kernels/host/conformance_cases.h"
#include "replay/kernels/host/elements.h"

namespace epweave::replay {

// One unit in the last place of `dtype` at x.
inline double unit_at(double x, DType dtype) {
  const int digits = dtype == DType::kFloat64   ? 53
                     : dtype == DType::kFloat32 ? 24
                     : dtype == DType::kFloat16 ? 11
                                                : 8;
  const int lowest = dtype == DType::kFloat64   ? -1074
                     : dtype == DType::kFloat32 ? -149
                     : dtype == DType::kFloat16 ? -24
                                                : -133;
  int exponent = 0;
  std::frexp(x, &exponent);
  return std::ldexp(1.0, std::max(exponent - digits, lowest));
}

struct Bound {
  double ulps = 0, atol = 0;
};

inline bool is_close(double got, double want, DType dtype, const Bound& bound) {
  if (std::isnan(want) || std::isnan(got)) return std::isnan(want) && std::isnan(got);
  if (bound.ulps == 0 && bound.atol == 0) return got == want && std::signbit(got) == std::signbit(want);
  if (std::isinf(want) || std::isinf(got)) return got == want;
  return std::fabs(got - want) <= bound.ulps * unit_at(want, dtype) + bound.atol;
}

// complex64 as float32 with one more dimension.
inline Tensor as_real(const Tensor& tensor) {
  if (tensor.dtype != DType::kComplex64) return tensor;
  Tensor real{DType::kFloat32, tensor.sizes, tensor.strides, tensor.offset * 2, tensor.storage};
  for (std::int64_t& stride : real.strides) stride *= 2;
  real.sizes.push_back(2);
  real.strides.push_back(1);
  return real;
}

// An empty string, or what differs.
inline std::string compare(const Tensor& got_any, const Tensor& want_any, const Bound& bound,
                           std::span<const std::int64_t> only) {
  if (got_any.dtype != want_any.dtype)
    return "dtype " + std::string(info(got_any.dtype).name) + ", expected " +
           std::string(info(want_any.dtype).name);
  if (got_any.sizes != want_any.sizes) return "other sizes";
  const Tensor got = as_real(got_any), want = as_real(want_any);
  const auto begin = only.empty() ? 0 : static_cast<std::size_t>(only[0]);
  const auto end = static_cast<std::size_t>(only.empty() ? got.numel() : only[1]);
  if (cpu::compute_of(got.dtype) == cpu::Compute::kInt) {
    const auto a = cpu::dense<std::int64_t>(got), b = cpu::dense<std::int64_t>(want);
    for (std::size_t i = begin; i < end; ++i)
      if (a[i] != b[i])
        return "element " + std::to_string(i) + ": " + std::to_string(a[i]) + ", expected " +
               std::to_string(b[i]);
    return "";
  }
  const auto a = cpu::dense<double>(got), b = cpu::dense<double>(want);
  for (std::size_t i = begin; i < end; ++i)
    if (!is_close(a[i], b[i], got.dtype, bound)) {
      std::array<char, 200> text{};
      std::snprintf(text.data(), text.size(), "element %zu: %.17g, expected %.17g (%.3g ulp)", i, a[i], b[i],
                    std::fabs(a[i] - b[i]) / unit_at(b[i], got.dtype));
      return text.data();
    }
  return "";
}

// The results of an op, as many as its schema says or, of a list, as the case says.
inline std::vector<Value> results_of(const Value& value, const OpInfo& op, std::size_t wanted) {
  const bool is_list = op.schema.ends_with("[]");
  EPWEAVE_CHECK(value.is<List>() == (is_list || op.returns.size() > 1));
  if (!value.is<List>()) return {value};
  EPWEAVE_CHECK(value.items().size() == (is_list ? wanted : op.returns.size()));
  return value.items();
}

// The bytes of each tensor's storage, lists flattened.
inline void collect_storages(const Value& value, std::vector<std::shared_ptr<Storage>>& storages) {
  if (value.is_tensor())
    storages.push_back(value.tensor().storage);
  else if (value.is<List>())
    for (const Value& item : value.items()) collect_storages(item, storages);
}
inline std::vector<std::byte> bytes_in(const Storage& storage) {
  return {storage.data(), storage.data() + storage.bytes()};
}

// "" or which parameter was written that the op's schema says is only read.
inline std::string find_written_read_only(const OpInfo& op, const std::vector<Value>& args,
                                          const std::vector<std::vector<std::byte>>& before) {
  std::size_t next = 0;
  for (std::size_t i = 0; i < args.size(); ++i) {
    std::vector<std::shared_ptr<Storage>> storages;
    collect_storages(args[i], storages);
    for (const auto& storage : storages)
      if (bytes_in(*storage) != before[next++] && !op.params[i].is_written)
        return "writes parameter " + std::to_string(i);
  }
  return "";
}

// What a case says of the results.
inline std::string compare_results(CaseReader& reader, const Json& json, const std::vector<Value>& args,
                                   const std::vector<Value>& results) {
  const Json& expected = json.at("results");
  if (results.size() < expected.size()) return "fewer results than expected";
  const Bound bound{json.value("ulps", 0.0), json.value("atol", 0.0)};
  const Extents only = json.value("only", Extents{});
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const Value want = reader.value(expected[i]);
    if (!want.is_tensor()) {
      if (results[i].is_tensor()) return "result " + std::to_string(i) + " is none of PyTorch's";
      continue;
    }
    const Tensor& got = results[i].tensor();
    check_bounds(got);
    if (json.contains("layouts")) {  // of uninitialised values
      if (got.dtype != want.tensor().dtype) return "another dtype";
      if (got.sizes != want.tensor().sizes) return "other sizes";
      if (got.strides != json["layouts"][i].get<Extents>()) return "other strides";
      continue;
    }
    const std::string difference = compare(got, want.tensor(), bound, only);
    if (!difference.empty()) return "result " + std::to_string(i) + ", " + difference;
    if (json.contains("strides")) {
      if (got.storage != args[0].tensor().storage) return "not a view";
      if (got.strides != json["strides"][i].get<Extents>()) return "other strides";
    }
  }
  return "";
}

// The written argument's storage, gaps included, must be what torch left.
inline std::string compare_written(Memory& memory, const Json& json, const Tensor& self) {
  const std::vector<std::byte> after = bytes_of(json["after"].get<std::string>());
  const auto count = static_cast<std::int64_t>(after.size() / self.element_bytes());
  Tensor want{self.dtype, {count}, {1}, 0, memory.allocate(after.size())};
  std::copy(after.begin(), after.end(), want.storage->data());
  const Bound bound{json.value("ulps", 0.0), json.value("atol", 0.0)};
  const std::string difference = compare(Tensor{self.dtype, {count}, {1}, 0, self.storage}, want, bound, {});
  return difference.empty() ? "" : "the written argument, " + difference;
}

// The tensors of an `out` list.
inline std::string compare_out(CaseReader& reader, const Json& json, const Value& out) {
  const Bound bound{json.value("ulps", 0.0), json.value("atol", 0.0)};
  for (std::size_t i = 0; i < json["out"].size(); ++i)
    if (const std::string difference =
            compare(out.items()[i].tensor(), reader.tensor(json["out"][i]["tensor"]), bound, {});
        !difference.empty())
      return "output " + std::to_string(i) + ", " + difference;
  return "";
}

// Results as a graph records them: the case's, with strides that a kernel does not choose by
// itself.
inline std::vector<ResultType> recorded_results(CaseReader& reader, const Json& json) {
  std::vector<ResultType> recorded;
  for (const Json& each : json.at("results")) {
    const Value value = reader.value(each);
    ResultType type;
    if (value.is_tensor()) {
      const Tensor& tensor = value.tensor();
      Extents strides(tensor.rank(), 1);
      for (std::size_t d = 1; d < strides.size(); ++d)
        strides[d] = strides[d - 1] * std::max<std::int64_t>(tensor.sizes[d - 1], 1);
      if (json.contains("recorded")) strides = json["recorded"][recorded.size()].get<Extents>();
      type = {true, tensor.dtype, tensor.sizes, strides, 0};
    }
    recorded.push_back(std::move(type));
  }
  return recorded;
}

// Whether the results are new storage with the recorded strides. The ops named give rows in order,
// as PyTorch does whatever their operands' strides are.
inline bool makes_results(const Json& json) {
  static const std::set<std::string> kRowMajor = {
      "aten._reshape_copy.default",  "aten.view_copy.default",        "aten.reshape.default",
      "aten.repeat.default",         "aten.argsort.default",          "aten.argsort.stable",
      "aten.empty_permuted.default", "aten.new_empty_strided.default"};
  if (kRowMajor.contains(json.at("op").get<std::string>())) return false;
  for (const char* other : {"after", "strides", "out", "only"})
    if (json.contains(other)) return false;
  return !json.value("is_refused", false);
}

// The result has the recorded strides, unless it is an argument's storage.
inline std::string compare_layouts(const std::vector<Value>& results, const std::vector<ResultType>& recorded,
                                   const std::vector<std::shared_ptr<Storage>>& arguments) {
  for (std::size_t i = 0; i < recorded.size(); ++i) {
    if (!recorded[i].is_tensor) continue;
    const Tensor& got = results[i].tensor();
    if (std::find(arguments.begin(), arguments.end(), got.storage) != arguments.end()) continue;
    for (std::size_t d = 0; d < got.rank(); ++d)
      if (got.sizes[d] > 1 && got.numel() > 0 && got.strides[d] != recorded[i].strides[d])
        return "result " + std::to_string(i) + " has not the recorded strides";
  }
  return "";
}

// How a case is run: as a graph that recorded its results would, or as one that did not.
enum class Results : std::uint8_t { kUnknown, kRecorded };

// "" or how the kernel differs from PyTorch.
inline std::string run_case(const KernelTable& table, const Json& json, Results mode) {
  HostMemory memory(HostMemory::Fill::kPoison);
  CaseReader reader(memory, calls_of(table, memory));
  const OpInfo* op = find_op(json.at("op").get<std::string>());
  if (op == nullptr) return "no row in the op table";
  const KernelFn kernel = table.find(*op);
  if (kernel == nullptr) return "no kernel";
  std::vector<Value> args;
  for (const Json& arg : json.at("args")) args.push_back(reader.value(arg));
  if (args.size() != op->params.size()) return "the case has another number of parameters than the op";
  std::vector<std::shared_ptr<Storage>> storages;
  for (const Value& arg : args) collect_storages(arg, storages);
  std::vector<std::vector<std::byte>> before;
  for (const auto& storage : storages) before.push_back(bytes_in(*storage));
  KernelCall call(*op, args, ~0u, memory);
  if (json.value("is_refused", false)) {
    try {
      kernel(call);
    } catch (const KernelError&) {
      return "";
    }
    return "takes what PyTorch refuses";
  }
  std::vector<ResultType> recorded;
  if (mode == Results::kRecorded) recorded = recorded_results(reader, json);
  call.set_results(recorded);
  const std::vector<Value> results = results_of(kernel(call), *op, json.at("results").size());
  if (mode == Results::kRecorded && json.contains("layouts"))
    return compare_layouts(results, recorded, storages);
  std::string difference = compare_results(reader, json, args, results);
  if (difference.empty()) difference = compare_layouts(results, recorded, storages);
  if (difference.empty() && json.contains("after"))
    difference = compare_written(memory, json, args[0].tensor());
  if (difference.empty() && json.contains("out")) difference = compare_out(reader, json, args.back());
  if (difference.empty()) difference = find_written_read_only(*op, args, before);
  return difference;
}
// A case that says how its results are recorded ("recorded": strides of each) is run so only.
inline std::string run_case(const KernelTable& table, const Json& json) {
  if (json.contains("recorded")) return run_case(table, json, Results::kRecorded);
  std::string difference = run_case(table, json, Results::kUnknown);
  if (!difference.empty() || !makes_results(json)) return difference;
  difference = run_case(table, json, Results::kRecorded);
  return difference.empty() ? "" : "with its results recorded: " + difference;
}

}  // namespace epweave::replay
