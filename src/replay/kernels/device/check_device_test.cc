// The check of a rewritten graph with bounds that a device makes: what the CPU's check says.
#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "replay/check/check.h"
#include "replay/check/device_comparison.h"
#include "replay/check/row_matching.h"
#include "replay/check/sum_check.h"
#include "replay/kernels/device/both_devices.h"
#include "replay/kernels/host/check_graphs_test.h"

namespace epweave::replay {
namespace {

const KernelTable& table() {
  static const KernelTable filled = make_cpu_kernels();
  return filled;
}

std::string describe_all(const BoundComparison& c) {
  return fmt::format("{} {} {:.3g} {} {:.3g} {} {} {:.3g} {:.3g}", c.is_within, c.is_bounded, c.largest_share,
                     c.has_ideals, c.largest_unrounded, c.is_unrounded, c.index, c.difference, c.bound);
}

// All that a check says, in as many digits as it prints.
std::string describe_all(const CheckReport& report) {
  std::string text =
      fmt::format("{} {} {} {:.3g}\n", static_cast<int>(report.conclusion()),
                  report.baseline_is_deterministic, report.devices_agree, report.largest_share);
  if (!report.rewrite_is_deterministic) text += "B is not deterministic\n";
  for (const OutputCheck& output : report.outputs)
    text += fmt::format("{} {} {} {} {}\n", output.rank, output.name, name_of(output.verdict),
                        describe(output.difference), output.bound ? describe_all(*output.bound) : "");
  for (const RankCheck& rank : report.ranks) {
    for (const std::uint64_t nodes : rank.nodes) text += fmt::format("{} ", nodes);
    for (const auto* reasons : {&rank.unverified, &rank.skipped})
      for (const auto& [reason, nodes] : *reasons) text += fmt::format("{}: {}\n", reason, nodes);
  }
  for (const std::string& op : report.ops_without_bound) text += op + "\n";
  if (report.first)
    text += fmt::format("first: {} {} {} {}\n", report.first->rank, report.first->node.index(),
                        report.first->origin, report.first->reason);
  return text;
}

struct Checked {
  std::string by_cpu, by_device;
  bool is_same = false;
};
Checked check_both(const std::string& a, const std::string& b, Rank ranks,
                   std::size_t kept_bytes = std::size_t{1} << 30) {
  CheckSetup setup{table(), ranks, 3, {}};
  setup.kept_bytes = kept_bytes;
  const std::string by_cpu = describe_all(check_graphs(parse(a), parse(b), setup));
  setup.device_a = setup.device_b = &tested_device();
  setup.bounds = Bounds::kDevice;
  const CheckReport report = check_graphs(parse(a), parse(b), setup);
  return {by_cpu, describe_all(report), report.is_same()};
}

}  // namespace

TEST_CASE("bounds that a device makes say of parts what the CPU's say") {
  for (const auto& [a, b, ranks] : {std::tuple{std::string(kWhole), std::string(kParts), 2},
                                    {whole_taking_rows(), parts_taking_rows("7, -1"), 2},
                                    {std::string(kTokens), parts_of_tokens(), 1}}) {
    INFO(b);
    const Checked checked = check_both(a, b, static_cast<Rank>(ranks));
    CHECK(checked.is_same);
    CHECK(checked.by_device == checked.by_cpu);
  }
}

TEST_CASE("values that are kept on a device in lots") {
  const Checked checked = check_both(kWhole, kParts, 2, 1);
  CHECK(checked.is_same);
  CHECK(checked.by_device == checked.by_cpu);
}

TEST_CASE("faults are found by bounds that a device makes") {
  for (const GraphFault& fault : kFaults) {
    INFO(fault.kind);
    const Checked checked = check_both(kWhole, replace(kParts, fault.from, fault.to), 2);
    CHECK_FALSE(checked.is_same);
    CHECK(checked.by_device == checked.by_cpu);
  }
  const Checked rows = check_both(whole_taking_rows(), parts_taking_rows("8, 0"), 2);
  CHECK_FALSE(rows.is_same);
  CHECK(rows.by_device == rows.by_cpu);
}

void find_small_errors(const std::string& a, const std::string& b) {
  for (const Where where : {Where::kElement, Where::kRow, Where::kTensor})
    for (const double size : {0x1p-12, 0x1p-4}) {
      const Checked checked = check_both(a, replace(b, kGood, error_of(size, where, {5, 7})), 1);
      CHECK_FALSE(checked.is_same);
      CHECK(checked.by_device == checked.by_cpu);
    }
}

TEST_CASE("small errors of a regrouped gradient are found by bounds that a device makes") {
  find_small_errors(kTokens, parts_of_tokens());
}

TEST_CASE("small errors behind attention's gradients are found by bounds that a device makes") {
  const Checked right = check_both(kQueries, parts_of_queries(), 1);
  CHECK(right.is_same);
  CHECK(right.by_device == right.by_cpu);
  find_small_errors(kQueries, parts_of_queries());
}

// --- values against each other ---

namespace {

// Values of A and of parts that add up to them but for what lies within the bounds.
class Sums {
 public:
  Sums(Extents sizes, std::size_t parts, DType dtype) : a_(random(sizes, dtype)) {
    for (std::size_t i = 0; i < parts; ++i) b_.push_back(random(sizes, dtype));
    for (std::int64_t k = 0; k < a_.value.numel(); ++k) {
      double sum = 0, ideal = 0;
      for (const BoundedValue& part : b_) {
        sum += read_numbers(part.value)[static_cast<std::size_t>(k)];
        ideal += part.ideal->data<double>()[k];
      }
      ops_.fill(cut_range(flat(a_.value), 0, k, 1), sum);
      a_.ideal->data<double>()[k] = ideal * (1 + 0x1p-52);
    }
  }

