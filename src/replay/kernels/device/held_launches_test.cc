// Work that is held back, and whole graphs of which a rank is measured alone. The emulated device
// refuses to hold work back while any other is underway.
#include "replay/kernels/device/held_launches.h"

#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <thread>

#include "replay/kernels/device/pool.h"
#include "replay/kernels/device/testing/run_case.h"

namespace epweave::replay {
namespace {

// A device with a stream that fills bytes, and whose work can be held back.
class HeldStream {
 public:
  explicit HeldStream(device::Emulation kind) : api_(device::make_emulated_device(kind)), held(*api_) {
    device::check(held.make_stream(device::Priority::kNormal, &stream), "make a stream");
    device::check(held.make_event(device::Timing::kNone, &event_), "make an event");
  }
  ~HeldStream() {
    held.synchronize(stream);
    held.destroy_event(event_);
    held.destroy_stream(stream);
  }
  HeldStream(const HeldStream&) = delete;
  HeldStream& operator=(const HeldStream&) = delete;

  void fill(int byte) { device::check(held.fill(stream, bytes.data(), byte, bytes.size()), "fill memory"); }
  bool has_passed_all() {
    device::check(held.record(event_, stream), "record an event");
    bool passed = false;
    device::check(held.has_passed(event_, &passed), "ask for an event");
    return passed;
  }
  // Whether no time of the host is in what was held.
  bool let_go() {
    bool in_time = false;
    device::check(held.let_go(stream, &in_time), "let go");
    return in_time;
  }

 private:
  std::unique_ptr<device::DeviceApi> api_;

 public:
  device::HeldLaunches held;
  device::Stream stream = nullptr;
  std::array<unsigned char, 4> bytes = {};

 private:
  device::Event event_ = nullptr;
};

// Two ranks, collectives of both kinds, sizes that the data decide, and an element that the host
// reads.
constexpr const char* kHeld = R"(epweave text 1
group 7 ranks=[0, 1]
symbol u0 hint=12 unbacked
graph
  %x = placeholder : f32[6, 4] role=user which=x
  %a = aten.mul.Tensor(%x, %x) : f32[6, 4]
  %v = aten.view.default(%a, [4, 6]) : f32[4, 6]
  %b = aten.mm.default(%a, %v) : f32[6, 6]
  %g = _c10d_functional.all_reduce.default(%b, "sum", "7") : f32[6, 6]
  %h = _c10d_functional.all_gather_into_tensor.default(%a, 2, "7") : f32[12, 4]
  %c = aten.neg.default(%b) : f32[6, 6]
  %w = _c10d_functional.wait_tensor.default(%g) : f32[6, 6]
  %e = aten.add.Tensor(%w, %c) : f32[6, 6]
  %wh = _c10d_functional.wait_tensor.default(%h) : f32[12, 4]
  %f = aten.neg.default(%wh) : f32[12, 4]
  %m = aten.gt.Scalar(%x, 0.0) : b8[6, 4]
  %p = aten.index.Tensor(%x, [%m]) : f32[u0] bind(u0, {"kind": "CallMethodKey", "name": "size"}, {"kind": "SequenceKey", "idx": 0})
  %r = aten.sum.default(%p) : f32[]
  %n = aten._local_scalar_dense.default(%r)
  %o = aten.mul.Scalar(%p, %n) : f32[u0]
  output([%e, %f, %o])
)";

// Ranks 0 and 1 give tensors of other sizes.
constexpr const char* kMismatch = R"(epweave text 1
group 7 ranks=[0, 1]
symbol u0 hint=12 unbacked
graph
  %x = placeholder : f32[6, 4] role=user which=x
  %m = aten.gt.Scalar(%x, 0.0) : b8[6, 4]
  %p = aten.index.Tensor(%x, [%m]) : f32[u0] bind(u0, {"kind": "CallMethodKey", "name": "size"}, {"kind": "SequenceKey", "idx": 0})
  %g = _c10d_functional.all_reduce.default(%p, "sum", "7") : f32[u0]
  %w = _c10d_functional.wait_tensor.default(%g) : f32[u0]
  output([%w])
)";

RunResult run_case(const RunCase& step, Device* device, const Measuring* measuring) {
  RunOptions options;
  options.device = device;
  options.measuring = measuring;
  return step.run(options);
}

// "mm" for each span, in the order of time; "index with host time".
std::vector<std::string> list_nodes(const RunCase& step, const std::vector<StepSpan>& spans) {
  std::vector<std::string> nodes;
  for (const StepSpan& span : spans)
    nodes.push_back(std::string(step.graph.text(step.graph.step().nodes[span.node].name)) +
                    (span.has_host_time ? " with host time" : ""));
  return nodes;
}

bool follow_each_other(const std::vector<StepSpan>& spans) {
  for (std::size_t i = 0; i < spans.size(); ++i)
    if (spans[i].end < spans[i].begin || (i != 0 && spans[i].begin < spans[i - 1].end)) return false;
  return true;
}

}  // namespace

TEMPLATE_TEST_CASE_SIG("work that is held back begins once it is let go", "",
                       ((device::Emulation kind), kind), device::Emulation::kLazy,
                       device::Emulation::kConcurrent) {
  HeldStream device(kind);
  CHECK(device.held.hold(device.stream) == nullptr);
  device.fill(7);
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  CHECK_FALSE(device.has_passed_all());
  CHECK(device.bytes == std::array<unsigned char, 4>{0, 0, 0, 0});
  CHECK(device.let_go());
  device.held.synchronize(device.stream);
  CHECK(device.bytes == std::array<unsigned char, 4>{7, 7, 7, 7});
}

