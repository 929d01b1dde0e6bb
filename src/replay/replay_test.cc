#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <set>

#include "ir/text/text.h"
#include "replay/inputs/block_mask.h"
#include "replay/inputs/inputs.h"
#include "replay/kernels/math/portable_math.h"
#include "replay/kernels/missing_kernels.h"
#include "replay/run/executor.h"
#include "replay/steps/steps.h"
#include "replay/values/compare.h"
#include "replay/values/evaluate.h"
#include "replay/values/hash.h"
#include "replay/values/random_numbers.h"

namespace epweave::replay {
namespace {

// Kernels that are enough for the tests; the real ones are in cpu/.
Value view(KernelCall& call) {
  const Tensor& self = call.tensor(0);
  Extents sizes = call[1].integers();
  return self.view(sizes, contiguous_strides(sizes), self.offset);
}

// out = a + b, float32, contiguous.
Value add_to(const Tensor& a, const Tensor& b, Tensor out) {
  for (std::int64_t i = 0; i < out.numel(); ++i)
    out.data<float>()[i] = a.data<float>()[i] + b.data<float>()[i];
  return out;
}
Value add(KernelCall& call) {
  return add_to(call.tensor(0), call.tensor(1), call.make_result(0, DType::kFloat32, call.tensor(0).sizes));
}
Value add_in_place(KernelCall& call) {
  return add_to(call.tensor(0), call.tensor(1), call.tensor(0));
}
Value compare_ge(KernelCall& call) {
  const Tensor &a = call.tensor(0), &b = call.tensor(1);
  Extents sizes(a.rank());
  for (std::size_t d = 0; d < sizes.size(); ++d) sizes[d] = std::max(a.sizes[d], b.sizes[d]);
  Tensor out = call.make_result(0, DType::kBool, sizes);
  for (std::int64_t q = 0; q < sizes[2]; ++q)
    for (std::int64_t k = 0; k < sizes[3]; ++k)
      store_integer(out, q * sizes[3] + k, a.data<std::int32_t>()[q] >= b.data<std::int32_t>()[k] ? 1 : 0);
  return out;
}

Value slice(KernelCall& call) {
  const Tensor& self = call.tensor(0);
  Extents sizes = self.sizes;
  sizes[0] = call.integer(3) - call.integer(2);
  return self.view(sizes, self.strides, self.offset + call.integer(2) * self.strides[0]);
}
Value cat(KernelCall& call) {
  Tensor out = call.make_result(0, DType::kFloat32, {4});
  std::byte* to = out.bytes();
  for (const Tensor& part : call[0].tensors()) {
    gather_elements(part, to);
    to += static_cast<std::size_t>(part.numel()) * part.element_bytes();
  }
  return out;
}
// The sum of all elements, in order.
Value sum(KernelCall& call) {
  Tensor out = call.make_result(0, DType::kFloat32, {});
  float total = 0;
  for (std::int64_t i = 0; i < call.tensor(0).numel(); ++i) total += call.tensor(0).data<float>()[i];
  *out.data<float>() = total;
  return out;
}

KernelTable make_kernels() {
  constexpr KernelRow kRows[] = {
      {"aten.view.default", view},    {"aten.add.Tensor", add},     {"aten.add_.Tensor", add_in_place},
      {"aten.ge.Tensor", compare_ge}, {"aten.slice.Tensor", slice}, {"aten.cat.default", cat},
      {"aten.sum.default", sum},
  };
  KernelTable kernels;
  kernels.add(host_kernel_rows());
  kernels.add(kRows);
  return kernels;
}

Graph parse(const std::string& text) {
  return parse_text("epweave text 1\n" + text, "test.txt");
}

Tensor make_floats(const std::vector<float>& numbers) {
  HostMemory memory;
  Tensor tensor = make_tensor(memory, DType::kFloat32, {static_cast<std::int64_t>(numbers.size())});
  if (!numbers.empty()) std::memcpy(tensor.bytes(), numbers.data(), numbers.size() * sizeof(float));
  return tensor;
}

std::vector<float> read_floats(const Value& value) {
  const Tensor& tensor = value.tensor();
  std::vector<float> numbers(static_cast<std::size_t>(tensor.numel()));
  if (!numbers.empty()) gather_elements(tensor, reinterpret_cast<std::byte*>(numbers.data()));
  return numbers;
}

RunResult run(const Graph& graph, const std::vector<RankInputs>& inputs, RunOptions options = {}) {
  const KernelTable kernels = make_kernels();
  const World world = derive_world(graph, static_cast<std::uint32_t>(inputs.size()));
  options.deadline = std::chrono::milliseconds(5000);
  return run_ranks(graph, world, kernels, inputs, options);
}

std::string error_of(const Graph& graph, const std::vector<RankInputs>& inputs) {
  try {
    run(graph, inputs);
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

using Floats = std::vector<float>;

}  // namespace

TEST_CASE("elements are gathered in row-major order and scattered back, whatever the strides") {
  HostMemory memory;
  const std::vector<std::pair<Extents, Extents>> layouts = {{{}, {}},
                                                            {{5}, {3}},
                                                            {{40, 70}, {1, 40}},
                                                            {{3, 40, 70}, {2800, 1, 40}},
                                                            {{70, 3, 40}, {1, 2800, 70}},
                                                            {{4, 5}, {9, 1}},
                                                            {{2, 3, 4}, {1, 2, 6}},
                                                            {{3, 0, 2}, {1, 3, 1}},
                                                            {{6, 4}, {10, 2}}};
  for (const DType dtype :
       {DType::kUint8, DType::kBfloat16, DType::kFloat32, DType::kInt64, DType::kComplex64})
    for (const auto& [sizes, strides] : layouts) {
      const Tensor tensor = make_tensor(memory, dtype, sizes, strides);
      const std::size_t bytes = tensor.element_bytes(), count = static_cast<std::size_t>(tensor.numel());
      for (std::size_t i = 0; i < tensor.storage->bytes(); ++i)
        tensor.storage->data()[i] = static_cast<std::byte>(i * 37 >> 3);
      std::vector<std::byte> gathered(count * bytes + 1), again(count * bytes + 1);
      gather_elements(tensor, gathered.data());
      std::size_t wrong = 0;
      for (std::size_t k = 0; k < count; ++k) {
        std::int64_t offset = 0, rest = static_cast<std::int64_t>(k);
        for (std::size_t d = sizes.size(); d-- > 0; rest /= sizes[d]) offset += rest % sizes[d] * strides[d];
        wrong += !std::equal(&gathered[k * bytes], &gathered[k * bytes] + bytes,
                             tensor.storage->data() + static_cast<std::size_t>(offset) * bytes);
      }
      CHECK(wrong == 0);
      const Tensor copy = make_tensor(memory, dtype, sizes, strides);
      scatter_elements(gathered.data(), copy);
      gather_elements(copy, again.data());
      CHECK(again == gathered);
    }
}

TEST_CASE("defaults of schemas are values") {
  CHECK(parse_default("None").is_none());
  CHECK_FALSE(parse_default("False").as<bool>());
  CHECK(parse_default("-1").as<std::int64_t>() == -1);
  CHECK(parse_default("0.5").as<double>() == 0.5);
  CHECK(parse_default("[0, 1]").integers() == Extents{0, 1});
  CHECK(parse_default("\"none\"").as<Text>().text == "none");
}

TEST_CASE("a mutation is seen through views") {
  const Graph graph = parse(R"(graph
  %x = placeholder : f32[4]
  %y = placeholder : f32[2, 2]
  %v = aten.view.default(%x, [2, 2]) : f32[2, 2]
  %m = aten.add_.Tensor(%v, %y) : f32[2, 2]
  output([%x, %m])
)");
  const RunResult result =
      run(graph, {{make_floats({1, 2, 3, 4}), make_floats({1, 1, 1, 1}).view({2, 2}, {2, 1}, 0)}});
  CHECK(read_floats(result.ranks[0].outputs[0]) == Floats{2, 3, 4, 5});
  CHECK(read_floats(result.ranks[0].outputs[1]) == Floats{2, 3, 4, 5});
}

TEST_CASE("steps of a collective: events, streams, frees at last use") {
  const Graph graph = parse(R"(group 7 ranks=[0, 1]
graph
  %x = placeholder : f32[2]
  %s = aten.add.Tensor(%x, %x) : f32[2]
  %g = _c10d_functional.all_gather_into_tensor.default(%s, 2, "7") : f32[4]
  %t = aten.add.Tensor(%x, %x) : f32[2]
  %w = _c10d_functional.wait_tensor.default(%g) : f32[4]
  %n = aten.sym_size.int(%w, 0) : =4
  output([%w, %t])
)");
  CHECK(print_steps(graph, graph.step(), plan_steps(graph, graph.step())) == R"(input  %x
launch %s = aten.add.Tensor on compute
record e0 on compute
join   e0 on comm:7
comm   %g = _c10d_functional.all_gather_into_tensor.default on comm:7
record e1 on comm:7
free   %s
launch %t = aten.add.Tensor on compute
free   %x
join   e1 on compute
wait   %w = _c10d_functional.wait_tensor.default on compute
free   %g
host   %n = aten.sym_size.int
free   %n
output
)");
}

TEST_CASE("a group that a node looks up has the group's stream") {
  const Graph graph = parse(R"(group 7 ranks=[0, 1] priority=high
graph
  %x = placeholder : f32[2]
  %m = placeholder : =mesh(["tp"], [2], [0, 1], "cuda")
  %p = _dtensor.mesh_get_process_group.default(%m, 0) : =pg(7)
  %g = _c10d_functional.all_reduce.default(%x, "sum", %p) : f32[2]
  %w = _c10d_functional.wait_tensor.default(%g) : f32[2]
  %h = _c10d_functional.all_reduce.default(%w, "sum", "7") : f32[2]
  %v = _c10d_functional.wait_tensor.default(%h) : f32[2]
  output([%v])
)");
  const Steps steps = plan_steps(graph, graph.step());
  CHECK(steps.streams == std::vector<std::string>{"compute", "comm:7"});
  CHECK(steps.has_high_priority == std::vector<bool>{false, true});
}

TEST_CASE("collectives of two ranks") {
  const Graph graph = parse(R"(group 7 ranks=[0, 1]
graph
  %x = placeholder : f32[4]
  %g = _c10d_functional.all_gather_into_tensor.default(%x, 2, "7") : f32[8]
  %gw = _c10d_functional.wait_tensor.default(%g) : f32[8]
  %s = _c10d_functional.reduce_scatter_tensor.default(%x, "sum", 2, "7") : f32[2]
  %sw = _c10d_functional.wait_tensor.default(%s) : f32[2]
  %r = _c10d_functional.all_reduce.default(%x, "avg", "7") : f32[4]
  %rw = _c10d_functional.wait_tensor.default(%r) : f32[4]
  output([%gw, %sw, %rw])
)");
  const RunResult result = run(graph, {{make_floats({1, 2, 3, 4})}, {make_floats({10, 20, 30, 40})}});
  for (const RankResult& rank : result.ranks) {
    CHECK(read_floats(rank.outputs[0]) == Floats{1, 2, 3, 4, 10, 20, 30, 40});
    CHECK(read_floats(rank.outputs[2]) == Floats{5.5, 11, 16.5, 22});
  }
  CHECK(read_floats(result.ranks[0].outputs[1]) == Floats{11, 22});
  CHECK(read_floats(result.ranks[1].outputs[1]) == Floats{33, 44});
}

namespace {

// Rows are exchanged by sizes that were exchanged before.
const char* const kExchange = R"(group 7 ranks=[0, 1]
symbol s0 range=[0, 8] unbacked
symbol s1 range=[0, 8] unbacked
symbol r0 range=[0, 8] unbacked
symbol r1 range=[0, 8] unbacked
graph
  %x = placeholder : f32[4]
  %s0 = placeholder : i64[]
  %s1 = placeholder : i64[]
  %r0 = placeholder : i64[]
  %r1 = placeholder : i64[]
  %a = aten._local_scalar_dense.default(%s0) : SymInt(s0) bind(s0)
  %b = aten._local_scalar_dense.default(%s1) : SymInt(s1) bind(s1)
  %c = aten._local_scalar_dense.default(%r0) : SymInt(r0) bind(r0)
  %d = aten._local_scalar_dense.default(%r1) : SymInt(r1) bind(r1)
  %e = _c10d_functional.all_to_all_single.default(%x, [%c, %d], [%a, %b], "7") : f32[r0 + r1]
  %w = _c10d_functional.wait_tensor.default(%e) : f32[r0 + r1]
  %n = aten.sym_size.int(%w, 0) : SymInt(r0 + r1)
  output([%w, %n])
)";

Tensor make_integer(std::int64_t number) {
  HostMemory memory;
  Tensor tensor = make_tensor(memory, DType::kInt64, {});
  store_integer(tensor, 0, number);
  return tensor;
}

RankInputs exchange_inputs(const Floats& rows, const std::vector<std::int64_t>& splits) {
  RankInputs inputs{make_floats(rows)};
  for (std::int64_t split : splits) inputs.emplace_back(make_integer(split));
  return inputs;
}

}  // namespace

TEST_CASE("all_to_all with splits that the data decide") {
  const Graph graph = parse(kExchange);
  const RunResult result = run(
      graph, {exchange_inputs({1, 2, 3, 4}, {1, 3, 1, 0}), exchange_inputs({10, 20, 30, 40}, {0, 4, 3, 4})});
  CHECK(read_floats(result.ranks[0].outputs[0]) == Floats{1});
  CHECK(read_floats(result.ranks[1].outputs[0]) == Floats{2, 3, 4, 10, 20, 30, 40});
  CHECK(result.ranks[1].outputs[1].integer() == 7);
}

TEST_CASE("splits that do not match are reported with every rank's numbers") {
  const Graph graph = parse(kExchange);
  const std::string error = error_of(
      graph, {exchange_inputs({1, 2, 3, 4}, {1, 3, 1, 0}), exchange_inputs({10, 20, 30, 40}, {0, 4, 2, 4})});
  CHECK(error.find("rank 0 sends 3 rows to rank 1, which expects 2") != std::string::npos);
  CHECK(error.find("rank 1: %e = _c10d_functional.all_to_all_single.default of f32[4], sends [0, 4], expects "
                   "[2, 4]") != std::string::npos);
}

TEST_CASE("a stuck collective says what each rank waits for, at once") {
  const Graph graph = parse(R"(group 7 ranks=[0, 1]
graph
  %x = placeholder : f32[4]
  %g = _c10d_functional.all_gather_into_tensor.default(%x, 2, "7") : f32[8]
  %w = _c10d_functional.wait_tensor.default(%g) : f32[8]
  output([%w])
)");
  const World world = derive_world(graph);
  LocalTransport transport(world, std::chrono::milliseconds(5000));
  HostMemory memory;
  Contribution part;
  part.what = "%g";
  part.sizes = {1};
  part.data = memory.allocate(4);
  const auto ticket = transport.post(0, "7", part);
  transport.finish(1);
  std::string error;
  try {
    transport.complete(0, ticket, make_tensor(memory, DType::kFloat32, {2}));
  } catch (const CollectiveError& caught) {
    error = caught.what();
  }
  CHECK(error ==
        "no rank can go on:\n  rank 0: waits for rank 1 in collective 0 on group 7: %g of f32[1]\n"
        "  rank 1: finished");
}

TEST_CASE("what is read before its wait is an error") {
  const Graph graph = parse(R"(group 7 ranks=[0, 1]
graph
  %x = placeholder : f32[2]
  %g = _c10d_functional.all_reduce.default(%x, "sum", "7") : f32[2]
  %y = aten.add.Tensor(%g, %x) : f32[2] @layers.0
  %w = _c10d_functional.wait_tensor.default(%g) : f32[2]
  output([%y, %w])
)");
  const std::string error = error_of(graph, {{make_floats({1, 2})}, {make_floats({1, 2})}});
  CHECK(error.find("%y = aten.add.Tensor in layers.0: reads or writes the result of a collective that nobody "
                   "waited") != std::string::npos);
}

TEST_CASE("a result that is not what is recorded stops at its node") {
  const Graph graph = parse(R"(graph
  %x = placeholder : f32[2]
  %y = aten.add.Tensor(%x, %x) : f32[3]
  output([%y])
)");
  CHECK(
      error_of(graph, {{make_floats({1, 2})}}) ==
      "rank 0: %y = aten.add.Tensor: the result is f32[2]{1}, its shape is not what is recorded: f32[3]{1}");
}

TEST_CASE("all missing kernels are named before the run") {
  const Graph graph = parse(R"(graph
  %x = placeholder : f32[2]
  %y = aten.mm.default(%x, %x) : f32[2]
  %z = my.op(%x) : f32[2]
  %u = aten.add.Tensor(%x, %x) : f32[2]
  output([%y, %z, %u])
)");
  CHECK(find_missing_kernels(graph, make_kernels()) == std::vector<std::string>{"aten.mm.default", "my.op"});
  CHECK_THROWS_AS(run(graph, {{make_floats({1, 2})}}), PassError);
}

TEST_CASE("members of every rank's groups") {
  const Graph graph = parse(R"(info world_size = 8
info rank = 0
info global_meshes = {"sparse": {"axes": ["efsdp", "ep"], "shape": [2, 4]}}
group 1 ranks=[0, 1, 2, 3] axes=[ep]
group 2 ranks=[0, 4] axes=[efsdp]
group 3 ranks=[0]
group 4 ranks=[0, 1, 2, 3] split_from=1
group 5 ranks=[0, 2]
group 6 ranks=[0, 3, 5]
graph
  output([])
)");
  const World world = derive_world(graph);
  using Ranks = std::vector<Rank>;
  CHECK(world.groups.at("1").of_rank[6] == Ranks{4, 5, 6, 7});
  CHECK(world.groups.at("2").of_rank[6] == Ranks{2, 6});
  CHECK(world.groups.at("3").of_rank[6] == Ranks{6});
  CHECK(world.groups.at("4").of_rank[6] == Ranks{4, 5, 6, 7});
  CHECK(world.groups.at("5").of_rank[7] == Ranks{5, 7});
  CHECK(world.groups.at("6").of_rank.empty());
  CHECK_THROWS_AS(derive_world(graph, 4), UsageError);
}

TEST_CASE("shards are cut from one global tensor") {
  const Graph graph = parse(R"(info world_size = 4
graph
  %w = placeholder : f32[2, 3] role=parameter fqn=experts.w more{global_shape=[8, 3]}
  %m = placeholder : =mesh(["efsdp", "ep"], [2, 2], [[0, 1], [2, 3]], "cuda") role=parameter fqn=experts.w more{inner="device_mesh"}
  output([%w])
)");
  const World world = derive_world(graph);
  const auto inputs = make_inputs(graph, world, make_kernels(), 5);
  // By ep first, each half then by efsdp: ranks 0 and 2 hold the first half.
  for (Rank rank = 0; rank < 4; ++rank) {
    const std::int64_t first = (rank % 2 * 2 + rank / 2) * 2 * 3;
    const Floats numbers = read_floats(inputs[rank][0]);
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      const double u = RandomNumbers(5, "experts.w").uniform(static_cast<std::uint64_t>(first) + i);
      CHECK(static_cast<double>(numbers[i]) == u * 0.25);
    }
  }
}

TEST_CASE("the generator's numbers are fixed") {
  CHECK(RandomNumbers(0, "x").bits(0) == 0x338262d8f096398fULL);
  CHECK(RandomNumbers(1, "x").bits(0) != RandomNumbers(0, "x").bits(0));
  std::set<std::uint64_t> seen;
  for (std::uint64_t i = 0; i < 1000; ++i) seen.insert(RandomNumbers(0, "x").bits(i));
  CHECK(seen.size() == 1000);
}

TEST_CASE("block tables of a causal mask") {
  const BlockShape shape{1, 1, 8, 8, 4, 2};
  std::vector<bool> pairs;
  for (int q = 0; q < 8; ++q)
    for (int k = 0; k < 8; ++k) pairs.push_back(q >= k);
  HostMemory memory;
  const auto table = [&](std::string_view field, Extents sizes, bool is_only = false) {
    Tensor tensor = make_tensor(memory, DType::kInt32, std::move(sizes));
    BlockTable kind = *find_block_table(field);
    kind.is_only = is_only;
    write_block_table(kind, shape, pairs, tensor);
    const auto* data = tensor.data<std::int32_t>();
    return std::vector<std::int32_t>(data, data + tensor.numel());
  };
  using Numbers = std::vector<std::int32_t>;
  CHECK(table("kv_num_blocks", {1, 1, 2}) == Numbers{2, 2});
  CHECK(table("kv_indices", {1, 1, 2, 4}) == Numbers{0, 1, 2, 3, 2, 3, 0, 1});
  CHECK(table("full_kv_num_blocks", {1, 1, 2}) == Numbers{0, 2});
  CHECK(table("full_kv_indices", {1, 1, 2, 4}) == Numbers{0, 1, 2, 3, 0, 1, 2, 3});
  CHECK(table("q_num_blocks", {1, 1, 4}) == Numbers{1, 1, 1, 1});
  CHECK(table("full_q_num_blocks", {1, 1, 4}) == Numbers{1, 1, 0, 0});
  // A call without tables of full blocks has them in the others.
  CHECK(table("kv_num_blocks", {1, 1, 2}, true) == Numbers{2, 4});
  CHECK(table("q_num_blocks", {1, 1, 4}, true) == Numbers{2, 2, 1, 1});
}

TEST_CASE("a nested graph is a function of broadcast pairs") {
  const Graph graph = parse(R"(graph
  output([])
graph mask
  %b = placeholder : i32[]
  %h = placeholder : i32[]
  %q = placeholder : i32[]
  %k = placeholder : i32[]
  %ge = aten.ge.Tensor(%q, %k) : b8[]
  output(%ge)
)");
  HostMemory memory;
  const KernelTable kernels = make_kernels();
  const Function mask = make_function(graph, graph.bodies[1], kernels, memory);
  CHECK(mask.params == 4);
  const auto pairs = evaluate_pairs(mask, BlockShape{1, 1, 3, 2, 1, 1}, {}, memory);
  CHECK(pairs == std::vector<bool>{true, false, true, true, true, true});
}

TEST_CASE("a nested graph frees its values with their last users") {
  const Graph graph = parse(R"(graph
  output([])
graph score
  %x = placeholder : f32[]
  %a = aten.add.Tensor(%x, %x) : f32[]
  %b = aten.add.Tensor(%a, %x) : f32[]
  %c = aten.add.Tensor(%b, %a) : f32[]
  %d = aten.add.Tensor(%c, %c) : f32[]
  %e = aten.add.Tensor(%d, %d) : f32[]
  output(%e)
)");
  HostMemory memory;
  const KernelTable kernels = make_kernels();
  const Function score = make_function(graph, graph.bodies[1], kernels, memory);
  const Tensor x = make_tensor(memory, DType::kFloat32, {256, 256});
  const Value given = x;
  CHECK(score.call(std::span(&given, 1)).tensor().sizes == x.sizes);
  // %x, which the caller holds, and at most three more: %a, %b and %c.
  CHECK(memory.peak_bytes() == 4 * x.storage->bytes());
}

TEST_CASE("16-bit floats round to nearest even") {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    const float value = math::float_from_fp16(half);
    if (value == value) CHECK(math::fp16_from_float(value) == half);
    const float wide = math::float_from_bf16(half);
    if (wide == wide) CHECK(math::bf16_from_float(wide) == half);
  }
  CHECK(math::fp16_from_float(65519.0F) == 0x7bff);
  CHECK(math::fp16_from_float(65520.0F) == 0x7c00);
  CHECK(math::fp16_from_float(0x1p-25F) == 0);
  CHECK(math::fp16_from_float(0x1.8p-25F) == 1);
  CHECK(math::bf16_from_float(1.00390625F) == 0x3f80);
  CHECK(math::bf16_from_float(1.01171875F) == 0x3f82);
}

