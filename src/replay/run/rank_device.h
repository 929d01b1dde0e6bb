// Where a rank's values live and its steps are carried out, if not in host memory: what the
// executor asks of a device (device/device.h).
//
// Calls queue work and return, but those that say that they wait. All virtual ranks share one
// device; each has streams of its own.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "replay/collectives/exchange.h"
#include "replay/collectives/transport.h"
#include "replay/kernels/kernel.h"
#include "replay/steps/steps.h"

namespace epweave::replay {

// What a kernel refused; the host learns it where it waits.
struct DeviceFault {
  NodeId node;
  std::string problem;
};

// When a node's work ran on a stream, in seconds since the rank started.
struct StepSpan {
  NodeId node;
  std::uint32_t stream = 0;
  double begin = 0, end = 0;
  bool has_host_time = false;  // where launches are held (Launches): the host waited in between
};

// Who computes products: kernels of ours, the same bits everywhere; or the device's library, fast,
// whose bits are those of the algorithm that it takes.
enum class Math : std::uint8_t { kPortable, kNative };
// Whether products that differ in their number of rows alone take the same algorithm of the
// library.
enum class PinRows : std::uint8_t { kNo, kYes };

// A product in native math: of the library, or of a kernel of ours where the library has no
// algorithm ("own kernel").
struct LibraryProduct {
  NodeId node;
  std::string shape;                // "bf16[512, 256] x [256, 64]"
  std::string algorithm;            // "algorithm 66, tile 20, stages 35, ..."
  std::int64_t group = 0;           // of a grouped product: which of its groups
  std::vector<std::uint64_t> bits;  // the library's own form of the algorithm
};

// Stretches as graphs of the device: how often a graph was launched, and why not.
struct GraphUse {
  std::uint64_t instantiated = 0;     // right after its work was captured
  std::uint64_t updated = 0;          // the same, a graph of before having been changed
  std::uint64_t replayed = 0;         // as it was
  std::uint64_t kernels = 0;          // in all these launches
  std::uint64_t seen_first = 0;       // parts with other work than the last time: launched kernel by kernel
  std::uint64_t launched_singly = 0;  // parts of one kernel, and what the device had refused
  std::map<std::string, std::uint64_t> refusals;       // the device's reasons
  std::map<std::string, std::uint64_t> interruptions;  // of a stretch, by what it did not expect
};

// Bits of what was found in a tensor of floats.
enum LogFound : std::uint64_t { kLogNan = 1, kLogNotFinite = 2 };

class RankDevice {
 public:
  virtual ~RankDevice() = default;
  virtual Memory& memory() = 0;  // of the compute stream
  // The node whose work is queued from now on, for faults.
  virtual void set_node(NodeId node) = 0;

  virtual void record(const Step& step) = 0;
  virtual void join(const Step& step) = 0;
  virtual void synchronize() = 0;                       // the host waits for the compute stream
  virtual void drain() = 0;                             // ... for all of the rank's streams
  virtual Tensor download(const Tensor& tensor) = 0;    // waits: the same tensor in host memory
  virtual std::optional<DeviceFault> take_fault() = 0;  // of work that was waited for
  virtual bool is_lost() = 0;                           // it refuses all further work; does not wait
  // A call is about to write the storage of before; null: any. What the host has read of it does
  // not hold any more.
  virtual void forget(const Storage* storage) = 0;

  // What is remembered of values: queued, and kept in a log of 64-bit words on the device until the
  // run's end. Each call returns where in the log its words will be.
  // A tensor's sum (values/hash.h), and what was found in it (LogFound).
  virtual std::size_t log_hash(const Tensor& tensor) = 0;
  // The sums of the slices along a dimension, one after the other.
  virtual std::size_t log_slices(const Tensor& tensor, std::size_t dim) = 0;
  virtual std::size_t log_elements(const Tensor& tensor) = 0;  // their bytes, row-major
  virtual std::vector<std::uint64_t> take_log() = 0;           // waits; empty where nothing was logged

  // Collectives, on the stream of the step. post() copies the operand; complete() queues what makes
  // `result` from the contributions, and the compute stream waits for it.
  virtual void post(const Tensor& operand, std::uint32_t stream, Contribution& part) = 0;
  virtual void complete(const Meeting& meeting, std::uint32_t stream, const Tensor& result) = 0;
  // The same where the other members are processes of their own, right after the launch: the
  // compute stream does not wait; a later join or join_all() makes it.
  virtual void start(const Meeting& meeting, std::uint32_t stream, const Tensor& result) = 0;
  virtual void join_all(std::uint32_t stream) = 0;

  // Where measuring: spans of work on a stream. What is queued between the two calls belongs to the
  // node. Where launches are held, all work of the device must be done but this rank's.
  virtual void begin_span(NodeId node, std::uint32_t stream) = 0;
  virtual void end_span() = 0;
  virtual std::vector<StepSpan> take_spans() = 0;  // waits
  // Ranges for profilers.
  virtual void open_range(const std::string& name) = 0;
  virtual void close_range() = 0;

  // Where graphs are asked for: work of the compute stream between the two calls is one graph, or
  // several; the stretch is known by its number, in every run.
  virtual void begin_stretch(std::uint32_t stretch) = 0;
  virtual void end_stretch() = 0;
  virtual GraphUse find_graph_use() const = 0;  // of all runs so far

  // In native math: those of the run so far, in the order of the steps.
  virtual std::vector<LibraryProduct> take_products() = 0;
};

// One run of a graph on a device. Outlives all values of the run. Ends without a word on a device
// that is lost.
class DeviceRun {
 public:
  virtual ~DeviceRun() = default;
  virtual RankDevice& rank(Rank i) = 0;  // of those here, from 0
  virtual std::size_t peak_bytes() const = 0;
};

// Whether stretches of steps become graphs of the device.
enum class Graphs : std::uint8_t { kNone, kStretches };

// Whether what a span measures begins as it is launched, or once all of it is launched, with no
// other work on the device: then no time of the host is in it.
enum class Launches : std::uint8_t { kAtOnce, kHeld };

struct DeviceSetup {
  const Steps& steps;
  Rank ranks = 1;  // here
  HostMemory::Fill fill = HostMemory::Fill::kNone;
  Exchange* exchange = nullptr;  // null: all ranks are here
  Graphs graphs = Graphs::kNone;
  Launches launches = Launches::kAtOnce;
};

// "multiprocessors": "132"
using DeviceFactList = std::vector<std::pair<std::string, std::string>>;

class Device {
 public:
  virtual ~Device() = default;
  virtual DeviceFactList list_facts() const = 0;  // name first; for reports
  virtual std::string describe() const = 0;       // "NVIDIA H200 (132 multiprocessors, driver 13.0)"
  virtual const KernelTable& kernels() const = 0;
  virtual std::size_t memory_bytes() const = 0;  // 0: the host's
  virtual std::size_t free_bytes() const = 0;    // when it was opened; 0: as the host has
  virtual std::unique_ptr<DeviceRun> start(const DeviceSetup& setup) = 0;
  virtual Math math() const = 0;
  // Why the host waits inside the call of the node, or hands bytes over: a text that lives for
  // ever; empty if it does neither.
  virtual std::string_view find_host_wait(const Graph& graph, const Node& node) const = 0;
  virtual void enter() = 0;  // the calling thread uses it, in calls of other libraries too
};

}  // namespace epweave::replay
