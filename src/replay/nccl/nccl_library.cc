#include "replay/nccl/nccl_library.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/error.h"

namespace epweave::replay::nccl {
namespace {

constexpr const char* kFile = "libnccl.so.2";

struct Pin {
  const char* name;
  const char* value;
  bool is_of_sums;  // wanted only where NCCL adds up
};

constexpr Pin kPins[] = {
    {"NCCL_ALGO", "Ring", true},         // Tree's order between hosts is not the user's
    {"NCCL_PROTO", "Simple", true},      // chunks, and so orders, do not depend on sizes
    {"NCCL_NVLS_ENABLE", "0", true},     // NVLS adds up in another order from call to call
    {"NCCL_COLLNET_ENABLE", "0", true},  // nor do switches add up
    {"NCCL_MIN_CTAS", "8", true},        // a fixed number of channels
    {"NCCL_MAX_CTAS", "8", true},        //
    {"NCCL_WIN_ENABLE", "0", true},      // registered windows take kernels that accumulate otherwise
    {"NCCL_LOCAL_REGISTER", "0", true},  //
    {"NCCL_GRAPH_REGISTER", "0", true},  //
    {"NCCL_LAUNCH_ORDER_IMPLICIT", "1",
     false},  // several communicators on one device: in the order of the launches
};

[[noreturn]] void decline(const std::string& problem, const std::string& remedy) {
  throw PassError("replay.no-nccl", problem, Site{}, remedy);
}

std::string variable(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  return value == nullptr ? "" : value;
}

}  // namespace

std::vector<Setting> pin_settings(Sums sums) {
  std::vector<Setting> settings;
  for (const Pin& pin : kPins) {
    if (pin.is_of_sums && sums == Sums::kOwn) continue;
    setenv(pin.name, pin.value, 0);
    settings.push_back({pin.name, pin.value, variable(pin.name)});
  }
  return settings;
}

std::vector<Setting> list_other_settings(const std::vector<Setting>& pinned) {
  std::vector<Setting> settings;
  for (char** at = environ; at != nullptr && *at != nullptr; ++at) {
    const std::string_view text = *at;
    const std::string name(text.substr(0, text.find('=')));
    if (!name.starts_with("NCCL_") || name.starts_with("NCCL_DEBUG")) continue;
    if (std::any_of(pinned.begin(), pinned.end(), [&](const Setting& one) { return name == one.name; }))
      continue;
    settings.push_back({name, "", variable(name)});
  }
  std::sort(settings.begin(), settings.end(),
            [](const Setting& a, const Setting& b) { return a.name < b.name; });
  return settings;
}

Log::Log() {
  if (!variable("NCCL_DEBUG").empty()) return;
  std::error_code failed;
  const std::filesystem::path folder = std::filesystem::temp_directory_path(failed);
  if (failed) return;
  // For this user alone: NCCL follows a link that it finds in the file's place.
  std::string made = (folder / "epweave-nccl-XXXXXX").string();
  if (mkdtemp(made.data()) == nullptr) return;
  path_ = made + "/log";
  setenv("NCCL_DEBUG", "INFO", 1);
  setenv("NCCL_DEBUG_SUBSYS", "ENV", 1);
  setenv("NCCL_DEBUG_FILE", path_.c_str(), 1);
}

Log::~Log() {
  if (path_.empty()) return;
  std::remove(path_.c_str());
  rmdir(std::filesystem::path(path_).parent_path().c_str());
}

std::vector<std::string> Log::lines() const {
  std::vector<std::string> lines;
  std::ifstream file(path_);
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

void Log::read(std::vector<Setting>& settings) const {
  constexpr std::string_view kMiddle = " set by environment to ";
  for (const std::string& line : lines()) {
    const std::size_t middle = line.find(kMiddle);
    if (middle == std::string::npos) continue;
    const std::size_t space = line.rfind(' ', middle - 1);
    const std::string name = line.substr(space + 1, middle - space - 1);
    std::string value = line.substr(middle + kMiddle.size());
    if (value.ends_with('.')) value.pop_back();
    for (Setting& setting : settings)
      if (setting.name == name) setting.taken = value;
  }
}

std::string Log::list_warnings() const {
  std::string text;
  for (const std::string& line : lines())
    if (const std::size_t at = line.find("NCCL WARN "); at != std::string::npos)
      text += "\n  " + line.substr(at);
  return text;
}

Library load_library() {
  Library library;
  library.path = variable("EPWEAVE_NCCL");
  if (library.path.empty()) library.path = kFile;
  void* loaded = dlopen(library.path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (loaded == nullptr)
    decline(fmt::format("--transport nccl: NCCL cannot be loaded: {}", dlerror()),
            "install NCCL, put its folder into LD_LIBRARY_PATH, or let EPWEAVE_NCCL name its library");
  for_each_function(library.api, [&](const char* name, auto* slot) {
    *slot = reinterpret_cast<std::remove_pointer_t<decltype(slot)>>(dlsym(loaded, name));
    if (*slot == nullptr)
      decline(fmt::format("--transport nccl: {} has no {}", library.path, name),
              fmt::format("use NCCL {} or newer", version_text(kAbiVersion)));
  });
  if (library.api.get_version(&library.version) != Result::kSuccess)
    decline(fmt::format("--transport nccl: {} does not say its version", library.path), "install NCCL again");
  return library;
}

std::string version_text(int version) {
  return fmt::format("{}.{}.{}", version / 10000, version % 10000 / 100, version % 100);
}

}  // namespace epweave::replay::nccl
