#include "replay/cublas/cublaslt_library.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>

#include "base/error.h"

namespace epweave::replay::cublas {
namespace {

constexpr std::array kFiles{"libcublasLt.so.13",
                            "libcublasLt.so.12"};  // of CUDA 13 and 12.x; the first that is there

[[noreturn]] void decline(const std::string& problem, const std::string& remedy) {
  throw PassError("replay.no-cublaslt", problem, Site{}, remedy);
}

std::vector<std::pair<std::string, std::string>> list_variables() {
  std::vector<std::pair<std::string, std::string>> found;
  for (char** at = environ; at != nullptr && *at != nullptr; ++at) {
    const std::string text = *at;
    const std::size_t equals = text.find('=');
    const std::string name = text.substr(0, equals);
    if (name.starts_with("CUBLAS") || name == "NVIDIA_TF32_OVERRIDE")
      found.emplace_back(name, equals == std::string::npos ? "" : text.substr(equals + 1));
  }
  std::sort(found.begin(), found.end());
  return found;
}

}  // namespace

Library load_library(Streams streams) {
  Library library;
  const char* given = std::getenv("EPWEAVE_CUBLASLT");
  std::vector<std::string> files(kFiles.begin(), kFiles.end());
  if (given != nullptr && *given != '\0') files = {given};
  setenv("NVIDIA_TF32_OVERRIDE", "0", 1);  // no float32 product is rounded to TF32, whatever asks for it
  library.environment = list_variables();
  void* loaded = nullptr;
  std::vector<std::string> problems;
  for (const std::string& file : files) {
    library.path = file;
    loaded = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (loaded != nullptr) break;
    problems.emplace_back(dlerror());
  }
  if (loaded == nullptr)
    decline(fmt::format("--math native: cuBLASLt cannot be loaded: {}", fmt::join(problems, "; ")),
            "install CUDA's cuBLAS, put its folder into LD_LIBRARY_PATH, or let EPWEAVE_CUBLASLT name "
            "libcublasLt.so");
  const bool is_stand_in = dlsym(loaded, kStandInMark) != nullptr;
  if (is_stand_in != (streams == Streams::kEmulated))
    decline(fmt::format("--math native: {} does not work on this device's streams", library.path),
            is_stand_in ? "let EPWEAVE_CUBLASLT name CUDA's libcublasLt.so"
                        : "run on --device cuda, or use --math portable");
  for_each_function(library.api, [&](const char* name, auto* slot) {
    *slot = reinterpret_cast<std::remove_pointer_t<decltype(slot)>>(dlsym(loaded, name));
    if (*slot == nullptr)
      decline(fmt::format("--math native: {} has no {}", library.path, name), "use cuBLAS of CUDA 12 or 13");
  });
  Dl_info loaded_from{};
  if (dladdr(reinterpret_cast<void*>(library.api.create), &loaded_from) != 0 &&
      loaded_from.dli_fname != nullptr)
    library.path = loaded_from.dli_fname;
  library.version = library.api.get_version();
  return library;
}

std::string version_text(std::size_t version) {
  return fmt::format("{}.{}.{}", version / 10000, version % 10000 / 100, version % 100);
}

}  // namespace epweave::replay::cublas
