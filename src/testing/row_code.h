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
struct RowPool {
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
  NodeId grow(RowPool& rows, std::size_t count);

  // The value with the residual stream's width.
  NodeId widened(NodeId a);
  // [in, out], from the weights at hand.
  NodeId weight_for(std::int64_t in, std::int64_t out);
  // A sum over the rows: a weight's gradient f32[w, v], or f32[w].
  NodeId partial(const RowPool& rows);

  Arg arg(NodeId id) const { return build_.arg(id); }
  Arg list(const std::vector<std::int64_t>& items) const;
  NodeId call(std::string_view target, const std::vector<Arg>& args, const StepBuilder::Keywords& kw = {});
  NodeId item(NodeId tuple, std::int64_t i) { return call("operator.getitem", {arg(tuple), build_.arg(i)}); }
  std::int64_t width(NodeId a) const { return build_.number(a, 1).value(); }

 private:
  using Step = NodeId (RowCode::*)(const RowPool&);

  NodeId step(const RowPool& rows);
  // Keeps numbers moderate.
  NodeId bounded(NodeId a);
  NodeId any(const RowPool& rows) { return dice_.pick(rows.values); }
  // Another value of the same width.
  NodeId like(const RowPool& rows, NodeId a);

  // Values (row_code_values.cc).
  NodeId unary(const RowPool& rows);
  NodeId composed(const RowPool& rows);  // of arguments of one sign
  NodeId binary(const RowPool& rows);
  NodeId with_number(const RowPool& rows);
  NodeId chosen(const RowPool& rows);
  NodeId logical(const RowPool& rows);
  NodeId softmax(const RowPool& rows);
  NodeId reduced(const RowPool& rows);
  NodeId product(const RowPool& rows);
  NodeId biased(const RowPool& rows);
  NodeId top(const RowPool& rows);
  NodeId scanned(const RowPool& rows);
  NodeId cast(const RowPool& rows);
  NodeId rotated(const RowPool& rows);
  NodeId normalised(const RowPool& rows);
  NodeId batched(const RowPool& rows);
  NodeId gradient(const RowPool& rows);
  NodeId by_table(const RowPool& rows);   // any elementwise operation of the op table
  NodeId looked_up(const RowPool& rows);  // entries of a table of all parts, or of the same few columns
  NodeId largest(const RowPool& rows);

  // Shapes, and rows made anew (row_code_shapes.cc).
  NodeId folded(const RowPool& rows);
  NodeId permuted(const RowPool& rows);
  NodeId transposed(const RowPool& rows);
  NodeId cut(const RowPool& rows);
  NodeId split(const RowPool& rows);
  NodeId selected(const RowPool& rows);
  NodeId squeezed(const RowPool& rows);
  NodeId made(const RowPool& rows);
  NodeId padded(const RowPool& rows);
  NodeId by_size(const RowPool& rows);  // row counts as arguments
  NodeId filled(const RowPool& rows);   // new rows: zeros and a number in them, or memory that is not read
  NodeId shaped(const RowPool& rows);
  NodeId by_number(const RowPool& rows);  // arithmetic on row counts

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
