#include "replay/values/value.h"

namespace epweave::replay {
namespace {

constexpr const char* kKindNames[] = {"None", "a bool",   "an int", "a float", "a complex number", "a dtype",
                                      "text", "a tensor", "a list", "a dict",  "a function"};

}  // namespace

void Value::fail_kind() const {
  throw CheckError(std::string("a kernel asked for another kind of argument than it has: it is ") +
                   kKindNames[data_.index()]);
}

std::int64_t Value::integer() const {
  if (const bool* value = std::get_if<bool>(&data_)) return *value ? 1 : 0;
  return as<std::int64_t>();
}

double Value::real() const {
  if (const double* value = std::get_if<double>(&data_)) return *value;
  return static_cast<double>(integer());
}

bool Value::boolean() const {
  return integer() != 0;
}

std::vector<std::int64_t> Value::integers() const {
  if (!is<List>()) return {integer()};
  std::vector<std::int64_t> values;
  values.reserve(items().size());
  for (const Value& item : items()) values.push_back(item.integer());
  return values;
}

std::vector<Tensor> Value::tensors() const {
  std::vector<Tensor> values;
  values.reserve(items().size());
  for (const Value& item : items()) values.push_back(item.tensor());
  return values;
}

}  // namespace epweave::replay
