#include "replay/kernels/device/device.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "replay/kernels/device/collectives.h"
#include "replay/kernels/device/cuda_library.h"
#include "replay/kernels/device/emulated.h"
#include "replay/kernels/device/failing_device.h"
#include "replay/kernels/device/graph_recorder.h"
#include "replay/kernels/device/held_launches.h"
#include "replay/kernels/device/host_waits.h"
#include "replay/kernels/device/idle_device.h"
#include "replay/kernels/device/kernels.h"
#include "replay/kernels/device/remote_collectives.h"
#include "replay/kernels/device/value_log.h"
#include "replay/kernels/host/elements.h"

namespace epweave::replay::device {
namespace {

class EventHolder {
 public:
  explicit EventHolder(DeviceApi& api, Timing timing = Timing::kNone) : api_(api) {
    check(api.make_event(timing, &event_), "make an event");
  }
  ~EventHolder() { api_.destroy_event(event_); }
  EventHolder(const EventHolder&) = delete;
  EventHolder& operator=(const EventHolder&) = delete;
  Event get() const { return event_; }

 private:
  DeviceApi& api_;
  Event event_ = nullptr;
};

class StreamHolder {
 public:
  StreamHolder(DeviceApi& api, Priority priority) : api_(api) {
    check(api.make_stream(priority, &stream_), "make a stream");
  }
  ~StreamHolder() { api_.destroy_stream(stream_); }
  StreamHolder(const StreamHolder&) = delete;
  StreamHolder& operator=(const StreamHolder&) = delete;
  Stream get() const { return stream_; }

 private:
  DeviceApi& api_;
  Stream stream_ = nullptr;
};

// Stream 0 of the steps is the compute stream.
class OneRank : public RankDevice {
 public:
  // `products`: null in portable math. `recorder`, `held`: null without graphs, and where launches
  // are not held, else the same device as `api`.
  struct Shared {
    DeviceApi& api;
    GraphRecorder* recorder;
    HeldLaunches* held;
    const std::shared_ptr<Pool>& pool;
    LastingMemory& lasting;
    cublas::Products* products;
  };
  OneRank(const Shared& shared, const DeviceSetup& setup)
      : api_(shared.api),
        recorder_(shared.recorder),
        held_(shared.held),
        pool_(shared.pool),
        exchange_(setup.exchange),
        products_(shared.products) {
    DeviceApi& api = api_;
    const std::shared_ptr<Pool>& pool = pool_;
    const Steps& steps = setup.steps;
    for (std::size_t i = 0; i < steps.streams.size(); ++i)
      streams_.push_back(std::make_unique<StreamHolder>(
          api, steps.has_high_priority[i] ? Priority::kHigh : Priority::kNormal));
    if (recorder_ != nullptr) recorder_->enroll(streams_[0]->get());
    for (std::uint32_t i = 0; i < steps.events; ++i) events_.push_back(std::make_unique<EventHolder>(api));
    fault_ = pool->allocate(sizeof(Fault), streams_[0]->get(), nullptr);
    check(api.fill(streams_[0]->get(), fault_->data(), 0, sizeof(Fault)), "fill memory");
    for (const auto& stream : streams_)
      launchers_.push_back(std::make_unique<Launcher>(api, pool, stream->get(), device_fault()));
    if (products_ != nullptr) products_->take_record();  // a run that failed may have left some
    launchers_[0]->use_library(products_);
    launchers_[0]->use_lasting(shared.lasting);
    probe_ = std::make_unique<EventHolder>(api);
    moment_ = std::make_unique<EventHolder>(api);
    // No other stream may look at the fault before it is zeroed.
    synchronize();
  }

  Memory& memory() override { return *launchers_[0]; }
  void set_node(NodeId node) override {
    for (const auto& launcher : launchers_) launcher->set_site(node);
  }
  void record(const Step& step) override {
    check(api_.record(events_[step.event]->get(), streams_[step.stream]->get()), "record an event");
  }
  void join(const Step& step) override {
    check(api_.wait(streams_[step.stream]->get(), events_[step.event]->get()), "wait for an event");
  }
  void synchronize() override { launchers_[0]->synchronize(); }
  void drain() override {
    for (const auto& launcher : launchers_) launcher->synchronize();
  }
  Tensor download(const Tensor& tensor) override { return launchers_[0]->download(tensor); }

  void forget(const Storage* storage) override { launchers_[0]->forget(storage); }

