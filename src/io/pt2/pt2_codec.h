// The program of a torch.export archive as a graph.
//
//   torch.export                            graph
//   input_specs: parameter, buffer, ...     roles of inputs, with fully qualified names
//   output_specs: loss, gradient, ...       roles of outputs
//   nodes that return several values        one node, and `operator.getitem` nodes, which the file leaves out
//   graphs as arguments                     nested graphs, and `get_attr` nodes, which the file leaves out
//   tensor_values, sym_int_values, ...      recorded types
//   expressions, range_constraints          symbols
//   nn_module_stack, stack_trace, custom    module, source, EP labels and other entries of "custom"
//
// Names, order and arguments are those that torch.export.load gives.
#pragma once

#include <memory>
#include <string>

#include "ir/graph.h"

namespace epweave {

// `program` is the JSON text of an ExportedProgram (schema version 8). Throws InputError naming
// `path` and the place.
Graph decode_pt2(const std::string& program, const std::string& path, std::shared_ptr<Context> context);

}  // namespace epweave
