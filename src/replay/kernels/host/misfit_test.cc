// Kernels of operands that do not fit each other, as a damaged graph may have them: PyTorch's cases
// with one tensor shortened along one dimension. Each call gives something or is refused; the
// sanitizers see whether it stays within its operands.
#include <catch2/catch.hpp>
#include <cstdlib>
#include <cstring>

#include "replay/kernels/host/conformance_cases.h"
#include "replay/kernels/host/kernels.h"

namespace epweave::replay {
namespace {

// Blocks of as many bytes as are asked for, each the heap's own, so that reads beyond them show.
class ExactMemory : public Memory {
 public:
  std::shared_ptr<Storage> allocate(std::size_t bytes) override {
    constexpr std::size_t kAlignment = 64;
    void* data = nullptr;
    REQUIRE(posix_memalign(&data, kAlignment, bytes) == 0);
    if (bytes > 0) std::memset(data, 0xff, bytes);
    return std::make_shared<Storage>(
        data, bytes, [](void* block, std::size_t, void*) { std::free(block); }, nullptr);
  }
  Tensor place(const Tensor& host) override { return host; }
};

using CutTensors = std::vector<std::reference_wrapper<Json>>;

void list_tensors(Json& argument, CutTensors& found) {
  if (!argument.is_object()) return;
  if (argument.contains("tensor")) found.emplace_back(argument["tensor"]);
  if (argument.contains("list"))
    for (Json& item : argument["list"]) list_tensors(item, found);
}

// Whether the call gave something.
bool runs(const KernelTable& table, const OpInfo& op, const Json& args) {
  ExactMemory memory;
  CaseReader reader(memory, calls_of(table, memory));
  std::vector<Value> values;
  for (const Json& arg : args) values.push_back(reader.value(arg));
  KernelCall call(op, std::move(values), ~0u, memory);
  try {
    table.find(op)(call);
    return true;
  } catch (const std::exception&) {
    return false;
  }
}

// The tensor's first indices of a dimension, in memory that holds no more: reads beyond show.
Json shorten(const Json& tensor, std::size_t dim, std::int64_t extent) {
  Json made = tensor;
  made["sizes"][dim] = extent;
  std::int64_t last = made["offset"].get<std::int64_t>();
  for (std::size_t d = 0; d < made["sizes"].size(); ++d)
    last += (made["sizes"][d].get<std::int64_t>() - 1) * made["strides"][d].get<std::int64_t>();
  const std::size_t bytes = info(dtype_named(tensor["dtype"].get<std::string>())).bytes;
  made["data"] = tensor["data"].get<std::string>().substr(0, 2 * bytes * static_cast<std::size_t>(last + 1));
  return made;
}

TEST_CASE("operands that do not fit are refused, or nothing outside of them is read") {
  const KernelTable table = make_cpu_kernels();
  std::size_t ran = 0, refused = 0;
  for (Json& json : read_cases()) {
    const OpInfo* op = find_op(json.at("op").get<std::string>());
    if (op == nullptr || table.find(*op) == nullptr) continue;
    CutTensors tensors;
    for (Json& arg : json["args"]) list_tensors(arg, tensors);
    for (Json& tensor : tensors)
      for (std::size_t d = 0; d < tensor["sizes"].size(); ++d) {
        const auto extents = tensor["sizes"].get<Extents>();
        if (extents[d] < 2 || std::ranges::find(extents, 0) != extents.end()) continue;
        const Json whole = std::exchange(tensor, shorten(tensor, d, extents[d] / 2));
        INFO(op->target << ", dimension " << d);
        ++(runs(table, *op, json["args"]) ? ran : refused);
        tensor = whole;
      }
  }
  CHECK(ran > 1000);
  CHECK(refused > 1000);
}

}  // namespace
}  // namespace epweave::replay
