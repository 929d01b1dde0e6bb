// Which steps are stretches, and whole graphs run with them: the CPU's values, launched as graphs
// from the second run on.
#include "replay/steps/stretches.h"

#include <catch2/catch.hpp>

#include "replay/kernels/device/host_waits.h"
#include "replay/kernels/device/testing/run_case.h"

namespace epweave::replay {
namespace {

// Two ranks, collectives, a size that the data decides, and an element that the host reads.
constexpr const char* kStretches = R"(epweave text 1
group 7 ranks=[0, 1]
symbol u0 hint=12 unbacked
graph
  %x = placeholder : f32[6, 4] role=user which=x
  %a = aten.mul.Tensor(%x, %x) : f32[6, 4]
  %v = aten.view.default(%a, [4, 6]) : f32[4, 6]
  %b = aten.mm.default(%a, %v) : f32[6, 6]
  %g = _c10d_functional.all_reduce.default(%b, "sum", "7") : f32[6, 6]
  %c = aten.neg.default(%b) : f32[6, 6]
  %d = aten.add.Tensor(%c, %b) : f32[6, 6]
  %w = _c10d_functional.wait_tensor.default(%g) : f32[6, 6]
  %e = aten.add.Tensor(%w, %d) : f32[6, 6]
  %f = aten.mul.Tensor(%e, %w) : f32[6, 6]
  %m = aten.gt.Scalar(%x, 0.0) : b8[6, 4]
  %p = aten.index.Tensor(%x, [%m]) : f32[u0] bind(u0, {"kind": "CallMethodKey", "name": "size"}, {"kind": "SequenceKey", "idx": 0})
  %q = aten.mul.Tensor(%p, %p) : f32[u0]
  %r = aten.sum.default(%q) : f32[]
  %n = aten._local_scalar_dense.default(%r)
  %o = aten.mul.Scalar(%q, %n) : f32[u0]
  %s = aten.neg.default(%o) : f32[u0]
  output([%f, %s])
)";

// Every op inside which the host waits, and those that find no size because the call gives it.
constexpr const char* kWaits = R"(epweave text 1
symbol u0 hint=12 unbacked
symbol u1 hint=12 unbacked
symbol u2 hint=6 unbacked
symbol u3 hint=6 unbacked
symbol u4 hint=15 unbacked
graph
  %x = placeholder : f32[6, 4] role=user which=x
  %m = aten.gt.Scalar(%x, 0.0) : b8[6, 4]
  %i = aten.arange.start_step(0, 6, 1) : i64[6]
  %nonzero = aten.nonzero.default(%m) : i64[u0, 2]{1, u0} bind(u0, {"kind": "CallMethodKey", "name": "size"}, {"kind": "SequenceKey", "idx": 0})
  %a = aten.neg.default(%x) : f32[6, 4]
  %selected = aten.masked_select.default(%a, %m) : f32[u1] bind(u1, {"kind": "CallMethodKey", "name": "size"}, {"kind": "SequenceKey", "idx": 0})
  %b = aten.neg.default(%i) : i64[6]
  %counted = aten.bincount.default(%i) : i64[u2] bind(u2, {"kind": "CallMethodKey", "name": "size"}, {"kind": "SequenceKey", "idx": 0})
  %c = aten.neg.default(%b) : i64[6]
  %hot = aten.one_hot.default(%c) : i64[6, u3] bind(u3, {"kind": "CallMethodKey", "name": "size"}, {"kind": "SequenceKey", "idx": 1})
  %d = aten.neg.default(%c) : i64[6]
  %repeated = aten.repeat_interleave.Tensor(%i) : i64[u4] bind(u4, {"kind": "CallMethodKey", "name": "size"}, {"kind": "SequenceKey", "idx": 0})
  %one = aten.full.default([], 1.0) : f32[]
  %put = aten.index_put.default(%x, [%m], %one) : f32[6, 4]
  %hot_of_six = aten.one_hot.default(%c, 6) : i64[6, 6]
  %repeated_to_15 = aten.repeat_interleave.Tensor(%i, output_size=15) : i64[15]
  %rows = aten.index.Tensor(%put, [%i]) : f32[6, 4]
  %e = aten.neg.default(%rows) : f32[6, 4]
  output([%nonzero, %selected, %counted, %hot, %d, %repeated, %hot_of_six, %repeated_to_15, %e])
)";

