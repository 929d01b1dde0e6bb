#include "base/error.h"
#include "replay/kernels/device/emulated_kernels.h"

namespace epweave::replay::device {

void run_emulated_warps(TaskKind kind, const void* task, std::int64_t blocks) {
  switch (kind) {
#define EPWEAVE_RUN(Name, ...) \
  case TaskKind::k##Name:      \
    return run_emulated<__VA_ARGS__>(task, blocks);
    EPWEAVE_DEVICE_WARP_TASKS(EPWEAVE_RUN)
#undef EPWEAVE_RUN
    default:
      EPWEAVE_CHECK(false);
  }
}

}  // namespace epweave::replay::device
