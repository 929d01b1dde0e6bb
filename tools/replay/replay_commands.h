// The commands of epweave-replay; see epweave/commands.h.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "common/console.h"
#include "common/exit_codes.h"
#include "common/graphs.h"

namespace epweave::cli {

inline constexpr const char* kReplayProgram = "epweave-replay";

struct ReplayOptions {
  std::uint32_t ranks = 0;  // 0: as the graph says
  std::uint64_t seed = 0;
  double deadline = 0;          // seconds; 0: what follows from the predicted step (replay_fit.h)
  bool deadline_grows = false;  // it was 0: it follows from what is measured, too
  double memory = 0;            // GiB; 0: all there is
  std::string data = "real";
  std::vector<std::string> inputs;  // safetensors
  std::string recipe;               // JSON; empty: the one that ships
  std::string device = "cpu";
  std::string math = "portable";  // or native
  bool pin_rows = false;
  std::optional<std::uint64_t> jitter;  // seed
  bool report_types = false;
  bool poison = false;
  bool dry_run = false;
  std::string costs_from;  // of a dry run: measured times; empty: assumed rates
};

// How ranks meet. Those that are processes of their own: see replay/nccl/place.h.
struct TransportOptions {
  std::string name = "local";  // or nccl
  std::optional<std::uint32_t> rank, world_size, local_rank;
  std::string rendezvous;
  std::string report_dir;    // where each rank's report is written; empty: nowhere
  bool nccl_native = false;  // NCCL's own sums; of run
  bool has_processes() const { return name == "nccl"; }
};

// Where measured times go; empty: nowhere.
struct MeasureOptions {
  std::uint32_t warm_up = 0, repeat = 1;
  std::string timeline, costs;
  std::optional<std::uint32_t> rank;  // whose spans alone are measured, with nothing else underway
  bool is_asked_for() const { return warm_up != 0 || repeat != 1 || !timeline.empty() || !costs.empty(); }
};

struct RunCommandOptions {
  InputOptions input;
  ReplayOptions replay;
  std::string outputs, save_inputs;  // safetensors; empty: none
  TransportOptions transport;
  MeasureOptions measure;
  bool nvtx = false;
  bool cuda_graphs = false;
};

struct CheckCommandOptions {
  InputOptions a, b;
  InputOptions reference;          // empty path: none
  std::string device_a, device_b;  // empty: as `replay` says
  ReplayOptions replay;
  std::string bounds;  // cpu, device, none; empty: device where one has both graphs and all ranks, else cpu
  bool cuda_graphs = false;  // refused
  TransportOptions transport;
  const std::string& name_of_a() const { return device_a.empty() ? replay.device : device_a; }
  const std::string& name_of_b() const { return device_b.empty() ? replay.device : device_b; }
};

struct StepsCommandOptions {
  InputOptions input;
  bool cuda_graphs = false;  // marks what `run` makes graphs of
};

int replay_run(const RunCommandOptions& options, Console& console);
int replay_check(const CheckCommandOptions& options, Console& console);
int replay_steps(const StepsCommandOptions& options, Console& console);
int replay_recipe(Console& console);

struct ReplayCommandLine {
  ConsoleOptions console;
  std::function<int(Console&)> run;
  bool can_run_again = false;  // by this process alone, from the same input
};

// Throws UsageError.
ReplayCommandLine parse_replay_command_line(int argc, char** argv);

}  // namespace epweave::cli