TEST_CASE("what waits for work that is held back lets it go, and the host's time is in it") {
  HeldStream device(device::Emulation::kLazy);
  const std::array<unsigned char, 4> nines{9, 9, 9, 9};
  std::array<unsigned char, 4> other{};
  void* data = nullptr;
  const auto hold_and = [&](const auto& call) {
    device.held.synchronize(device.stream);
    device.bytes = {};
    CHECK(device.held.hold(device.stream) == nullptr);
    device.fill(9);
    CHECK(call() == nullptr);
    CHECK_FALSE(device.let_go());
    device.held.synchronize(device.stream);
    CHECK(device.bytes == nines);
  };
  hold_and([&] { return device.held.synchronize(device.stream); });
  hold_and([&] { return device.held.copy_out(device.stream, other.data(), device.bytes.data(), 4); });
  CHECK(other == nines);
  hold_and([&] { return device.held.copy_in(device.stream, other.data(), nines.data(), 4); });
  hold_and([&] { return device.held.allocate(64, &data); });
  hold_and([&] { return device.held.release(data); });
  hold_and([&] {
    for (int i = 0; i < device::HeldLaunches::kMostLaunches; ++i) device.fill(9);
    return device::Error();
  });
  CHECK(device.held.hold(device.stream) == nullptr);
  for (int i = 0; i < device::HeldLaunches::kMostLaunches; ++i) device.fill(9);
  CHECK(device.let_go());
}

TEST_CASE("an emulated device holds nothing back while other work is underway, and refuses to wait for it") {
  const std::unique_ptr<device::DeviceApi> api = device::make_emulated_device();
  device::Stream one = nullptr, other = nullptr;
  CHECK(api->make_stream(device::Priority::kNormal, &one) == nullptr);
  CHECK(api->make_stream(device::Priority::kNormal, &other) == nullptr);
  unsigned char byte = 0;
  bool in_time = false;
  CHECK(api->fill(other, &byte, 3, 1) == nullptr);
  CHECK(std::string(api->hold(one)) == "other work is underway");
  CHECK(api->synchronize(other) == nullptr);
  CHECK(api->hold(one) == nullptr);
  void* data = nullptr;
  for (const device::Error error :
       {api->synchronize(other), api->copy_in(other, &byte, &byte, 1), api->copy_out(one, &byte, &byte, 1),
        api->allocate(1, &data), api->release(nullptr), api->hold(one), api->begin_capture(other)})
    CHECK(std::string(error) == "not permitted while work is held back");
  CHECK(std::string(api->let_go(other, &in_time)) == "nothing is held back on the stream");
  CHECK(api->let_go(one, &in_time) == nullptr);
  CHECK(in_time);
  CHECK(api->destroy_stream(one) == nullptr);
  CHECK(api->destroy_stream(other) == nullptr);
}

TEMPLATE_TEST_CASE_SIG("a rank is measured alone, one node at a time", "", ((device::Emulation kind), kind),
                       device::Emulation::kLazy, device::Emulation::kConcurrent) {
  const RunCase step(kHeld, 2);
  const auto expected = hashes_of(run_case(step, nullptr, nullptr));
  const std::unique_ptr<Device> device = open_tested_device(kind);
  const Rank alone = GENERATE(0U, 1U);
  const Measuring measuring{1, 2, Spans::kOfNodes, alone};
  const RunResult run = run_case(step, device.get(), &measuring);
  CHECK(hashes_of(run) == expected);
  CHECK(run.ranks[1 - alone].spans.empty());
  CHECK(run.ranks[0].step_seconds.empty());
  REQUIRE(run.ranks[alone].spans.size() == 2);
  for (const std::vector<StepSpan>& spans : run.ranks[alone].spans) {
    CHECK(list_nodes(step, spans) ==
          std::vector<std::string>{"a", "b", "c", "g", "e", "h", "f", "m", "p with host time", "r", "o"});
    CHECK(follow_each_other(spans));
  }
}

TEST_CASE("a rank is measured alone on the CPU") {
  const RunCase step(kHeld, 2);
  const Measuring measuring{0, 1, Spans::kOfNodes, 1};
  const RunResult run = run_case(step, nullptr, &measuring);
  CHECK(hashes_of(run) == hashes_of(run_case(step, nullptr, nullptr)));
  CHECK(run.ranks[0].spans.empty());
  CHECK(list_nodes(step, run.ranks[1].spans.at(0)) ==
        std::vector<std::string>{"a", "b", "c", "g", "e", "h", "f", "m", "p", "r", "o"});
  CHECK(follow_each_other(run.ranks[1].spans[0]));
}

TEST_CASE("ranks that compute by turns fail as those that do at once") {
  const RunCase step(kMismatch, 2);
  const std::unique_ptr<Device> device = open_tested_device(device::Emulation::kLazy);
  const Measuring measuring{0, 1, Spans::kOfNodes, 0};
  CHECK_THROWS_AS(run_case(step, device.get(), nullptr), CollectiveError);
  CHECK_THROWS_AS(run_case(step, device.get(), &measuring), CollectiveError);
}

}  // namespace epweave::replay
