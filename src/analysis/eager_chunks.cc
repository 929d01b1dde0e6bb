#include "analysis/eager_chunks.h"

namespace epweave {

std::optional<ChunkInfo> find_eager_notes(const Context& context, const Node& node) {
  if (!node.extra) return std::nullopt;
  ChunkInfo chunk;
  bool is_noted = false;
  const auto entries = context.args[node.extra->custom];  // name, value, name, value, ...
  for (std::size_t i = 0; i + 1 < entries.size(); i += 2) {
    const std::string_view name = context.text(entries[i].as_name());
    const Arg value = entries[i + 1];
    if (name == "chunked_region_fqn" && value.is(ArgKind::kText)) chunk.region = value.as_name();
    if (name == "chunked_region_role" && value.is(ArgKind::kText)) chunk.role = value.as_name();
    if (name == "chunk_id" && value.is_int() && value.as_int() >= 0 && value.as_int() <= INT32_MAX)
      chunk.part = static_cast<std::int32_t>(value.as_int());
    is_noted = is_noted || name == "chunked_region_role" || name == "chunk_id";
  }
  return is_noted ? std::optional(chunk) : std::nullopt;
}

}  // namespace epweave