TEST_CASE("differences: first index, bits, ULP") {
  const TensorDifference difference =
      compare_tensors(make_floats({1, 2, 3}), make_floats({1, 2, 3.0000002F}));
  CHECK(difference.index == 2);
  CHECK(difference.ulp == 1);
  CHECK(describe(difference) ==
        "first at 2: 0x40400000 (3) and 0x40400001 (3.000000238418579), 1 ULP; 1 elements differ, relative "
        "error 6.37e-08");
  CHECK(compare_tensors(make_floats({1}), make_floats({1, 2})).problem == "sizes [1] and [2]");
  const auto nan = std::bit_cast<float>(0x7fc00000U);
  CHECK(compare_tensors(make_floats({nan}), make_floats({nan})).is_equal());
  CHECK_FALSE(compare_tensors(make_floats({0.0F}), make_floats({-0.0F})).is_equal());
}

TEST_CASE("differences: NaN and infinity in both count for nothing, in one they are no small error") {
  const float nan = std::numeric_limits<float>::quiet_NaN(), inf = std::numeric_limits<float>::infinity();
  const auto find_error = [](float a, float b) {
    return compare_tensors(make_floats({3, 4, a}), make_floats({3, 4.5F, b})).relative_error;
  };
  CHECK(find_error(0, 0) == 0.1);
  CHECK(find_error(nan, nan) == 0.1);
  CHECK(find_error(inf, inf) == 0.1);
  CHECK(find_error(-inf, -inf) == 0.1);
  for (const auto& [a, b] :
       {std::pair{nan, 1.0F}, {1.0F, nan}, {inf, 1.0F}, {1.0F, inf}, {inf, -inf}, {nan, inf}})
    CHECK_FALSE(find_error(a, b) <= 1);
}

