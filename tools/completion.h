// Completion scripts and the manual page, written from what the commands accept.
#pragma once

#include "command_line.h"

namespace epweave::cli {

std::string bash_completion(const std::vector<CommandHelp>& commands);
std::string zsh_completion(const std::vector<CommandHelp>& commands);
std::string fish_completion(const std::vector<CommandHelp>& commands);
std::string manual_page(const std::vector<CommandHelp>& commands);  // man(7) source of epweave(1)

}  // namespace epweave::cli
