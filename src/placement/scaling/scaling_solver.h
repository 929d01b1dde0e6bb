// Extents as unknowns, and the relations between them: placement/scaling/scaling.h.
//
// An extent is unknown, fixed (it does not scale) or factor * tokens. All equalities are stated
// before solve(); it then lets what is known flow through products and sums. Extents of 1 broadcast
// and take part in nothing.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/id.h"
#include "ir/expr.h"
#include "ir/graph.h"

namespace epweave {

using ExtentId = Id<struct ExtentTag>;
using Extents = std::vector<ExtentId>;

class ScalingSolver {
 public:
  // Where several dimensions could have the tokens, they are in one with whole tokens of each
  // micro-batch.
  explicit ScalingSolver(const Graph& graph, std::int64_t micro_batches = 1)
      : graph_(graph), micro_batches_(micro_batches) {}

  ExtentId add(std::int64_t number);
  ExtentId add_fixed(std::int64_t number);  // a number by nature: a group's size
  std::int64_t number(ExtentId id) const { return numbers_[id]; }

  // Statements; `node` is the op that makes them true. Extents that are none are left out.
  void unite(ExtentId a, ExtentId b, NodeId node);
  // The same elements, counted by other dimensions, outermost first: [8, tokens] and [8 * tokens].
  void relate_dimensions(const Extents& left, const Extents& right, NodeId node);
  void relate_products(const Extents& left, const Extents& right, NodeId node);
  void relate_sum(ExtentId total, const Extents& parts, NodeId node);

  // What is known from outside, and by whose word: "parameter 'w'".
  void mark(ExtentId id, Rational factor, NodeId node, std::string reason);
  void fix(ExtentId id, NodeId node, std::string reason);

  void solve();

  std::optional<Rational> factor(ExtentId id);

 private:
  enum class Certainty : std::uint8_t { kForced, kGuess };
  enum class State : std::uint8_t { kUnknown, kFixed, kScales };
  using RelationId = Id<struct RelationTag>;
  struct Known {
    State state = State::kUnknown;
    Rational factor;
    friend bool operator==(const Known&, const Known&) = default;
  };
  // Where the tokens are in an extent that scales: of [8, tokens, 2] flattened, `count` of them, of
  // `inner` = 2 elements each, eight times.
  struct TokenPlace {
    std::int64_t inner = 1, count = 0;
  };
  // Why a class of equal extents is known: a mark or a relation, about one of its extents.
  struct Cause {
    ExtentId extent;
    RelationId relation;  // or
    std::string reason;   // with the node it is about
    NodeId node;
  };
  struct Class {
    Known known;
    TokenPlace tokens;                  // where it scales
    std::uint32_t cause = 0;            // in causes_
    std::vector<RelationId> relations;  // that mention an extent of the class
  };
  struct Relation {
    bool is_sum = false;
    bool has_order = false;  // of products: each side lists dimensions, outermost first
    bool is_queued = false;
    bool is_settled = false;  // all of it is known, and agrees
    Extents left, right;      // products of both are equal; or the only left one is the sum of the right
    NodeId node;
  };
  struct Side {
    const Extents* all = nullptr;
    Rational known{1, 1};
    int degree = 0;
    Extents unknown;
  };

  ExtentId find(ExtentId id);
  void relate(const Extents& left, const Extents& right, NodeId node, bool has_order);
  void add_relation(Relation relation);
  // Without a place, all of an extent that scales is tokens.
  void set(ExtentId id, Known known, Cause cause, std::optional<TokenPlace> tokens = {});
  void check(ExtentId id, Known known, const Cause& cause);
  void settle(RelationId id, Certainty certainty);
  void settle_product(RelationId id, Certainty certainty);
  void settle_sum(RelationId id);
  void settle_sides(RelationId id, Side& whole, Side& open, Certainty certainty);
  Side side_of(const Extents& extents);
  void set_by(RelationId relation, ExtentId id, Known known, std::optional<TokenPlace> tokens = {}) {
    set(id, known, Cause{id, relation, {}, {}}, tokens);
  }
  Rational factor_of(const Side& open, ExtentId extent, Rational rest) const;
  TokenPlace find_tokens(const Extents& dims);
  bool ends_in(const TokenPlace& tokens, const Extents& dims, ExtentId dim) const;
  std::optional<TokenPlace> place_within(const TokenPlace& tokens, const Extents& dims, ExtentId dim) const;
  std::int64_t elements_behind(const Extents& dims, ExtentId dim) const;

  // For messages.
  struct Trace {
    std::string root;
    NodeId root_node;
    std::vector<NodeId> nodes;  // ops between
  };
  Trace trace(Cause cause);
  void walk_equalities(ExtentId from, ExtentId to, std::vector<NodeId>& nodes);
  std::string print(Known known, ExtentId id) const;
  [[noreturn]] void fail(ExtentId id, const Known& known, const Cause& cause);
  [[noreturn]] void fail_relation(RelationId id);

  const Graph& graph_;
  const std::int64_t micro_batches_;
  IdVector<ExtentId, std::int64_t> numbers_;
  IdVector<ExtentId, ExtentId> parents_;
  IdVector<ExtentId, Class> classes_;
  IdVector<RelationId, Relation> relations_;
  struct Equality {
    ExtentId a, b;
    NodeId node;
  };
  std::vector<Equality> equalities_;
  std::vector<Cause> causes_;
  std::vector<Cause> marks_;
  std::vector<Known> marked_;
  std::vector<RelationId> queue_, guesses_;
  std::size_t next_guess_ = 0;
  std::int64_t tokens_ = 0;
};

}  // namespace epweave
