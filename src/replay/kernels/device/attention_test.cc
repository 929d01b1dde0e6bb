// Attention on the device against the CPU's, in one slab and in many.
#include <algorithm>
#include <array>
#include <cmath>

#include "replay/kernels/device/attention.h"
#include "replay/kernels/device/both_devices.h"
#include "replay/kernels/device/testing/listed_launches.h"

namespace epweave::replay {
namespace {

using device::ScoreBytesForTest;

// Bytes for all matrices: 4 heads of 150 queries and keys at once; one head; blocks of queries of a
// head; queries inside a block, 80 and then 48 of the first one; one query, or a few. A pass holds
// one matrix, two or eight.
constexpr std::size_t kOfRow = 4 * 150;
constexpr std::array<std::size_t, 8> kBudgets = {std::size_t{1} << 30, 8 * 160 * kOfRow, 8 * 130 * kOfRow,
                                                 8 * 80 * kOfRow,      8 * kOfRow,       2 * 160 * kOfRow,
                                                 130 * kOfRow,         80 * kOfRow};

Tensor bf16(Random& random, Extents sizes) {
  return random.tensor(std::move(sizes), DType::kBfloat16);
}

// An op of a function of the graph, on the device of its arguments.
Value call(const char* target, const std::vector<Value>& args) {
  static const KernelTable cpu = make_cpu_kernels();
  static HostMemory host;
  Queue* queue = nullptr;
  for (const Value& arg : args)
    if (arg.is_tensor()) queue = arg.tensor().storage->queue();
  auto* memory = queue == nullptr ? &host : dynamic_cast<Memory*>(queue);
  const OpInfo& op = *find_op(target);
  KernelCall kernel(op, args, ~0u, *memory);
  return (queue == nullptr ? cpu : tested_device().kernels()).find(op)(kernel);
}

// FlexAttention of 2 batches, 4 heads, 2 heads of keys: 150 queries and keys in blocks of 64 and
// 32, or all in one block.
struct Flex {
  enum class Scores { kSame, kBiased };
  enum class Tables { kCausal, kOneBlock, kTiles };
  enum class Masks { kOfHeads, kOfAll, kDocuments, kLookedUp, kLong };

