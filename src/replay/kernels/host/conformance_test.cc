// Every case of testdata/kernels/cases.json (made by scripts/dev/kernel_conformance.py from PyTorch's CPU
// kernels) through our kernels.
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <limits>

#include "replay/kernels/host/conformance_cases.h"
#include "replay/kernels/host/elements.h"
#include "replay/kernels/host/kernels.h"

namespace epweave::replay {
namespace {

// One unit in the last place of `dtype` at x.
double unit_at(double x, DType dtype) {
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

bool is_close(double got, double want, DType dtype, const Bound& bound) {
  if (std::isnan(want) || std::isnan(got)) return std::isnan(want) && std::isnan(got);
  if (bound.ulps == 0 && bound.atol == 0) return got == want && std::signbit(got) == std::signbit(want);
  if (std::isinf(want) || std::isinf(got)) return got == want;
  return std::fabs(got - want) <= bound.ulps * unit_at(want, dtype) + bound.atol;
}

// complex64 as float32 with one more dimension.
Tensor as_real(const Tensor& tensor) {
  if (tensor.dtype != DType::kComplex64) return tensor;
  Tensor real{DType::kFloat32, tensor.sizes, tensor.strides, tensor.offset * 2, tensor.storage};
  for (std::int64_t& stride : real.strides) stride *= 2;
  real.sizes.push_back(2);
  real.strides.push_back(1);
  return real;
}

// An empty string, or what differs.
std::string compare(const Tensor& got_any, const Tensor& want_any, const Bound& bound,
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

std::vector<Value> results_of(const Value& value, std::size_t wanted) {
  if (value.is<List>()) return value.items();
  EPWEAVE_CHECK(wanted == 1);
  return {value};
}

std::string run_case(const KernelTable& table, const Json& json) {
  HostMemory memory(HostMemory::Fill::kPoison);
  CaseReader reader(memory);
  const OpInfo* op = find_op(json.at("op").get<std::string>());
  if (op == nullptr) return "no row in the op table";
  const KernelFn kernel = table.find(*op);
  if (kernel == nullptr) return "no kernel";
  std::vector<Value> args;
  for (const Json& arg : json.at("args")) args.push_back(reader.value(arg));
  if (args.size() != op->params.size()) return "the case has another number of parameters than the op";
  KernelCall call(*op, args, ~0u, memory);
  const Json& expected = json.at("results");
  const std::vector<Value> results = results_of(kernel(call), expected.size());
  if (results.size() < expected.size()) return "fewer results than expected";
  const Bound bound{json.value("ulps", 0.0), json.value("atol", 0.0)};
  const Extents only = json.value("only", Extents{});
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const Value want = reader.value(expected[i]);
    if (!want.is_tensor()) continue;
    const std::string difference = compare(results[i].tensor(), want.tensor(), bound, only);
    if (!difference.empty()) return "result " + std::to_string(i) + ", " + difference;
    check_bounds(results[i].tensor());
    if (json.contains("strides")) {
      if (results[i].tensor().storage != args[0].tensor().storage) return "not a view";
      if (results[i].tensor().strides != json["strides"][i].get<Extents>()) return "other strides";
    }
  }
  if (json.contains("after")) {
    // The storage, gaps included, must be what torch left.
    const std::vector<std::byte> after = bytes_of(json["after"].get<std::string>());
    const Tensor& self = args[0].tensor();
    const auto count = static_cast<std::int64_t>(after.size() / self.element_bytes());
    Tensor want{self.dtype, {count}, {1}, 0, memory.allocate(after.size())};
    std::copy(after.begin(), after.end(), want.storage->data());
    const std::string difference =
        compare(Tensor{self.dtype, {count}, {1}, 0, self.storage}, want, bound, {});
    if (!difference.empty()) return "the written argument, " + difference;
  }
  return "";
}

}  // namespace

TEST_CASE("kernels agree with PyTorch's") {
  const Json cases = read_cases();
  const KernelTable table = make_cpu_kernels();
  std::size_t number = 0;
  for (const Json& json : cases) {
    std::string difference;
    try {
      difference = run_case(table, json);
    } catch (const std::exception& error) {
      difference = std::string("throws: ") + error.what();
    }
    INFO("case " << number << " " << json["op"] << ": " << difference);
    CHECK(difference.empty());
    ++number;
  }
  CHECK(number > 400);
}

}  // namespace epweave::replay
