#include "placement/scaling/scaling_solver.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

namespace epweave {
namespace {

Rational inverse(Rational r) {
  return Rational::of(r.den, r.num);
}
Rational operator/(Rational a, Rational b) {
  return a * inverse(b);
}
Rational operator-(Rational a, Rational b) {
  return a + Rational{-b.num, b.den};
}

std::string print_factor(Rational factor) {
  const std::string times = factor.num == 1 ? "" : fmt::format("{}*", factor.num);
  return factor.den == 1 ? fmt::format("{}tokens", times) : fmt::format("{}tokens/{}", times, factor.den);
}

}  // namespace

// --------------------------------------------------------------------------- statements

ExtentId ScalingSolver::add(std::int64_t number) {
  const ExtentId id = numbers_.push_back(number);
  parents_.push_back(id);
  classes_.push_back({});
  return id;
}

ExtentId ScalingSolver::add_fixed(std::int64_t number) {
  const ExtentId id = add(number);
  fix(id, {}, fmt::format("the number {}", number));
  return id;
}

ExtentId ScalingSolver::find(ExtentId id) {
  while (parents_[id] != id) {
    parents_[id] = parents_[parents_[id]];
    id = parents_[id];
  }
  return id;
}

void ScalingSolver::unite(ExtentId a, ExtentId b, NodeId node) {
  if (!a || !b || numbers_[a] == 1 || numbers_[a] != numbers_[b]) return;
  ExtentId to = find(a), from = find(b);
  if (to == from) return;
  if (classes_[to].relations.size() < classes_[from].relations.size()) std::swap(to, from);
  parents_[from] = to;
  auto& relations = classes_[to].relations;
  relations.insert(relations.end(), classes_[from].relations.begin(), classes_[from].relations.end());
  classes_[from].relations = {};
  equalities_.push_back({a, b, node});
}

void ScalingSolver::add_relation(Relation relation) {
  const RelationId id = relations_.push_back(std::move(relation));
  for (const Extents* side : {&relations_[id].left, &relations_[id].right})
    for (ExtentId extent : *side) classes_[find(extent)].relations.push_back(id);
}

void ScalingSolver::relate_dimensions(const Extents& left, const Extents& right, NodeId node) {
  relate(left, right, node, true);
}
void ScalingSolver::relate_products(const Extents& left, const Extents& right, NodeId node) {
  relate(left, right, node, false);
}
void ScalingSolver::relate(const Extents& left, const Extents& right, NodeId node, bool has_order) {
  Relation relation{.has_order = has_order, .left = {}, .right = {}, .node = node};
  auto keep = [&](const Extents& from, Extents& to) {
    for (ExtentId id : from) {
      if (!id || numbers_[id] == 0) return false;
      if (numbers_[id] != 1) to.push_back(id);
    }
    return true;
  };
  if (!keep(left, relation.left) || !keep(right, relation.right)) return;
  if (relation.left.size() == 1 && relation.right.size() == 1)
    return unite(relation.left[0], relation.right[0], node);
  if (!relation.left.empty() || !relation.right.empty()) add_relation(std::move(relation));
}

void ScalingSolver::relate_sum(ExtentId total, const Extents& parts, NodeId node) {
  Extents kept;
  for (ExtentId id : parts) {
    if (!id) return;
    if (numbers_[id] != 0) kept.push_back(id);
  }
  if (!total || kept.empty()) return;
  if (kept.size() == 1) return unite(total, kept[0], node);
  add_relation({.is_sum = true, .left = {total}, .right = std::move(kept), .node = node});
}

void ScalingSolver::mark(ExtentId id, Rational factor, NodeId node, std::string reason) {
  if (tokens_ == 0) tokens_ = numbers_[id];
  marks_.push_back({id, {}, std::move(reason), node});
  marked_.push_back({State::kScales, factor});
}

void ScalingSolver::fix(ExtentId id, NodeId node, std::string reason) {
  if (!id) return;
  marks_.push_back({id, {}, std::move(reason), node});
  marked_.push_back({State::kFixed, {}});
}

// --------------------------------------------------------------------------- solving

// Everything that follows for certain is found before anything is guessed.
void ScalingSolver::solve() {
  for (std::size_t i = 0; i < marks_.size(); ++i) set(marks_[i].extent, marked_[i], marks_[i]);
  for (std::size_t i = 0; i < relations_.size(); ++i) guesses_.push_back(RelationId(i));
  while (true) {
    if (!queue_.empty()) {
      const RelationId id = queue_.back();
      queue_.pop_back();
      relations_[id].is_queued = false;
      settle(id, Certainty::kForced);
      if (!relations_[id].is_sum && !relations_[id].is_settled) guesses_.push_back(id);
    } else if (next_guess_ < guesses_.size()) {
      settle(guesses_[next_guess_++], Certainty::kGuess);
    } else {
      return;
    }
  }
}

std::optional<Rational> ScalingSolver::factor(ExtentId id) {
  if (!id || numbers_[id] == 1) return std::nullopt;
  const Known& known = classes_[find(id)].known;
  return known.state == State::kScales ? std::optional(known.factor) : std::nullopt;
}

void ScalingSolver::set(ExtentId id, Known known, Cause cause, std::optional<TokenPlace> tokens) {
  if (numbers_[id] == 1) return;
  Class& cls = classes_[find(id)];
  if (cls.known.state != State::kUnknown) {
    check(id, known, cause);
    return;
  }
  if (known.state == State::kScales && !(known.factor * Rational{tokens_, 1} == Rational{numbers_[id], 1}))
    fail(id, known, cause);
  cls.known = known;
  cls.tokens = tokens.value_or(TokenPlace{1, numbers_[id]});
  cls.cause = static_cast<std::uint32_t>(causes_.size());
  causes_.push_back(std::move(cause));
  for (RelationId relation : cls.relations) {
    if (relations_[relation].is_settled || std::exchange(relations_[relation].is_queued, true)) continue;
    queue_.push_back(relation);
  }
}

void ScalingSolver::check(ExtentId id, Known known, const Cause& cause) {
  if (!(classes_[find(id)].known == known)) fail(id, known, cause);
}

void ScalingSolver::settle(RelationId id, Certainty certainty) {
  if (relations_[id].is_settled) return;
  if (!relations_[id].is_sum) {
    settle_product(id, certainty);
  } else if (certainty == Certainty::kForced) {
    settle_sum(id);
  }
}

ScalingSolver::Side ScalingSolver::side_of(const Extents& extents) {
  Side side{.all = &extents};
  for (ExtentId id : extents) {
    const Known& known = classes_[find(id)].known;
    if (known.state == State::kUnknown) {
      side.unknown.push_back(id);
    } else if (known.state == State::kFixed) {
      side.known = side.known * Rational{numbers_[id], 1};
    } else {
      side.known = side.known * known.factor;
      ++side.degree;
    }
  }
  return side;
}

void ScalingSolver::settle_product(RelationId id, Certainty certainty) {
  Side left = side_of(relations_[id].left), right = side_of(relations_[id].right);
  if (left.unknown.empty() && right.unknown.empty()) {
    relations_[id].is_settled = true;
    if (left.degree != right.degree || !(left.known == right.known)) fail_relation(id);
    return;
  }
  if (certainty == Certainty::kGuess && !left.unknown.empty() && !right.unknown.empty()) {
    // Beside an extent that scales, unknown ones are taken for numbers: no value has two token
    // extents.
    Side* scaled = left.degree == 1 && right.degree == 0   ? &left
                   : right.degree == 1 && left.degree == 0 ? &right
                                                           : nullptr;
    if (scaled == nullptr) return;
    for (ExtentId unknown : scaled->unknown) scaled->known = scaled->known * Rational{numbers_[unknown], 1};
    scaled->unknown.clear();
  }
  if (left.unknown.empty()) return settle_sides(id, left, right, certainty);
  if (right.unknown.empty()) settle_sides(id, right, left, certainty);
}

void ScalingSolver::settle_sides(RelationId id, Side& whole, Side& open, Certainty certainty) {
  const int degree = whole.degree - open.degree;
  if (degree < 0) fail_relation(id);
  if (degree == 0) {
    for (ExtentId extent : open.unknown) set_by(id, extent, {State::kFixed, {}});
    return;
  }
  if (degree > 1) return;
  const Rational rest = whole.known / open.known;
  const bool has_order = relations_[id].has_order;
  const TokenPlace tokens = has_order ? find_tokens(*whole.all) : TokenPlace();
  const auto place = [&](ExtentId dim) {
    return has_order ? place_within(tokens, *open.all, dim) : std::optional<TokenPlace>();
  };
  if (open.unknown.size() == 1)
    return set_by(id, open.unknown[0], {State::kScales, rest}, place(open.unknown[0]));
  if (certainty == Certainty::kForced) return;
  // The dimension in which the tokens end: rows that were flattened from [8, tokens] have them in
  // the inner one again. Where that cannot carry whole tokens, the outermost that can. A dimension
  // that is just where the tokens are has them, also where it is a piece of all: [6, tokens/8].
  ExtentId chosen;
  Rational factor;
  for (ExtentId extent : open.unknown) {
    const Rational own = factor_of(open, extent, rest);
    const bool has_end = has_order && ends_in(tokens, *open.all, extent);
    const bool is_place =
        has_end && tokens.inner == elements_behind(*open.all, extent) && tokens.count == numbers_[extent];
    const bool is_whole = (own * Rational{micro_batches_, 1}).is_integer();
    if ((!is_whole && !is_place) || (chosen && !has_end)) continue;
    chosen = extent;
    factor = own;
    if (has_end) break;
  }
  if (chosen) set_by(id, chosen, {State::kScales, factor}, place(chosen));
}

// Of an unknown extent, where the others stay as they are.
Rational ScalingSolver::factor_of(const Side& open, ExtentId extent, Rational rest) const {
  Rational others{1, 1};
  for (ExtentId other : open.unknown)
    if (other != extent) others = others * Rational{numbers_[other], 1};
  return rest / others;
}

std::int64_t ScalingSolver::elements_behind(const Extents& dims, ExtentId dim) const {
  std::int64_t elements = 1;
  for (std::size_t i = dims.size(); i-- > 0 && dims[i] != dim;) elements *= numbers_[dims[i]];
  return elements;
}

// Of all dimensions flattened, one of which scales.
ScalingSolver::TokenPlace ScalingSolver::find_tokens(const Extents& dims) {
  for (ExtentId dim : dims) {
    const Class& cls = classes_[find(dim)];
    if (cls.known.state == State::kScales)
      return {cls.tokens.inner * elements_behind(dims, dim), cls.tokens.count};
  }
  return {};
}

// Whether the outermost of the tokens, whose place is that within all dimensions, is in this one.
bool ScalingSolver::ends_in(const TokenPlace& tokens, const Extents& dims, ExtentId dim) const {
  const std::int64_t behind = elements_behind(dims, dim), end = tokens.inner * tokens.count;
  return behind < end && end <= behind * numbers_[dim];
}

// None: the dimension has tokens, but not whole steps of them.
std::optional<ScalingSolver::TokenPlace> ScalingSolver::place_within(const TokenPlace& tokens,
                                                                     const Extents& dims,
                                                                     ExtentId dim) const {
  const std::int64_t behind = elements_behind(dims, dim), end = tokens.inner * tokens.count;
  if (!ends_in(tokens, dims, dim)) return std::nullopt;
  if (tokens.inner % behind == 0) return TokenPlace{tokens.inner / behind, tokens.count};
  if (behind % tokens.inner == 0 && end % behind == 0) return TokenPlace{1, end / behind};
  return std::nullopt;
}

void ScalingSolver::settle_sum(RelationId id) {
  const Relation& relation = relations_[id];
  const ExtentId total = relation.left[0];
  const Known whole = classes_[find(total)].known;
  if (whole.state == State::kFixed) {
    relations_[id].is_settled = true;
    for (ExtentId part : relation.right) set_by(id, part, {State::kFixed, {}});
    return;
  }
  Rational scaled, numbers;
  std::int64_t open = 0;
  ExtentId first_open;
  for (ExtentId part : relation.right) {
    const Known& known = classes_[find(part)].known;
    if (known.state == State::kScales) scaled = scaled + known.factor;
    if (known.state == State::kFixed) numbers = numbers + Rational{numbers_[part], 1};
    if (known.state != State::kUnknown) continue;
    if (first_open && find(first_open) != find(part)) return;
    first_open = part;
    ++open;
  }
  // Tokens beside a number have no factor; nothing follows for a total that is not known.
  const bool is_mixed = scaled.num != 0 && numbers.num != 0;
  if (open == 0 && !is_mixed) relations_[id].is_settled = true;
  if (open == 0 && whole.state == State::kScales) {
    if (!(numbers == Rational{0, 1}) || !(scaled == whole.factor)) fail_relation(id);
  } else if (open == 0 && scaled.num == 0) {
    set_by(id, total, {State::kFixed, {}});
  } else if (open == 0 && numbers.num == 0) {
    set_by(id, total, {State::kScales, scaled});
  } else if (open > 0 && whole.state == State::kScales && numbers.num == 0) {
    const Rational rest = whole.factor - scaled;
    if (rest.num <= 0) fail_relation(id);
    set_by(id, first_open, {State::kScales, rest / Rational{open, 1}});
  }
}

// --------------------------------------------------------------------------- messages

// From one extent to an equal one, the ops that equate them.
void ScalingSolver::walk_equalities(ExtentId from, ExtentId to, std::vector<NodeId>& nodes) {
  std::map<ExtentId, std::vector<const Equality*>> edges;
  for (const Equality& e : equalities_) {
    edges[e.a].push_back(&e);
    edges[e.b].push_back(&e);
  }
  std::map<ExtentId, const Equality*> reached = {{from, nullptr}};
  std::vector<ExtentId> order = {from};
  for (std::size_t i = 0; i < order.size() && !reached.contains(to); ++i)
    for (const Equality* e : edges[order[i]]) {
      const ExtentId next = e->a == order[i] ? e->b : e->a;
      if (reached.try_emplace(next, e).second) order.push_back(next);
    }
  for (ExtentId at = to; at != from && reached.contains(at);) {
    const Equality* e = reached[at];
    nodes.push_back(e->node);
    at = e->a == at ? e->b : e->a;
  }
}

ScalingSolver::Trace ScalingSolver::trace(Cause cause) {
  Trace result;
  auto before = static_cast<std::uint32_t>(causes_.size());  // what is known since cannot be why
  while (cause.relation) {
    const Relation& relation = relations_[cause.relation];
    result.nodes.push_back(relation.node);
    // Through what scales; else through what is known first.
    ExtentId via;
    bool scales = false;
    for (const Extents* side : {&relation.left, &relation.right})
      for (ExtentId id : *side) {
        const Class& cls = classes_[find(id)];
        if (find(id) == find(cause.extent) || cls.known.state == State::kUnknown || scales) continue;
        if (cls.cause >= before) continue;
        if (!via || cls.known.state == State::kScales) via = id;
        scales |= cls.known.state == State::kScales;
      }
    if (!via) break;
    before = classes_[find(via)].cause;
    const Cause next = causes_[before];
    walk_equalities(via, next.extent, result.nodes);
    cause = next;
  }
  result.root = cause.reason;
  result.root_node = cause.node;
  return result;
}

std::string ScalingSolver::print(Known known, ExtentId id) const {
  return known.state == State::kScales
             ? fmt::format("{} = {}", print_factor(known.factor),
                           print_factor(known.factor) == "tokens" ? fmt::format("{}", tokens_)
                                                                  : fmt::format("{}", numbers_[id]))
             : fmt::format("the number {}", numbers_[id]);
}

namespace {
constexpr std::string_view kConflict = "symbolize.conflict";
constexpr std::string_view kRemedy =
    "name the inputs that count tokens (symbolize{inputs=[tokens:0,...]}), or trace the model with symbolic "
    "sizes";
}  // namespace

void ScalingSolver::fail(ExtentId id, const Known& known, const Cause& cause) {
  Trace one = trace(cause);
  const Class& cls = classes_[find(id)];
  if (cls.known.state == State::kUnknown)
    throw PassError(
        std::string(kConflict),
        fmt::format("an extent is {} by {}, and there are {} tokens", numbers_[id], one.root, tokens_),
        cause.node ? site_of(graph_, graph_.step().nodes[cause.node]) : Site(), std::string(kRemedy));
  const Cause known_cause = causes_[cls.cause];
  Trace other = trace(known_cause);
  walk_equalities(cause.extent, known_cause.extent, one.nodes);
  // Where the two meet: the last op on the way.
  std::vector<std::uint32_t> position(graph_.step().nodes.size());
  for (std::uint32_t i = 0; i < graph_.step().order.size(); ++i) position[graph_.step().order[i].index()] = i;
  NodeId meets = cause.node ? cause.node : one.root_node;
  one.nodes.insert(one.nodes.end(), other.nodes.begin(), other.nodes.end());
  for (NodeId node : one.nodes)
    if (node && (!meets || position[node.index()] > position[meets.index()])) meets = node;
  const bool new_scales = known.state == State::kScales;
  const std::string first = fmt::format("{} by {}", print(known, id), one.root);
  const std::string second = fmt::format("{} by {}", print(cls.known, id), other.root);
  throw PassError(
      std::string(kConflict),
      fmt::format("an extent is {}, and {}", new_scales ? first : second, new_scales ? second : first),
      meets ? site_of(graph_, graph_.step().nodes[meets]) : Site(), std::string(kRemedy));
}

void ScalingSolver::fail_relation(RelationId id) {
  const Relation& relation = relations_[id];
  auto print_side = [&](const Extents& extents) {
    std::string text;
    for (ExtentId extent : extents) {
      const Class& cls = classes_[find(extent)];
      if (!text.empty()) text += relation.is_sum ? " + " : " * ";
      if (cls.known.state == State::kUnknown) {
        text += fmt::format("{}", numbers_[extent]);
      } else {
        text += fmt::format("({} by {})", print(cls.known, extent), trace(causes_[cls.cause]).root);
      }
    }
    return text.empty() ? std::string("1") : text;
  };
  throw PassError(std::string(kConflict),
                  fmt::format("its extents do not scale alike: {} against {}", print_side(relation.left),
                              print_side(relation.right)),
                  relation.node ? site_of(graph_, graph_.step().nodes[relation.node]) : Site(),
                  std::string(kRemedy));
}

}  // namespace epweave
