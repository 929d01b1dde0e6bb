#include "passes/symbol_types.h"

#include <fmt/format.h>

#include <algorithm>

#include "analysis/merge_types.h"
#include "ops/bind.h"
#include "ops/op.h"
#include "ops/type_rules.h"
#include "passes/pass.h"

namespace epweave {
namespace {

// view(x, [32, -1])
bool has_open_size(const Context& context, const Node& node) {
  for (Arg arg : context.args[node.args])
    if (arg.is_list())
      for (Arg item : context.args.children(arg))
        if (item.is_int() && item.as_int() == -1) return true;
  return false;
}

}  // namespace

ExprId TokenSymbol::extent(Facts& facts, Rational factor) const {
  const Rational multiple = Rational::of(factor.num * tokens, factor.den);
  return facts.expr(facts.pool().scale(facts.pool().poly_symbol(name), multiple));
}

SymbolTypes::SymbolTypes(const Graph& before, Graph& graph, const ScalingFactors& factors, TokenSymbol symbol)
    : before_(before),
      graph_(graph),
      context_(*graph.context),
      body_(graph.step()),
      factors_(factors),
      symbol_(symbol),
      facts_(graph),
      facts_before_(before) {}

TypeId SymbolTypes::find(NodeId id, bool has_new_sizes) {
  const Node& node = body_.nodes[id];
  const ScalingFactors::Dimensions& dimensions = factors_.of[id];
  if (!node.type || node.kind == NodeKind::kOutput) return node.type;
  const bool is_call = node.kind == NodeKind::kCall && has_type_rule(node);
  if (dimensions.tensors.empty() && !(is_call && (has_new_sizes || has_new_input(id)))) return node.type;
  TypeId inferred;
  if (is_call) {
    try {
      inferred = infer(node);
    } catch (const TypeMismatch& error) {
      refuse_untyped_input(id);
      fail_type(id, error.what());
    }
  }
  return merge_types(context_, node.type, inferred, [&](std::size_t element, TypeId recorded, TypeId found) {
    return merge(id, element, recorded, found);
  });
}

// Of a call that the op table does not have, and whose type the graph does not record.
void SymbolTypes::refuse_untyped_input(NodeId id) {
  for_each_input(context_, body_.nodes[id], [&](NodeId input) {
    const Node& call = body_.nodes[input];
    if (call.kind != NodeKind::kCall || call.type) return;
    throw PassError("symbolize.no-type",
                    fmt::format("it has no recorded type, which the type of '{}' follows from",
                                graph_.text(body_.nodes[id].name)),
                    site_of(graph_, call),
                    "export the graph with types: a custom op has them where torch.library.register_fake "
                    "says its results");
  });
}

bool SymbolTypes::has_new_input(NodeId id) {
  bool any = false;
  for_each_input(context_, body_.nodes[id], [&](NodeId input) {
    any |=
        !before_.step().nodes.contains(input) || body_.nodes[input].type != before_.step().nodes[input].type;
  });
  return any;
}

TypeId SymbolTypes::infer(const Node& call) {
  return infer_type(facts_, graph_, body_, call);
}

// The recorded type with what scales.
TypeId SymbolTypes::merge(NodeId id, std::size_t element, TypeId recorded, TypeId inferred) {
  if (tensor_of(context_, recorded) == nullptr) return merge_number(recorded, inferred);
  return merge_tensor(id, element, recorded, tensor_of(context_, inferred));
}

// A size: `max_q` of attention, or one that is read of an input and was a number.
TypeId SymbolTypes::merge_number(TypeId recorded, TypeId inferred) {
  if (!inferred || context_.types[inferred].kind != TypeKind::kScalar) return recorded;
  const Type& before = context_.types[recorded];
  const bool had_symbols = before.kind == TypeKind::kScalar && mentions_symbols(before.expr);
  const bool is_known = !had_symbols || is_traced_number(before.expr, context_.types[inferred].expr);
  return is_known ? inferred : recorded;
}

TypeId SymbolTypes::merge_tensor(NodeId id, std::size_t element, TypeId recorded,
                                 const TensorType* inferred) {
  const TensorType* before = tensor_of(context_, recorded);
  const auto& tensors = factors_.of[id].tensors;
  if (inferred != nullptr && inferred->rank() != before->rank()) inferred = nullptr;
  TensorType after = *before;
  bool is_as_inferred = inferred != nullptr;
  for (std::size_t dim = 0; dim < after.rank(); ++dim) {
    if (element < tensors.size() && tensors[element][dim] && !mentions_symbols(before->sizes[dim]))
      after.sizes[dim] = extent(*tensors[element][dim]);
    if (inferred != nullptr)
      is_as_inferred &= merge_extent(id, dim, before->sizes[dim], inferred->sizes[dim], after.sizes[dim]);
  }
  if (after.sizes == before->sizes && !(is_as_inferred && has_token(inferred->strides))) return recorded;
  if (is_as_inferred) {
    after.strides = inferred->strides;
    after.offset = inferred->offset;
  } else {
    after.strides = laid_out(id, *before, after.sizes);
  }
  return after == *before ? recorded : context_.types.tensor(std::move(after));
}

// False: the extent, `after`, stays another than what the arguments give.
bool SymbolTypes::merge_extent(NodeId id, std::size_t dim, ExprId before, ExprId inferred, ExprId& after) {
  if (facts_.equal(inferred, after)) return true;
  if (is_traced_number(before, inferred)) {
    after = inferred;
    return true;
  }
  // Two multiples and sums of the symbol that differ are equal for the traced number only.
  const bool both_scale = mentions_symbols(inferred) && mentions_symbols(after);
  if (both_scale || facts_.hint(inferred) != facts_.hint(after))
    fail_type(id, fmt::format("extent {} is {}, the arguments give {}", dim, context_.exprs.text(after),
                              context_.exprs.text(inferred)));
  if (after == before && is_multiple(inferred)) {
    after = inferred;
    return true;
  }
  ++borders_;
  return false;
}

// Whether the extent, which was recorded with symbols, is this number by what was known of them.
// torch writes what -1 stands for in view(rows : [u0 + u1, 16], [32, 2, -1]) as (u0 + u1)//4, and
// u0 + u1 was 64: the 16 of the rows, not a share of the tokens.
bool SymbolTypes::is_traced_number(ExprId recorded, ExprId inferred) {
  const auto number = context_.exprs.constant(inferred);
  return number && mentions_symbols(recorded) &&
         context_.exprs.constant(facts_before_.normalize(recorded)) == number;
}

// Whether it is a multiple of the symbol. The last of some literal pieces, s0 - 896, is not: it
// stays the number that it is.
bool SymbolTypes::is_multiple(ExprId extent) {
  const Poly& poly = context_.exprs[facts_.normalize(extent)];
  if (poly.terms.size() != 1 || poly.terms[0].atoms.size() != 1) return false;
  const Atom& atom = context_.exprs[poly.terms[0].atoms[0]];
  return atom.kind == AtomKind::kSymbol && atom.name == symbol_.name;
}

bool SymbolTypes::has_token(std::span<const ExprId> extents) const {
  return std::ranges::any_of(extents, [&](ExprId extent) {
    return std::ranges::count(context_.exprs.symbols(extent), symbol_.name) > 0;
  });
}

// Strides in the same order as before, dense as before.
Dims SymbolTypes::laid_out(NodeId id, const TensorType& before, std::span<const ExprId> sizes) {
  if (is_contiguous(facts_, layout_of(before))) return contiguous_strides(facts_, sizes);
  if (!is_dense(facts_, layout_of(before)))
    fail_type(id, "its layout has gaps, and how they scale is not known");
  return filled_strides(facts_, sizes, fill_order(facts_, before.strides, Ties::kFirstInside));
}

void SymbolTypes::fail_type(NodeId id, std::string_view problem) {
  throw PassError("symbolize.type",
                  fmt::format("with a symbol for the token count this does not type-check: {}", problem),
                  site_of(graph_, body_.nodes[id]),
                  has_open_size(context_, body_.nodes[id])
                      ? "write the size that the model gives as -1"
                      : "trace the model with symbolic sizes, or name other inputs "
                        "(symbolize{inputs=[...]})");
}

}  // namespace epweave