  Flex(Scores scores, Tables tables, Masks masks = Masks::kOfHeads, DType dtype = DType::kBfloat16)
      : query(random.tensor({2, 4, 150, 24}, dtype)),
        key(random.tensor({2, 2, 150, 24}, dtype)),
        value(random.tensor({2, 2, 150, 16}, dtype)) {
    const bool is_biased = scores == Scores::kBiased;
    const auto first = [](std::span<const Value> args) { return args[0]; };
    const auto gradient = [](std::span<const Value> args) {
      return Value::list({args[5], Value(), Value(), Value(), Value()});
    };
    // score * (head + 1) + query - key; a view of the score, or another tensor.
    const auto biased = [](std::span<const Value> args) {
      const Value heads = call("aten.add.Scalar", {args[2], 1.0, std::int64_t{1}});
      const Value scaled = call("aten.mul.Tensor", {args[0], heads});
      const Value distance = call("aten.sub.Tensor", {args[3], args[4], std::int64_t{1}});
      return call("aten.add.Tensor", {scaled, distance, std::int64_t{1}});
    };
    // d (score^2 / 2): uses the score before.
    const auto biased_back = [](std::span<const Value> args) {
      return Value::list({call("aten.mul.Tensor", {args[5], args[0]}), Value(), Value(), Value(), Value()});
    };
    score = is_biased ? Function{"score", 5, biased} : Function{"score", 5, first, 0};
    joint = is_biased ? Function{"joint", 6, biased_back} : Function{"joint", 6, gradient, 5};
    // Causal, and of each head but the first one key in two.
    const auto of_heads = [](std::span<const Value> args) {
      const Value causal = call("aten.ge.Tensor", {args[2], args[3]});
      const Value product = call("aten.mul.Tensor", {args[1], args[3]});
      const Value odd = call("aten.bitwise_and.Scalar", {product, std::int64_t{1}});
      const Value even = call("aten.eq.Scalar", {odd, std::int64_t{0}});
      return call("aten.bitwise_and.Tensor", {causal, even});
    };
    // Does not look at heads; of batch 1 there is no key that is a multiple of 3.
    const auto of_all = [](std::span<const Value> args) {
      const Value third = call("aten.remainder.Scalar", {args[3], std::int64_t{3}});
      const Value kept = call("aten.ge.Tensor", {third, args[0]});
      return call("aten.bitwise_and.Tensor", {kept, call("aten.ge.Tensor", {args[2], args[3]})});
    };
    // As torchtitan's: causal, from the first key of the query's document on.
    const auto documents = [](std::span<const Value> args) {
      const Value causal = call("aten.ge.Tensor", {args[2], args[3]});
      const Value start = call("aten.index.Tensor", {args[4], Value::list({args[2]})});
      return call("aten.bitwise_and.Tensor", {causal, call("aten.ge.Tensor", {args[3], start})});
    };
    // Steps that no program has: looking up what a step has made, dividing, changing in place.
    const auto looked_up = [](std::span<const Value> args) {
      const Value distance = call("aten.sub.Tensor", {args[2], args[3], std::int64_t{1}});
      const Value odd = call("aten.bitwise_and.Scalar", {distance, std::int64_t{1}});
      const Value found = call("aten.index.Tensor", {args[4], Value::list({odd})});
      call("aten.add_.Tensor", {odd, args[0], std::int64_t{1}});
      const Value rest = call("aten.remainder.Scalar", {odd, std::int64_t{3}});
      const Value causal = call("aten.ge.Tensor", {args[2], args[3]});
      return call("aten.ne.Tensor", {call("aten.where.self", {causal, rest, found}), found});
    };
    const auto many_steps = [](std::span<const Value> args) {
      Value sum = call("aten.sub.Tensor", {args[2], args[3], std::int64_t{1}});
      for (int i = 0; i < 14; ++i) sum = call("aten.add.Tensor", {sum, args[3], std::int64_t{1}});
      const Value odd = call("aten.bitwise_and.Scalar", {sum, std::int64_t{1}});
      return call("aten.eq.Scalar", {odd, std::int64_t{0}});
    };
    const auto with = [](auto function) { return Function{"mask", 5, function}; };
    mask = masks == Masks::kOfHeads     ? with(of_heads)
           : masks == Masks::kOfAll     ? with(of_all)
           : masks == Masks::kDocuments ? with(documents)
           : masks == Masks::kLookedUp  ? with(looked_up)
                                        : with(many_steps);
    std::vector<std::int64_t> firsts;
    for (std::int64_t q = 0; q < 150; ++q) firsts.push_back(q < 40 ? 0 : q < 90 ? 40 : 90);
    first_keys = random.integers(firsts, {150}, DType::kInt32);
    block_mask = tables == Tables::kCausal  ? causal_blocks()
                 : tables == Tables::kTiles ? tile_blocks()
                                            : one_block();
  }

  std::vector<Value> forward_args() const {
    return {query, key, value, score, block_mask, 0.3, Dict{}, Value::tuple({}), Value::tuple({first_keys})};
  }
  std::vector<Value> backward_args(const Value& grad_lse) {
    return {query,
            key,
            value,
            random.tensor({2, 4, 150, 16}, query.dtype),
            random.tensor({2, 4, 150}),
            random.tensor({2, 4, 150, 16}, query.dtype),
            grad_lse,
            score,
            joint,
            block_mask,
            0.3,
            Dict{},
            Value::tuple({}),
            Value::tuple({first_keys})};
  }

  Random random;
  Tensor query, key, value;
  Value score, joint, mask, block_mask, first_keys;

 private:
  static constexpr std::int64_t kQueryBlock = 64, kKeyBlock = 32, kQueryBlocks = 3, kKeyBlocks = 5;

  // Blocks of keys up to the last query; those before the first query are full, as a causal mask
  // alone would have it, so that the other half of the mask does not count there.
  static bool looks(std::int64_t q, std::int64_t k) {
    return k * kKeyBlock < std::min<std::int64_t>((q + 1) * kQueryBlock, 150);
  }
  static bool is_full(std::int64_t q, std::int64_t k) { return (k + 1) * kKeyBlock <= q * kQueryBlock; }

