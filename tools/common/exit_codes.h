// Exit codes, in one place: what stands here is what --help and the manual pages of both programs
// say, and docs/command_line.md (the tests compare it).
#pragma once

#include <cstdint>
#include <string>

namespace epweave::cli {

enum ExitCode : int {
  kFine = 0,
  kDifferent = 1,
  kUsage = 2,
  kInvalidInput = 3,
  kDeclined = 4,
  kInternal = 5,
  kNoDevice = 77,  // as tests say that they were skipped
  kInterrupted = 130
};

enum class Program : std::uint8_t { kEpweave, kReplay };

// A line for each code that the program has: "  0    fine\n".
std::string exit_codes_text(Program program);

}  // namespace epweave::cli
