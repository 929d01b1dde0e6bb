// The commands of epweave-replay; see commands.h.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "commands.h"

namespace epweave::cli {

inline constexpr const char* kReplayProgram = "epweave-replay";

struct ReplayOptions {
  std::uint32_t ranks = 0;  // 0: as the graph says
  std::uint64_t seed = 0;
  double deadline = 60;  // seconds
  double memory = 0;     // GiB; 0: all there is
  std::string data = "real";
  std::string device = "cpu";
  std::optional<std::uint64_t> jitter;  // seed
  bool report_types = false;
  bool poison = false;
};

struct RunCommandOptions {
  InputOptions input;
  ReplayOptions replay;
};

struct CheckCommandOptions {
  InputOptions a, b;
  std::string device_a, device_b;  // empty: as `replay` says
  ReplayOptions replay;
};

int replay_run(const RunCommandOptions& options, Console& console);
int replay_check(const CheckCommandOptions& options, Console& console);
int replay_steps(const InputOptions& options, Console& console);

struct ReplayCommandLine {
  ConsoleOptions console;
  std::function<int(Console&)> run;
};

// Throws UsageError.
ReplayCommandLine parse_replay_command_line(int argc, char** argv);

}  // namespace epweave::cli
