// Listings of graphs in colour, for terminals.
#pragma once

#include <string>
#include <string_view>

namespace epweave::cli {

// What `diff` prints: a line's colour by the mark at its start.
std::string paint_difference(std::string_view text);

// What `print` prints: names bold where a line defines them.
std::string paint_nodes(std::string_view text);

}  // namespace epweave::cli
