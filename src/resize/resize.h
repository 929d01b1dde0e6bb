// resize: the same program at other sizes, so that a graph of a large model runs on one machine.
//
//   before                                        after tokens=512, layers=1
//     symbol u0 range=[8, 1024] hint=1024           symbol u0 range=[8, 1024] hint=512
//     %x = placeholder : i64[u0]                    %x = placeholder : i64[u0]
//     %kv = placeholder : i32[1, 1, 8]              %kv = placeholder : i32[1, 1, 4]    blocks of 128
//     %a = relu(..) : [u0, 4] @layers.0             %a = relu(..) : [u0, 4] @layers.0
//     %b = relu(%a) : [u0, 4] @layers.1             %n = norm(%a) : [u0, 4] @norm
//     %n = norm(%b) : [u0, 4] @norm
//
// Sizes that can be set:
//
//   tokens     the extent of a flat user input of tokens; a symbol with its number, or a plain
//              number (then `symbolize` finds what scales with it, and `concretize` undoes it)
//   batch, sequence   the same of a grid of [batch, sequence]
//   layers     how many of the modules layers.0, layers.1, .. there are: the first ones stay
//
// Besides the extents that the graph's own symbols and shape rules relate to the token count, two
// kinds of inputs follow it: block tables of FlexAttention have a row for each block of tokens, and
// what a mask function looks up and has one block more than there are tokens keeps that distance,
// which is an assumption.
//
// What is left is proved by the invariants of analysis/verify.h: each recorded type is what the
// type rule gives. A graph that breaks one that its input kept is refused, with the node.
//
// Bounds of symbols (512 <= u0) say for which sizes the graph was traced. One that the new size is
// outside of is widened, and a note says so. Another fact that the new size contradicts is refused.
//
// Refusals: "resize.name", "resize.size" (not what ranks or blocks divide), "resize.fact",
// "resize.table", "resize.layers", "resize.type".
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ir/graph.h"

namespace epweave {

struct SizeSetting {
  std::string name;        // "tokens"
  std::int64_t value = 0;  // > 0
};

// A size of the graph that can be set.
struct NamedSize {
  std::string name;  // "tokens"
  std::int64_t value = 0;
  std::string form;                  // "u0", "number", "modules"
  std::vector<std::string> appears;  // "tokens:0"; "layers.0..26"
  std::int64_t divisor = 1;          // of each value that can be set
};

// In the order in which they are set.
std::vector<NamedSize> list_sizes(const Graph& graph);

struct Resized {
  Graph graph;                     // without a row for this run in its log
  std::vector<std::string> notes;  // "assumption: ..", what changed
};

// `graph` is sound. Throws PassError; nothing is set twice.
Resized resize(const Graph& graph, const std::vector<SizeSetting>& settings);

}  // namespace epweave
