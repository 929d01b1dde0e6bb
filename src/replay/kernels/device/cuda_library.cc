#include "replay/kernels/device/cuda_library.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "base/error.h"
#include "device_build.h"

namespace epweave::replay::device {
namespace {

constexpr const char* kFile = "libepweave_cuda.so";
// Of the shared object: kDeviceBuild of device_build.h, the hashes of what it is built of. Asked
// for before anything else.
constexpr const char* kBuildPoint = "epweave_device_build";
using DeviceBuild = const char* (*)();

[[noreturn]] void decline(const std::string& problem, const std::string& remedy) {
  throw PassError("replay.no-device", problem, Site{}, remedy);
}

// Where it may be: what EPWEAVE_CUDA names, and nothing else then; beside the program, in ../lib.
std::vector<std::string> list_places() {
  if (const char* given = std::getenv("EPWEAVE_CUDA"); given != nullptr && *given != '\0') return {given};
  std::error_code failed;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", failed);
  if (failed) return {kFile};
  return {(program.parent_path() / kFile).string(),
          (program.parent_path().parent_path() / "lib" / kFile).string()};
}

// Another build's kernels compute other things, or take other arguments. `path`: for the message.
void require_this_build(void* library, const std::string& path) {
  const auto build = reinterpret_cast<DeviceBuild>(dlsym(library, kBuildPoint));
  const std::string found =
      build == nullptr ? "does not say what it is built of" : fmt::format("is of build {}", build());
  if (build != nullptr && serves_build(build(), kDeviceBuild)) return;
  throw PassError(
      "replay.stale-device",
      fmt::format("--device cuda: {} {}; this program needs build {} of the device sources, flags and nvcc",
                  path, found, kDeviceBuild),
      Site{}, "build both from the same tree (targets epweave_cuda and epweave-replay)");
}

struct OpenLibrary {
  void* handle = nullptr;
  std::string path;
};
OpenLibrary open_library() {
  std::string problems;
  for (const std::string& place : list_places()) {
    if (access(place.c_str(), F_OK) != 0) continue;
    if (void* library = dlopen(place.c_str(), RTLD_NOW | RTLD_LOCAL); library != nullptr)
      return {library, place};
    problems = dlerror();
  }
  if (!problems.empty()) decline("--device cuda: the CUDA part cannot be loaded: " + problems, "rebuild it");
  decline(fmt::format("--device cuda: this program has no CUDA part: {} is not beside it", kFile),
          "build the target epweave_cuda with nvcc (cmake -DEPWEAVE_CUDA=ON), or use --device cpu");
}

}  // namespace

bool serves_build(std::string_view library, std::string_view program) {
  constexpr char kNvcc = '-';  // what is behind it is of nvcc
  if (program.find(kNvcc) == std::string_view::npos) library = library.substr(0, library.find(kNvcc));
  return library == program;
}

std::unique_ptr<DeviceApi> load_cuda_device(int ordinal) {
  const auto [library, path] = open_library();
  const auto open = reinterpret_cast<OpenDevice>(dlsym(library, kEntryPoint));
  if (open == nullptr)
    decline(fmt::format("--device cuda: {} is no CUDA part of epweave", path), "rebuild it");
  require_this_build(library, path);
  std::array<char, 512> problem{};
  std::unique_ptr<DeviceApi> device(
      open(kApiVersion, task_fingerprint(), ordinal, problem.data(), problem.size()));
  if (device == nullptr)
    decline(fmt::format("--device cuda: no GPU can be used: {}", problem.data()),
            "run on a machine with an H100 or H200 and its driver, or use --device cpu");
  return device;
}

}  // namespace epweave::replay::device
