#include "cost/extents.h"

#include <algorithm>
#include <map>

#include "analysis/collectives.h"
#include "ops/bind.h"
#include "ops/op.h"

namespace epweave {

Count times(Count a, Count b) {
  std::int64_t product = 0;
  return a && b && !__builtin_mul_overflow(*a, *b, &product) ? Count(product) : std::nullopt;
}

Count plus(Count a, Count b) {
  std::int64_t sum = 0;
  return a && b && !__builtin_add_overflow(*a, *b, &sum) ? Count(sum) : std::nullopt;
}

Extents::Extents(const Graph& graph)
    : graph_(graph), context_(*graph.context), body_(graph.step()), facts_(graph) {
  for (const Symbol& symbol : graph.symbols)
    if (symbol.replaced_by && symbol_of(context_.exprs.poly(*symbol.replaced_by)) != symbol.name)
      replaced_.emplace(symbol.name, *symbol.replaced_by);
  std::vector<NodeId> exchanges;
  for (NodeId id : body_.order) {
    const OpInfo* op = body_.nodes[id].op;
    if (op != nullptr && op->family == OpFamily::kAllToAll) exchanges.push_back(id);
  }
  balance(exchanges, &Extents::balance);
  find_common_share();
  if (!common_share_) {
    balance(exchanges, &Extents::share_result);
    find_common_share();
  }
  is_balanced_ = true;
}

// Until nothing changes.
void Extents::balance(const std::vector<NodeId>& exchanges, bool (Extents::*give)(const Node&)) {
  for (bool is_changed = true; is_changed;) {
    is_changed = false;
    for (NodeId id : exchanges) is_changed |= (this->*give)(body_.nodes[id]);
    numbers_.clear();  // what had no number before may have one now
  }
}

// Where splits are recorded as numbers, as torchtitan's concretised graphs have them: the symbols
// of what arrives.
bool Extents::share_result(const Node& node) {
  const Arg sent = arg_of(context_, node, 0);
  const TensorType* rows = sent.is_node() ? tensor_of(context_, body_.nodes[sent.as_node()].type) : nullptr;
  const TensorType* result = tensor_of(context_, node.type);
  if (rows == nullptr || rows->sizes.empty() || result == nullptr || result->sizes.empty()) return false;
  const Count count = number(rows->sizes[0]);
  if (!count || number(result->sizes[0])) return false;
  const std::vector<StringId> symbols = graph_.context->exprs.symbols(result->sizes[0]);
  bool is_changed = false;
  for (StringId symbol : symbols)
    if (!facts_.hint(symbol))
      is_changed |=
          shares_.emplace(last_symbol(symbol), *count / static_cast<std::int64_t>(symbols.size())).second;
  numbers_.clear();
  return is_changed;
}

// Whether a symbol got its share of the exchange's rows.
bool Extents::balance(const Node& node) {
  const auto sends = node.op->find_param("input_split_sizes");
  const auto receives = node.op->find_param("output_split_sizes");
  const Arg sent = arg_of(context_, node, 0);
  if (!sends || !receives || !sent.is_node()) return false;
  const TensorType* rows = tensor_of(context_, body_.nodes[sent.as_node()].type);
  if (rows == nullptr || rows->sizes.empty()) return false;
  const Count count = number(rows->sizes[0]);
  if (!count) return false;
  const bool is_sent = share(arg_of(context_, node, *sends), *count);
  const bool is_received = share(arg_of(context_, node, *receives), *count);
  return is_sent || is_received;
}

bool Extents::share(Arg sizes, std::int64_t rows) {
  if (!sizes.is_list()) return false;
  const auto members = static_cast<std::int64_t>(sizes.children().count);
  bool is_changed = false;
  for (Arg size : context_.args.children(sizes)) {
    ExprId expr;
    if (size.is(ArgKind::kSymbolic)) expr = size.as_expr();
    if (size.is_node()) {
      const TypeId type = body_.nodes[size.as_node()].type;
      if (type && context_.types[type].kind == TypeKind::kScalar) expr = context_.types[type].expr;
    }
    if (!expr || number(expr)) continue;
    const StringId symbol = symbol_of(context_.exprs.poly(expr));
    if (!symbol) continue;
    is_changed |= shares_.emplace(last_symbol(symbol), rows / std::max<std::int64_t>(members, 1)).second;
    numbers_.clear();
  }
  return is_changed;
}

// Of a polynomial that is one symbol.
StringId Extents::symbol_of(PolyId id) const {
  const Poly& poly = context_.exprs[id];
  if (poly.terms.size() != 1 || poly.terms[0].atoms.size() != 1) return {};
  if (!(poly.terms[0].coefficient == Rational{1, 1})) return {};
  const Atom& atom = context_.exprs[poly.terms[0].atoms[0]];
  return atom.kind == AtomKind::kSymbol ? atom.name : StringId();
}

// The symbol that stands for this one where it was replaced.
StringId Extents::last_symbol(StringId symbol) const {
  for (std::size_t steps = 0; steps < replaced_.size(); ++steps) {
    const auto replaced = replaced_.find(symbol);
    const StringId next =
        replaced == replaced_.end() ? StringId() : symbol_of(context_.exprs.poly(replaced->second));
    if (!next) break;
    symbol = next;
  }
  return symbol;
}

// The one that most symbols got; the smallest of several. Shares of count exchanges, one row, are
// none.
void Extents::find_common_share() {
  std::map<std::int64_t, std::size_t> times;
  for (const auto& [symbol, rows] : shares_)
    if (rows > 1) ++times[rows];
  const auto most = std::ranges::max_element(times, {}, [](const auto& entry) { return entry.second; });
  if (most != times.end()) common_share_ = most->first;
}

// To the symbols of the extent that have no number.
void Extents::give_common_share(ExprId extent) {
  for (const StringId symbol : graph_.context->exprs.symbols(extent)) {
    const bool is_read =
        context_.text(symbol).starts_with('u');  // torch's name of what the step itself reads
    if (is_read && !facts_.hint(symbol) && !replaced_.contains(symbol))
      shares_.emplace(symbol, *common_share_);
  }
}

Count Extents::number(ExprId extent) {
  if (!extent) return 0;
  if (const auto constant = context_.exprs.constant(extent)) return constant;
  const auto [known, is_new] = numbers_.try_emplace(extent, std::nullopt);
  if (!is_new) return known->second;
  Count number = evaluate(context_.exprs.poly(extent));
  if (!number && common_share_) {
    give_common_share(extent);
    number = evaluate(context_.exprs.poly(extent));
  }
  // Facts may say what a sum is whose symbols nothing gives a number. They are the whole's: a
  // part's symbols have shares of their own.
  if (!number && is_balanced_) number = evaluate(facts_.normalize(extent));
  return numbers_[extent] = number;
}

Count Extents::evaluate(PolyId poly) {
  const auto value_of = [&](StringId symbol) -> std::optional<std::int64_t> {
    if (const auto hint = facts_.hint(symbol)) return hint;
    if (const auto share = shares_.find(symbol); share != shares_.end()) return share->second;
    const auto replaced = replaced_.find(symbol);
    return replaced == replaced_.end() ? std::nullopt : number(replaced->second);
  };
  const std::optional<Rational> value = context_.exprs.evaluate(poly, value_of);
  return value && value->is_integer() ? Count(value->num) : std::nullopt;
}

bool Extents::is_assumed(ExprId extent) {
  if (!extent || context_.exprs.constant(extent)) return false;
  number(extent);
  return std::ranges::any_of(graph_.context->exprs.symbols(extent),
                             [&](StringId symbol) { return shares_.contains(symbol); });
}

Count Extents::elements(const TensorType& tensor) {
  Count product = 1;
  for (ExprId size : tensor.sizes) product = times(product, number(size));
  return product;
}

Count Extents::storage_bytes(const TensorType& tensor) {
  const std::int64_t item = info(tensor.dtype).bytes;
  if (tensor.strides.size() != tensor.sizes.size()) return times(elements(tensor), item);
  Count last = number(tensor.offset);
  for (std::size_t i = 0; i < tensor.sizes.size(); ++i) {
    const Count size = number(tensor.sizes[i]);
    if (size == 0) return 0;
    last = plus(last, times(plus(size, -1), number(tensor.strides[i])));
  }
  return times(plus(last, 1), item);
}

}  // namespace epweave