TEST_CASE("all NaNs of a dtype are one value, to hashes and comparisons") {
  const auto tensor_of = [](DType dtype, std::vector<std::uint64_t> elements) {
    HostMemory memory;
    Tensor made = make_tensor(memory, dtype, {static_cast<std::int64_t>(elements.size())});
    for (std::size_t i = 0; i < elements.size(); ++i)
      std::memcpy(made.bytes() + i * made.element_bytes(), &elements[i], made.element_bytes());
    return made;
  };
  struct Row {
    DType dtype;
    std::uint64_t quiet, negative, signalling, infinity, one;
  };
  for (const Row& row : {Row{DType::kFloat32, 0x7fc00000, 0xffffffff, 0x7f800001, 0x7f800000, 0x3f800000},
                         Row{DType::kFloat64, 0x7ff8000000000000, 0xffffffffffffffff, 0x7ff0000000000001,
                             0x7ff0000000000000, 0x3ff0000000000000},
                         Row{DType::kBfloat16, 0x7fc0, 0xffff, 0x7f81, 0x7f80, 0x3f80},
                         Row{DType::kFloat16, 0x7e00, 0xffff, 0x7c01, 0x7c00, 0x3c00},
                         Row{DType::kComplex64, 0x7fc000003f800000, 0xffffffff3f800000, 0x7f8000013f800000,
                             0x7f8000003f800000, 0x3f8000003f800000}}) {
    const Tensor quiet = tensor_of(row.dtype, {row.one, row.quiet, row.one});
    const Tensor infinite = tensor_of(row.dtype, {row.one, row.infinity, row.one});
    for (const std::uint64_t other : {row.negative, row.signalling}) {
      const Tensor made = tensor_of(row.dtype, {row.one, other, row.one});
      CHECK(hash_tensor(made) == hash_tensor(quiet));
      CHECK(hash_slices(made, 0) == hash_slices(quiet, 0));
      CHECK(compare_tensors(made, quiet).is_equal());
      CHECK(std::memcmp(made.bytes() + made.element_bytes(), &other, made.element_bytes()) == 0);
      const Tensor shifted = tensor_of(row.dtype, {row.one, other, row.infinity});
      const TensorDifference difference = compare_tensors(quiet, shifted);
      CHECK(difference.differing == 1);
      CHECK(difference.index == 2);
    }
    CHECK(hash_tensor(infinite) != hash_tensor(quiet));
    CHECK(compare_tensors(infinite, quiet).differing == 1);
    // Wherever it stands, in tensors that are no whole words, too.
    for (std::size_t count = 1; count <= 9; ++count)
      for (std::size_t at = 0; at < count; ++at) {
        std::vector<std::uint64_t> elements(count, row.infinity);
        elements[at] = row.quiet;
        const std::uint64_t expected = hash_tensor(tensor_of(row.dtype, elements));
        for (const std::uint64_t other : {row.negative, row.signalling}) {
          elements[at] = other;
          CHECK(hash_tensor(tensor_of(row.dtype, elements)) == expected);
        }
      }
  }
  const Tensor ints = tensor_of(DType::kInt32, {0x7fc00000}), others = tensor_of(DType::kInt32, {0xffffffff});
  CHECK(hash_tensor(ints) != hash_tensor(others));
  CHECK_FALSE(compare_tensors(ints, others).is_equal());
}

