// What a node's value is while it is executed: a tensor, a number, a list of such, or plain data.
#pragma once

#include <complex>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "replay/values/tensor.h"

namespace epweave::replay {

class Value;

// A str, device ("cuda:0"), layout, memory format ("torch.channels_last"), process group, or the
// repr of something that only passes through.
struct Text {
  ArgKind kind = ArgKind::kText;
  std::string text;
};

struct List {
  bool is_tuple = false;
  std::vector<Value> items;
};

struct Dict {
  std::vector<std::pair<Value, Value>> items;
};

// A nested graph as a function. FlexAttention's score and mask functions are written for one pair
// of a query and a key; here they are called with arguments broadcast against each other instead,
// for many pairs at once:
//   mask(b [B,1,1,1], h [1,H,1,1], q [1,1,Q,1], kv [1,1,1,K], captured...)
// gives one tensor broadcastable to [B,H,Q,K]. Every op in it is elementwise in the pairs, or
// indexes a captured tensor by them. Safe to call for one block of pairs at a time.
struct Function {
  std::string name;
  std::size_t params = 0;
  std::function<Value(std::span<const Value>)> call;
  std::optional<std::size_t> returned_param =
      std::nullopt;  // that the first result is, unchanged, if it is one
};

struct None {};

class Value {
 public:
  using Variant = std::variant<None, bool, std::int64_t, double, std::complex<double>, DType, Text, Tensor,
                               List, Dict, Function>;

  Value() = default;
  template <class T>
  requires(!std::is_same_v<std::remove_cvref_t<T>, Value>) Value(T&& value)
      : data_(std::forward<T>(value)) {}  // NOLINT: every alternative is a value
  static Value list(std::vector<Value> items) { return List{false, std::move(items)}; }
  static Value tuple(std::vector<Value> items) { return List{true, std::move(items)}; }

  template <class T>
  bool is() const {
    return std::holds_alternative<T>(data_);
  }
  bool is_none() const { return is<None>(); }
  bool is_tensor() const { return is<Tensor>(); }
  bool is_number() const { return is<bool>() || is<std::int64_t>() || is<double>(); }

  // Each throws CheckError if the value is something else; the caller reports the node.
  template <class T>
  const T& as() const {
    const T* value = std::get_if<T>(&data_);
    if (value == nullptr) fail_kind();
    return *value;
  }
  const Tensor& tensor() const { return as<Tensor>(); }
  const std::vector<Value>& items() const { return as<List>().items; }
  std::int64_t integer() const;                // int or bool
  double real() const;                         // any real number
  bool boolean() const;                        // bool or int
  std::vector<std::int64_t> integers() const;  // a list of int; one int is a list of one
  std::vector<Tensor> tensors() const;         // a list of tensors
  const Variant& variant() const { return data_; }

 private:
  [[noreturn]] void fail_kind() const;
  Variant data_;
};

// The same value, each tensor in it, in lists and dicts, replaced by replace(tensor).
template <class Replace>
Value replace_tensors(const Value& value, const Replace& replace) {
  if (value.is_tensor()) return replace(value.tensor());
  if (value.is<Dict>()) {
    Dict dict = value.as<Dict>();
    for (auto& [key, item] : dict.items) item = replace_tensors(item, replace);
    return dict;
  }
  if (!value.is<List>()) return value;
  List list = value.as<List>();
  for (Value& item : list.items) item = replace_tensors(item, replace);
  return list;
}

}  // namespace epweave::replay
