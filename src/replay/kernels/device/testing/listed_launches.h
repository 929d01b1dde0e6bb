// Which kernels an op launches. For tests.
#pragma once

#include <memory>
#include <vector>

#include "replay/kernels/device/both_devices.h"
#include "replay/kernels/device/emulated.h"
#include "replay/kernels/device/forwarding_api.h"

namespace epweave::replay {

// A device that lists the kernels that it is given.
class ListingApi : public device::ForwardingApi {
 public:
  using ForwardingApi::ForwardingApi;
  device::Error launch(device::Stream stream, device::TaskKind kind, const void* task,
                       std::int64_t count) override {
    // Which kernel a map has depends on its operands.
    kinds.push_back(kind < device::TaskKind::kProgression ? device::TaskKind::kMap0 : kind);
    return ForwardingApi::launch(stream, kind, task, count);
  }
  std::vector<device::TaskKind> kinds;
};
inline Value place(Memory& memory, const Value& value) {
  if (value.is_tensor()) return memory.place(value.tensor());
  if (!value.is<List>()) return value;
  List list = value.as<List>();
  for (Value& item : list.items) item = place(memory, item);
  return list;
}
// The kernels of an op on the emulated device, in order; in native math without a library.
inline std::vector<device::TaskKind> launched_by(const char* target, const std::vector<Value>& args,
                                                 Math math = Math::kPortable) {
  const auto emulated = device::make_emulated_device();
  ListingApi api(*emulated);
  const auto pool = std::make_shared<device::Pool>(api, HostMemory::Fill::kPoison);
  device::Stream stream = nullptr;
  device::check(api.make_stream(device::Priority::kNormal, &stream), "make a stream");
  device::Fault fault{};
  device::Launcher launcher(api, pool, stream, &fault);
  if (math == Math::kNative) launcher.use_tensor_cores();
  {
    const Value placed = place(launcher, Value::list(args));
    KernelCall kernel(*find_op(target), placed.items(), ~0u, launcher);
    tested_device().kernels().find (*find_op(target))(kernel);
    launcher.synchronize();
  }
  pool->release_all();
  api.destroy_stream(stream);
  return api.kinds;
}

}  // namespace epweave::replay