// The highest bit of a word is where a multiplication spreads nothing: elements 1, 64 and 65 of
// float32 are in words of one chain.
TEST_CASE("hashes tell apart tensors that differ in the signs of a few elements") {
  const auto hash_negated = [](Tensor tensor, std::initializer_list<std::size_t> places) {
    for (const std::size_t at : places)
      tensor.bytes()[(at + 1) * tensor.element_bytes() - 1] ^= std::byte{0x80};
    const std::uint64_t hash = hash_tensor(tensor);
    for (const std::size_t at : places)
      tensor.bytes()[(at + 1) * tensor.element_bytes() - 1] ^= std::byte{0x80};
    return hash;
  };
  for (const DType dtype : {DType::kFloat32, DType::kFloat64, DType::kBfloat16}) {
    HostMemory memory;
    const Tensor tensor = make_tensor(memory, dtype, {200});
    for (std::size_t i = 0; i < 200 * tensor.element_bytes(); ++i)
      tensor.bytes()[i] = static_cast<std::byte>(i * 37 % 61);
    std::set<std::uint64_t> hashes{hash_tensor(tensor)};
    std::size_t made = 1;
    for (std::size_t i = 0; i < 200; ++i, ++made) hashes.insert(hash_negated(tensor, {i}));
    for (std::size_t i = 0; i < 200; ++i)
      for (std::size_t k = 0; k < i; ++k, ++made) hashes.insert(hash_negated(tensor, {i, k}));
    for (std::size_t i = 0; i < 6; ++i)
      for (std::size_t k = 60; k < 70; ++k)
        for (std::size_t l = 60; l < k; ++l, ++made) hashes.insert(hash_negated(tensor, {i, k, l}));
    CHECK(hashes.size() == made);
  }
}

TEST_CASE("hashes of slices concatenate") {
  const Tensor whole = make_floats({1, 2, 3, 4, 5, 6}).view({2, 3}, {3, 1}, 0);
  const Tensor left = whole.view({2, 1}, {3, 1}, 0), right = whole.view({2, 2}, {3, 1}, 1);
  auto hashes = hash_slices(left, 1);
  for (std::uint64_t hash : hash_slices(right, 1)) hashes.push_back(hash);
  CHECK(hashes == hash_slices(whole, 1));
}

}  // namespace epweave::replay