  std::optional<DeviceFault> take_fault() override {
    Fault fault{};
    check(api_.copy_out(streams_[0]->get(), &fault, fault_->data(), sizeof fault), "copy to the host");
    if (fault.code == 0) return std::nullopt;
    return DeviceFault{NodeId(fault.site), describe_fault(fault)};
  }

  bool is_lost() override {
    bool passed = false;
    return api_.has_passed(probe_->get(), &passed) != nullptr;
  }

  std::size_t log_hash(const Tensor& tensor) override { return log().add_hash(tensor); }
  std::size_t log_slices(const Tensor& tensor, std::size_t dim) override {
    return log().add_slices(tensor, dim);
  }
  std::size_t log_elements(const Tensor& tensor) override { return log().add_elements(tensor); }
  std::vector<std::uint64_t> take_log() override {
    return log_ == nullptr ? std::vector<std::uint64_t>() : log_->take();
  }

  void post(const Tensor& operand, std::uint32_t stream, Contribution& part) override {
    Launcher& launcher = *launchers_[stream];
    // The result's memory is the compute stream's: what that stream waits for before it is used
    // again, the collective must wait for too.
    join_streams(launcher.stream(), streams_[0]->get());
    const Tensor copy = make_tensor(launcher, operand.dtype, operand.sizes);
    cpu::copy_elements(operand, copy);
    auto ready = std::make_shared<EventHolder>(api_);
    check(api_.record(ready->get(), launcher.stream()), "record an event");
    part.data = copy.storage;
    part.ready = std::move(ready);
  }

  void complete(const Meeting& meeting, std::uint32_t stream, const Tensor& result) override {
    Launcher& launcher = *launchers_[stream];
    for (std::size_t i = 0; i < meeting.contributions.size(); ++i) {
      if (i == meeting.member) continue;  // its copy is on this stream
      const auto* ready = static_cast<const EventHolder*>(meeting.contributions[i].ready.get());
      check(api_.wait(launcher.stream(), ready->get()), "wait for an event");
    }
    make_result(launcher, meeting, result);
    join_streams(streams_[0]->get(), launcher.stream());
  }

  void start(const Meeting& meeting, std::uint32_t stream, const Tensor& result) override {
    Launcher& launcher = *launchers_[stream];
    const auto began = std::make_shared<EventHolder>(api_);
    const auto done = std::make_shared<EventHolder>(api_);
    check(api_.record(began->get(), launcher.stream()), "record an event");
    exchange_result(launcher, *exchange_, meeting, result);
    check(api_.record(done->get(), launcher.stream()), "record an event");
    const auto has_passed = [this](const std::shared_ptr<EventHolder>& event) {
      return [this, event] {
        bool passed = false;
        // A device that is lost is found by whoever waits for it.
        return api_.has_passed(event->get(), &passed) == nullptr && passed;
      };
    };
    exchange_->watch({fmt::format("collective {} on group {}: {}", meeting.number, meeting.group,
                                  describe(meeting.contributions[meeting.member])),
                      has_passed(began), has_passed(done)});
  }

  void join_all(std::uint32_t stream) override { join_streams(streams_[0]->get(), streams_[stream]->get()); }

  void begin_span(NodeId node, std::uint32_t stream) override {
    if (first_ == nullptr) first_ = record_time(0);
    if (held_ != nullptr) {
      drain();
      check(held_->hold(streams_[stream]->get()), "hold work back");
    }
    spans_.push_back({node, stream, record_time(stream), nullptr});
  }
  void end_span() override {
    Span& span = spans_.back();
    span.end = record_time(span.stream);
    if (held_ == nullptr) return;
    bool in_time = false;
    check(held_->let_go(streams_[span.stream]->get(), &in_time), "go on with held work");
    span.has_host_time = !in_time;
  }

  std::vector<StepSpan> take_spans() override {
    std::vector<StepSpan> spans;
    finish();
    for (const Span& span : spans_) {
      StepSpan& made = spans.emplace_back(StepSpan{span.node, span.stream});
      check(api_.find_seconds(first_->get(), span.begin->get(), &made.begin), "measure time");
      double seconds = 0;  // by itself: a device's times are the less exact the longer they are
      check(api_.find_seconds(span.begin->get(), span.end->get(), &seconds), "measure time");
      made.end = made.begin + seconds;
      made.has_host_time = span.has_host_time;
    }
    spans_.clear();
    first_ = nullptr;
    return spans;
  }