  struct Table {
    Value counts, lists;
  };
  Table table(bool full, bool by_key) {
    const std::int64_t rows = by_key ? kKeyBlocks : kQueryBlocks,
                       columns = by_key ? kQueryBlocks : kKeyBlocks;
    std::vector<std::int64_t> counts, lists;
    for (std::int64_t r = 0; r < rows; ++r) {
      std::vector<std::int64_t> list;
      for (std::int64_t c = 0; c < columns; ++c) {
        const std::int64_t q = by_key ? c : r, k = by_key ? r : c;
        if (looks(q, k) && is_full(q, k) == full) list.push_back(c);
      }
      counts.push_back(static_cast<std::int64_t>(list.size()));
      list.resize(static_cast<std::size_t>(columns), 77);
      lists.insert(lists.end(), list.begin(), list.end());
    }
    return {random.integers(counts, {1, 1, rows}, DType::kInt32),
            random.integers(lists, {1, 1, rows, columns}, DType::kInt32)};
  }
  Value causal_blocks() {
    const Table partial = table(false, false), full = table(true, false);
    const Table partial_of_keys = table(false, true), full_of_keys = table(true, true);
    return Value::tuple({std::int64_t{150}, std::int64_t{150}, partial.counts, partial.lists, full.counts,
                         full.lists, partial_of_keys.counts, partial_of_keys.lists, full_of_keys.counts,
                         full_of_keys.lists, Value(), Value(), Value(), Value(), kQueryBlock, kKeyBlock,
                         mask});
  }
  // Blocks that tiles of products do not cut. The first queries look at the second block of keys,
  // where the mask leaves out all pairs; the others at the first one, all of it.
  Value tile_blocks() {
    const auto table = [&](const std::vector<std::int64_t>& counts, const std::vector<std::int64_t>& lists) {
      return Table{random.integers(counts, {1, 1, 2}, DType::kInt32),
                   random.integers(lists, {1, 1, 2, 2}, DType::kInt64)};
    };
    const Table partial = table({1, 0}, {1, 77, 77, 77}), full = table({0, 1}, {77, 77, 0, 77});
    const Table partial_of_keys = table({0, 1}, {77, 77, 0, 77}),
                full_of_keys = table({1, 0}, {1, 77, 77, 77});
    return Value::tuple({std::int64_t{150}, std::int64_t{150}, partial.counts, partial.lists, full.counts,
                         full.lists, partial_of_keys.counts, partial_of_keys.lists, full_of_keys.counts,
                         full_of_keys.lists, Value(), Value(), Value(), Value(), std::int64_t{128},
                         std::int64_t{128}, mask});
  }
  Value one_block() {
    const Value count = random.integers({1}, {1, 1, 1}), list = random.integers({0}, {1, 1, 1, 1});
    return Value::tuple({std::int64_t{150}, std::int64_t{150}, count, list, Value(), Value(), count, list,
                         Value(), Value(), Value(), Value(), Value(), Value(), std::int64_t{1} << 30,
                         std::int64_t{1} << 30, mask});
  }
};

}  // namespace

TEST_CASE("scaled dot product attention has the CPU's bits in slabs of any size") {
  for (const std::size_t budget : kBudgets) {
    const ScoreBytesForTest bytes(budget);
    INFO("bytes of scores: " << budget);
    Random random;
    const Tensor q = bf16(random, {2, 4, 150, 24}), k = bf16(random, {2, 2, 150, 24});
    const Tensor v = bf16(random, {2, 2, 150, 16}), out = bf16(random, {2, 4, 150, 16});
    const Tensor grad = bf16(random, {2, 4, 150, 16}), lse = random.tensor({2, 4, 150});
    const Value none;
    for (const bool causal : {false, true}) {
      CHECK(run_both("aten._scaled_dot_product_flash_attention.default",
                     {q, k, v, 0.0, causal, false, 0.2}) == "");
      CHECK(run_both("aten._scaled_dot_product_flash_attention_backward.default",
                     {grad, q, k, v, out, lse, none, none, std::int64_t{150}, std::int64_t{150}, 0.0, causal,
                      none, none, 0.2}) == "");
    }
  }
}

// What follows ideals of values (replay/bounds/ideal_values.h). Forward, the CPU refuses it too.
TEST_CASE("gradients of attention in float64 have the CPU's bits in slabs of any size") {
  Random random;
  const auto f64 = [&](Extents sizes) { return random.tensor(std::move(sizes), DType::kFloat64); };
  const Tensor q = f64({2, 4, 150, 24}), k = f64({2, 2, 150, 24}), v = f64({2, 2, 150, 16}),
               out = f64({2, 4, 150, 16}), grad = f64({2, 4, 150, 16}), lse = f64({2, 4, 150});
  std::vector<std::int64_t> kept;
  for (std::int64_t i = 0; i < 2 * 150 * 150; ++i) kept.push_back(i % 3 != 0);
  const Value none, flags = random.integers(kept, {2, 1, 150, 150}, DType::kBool);
  CHECK(run_both("aten._scaled_dot_product_flash_attention.default", {q, k, v, 0.0, true, false, 0.2}) ==
        "refused");
  for (const std::size_t budget : kBudgets) {
    const ScoreBytesForTest bytes(2 * budget);
    INFO("bytes of scores: " << 2 * budget);
    for (const bool causal : {false, true})
      CHECK(run_both("aten._scaled_dot_product_flash_attention_backward.default",
                     {grad, q, k, v, out, lse, none, none, std::int64_t{150}, std::int64_t{150}, 0.0, causal,
                      none, none, 0.2}) == "");
    CHECK(run_both("aten._scaled_dot_product_flash_attention_for_cpu_backward.default",
                   {grad, q, k, v, out, lse, 0.0, false, flags, 0.2}) == "");
  }
  for (const auto scores : {Flex::Scores::kSame, Flex::Scores::kBiased}) {
    const ScoreBytesForTest bytes(16 * 130 * kOfRow);
    Flex flex(scores, Flex::Tables::kCausal, Flex::Masks::kOfHeads, DType::kFloat64);
    CHECK(run_both("higher_order.flex_attention", flex.forward_args()) == "refused");
    const Value grad_lse = flex.random.tensor({2, 4, 150});
    CHECK(run_both("higher_order.flex_attention_backward", flex.backward_args(grad_lse)) == "");
  }
}

TEST_CASE("a key that is not finite counts in the same blocks in slabs of any size") {
  for (const std::size_t budget : kBudgets) {
    const ScoreBytesForTest bytes(budget);
    INFO("bytes of scores: " << budget);
    Random random;
    const auto f32 = [&] { return random.tensor({1, 1, 150, 8}); };
    const Tensor q = f32(), k = f32(), v = f32(), out = f32(), grad = f32();
    const Tensor lse = random.tensor({1, 1, 150});
    const Value none;
    // Key 100 is behind the first 100 queries, but in their block; key 140 is in the second block.
    for (const std::int64_t row : {100, 140}) {
      k.data<float>()[row * 8] = std::numeric_limits<float>::quiet_NaN();
      v.data<float>()[row * 8] = std::numeric_limits<float>::infinity();
    }
    CHECK(run_both("aten._scaled_dot_product_flash_attention.default", {q, k, v, 0.0, true, false, 0.2}) ==
          "");
    CHECK(run_both("aten._scaled_dot_product_flash_attention_backward.default",
                   {grad, q, k, v, out, lse, none, none, std::int64_t{150}, std::int64_t{150}, 0.0, true,
                    none, none, 0.2}) == "");
  }
}

TEST_CASE("a bias is broadcast over slabs", "[repetitive]") {
  for (const std::size_t budget : kBudgets) {
    const ScoreBytesForTest bytes(budget);
    INFO("bytes of scores: " << budget);
    Random random;
    const Tensor q = bf16(random, {2, 4, 150, 24}), k = bf16(random, {2, 4, 150, 24}),
                 v = bf16(random, {2, 4, 150, 16});
    std::vector<std::int64_t> kept;
    for (std::int64_t i = 0; i < 2 * 150 * 150; ++i) kept.push_back(i % 3 != 0);
    const Value full = bf16(random, {2, 4, 150, 150}), of_head = random.tensor({4, 1, 150});
    const Value flags = random.integers(kept, {2, 1, 150, 150}, DType::kBool);
    for (const Value& bias : {full, of_head, flags})
      CHECK(run_both("aten._scaled_dot_product_flash_attention_for_cpu.default",
                     {q, k, v, 0.0, false, bias, 0.2}) == "");
    const Tensor out = bf16(random, {2, 4, 150, 16}), grad = bf16(random, {2, 4, 150, 16});
    CHECK(run_both("aten._scaled_dot_product_flash_attention_for_cpu_backward.default",
                   {grad, q, k, v, out, random.tensor({2, 4, 150}), 0.0, false, flags, 0.2}) == "");
  }
}

TEST_CASE("FlexAttention has the CPU's bits in slabs of any size", "[slow]") {
  for (const std::size_t budget : kBudgets)
    for (const auto tables : {Flex::Tables::kCausal, Flex::Tables::kOneBlock, Flex::Tables::kTiles})
      for (const auto scores : {Flex::Scores::kSame, Flex::Scores::kBiased})
        for (const auto masks : {Flex::Masks::kOfHeads, Flex::Masks::kOfAll}) {
          const ScoreBytesForTest bytes(budget);
          INFO("bytes of scores: " << budget << ", tables: " << static_cast<int>(tables)
                                   << ", biased: " << (scores == Flex::Scores::kBiased)
                                   << ", mask of heads: " << (masks == Flex::Masks::kOfHeads));
          Flex flex(scores, tables, masks);
          CHECK(run_both("higher_order.flex_attention", flex.forward_args()) == "");
          CHECK(run_both("higher_order.flex_attention_backward", flex.backward_args(Value())) == "");
          const Value grad_lse = flex.random.tensor({2, 4, 150});
          CHECK(run_both("higher_order.flex_attention_backward", flex.backward_args(grad_lse)) == "");
        }
}

TEST_CASE("mask functions, as programs and not") {
  for (const std::size_t budget : {std::size_t{1} << 30, 8 * 130 * kOfRow, 8 * 7 * kOfRow})
    for (const auto masks : {Flex::Masks::kDocuments, Flex::Masks::kLookedUp, Flex::Masks::kLong}) {
      const ScoreBytesForTest bytes(budget);
      INFO("bytes of scores: " << budget << ", mask: " << static_cast<int>(masks));
      Flex flex(Flex::Scores::kSame, Flex::Tables::kOneBlock, masks);
      CHECK(run_both("higher_order.flex_attention", flex.forward_args()) == "");
      CHECK(run_both("higher_order.flex_attention_backward", flex.backward_args(Value())) == "");
    }
}

TEST_CASE("what attention launches") {
  using device::TaskKind;
  using Kinds = std::vector<TaskKind>;
  Random random;
  const Value none;
  const Tensor q = bf16(random, {1, 2, 300, 24}), v = bf16(random, {1, 2, 300, 16});
  // The last two are the state of a generator of random numbers, which torch returns too.
  CHECK(launched_by("aten._scaled_dot_product_flash_attention.default", {q, q, v, 0.0, true, false, 0.2}) ==
        Kinds{TaskKind::kCausalCover, TaskKind::kMatmulBfloat16NT4, TaskKind::kWeigh,
              TaskKind::kCoveredBfloat16NN4, TaskKind::kMap0, TaskKind::kMap0});
  CHECK(launched_by("aten._scaled_dot_product_flash_attention_backward.default",
                    {v, q, q, v, v, random.tensor({1, 2, 300}), none, none, std::int64_t{300},
                     std::int64_t{300}, 0.0, true, none, none, 0.2}) ==
        Kinds{TaskKind::kCausalCover, TaskKind::kDelta, TaskKind::kMatmulBfloat16NT4,
              TaskKind::kMatmulBfloat16NT4, TaskKind::kWeighBackward, TaskKind::kCoveredBfloat16TN4,
              TaskKind::kCoveredBfloat16NN4, TaskKind::kCoveredBfloat16TN4});
  // Of each of the two batches. Positions, and the look-up by query, are small; what is as large as
  // all pairs is one kernel.
  const Kinds batch = {TaskKind::kMatmulBfloat16NT4, TaskKind::kProgression, TaskKind::kProgression,
                       TaskKind::kProgression,       TaskKind::kProgression, TaskKind::kResolveIndex,
                       TaskKind::kReadDenseBlocks,   TaskKind::kPackProgram, TaskKind::kWeigh,
                       TaskKind::kCoveredBfloat16NN4};
  Kinds expected = {TaskKind::kCover};
  for (int i = 0; i < 2; ++i) expected.insert(expected.end(), batch.begin(), batch.end());
  const Flex flex(Flex::Scores::kSame, Flex::Tables::kOneBlock, Flex::Masks::kDocuments);
  CHECK(launched_by("higher_order.flex_attention", flex.forward_args()) == expected);
}

TEST_CASE("of zeros of both signs the largest score is the first one") {
  Flex flex(Flex::Scores::kSame, Flex::Tables::kOneBlock);
  // Products that are too small: zeros with their sign.
  const float tiny = 1e-30f;
  Buffer<float> query(2 * 4 * 150 * 24, 0.0f), key(2 * 2 * 150 * 24, 0.0f);
  for (std::size_t row = 0; row < 2 * 4 * 150; ++row) query[row * 24 + 23] = tiny;
  for (std::size_t row = 0; row < 2 * 2 * 150; ++row) key[row * 24 + 23] = row % 7 < 3 ? -tiny : tiny;
  cpu::store_dense(query, flex.query);
  cpu::store_dense(key, flex.key);
  CHECK(run_both("higher_order.flex_attention", flex.forward_args()) == "");
}

TEST_CASE("operands of every float, as they lie in memory") {
  Random random;
  const Value none;
  // [batch, row, head, depth] seen as [batch, head, row, depth].
  const auto rows = [&](DType dtype, std::int64_t depth) {
    const Tensor tensor = random.tensor({2, 150, 4, depth}, dtype);
    return tensor.view({2, 4, 150, depth}, {150 * 4 * depth, depth, 4 * depth, 1}, 0);
  };
  for (const DType dtype : {DType::kBfloat16, DType::kFloat16, DType::kFloat32})
    for (const DType of_values : {dtype, DType::kFloat32}) {
      const Tensor q = rows(dtype, 24), k = rows(dtype, 24), v = rows(of_values, 16);
      const Tensor out = rows(dtype, 16), grad = rows(dtype, 16), lse = random.tensor({2, 4, 150});
      // One gradient for all columns.
      const Tensor spread = grad.view(grad.sizes, {grad.strides[0], grad.strides[1], grad.strides[2], 0}, 0);
      CHECK(run_both("aten._scaled_dot_product_flash_attention.default", {q, k, v, 0.0, true, false, 0.2}) ==
            "");
      for (const Tensor& each : {grad, spread})
        CHECK(run_both("aten._scaled_dot_product_flash_attention_backward.default",
                       {each, q, k, v, out, lse, none, none, std::int64_t{150}, std::int64_t{150}, 0.0, true,
                        none, none, 0.2}) == "");
    }
}

TEST_CASE("what another forward call kept is refused") {
  Random random;
  const Value none;
  const Tensor q = bf16(random, {1, 2, 20, 8}), out = bf16(random, {1, 2, 19, 8});
  CHECK(run_both("aten._scaled_dot_product_flash_attention_backward.default",
                 {q, q, q, q, out, random.tensor({1, 2, 20}), none, none, std::int64_t{20}, std::int64_t{20},
                  0.0, true, none, none, 0.2}) == "refused");
}

TEST_CASE("attention holds no more device memory than it says") {
  const ScoreBytesForTest bytes(std::size_t{1} << 20);
  cpu::AttentionShape shape{1, 4, 1, 2, 700, 700, 8, 8};
  const std::size_t whole = 4 * 700 * 700 * sizeof(float);            // one matrix of all scores
  const std::size_t tensors = 2 * 8 * (4 * 700 * 8 * sizeof(float));  // arguments and results at most
  const auto most = [&](device::Pass pass) { return device::most_scratch_bytes(shape, pass) + tensors; };
  REQUIRE(most(device::Pass::kForward) < whole);
  REQUIRE(most(device::Pass::kBackward) < whole);
  Random random;
  const auto rows = [&](std::int64_t heads) { return random.tensor({1, heads, 700, 8}); };
  const Tensor q = rows(4), k = rows(2), v = rows(2), out = rows(4), grad = rows(4);
  const Value none;
  for (const bool causal : {false, true}) {
    std::size_t peak = 0;
    CHECK(run_both("aten._scaled_dot_product_flash_attention.default", {q, k, v, 0.0, causal, false, 0.2},
                   &peak) == "");
    CHECK(peak > 0);
    CHECK(peak < most(device::Pass::kForward));
    CHECK(run_both("aten._scaled_dot_product_flash_attention_backward.default",
                   {grad, q, k, v, out, random.tensor({1, 4, 700}), none, none, std::int64_t{700},
                    std::int64_t{700}, 0.0, causal, none, none, 0.2},
                   &peak) == "");
    CHECK(peak < most(device::Pass::kBackward));
  }
}

// ---- fused, as native math does it --------------------------------------------------------------

namespace {

Value run_fused(const char* target, const std::vector<Value>& args) {
  OnDevice on_device;
  dynamic_cast<device::Launcher&>(on_device.rank().memory()).use_tensor_cores();
  const Value placed = on_device.place(Value::list(args));
  KernelCall call(*find_op(target), placed.items(), ~0u, on_device.rank().memory());
  const Value result = tested_device().kernels().find(*find_op(target))(call);
  REQUIRE(on_device.fault() == "");
  return on_device.download(result);
}

Buffer<float> floats_of(const Tensor& tensor) {
  return cpu::dense<float>(tensor);
}
// How far elements are apart at most, beside the largest one; 1 where one is finite and the other
// is another number.
float distance(const Tensor& portable, const Tensor& fused) {
  REQUIRE(portable.dtype == fused.dtype);
  REQUIRE(portable.sizes == fused.sizes);
  REQUIRE(portable.strides == fused.strides);
  const Buffer<float> x = floats_of(portable), y = floats_of(fused);
  float largest = 0, apart = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (!std::isfinite(x[i]) || !std::isfinite(y[i])) {
      if (x[i] != y[i] && !(std::isnan(x[i]) && std::isnan(y[i]))) return 1;
      continue;
    }
    largest = std::max(largest, std::abs(x[i]));
    apart = std::max(apart, std::abs(x[i] - y[i]));
  }
  return largest == 0 ? apart : apart / largest;
}
// Weights and gradients of scores are rounded to the operands' type, here to 8 bits at least,
// before they are multiplied; all else is float32.
constexpr float kNear = 0x1p-6f;

// What the portable kernel gives.
Value check_fused(const char* target, const std::vector<Value>& args, std::size_t results) {
  static const KernelTable cpu = make_cpu_kernels();
  static HostMemory memory(HostMemory::Fill::kPoison);
  KernelCall call(*find_op(target), args, ~0u, memory);
  Value portable = cpu.find(*find_op(target))(call);
  const Value fused = run_fused(target, args);
  for (std::size_t i = 0; i < results; ++i) {
    INFO(target << ", result " << i);
    CHECK(distance(portable.items()[i].tensor(), fused.items()[i].tensor()) < kNear);
  }
  return portable;
}

constexpr const char *kForwardFlash = "aten._scaled_dot_product_flash_attention.default",
                     *kBackwardFlash = "aten._scaled_dot_product_flash_attention_backward.default";

// Scores that single out few keys for each query: another key in its place is another result.
constexpr double kSharp = 1.5;

}  // namespace

