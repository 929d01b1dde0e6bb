#include "analysis/fused_call_nodes.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "ir/types/layout.h"
#include "ops/bind.h"
#include "ops/may_copy.h"
#include "ops/op.h"
#include "ops/rules.h"
#include "ops/type_rules.h"

namespace epweave {
namespace {

using Text = FusedCallNodes::Text;

Arg integer(std::size_t number) {
  return Arg::integer(static_cast<std::int64_t>(number));
}

bool is_alike(const OpInfo* op, const OpInfo* other) {
  return op != nullptr && other != nullptr && op->family == other->family && op->schema == other->schema &&
         op->type_rule == other->type_rule;
}

// The same, but that one may be -1.
bool are_extents(std::span<const Arg> named, std::span<const Arg> extents) {
  const auto free = std::count(named.begin(), named.end(), Arg::integer(-1));
  return free <= 1 &&
         std::ranges::equal(named, extents, [](Arg a, Arg b) { return a == b || a == Arg::integer(-1); });
}

// The dimension as it was named: from the end, or, where it is 0, not at all.
std::vector<Arg> with_dim(std::vector<Arg> args, std::size_t dim, std::size_t rank, const Text& text) {
  const Arg from_end = Arg::integer(static_cast<std::int64_t>(dim) - static_cast<std::int64_t>(rank));
  if (text && text->numbers.empty() && dim == 0) return args;
  const bool is_from_end = text && text->numbers.size() == 1 && text->numbers.front() == from_end;
  args.push_back(is_from_end ? from_end : integer(dim));
  return args;
}

// Whether each piece is named as a slice, [i * own, (i + 1) * own) or to the end.
bool are_slices(std::span<const Text> pieces, std::int64_t own) {
  static const OpInfo* const slice = find_op("aten.slice.Tensor");
  const auto count = static_cast<std::int64_t>(pieces.size());
  for (std::int64_t i = 0; i < count; ++i) {
    const Text& text = pieces[static_cast<std::size_t>(i)];
    if (!text || text->op != slice || text->numbers.size() != 2) return false;
    const Arg start = text->numbers[0], end = text->numbers[1];
    const bool begins = start.is_int() ? start.as_int() == i * own : start.is_none() && i == 0;
    const bool is_last = i + 1 == count;
    const bool ends = end.is_int() ? end.as_int() == (i + 1) * own || (is_last && end.as_int() > count * own)
                                   : end.is_none() && is_last;
    if (!begins || !ends) return false;
  }
  return true;
}

}  // namespace

NodeId FusedCallNodes::add(std::string_view target, std::vector<Arg> args, const Text& text,
                           std::vector<Arg> kwargs) {
  Graph& graph = body_.graph();
  Context& context = body_.context();
  Node node = call_;
  node.target = graph.intern(target);
  node.args = context.args.add(args);
  node.kwargs = context.args.add(kwargs);
  node.extra = nullptr;
  node.has_custom = false;
  body_.redirect(node);
  resolve_op(context, node);
  if (text && is_alike(node.op, text->op)) {
    node.op = text->op;
    node.target = graph.intern(text->op->target);
  }
  node.type = infer_type(body_.facts(), graph, body_.body(), node);
  if (text && node.op == text->op) {
    node.name = free_name(text->name);
    node.provenance = context.own(std::span<const Provenance>(text->records));
  } else {
    node.name = free_name(graph.intern(fmt::format("{}_{}", graph.text(call_.name), written_++)));
    node.provenance = {};
    if (!call_.provenance.empty())
      append_provenance(context, node,
                        {.pass = call_.provenance.back().pass,
                         .role = ProvenanceRole::kAdded,
                         .origins = call_.provenance.back().origins,
                         .reason = call_.provenance.back().reason});
  }
  if (node.op->family == OpFamily::kMatmul || node.op->family == OpFamily::kReduceScatter)
    regrouped_.insert(node.name);
  return body_.add(node);
}

StringId FusedCallNodes::free_name(StringId wanted) {
  Graph& graph = body_.graph();
  StringId name = wanted;
  for (std::size_t i = 0; body_.find(name) && !is_front(body_.find(name)); ++i)
    name = graph.intern(fmt::format("{}_{}", graph.text(wanted), i));
  return name;
}

// A reshape that gives way to the one that is written out.
bool FusedCallNodes::is_front(NodeId id) const {
  return std::ranges::any_of(text_.products, [&](const FusedText::Product& product) {
    return product.front && product.front->name == body_.body().nodes[id].name;
  });
}

Arg FusedCallNodes::extent(ExprId size) const {
  const auto number = body_.context().exprs.constant(size);
  return number ? Arg::integer(*number) : Arg::symbolic(size);
}

NodeId FusedCallNodes::reshape(NodeId value, const Dims& sizes, const Text& text) {
  std::vector<Arg> extents;
  for (ExprId size : sizes) extents.push_back(extent(size));
  if (text && are_extents(text->numbers, extents)) extents = text->numbers;
  const bool is_as_named =
      text && text->op != nullptr && text->op->family == OpFamily::kReshape && text->op->params.size() == 2 &&
      (may_copy(*text->op) || view_strides(body_.facts(), layout_of(body_.tensor(value)), sizes));
  return add(is_as_named ? text->op->target : "aten.reshape.default", {Arg::node(value), list(extents)},
             text);
}

NodeId FusedCallNodes::permute(NodeId value, const std::vector<std::size_t>& dims) {
  std::vector<Arg> order;
  for (std::size_t dim : dims) order.push_back(integer(dim));
  return add("aten.permute.default", {Arg::node(value), list(order)}, {});
}

NodeId FusedCallNodes::copy_contiguous(NodeId value) {
  Graph& graph = body_.graph();
  const Arg format = Arg::named(ArgKind::kMemoryFormat, graph.intern("torch.contiguous_format"));
  return add("aten.clone.default", {Arg::node(value)}, {},
             {Arg::text(graph.intern("memory_format")), format});
}

NodeId FusedCallNodes::regroup(NodeId value, const Regrouping& how, std::vector<Text> cuts) {
  ExprPool& pool = body_.context().exprs;
  const auto count = static_cast<std::size_t>(how.ranks);
  cuts.resize(count + 2);
  const ExprId size = pool.floordiv(body_.tensor(value).sizes[how.from], pool.number(how.ranks));
  const auto own = pool.constant(body_.facts().normalize(size));
  const std::span<const Text> named(cuts.data() + 1, count);
  const bool is_sliced = !cuts.front() && own && are_slices(named, *own);
  const NodeId whole = is_sliced ? NodeId() : split(value, size, how, cuts.front());
  std::vector<Arg> pieces;
  for (std::size_t i = 0; i < count; ++i) {
    const Text& text = named[i];
    pieces.push_back(Arg::node(
        is_sliced ? add(text->op->target,
                        {Arg::node(value), integer(how.from), text->numbers[0], text->numbers[1]}, text)
                  : add("operator.getitem", {Arg::node(whole), integer(i)}, text)));
  }
  const std::size_t rank = body_.tensor(value).rank();
  return add("aten.cat.default", with_dim({list(pieces)}, how.to, rank, cuts.back()), cuts.back());
}

NodeId FusedCallNodes::split(NodeId value, ExprId size, const Regrouping& how, const Text& text) {
  const OpInfo* op = text ? text->op : nullptr;
  Arg count = extent(size);
  std::string_view target = "aten.split.Tensor";
  if (op != nullptr && op->family == OpFamily::kSplit) {
    target = op->target;
    if (op->type_rule == rules::chunk)
      count = Arg::integer(how.ranks);
    else if (op->type_rule != rules::split)
      count = list(std::vector<Arg>(static_cast<std::size_t>(how.ranks), extent(size)));
  }
  return add(target, with_dim({Arg::node(value), count}, how.from, body_.tensor(value).rank(), text), text);
}

}  // namespace epweave
