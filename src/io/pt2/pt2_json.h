// Reading JSON that may be anything: each access checks what is there and names where it is.
#pragma once

#include <fmt/format.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>

#include "base/error.h"

namespace epweave {

using Json = nlohmann::json;

// Says where in the program what is read stands: "m.pt2: node 'linear'".
class JsonReader {
 public:
  explicit JsonReader(std::string path) : path_(std::move(path)) {}

  void set_place(std::string place) { place_ = std::move(place); }

  [[noreturn]] void fail(std::string_view what) const {
    throw InputError(fmt::format("{}: {}{}{}", path_, place_, place_.empty() ? "" : ": ", what));
  }

  const Json& field(const Json& object, const char* name) const {
    if (const Json* value = find(object, name)) return *value;
    fail(fmt::format("lacks '{}'", name));
  }
  // None where it is absent or null.
  const Json* find(const Json& object, const char* name) const {
    if (!object.is_object()) fail(fmt::format("an object with '{}' is expected", name));
    const auto found = object.find(name);
    return found == object.end() || found->is_null() ? nullptr : &*found;
  }
  const Json& array(const Json& object, const char* name) const { return as_array(field(object, name)); }
  const Json& object(const Json& object, const char* name) const {
    const Json& value = field(object, name);
    if (!value.is_object()) fail(fmt::format("'{}' is no object", name));
    return value;
  }
  const std::string& text(const Json& object, const char* name) const { return as_text(field(object, name)); }
  std::int64_t integer(const Json& object, const char* name) const { return as_integer(field(object, name)); }

  const Json& as_array(const Json& value) const {
    if (!value.is_array()) fail("a list is expected");
    return value;
  }
  const std::string& as_text(const Json& value) const {
    if (!value.is_string()) fail("a string is expected");
    return value.get_ref<const std::string&>();
  }
  std::int64_t as_integer(const Json& value) const {
    if (!value.is_number_integer() || (value.is_number_unsigned() && value.get<std::uint64_t>() > INT64_MAX))
      fail("an integer of 64 bits is expected");
    return value.get<std::int64_t>();
  }
  bool as_bool(const Json& value) const {
    if (!value.is_boolean()) fail("true or false is expected");
    return value.get<bool>();
  }
  // JSON has no infinities: torch writes them as strings.
  double as_real(const Json& value) const {
    if (value.is_number()) return value.get<double>();
    if (value == "Infinity") return HUGE_VAL;
    if (value == "-Infinity") return -HUGE_VAL;
    if (value == "NaN") return std::numeric_limits<double>::quiet_NaN();
    fail("a number is expected");
  }

  // The only field of an object that is not null: torch's unions.
  std::pair<std::string_view, const Json&> as_union(const Json& value) const {
    if (!value.is_object() || value.size() != 1) fail("an object with one field is expected");
    return {value.begin().key(), value.begin().value()};
  }

 private:
  std::string path_;
  std::string place_;
};

}  // namespace epweave