  BoundedValue& a() { return a_; }
  BoundedValue& part(std::size_t i) { return b_[i]; }
  // By the host, by ops on the host, and on the device.
  std::vector<std::string> compare() {
    OnDevice on_device;
    const TensorOps device_ops(tested_device().kernels(), on_device.rank().memory());
    const auto place = [&](const BoundedValue& value) {
      BoundedValue placed{on_device.place(value.value).tensor(), on_device.place(value.bound).tensor(), {}};
      if (value.ideal) placed.ideal = on_device.place(*value.ideal).tensor();
      return placed;
    };
    std::vector<BoundedValue> parts;
    for (const BoundedValue& part : b_) parts.push_back(place(part));
    return {describe_all(compare_bounded(a_, b_)), describe_all(compare_by_ops(a_, b_, ops_)),
            describe_all(compare_where_they_lie(place(a_), parts, device_ops))};
  }

 private:
  static Tensor flat(const Tensor& dense) { return dense.view({dense.numel()}, {1}, dense.offset); }
  BoundedValue random(const Extents& sizes, DType dtype) {
    BoundedValue made{
        ops_.cast(numbers_.tensor(sizes), dtype), ops_.filled(DType::kFloat32, sizes, 0.01), {}};
    made.ideal = ops_.cast(numbers_.tensor(sizes), DType::kFloat64);
    return made;
  }

