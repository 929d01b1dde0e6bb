#include "io/pt2/pt2_types.h"

#include <array>
#include <span>

#include "io/pt2/srepr.h"

namespace epweave {
namespace {

struct Number {
  std::int64_t number;
  std::string_view name;
};

// torch/_export/serde/schema.py
constexpr std::array kDTypes = {
    Number{1, "torch.uint8"},
    Number{2, "torch.int8"},
    Number{3, "torch.int16"},
    Number{4, "torch.int32"},
    Number{5, "torch.int64"},
    Number{6, "torch.float16"},
    Number{7, "torch.float32"},
    Number{8, "torch.float64"},
    Number{9, "torch.complex32"},
    Number{10, "torch.complex64"},
    Number{11, "torch.complex128"},
    Number{12, "torch.bool"},
    Number{13, "torch.bfloat16"},
    Number{28, "torch.uint16"},
    Number{29, "torch.float8_e4m3fn"},
    Number{30, "torch.float8_e5m2"},
    Number{31, "torch.float8_e4m3fnuz"},
    Number{32, "torch.float8_e5m2fnuz"},
    Number{33, "torch.float8_e8m0fnu"},
    Number{34, "torch.uint32"},
    Number{35, "torch.uint64"},
};
constexpr std::array kLayouts = {
    Number{1, "torch.sparse_coo"}, Number{2, "torch.sparse_csr"}, Number{3, "torch.sparse_csc"},
    Number{4, "torch.sparse_bsr"}, Number{5, "torch.sparse_bsc"}, Number{6, "torch._mkldnn"},
    Number{7, "torch.strided"},
};
constexpr std::array kMemoryFormats = {
    Number{1, "torch.contiguous_format"},
    Number{2, "torch.channels_last"},
    Number{3, "torch.channels_last_3d"},
    Number{4, "torch.preserve_format"},
};

std::string_view find_name(const JsonReader& json, const Json& value, std::span<const Number> numbers) {
  const std::int64_t number = json.as_integer(value);
  for (const Number& known : numbers)
    if (known.number == number) return known.name;
  json.fail(fmt::format("{} is not a number of torch's like that of {}", number, numbers.back().name));
}

}  // namespace

std::string_view pt2_dtype(const JsonReader& json, const Json& value) {
  return find_name(json, value, kDTypes);
}
std::string_view pt2_layout(const JsonReader& json, const Json& value) {
  return find_name(json, value, kLayouts);
}
std::string_view pt2_memory_format(const JsonReader& json, const Json& value) {
  return find_name(json, value, kMemoryFormats);
}

std::string pt2_device(const JsonReader& json, const Json& value) {
  const std::string& type = json.text(value, "type");
  const Json* const index = json.find(value, "index");
  return index == nullptr ? type : fmt::format("{}:{}", type, json.as_integer(*index));
}

ExprId Pt2Types::expression(const Json& value) {
  const std::string text = expression_of_srepr(json_.text(value, "expr_str"));
  try {
    const ExprId expr = context_.exprs.parse(text);
    note_symbols(expr, json_.find(value, "hint"));
    return expr;
  } catch (const InputError& error) {
    json_.fail(error.what());
  }
}

void Pt2Types::note_symbols(ExprId expr, const Json* hint) {
  for (const StringId name : context_.exprs.symbols(expr)) {
    const auto [known, is_new] = symbol_of_.try_emplace(name, symbols_.size());
    if (is_new) {
      Symbol symbol;
      symbol.name = name;
      // As torch.fx.experimental.symbolic_shapes names them.
      const std::string_view text = context_.text(name);
      symbol.unbacked = text.starts_with('u') || text.starts_with("zuf");
      symbols_.push_back(std::move(symbol));
    }
    if (hint == nullptr || context_.exprs.text(expr) != context_.text(name)) continue;
    const auto [kind, number] = json_.as_union(*hint);
    if (kind == "as_int") symbols_[known->second].hint = json_.as_integer(number);
  }
}

ExprId Pt2Types::extent(const Json& value) {
  const auto [kind, what] = json_.as_union(value);
  if (kind == "as_int") return context_.exprs.number(json_.as_integer(what));
  if (kind != "as_expr") json_.fail(fmt::format("a size cannot be '{}'", kind));
  const ExprId expr = expression(what);
  const auto number = context_.exprs.constant(expr);
  return number ? context_.exprs.number(*number) : expr;
}

TypeId Pt2Types::tensor(const Json& meta) {
  TensorType tensor;
  tensor.dtype = *find_dtype(pt2_dtype(json_, json_.field(meta, "dtype")));
  for (const Json& size : json_.array(meta, "sizes")) tensor.sizes.push_back(extent(size));
  tensor.requires_grad = json_.as_bool(json_.field(meta, "requires_grad"));
  tensor.device = context_.strings.intern(pt2_device(json_, json_.field(meta, "device")));
  const std::string_view layout = pt2_layout(json_, json_.field(meta, "layout"));
  if (layout != "torch.strided") {
    tensor.layout = context_.strings.intern(layout);
    return context_.types.tensor(std::move(tensor));
  }
  for (const Json& stride : json_.array(meta, "strides")) tensor.strides.push_back(extent(stride));
  if (tensor.strides.size() != tensor.sizes.size())
    json_.fail(
        fmt::format("a tensor has {} sizes but {} strides", tensor.sizes.size(), tensor.strides.size()));
  const ExprId offset = extent(json_.field(meta, "storage_offset"));
  if (context_.exprs.constant(offset) != 0) tensor.offset = offset;
  return context_.types.tensor(std::move(tensor));
}

TypeId Pt2Types::scalar(const Json& value, std::string_view py_type) {
  const auto [kind, what] = json_.as_union(value);
  if (kind == "as_expr")
    return context_.types.intern(
        {.kind = TypeKind::kScalar, .expr = expression(what), .py_type = context_.strings.intern(py_type)});
  Type type{.kind = TypeKind::kValue};
  if (kind == "as_int") {
    type.value = Arg::integer(json_.as_integer(what));
  } else if (kind == "as_float") {
    type.value = Arg::real(json_.as_real(what));
  } else if (kind == "as_bool") {
    type.value = Arg::boolean(json_.as_bool(what));
  } else {
    json_.fail(fmt::format("a symbolic scalar cannot be '{}'", kind));
  }
  return context_.types.intern(std::move(type));
}

std::vector<Symbol> Pt2Types::symbols(const Json& range_constraints) {
  for (Symbol& symbol : symbols_) {
    const Json* const range = json_.find(range_constraints, std::string(context_.text(symbol.name)).c_str());
    if (range == nullptr) continue;
    const Json* const lower = json_.find(*range, "min_val");
    const Json* const upper = json_.find(*range, "max_val");
    symbol.lower = lower ? context_.exprs.number(json_.as_integer(*lower)) : context_.exprs.parse("-int_oo");
    symbol.upper = upper ? context_.exprs.number(json_.as_integer(*upper)) : context_.exprs.parse("int_oo");
  }
  return std::move(symbols_);
}

}  // namespace epweave
