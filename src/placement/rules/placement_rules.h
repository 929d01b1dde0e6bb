// What a placement rule sees and says. Rules are one function per op family, in
// placement_rules_*.cc, named in one table keyed by the op table's rows.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "ops/op.h"
#include "placement/placement.h"

namespace epweave {

// A combination of arguments that cannot run per part. `remedy` may be empty.
struct PlacementRefusal {
  std::string id;  // "chunk.along-divided", ...
  std::string problem;
  std::string remedy;
};

// What a rule takes a value to hold: what made it says so, as long as nothing writes it.
enum class ReliedContent : std::uint8_t { kZeros, kSortedOrder };
struct ReliedOn {
  NodeId value;  // none: of no value
  ReliedContent content = ReliedContent::kZeros;
};

// An argument, with the position of its first node reference among those of the call.
struct Operand {
  Arg arg;
  std::size_t leaf = 0;
  explicit operator bool() const { return present; }
  bool present = false;
};

class PlacementCall {
 public:
  PlacementCall(const Graph& graph, const Placements& placements, TokenExtents& tokens, Facts& facts,
                const PlacementOptions& options);
  void begin(NodeId node);

  const Node& node() const { return *node_; }
  NodeId id() const { return id_; }
  const OpInfo& op() const { return *node_->op; }
  const PlacementOptions& options() const { return options_; }
  TokenExtents& tokens() { return tokens_; }
  Facts& facts() { return facts_; }
  const Graph& graph() const { return graph_; }

  // Arguments by position in the schema, however the call passes them (`name` for ops whose schema
  // has no parameter there); not present if left to the default.
  Operand arg(std::size_t position, std::string_view name = {}) const;
  // By the name of a parameter of the schema; not present where the op has none of that name.
  Operand named(std::string_view param) const;
  // Which dimension of `rank` the parameter `dim` names.
  int dim_arg(std::int64_t fallback, std::size_t rank) const;
  std::vector<Operand> items(Operand list) const;
  const std::vector<Operand>& operands() const { return operands_; }
  // Those that are one node reference each: no literals, no lists.
  std::vector<Operand> node_operands() const;
  std::int64_t int_arg(std::size_t position, std::string_view name, std::int64_t fallback) const;
  bool bool_arg(std::size_t position, std::string_view name, bool fallback) const;

  // Placement of an operand; literals are Whole. A Partial tensor that still has the token extent
  // counts as Split along it and is taken by slices of the sum.
  Placement of(Operand operand);
  // The same of any value.
  Placement of_value(NodeId value) const { return seen(value); }
  // The placement of equal rows along a divided dimension of the result, made from what is placed
  // `like`.
  Placement constant_rows(int dim, const Placement& like = {});
  // Whether a number is made of sums of parts and of what all parts share, so that its whole can be
  // made again.
  bool is_made_of_sums(NodeId number);
  // Whether it is cut for this call: no part of it was made for the call's region.
  bool is_from_outside(Operand operand) const;
  // A size or number, not a tensor.
  bool is_scalar(Operand operand) const;
  // Recorded types.
  const TensorType* tensor(Operand operand) const;
  std::size_t rank(Operand operand) const;
  const TensorType* result_tensor() const { return tensor_of(*graph_.context, node_->type); }
  std::size_t result_count() const;  // elements of a tuple result
  const Node* producer(Operand operand) const;
  // A dimension argument made non-negative.
  int dim(std::int64_t value, std::size_t rank) const;

  void take_whole(Operand operand) { set(operand, {Access::Kind::kWhole, 0}); }
  void take_slice(Operand operand, int dim, PolyId blocks = {}) {
    set(operand, {Access::Kind::kSlice, static_cast<std::int16_t>(dim), blocks});
  }
  // As rows that pair with `rows`. Refused where nothing says in which order those are.
  void take_slice_like(Operand operand, int dim, const Placement& rows);
  void take_chain(Operand operand) { set(operand, {Access::Kind::kChain, 0}); }
  void take_part(Operand operand) { set(operand, {Access::Kind::kPart, 0}); }
  // Rows of this part and of all before it.
  void take_prefix(Operand operand, int dim) {
    set(operand, {Access::Kind::kPrefix, static_cast<std::int16_t>(dim)});
  }
  void take_any(Operand operand) { set(operand, {Access::Kind::kAny, 0}); }
  // The rows of a tensor along `dim` that go with the part, though other extents of it may count
  // tokens, too.
  void take_rows_of(Operand operand, int dim);
  // Nothing may have written the value's storage before this call.
  void rely_on_zeros(Operand zeros) { relied_on_ = {zeros.arg.as_node(), ReliedContent::kZeros}; }
  void rely_on_order(Operand order) { relied_on_ = {order.arg.as_node(), ReliedContent::kSortedOrder}; }
  void cut_attention(const AttentionCut& cut) { cut_ = cut; }
  // The rows take the part's share of a sum over all rows: refused, unless the user accepts it.
  void take_own_sum(Operand sum);
  void assume(std::string text) { assumptions_.push_back({id_, std::move(text)}); }
  void assume_unproven(std::string text) { assumptions_.push_back({id_, std::move(text), true}); }

  [[noreturn]] void refuse(std::string id, std::string problem, std::string remedy = {}) const;

