// The commands: what the command line says, and one function for each. They throw the errors of
// base/error.h, which main turns into messages and exit codes.
#pragma once

#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "common/console.h"
#include "common/exit_codes.h"
#include "common/graphs.h"

namespace epweave::cli {

struct RewriteOptions {
  InputOptions input;
  OutputOptions output;
  std::string pipeline, preset;  // one of them
  std::string verify = "each";
  std::vector<std::string> print_after;  // pass names or "all"
  std::string dump_dir;
  std::string report;                     // file for what runs under each token exchange; empty: none
  std::optional<std::string> reproducer;  // file to run; brings input and pipeline
  std::optional<std::string> keep;        // where a pass that fails or declines leaves a reproducer
  bool print_pipeline = false, print_plan = false, print_changed = false, time_passes = false;
};

struct PrintOptions {
  InputOptions input;
  bool full = false;
  std::string grep;         // regular expression on the printed line
  std::string module;       // module pattern, as analysis/module_path.h has them
  std::optional<int> part;  // of the parts that a module was divided into, from 0
};

struct VerifyOptions {
  InputOptions input;
  InputOptions rewritten;  // no path: `input` is checked on its own
  bool assume_none = false;
};

struct RanksOptions {
  std::vector<InputOptions> inputs;
  bool explain_literals = false;  // list what only looks like a rank's number
};

struct PartitionOptions {
  InputOptions input;
  std::string forward, backward;  // files for the halves
  std::string policy = "exact";   // min-cut, tags, exact
  // exact: "0.5" of the bytes without recomputation, "26000MiB", "23.5ms"; none: no product or
  // attention again, and a second is worth the bytes that the host's link moves in it
  std::optional<std::string> budget;
  std::string reshard = "always";
  std::vector<std::string> tangents;  // names of inputs that only backward is given, beside those that say so
  std::string report;                 // file for the JSON report; empty: none
};

struct VerifyHalvesOptions {
  InputOptions input;
  InputOptions forward, backward;
  std::vector<std::string> tangents;  // as in PartitionOptions
};

struct ExplainOptions {
  InputOptions input;
  std::string node;  // with or without '%'
};

struct OverlapOptions {
  InputOptions input;
  std::vector<InputOptions> more;  // graphs behind the first: a row of one table for each
  InputOptions before;             // no path: none
  std::string trace;               // file for the trace; empty: none
  std::optional<std::uint64_t> max_exposed;
  bool all = false;  // every region on its own, though others say the same
};

struct ReportCommand {
  InputOptions a, b;
  std::vector<std::string> outputs;  // .html, .md, .json; empty: standard output, Markdown
  std::string cluster;               // that times are predicted for; empty: that of B's passes
  std::string costs;                 // file of measured costs; empty: none
};

// Where the prices of calls are from that the cluster does not say.
struct Pricing {
  std::string costs;                // file of measured costs; empty: none
  std::string unpriced = "refuse";  // or "free"
};

struct SimulateOptions {
  InputOptions input;
  std::string cluster = "h100";  // a shape, with changes: "h100+nic=4e11"
  std::vector<std::string> set;  // "nic=4e11"
  Pricing pricing;
  std::string trace;                // file for the trace; empty: none
  std::string measured;             // timeline to compare with; empty: none
  std::string baseline;             // an earlier report; empty: none
  std::optional<double> tolerance;  // share by which makespan and peak may grow: 0.01 where not given
};

struct ConvertOptions {
  InputOptions input;
  OutputOptions output;
  std::string folder;            // of execution traces
  std::string cluster = "h100";  // that they are priced for
  Pricing pricing;
};

struct ReduceOptions {
  InputOptions input;
  OutputOptions output;
  std::vector<std::string> command;  // {}: the file; without, it is the last word
  double timeout = 0;                // seconds for each run; 0: none
  std::size_t jobs = 1;              // candidates tried at once
};

struct BisectCommand {
  InputOptions input;
  std::string pipeline, preset;      // one of them
  std::string folder;                // for the graphs before and after the pass
  std::vector<std::string> command;  // {}: the file; without, it is the last word
  double timeout = 0;                // seconds for each run; 0: none
};

struct ExtractCommand {
  InputOptions input;
  OutputOptions output;
  std::vector<std::string> modules;  // patterns
  std::string direction = "both";    // fwd, bwd
  std::optional<std::size_t> count;  // of modules
};

struct ResizeCommand {
  InputOptions input;
  OutputOptions output;
  std::vector<std::string> set;  // "tokens=4096"
  bool list = false;             // what can be set; nothing is written
};

struct SpecializeCommand {
  InputOptions input;
  OutputOptions output;
  std::optional<std::int64_t> rank;
  bool all = false;  // every rank's, to a folder
};

struct GeneralizeCommand {
  std::vector<InputOptions> inputs;  // one for each rank
  OutputOptions output;
  bool repair = false;
};

struct ArtifactCommand {
  std::string action;  // make, check
  InputOptions input, against;
  OutputOptions output;
  std::vector<std::string> config, allow;  // KEY=VALUE; fields that may differ
  std::optional<std::uint32_t> rank;       // that is to run it
};

struct DiffCommand {
  InputOptions a, b;
  std::vector<std::string> ignore;  // names, order, metadata, types, provenance
  bool summary = false, full = false;
  std::string html;  // file for the page; empty: none
};

// Anything that keeps diff from comparing: exit 2, as diff(1) has it.
class DiffTrouble : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

int diff(const DiffCommand& command, Console& console);
int partition(const PartitionOptions& options, Console& console);
int verify_halves(const VerifyHalvesOptions& options, Console& console);
int rewrite(const RewriteOptions& options, Console& console);
int print(const PrintOptions& options, Console& console);
int stats(const std::vector<InputOptions>& inputs, Console& console);
int verify(const InputOptions& options, Console& console);
int verify_rewrite(const VerifyOptions& options, Console& console);
// One graph for each rank, or one that all ranks run.
int verify_ranks(const RanksOptions& options, Console& console);
// What the graph has and lacks for each pass; exit 1 where something is missing.
int doctor(const InputOptions& options, Console& console);
int explain(const ExplainOptions& options, Console& console);
int overlap(const OverlapOptions& options, Console& console);
int simulate(const SimulateOptions& options, Console& console);
int report(const ReportCommand& command, Console& console);
int reduce(const ReduceOptions& options, Console& console);
// The first pass after which a command fails; exit 1 where none is, or several can be.
int bisect(const BisectCommand& command, Console& console);
int convert(const ConvertOptions& options, Console& console);
int extract(const ExtractCommand& command, Console& console);
int resize(const ResizeCommand& command, Console& console);
int specialize(const SpecializeCommand& command, Console& console);
int generalize(const GeneralizeCommand& command, Console& console);
int artifact(const ArtifactCommand& command, Console& console);
int convert_to_chakra(const ConvertOptions& options, Console& console);
// Only those of these names, where there are any.
int list_passes(const std::vector<std::string>& names, Console& console);

}  // namespace epweave::cli
