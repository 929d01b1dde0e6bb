// Whole graphs on a device that fails from the n-th call on, and whose n-th kernel crashes, for
// every n: each run ends with an error that says where the host was.
#include "replay/kernels/device/failing_device.h"

#include <catch2/catch.hpp>
#include <optional>
#include <regex>

#include "base/error.h"
#include "replay/kernels/device/testing/run_case.h"

namespace epweave::replay {
namespace {

// Two ranks, collectives on a stream of their own, a size that the data decides, and an element
// that the host reads.
constexpr const char* kFailing = R"(epweave text 1
group 7 ranks=[0, 1]
symbol u0 hint=12 unbacked
graph
  %x = placeholder : f32[6, 4] role=user which=x
  %a = aten.mul.Tensor(%x, %x) : f32[6, 4]
  %v = aten.view.default(%a, [4, 6]) : f32[4, 6]
  %b = aten.mm.default(%a, %v) : f32[6, 6] @layers.0 src="model.py:3 in forward: a @ v"
  %g = _c10d_functional.all_reduce.default(%b, "sum", "7") : f32[6, 6]
  %c = aten.neg.default(%b) : f32[6, 6]
  %w = _c10d_functional.wait_tensor.default(%g) : f32[6, 6]
  %e = aten.add.Tensor(%w, %c) : f32[6, 6]
  %m = aten.gt.Scalar(%x, 0.0) : b8[6, 4]
  %p = aten.index.Tensor(%x, [%m]) : f32[u0] bind(u0, {"kind": "CallMethodKey", "name": "size"}, {"kind": "SequenceKey", "idx": 0})
  %r = aten.sum.default(%p) : f32[]
  %n = aten._local_scalar_dense.default(%r)
  %o = aten.mul.Scalar(%p, %n) : f32[u0]
  output([%e, %o])
)";

constexpr const char* kOneRank = R"(epweave text 1
symbol u0 hint=12 unbacked
graph
  %x = placeholder : f32[6, 4] role=user which=x
  %a = aten.t.default(%x) : f32[4, 6]{1, 4}
  %n = aten.neg.default(%x) : f32[6, 4]
  %b = aten.mm.default(%n, %a) : f32[6, 6] @layers.0 src="model.py:3 in forward: a @ v"
  %m = aten.gt.Scalar(%x, 0.0) : b8[6, 4]
  %p = aten.index.Tensor(%x, [%m]) : f32[u0] bind(u0, {"kind": "CallMethodKey", "name": "size"}, {"kind": "SequenceKey", "idx": 0})
  output([%b, %p])
)";

// What a run on a device that fails so ends with; none if it ends well.
std::optional<DeviceError> run_failing(const RunCase& step, const std::string& failure,
                                       device::Emulation kind, const Measuring& measuring, Graphs graphs) {
  const SetVariable variable(device::kFailureVariable, failure);
  RunOptions options;
  options.measuring = &measuring;
  options.graphs = graphs;
  try {
    const std::unique_ptr<Device> device = device::open_emulated_device(kind);
    options.device = device.get();
    step.run(options);
  } catch (const DeviceError& error) {
    return error;
  }
  return std::nullopt;
}

const std::regex kOpening("the device failed to (say what it is|be used by a thread): .*");
const std::regex kBefore("(rank [01]: )?before the first node: the device failed to .*");
const std::regex kAtNode(
    R"(rank [01]: %\w+ = [\w.]+(:? in layers.0 \(model.py:3 .*\))?: (behind it )?the device failed to .*)");

}  // namespace

TEST_CASE("a device that fails from any call on ends the run with the node that the host was at") {
  struct Mode {
    device::Emulation kind;
    Measuring measuring;
    Graphs graphs;
  };
  const Measuring steps{1, 1, Spans::kNone, {}}, nodes{1, 1, Spans::kOfNodes, {}};
  const Measuring alone{1, 1, Spans::kOfNodes, 1};
  const auto mode = GENERATE_COPY(Mode{device::Emulation::kLazy, steps, Graphs::kNone},
                                  Mode{device::Emulation::kLazy, nodes, Graphs::kNone},
                                  Mode{device::Emulation::kLazy, alone, Graphs::kNone},
                                  Mode{device::Emulation::kConcurrent, alone, Graphs::kNone},
                                  Mode{device::Emulation::kLazy, steps, Graphs::kStretches},
                                  Mode{device::Emulation::kConcurrent, steps, Graphs::kNone});
  const std::string at = GENERATE("call", "launch");
  const RunCase step(kFailing, 2);
  std::size_t failed = 0, at_node = 0;
  for (int n = 1;; ++n) {
    const std::string failure = at + " " + std::to_string(n);
    const auto error = run_failing(step, failure, mode.kind, mode.measuring, mode.graphs);
    if (!error) break;
    ++failed;
    const std::string text = error->what();
    INFO(failure + ": " + text);
    if (std::regex_match(text, kAtNode)) {
      ++at_node;
      CHECK(error->aftermath() == Aftermath::kLost);
      CHECK(text.find(
                "; the device takes no more work: a kernel queued earlier, of any rank, may be the cause") !=
            std::string::npos);
    } else {
      CHECK((std::regex_match(text, kOpening) || std::regex_match(text, kBefore)));
    }
  }
  CHECK(failed > (at == "call" ? 100 : 20));
  CHECK(at_node > (at == "call" ? 80 : 20));
}

TEST_CASE("launches that wait for their kernels name the kernel that crashed") {
  const RunCase step(kOneRank, 1);
  const auto crash = [&](int launch) {
    const auto error = run_failing(step, "launch " + std::to_string(launch), device::Emulation::kLazy,
                                   {1, 1, Spans::kNone, {}}, Graphs::kNone);
    return error ? std::string(error->what()) : "no error";
  };
  // The product is the second kernel; without blocking the host learns it where it asks for memory.
  CHECK(crash(2) ==
        "rank 0: %m = aten.gt.Scalar: the device failed to give 512 bytes, 2048 being in use: an illegal "
        "memory "
        "access was encountered; the device takes no more work: a kernel queued earlier, of any rank, may be "
        "the cause");
  const SetVariable blocking("CUDA_LAUNCH_BLOCKING", "1");
  CHECK(crash(2) ==
        "rank 0: %b = aten.mm.default in layers.0 (model.py:3 in forward: a @ v): the device failed to "
        "launch a kernel: "
        "an illegal memory access was encountered; the device takes no more work: a kernel queued earlier, "
        "of any "
        "rank, may be the cause");
}

TEST_CASE("a failure to emulate is read whole or refused") {
  using device::DeviceFailure;
  CHECK(!device::read_failure(nullptr));
  CHECK(!device::read_failure(""));
  CHECK(device::read_failure("call 12")->at == DeviceFailure::At::kCall);
  CHECK(device::read_failure("launch 3")->at == DeviceFailure::At::kLaunch);
  CHECK(device::read_failure("launch 3")->number == 3);
  for (const char* wrong : {"call", "call ", "call 0", "call x", "call 1x", "calls 1", "1", "launch -1"})
    CHECK_THROWS_AS(device::read_failure(wrong), UsageError);
}

}  // namespace epweave::replay
