// Attention calls in parts (placement/rules/placement_rules_attention.cc says what a part sees).
// FlexAttention:
//
//   flex_attention(q, k, v, score, (u, u, tables.., mask), (), (doc,))           mask: q_idx >= k_idx & ..
//
//   part 1     flex_attention(q_1, k, v, score, (h, u, tables of its rows.., mask_chunk1), (), (doc, h))
//                mask_chunk1(b, h, q_idx, k_idx, doc, first_row): q = q_idx + first_row;  q >= k_idx & ..
//
// With attention=prefix the keys are those of parts 0 to k, and the call's gradients of these are
// cut and added up:
//
//   part 1     %k_prefix_chunk1 = cat([%k_0, %k_1], 2)             flex_attention(q_1, %k_prefix_chunk1, ..)
//   backward   %gk_chunk1 = %s[1]                                  %s = split(%flexb_chunk1[1], [h, h], 2)
//              %gk_chunk0 = add(%s[0], %flexb_chunk0[1])
//
// What the functions capture stays whole, so it is indexed by numbers of the whole model. Scaled
// dot product attention: chunk_causal_mask.h.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "analysis/flex_attention.h"
#include "analysis/regional_tag.h"
#include "passes/chunk/chunk_block_tables.h"
#include "passes/chunk/chunk_causal_mask.h"
#include "passes/chunk/chunk_sizes.h"
#include "passes/chunk/chunk_writer.h"

namespace epweave {

// Throws PassError where a border between parts lies inside a block of a block table, or where rows
// that must count from a part's first one count no input's tokens. Adds what the borders
// rest on to the plan's assumptions.
void check_attention_borders(const Graph& graph, TokenExtents& tokens, Facts& facts, ChunkPlan& plan);

class PartAttention {
 public:
  PartAttention(const Graph& graph, const ChunkPlan& plan, Graph& chunked, ChunkWriter& writer,
                PartSizes& sizes);

  // Gives a part of a divided attention call the mask, functions and captured numbers of the part.
  // `node` has its arguments else; other nodes are left alone. A call that is tagged for
  // regional_inductor names its functions by nodes of its own.
  void adapt(NodeId original, std::size_t part, Node& node);
  // Whether a value is a gradient of keys or values of which each part of its call gives summands
  // for all parts before it, too.
  bool has_summands(NodeId original) const;
  // The parts of such a gradient. Summands are added from those of the last part on, as backward
  // comes by them.
  std::vector<NodeId> write_sums(NodeId original, const std::vector<Arg>& calls);

 private:
  // What is rebased, the first row, and how many indices count from it.
  using Key = std::tuple<std::uint32_t, ArgKind, std::uint64_t, std::size_t>;
  struct Use;
  void adapt_lengths(const Use& use, ExprId rows, std::vector<Arg>& mask);
  void adapt_to_rows(NodeId original, std::size_t part, Node& node);
  void name_own_functions(Node& node);
  void adapt_tables(const Use& use, std::vector<Arg>& mask);
  struct GradientStep {
    NodeId original;
    std::size_t part;
    std::string name;
    std::string_view target;
    std::vector<Arg> args;
    ProvenanceRole role = ProvenanceRole::kAdded;
  };
  NodeId append(const GradientStep& step);
  // The summands that a part of a call gives: a split into those of parts 0 to that; of part 0 its
  // own.
  NodeId cut_summands(NodeId original, std::size_t part, Arg call);
  void adapt_function(const Use& use, const FlexFunction& function, Arg& arg);
  NodeId rebased_source(const Use& use, const FlexFunction& function);
  StringId rebased_body(const Use& use, const FlexFunction& function);

  const Graph& in_;
  const ChunkPlan& plan_;
  Graph& out_;
  ChunkWriter& writer_;
  PartSizes& sizes_;
  const RegionalTag tag_;
  PartBlockTables tables_;
  PartCausalMask causal_;
  std::map<Key, NodeId> sources_;
  IdSet<NodeId> named_;  // of what names a nested graph: by a tagged call that was written
  std::map<Key, StringId> bodies_;
};

}  // namespace epweave
