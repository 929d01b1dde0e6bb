// What torch.export keeps of a node's meta: strings under four keys, and JSON under "custom", which
// is where an exporter puts everything else (EP labels).
#pragma once

#include <string>
#include <string_view>

#include "io/pt2/pt2_json.h"
#include "ir/graph.h"

namespace epweave {

class Pt2Metadata {
 public:
  Pt2Metadata(const JsonReader& json, Context& context) : json_(json), context_(context) {}

  void read(const Json& metadata, Node& node);

 private:
  Arg text(std::string_view text) { return Arg::text(context_.strings.intern(text)); }
  Arg plain(const Json& value);
  Arg module_stack(std::string_view text, Node& node);
  Arg pieces(std::string_view text, ArgKind kind);
  void read_custom(const std::string& text, Node& node, NodeExtra& extra);

  const JsonReader& json_;
  Context& context_;
};

// The last frame of a stack trace that is not in torch itself: "model.py:3 in forward: x @ w".
std::string last_user_frame(std::string_view trace);

}  // namespace epweave
