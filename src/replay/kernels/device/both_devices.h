// Runs an op by the CPU's kernel and by the device's and compares bits. For tests: on the emulated
// device, or on the GPU where EPWEAVE_TEST_DEVICE is `cuda`.
#pragma once

#include <catch2/catch.hpp>
#include <cstring>
#include <map>

#include "replay/kernels/device/testing/run_case.h"
#include "replay/kernels/host/elements.h"
#include "replay/kernels/shared/queue.h"

namespace epweave::replay {

inline Steps one_stream() {
  Steps steps;
  steps.streams = {"compute"};
  steps.has_high_priority = {false};
  return steps;
}

inline Device& tested_device() {
  static const std::unique_ptr<Device> device = open_tested_device();
  return *device;
}

// A run of one rank on the device.
class OnDevice {
 public:
  OnDevice() : run_(tested_device().start({one_stream(), 1, HostMemory::Fill::kPoison})) {}
  RankDevice& rank() { return run_->rank(0); }
  std::size_t peak_bytes() const { return run_->peak_bytes(); }

  Value place(const Value& value) {
    if (value.is_tensor()) return place_shared(value.tensor());
    if (!value.is<List>()) return value;
    List list = value.as<List>();
    for (Value& item : list.items) item = place(item);
    return list;
  }
  Value download(const Value& value) {
    if (value.is_tensor()) return rank().download(value.tensor());
    if (!value.is<List>()) return value;
    List list = value.as<List>();
    for (Value& item : list.items) item = download(item);
    return list;
  }
  // What the kernels refused since the last call; "" if nothing.
  std::string fault() {
    rank().synchronize();
    const auto found = rank().take_fault();
    return found ? found->problem : "";
  }

 private:
  // Tensors that share storage share it on the device too.
  Tensor place_shared(const Tensor& host) {
    std::shared_ptr<Storage>& storage = placed_[host.storage];
    if (storage == nullptr) storage = rank().memory().place(host).storage;
    Tensor tensor = host;
    tensor.storage = storage;
    return tensor;
  }

