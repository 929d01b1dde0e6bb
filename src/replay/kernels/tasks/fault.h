// Values that an op refuses, found by a kernel on the device: an index out of range, a division by
// zero.
//
// A kernel cannot throw. The first fault is kept, with the node that was launched; the host reads
// it where it waits for the device anyway. A kernel goes on with a harmless value, so that it reads
// and writes nothing that is not its own.
#pragma once

#include <cstdint>

#include "replay/kernels/math/portable_math.h"

namespace epweave::replay::tasks {

enum class FaultCode : std::int32_t {
  kNone,
  kIndex,     // value is no index of `limit` elements
  kDivision,  // integer division by zero
  kOffsets,   // group bounds that do not ascend within `limit`
  kCount,     // a negative count
  kTotal,     // counts that add up to `value`, not to `limit`
  kBlock,     // a block table's count or index that is not below `limit`
  kTwice,     // a block that a table lists twice
  kAssertion,
  kInterval,  // a histogram of no interval
};

struct Fault {
  std::int32_t code;  // FaultCode
  std::uint32_t site;
  std::int64_t value, limit;
};

// Where a kernel reports to; part of every task that can fail.
struct FaultSink {
  Fault* fault;
  std::uint32_t site;
  std::uint32_t unused = 0;  // in place of padding: equal sinks have equal bytes

  EPWEAVE_HD void raise(FaultCode code, std::int64_t value, std::int64_t limit) const {
#ifdef __CUDA_ARCH__
    if (atomicCAS(&fault->code, 0, static_cast<std::int32_t>(code)) != 0) return;
#else
    if (fault->code != 0) return;
    fault->code = static_cast<std::int32_t>(code);
#endif
    fault->site = site;
    fault->value = value;
    fault->limit = limit;
  }
  // The index itself, or 0 after a fault; `limit` is at least 1.
  EPWEAVE_HD std::int64_t check_index(std::int64_t index, std::int64_t limit) const {
    if (index >= 0 && index < limit) return index;
    raise(FaultCode::kIndex, index, limit);
    return 0;
  }
};

}  // namespace epweave::replay::tasks