  const std::vector<Access>& accesses() const { return accesses_; }
  // Refuses a divided operand that the rule has not looked at: it would be taken by part unawares.
  void require_all_considered() const;
  // Refuses a result that is no sum of what the parts have, though it is `placement`: by its dtype,
  // or by those of sums that it takes.
  void require_sums(const Placement& placement);
  const std::vector<Assumption>& assumptions() const { return assumptions_; }
  const std::optional<AttentionCut>& cut() const { return cut_; }
  const ReliedOn& relied_on() const { return relied_on_; }
  std::string name_of(Operand operand) const;
  // Whether the parts of a sum may be cast to another type, each by itself.
  bool converts_sum(Operand sum, DType to) const;

 private:
  void set(Operand operand, Access access);
  void consider(const Operand& operand);
  const Placement& seen(NodeId value) const { return placements_.seen_from(value, placements_.region[id_]); }
  bool is_arithmetic_of_part(NodeId number) const;
  [[noreturn]] void refuse_unordered(Operand operand) const;

  const Graph& graph_;
  const Body& body_;
  const Placements& placements_;
  TokenExtents& tokens_;
  Facts& facts_;
  const PlacementOptions& options_;
  NodeId id_;
  const Node* node_ = nullptr;
  std::vector<Operand> operands_;        // positional, then by keyword
  std::vector<std::string_view> names_;  // of those passed by keyword
  std::vector<Access> accesses_;
  std::vector<bool> considered_;  // of each node reference
  std::vector<Assumption> assumptions_;
  std::optional<AttentionCut> cut_;
  ReliedOn relied_on_;
  // What is_made_of_sums has found: for which group of regions, from 1 on, and the answer.
  struct SumAnswer {
    std::uint32_t group = 0;
    bool is_made = false;
  };
  SideTable<NodeId, SumAnswer> made_of_sums_;
};

using PlacementRule = Placement (*)(PlacementCall&);

// The rule of an op, or null.
PlacementRule find_placement_rule(const OpInfo& op);

bool writes_nothing(const OpInfo& op);
bool any_op(const OpInfo& op);

// One rule for each family of ops: rows of the tables in placement_rules_*.cc. Ops of the family
// that it does not cover are placed by their mapping: they write into an operand in a way of their
// own, or give several results where the others give one.
struct PlacementRow {
  OpFamily family;
  PlacementRule rule;
  bool (*covers)(const OpInfo& op) = writes_nothing;
};
std::span<const PlacementRow> elementwise_placement_rows();
std::span<const PlacementRow> shape_placement_rows();
std::span<const PlacementRow> compute_placement_rows();
std::span<const PlacementRow> routing_placement_rows();
std::span<const PlacementRow> collective_placement_rows();
std::span<const PlacementRow> attention_placement_rows();
// All of them.
std::vector<PlacementRow> placement_rows();

// By what the op is linear in, which decides what it may do with sums of parts.
Placement elementwise(PlacementCall& call, std::span<const Operand> operands, Linearity linearity);

// The remedy for a loop over experts that takes each one's rows by what data say on the host.
constexpr std::string_view kGroupRows =
    "sort the rows by expert and multiply them in groups (torch._grouped_mm with offs=counts.cumsum(0)), or "
    "run each expert on all rows and weigh them by 0 where it is not chosen";

// A write into what all parts share: refused where an operand is divided.
Placement write_to_shared(PlacementCall& call);

// By the mapping of the call's dimensions (ops/mapping.h): rows of a divided dimension that is
// passed, a sum of one that is summed; refused where parts of it say nothing of the result.
Placement by_factors(PlacementCall& call);
// So, written over the first operand.
Placement by_factors_in_place(PlacementCall& call);

// A buffer that a device's kernel does not use has none: torch records an extent of 0.
bool has_elements(PlacementCall& call, const TensorType& type);

// Of sums of parts and of what all parts share, by what the op is linear in.
Placement sum_arithmetic(PlacementCall& call, std::span<const Operand> operands,
                         std::span<const Placement> placements, Linearity linearity);

// The common placement of row operands; refused if they differ in dimension, or in the blocks that
// are divided. At least one must be rows.
Placement common_rows(PlacementCall& call, std::span<const Placement> placements);

// Refuses rows that pair by number where one value has more of them: a part's first rows are
// others.
struct RowsOfValue {
  Operand value;
  int dim = 0;
};
void require_same_extent(PlacementCall& call, const RowsOfValue& a, const RowsOfValue& b);
// Rows of a value that all parts share and that is not divided, beside rows of a part.
[[noreturn]] void refuse_shared_rows(PlacementCall& call, const RowsOfValue& rows);
// Random numbers, drawn of the joined rows as the step draws them: parts would draw others. Rows in
// an order of the part's own are refused.
Placement draw_once(PlacementCall& call);

// Rows from outside, which may be cut in any blocks, are cut in those of the part's rows that they
// pair with.
void cut_outside_rows(PlacementCall& call, std::span<const Operand> operands,
                      std::span<Placement> placements);

// Whether row i of one is row i of the other, as far as blocks decide it.
bool same_order(const Placement& a, const Placement& b);
// Refuses rows that are paired though a part has them in different orders.
void require_same_order(PlacementCall& call, const Placement& a, const Placement& b);

}  // namespace epweave
