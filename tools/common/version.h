#pragma once

#include <string>
#include <string_view>

namespace epweave::cli {

// "epweave 0.1.0": what the pipeline log names.
std::string tool_name();

// The program and the libraries that it runs with, on one line.
std::string version_text(std::string_view program);

}  // namespace epweave::cli