TEST_CASE("fused attention is near the portable one: widths, dtypes, groups of heads") {
  struct Case {
    std::int64_t heads, kv_heads, queries, keys, depth, value_depth;
    DType dtype;
  };
  const Value none;
  for (const Case& c :
       {Case{4, 2, 150, 150, 24, 16, DType::kBfloat16}, Case{2, 2, 70, 150, 64, 64, DType::kBfloat16},
        Case{3, 1, 65, 64, 13, 7, DType::kBfloat16}, Case{2, 1, 97, 131, 128, 96, DType::kBfloat16},
        Case{2, 2, 129, 129, 192, 128, DType::kBfloat16}, Case{2, 2, 64, 33, 192, 128, DType::kFloat16},
        Case{2, 1, 1, 1, 8, 8, DType::kFloat16}})
    for (const bool causal : {false, true}) {
      INFO("heads: " << c.heads << ", queries: " << c.queries << ", keys: " << c.keys
                     << ", depth: " << c.depth << ", causal: " << causal);
      Random random;
      const auto rows = [&](std::int64_t heads, std::int64_t count, std::int64_t depth) {
        return random.tensor({2, heads, count, depth}, c.dtype);
      };
      const Tensor q = rows(c.heads, c.queries, c.depth), k = rows(c.kv_heads, c.keys, c.depth),
                   v = rows(c.kv_heads, c.keys, c.value_depth);
      const Value kept = check_fused(kForwardFlash, {q, k, v, 0.0, causal, false, kSharp}, 2);
      const Tensor grad = rows(c.heads, c.queries, c.value_depth);
      check_fused(kBackwardFlash,
                  {grad, q, k, v, kept.items()[0], kept.items()[1], none, none, c.queries, c.keys, 0.0,
                   causal, none, none, kSharp},
                  3);
    }
}

