#include "replay_process.h"

#include <fmt/format.h>

#include <cstdlib>

#include "common/command_files.h"
#include "common/version.h"
#include "io/file.h"
#include "replay/kernels/device/device.h"
#include "replay_environment.h"
#include "replay_setup.h"

namespace epweave::cli {

namespace nccl = replay::nccl;

namespace {

std::string hash_bytes(std::string_view bytes) {
  return sha256_hex(bytes).substr(0, 16);
}
std::string hash_file(const std::string& path) {
  return hash_bytes(read_bytes(path));
}
// The file, or what was read of standard input.
std::string hash_graph(const Graph& graph, const InputOptions& input) {
  return input.path == "-" ? sha256_of_graph(graph).substr(0, 16) : hash_file(input.path);
}

// What both commands take.
std::string describe_options(const ReplayOptions& replay) {
  std::string text = fmt::format(", seed {}, {} data, {} math{}", replay.seed, replay.data, replay.math,
                                 replay.pin_rows ? " with pinned rows" : "");
  if (replay.report_types) text += ", recorded types reported";
  if (replay.poison) text += ", memory poisoned";
  if (replay.jitter) text += fmt::format(", jitter of seed {}", *replay.jitter);
  if (!replay.recipe.empty()) text += ", recipe " + hash_file(replay.recipe);
  for (const std::string& path : replay.inputs) text += ", inputs " + hash_file(path);
  return text;
}

}  // namespace

nccl::RankPlace find_place(const TransportOptions& options, const replay::World& world) {
  const nccl::PlaceOptions given{options.rank, options.world_size, options.local_rank, options.rendezvous};
  nccl::RankPlace place =
      nccl::find_place(given, [](const char* name) -> const char* { return std::getenv(name); });
  if (place.ranks != world.size)
    throw UsageError(
        fmt::format("the graph is one of {} ranks, {} started {}", world.size, place.launcher, place.ranks));
  return place;
}

std::unique_ptr<replay::Device> open_device_of(const std::string& name, const ReplayOptions& options,
                                               const nccl::RankPlace& place) {
  if (name == "cpu")
    throw UsageError("--transport nccl needs --device cuda; on the CPU all ranks are threads of one process");
  const replay::device::MathMode mode = read_math(options);
  if (name == "emulated")
    return replay::device::open_emulated_device(replay::device::Emulation::kConcurrent, mode);
  if (name != "cuda") return open_device(name, options);
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  const bool sees_one =
      visible != nullptr && *visible != '\0' && std::string(visible).find(',') == std::string::npos;
  return replay::device::open_cuda_device(sees_one ? 0 : static_cast<int>(place.local_rank), mode);
}

std::string describe_program(const RunCommandOptions& options, const Graph& graph) {
  return fmt::format("{}, run of graph {}{}, {} runs{}", version_text(kReplayProgram),
                     hash_graph(graph, options.input), describe_options(options.replay),
                     options.measure.warm_up + options.measure.repeat,
                     options.cuda_graphs ? ", CUDA graphs" : "") +
         (options.transport.nccl_native ? ", NCCL's sums" : "");
}

std::string describe_program(const CheckCommandOptions& options, const CheckedGraphs& graphs) {
  std::string text = fmt::format("{}, check of graphs {} on {} and {} on {}", version_text(kReplayProgram),
                                 hash_graph(graphs.a, options.a), options.name_of_a(),
                                 hash_graph(graphs.b, options.b), options.name_of_b());
  if (graphs.reference != nullptr) text += ", reference " + hash_graph(*graphs.reference, options.reference);
  return fmt::format("{}, bounds {}{}", text, options.bounds, describe_options(options.replay));
}

namespace {

Json describe_session(const nccl::Session& session, const nccl::RankPlace& place) {
  Json settings = Json::array(), others = Json::array();
  bool all_pinned = true;
  for (const nccl::Setting& setting : session.settings()) {
    settings.push_back({{"name", setting.name},
                        {"wanted", setting.wanted},
                        {"found", setting.found},
                        {"taken", text_or_null(setting.taken)}});
    all_pinned = all_pinned && setting.is_pinned();
  }
  for (const nccl::Setting& setting : nccl::list_other_settings(session.settings()))
    others.push_back({{"name", setting.name}, {"found", setting.found}});
  return {{"launcher", place.launcher},
          {"nccl_compiled", nccl::version_text(nccl::kAbiVersion)},
          {"nccl_loaded", nccl::version_text(session.library().version)},
          {"nccl_library", session.library().path},
          {"nccl_settings", std::move(settings)},
          {"nccl_settings_are_pinned", all_pinned},
          {"nccl_other_settings", std::move(others)}};
}

std::string path_of_report(const TransportOptions& options, replay::Rank rank) {
  return fmt::format("{}/rank{}.json", options.report_dir, rank);
}

}  // namespace

Json describe_process(const nccl::Session& session, const OwnRank& own, Console& console) {
  Json environment = describe_environment(&own.device, "nccl");
  environment.update(describe_session(session, own.place));
  const bool is_native = session.sums() == nccl::Sums::kLibrary;
  environment["sums"] = is_native ? "NCCL's" : "the documented order";
  if (is_native)
    environment["determinism"] = environment["determinism"].get<std::string>() +
                                 "; what NCCL reduces: the same bits for the same NCCL, settings, ranks, and "
                                 "their places on hosts and GPUs";
  if (!environment["nccl_settings_are_pinned"].get<bool>())
    console.warn(
        fmt::format("rank {}: settings of NCCL are not those wanted; the report lists them", own.place.rank));
  return environment;
}

void run_together(nccl::Session& session, replay::Rank rank, const std::function<void()>& work) {
  try {
    work();
  } catch (const replay::CollectiveError& error) {
    session.fail(error.what());
    throw replay::CollectiveError(
        fmt::format("here is rank {}; {}{}", rank, error.what(), session.describe_failure()));
  } catch (const std::exception& error) {
    session.fail(error.what());
    throw;
  }
}

void require_report_dir(const TransportOptions& options) {
  if (options.report_dir.empty()) return;
  require_no_stream("--report-dir", options.report_dir, "it gets a file for each rank");
  require_writable(path_of_report(options, 0));
}

void write_rank_report(const TransportOptions& options, replay::Rank rank, const Json& report) {
  if (!options.report_dir.empty()) write_bytes(path_of_report(options, rank), report_text(report));
}

}  // namespace epweave::cli