// Three runs from the same inputs; without a device on the CPU, once.
RunResult run_thrice(const RunCase& step, Device* device, Graphs graphs) {
  const Measuring measuring{1, 2, Spans::kNone};
  RunOptions options;
  options.device = device;
  options.graphs = graphs;
  if (device != nullptr) options.measuring = &measuring;
  return step.run(options);
}

}  // namespace

TEST_CASE("stretches go from one kernel to another, up to what the host or another stream does") {
  const RunCase step(kStretches, 2);
  const Steps steps = plan_steps(step.graph, step.graph.step());
  const auto stretches = plan_stretches(step.graph.step(), steps, [&](const Node& node) {
    return device::find_host_wait(step.graph, node, Math::kPortable);
  });
  CHECK(print_stretches(print_steps(step.graph, step.graph.step(), steps), stretches) ==
        R"(input  %x
graph  0: 2 launches, until a collective is launched
launch %a = aten.mul.Tensor on compute
host   %v = aten.view.default
launch %b = aten.mm.default on compute
end    0
free   %a
free   %v
record e0 on compute
join   e0 on comm:7
comm   %g = _c10d_functional.all_reduce.default on comm:7
record e1 on comm:7
graph  1: 2 launches, until a collective is waited for
launch %c = aten.neg.default on compute
launch %d = aten.add.Tensor on compute
end    1
free   %b
free   %c
join   e1 on compute
wait   %w = _c10d_functional.wait_tensor.default on compute
free   %g
graph  2: 3 launches, until a bool mask is an index
launch %e = aten.add.Tensor on compute
free   %d
launch %f = aten.mul.Tensor on compute
free   %w
free   %e
launch %m = aten.gt.Scalar on compute
end    2
launch %p = aten.index.Tensor on compute
free   %x
free   %m
graph  3: 2 launches, until the host waits for the stream
launch %q = aten.mul.Tensor on compute
free   %p
launch %r = aten.sum.default on compute
end    3
sync   compute
host   %n = aten._local_scalar_dense.default
free   %r
graph  4: 2 launches, until the step ends
launch %o = aten.mul.Scalar on compute
free   %q
free   %n
launch %s = aten.neg.default on compute
end    4
free   %o
output
)");
}

TEMPLATE_TEST_CASE_SIG("stretches as graphs give the bits of the CPU", "", ((device::Emulation kind), kind),
                       device::Emulation::kLazy, device::Emulation::kConcurrent) {
  const RunCase step(kStretches, 2);
  const auto expected = hashes_of(run_thrice(step, nullptr, Graphs::kNone));
  const std::unique_ptr<Device> device = open_tested_device(kind);
  CHECK(hashes_of(run_thrice(step, device.get(), Graphs::kNone)) == expected);
  const RunResult run = run_thrice(step, device.get(), Graphs::kStretches);
  CHECK(hashes_of(run) == expected);
  for (const RankResult& rank : run.ranks) {
    CHECK(rank.step_seconds.size() == 2);
    const GraphUse& use = *rank.graphs;
    // The second run captures what it sees again; memory lies where it lay, so the third one
    // launches the same.
    CHECK(use.seen_first == run.stretches.size());
    CHECK(use.instantiated == run.stretches.size());
    CHECK(use.updated == 0);
    CHECK(use.replayed == run.stretches.size());
    CHECK(use.interruptions.empty());
    CHECK(use.refusals.empty());
  }
}

TEST_CASE("the host waits in no stretch") {
  const RunCase step(kWaits, 1);
  const auto expected = hashes_of(run_thrice(step, nullptr, Graphs::kNone));
  const std::unique_ptr<Device> device = open_tested_device(device::Emulation::kLazy);
  const RunResult run = run_thrice(step, device.get(), Graphs::kStretches);
  CHECK(hashes_of(run) == expected);
  CHECK(run.ranks[0].graphs->interruptions.empty());
  CHECK(run.ranks[0].graphs->replayed == run.stretches.size());
  std::vector<std::pair<std::uint32_t, std::string_view>> found;
  for (const Stretch& stretch : run.stretches) found.emplace_back(stretch.launches, stretch.cut);
  const std::string_view size = "the size of a result is what is found";
  CHECK(found == std::vector<std::pair<std::uint32_t, std::string_view>>{{2, size},
                                                                         {1, size},
                                                                         {1, size},
                                                                         {1, size},
                                                                         {1, size},
                                                                         {1, "a bool mask is an index"},
                                                                         {4, "the step ends"}});
}

}  // namespace epweave::replay
