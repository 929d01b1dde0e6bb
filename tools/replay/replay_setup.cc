#include "replay_setup.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>

#include "common/graphs.h"
#include "replay/kernels/device/device.h"
#include "replay/kernels/missing_kernels.h"
#include "replay/steps/memory_need.h"

namespace epweave::cli {
namespace {

// The inputs are made on the CPU: `cpu` runs them.
void require_kernels(const RunRequest& request, const replay::KernelTable& cpu) {
  const replay::Device* device = request.device;
  auto missing = replay::find_missing_kernels(request.graph, device == nullptr ? cpu : device->kernels());
  if (missing.empty()) return;
  throw replay::MissingKernels(display_name(request.input), std::move(missing),
                               device == nullptr
                                   ? "add a row for each to the kernel table (src/replay/kernels/host/)"
                                   : "add a row for each to the kernel table (src/replay/kernels/device/)");
}

// Bytes of memory of this machine, or that the container allows.
double find_memory() {
  double bytes = static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGE_SIZE));
  double allowed = 0;
  if (std::ifstream limit("/sys/fs/cgroup/memory.max"); limit >> allowed) bytes = std::min(bytes, allowed);
  return bytes;
}

// "51.4 TiB": the largest unit of which there is at least one.
std::string format_bytes(double bytes) {
  constexpr std::array kUnits = {"KiB", "MiB", "GiB", "TiB"};
  if (bytes < 1024) return fmt::format("{:.0f} bytes", bytes);
  std::size_t unit = 0;
  for (bytes /= 1024; bytes >= 1024 && unit + 1 < kUnits.size(); bytes /= 1024) ++unit;
  return fmt::format("{:.1f} {}", bytes, kUnits[unit]);
}

void require_memory(const RunRequest& request) {
  const auto& [graph, input, options, device, ranks_here] = request;
  constexpr double kGib = 1073741824;
  const replay::MemoryNeed need = replay::find_memory_need(graph);
  const replay::Rank ranks = ranks_here != 0 ? ranks_here : replay::derive_world(graph, options.ranks).size;
  const double needed = static_cast<double>(need.bytes()) * ranks;
  const double there = device == nullptr || device->memory_bytes() == 0
                           ? find_memory()
                           : static_cast<double>(device->memory_bytes());
  const double limit = options.memory != 0 ? options.memory * kGib : there;
  if (needed <= limit) return;
  throw PassError(
      "replay.memory",
      fmt::format(
          "{}: {} ranks need {}: each {} of inputs and at most {} of values at a time; {} are allowed",
          display_name(input), ranks, format_bytes(needed), format_bytes(static_cast<double>(need.inputs)),
          format_bytes(static_cast<double>(need.values)), format_bytes(limit)),
      Site{}, "use a smaller configuration of the model, or allow more with --memory");
}

}  // namespace

replay::RunOptions make_options(const ReplayOptions& options) {
  replay::RunOptions result;
  result.deadline = std::chrono::milliseconds(static_cast<std::int64_t>(options.deadline * 1000));
  if (options.poison) result.fill = replay::HostMemory::Fill::kPoison;
  result.jitter = options.jitter;
  if (options.report_types) result.types = replay::RecordedTypes::kReport;
  return result;
}

replay::device::MathMode read_math(const ReplayOptions& options) {
  const bool is_native = options.math == "native";
  if (options.pin_rows && !is_native) throw UsageError("--pin-rows is of --math native");
  return {is_native ? replay::Math::kNative : replay::Math::kPortable,
          options.pin_rows ? replay::PinRows::kYes : replay::PinRows::kNo};
}

std::unique_ptr<replay::Device> open_device(const std::string& name, const ReplayOptions& options) {
  const replay::device::MathMode mode = read_math(options);
  if (name == "cpu") {
    if (mode.math == replay::Math::kNative) throw UsageError("--math native is a GPU's: give --device cuda");
    return nullptr;
  }
  if (name == "emulated") return replay::device::open_emulated_device(replay::device::Emulation::kLazy, mode);
  return replay::device::open_cuda_device(name == "cuda" ? 0 : std::stoi(name.substr(name.find(':') + 1)),
                                          mode);
}

InputSource::InputSource(const ReplayOptions& options)
    : recipe(options.recipe.empty() ? replay::torchtitan_recipe()
                                    : replay::parse_recipe(read_bytes(options.recipe), options.recipe)),
      data(options.seed, options.data == "integer" ? replay::DataKind::kInteger : replay::DataKind::kReal) {
  for (const std::string& path : options.inputs) files.add(path);
  data.recipe = &recipe;
  data.files = &files;
}

void require_runnable(const RunRequest& request, const replay::KernelTable& kernels) {
  require_kernels(request, kernels);
  require_memory(request);
}

Json number_or_text(double number) {
  if (std::isfinite(number)) return number;
  return fmt::format("{}", number);  // JSON has no inf and NaN
}

}  // namespace epweave::cli
