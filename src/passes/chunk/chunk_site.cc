#include "passes/chunk/chunk_site.h"

#include <fmt/format.h>

namespace epweave {
namespace {

StringId original_of(const Node& node) {
  if (node.chunk.original_name) return node.chunk.original_name;
  const NameList origins = origins_of(node);
  return node.chunk.role && !origins.empty() ? origins.front() : node.name;
}

}  // namespace

std::string name_for_user(const Graph& chunked, const Node& node) {
  const std::string_view name = chunked.text(original_of(node));
  if (node.chunk.part) return fmt::format("part {} of '{}'", *node.chunk.part, name);
  return node.chunk.role ? fmt::format("'{}', put together from its parts,", name)
                         : fmt::format("'{}'", name);
}

Site site_for_user(const Graph& chunked, const Node& node) {
  Site site = site_of(chunked, node);
  site.node = chunked.text(original_of(node));
  return site;
}

}  // namespace epweave
