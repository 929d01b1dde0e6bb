#include "replay_environment.h"

#include <unistd.h>

namespace epweave::cli {
namespace {

std::string host_name() {
  char name[256] = "";
  gethostname(name, sizeof name - 1);
  return name;
}

// What the bits of a run depend on.
std::string_view describe_determinism(replay::Math math) {
  if (math == replay::Math::kPortable) return "the same bits on every machine";
  return "products: the same bits for the same library, GPU model, number of multiprocessors and algorithms, "
         "none of "
         "which splits the reduced index or adds up partial results; other ops: the same bits on every "
         "machine";
}

}  // namespace

Json describe_environment(const replay::Device* device, const std::string& transport) {
  Json facts = Json::object();
  if (device == nullptr) facts["name"] = "cpu";
  if (device != nullptr)
    for (const auto& [name, value] : device->list_facts()) facts[name] = value;
  const bool is_gpu = facts.contains("cuda_runtime");
  const replay::Math math = device == nullptr ? replay::Math::kPortable : device->math();
  return {{"device", std::move(facts)},
          {"host", host_name()},
          {"transport", transport},
          {"math", math == replay::Math::kNative ? "native" : "portable"},
          {"determinism", describe_determinism(math)},
          {"clock", is_gpu ? "CUDA events" : "the host's clock"}};
}

}  // namespace epweave::cli
