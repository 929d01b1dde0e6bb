// Random code on rows of tokens, for random_graph.h.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "testing/dice.h"
#include "testing/step_builder.h"

namespace epweave {

constexpr std::int64_t kResidualWidth = 8;

// Rows of one kind: token slots in order, sorted slots, or received rows. All are f32[extent,
// width].
struct Rows {
  std::string extent;
  std::vector<NodeId> values;
};

// Each operation takes values from the pool of rows and adds what it computes.
class RowCode {
 public:
  RowCode(StepBuilder& build, Dice& dice) : build_(build), dice_(dice) {}

  // Makes no rows of pieces of others, which chunk refuses where a part has them in an order of its
  // own.
  void keep_rows_whole() { regroups_rows_ = false; }

  void add_weight(NodeId weight) { weights_.push_back(weight); }
  NodeId weight() const { return weights_.front(); }

  // A few operations; the last result.
  NodeId grow(Rows& rows, std::size_t count);

  // The value with the residual stream's width.
  NodeId widened(NodeId a);
  // [in, out], from the weights at hand.
  NodeId weight_for(std::int64_t in, std::int64_t out);
  // A sum over the rows: a weight's gradient f32[w, v], or f32[w].
  NodeId partial(const Rows& rows);

  Arg arg(NodeId id) const { return build_.arg(id); }
  Arg list(const std::vector<std::int64_t>& items) const;
  NodeId call(std::string_view target, const std::vector<Arg>& args, const StepBuilder::Keywords& kw = {});
  NodeId item(NodeId tuple, std::int64_t i) { return call("operator.getitem", {arg(tuple), build_.arg(i)}); }
  std::int64_t width(NodeId a) const { return build_.number(a, 1).value(); }

 private:
  using Step = NodeId (RowCode::*)(const Rows&);

  NodeId step(const Rows& rows);
  // Keeps numbers moderate.
  NodeId bounded(NodeId a);
  NodeId any(const Rows& rows) { return dice_.pick(rows.values); }
  // Another value of the same width.
  NodeId like(const Rows& rows, NodeId a);

  // Values (row_code_values.cc).
  NodeId unary(const Rows& rows);
  NodeId composed(const Rows& rows);  // of arguments of one sign
  NodeId binary(const Rows& rows);
  NodeId with_number(const Rows& rows);
  NodeId chosen(const Rows& rows);
  NodeId logical(const Rows& rows);
  NodeId softmax(const Rows& rows);
  NodeId reduced(const Rows& rows);
  NodeId product(const Rows& rows);
  NodeId biased(const Rows& rows);
  NodeId top(const Rows& rows);
  NodeId scanned(const Rows& rows);
  NodeId cast(const Rows& rows);
  NodeId rotated(const Rows& rows);
  NodeId normalised(const Rows& rows);
  NodeId batched(const Rows& rows);
  NodeId gradient(const Rows& rows);
  NodeId by_table(const Rows& rows);   // any elementwise operation of the op table
  NodeId looked_up(const Rows& rows);  // entries of a table that all parts share, or of the same few columns
  NodeId largest(const Rows& rows);

  // Shapes, and rows made anew (row_code_shapes.cc).
  NodeId folded(const Rows& rows);
  NodeId permuted(const Rows& rows);
  NodeId transposed(const Rows& rows);
  NodeId cut(const Rows& rows);
  NodeId split(const Rows& rows);
  NodeId selected(const Rows& rows);
  NodeId squeezed(const Rows& rows);
  NodeId made(const Rows& rows);
  NodeId padded(const Rows& rows);
  NodeId by_size(const Rows& rows);  // row counts as arguments
  NodeId filled(const Rows& rows);   // new rows: zeros and a number in them, or memory that is not read
  NodeId shaped(const Rows& rows);
  NodeId by_number(const Rows& rows);  // arithmetic on row counts

  // Small integers from 0 on, one for each row or element.
  NodeId integers(NodeId a, double below);
  NodeId select_one();
  // Divided by a number of the whole.
  NodeId scaled(NodeId a, NodeId n);
  NodeId to(NodeId a, std::string_view dtype);
  Arg contiguous() { return build_.memory_format("torch.contiguous_format"); }
  // Other steps halve the width.
  NodeId widened_even(NodeId a);

  StepBuilder& build_;
  Dice& dice_;
  bool regroups_rows_ = true;
  std::vector<NodeId> weights_;
};

}  // namespace epweave
