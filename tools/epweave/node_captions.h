// Nodes in the words of the model: parameter names, modules and source lines, not "%arg36_1".
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "ir/graph.h"

namespace epweave::cli {

class NodeCaptions {
 public:
  explicit NodeCaptions(const Graph& graph);

  // "dispatch, part 0"; "all_gather_into_tensor of layers.3.attention.wq.weight"; "parameter
  // layers.0.w"; "mm".
  std::string what(NodeId id) const;
  // "layers.3.moe", "layers.3.moe backward"; "" outside all modules.
  std::string where(NodeId id) const;
  // "model.py:12", the last frame of the user's code; "" where the trace does not say.
  std::string source(NodeId id) const;
  // What the step takes or returns here, as it is called outside: "parameter layers.0.w", "grad of
  // layers.0.w"; a tied weight's gradient has two names.
  std::vector<std::string> roles(NodeId id) const;
  // The text with "%arg36_1" replaced by what the graph calls that input.
  std::string with_input_names(std::string_view text) const;

 private:
  const InputRole* role_of(NodeId id) const;
  // The parameter or buffer that a value is computed from by ops of one operand; null: none in
  // reach.
  const InputRole* source_input(NodeId id) const;

  const Graph& graph_;
  SideTable<StringId, const InputRole*> roles_;  // by the name of the placeholder
};

}  // namespace epweave::cli
