// A difference as text: the listing that `epweave diff` gives, and its summary.
#pragma once

#include <string>
#include <string_view>

#include "compare/diff/diff.h"
#include "ir/text/text_printer.h"

namespace epweave {

struct DiffSides {
  const Graph& a;
  const Graph& b;
  std::string_view name_a, name_b;  // files
};

// Prints nodes of one graph: "%mm = aten.mm.default(%x, %w) : f32[8, 4]", long argument lists cut.
class NodeLines {
 public:
  explicit NodeLines(const Graph& graph) : graph_(graph), printer_(graph, text::find_default_device(graph)) {}
  std::string print(const Body& body, NodeId node);
  // Its pieces: "%mm = aten.mm.default(%x, %w)" and "f32[8, 4]".
  std::string head(const Body& body, NodeId node);
  std::string type(TypeId type);

 private:
  const Graph& graph_;
  text::Printer printer_;
};

// What a node's difference is about: "layers.3.moe", cut at three elements. "" outside all modules.
std::string module_of(const DiffSides& sides, const BodyDiff& body, const NodeDiff& diff);

enum class Listing { kReadable, kEverything };

// One entry per node that differs, in the order of B, under a line for its module. A readable
// listing counts differences that say nothing new about a node (metadata, provenance, symbols that
// became numbers) behind it.
std::string print_diff(const DiffSides& sides, const GraphDiff& diff, Listing listing);

// How many nodes differ and how; before and after by op and by module.
std::string print_diff_summary(const DiffSides& sides, const GraphDiff& diff);

}  // namespace epweave