TEST_CASE("fused attention reads operands as they lie, and writes results as they are recorded") {
  Random random;
  const Value none;
  const auto rows = [&](std::int64_t depth) {
    const Tensor tensor = random.tensor({2, 90, 4, depth}, DType::kBfloat16);
    return tensor.view({2, 4, 90, depth}, {90 * 4 * depth, depth, 4 * depth, 1}, 0);
  };
  for (const std::int64_t depth : {20, 24}) {
    const Tensor q = rows(depth), k = rows(depth), v = rows(16), out = rows(16), grad = rows(16);
    const Tensor columns = k.view(k.sizes, {90 * 4 * depth, 90 * depth, 1, 90}, 0);
    check_fused(kForwardFlash, {q, columns, v, 0.0, true, false, kSharp}, 2);
    check_fused(kBackwardFlash,
                {grad, q, columns, v, out, random.tensor({2, 4, 90}), none, none, std::int64_t{90},
                 std::int64_t{90}, 0.0, true, none, none, kSharp},
                3);
  }
}

TEST_CASE("fused FlexAttention is near the portable one, in slabs of any size") {
  for (const std::size_t budget : {std::size_t{1} << 30, 160 * kOfRow / 8, 80 * kOfRow / 32})
    for (const auto tables : {Flex::Tables::kCausal, Flex::Tables::kOneBlock, Flex::Tables::kTiles})
      for (const auto masks : {Flex::Masks::kOfHeads, Flex::Masks::kOfAll, Flex::Masks::kDocuments}) {
        const ScoreBytesForTest bytes(budget);
        INFO("bytes of masks: " << budget << ", tables: " << static_cast<int>(tables)
                                << ", mask: " << static_cast<int>(masks));
        Flex flex(Flex::Scores::kSame, tables, masks);
        check_fused("higher_order.flex_attention", flex.forward_args(), 3);
        check_fused("higher_order.flex_attention_backward",
                    flex.backward_args(flex.random.tensor({2, 4, 150})), 3);
      }
}

