// Scaled dot product attention with a causal mask, in parts of the queries that see the keys of all
// parts.
//
//   attention(q, k, v, None, True, 0.0, is_causal=True)
//
//   part 1     %bias = expand(triu(full([h, u], -inf), h + 1), [1, 1, h, u])     -inf: a key behind its query
//              attention(q_1, k, v, %bias, True, 0.0, is_causal=False)
//
// is_causal would begin at the first query that the call is given, or, in some kernels, at the last
// one. All calls of a part whose numbers of rows and keys are the same share a bias.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "passes/chunk/chunk_sizes.h"
#include "passes/chunk/chunk_writer.h"

namespace epweave {

class PartCausalMask {
 public:
  PartCausalMask(const Graph& graph, const ChunkPlan& plan, Graph& chunked, ChunkWriter& writer,
                 PartSizes& sizes)
      : in_(graph), plan_(plan), out_(chunked), writer_(writer), sizes_(sizes) {}

  // Gives part `part` of a call the bias instead of is_causal. `node` has its other arguments.
  void adapt(NodeId original, std::size_t part, Node& node);

 private:
  // What a bias is made for first.
  struct Call {
    NodeId original, query;   // the whole call; its query's part
    const TensorType& whole;  // of the whole query
    ExprId keys;              // how many there are
    RegionId region;
    std::size_t part;
  };
  NodeId make_bias(const Call& call);
  void decline_gradient(Node& node);
  // The first key that the part's first query does not see.
  Arg first_hidden_key(const Call& call);
  Arg query_size(const Call& call, int dim);
  struct Step {
    std::string_view name, target;
    std::vector<Arg> args;
    ArgRange kwargs = {};
    ProvenanceRole role = ProvenanceRole::kAdded;
  };
  Arg append(const Call& call, Step step);

  // Division, part, sizes of the bias (as far as they are the whole call's), data type and device.
  using Key = std::tuple<std::uint32_t, std::size_t, std::vector<ExprId>, DType, StringId>;

  const Graph& in_;
  const ChunkPlan& plan_;
  Graph& out_;
  ChunkWriter& writer_;
  PartSizes& sizes_;
  std::map<Key, NodeId> made_;
};

// What the biases of all parts hold together, by the sizes that the graph was exported with: "masks
// of parts: 2097152 bytes in all, from the first forward to the last backward". None without such
// calls.
std::optional<std::string> describe_causal_masks(const Graph& graph, const ChunkPlan& plan);

}  // namespace epweave