  HostMemory memory_;
  TensorOps ops_{table(), memory_};
  Random numbers_;
  BoundedValue a_;
  std::vector<BoundedValue> b_;
};

void check_alike(Sums& sums) {
  const std::vector<std::string> found = sums.compare();
  CHECK(found[1] == found[0]);
  CHECK(found[2] == found[0]);
}

}  // namespace

TEST_CASE("values are compared on a device as in host memory") {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  for (const Extents& sizes : {Extents{}, {5}, {3, 7}, {64}, {65}, {2, 3, 70}, {9, 30}, {0, 4}})
    for (const std::size_t parts : {std::size_t{1}, std::size_t{3}})
      for (const DType dtype : {DType::kBfloat16, DType::kFloat32}) {
        INFO(fmt::format("{} parts of {} elements", parts, count_elements(sizes)));
        Sums right(sizes, parts, dtype);
        check_alike(right);
        if (count_elements(sizes) == 0) continue;
        const std::int64_t last = count_elements(sizes) - 1;
        Sums off(sizes, parts, dtype);  // before rounding
        off.a().ideal->data<double>()[last] += 0x1p-10;
        check_alike(off);
        Sums far(sizes, parts, dtype);
        far.part(0).bound.data<float>()[last / 2] = 0;
        far.part(0).ideal->data<double>()[last / 2] = std::nan("");
        check_alike(far);
        Sums open(sizes, parts, dtype);
        open.part(parts - 1).bound.data<float>()[last] = static_cast<float>(kInfinity);
        open.a().bound.data<float>()[0] = std::numeric_limits<float>::quiet_NaN();
        check_alike(open);
        Sums unknown(sizes, parts, dtype);
        unknown.a().ideal.reset();
        unknown.part(0).ideal.reset();
        check_alike(unknown);
        Sums wild(sizes, parts, dtype);
        wild.part(0).ideal->data<double>()[0] = kInfinity;
        check_alike(wild);
      }
}

// --- parts that are cut, or in orders of their own ---

namespace {

// Rows of a whole, and of parts that are cut off each of `blocks` blocks of it. A kernel that each
// comparison calls once is counted, and sums of rows.
class CutRows {
 public:
  CutRows(std::int64_t rows, std::int64_t blocks, const std::vector<std::int64_t>& parts)
      : kernels_(tested_device().kernels()), whole_(make(Random().tensor({rows, kWidth}))) {
    static const KernelRow counted[] = {{"aten.isnan.default", count<&CutRows::compared>},
                                        {"aten.sum.dim_IntList", count<&CutRows::summed>}};
    kernels_.add(counted);
    compared = summed = 0;
    std::int64_t first = 0;
    for (const std::int64_t count : parts) {
      Tensor part = make_tensor(memory_, DType::kFloat32, {count, kWidth});
      for (std::int64_t row = 0; row < count; ++row) {
        const std::int64_t of_block = count / blocks;
        const std::int64_t from = row / of_block * (rows / blocks) + first + row % of_block;
        std::copy_n(whole_.value.data<float>() + from * kWidth, kWidth, part.data<float>() + row * kWidth);
      }
      first += count / blocks;
      parts_.push_back(make(part));
    }
  }
  float& element(std::size_t part, std::int64_t i) { return parts_[part].value.data<float>()[i]; }
  void swap_rows(std::size_t part, std::int64_t i, std::int64_t j) {
    float* numbers = parts_[part].value.data<float>();
    std::swap_ranges(numbers + i * kWidth, numbers + (i + 1) * kWidth, numbers + j * kWidth);
  }
  // Stores all in bfloat16, of the parts each number or one next to it, in another order of rows.
  void round_and_move() {
    std::mt19937 random(5);
    std::uniform_int_distribution<int> steps(-1, 1);
    const TensorOps ops(table(), memory_);
    for (BoundedValue& part : parts_) {
      const std::int64_t rows = part.value.sizes[0];
      for (std::int64_t row = rows - 1; row > 0; --row)
        std::swap_ranges(part.value.data<float>() + row * kWidth,
                         part.value.data<float>() + (row + 1) * kWidth,
                         part.value.data<float>() +
                             std::uniform_int_distribution(std::int64_t{0}, row - 1)(random) * kWidth);
      part.ideal = ops.cast(part.value, DType::kFloat64);
      for (std::int64_t i = 0; i < part.value.numel(); ++i)
        part.value.data<float>()[i] *= 1 + static_cast<float>(steps(random)) * 0x1p-8F;
    }
    const auto round = [&](BoundedValue& value) {
      value.bound = ops.apply(named::kMulNumber, {ops.apply(named::kAbs, {value.value}), 0x1p-7});
      value.value = ops.cast(value.value, DType::kBfloat16);
    };
    whole_.ideal = ops.cast(whole_.value, DType::kFloat64);
    round(whole_);
    for (BoundedValue& part : parts_) round(part);
  }