TEST_CASE("what fused attention launches, and where it does not") {
  using device::TaskKind;
  using Kinds = std::vector<TaskKind>;
  Random random;
  const Value none;
  const auto rows = [&](std::int64_t depth) { return bf16(random, {1, 2, 300, depth}); };
  const auto launched = [&](const char* target, const std::vector<Value>& args) {
    return launched_by(target, args, Math::kNative);
  };
  const auto forward = [&](const Tensor& q, const Tensor& v) {
    Kinds kinds = launched(kForwardFlash, {q, q, v, 0.0, true, false, 0.2});
    kinds.resize(2);
    return kinds;
  };
  const auto backward = [&](const Tensor& q, const Tensor& v, const Tensor& grad) {
    return launched(kBackwardFlash, {grad, q, q, v, v, random.tensor({1, 2, 300}), none, none,
                                     std::int64_t{300}, std::int64_t{300}, 0.0, true, none, none, 0.2});
  };
  CHECK(forward(rows(24), rows(16)) == Kinds{TaskKind::kCausalCover, TaskKind::kFusedForwardBfloat16By64});
  CHECK(forward(rows(128), rows(64)) == Kinds{TaskKind::kCausalCover, TaskKind::kFusedForwardBfloat16By128});
  CHECK(backward(rows(192), rows(128), rows(128)) == Kinds{TaskKind::kCausalCover, TaskKind::kDelta,
                                                           TaskKind::kFusedQueriesBfloat16By192,
                                                           TaskKind::kFusedKeysBfloat16By192});
  // Too wide; the gradient of another dtype.
  CHECK(forward(rows(200), rows(128))[1] == TaskKind::kMatmulBfloat16NT4);
  CHECK(forward(rows(128), rows(136))[1] == TaskKind::kMatmulBfloat16NT4);
  CHECK(backward(rows(24), rows(16), random.tensor({1, 2, 300, 16})).size() == 8);
  const Flex biased(Flex::Scores::kBiased, Flex::Tables::kOneBlock);
  const Kinds kinds = launched("higher_order.flex_attention", biased.forward_args());
  CHECK(std::find(kinds.begin(), kinds.end(), TaskKind::kFusedForwardBfloat16By64) == kinds.end());
}

// So `check` finds whole and divided batches, and queries, the same.
TEST_CASE("a row of fused attention has the same bits whatever other rows there are") {
  Random random;
  const Tensor q = bf16(random, {2, 2, 150, 24}), k = bf16(random, {2, 2, 150, 24}),
               v = bf16(random, {2, 2, 150, 16});
  const auto outputs = [&](const Tensor& query, const Tensor& key, const Tensor& value) {
    return run_fused(kForwardFlash, {query, key, value, 0.0, false, false, kSharp}).items()[0].tensor();
  };
  const auto part = [](const Tensor& tensor, std::int64_t batch, std::int64_t row) {
    Extents sizes = tensor.sizes;
    sizes[0] -= batch;
    sizes[2] -= row;
    return tensor.view(sizes, tensor.strides,
                       tensor.offset + batch * tensor.strides[0] + row * tensor.strides[2]);
  };
  const Tensor whole = outputs(q, k, v);
  CHECK(floats_of(outputs(part(q, 1, 0), part(k, 1, 0), part(v, 1, 0))) == floats_of(part(whole, 1, 0)));
  CHECK(floats_of(outputs(part(q, 0, 37), k, v)) == floats_of(part(whole, 0, 37)));
}

}  // namespace epweave::replay
