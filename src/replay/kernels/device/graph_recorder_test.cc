// Stretches as graphs of the device: when one is launched again, when not, and what a device
// refuses while it captures.
#include "replay/kernels/device/graph_recorder.h"

#include <catch2/catch.hpp>
#include <chrono>
#include <functional>
#include <future>

#include "replay/kernels/device/emulated.h"
#include "replay/kernels/device/launcher.h"
#include "replay/kernels/host/elements.h"

namespace epweave::replay::device {
namespace {

constexpr std::uint32_t kStretch = 3;

// Two streams of a device, the first of which may be given graphs. Memory is poisoned.
template <class Between = ForwardingApi>
class Recorded {
 public:
  explicit Recorded(Emulation kind = Emulation::kLazy)
      : emulated_(make_emulated_device(kind)),
        between_(*emulated_),
        recorder_(std::make_unique<GraphRecorder>(between_)),
        pool_(std::make_shared<Pool>(*recorder_, HostMemory::Fill::kPoison)) {
    for (Stream& stream : streams_)
      check(recorder_->make_stream(Priority::kNormal, &stream), "make a stream");
    recorder_->enroll(streams_[0]);
    fault_ = pool_->allocate(sizeof(Fault), streams_[0], nullptr);
    for (std::size_t i = 0; i < 2; ++i)
      launchers_[i] = std::make_unique<Launcher>(*recorder_, pool_, streams_[i],
                                                 reinterpret_cast<Fault*>(fault_->data()));
    launchers_[0]->synchronize();
  }
  ~Recorded() {
    for (const auto& launcher : launchers_) launcher->synchronize();
    fault_.reset();
    pool_->release_all();
    recorder_->destroy_stream(streams_[0]);
    recorder_->destroy_stream(streams_[1]);
  }

  void begin() { recorder_->begin(streams_[0], kStretch); }
  void end() { recorder_->end(streams_[0]); }
  GraphUse use() const { return recorder_->use_of(streams_[0]); }
  Stream stream(std::size_t i) const { return streams_[i]; }
  Launcher& launcher(std::size_t i) { return *launchers_[i]; }
  GraphRecorder& recorder() { return *recorder_; }
  const Between& between() const { return between_; }

  Tensor filled(std::int64_t elements, double number) {
    Tensor tensor = make_tensor(*launchers_[0], DType::kFloat32, {elements});
    cpu::fill_elements(tensor, Value(number));
    return tensor;
  }
  Tensor sum(const Tensor& a, const Tensor& b, std::size_t stream = 0) {
    Tensor out = make_tensor(*launchers_[stream], DType::kFloat32, a.sizes);
    launchers_[stream]->map({math::ElementOp::kAddScaled, DType::kFloat32, out, {&a, &b}, 2, Value(1.0)});
    return out;
  }
  // Every element is the same.
  float read(const Tensor& tensor, std::size_t stream = 0) {
    const Tensor host = launchers_[stream]->download(tensor);
    const float first = host.data<float>()[0];
    for (std::int64_t i = 0; i < host.numel(); ++i) CHECK(host.data<float>()[i] == first);
    return first;
  }
  // One stretch: 2 * number, in as many elements.
  float double_it(std::int64_t elements, double number) {
    begin();
    const Tensor x = filled(elements, number);
    const Tensor y = sum(x, x);
    end();
    return read(y);
  }

