// Attention in random steps: scaled dot product by three kernels, and FlexAttention with a mask of
// blocks.
//
//   Attention attention = calls.forward(rows);             rows [n, 8] to queries, keys, values of two heads
//   NodeId gradient = calls.backward(attention, g);        [n, 8], of the rows that queries, keys, values came from
//
// Tokens stand in rows [u0, 8], or in grids [u0, 3] or [3, u0] whose rows were merged. Along u0 a
// token sees all others, or those of its document: 8 tokens each.
#pragma once

#include <optional>
#include <vector>

#include "testing/dice.h"
#include "testing/step_builder.h"

namespace epweave {

enum class TokenLayout : std::uint8_t { kFlat, kBatch, kSequence };  // [u0], [u0, 3], [3, u0]
inline constexpr std::int64_t kGridExtent = 3;                       // of the dimension that is no symbol

// Rows [n, w] to a grid of them, as arguments of reshape.
std::vector<std::int64_t> grid_shape(TokenLayout layout, std::vector<std::int64_t> row);

struct Attention {
  enum class Kernel : std::uint8_t { kCudnn, kFlash, kEfficient, kFlex };
  Kernel kernel = Kernel::kCudnn;
  bool is_causal = false, drops = false, is_biased_by_place = false;
  NodeId query, key, value, results, rows;  // rows: what it gives, [n, 8]
  // A token sees others than those of its document, and not only along the grid's plain dimension.
  bool crosses_documents = false;
};

class AttentionCalls {
 public:
  AttentionCalls(StepBuilder& build, Dice& dice, TokenLayout layout)
      : build_(build), dice_(dice), layout_(layout) {}

  // What all calls share: block tables, the document of each token. Outside the modules.
  void make_masks(NodeId tokens);

  // Queries, keys and values from rows f32[n, 8] in the order of the tokens.
  Attention forward(NodeId query, NodeId key, NodeId value);
  NodeId backward(const Attention& forward, NodeId gradient);

 private:
  struct Functions {
    NodeId score, joint, mask;
  };
  Attention::Kernel pick_kernel();
  NodeId heads(NodeId rows);
  NodeId merged(NodeId heads);
  NodeId call_forward(const Attention& a);
  NodeId call_backward(const Attention& a, NodeId gradient);
  NodeId score_function(const Attention& a);
  NodeId joint_function(const Attention& a);
  NodeId mask_function(const Attention& a);
  Arg block_mask(NodeId mask) const;
  Arg captured() const {
    return build_.tuple(documents_ ? std::vector{arg(*documents_)} : std::vector<Arg>());
  }
  std::vector<NodeId> indices();
  Arg options() const { return build_.record({build_.text("OUTPUT_LOGSUMEXP"), build_.flag(true)}); }

  Arg arg(NodeId id) const { return build_.arg(id); }
  Arg number(std::int64_t n) const { return build_.arg(n); }
  Arg list(const std::vector<std::int64_t>& items) const;
  NodeId call(std::string_view target, const std::vector<Arg>& args, const StepBuilder::Keywords& kw = {}) {
    return build_.call(target, args, kw);
  }
  NodeId item(NodeId tuple, std::int64_t i) { return call("operator.getitem", {arg(tuple), number(i)}); }

  StepBuilder& build_;
  Dice& dice_;
  TokenLayout layout_;
  Arg length_;              // of the sequence
  NodeId counts_, blocks_;  // tables
  std::int64_t block_ = 0;
  std::optional<NodeId> documents_;  // i64[u0]
  std::size_t functions_ = 0;
};

}  // namespace epweave
