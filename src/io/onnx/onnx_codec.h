// Graph <-> an ONNX model: the ONNX form (docs/onnx_form.md).
//
// A call is a node of the domain `pkg.torch.ops` or `pkg.torch`: values it reads are inputs, other
// arguments attributes named after the op's schema, and `pkg.epweave.call` in its metadata says how
// the call is put together from them:
//
//   %sum = aten.sum.dim_IntList(%x, [1], True, dtype=f32)
//
//   inputs "x"; attributes dim = [1], keepdim = 1, dtype = 1
//   pkg.epweave.call = "(%0, @dim, @keepdim:bool, dtype=@dtype:dtype)"
//
// What ONNX has no place for is metadata, one key `pkg.epweave.KEY` a fact, in the words of the
// text form.
#pragma once

#include <string>

#include "ir/graph.h"
#include "onnx_model.pb.h"

namespace epweave {

// What the model is stamped with. Both have the same content. Checkers as old as ONNX 1.10 accept
// IR 8; it repeats each node's metadata as string attributes, which programs see that know no
// metadata of nodes.
enum class OnnxIr : int { k8 = 8, k10 = 10 };

// Throws InputError for a graph whose structure is broken (verify_structure): ONNX has no place for
// those.
void encode_onnx(const Graph& graph, OnnxIr ir, onnx::ModelProto& model);

// Throws InputError naming `path` and what is not as encode_onnx writes it.
Graph decode_onnx(const onnx::ModelProto& model, const std::string& path, std::shared_ptr<Context> context);

}  // namespace epweave
