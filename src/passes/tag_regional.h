// Tags what torch's `regional_inductor` shall compile (analysis/regional_tag.h), as torchtitan does
// in front of it.
//
//   op=flex-attention     calls, forward and backward; the nested graphs that they name; all nodes
//                         in these
//   op=rms-norm           calls, forward and backward, and the elements taken of their results
//
//   %score = get_attr attr=graph(score0)                            custom{compile_with_inductor={}}
//   %flex_attention = higher_order.flex_attention(.., %score, ..)   custom{compile_with_inductor={}}
//
// A second run changes nothing; a run with other configs replaces them. Where two calls name a
// nested graph by one node, the second gets a node of its own: verify's invariant
// `regional-private` (analysis/verify.h).
#pragma once

#include <cstdint>
#include <optional>

#include "cost/unique_json.h"
#include "passes/pass.h"

namespace epweave {

enum class RegionalOp : std::uint8_t { kFlexAttention, kRmsNorm };

struct TagRegionalOptions {
  RegionalOp op = RegionalOp::kFlexAttention;
  // Options of Inductor, an object each; none: the tag is {}, which leaves Inductor as it is set.
  std::optional<Json>
      configs;  // of calls, of what is taken of their results, and of the nodes that name graphs
  std::optional<Json> function_configs;  // of the nodes in nested graphs
};

// Reads options of Inductor: {"max_autotune": true, "triton.cudagraphs": false}. Throws InputError
// naming `path`.
Json parse_inductor_configs(std::string_view text, const std::string& path);

PassResult tag_regional(const Graph& graph, const TagRegionalOptions& options);

}  // namespace epweave
