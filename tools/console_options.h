// Options that every command of both programs takes.
#pragma once

#include "console.h"

namespace CLI {
class App;
}

namespace epweave::cli {

void add_console(CLI::App& command, ConsoleOptions& console);

}  // namespace epweave::cli
