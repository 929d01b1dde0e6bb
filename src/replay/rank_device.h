// Where a rank's values live and its steps are carried out, if not in host memory: what the executor asks of a
// device (device/device.h).
//
// Calls queue work and return, but those that say that they wait. All virtual ranks share one device; each has
// streams of its own.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>

#include "replay/kernel.h"
#include "replay/steps.h"
#include "replay/transport.h"

namespace epweave::replay {

// What a kernel refused; the host learns it where it waits.
struct DeviceFault {
  NodeId node;
  std::string problem;
};

class RankDevice {
 public:
  virtual ~RankDevice() = default;
  virtual Memory& memory() = 0;  // of the compute stream
  // The node whose work is queued from now on, for faults.
  virtual void set_node(NodeId node) = 0;

  virtual void record(const Step& step) = 0;
  virtual void join(const Step& step) = 0;
  virtual void synchronize() = 0;                       // the host waits for the compute stream
  virtual Tensor download(const Tensor& tensor) = 0;    // waits: the same tensor in host memory
  virtual std::optional<DeviceFault> take_fault() = 0;  // of work that was waited for

  // Collectives, on the stream of the step. post() copies the operand; complete() queues what makes `result`
  // from the contributions, and the compute stream waits for it.
  virtual void post(const Tensor& operand, std::uint32_t stream, Contribution& part) = 0;
  virtual void complete(const Meeting& meeting, std::uint32_t stream, const Tensor& result) = 0;
};

// One run of a graph on a device. Outlives all values of the run.
class DeviceRun {
 public:
  virtual ~DeviceRun() = default;
  virtual RankDevice& rank(Rank rank) = 0;
  virtual std::size_t peak_bytes() const = 0;
};

class Device {
 public:
  virtual ~Device() = default;
  virtual std::string describe() const = 0;  // "NVIDIA H200 (132 multiprocessors, driver 13.0)"
  virtual const KernelTable& kernels() const = 0;
  virtual std::size_t memory_bytes() const = 0;  // 0: the host's
  virtual std::unique_ptr<DeviceRun> start(const Steps& steps, Rank ranks, HostMemory::Fill fill) = 0;
};

}  // namespace epweave::replay
