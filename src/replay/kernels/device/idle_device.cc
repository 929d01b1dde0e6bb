#include "replay/kernels/device/idle_device.h"

#include <fmt/format.h>

#include <cstring>
#include <string_view>

#include "base/error.h"
#include "replay/kernels/device/forwarding_api.h"

namespace epweave::replay::device {
namespace {

struct OwnedDevice {
  std::unique_ptr<DeviceApi> owned;
};

class IdleDevice : OwnedDevice, public ForwardingApi {
 public:
  explicit IdleDevice(std::unique_ptr<DeviceApi> device)
      : OwnedDevice{std::move(device)}, ForwardingApi(*owned) {}

  Error find_facts(DeviceFacts& facts) override {
    const Error error = api_.find_facts(facts);
    std::strcpy(facts.name, "emulated by the CPU, without kernels");
    return error;
  }
  Error allocate(std::size_t bytes, void** data) override {
    const Error error = api_.allocate(bytes, data);
    if (error == nullptr) std::memset(*data, 0, bytes);
    return error;
  }
  Error launch(Stream, TaskKind, const void*, std::int64_t) override { return nullptr; }
  Error call(Stream, const LibraryCall&) override { return nullptr; }
};

}  // namespace

Kernels read_kernels(const char* text) {
  const std::string_view all = text == nullptr ? "" : text;
  if (all.empty()) return Kernels::kRun;
  if (all != "none") throw UsageError(fmt::format("{}: '{}' is not 'none'", kKernelsVariable, all));
  return Kernels::kNone;
}

std::unique_ptr<DeviceApi> make_idle_device(std::unique_ptr<DeviceApi> device) {
  return std::make_unique<IdleDevice>(std::move(device));
}

}  // namespace epweave::replay::device
