#include "replay_process.h"

#include <fmt/format.h>

#include <cstdlib>

#include "io/file.h"
#include "replay/device/device.h"
#include "replay_setup.h"
#include "version.h"

namespace epweave::cli {

namespace nccl = replay::nccl;

nccl::Place find_place(const RunCommandOptions& options, const replay::World& world) {
  const nccl::PlaceOptions given{options.process.rank, options.process.world_size, options.process.local_rank,
                                 options.process.rendezvous};
  nccl::Place place =
      nccl::find_place(given, [](const char* name) -> const char* { return std::getenv(name); });
  if (place.ranks != world.size)
    throw UsageError(
        fmt::format("the graph is one of {} ranks, {} started {}", world.size, place.launcher, place.ranks));
  return place;
}

std::unique_ptr<replay::Device> open_device_of(const ReplayOptions& options, const nccl::Place& place) {
  const std::string& name = options.device;
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

std::string describe_program(const RunCommandOptions& options) {
  const auto hash = [](const std::string& path) { return sha256_hex(read_bytes(path)).substr(0, 16); };
  const ReplayOptions& replay = options.replay;
  std::string text =
      fmt::format("{}, graph {}, seed {}, {} data, {} math{}, {} runs", version_text(kReplayProgram),
                  options.input.path == "-" ? "of standard input" : hash(options.input.path), replay.seed,
                  replay.data, replay.math, replay.pin_rows ? " with pinned rows" : "",
                  options.measure.warm_up + options.measure.repeat);
  if (options.cuda_graphs) text += ", CUDA graphs";
  if (!replay.recipe.empty()) text += ", recipe " + hash(replay.recipe);
  for (const std::string& path : replay.inputs) text += ", inputs " + hash(path);
  return text;
}

Json describe_session(const nccl::Session& session, const nccl::Place& place) {
  Json settings = Json::array(), others = Json::array();
  bool all_pinned = true;
  for (const nccl::Setting& setting : session.settings()) {
    settings.push_back({{"name", setting.name},
                        {"wanted", setting.wanted},
                        {"found", setting.found},
                        {"taken", text_or_null(setting.taken)}});
    all_pinned = all_pinned && setting.is_pinned();
  }
  for (const nccl::Setting& setting : nccl::list_other_settings())
    others.push_back({{"name", setting.name}, {"found", setting.found}});
  return {{"launcher", place.launcher},
          {"nccl_compiled", nccl::version_text(nccl::kAbiVersion)},
          {"nccl_loaded", nccl::version_text(session.library().version)},
          {"nccl_library", session.library().path},
          {"nccl_settings", std::move(settings)},
          {"nccl_settings_are_pinned", all_pinned},
          {"nccl_other_settings", std::move(others)}};
}

}  // namespace epweave::cli
