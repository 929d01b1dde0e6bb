// Execution traces for ASTRA-sim: docs/astra_sim.md.
#include <fmt/format.h>

#include <filesystem>
#include <system_error>

#include "commands.h"
#include "common/command_files.h"
#include "common/graphs.h"
#include "common/report.h"
#include "cost/chakra.h"
#include "cost/simulate.h"
#include "io/file.h"
#include "output_folder.h"
#include "step_clock.h"

namespace epweave::cli {
namespace {

namespace fs = std::filesystem;

// Whether a folder has nothing but what this command writes.
bool is_of_traces(const fs::path& folder) {
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (name != "groups.json" && !(name.starts_with("trace.") && name.ends_with(".et"))) return false;
  }
  return true;
}

// May replace a folder of traces, and nothing else.
OutputFolder make_folder(const std::string& path) {
  std::error_code error;
  if (fs::exists(path, error) && (!fs::is_directory(path, error) || !is_of_traces(path)))
    throw UsageError(fmt::format("{}: it exists and is no folder of traces; give a new one", path));
  return {path, "traces are a file for each rank", OutputFolder::Existing::kReplaced};
}

}  // namespace

int convert_to_chakra(const ConvertOptions& options, Console& console) {
  const Cluster cluster = parse_cluster(options.cluster, read_cluster_file);
  if (cluster.launch_joins == 0 || cluster.host_us != 0 || cluster.has_contention())
    throw UsageError(
        "execution traces have no place for launch_joins=0, host_us or contention: leave them out of "
        "--cluster");
  OutputFolder folder = make_folder(options.folder);
  const Graph graph = read_sound_input(options.input);
  const StepModel model = price_step(graph, cluster, options.pricing);
  const ChakraTraces traces(graph, model);
  for (std::uint32_t rank = 0; rank < traces.ranks(); ++rank)
    write_bytes(folder.place(fmt::format("trace.{}.et", rank)), traces.trace(rank));
  write_bytes(folder.place("groups.json"), traces.groups_file());
  folder.commit();

  Simulator simulator(model);
  const double makespan = simulator.run(given_order(model)) * 1e3;
  const double exposed = simulator.measure().exposed * 1e3;
  if (console.json()) {
    console.print(report_text({{"input", file_report(options.input.path)},
                               {"folder", options.folder},
                               {"cluster", cluster.name},
                               {"changed", changed_parameters(cluster)},
                               {"costs", text_or_null(options.pricing.costs)},
                               {"unpriced", model.unpriced.size()},
                               {"ranks", traces.ranks()},
                               {"nodes", traces.nodes()},
                               {"collectives", traces.collectives()},
                               {"groups", traces.groups()},
                               {"makespan_ms", makespan},
                               {"exposed_ms", exposed}}));
  } else {
    console.info(
        fmt::format("{}: {} ranks, {} nodes each, {} collectives, {} groups; epweave's own clock: {:.3f} ms, "
                    "{:.3f} ms exposed\n",
                    options.folder, traces.ranks(), traces.nodes(), traces.collectives(), traces.groups(),
                    makespan, exposed));
  }
  return kFine;
}

}  // namespace epweave::cli