  void begin_stretch(std::uint32_t stretch) override { recorder_->begin(streams_[0]->get(), stretch); }
  void end_stretch() override { recorder_->end(streams_[0]->get()); }
  GraphUse find_graph_use() const override {
    return recorder_ == nullptr ? GraphUse() : recorder_->use_of(streams_[0]->get());
  }

  std::vector<LibraryProduct> take_products() override {
    return products_ == nullptr ? std::vector<LibraryProduct>() : products_->take_record();
  }

  void open_range(const std::string& name) override { api_.open_range(name.c_str()); }
  void close_range() override { api_.close_range(); }

  // Of a device that is lost there is nothing to wait for.
  void finish() {
    for (const auto& launcher : launchers_) api_.synchronize(launcher->stream());
  }
  void forget_memory() {
    fault_.reset();
    log_.reset();
    launchers_.clear();  // a launcher may hold the library's workspace
  }

 private:
  struct Span {
    NodeId node;
    std::uint32_t stream;
    std::unique_ptr<EventHolder> begin, end;
    bool has_host_time = false;
  };

  // What follows on `waiting` waits for what is queued on `awaited` now.
  void join_streams(Stream waiting, Stream awaited) {
    check(api_.record(moment_->get(), awaited), "record an event");
    check(api_.wait(waiting, moment_->get()), "wait for an event");
  }

  ValueLog& log() {
    if (log_ == nullptr) log_ = std::make_unique<ValueLog>(api_, *launchers_[0]);
    return *log_;
  }

  Fault* device_fault() const { return reinterpret_cast<Fault*>(fault_->data()); }
  std::unique_ptr<EventHolder> record_time(std::uint32_t stream) {
    auto event = std::make_unique<EventHolder>(api_, Timing::kTimed);
    check(api_.record(event->get(), streams_[stream]->get()), "record an event");
    return event;
  }

  DeviceApi& api_;
  GraphRecorder* recorder_;
  HeldLaunches* held_;
  std::shared_ptr<Pool> pool_;
  Exchange* exchange_;
  cublas::Products* products_;
  std::unique_ptr<EventHolder> first_;  // where measured time starts
  std::vector<Span> spans_;
  std::vector<std::unique_ptr<StreamHolder>> streams_;
  std::vector<std::unique_ptr<EventHolder>> events_;  // by the steps' numbers
  std::vector<std::unique_ptr<Launcher>> launchers_;  // by stream
  std::unique_ptr<ValueLog> log_;                     // null: nothing was logged
  std::shared_ptr<Storage> fault_;
  std::unique_ptr<EventHolder> moment_;  // of join_streams(), recorded anew each time
  std::unique_ptr<EventHolder> probe_;   // never recorded: it has passed, unless the device is lost
};

class OneRun : public DeviceRun {
 public:
  // `products`: by rank; empty in portable math.
  OneRun(DeviceApi& api, const DeviceSetup& setup, LastingMemory& lasting,
         const std::vector<std::unique_ptr<cublas::Products>>& products)
      : recorder_(setup.graphs == Graphs::kNone ? nullptr : std::make_unique<GraphRecorder>(api)),
        held_(setup.launches == Launches::kAtOnce ? nullptr : std::make_unique<HeldLaunches>(api)),
        api_(recorder_ != nullptr ? *recorder_
             : held_ != nullptr   ? static_cast<DeviceApi&>(*held_)
                                  : api),
        pool_(std::make_shared<Pool>(api_, setup.fill)),
        exchange_(setup.exchange) {
    for (Rank i = 0; i < setup.ranks; ++i)
      ranks_.push_back(
          std::make_unique<OneRank>(OneRank::Shared{api_, recorder_.get(), held_.get(), pool_, lasting,
                                                    products.empty() ? nullptr : products[i].get()},
                                    setup));
  }
  ~OneRun() override {
    for (const auto& rank : ranks_) rank->finish();
    if (exchange_ != nullptr) exchange_->unwatch();
    for (const auto& rank : ranks_) rank->forget_memory();
    pool_->release_all();
  }
  RankDevice& rank(Rank rank) override { return *ranks_[rank]; }
  std::size_t peak_bytes() const override { return pool_->asked_bytes(); }