 private:
  std::unique_ptr<DeviceApi> emulated_;
  Between between_;
  std::unique_ptr<GraphRecorder> recorder_;
  std::shared_ptr<Pool> pool_;
  Stream streams_[2] = {};
  std::shared_ptr<Storage> fault_;
  std::unique_ptr<Launcher> launchers_[2];
};

// Launches the graph of before, whatever was captured.
class StaleGraphs : public ForwardingApi {
 public:
  using ForwardingApi::ForwardingApi;
  Error end_capture(Stream stream, WorkGraph* graph, Instantiation* how) override {
    if (*graph == nullptr) return api_.end_capture(stream, graph, how);
    WorkGraph unused = nullptr;
    const Error error = api_.end_capture(stream, &unused, how);
    if (unused != nullptr) api_.destroy_graph(unused);
    return error;
  }
};

// A device without graphs.
class NoGraphs : public ForwardingApi {
 public:
  using ForwardingApi::ForwardingApi;
  Error begin_capture(Stream) override { return "no graphs here"; }
};

// Synchronizes in the middle of what it should capture.
class WaitsInCapture : public ForwardingApi {
 public:
  using ForwardingApi::ForwardingApi;
  Error begin_capture(Stream stream) override {
    const Error error = api_.begin_capture(stream);
    api_.synchronize(stream);
    return error;
  }
};

// While a stream captures, another rank's thread makes it wait, as one that gives memory back does.
class AnotherRankWaits : public ForwardingApi {
 public:
  using ForwardingApi::ForwardingApi;
  Error begin_capture(Stream stream) override {
    const Error error = api_.begin_capture(stream);
    if (error != nullptr) return error;
    told = std::async(std::launch::async, wait);
    told.wait_for(std::chrono::milliseconds(20));
    return nullptr;
  }
  static inline std::function<Error()> wait;
  static inline std::future<Error> told;
};

// Counts how often the host waits for bytes.
class CountsReads : public ForwardingApi {
 public:
  using ForwardingApi::ForwardingApi;
  Error copy_out(Stream stream, void* to, const void* from, std::size_t bytes) override {
    ++reads;
    return api_.copy_out(stream, to, from, bytes);
  }
  int reads = 0;
};

}  // namespace

TEMPLATE_TEST_CASE_SIG("the same work is launched again, other work is captured anew", "",
                       ((Emulation kind), kind), Emulation::kLazy, Emulation::kConcurrent) {
  Recorded<> device(kind);
  CHECK(device.double_it(100, 2) == 4);
  CHECK(device.use().seen_first == 1);
  CHECK(device.double_it(100, 2) == 4);
  CHECK(device.use().instantiated == 1);
  for (int i = 0; i < 3; ++i) CHECK(device.double_it(100, 2) == 4);
  CHECK(device.use().replayed == 3);
  CHECK(device.use().kernels == 16);  // poison, fill, poison and sum at each launch

  std::uint64_t updated = 0;
  const auto is_new_work = [&](std::int64_t elements, double number) {
    const std::uint64_t before = device.use().seen_first;
    CHECK(device.double_it(elements, number) == static_cast<float>(2 * number));
    CHECK(device.use().seen_first == before + 1);
    CHECK(device.double_it(elements, number) == static_cast<float>(2 * number));
    CHECK(device.use().updated == ++updated);
  };
  is_new_work(100, 5);                             // another number
  is_new_work(90, 5);                              // another size, the same memory
  const Tensor in_the_way = device.filled(90, 1);  // other memory
  is_new_work(90, 5);
  CHECK(device.use().replayed == 3);
  CHECK(device.double_it(90, 5) == 10);
  CHECK(device.use().replayed == 4);
  CHECK(device.use().instantiated == 1);
  CHECK(device.use().interruptions.empty());
}

TEST_CASE("work of another shape is a new graph") {
  Recorded<> device;
  for (int i = 0; i < 2; ++i) CHECK(device.double_it(100, 2) == 4);
  for (int i = 0; i < 2; ++i) {
    device.begin();
    const Tensor x = device.filled(100, 2), y = device.sum(x, x), z = device.sum(y, x);
    device.end();
    CHECK(device.read(z) == 6);
  }
  CHECK(device.use().instantiated == 2);
  CHECK(device.use().updated == 0);
}

TEST_CASE("a graph that is not what was captured is seen") {
  Recorded<StaleGraphs> device;
  for (int i = 0; i < 3; ++i) CHECK(device.double_it(100, 2) == 4);
  CHECK(device.double_it(100, 5) == 10);  // kernel by kernel
  CHECK(device.double_it(100, 5) == 4);   // stale: 10 is right
}

TEST_CASE("without graphs the stretch is launched kernel by kernel, and why is counted") {
  Recorded<NoGraphs> none;
  Recorded<WaitsInCapture> fails;
  for (int i = 0; i < 3; ++i) {
    CHECK(none.double_it(100, 2) == 4);
    CHECK(fails.double_it(100, 2) == 4);
  }
  CHECK(none.use().refusals == std::map<std::string, std::uint64_t>{{"no graphs here", 1}});
  CHECK(fails.use().refusals ==
        std::map<std::string, std::uint64_t>{{"not permitted while a stream captures", 1}});
  CHECK(none.use().launched_singly == 1);
  CHECK(none.use().instantiated + none.use().updated + none.use().replayed == 0);
}

TEST_CASE("a single kernel is no graph") {
  Recorded<> device;
  const Tensor x = device.filled(100, 2);
  const Tensor out = device.filled(100, 0);
  device.begin();
  cpu::copy_elements(x, out);
  device.end();
  CHECK(device.read(out) == 2);
  CHECK(device.use().launched_singly == 1);
  CHECK(device.use().instantiated == 0);
}

TEST_CASE("a long stretch is launched in parts") {
  Recorded<> device;
  for (int i = 0; i < 3; ++i) {
    device.begin();
    Tensor sum = device.filled(10, 0);
    const Tensor one = device.filled(10, 1);
    for (int k = 0; k < 200; ++k) sum = device.sum(sum, one);
    device.end();
    CHECK(device.read(sum) == 200);
  }
  CHECK(device.use().instantiated == 4);  // 404 kernels and fills of memory, 128 at most in each
  CHECK(device.use().replayed == 4);
  CHECK(device.use().interruptions.empty());
}

TEST_CASE("what waits for a stretch that is written down gets its values") {
  Recorded<> device;
  for (int i = 0; i < 3; ++i) {
    device.begin();
    const Tensor x = device.filled(100, 2);
    CHECK(device.read(x) == 2);  // the host
    const Tensor y = device.sum(x, x);
    Event made = nullptr;
    check(device.recorder().make_event(Timing::kNone, &made), "make an event");
    check(device.recorder().record(made, device.stream(0)), "record an event");
    check(device.recorder().wait(device.stream(1), made), "wait for an event");
    CHECK(device.read(device.sum(y, y, 1), 1) == 8);  // another stream
    check(device.recorder().destroy_event(made), "destroy an event");
    const Tensor z = device.sum(y, x);
    device.end();
    CHECK(device.read(z) == 6);
  }
  const GraphUse use = device.use();
  CHECK(use.interruptions == std::map<std::string, std::uint64_t>{{"an event is recorded", 3},
                                                                  {"bytes are copied to the host", 3}});
  CHECK(use.instantiated == 3);
  CHECK(use.replayed == 3);
}

TEST_CASE("memory that another stream frees is not used before that stream is done with it") {
  Recorded<> device;
  for (int i = 0; i < 3; ++i) {
    const Tensor kept = device.filled(100, 3);
    Tensor copy;
    const std::byte* at = nullptr;
    {
      const Tensor x = device.filled(100, 2);
      at = x.bytes();
      Event made = nullptr;
      check(device.recorder().make_event(Timing::kNone, &made), "make an event");
      check(device.recorder().record(made, device.stream(0)), "record an event");
      check(device.recorder().wait(device.stream(1), made), "wait for an event");
      check(device.recorder().destroy_event(made), "destroy an event");
      copy = device.sum(x, x, 1);  // queued, not run
    }
    device.begin();
    const Tensor again = device.filled(100, 7);  // waits for the other stream, within the stretch
    const Tensor more = device.sum(again, kept);
    device.end();
    CHECK(again.bytes() == at);
    CHECK(device.read(more) == 10);
    CHECK(device.read(copy, 1) == 4);
  }
  CHECK(device.use().replayed == 1);
  CHECK(device.use().interruptions.empty());
}

TEST_CASE("requests and returns in the same order give the same memory") {
  Recorded<> device;
  std::vector<std::vector<const std::byte*>> runs;
  for (int run = 0; run < 3; ++run) {
    std::vector<const std::byte*>& places = runs.emplace_back();
    std::vector<Tensor> held;
    const auto take = [&] {
      held.push_back(device.filled(100, 1));
      places.push_back(held.back().bytes());
    };
    const auto give = [&](std::ptrdiff_t i) { held.erase(held.begin() + i); };
    for (int i = 0; i < 4; ++i) take();
    give(1);
    give(0);
    take();
    give(2);
    for (int i = 0; i < 3; ++i) take();
    give(3);
    give(0);
  }
  CHECK(runs[0] == runs[1]);
  CHECK(runs[1] == runs[2]);
}

TEST_CASE("integers are read once, until their memory is written or given out again") {
  Recorded<CountsReads> device;
  Launcher& launcher = device.launcher(0);
  const auto counting = [&](std::int64_t first) {
    Tensor tensor = make_tensor(launcher, DType::kInt64, {4});
    launcher.progress(tensor, Value(first), Value(std::int64_t{1}));
    return tensor;
  };
  const std::byte* at = nullptr;
  {
    const Tensor x = counting(5), y = counting(0);
    at = x.bytes();
    CHECK(launcher.read_once(x) == std::vector<std::int64_t>{5, 6, 7, 8});
    CHECK(launcher.read_once(x) == std::vector<std::int64_t>{5, 6, 7, 8});
    CHECK(device.between().reads == 1);
    CHECK(launcher.read_once(x.view({2}, {1}, 2)) == std::vector<std::int64_t>{7, 8});
    CHECK(device.between().reads == 2);
    launcher.forget(y.storage.get());
    CHECK(launcher.read_once(x).size() == 4);
    CHECK(device.between().reads == 2);
    launcher.forget(x.storage.get());
    cpu::copy_elements(y, x);
    CHECK(launcher.read_once(x) == std::vector<std::int64_t>{0, 1, 2, 3});
    launcher.forget(nullptr);
    CHECK(launcher.read_once(x) == std::vector<std::int64_t>{0, 1, 2, 3});
    CHECK(device.between().reads == 4);
  }
  const Tensor z = counting(9);
  CHECK(z.bytes() == at);
  CHECK(launcher.read_once(z) == std::vector<std::int64_t>{9, 10, 11, 12});
}

TEST_CASE("a wait that another rank queues meanwhile is no part of what is captured") {
  Recorded<AnotherRankWaits> device;
  Event event = nullptr;
  check(device.recorder().make_event(Timing::kNone, &event), "make an event");
  check(device.recorder().record(event, device.stream(1)), "record an event");
  AnotherRankWaits::wait = [&] { return device.recorder().wait(device.stream(0), event); };
  for (int i = 0; i < 3; ++i) CHECK(device.double_it(1000, 2.5) == 5);
  REQUIRE(AnotherRankWaits::told.valid());
  CHECK(AnotherRankWaits::told.get() == nullptr);
  const GraphUse use = device.use();
  CHECK(use.refusals.empty());
  CHECK(use.instantiated == 1);
  CHECK(use.replayed == 1);
  device.recorder().destroy_event(event);
}

TEST_CASE("while a stream captures the emulated device refuses what CUDA refuses") {
  const std::unique_ptr<DeviceApi> api = make_emulated_device();
  Stream stream = nullptr, other = nullptr;
  check(api->make_stream(Priority::kNormal, &stream), "make a stream");
  check(api->make_stream(Priority::kNormal, &other), "make a stream");
  Event event = nullptr;
  check(api->make_event(Timing::kNone, &event), "make an event");
  check(api->record(event, other), "record an event");
  void* data = nullptr;
  check(api->allocate(64, &data), "give memory");
  char host[64] = "before";
  check(api->fill(stream, data, 1, 64), "fill");
  WorkGraph graph = nullptr;
  Instantiation how = Instantiation::kNew;

  const auto capture = [&](const auto& forbidden) {
    CAPTURE(graph);
    check(api->begin_capture(stream), "capture");
    check(api->fill(stream, data, 2, 64), "fill");
    const bool is_refused = forbidden() != nullptr;
    const Error end = api->end_capture(stream, &graph, &how);
    CHECK(is_refused == (end != nullptr));
    CHECK((graph == nullptr) == is_refused);
    return is_refused;
  };
  void* more = nullptr;
  bool passed = false;
  CHECK(capture([&] { return api->allocate(64, &more); }));
  CHECK(capture([&] { return api->release(data); }));
  CHECK(capture([&] { return api->synchronize(stream); }));
  CHECK(capture([&] { return api->copy_in(stream, data, host, 64); }));
  CHECK(capture([&] { return api->copy_out(stream, host, data, 64); }));
  CHECK(capture([&] { return api->has_passed(event, &passed); }));
  CHECK(capture([&] { return api->wait(stream, event); }));
  CHECK(capture([&] { return api->record(event, stream); }));
  CHECK(capture([&] { return api->begin_capture(stream); }));
  CHECK_FALSE(capture([&] { return api->fill(stream, data, 3, 32); }));

  // Nothing that was captured has been run; the graph runs when it is launched, as often as that.
  check(api->copy_out(stream, host, data, 64), "copy");
  CHECK((host[0] == 1 && host[63] == 1));
  check(api->launch_graph(stream, graph), "launch a graph");
  check(api->copy_out(stream, host, data, 64), "copy");
  CHECK((host[0] == 3 && host[63] == 2));
  check(api->fill(stream, data, 4, 64), "fill");
  check(api->launch_graph(stream, graph), "launch a graph");
  // A launch is of the graph as it was then.
  check(api->begin_capture(stream), "capture");
  check(api->fill(stream, data, 8, 64), "fill");
  check(api->fill(stream, data, 9, 64), "fill");
  check(api->end_capture(stream, &graph, &how), "capture");
  CHECK(how == Instantiation::kUpdated);
  check(api->copy_out(stream, host, data, 64), "copy");
  CHECK((host[0] == 3 && host[63] == 2));

  CHECK(api->end_capture(stream, &graph, &how) != nullptr);  // it does not capture
  api->destroy_graph(graph);
  api->destroy_event(event);
  api->release(data);
  api->destroy_stream(stream);
  api->destroy_stream(other);
}

}  // namespace epweave::replay::device
