// The text form: one line per node, readable, greppable, diffable (docs/text_form.md).
//
// The full mode is lossless: parse_text(print_text(g)) == g. The short mode is for people: name,
// op, arguments, type, module; it cannot be read back.
#pragma once

#include <string>
#include <string_view>

#include "ir/graph.h"

namespace epweave {

enum class TextMode { kFull, kShort };

std::string print_text(const Graph& graph, TextMode mode = TextMode::kFull);
// One node, as in print_text but with the device of every type; for messages and listings.
std::string print_node(const Graph& graph, const Body& body, NodeId node, TextMode mode);

// Throws InputError "PATH:LINE:COLUMN: what", with the line and a caret below.
// The graph's strings, types and arguments go into `context`, a new one if there is none.
Graph parse_text(std::string_view text, const std::string& path, std::shared_ptr<Context> context = nullptr);

}  // namespace epweave