 private:
  std::unique_ptr<GraphRecorder> recorder_;  // at most one of the two
  std::unique_ptr<HeldLaunches> held_;
  DeviceApi& api_;
  std::shared_ptr<Pool> pool_;
  Exchange* exchange_;
  std::vector<std::unique_ptr<OneRank>> ranks_;
};

// cuBLASLt and what the ranks chose of it.
struct NativeMath {
  NativeMath(cublas::Streams streams, PinRows pinned)
      : library(cublas::load_library(streams)), handle(library), pin(pinned) {}
  cublas::Library library;
  cublas::Handle handle;
  PinRows pin;
  std::vector<std::unique_ptr<cublas::Products>> products;  // by rank, kept over runs
};

std::string version_text(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

class OneDevice : public Device {
 public:
  OneDevice(std::unique_ptr<DeviceApi> api, cublas::Streams streams, const MathMode& mode)
      : api_(std::move(api)), kernels_(make_device_kernels()), lasting_(*api_) {
    check(api_->find_facts(facts_), "say what it is");
    check(api_->enter(), "be used by a thread");
    if (mode.math == Math::kNative) native_ = std::make_unique<NativeMath>(streams, mode.pin);
  }
  std::string describe() const override {
    if (facts_.multiprocessors == 0) return facts_.name;
    return fmt::format("{} ({} multiprocessors, compute capability {}.{}, driver {}, CUDA runtime {})",
                       facts_.name, facts_.multiprocessors, facts_.major, facts_.minor,
                       version_text(facts_.driver), version_text(facts_.runtime));
  }
  DeviceFactList list_facts() const override {
    DeviceFactList facts{{"name", facts_.name}};
    if (facts_.multiprocessors != 0) {
      facts.emplace_back("multiprocessors", std::to_string(facts_.multiprocessors));
      facts.emplace_back("compute_capability", fmt::format("{}.{}", facts_.major, facts_.minor));
      facts.emplace_back("driver", version_text(facts_.driver));
      facts.emplace_back("cuda_runtime", version_text(facts_.runtime));
      facts.emplace_back("memory_bytes", std::to_string(facts_.memory));
    }
    if (native_ != nullptr) {
      facts.emplace_back("cublaslt", cublas::version_text(native_->library.version));
      facts.emplace_back("cublaslt_library", native_->library.path);
      facts.emplace_back("rows", native_->pin == PinRows::kYes ? "pinned" : "not pinned");
      for (const auto& [name, value] : native_->library.environment) facts.emplace_back(name, value);
    }
    return facts;
  }
  const KernelTable& kernels() const override { return kernels_; }
  std::size_t memory_bytes() const override { return facts_.memory; }
  std::size_t free_bytes() const override { return facts_.free; }
  Math math() const override { return native_ == nullptr ? Math::kPortable : Math::kNative; }
  std::string_view find_host_wait(const Graph& graph, const Node& node) const override {
    return device::find_host_wait(graph, node, math());
  }
  std::unique_ptr<DeviceRun> start(const DeviceSetup& setup) override {
    static const std::vector<std::unique_ptr<cublas::Products>> none;
    lasting_.release_free();  // what earlier runs left there and nobody holds any more
    if (native_ == nullptr) return std::make_unique<OneRun>(*api_, setup, lasting_, none);
    while (native_->products.size() < setup.ranks)
      native_->products.push_back(std::make_unique<cublas::Products>(native_->handle, native_->pin));
    return std::make_unique<OneRun>(*api_, setup, lasting_, native_->products);
  }
  void enter() override { check(api_->enter(), "be used by a thread"); }

 private:
  std::unique_ptr<DeviceApi> api_;
  KernelTable kernels_;
  DeviceFacts facts_{};
  LastingMemory lasting_;
  std::unique_ptr<NativeMath> native_;  // null in portable math
};

}  // namespace

std::unique_ptr<Device> open_cuda_device(int ordinal, const MathMode& mode) {
  return std::make_unique<OneDevice>(load_cuda_device(ordinal), cublas::Streams::kCuda, mode);
}

std::unique_ptr<Device> open_emulated_device(Emulation kind, const MathMode& mode) {
  const bool is_idle = read_kernels(std::getenv(kKernelsVariable)) == Kernels::kNone;
  const HostAccess access = read_host_access(std::getenv(kMemoryVariable));
  if (is_idle && access == HostAccess::kHidden)
    throw UsageError(fmt::format("{}: a device without kernels ({}) has no hidden memory", kMemoryVariable,
                                 kKernelsVariable));
  std::unique_ptr<DeviceApi> device = make_emulated_device(kind, access);
  if (is_idle) device = make_idle_device(std::move(device));
  if (const auto failure = read_failure(std::getenv(kFailureVariable)))
    device = make_failing_device(std::move(device), *failure);
  return std::make_unique<OneDevice>(std::move(device), cublas::Streams::kEmulated, mode);
}

}  // namespace epweave::replay::device
