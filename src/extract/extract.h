// extract: some modules' nodes as a graph of its own, which can be read, rewritten and executed
// alone.
//
//   before  %h = add(%x, %y)         @layers.1            after  %arg7 = placeholder   role=parameter
//           %t = t(%arg7)            @layers.1.moe               %h = placeholder      role=user which=h
//           %m = mm(%h, %t)          @layers.1.moe               %dz = placeholder     role=tangent which=dz
//           %z = relu(%m)            @layers.1                   %t = t(%arg7)
//           %dz = relu_grad(%z, ..)  @layers.1 bwd               %m = mm(%h, %t)
//           %g = mm(%dz, %arg7)      @layers.1.moe bwd           %g = mm(%dz, %arg7)
//                                                                output [%m, %g]
//
// What belongs to the subgraph: the calls whose module a pattern selects, in the direction asked
// for. An element of a tuple belongs where the tuple does, a wait where its launch does, a call
// without a module (a sum of gradients) where all that it reads does. What is computed from no
// input of the step (meshes, groups, constants) comes along where it is read.
//
//   inputs   those of the step that are read, in their order, with their roles (a sharded tensor's
//            mesh, too); then values from outside under their nodes' names: role `user`, of
//            backward `tangent`; what forward made and backward computes again is one
//   outputs  what the step returns, in its order, with its roles; then values used outside, in
//            execution order: role `other`, the node's name as fqn
//   symbols  those that are mentioned, and those that their facts mention; a number that nothing
//            inside computes is an input
//   groups and info stay whole: they say how many ranks there are; `num_static_inputs` counts those that are left
//
// A value from outside that the modules write in place is an input that is written in place. Nodes
// keep their names and provenance.
//
// Refusals: "extract.no-modules", "extract.no-module", "extract.direction" (no node in it),
// "extract.write" (outside, storage is written between two uses inside, or the other way round: the
// graph alone would read something else), "extract.symbol" (an input's size is a number that the
// modules compute), "extract.cut" (alone, nodes break another invariant, such as a copy to the host
// that only a node outside waits for).
//
// Numerics: each node computes what it computes in the step, given the same inputs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ir/graph.h"

namespace epweave {

enum class ExtractDirection : std::uint8_t { kForward, kBackward, kBoth };

struct ExtractOptions {
  std::vector<std::string> modules;  // patterns, as analysis/module_path.h has them
  ExtractDirection direction = ExtractDirection::kBoth;
  std::optional<std::size_t> count;  // of modules: the first ones that the step executes; none: all
};

struct Extraction {
  Graph graph;                        // without a row for this run in its log
  std::vector<std::string> modules;   // that the patterns select
  std::vector<std::string> entering;  // values from outside, now inputs
  std::vector<std::string> leaving;   // values used outside that the step does not return, now outputs
};

// `graph` is sound.
Extraction extract(const Graph& graph, const ExtractOptions& options);

}  // namespace epweave
