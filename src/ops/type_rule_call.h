// What a type rule works with: the arguments of one call, bound to the parameters of its op, and
// the types of the values they name. Every accessor throws TypeMismatch, with the op's name in
// front, where an argument is not of the asked kind.
#pragma once

#include <fmt/format.h>

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ir/facts.h"
#include "ir/graph.h"
#include "ir/types/layout.h"
#include "ops/bind.h"
#include "ops/type_rules.h"

namespace epweave {

class TypeRuleCall {
 public:
  TypeRuleCall(Facts& facts_in, const Graph& graph_in, const Body& body_in, const Node& node_in);

  Facts& facts;
  const Graph& graph;
  const Body& body;
  const Node& node;
  Context& context;
  ExprPool& exprs;

  // Arguments, by position of the parameter in the schema. None also where the argument is left
  // out.
  Arg arg(std::size_t param) const { return bound_.values[param]; }
  ExprId bound_symbol();  // the symbol that the node binds (unbacked_bindings), or none
  bool has(std::size_t param) const { return !arg(param).is_none(); }
  std::size_t param_count() const { return node.op->params.size(); }

  const TensorType& tensor(std::size_t param);
  const TensorType* optional_tensor(std::size_t param);  // null for None
  std::vector<const TensorType*> tensors(std::size_t param);
  std::vector<const TensorType*> optional_tensors(std::size_t param);  // null for a None in the list
  std::int64_t integer(std::size_t param);                             // the schema's default where left out
  bool boolean(std::size_t param);
  ExprId extent(std::size_t param);
  Dims extents(std::size_t param);  // one number counts as a list of it
  std::vector<std::int64_t> integers(std::size_t param);
  std::optional<DType> dtype(std::size_t param);  // none for None
  DType dtype_or(std::size_t param, DType fallback) { return dtype(param).value_or(fallback); }
  StringId device_or(std::size_t param, StringId fallback);
  std::size_t dim(std::size_t param, std::size_t rank);  // wrapped; a scalar has dimension 0
  // As dim; a 0-dimensional tensor has a dimension 0.
  std::size_t dim_or_scalar(std::size_t param, std::size_t rank);
  std::vector<std::size_t> dims(std::size_t param, std::size_t rank);

  // Of an argument anywhere in a tree.
  const TensorType& tensor(Arg value);
  ExprId extent(Arg value);
  TypeId type_of(Arg value);  // of a node: its type, computed where none is recorded
  std::span<const Arg> list(Arg value);

  // Results.
  TypeId result(DType dtype, Dims sizes, Dims strides, StringId device, ExprId offset = {});
  TypeId contiguous(DType dtype, Dims sizes, StringId device);
  TypeId view(const TensorType& of, Dims sizes, Dims strides, ExprId offset);  // of the same storage
  TypeId view(const TensorType& of, Dims sizes, Dims strides) {
    return view(of, std::move(sizes), std::move(strides), of.offset);
  }
  TypeId same(const TensorType& tensor);  // the type as it is: what in-place ops and aliases give
  TypeId fresh_like(const TensorType& tensor, DType dtype);  // new storage, memory format preserved
  // As fresh_like, but a contiguous tensor gives fresh strides for its dimensions of extent 1 too.
  TypeId laid_out_like(const TensorType& tensor, DType dtype);
  TypeId fresh_like(const TensorType& tensor) { return fresh_like(tensor, tensor.dtype); }
  // New storage for the extents of `tensor`, laid out as the memory format in this parameter says;
  // preserved where it says nothing.
  TypeId in_memory_format(std::size_t param, const TensorType& tensor, DType dtype, StringId device);
  // New storage with the channels, dimension 1, innermost; and whether they lie so, torch's
  // channels_last: of four or five dimensions, all known.
  TypeId channels_last(DType dtype, Dims sizes, StringId device);
  bool has_channels_last(const Dims& sizes, const Dims& strides);
  TypeId tuple(std::vector<TypeId> elements);
  TypeId list_of(std::vector<TypeId> elements);
  TypeId value(Arg value);  // a value known when traced
  TypeId none() { return value(Arg::none()); }
  TypeId scalar(ExprId expr, std::string_view py_type = "SymInt");

  // Checks that the two are not known to be different numbers.
  void check_equal(ExprId a, ExprId b, std::string_view what);
  void check_rank(const TensorType& tensor, std::size_t rank, std::string_view what);

  template <class... Args>
  [[noreturn]] void mismatch(fmt::format_string<Args...> text, Args&&... args) const {
    fail(fmt::format(text, std::forward<Args>(args)...));
  }
  [[noreturn]] void fail(const std::string& text) const;

  ExprId number(std::int64_t value) { return exprs.number(value); }
  ExprId offset_of(const TensorType& tensor) { return tensor.offset ? tensor.offset : number(0); }
  std::string_view text(ExprId extent) const { return exprs.text(extent); }
  std::string_view name_of(std::size_t param) const { return node.op->params[param].name; }

 private:
  std::string_view default_of(std::size_t param) const;
  std::size_t wrap_dim(std::int64_t dim, std::size_t rank) const;

  BoundArgs bound_;
};

// The shape that the operands broadcast to. Throws TypeMismatch.
Dims broadcast_sizes(TypeRuleCall& call, std::span<const std::span<const ExprId>> shapes);

}  // namespace epweave
