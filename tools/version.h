#pragma once

#include <string>

namespace epweave::cli {

// "epweave 0.1.0": what the pipeline log names.
std::string tool_name();

// The tool and the libraries that it runs with, on one line.
std::string version_text();

}  // namespace epweave::cli