  // As a check does.
  BoundComparison check() {
    OnDevice on_device;
    ErrorBounds bounds(kernels_, on_device.rank().memory());
    const auto place = [&](const BoundedValue& value) {
      const Tensor placed = on_device.place(value.value).tensor();
      bounds.set(placed, on_device.place(value.bound).tensor());
      if (value.ideal) bounds.ideals().set(placed, on_device.place(*value.ideal).tensor());
      return placed;
    };
    std::vector<Group> groups(1);
    groups[0].whole = NodeId(0U);
    for (std::uint32_t i = 0; i < parts_.size(); ++i) groups[0].values.emplace_back(i);
    groups[0].is_parts = true;
    SumChecker checker(groups, 1);
    checker.start({0});
    checker.see_whole(0, NodeId(0U), place(whole_), bounds);
    for (std::uint32_t i = 0; i < parts_.size(); ++i)
      checker.see_value(0, NodeId(i), place(parts_[i]), bounds);
    return checker.result(0, 0).value();
  }
  int compared_times() const { return compared; }
  int summed_times() const { return summed; }

 private:
  static constexpr std::int64_t kWidth = 64;
  BoundedValue make(Tensor numbers) {
    const TensorOps ops(table(), memory_);
    return {ops.copied(numbers), ops.filled(DType::kFloat32, numbers.sizes, 0x1p-20), {}};
  }
  template <int* counter>
  static Value count(KernelCall& call) {
    ++*counter;
    return tested_device().kernels().find(call.op())(call);
  }

  static inline int compared = 0, summed = 0;
  HostMemory memory_;
  KernelTable kernels_;
  BoundedValue whole_;
  std::vector<BoundedValue> parts_;
};

}  // namespace

TEST_CASE("parts that are cut off blocks of a whole are compared as they are cut alone") {
  CutRows right(5040, 12, {2520, 1260, 1260});  // 36 numbers divide all parts
  CHECK(right.check().is_within);
  CHECK(right.compared_times() == 2 * 3);  // as one block, and as 12
  CutRows wrong(5040, 12, {2520, 1260, 1260});
  wrong.element(1, 77) += 1;
  CHECK_FALSE(wrong.check().is_within);
  CHECK(wrong.compared_times() == 3);  // its sum is that of no row
}

TEST_CASE("thousands of rows that are rounded apart and in another order take a few comparisons") {
  CutRows rows(4096, 1, {2048, 2048});
  rows.round_and_move();
  const BoundComparison found = rows.check();
  CHECK(found.is_within);
  CHECK(found.largest_share > 0.1);
  CHECK(rows.compared_times() < 100);
}

TEST_CASE("rows in another order are matched on a device, and one that is no row of the whole is found") {
  CutRows swapped(64, 1, {32, 32});
  for (std::int64_t row = 0; row < 16; ++row) swapped.swap_rows(0, row, 31 - row);
  const BoundComparison found = swapped.check();
  CHECK(found.is_within);
  CHECK(swapped.compared_times() == 2 + 1);  // as they are cut, and all rows once
  // Values, magnitudes and bounds of the whole and of each part; and of what is matched.
  CHECK(swapped.summed_times() == 3 * 3 + 2 * 3);
  CHECK(found.largest_share == 0);
  // Elements of two rows exchanged: their sums stay as near as their bounds allow.
  CutRows wrong(64, 1, {32, 32});
  for (std::int64_t row = 0; row < 16; ++row) wrong.swap_rows(0, row, 31 - row);
  std::swap(wrong.element(1, 80), wrong.element(1, 81));
  const BoundComparison other = wrong.check();
  CHECK_FALSE(other.is_within);
  CHECK(other.index == 0);  // of the parts laid end to end
}

TEST_CASE("rows are matched by ops exactly if they are matched on the host") {
  std::mt19937 random(11);
  std::uniform_int_distribution<int> number(0, 4), bound(0, 2);
  HostMemory memory;
  const TensorOps ops(table(), memory);
  int matched = 0;
  constexpr int kTrials = 600;
  for (int trial = 0; trial < kTrials; ++trial) {
    const auto make = [&](Extents sizes, auto& numbers) {
      const Tensor made = make_tensor(memory, DType::kFloat32, std::move(sizes));
      for (std::int64_t i = 0; i < made.numel(); ++i)
        made.data<float>()[i] = static_cast<float>(numbers(random));
      return made;
    };
    const Extents part = {2, 3};  // of two parts along the second dimension
    const BoundedValue whole{make({2, 6}, number), ops.filled(DType::kFloat32, {2, 6}, 0), {}};
    const std::vector<BoundedValue> parts{{make(part, number), make(part, bound), {}},
                                          {make(part, number), make(part, bound), {}}};
    const BoundComparison by_host = match_rows(whole, parts, 1),
                          by_ops = match_rows_by_ops(whole, parts, 1, ops);
    CAPTURE(trial);
    CHECK(by_ops.is_within == by_host.is_within);
    matched += by_host.is_within ? 1 : 0;
  }
  CHECK(matched > kTrials / 100);
  CHECK(matched < kTrials / 2);
}

// The tested device, whose `aten.add.Tensor` gives twice the sum in one of its runs.
class FaultyInOneRun : public Device {
 public:
  explicit FaultyInOneRun(int faulty) : kernels_(tested_device().kernels()), faulty_(faulty) {
    static const KernelRow rows[] = {{"aten.add.Tensor", add}};
    kernels_.add(rows);
    is_faulty_ = false;
  }
  DeviceFactList list_facts() const override { return tested_device().list_facts(); }
  std::string describe() const override { return tested_device().describe(); }
  const KernelTable& kernels() const override { return kernels_; }
  std::size_t memory_bytes() const override { return tested_device().memory_bytes(); }
  std::size_t free_bytes() const override { return tested_device().free_bytes(); }
  Math math() const override { return tested_device().math(); }
  std::string_view find_host_wait(const Graph& graph, const Node& node) const override {
    return tested_device().find_host_wait(graph, node);
  }
  void enter() override { tested_device().enter(); }
  std::unique_ptr<DeviceRun> start(const DeviceSetup& setup) override {
    is_faulty_ = ++runs_ == faulty_;
    return tested_device().start(setup);
  }

