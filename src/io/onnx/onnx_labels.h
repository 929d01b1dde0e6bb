// Words for attributes, and for what viewers show of a node.
//
//   %mm = aten.mm.default(%x, %w)      parameter_name(%mm, 1) = "mat2"; list_input_names(%mm) = {"self", "mat2"}
#pragma once

#include <string>
#include <vector>

#include "ir/graph.h"
#include "ir/text/text_printer.h"

namespace epweave::onnx_form {

// Of the positional argument: as in the op's schema, or "arg1".
std::string parameter_name(const Node& node, std::uint32_t position);
// Of the entry of `kwargs` at this place: its keyword, or "keyword0" where that is no name.
std::string keyword_name(const Context& context, const Node& node, std::uint32_t place);

// The parameter of each node that the arguments read, in order: "tensors[0]", "tensors[1]".
std::vector<std::string> list_input_names(const Context& context, const Node& node);

// "layers.1.moe backward, part 0 : bf16[u0, 256]".
std::string describe_node(const Node& node, text::Printer& printer);

}  // namespace epweave::onnx_form
