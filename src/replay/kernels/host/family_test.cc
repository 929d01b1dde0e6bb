// What the row of a family says of elements (ops/family.h), tried by execution on PyTorch's cases
// of every kernel.
#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "ops/family.h"
#include "replay/kernels/host/conformance_cases.h"
#include "replay/kernels/host/elements.h"
#include "replay/kernels/host/kernels.h"

namespace epweave::replay {
namespace {

// The bytes of each element, row-major.
using Bytes = std::vector<std::string>;

void append(Bytes& all, const Tensor& tensor) {
  const std::size_t size = tensor.element_bytes();
  std::string bytes(static_cast<std::size_t>(tensor.numel()) * size, '\0');
  gather_elements(tensor, reinterpret_cast<std::byte*>(bytes.data()));
  for (std::size_t at = 0; at < bytes.size(); at += size) all.push_back(bytes.substr(at, size));
}

Bytes elements_of(const Value& value) {
  Bytes all;
  if (value.is_tensor()) append(all, value.tensor());
  if (value.is<List>())
    for (const Value& item : value.items())
      if (item.is_tensor()) append(all, item.tensor());
  return all;
}

std::string joined(const Bytes& elements) {
  std::string all;
  for (const std::string& element : elements) all += element;
  return all;
}
Bytes sorted(Bytes elements) {
  std::ranges::sort(elements);
  return elements;
}
std::set<std::string> distinct(const Bytes& elements) {
  return {elements.begin(), elements.end()};
}
bool includes(const Bytes& all, const Bytes& some) {
  return std::ranges::includes(sorted(all), sorted(some));
}

// Each is there, or those that are left (of a pad that cuts) are there and one number.
bool are_among(const Bytes& before, const Bytes& after) {
  std::set<std::string> numbers = distinct(after);
  for (const std::string& element : before) numbers.erase(element);
  return includes(after, before) || numbers.size() <= 1;
}

// The elements that a call replaced are those of its other operands, zeros, or one number.
bool replaces_by(const Bytes& before, const Bytes& after, const Bytes& others) {
  if (before.size() != after.size()) return false;
  std::set<std::string> known = distinct(others), numbers;
  for (std::size_t i = 0; i < after.size(); ++i)
    if (after[i] != before[i] && !known.contains(after[i])) numbers.insert(after[i]);
  return numbers.size() <= 1;
}

bool holds(Elements elements, const Bytes& before, const Bytes& after, const Bytes& others) {
  switch (elements) {
    case Elements::kComputed:
    case Elements::kMade:
    case Elements::kChanged:
      return true;
    case Elements::kSame:
      return after == before;
    case Elements::kRetyped:
      return after.size() == before.size() && (after.empty() || after[0].size() != before[0].size() ||
                                               !includes(before, after) || after == before);
    case Elements::kBits:
      return joined(after) == joined(before);
    case Elements::kMoved:
    case Elements::kPieces:
      return sorted(after) == sorted(before);
    case Elements::kRepeated:
      return after.empty() || distinct(after) == distinct(before);
    case Elements::kSome:
    case Elements::kOne:
      return includes(before, after);
    case Elements::kChosen:
      return std::ranges::includes(distinct(before), distinct(after));
    case Elements::kAmong:
      return are_among(before, after);
    case Elements::kReplaced:
      return replaces_by(before, after, others);
  }
  return false;
}

std::set<DType> dtypes_of(const Value& value) {
  std::set<DType> dtypes;
  if (value.is_tensor()) dtypes.insert(value.tensor().dtype);
  if (value.is<List>())
    for (const Value& item : value.items()) dtypes.merge(dtypes_of(item));
  return dtypes;
}

TEST_CASE("results have the elements that their family's row says") {
  const Json cases = read_cases();
  const KernelTable table = make_cpu_kernels();
  std::map<OpFamily, std::size_t> tried;
  for (std::size_t number = 0; const Json& json : cases) {
    const std::string target = json.at("op").get<std::string>();
    const OpInfo* op = find_op(target);
    ++number;
    if (op == nullptr || table.find(*op) == nullptr || json.value("is_refused", false)) continue;
    HostMemory memory{HostMemory::Fill::kPoison};
    CaseReader reader(memory, calls_of(table, memory));
    std::vector<Value> args;
    for (const Json& arg : json.at("args")) args.push_back(reader.value(arg));
    if (args.empty()) continue;
    // Tensors of several dtypes are joined in one that holds them all.
    if (op->family == OpFamily::kJoin && dtypes_of(args[0]).size() > 1) continue;
    const Bytes before = elements_of(args[0]);
    Bytes others;
    for (std::size_t i = 1; i < args.size(); ++i)
      for (std::string& element : elements_of(args[i])) others.push_back(std::move(element));
    KernelCall call(*op, std::move(args), ~0u, memory);
    const Bytes after = elements_of(table.find(*op)(call));
    INFO("case " << number - 1 << " " << target);
    CHECK(holds(traits_of(op->family).elements, before, after, others));
    ++tried[op->family];
  }
  for (const OpInfo& op : ops()) {
    const Elements elements = traits_of(op.family).elements;
    const bool claims = elements != Elements::kComputed && elements != Elements::kMade;
    INFO(op.target);
    // Without cases: elements of tuples. Without a kernel: waits, copies between devices.
    if (claims && op.family != OpFamily::kElement && table.find(op) != nullptr) CHECK(tried[op.family] > 0);
  }
}

}  // namespace
}  // namespace epweave::replay