 private:
  static Value run(const char* target, std::vector<Value> args, Memory& memory) {
    const OpInfo* op = find_op(target);
    KernelCall call(*op, std::move(args), 3, memory);
    return tested_device().kernels().find(*op)(call);
  }
  static Value add(KernelCall& call) {
    const Value sum = tested_device().kernels().find(call.op())(call);
    if (!is_faulty_ || sum.tensor().dtype == DType::kFloat64 || sum.tensor().numel() < 16) return sum;
    return run("aten.mul.Tensor", {sum, 2.0}, call.memory());
  }

  static inline bool is_faulty_ = false;
  KernelTable kernels_;
  int runs_ = 0, faulty_;
};

// Runs of a check: A, B, A with bounds, B with bounds. A adds nothing up.
TEST_CASE("a run of B that gives other bits than the other is found where bounds are the device's") {
  for (const int faulty : {0, 2, 4}) {
    FaultyInOneRun device(faulty);
    CheckSetup setup{table(), 2, 3, {}};
    setup.device_a = setup.device_b = &device;
    setup.bounds = Bounds::kDevice;
    const CheckReport report = check_graphs(parse(kWhole), parse(kParts), setup);
    INFO("run " << faulty);
    CHECK(report.is_same() == (faulty == 0));
    CHECK(report.rewrite_is_deterministic == (faulty == 0));
  }
}

// Runs: A, B, A again. A's first gives other bits than all others.
TEST_CASE("where A gives other bits, and B's when it runs again, its outputs say so") {
  FaultyInOneRun device(1);
  CheckSetup setup{table(), 2, 3, {}};
  setup.device_a = setup.device_b = &device;
  setup.bounds = Bounds::kDevice;
  const Graph graph = parse(R"(output grad
graph
  %x = placeholder : f32[8, 8]
  %y = aten.add.Tensor(%x, %x) : f32[8, 8]
  output([%y])
)");
  const CheckReport report = check_graphs(graph, graph, setup);
  CHECK_FALSE(report.baseline_is_deterministic);
  CHECK(report.rewrite_is_deterministic);
  CHECK(report.conclusion() == CheckReport::Conclusion::kDifferent);
  REQUIRE(report.outputs.size() == 2);
  for (const OutputCheck& output : report.outputs)
    CHECK(output.difference.problem == "A gave other bits, and B's the second time");
}

}  // namespace epweave::replay
