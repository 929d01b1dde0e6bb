// Calls of B that claim to be a node of A, or a part of one: the same op, and each argument what it
// needs.
//
//   %mm_chunk1 = mm(%x_1, %w)     part 1 of %mm = mm(%x, %w): %x_1 must be part 1 of %x or all of it, %w all of %w
//
// Reports rewrite-target, rewrite-argument, rewrite-attention, rewrite-group, rewrite-part,
// rewrite-type and rewrite-added.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "compare/rewrite/counted_extents.h"
#include "compare/rewrite/part_facts.h"
#include "compare/rewrite/rewrite_claims.h"
#include "compare/rewrite/row_blocks.h"
#include "compare/rewrite/verify_attention.h"
#include "compare/rewrite/verify_causal_mask.h"
#include "ir/facts.h"
#include "ops/op.h"

namespace epweave {

class CallCheck {
 public:
  CallCheck(RewriteClaims& claims, Numbers& numbers);

  // Of B as it is read, which calls took keys of the parts before theirs.
  void set_prefix_calls(const IdSet<NodeId>* calls) {
    attention_.set_prefix_calls(calls);
    causal_mask_.set_prefix_calls(calls);
  }
  // What the proof of parts of attention rests on.
  std::vector<std::string> assumptions() const;

  // What is neither a node of A nor a part of one computes its value and does nothing else.
  void check_added(NodeId id);
  // Target and arguments.
  void check_call(NodeId id);
  // What is of A's values has a type where its origin has one, and is a tensor, a tuple or a number
  // as that is: what has no type, no check of types sees.
  void check_kind(NodeId id);
  // Dtype, device and sizes are its origin's.
  void check_type(NodeId id);
  // What a node of sizes gives follows from its arguments, not from what is recorded of it.
  void check_size(NodeId id);
  // When all calls were checked, before what follows.
  void group_uses();
  // All parts of a node take an argument in the same way, and of one cut of it.
  void check_uniform(const PartFacts& facts, const RowBlocks& blocks);
  // Then, each node of A with parts, in order: the last of them, and what it takes. Calls `behind`
  // for every node.
  using Visit = std::function<void(NodeId origin, NodeId part, std::span<const PartOperand> operands)>;
  void visit_divided(const Visit& visit, const std::function<void(NodeId)>& behind) const;
  // What all parts write, one after the other, is a sum, to which each adds its part.
  void check_shared_writes(const PartFacts& facts);
  // Parts that are added up are summands, parts that are joined are rows.
  void check_summands(const PartFacts& facts);

 private:
  enum class Taken : std::uint8_t { kNo, kWhole, kPart, kPrevious };
  // What a part takes for an argument of its origin, which is counted through lists.
  struct Use {
    Arg value;
    NodeId origin;
    std::uint32_t leaf = 0;
    NodeId user;
    std::uint32_t param = kNoParam;
    std::uint32_t item = 0;
    Taken taken;
    bool is_written = false;
  };
  static constexpr std::uint32_t kNoParam = ~0U;
  // What the parts take for an argument, in the order of the calls.
  std::span<const Use> uses_of(std::uint32_t argument) const {
    return std::span(taken_).subspan(begins_[argument], begins_[argument + 1] - begins_[argument]);
  }
  bool is_cut_alike(const Use& x, const Use& y, const PartFacts& facts, const RowBlocks& blocks) const;
  void check_attention(NodeId id);
  void check_positional(NodeId id, const Node& before, const Node& after);
  void check_keywords(NodeId id, const Node& before, const Node& after);
  std::vector<Arg> list_kwargs(const Node& node) const;
  bool is_copy(const Node& node) const;
  // Where an argument stands, for messages: "argument 3", "argument 'dim'", "the group", "argument
  // 0[2]".
  struct Place {
    std::string_view name;        // of a keyword; kGroup; else by position
    std::size_t number = 0;       // position, or item of a list
    const Place* list = nullptr;  // of which it is an item
    std::string print() const;
  };
  static constexpr std::string_view kGroup = "group";
  void check_arg(NodeId user, const Place& place, Arg x, Arg y);
  bool is_number(Arg x) const;
  bool may_take_list(NodeId user, Arg x) const;
  static bool is_number_type(const Type& type);
  bool reads_kind_only(const Node& node) const;
  bool has_number_of(NodeId b, NodeId a);
  bool returns_what_it_writes() const;
  bool has_share(Arg x, Arg y);
  std::size_t position_of_param() const;
  void fail_argument(NodeId user, const Place& place, Arg x, Arg y);
  void check_group(NodeId id, Arg x, Arg y);
  Taken match_size(NodeId user, Arg x, Arg y);
  bool is_extent(ExprId number, ExprId extent);
  Taken match_number(NodeId user, NodeId x, Arg y);
  Taken match_value(NodeId user, NodeId x, NodeId y);
  static Taken taken_as(Fraction fraction);

  RewriteClaims& claims_;
  Numbers& numbers_;
  const Graph& graph_a_;
  const Graph& graph_b_;
  Context& context_;
  const Body& a_;
  const Body& b_;
  Facts& facts_a_;
  CountedExtents extents_a_, extents_b_;
  AttentionCheck attention_;
  CausalMaskCheck causal_mask_;
  std::vector<Use> taken_;  // in the order of the calls; group_uses puts those of an argument together
  // Arguments of nodes of A, numbered by node and leaf: the first of each node, and one behind the
  // last; where the uses of each begin, and one behind the last.
  std::vector<std::uint32_t> arguments_, begins_;
  // Of the call that is being checked, and A's: the parameter, its item, and the argument, counted
  // through lists.
  const Node* before_ = nullptr;
  const Node* after_ = nullptr;
  const OpParam* param_ = nullptr;
  std::optional<std::size_t> item_;
  std::uint32_t leaf_ = 0;
};

}  // namespace epweave
