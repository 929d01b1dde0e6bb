// Cases of testdata/kernels/cases.json as arguments of kernels. For tests.
#pragma once

#include <catch2/catch.hpp>
#include <cstdlib>
#include <fstream>
#include <functional>
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

// Runs an op of a nested graph, where its arguments are.
using CallOp = std::function<Value(const OpInfo& op, const std::vector<Value>& args)>;
inline CallOp calls_of(const KernelTable& table, Memory& memory) {
  return [&](const OpInfo& op, const std::vector<Value>& args) {
    KernelCall call(op, args, ~0u, memory);
    call.set_nested();
    return table.find(op)(call);
  };
}

class CaseReader {
 public:
  explicit CaseReader(Memory& memory, CallOp call_op = {}) : memory_(memory), call_op_(std::move(call_op)) {}
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
    if (json.contains("at")) return values_.at(json["at"].get<std::size_t>());
    if (json.contains("dict")) return Dict{};  // only empty ones are written
    if (json.contains("function")) return function(json["function"]);
    std::vector<Value> items;
    for (const Json& item : json.at("list")) items.push_back(value(item));
    return Value::list(std::move(items));
  }

 private:
  // A nested graph: its values are its parameters, then what each step gives; {"at": i} is one.
  //
  //   {"params": 2, "steps": [{"op": "aten.mul.Tensor", "args": [{"at": 0}, {"at": 1}]}], "returns": {"at": 2}}
  Value function(const Json& json) {
    Function made{"case", json.at("params").get<std::size_t>(), {}};
    const Json& returns = json.at("returns");
    const Json& first = returns.contains("list") ? returns["list"].at(0) : returns;
    if (first.at("at") < made.params) made.returned_param = first["at"].get<std::size_t>();
    made.call = [json, run = call_op_, &memory = memory_](std::span<const Value> args) {
      CaseReader reader(memory, run);
      reader.values_.assign(args.begin(), args.end());
      for (const Json& step : json.at("steps")) {
        std::vector<Value> of_step;
        for (const Json& arg : step.at("args")) of_step.push_back(reader.value(arg));
        reader.values_.push_back(run(*find_op(step.at("op").get<std::string>()), of_step));
      }
      return reader.value(json.at("returns"));
    };
    return made;
  }

  Memory& memory_;
  CallOp call_op_;
  std::vector<Value> values_;  // of the nested graph that is run
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
