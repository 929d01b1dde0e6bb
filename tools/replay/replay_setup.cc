#include "replay_setup.h"

#include <fmt/format.h>
#include <cmath>

#include "common/command_files.h"
#include "common/graphs.h"
#include "replay/kernels/device/device.h"
#include "replay/kernels/missing_kernels.h"

namespace epweave::cli {
replay::RunOptions make_options(const ReplayOptions& options) {
  replay::RunOptions result;
  result.deadline = std::chrono::milliseconds(static_cast<std::int64_t>(options.deadline * 1000));
  result.deadline.grows = options.deadline_grows;
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

namespace {

int gpu_of(const std::string& name) {
  return name == "cuda" ? 0 : std::stoi(name.substr(name.find(':') + 1));
}

}  // namespace

std::string plain_device_name(const std::string& name) {
  return name.starts_with("cuda") ? fmt::format("cuda:{}", gpu_of(name)) : name;
}

std::unique_ptr<replay::Device> open_device(const std::string& name, const ReplayOptions& options) {
  const replay::device::MathMode mode = read_math(options);
  if (name == "cpu") {
    if (mode.math == replay::Math::kNative) throw UsageError("--math native is a GPU's: give --device cuda");
    return nullptr;
  }
  if (name == "emulated") return replay::device::open_emulated_device(replay::device::Emulation::kLazy, mode);
  return replay::device::open_cuda_device(gpu_of(name), mode);
}

InputSource::InputSource(const ReplayOptions& options)
    : recipe(options.recipe.empty()
                 ? replay::torchtitan_recipe()
                 : replay::parse_recipe(read_file_of("--recipe", options.recipe), options.recipe)),
      data(options.seed, options.data == "integer" ? replay::DataKind::kInteger : replay::DataKind::kReal) {
  for (const std::string& path : options.inputs) files.add(path);
  data.recipe = &recipe;
  data.files = &files;
}

void require_kernels(const Graph& graph, const InputOptions& input, const replay::Device* device,
                     const replay::KernelTable& cpu) {
  replay::require_kernels(graph, device == nullptr ? cpu : device->kernels(), display_name(input));
}

Json number_or_text(double number) {
  if (std::isfinite(number)) return number;
  return fmt::format("{}", number);  // JSON has no inf and NaN
}

}  // namespace epweave::cli