  std::unique_ptr<DeviceRun> run_;
  std::map<std::shared_ptr<Storage>, std::shared_ptr<Storage>> placed_;
};

inline const Tensor* find_tensor(const std::vector<Value>& values) {
  for (const Value& value : values) {
    if (value.is_tensor()) return &value.tensor();
    if (!value.is<List>()) continue;
    if (const Tensor* inside = find_tensor(value.items())) return inside;
  }
  return nullptr;
}
// An op of a nested graph, on the device of its arguments.
inline Value call_where_args_are(const OpInfo& op, const std::vector<Value>& args) {
  static const KernelTable cpu = make_cpu_kernels();
  static HostMemory host;
  const Tensor* tensor = find_tensor(args);
  Queue* queue = tensor == nullptr ? nullptr : tensor->storage->queue();
  auto* memory = queue == nullptr ? &host : dynamic_cast<Memory*>(queue);
  KernelCall call(op, args, ~0u, *memory);
  call.set_nested();
  return (queue == nullptr ? cpu : tested_device().kernels()).find(op)(call);
}

inline bool is_nan(const std::byte* element, DType dtype) {
  switch (dtype) {
    case DType::kFloat32: {
      float x;
      std::memcpy(&x, element, sizeof x);
      return x != x;
    }
    case DType::kFloat64: {
      double x;
      std::memcpy(&x, element, sizeof x);
      return x != x;
    }
    case DType::kFloat16:
    case DType::kBfloat16: {
      std::uint16_t bits;
      std::memcpy(&bits, element, sizeof bits);
      return (bits & 0x7fffu) > (dtype == DType::kFloat16 ? 0x7c00u : 0x7f80u);
    }
    default:
      return false;
  }
}

// "" or what differs. A NaN is a NaN, whatever its bits.
inline std::string compare_bits(const Tensor& a, const Tensor& b) {
  if (a.dtype != b.dtype) return "dtypes";
  if (a.sizes != b.sizes) return "sizes";
  if (a.strides != b.strides) return "strides";
  const std::size_t width = a.dtype == DType::kComplex64 ? 4 : a.element_bytes();
  const DType part = a.dtype == DType::kComplex64 ? DType::kFloat32 : a.dtype;
  std::vector<std::byte> x(static_cast<std::size_t>(a.numel()) * a.element_bytes()), y(x.size());
  gather_elements(a, x.data());
  gather_elements(b, y.data());
  for (std::size_t at = 0; at < x.size(); at += width) {
    if (std::memcmp(x.data() + at, y.data() + at, width) == 0) continue;
    if (is_nan(x.data() + at, part) && is_nan(y.data() + at, part)) continue;
    return "element " + std::to_string(at / width);
  }
  return "";
}
inline std::string compare_bits(const Value& a, const Value& b) {
  if (a.is_tensor() != b.is_tensor()) return "a tensor and none";
  if (a.is_tensor()) return compare_bits(a.tensor(), b.tensor());
  if (!a.is<List>()) return "";
  if (!b.is<List>() || a.items().size() != b.items().size()) return "other results";
  for (std::size_t i = 0; i < a.items().size(); ++i)
    if (const std::string difference = compare_bits(a.items()[i], b.items()[i]); !difference.empty())
      return "result " + std::to_string(i) + ": " + difference;
  return "";
}

// What was asked for and not given stays poison, whatever strides it has.
inline bool is_uninitialised(std::string_view target) {
  return target.find("empty") != std::string_view::npos;
}

struct Outcome {
  Value result;
  std::string error;
};
inline Outcome run_kernel(const KernelTable& table, const OpInfo& op, const std::vector<Value>& args,
                          Memory& memory) {
  KernelCall call(op, args, ~0u, memory);
  try {
    return {table.find(op)(call), ""};
  } catch (const std::exception& error) {
    return {{}, error.what()};
  }
}

// Runs the op on the CPU and on the device: results and arguments (some are written) must be the
// same bits. "" or what differs; "refused" where both refuse. `peak_bytes`: of the device's memory,
// arguments and results included.
inline std::string run_both(const OpInfo& op, const std::vector<Value>& args,
                            std::size_t* peak_bytes = nullptr) {
  static const KernelTable cpu = make_cpu_kernels();
  OnDevice on_device;
  HostMemory memory(HostMemory::Fill::kPoison);
  const Value all = Value::list(args);
  const Value placed = on_device.place(all);
  const Outcome device = run_kernel(tested_device().kernels(), op, placed.items(), on_device.rank().memory());
  const std::string fault = device.error.empty() ? on_device.fault() : device.error;
  const Value result = on_device.download(device.result), after = on_device.download(placed);
  const Outcome host = run_kernel(cpu, op, args, memory);
  if (peak_bytes != nullptr) *peak_bytes = on_device.peak_bytes();
  if (host.error.empty() != fault.empty())
    return "the CPU says '" + host.error + "', the device '" + fault + "'";
  if (!host.error.empty()) return "refused";
  if (is_uninitialised(op.target)) return "";
  if (std::string difference = compare_bits(host.result, result); !difference.empty()) return difference;
  if (std::string difference = compare_bits(all, after); !difference.empty())
    return "arguments: " + difference;
  return "";
}
inline std::string run_both(const char* target, const std::vector<Value>& args,
                            std::size_t* peak_bytes = nullptr) {
  const OpInfo* op = find_op(target);
  REQUIRE(op != nullptr);
  REQUIRE(op->params.size() == args.size());
  return run_both(*op, args, peak_bytes);
}

// Values spread over [-1, 1], never the same twice.
class Random {
 public:
  Tensor tensor(Extents sizes, DType dtype = DType::kFloat32) {
    Tensor tensor = make_tensor(memory_, dtype, std::move(sizes));
    Buffer<float> values(static_cast<std::size_t>(tensor.numel()));
    for (float& value : values) {
      state_ = state_ * 6364136223846793005u + 1442695040888963407u;
      value = static_cast<float>(static_cast<std::int32_t>(state_ >> 33)) / 1073741824.0f - 1.0f;
    }
    cpu::store_dense(values, tensor);
    return tensor;
  }
  Tensor integers(const std::vector<std::int64_t>& values, Extents sizes, DType dtype = DType::kInt64) {
    Tensor tensor = make_tensor(memory_, dtype, std::move(sizes));
    cpu::store_dense(Buffer<std::int64_t>(values.begin(), values.end()), tensor);
    return tensor;
  }

 private:
  HostMemory memory_;
  std::uint64_t state_ = 1;
};

}  // namespace epweave::replay
