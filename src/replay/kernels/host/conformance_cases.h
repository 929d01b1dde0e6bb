// Cases of testdata/kernels/cases.json as arguments of kernels. For tests.
#pragma once

#include <catch2/catch.hpp>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>

#include "replay/kernels/kernel.h"

namespace epweave::replay {

using Json = nlohmann::json;

inline DType dtype_named(const std::string& name) {
  const std::optional<DType> dtype = find_dtype(name);
  REQUIRE(dtype.has_value());
  return *dtype;
}

inline std::vector<std::byte> bytes_of(const std::string& hex) {
  std::vector<std::byte> bytes;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2)
    bytes.push_back(static_cast<std::byte>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  return bytes;
}

class CaseReader {
 public:
  explicit CaseReader(Memory& memory) : memory_(memory) {}
  Tensor tensor(const Json& json) {
    const std::vector<std::byte> bytes = bytes_of(json.at("data").get<std::string>());
    Tensor t;
    t.dtype = dtype_named(json.at("dtype").get<std::string>());
    t.sizes = json.at("sizes").get<Extents>();
    t.strides = json.at("strides").get<Extents>();
    t.offset = json.at("offset").get<std::int64_t>();
    t.storage = memory_.allocate(bytes.size());
    std::copy(bytes.begin(), bytes.end(), t.storage->data());
    check_bounds(t);
    return t;
  }
  Value value(const Json& json) {
    if (json.is_null()) return Value();
    if (json.is_boolean()) return json.get<bool>();
    if (json.is_number_integer()) return json.get<std::int64_t>();
    if (json.contains("f")) return std::stod(json["f"].get<std::string>());
    if (json.contains("dtype")) return dtype_named(json["dtype"].get<std::string>());
    if (json.contains("text")) return Text{ArgKind::kText, json["text"].get<std::string>()};
    if (json.contains("tensor")) return tensor(json["tensor"]);
    std::vector<Value> items;
    for (const Json& item : json.at("list")) items.push_back(value(item));
    return Value::list(std::move(items));
  }

 private:
  Memory& memory_;
};

// EPWEAVE_TESTDATA: where testdata/ is, if not in the sources that this was built from.
inline Json read_cases() {
  const char* given = std::getenv("EPWEAVE_TESTDATA");
  const std::string folder = given != nullptr ? given : EPWEAVE_SOURCE_DIR "/testdata";
  std::ifstream file(folder + "/kernels/cases.json");
  REQUIRE(file.good());
  return Json::parse(file);
}

}  // namespace epweave::replay
