// Help for a terminal: lines that are longer than it is wide go on under where they began.
//
//   --trace FILE                Write the order of issue as a trace for ui.perfetto.dev, that
//                               of --before too
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace epweave::cli {

// As many columns as the terminal of standard output has, or 0: it is none, and lines stay whole.
std::size_t output_columns();

// Commands among the examples stay whole, to be copied.
std::string wrap_help(std::string_view text, std::size_t columns);

}  // namespace epweave::cli
