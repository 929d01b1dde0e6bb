// Whether a command fits into memory, before anything is made or run; and what it would do.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/report.h"
#include "replay/need/rank_need.h"
#include "replay/need/step_work.h"
#include "replay_commands.h"
#include "replay_setup.h"

namespace epweave::cli {

// Where graphs run: the CPU, a device, or a GPU that is not in this machine (--dry-run).
struct FitPlace {
  const replay::Device* device = nullptr;  // null: the CPU, or no GPU is here
  bool is_absent = false;                  // the GPU
  std::string name = {};                   // as --device has it, where a command may have two
  bool is_cpu() const { return device == nullptr && !is_absent; }
  bool is_emulated() const { return device != nullptr && device->memory_bytes() == 0; }
};

struct OpenedDevice {
  std::unique_ptr<replay::Device> device;  // null: the CPU, or no GPU is here
  bool is_absent = false;
  replay::Device* get() const { return device.get(); }
};
// With --dry-run a GPU that is not here is absent; else what `open` throws.
OpenedDevice open_for(const ReplayOptions& options,
                      const std::function<std::unique_ptr<replay::Device>()>& open);

// A graph that the command runs.
struct FitGraph {
  const Graph& graph;
  const InputOptions& input;
  FitPlace place;
  std::uint32_t runs = 1;   // from fresh inputs, with values compared or not
  bool has_bounds = false;  // runs with bounds, too
  FitPlace bounded_place = {};
  IdSet<NodeId> followed = {};  // values that have bounds then
};

struct FitCommand {
  std::vector<FitGraph> graphs;
  const ReplayOptions& options;
  replay::Rank ranks = 0;       // in this process
  std::uint32_t processes = 1;  // of this command on this host
  bool has_own_device = false;  // ranks are processes
  bool compares = false;        // check: A, B and a reference, if any
  // Throws where inputs of a graph that fits cannot be made.
  std::function<void()> require_inputs = {};
};

// With --dry-run says what the command would take, and it is done. Throws PassError (replay.memory)
// where it does not fit.
struct Fitting {
  bool is_done = false;
  std::size_t kept_bytes = 0;  // CheckSetup's
  double deadline = 0;         // seconds: --deadline where it is not given
};
Fitting fit(const FitCommand& command, Console& console);
// Where --deadline is not given: the one that fits, which grows with what the run measures.
void take_deadline(const Fitting& fitting, ReplayOptions& options);

class Fit {
 public:
  explicit Fit(const FitCommand& command);

  // Throws PassError (replay.memory) with the node of the peak, what lives there, and what would
  // fit, where inputs and values alone take more than there is.
  void require() const;
  // Warns where the rest, of which only the most is known, may take more.
  void warn(Console& console) const;
  std::string text() const;
  Json json() const;
  // Of A's values with bounds that may be kept at a time, where bounds are made.
  double kept_bytes() const { return kept_; }
  // How long a rank may have to wait for the others: they may do a whole step meanwhile, several
  // times slower than predicted.
  double deadline() const;

 private:
  struct Line {
    const char* name;
    double bytes;      // at most
    double least = 0;  // of them, what is certain
  };
  struct Memory {
    std::string of;    // in JSON: "host", "device"; of two devices B's is "device_b"
    std::string name;  // "the device", "A's device"
    std::vector<Line> lines;
    std::optional<double> there;                  // none: not known
    bool is_allowed = false;                      // --memory says so
    bool is_absent = false, is_emulated = false;  // a device
    double sum() const;
    double least() const;
    bool fits() const { return !there || sum() <= *there; }
    bool can_fit() const { return !there || least() <= *there; }
  };
  struct GraphNeed {
    const FitGraph* run = nullptr;
    replay::RankNeed need;     // where it runs
    replay::RankNeed bounded;  // with bounds; empty where there are none
    bool is_bounded_there() const { return run->has_bounds && !run->bounded_place.is_cpu(); }
    // Where it runs, of its runs the one that takes most.
    const replay::RankNeed& most() const { return is_bounded_there() ? bounded : need; }
    std::uint32_t bounded_runs = 0;             // of a dry run
    double flops = 0, copied = 0, seconds = 0;  // of all runs and ranks here
    double longest = 0;                         // seconds: of its runs, of all ranks that share the place
    std::size_t kernels = 0, measured = 0;
  };

  void find_needs();
  void add_host();
  void add_devices();
  void add_device(const FitPlace& place);
  void count_lots();
  replay::StepWork bounded_work(const FitGraph& run) const;
  double count_sharing(const FitPlace& place) const;
  const GraphNeed& largest() const;
  double count_kept(const GraphNeed& entry) const;
  double certain_values(const GraphNeed& entry) const;
  bool would_fit(const Graph& graph) const;
  [[noreturn]] void refuse(const Memory& memory) const;
  std::string describe_live(const Graph& graph, const replay::LiveValue& value) const;
  std::string describe_peak(const GraphNeed& need) const;
  std::string find_part(const std::string& name) const;
  std::string find_size(const std::string& name) const;
  std::string find_remedy(const Memory& memory) const;

  const FitCommand& command_;
  std::vector<GraphNeed> needs_;
  std::vector<Memory> memories_;
  double kept_ = 0;
};

}  // namespace epweave::cli
