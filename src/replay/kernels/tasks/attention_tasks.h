// What attention does with matrices of scores (device/attention.h): weights and their sums, and the
// gradients of scores. A row of a slab, its heads' queries one behind the other, has 16 threads:
// thread l takes the keys l, l + 16, ..., as the lanes of sums do (math/sum_order.h).
#pragma once

#include "replay/kernels/tasks/row_tasks.h"

namespace epweave::replay::tasks {

// Which pairs of a slab count. Queries count from `first_query`, which begins a block, or all lie
// inside one.
struct PairRules {
  std::int64_t queries, keys, first_query;
  const std::uint8_t* cover;  // [head, q block, k block], from the block of the first query on
  std::int64_t q_block, k_block, q_blocks, k_blocks;
  const std::uint32_t* mask;                 // a bit for each pair; null: none
  std::int64_t mask_of_head, mask_of_query;  // words from one to the next
  bool is_causal;

  // What the table says of a pair's block: 0 if it is not looked at, 1 if the mask counts there.
  EPWEAVE_HD const std::uint8_t* blocks_of(std::int64_t head, std::int64_t query) const {
    return cover + (head * q_blocks + query / q_block) * k_blocks;
  }
  // Whether a pair of a block that is looked at counts.
  EPWEAVE_HD bool keeps(std::uint8_t block, std::int64_t head, std::int64_t query, std::int64_t key) const {
    if (is_causal && key > first_query + query) return false;
    if (block != 1 || mask == nullptr) return true;
    return (mask[head * mask_of_head + query * mask_of_query + key / 32] >> (key % 32) & 1u) != 0;
  }
};

// The keys that one row looks at, and which of them count.
struct RowOfPairs {
  const std::uint8_t* blocks;  // of the table, by key
  const std::uint32_t* mask;   // null: none
  std::int64_t end;            // keys from here on do not count

  EPWEAVE_HD RowOfPairs(const PairRules& rules, std::int64_t row) {
    const std::int64_t head = row / rules.queries, query = row % rules.queries;
    blocks = rules.blocks_of(head, query);
    mask = rules.mask == nullptr ? nullptr
                                 : rules.mask + head * rules.mask_of_head + query * rules.mask_of_query;
    end = rules.is_causal && rules.first_query + query + 1 < rules.keys ? rules.first_query + query + 1
                                                                        : rules.keys;
  }
};

// visitor.take(key, held, whether the pair counts) for the lane's keys of all blocks that the row
// looks at, ascending; `held` is visitor.load(key), several of them loaded at a time. Keys are
// at most 2^30 (kScoreBytes). Whether it counts is known of most pairs: those that no mask and
// no end of the row concerns.
template <class Visitor>
EPWEAVE_HD void visit_lane(const PairRules& rules, std::int64_t row, int lane, Visitor& visitor) {
  constexpr int kLanes = static_cast<int>(math::kLanes), kStep = kAhead * kLanes;
  RowOfPairs pairs(rules, row);
  const int keys = static_cast<int>(rules.keys), kept_end = static_cast<int>(pairs.end),
            k_block = rules.k_block < rules.keys ? static_cast<int>(rules.k_block) : keys;
  for (int first = 0; first < keys; first += k_block, ++pairs.blocks) {
    const std::uint8_t block = *pairs.blocks;
    if (block == 0) continue;
    const std::uint32_t* mask = block == 1 ? pairs.mask : nullptr;
    const int end = k_block < keys - first ? first + k_block : keys;
    // The first key of the block that is the lane's.
    int k = first + (lane + kLanes - first % kLanes) % kLanes;
    const int plain_end = mask != nullptr ? first : kept_end < end ? kept_end : end;
    EPWEAVE_NO_UNROLL
    for (; k < plain_end - (kStep - kLanes); k += kStep) {
      typename Visitor::Held held[kAhead];
      EPWEAVE_UNROLL
      for (int i = 0; i < kAhead; ++i) held[i] = visitor.load(k + i * kLanes);
      EPWEAVE_UNROLL
      for (int i = 0; i < kAhead; ++i) visitor.take(k + i * kLanes, held[i], true);
    }
    EPWEAVE_NO_UNROLL
    for (; k < end; k += kStep) {
      typename Visitor::Held held[kAhead] = {};
      std::uint32_t words[kAhead] = {};
      EPWEAVE_UNROLL
      for (int i = 0; i < kAhead; ++i)
        if (i * kLanes < end - k) held[i] = visitor.load(k + i * kLanes);
      EPWEAVE_UNROLL
      for (int i = 0; i < kAhead; ++i) words[i] = ~0u;
      if (mask != nullptr) {
        EPWEAVE_UNROLL
        for (int i = 0; i < kAhead; ++i)
          if (i * kLanes < end - k) words[i] = mask[static_cast<unsigned>(k + i * kLanes) / 32];
      }
      EPWEAVE_UNROLL
      for (int i = 0; i < kAhead; ++i) {
        if (i * kLanes >= end - k) continue;
        const int key = k + i * kLanes;
        const bool is_kept = (words[i] >> (key & 31) & 1u) != 0 && key < kept_end;
        visitor.take(key, held[i], is_kept);
      }
    }
  }
}

// Tasks of 16 rows for each block of threads: what those below have in common.
struct LaneBlocks {
  static constexpr int kThreads = 256, kBlocks = 4, kLanes = math::kLanes, kRows = kThreads / kLanes;

  struct Part {
    std::int64_t row;
  };
  EPWEAVE_HD static Part part_of(std::uint32_t block) { return {static_cast<std::int64_t>(block) * kRows}; }
  EPWEAVE_HD static std::int64_t count_blocks(std::int64_t rows) { return (rows + kRows - 1) / kRows; }
  EPWEAVE_HD static int row_of(int thread) { return thread / kLanes; }
  EPWEAVE_HD static int lane_of(int thread) { return thread % kLanes; }
  EPWEAVE_HD static constexpr bool has_steps(const Part&, int) { return true; }
  // What they make is in memory when their steps are over.
  template <class Registers>
  EPWEAVE_HD static void store(const Part&, int, const Registers&) {}
};

// scores -> exp(scale * score - the row's maximum); of each row the sum, the maximum and the
// logarithm of the sum of exp(score). Pairs that do not count have a weight of 0; of blocks that
// are not looked at nothing is read or written. In four steps, three barriers between them.
struct WeighTask : LaneBlocks {
  static constexpr int kPhases = 2;

  PairRules rules;
  float* scores;  // [row, key]
  std::int64_t rows;
  float scale;
  double unit;           // of the logarithm and the maximum, the natural logarithm having 1
  float* divisors;       // the sum; 1 where no pair counts
  float *lse, *maximum;  // in units; the latter may be null

  struct Shared {
    float largest[kRows][kLanes], sums[kRows][kLanes];
    int at[kRows][kLanes];  // where the largest is
  };
  struct Registers {
    float maximum;
  };

  struct Largest {
    using Held = float;
    const float* scores;
    float scale, best;
    int at;
    EPWEAVE_HD float load(int key) const { return scores[key]; }
    EPWEAVE_HD void take(int key, float score, bool is_kept) {
      const float x = score * scale;
      if (!is_kept || !(x > best || x != x)) return;
      best = x;
      at = key;
    }
  };
  struct Weigh {
    using Held = float;
    float* scores;
    float scale, maximum, sum;
    EPWEAVE_HD float load(int key) const { return scores[key]; }
    EPWEAVE_HD void take(int key, float score, bool is_kept) {
      const float x = is_kept ? score * scale : -math::infinity<float>();
      const float weight = math::ShiftedExp::apply(x, maximum);
      sum = sum + weight;
      scores[key] = weight;
    }
  };

  EPWEAVE_HD bool has_work(const Part& part) const { return part.row < rows; }
  EPWEAVE_HD static constexpr int chunks(const Part&) { return 1; }

  EPWEAVE_HD void start(const Part& part, int thread, Shared& shared, Registers&) const {
    const int row = row_of(thread), lane = lane_of(thread);
    if (part.row + row >= rows) return;
    Largest largest{scores + (part.row + row) * rules.keys, scale, -math::infinity<float>(), 0};
    visit_lane(rules, part.row + row, lane, largest);
    shared.largest[row][lane] = largest.best;
    shared.at[row][lane] = largest.at;
  }

  template <int kPhase>
  EPWEAVE_HD void phase(const Part& part, int, int thread, Shared& shared, Registers& r) const {
    const int row = row_of(thread), lane = lane_of(thread);
    if (part.row + row >= rows) return;
    if constexpr (kPhase == 0) {
      r.maximum = largest_of(shared.largest[row], shared.at[row]);
      Weigh weigh{scores + (part.row + row) * rules.keys, scale, r.maximum, 0.0f};
      visit_lane(rules, part.row + row, lane, weigh);
      shared.sums[row][lane] = weigh.sum;
    } else if (lane == 0) {
      const bool is_empty = r.maximum == -math::infinity<float>();
      const float total = math::add_lanes(shared.sums[row]);
      const double natural =
          math::LogSumExp::apply(static_cast<double>(r.maximum), static_cast<double>(total));
      divisors[part.row + row] = is_empty ? 1.0f : total;
      lse[part.row + row] = static_cast<float>(natural / unit);
      if (maximum != nullptr)
        maximum[part.row + row] = static_cast<float>(static_cast<double>(r.maximum) / unit);
    }
  }

 private:
  // Of equal ones the first in the row (zeros have signs); NaN wins.
  EPWEAVE_HD static float largest_of(const float* largest, const int* at) {
    int best = 0;
    for (int l = 1; l < kLanes; ++l) {
      const bool is_nan = largest[l] != largest[l];
      const bool is_first = largest[l] == largest[best] && at[l] < at[best];
      if (largest[best] == largest[best] && (is_nan || largest[l] > largest[best] || is_first)) best = l;
    }
    return largest[best];
  }
};

// Backward. scores -> weights: exp(score_scale * score - logsumexp); grad, of the weights -> of the
// scores: weight * (grad - delta) * grad_scale. One phase: no thread needs another's. C: float or
// double.
template <class C>
struct WeighBackwardTask : LaneBlocks {
  static constexpr int kBlocks = sizeof(C) == sizeof(double) ? 2 : 4, kPhases = 1;

  PairRules rules;
  C *scores, *grad;  // [row, key]
  std::int64_t rows;
  C score_scale, grad_scale;
  double unit;           // of the logarithm, the natural one having 1
  const C *lse, *delta;  // of each row

  struct Shared {};
  struct Registers {};

  struct Held {
    C score, grad;
  };
  struct Visitor {
    using Held = WeighBackwardTask::Held;
    C *scores, *grad;
    C score_scale, grad_scale, lse, delta;
    EPWEAVE_HD Held load(int key) const { return {scores[key], grad[key]}; }
    EPWEAVE_HD void take(int key, const Held& held, bool is_kept) {
      const C x = is_kept ? held.score * score_scale : -math::infinity<C>();
      const C weight = math::ShiftedExp::apply(x, lse);
      scores[key] = weight;
      grad[key] = math::KeepGradient::apply(grad_scale, x, weight * (held.grad - delta));
    }
  };

  EPWEAVE_HD bool has_work(const Part& part) const { return part.row < rows; }
  EPWEAVE_HD static constexpr int chunks(const Part&) { return 0; }
  EPWEAVE_HD void start(const Part& part, int thread, Shared&, Registers&) const {
    const std::int64_t row = part.row + row_of(thread);
    if (row >= rows) return;
    const C natural = static_cast<C>(static_cast<double>(lse[row]) * unit);
    Visitor visitor{
        scores + row * rules.keys, grad + row * rules.keys, score_scale, grad_scale, natural, delta[row]};
    visit_lane(rules, row, lane_of(thread), visitor);
  }
  template <int>
  EPWEAVE_HD void phase(const Part&, int, int, Shared&, Registers&) const {}
};

// Rows [batch, head, query] of a tensor whose last dimension is `length` elements.
struct HeadRows {
  const void* data;
  std::int64_t strides[4];
  Stored stored;

  EPWEAVE_HD std::int64_t at(std::int64_t batch, std::int64_t head, std::int64_t query) const {
    return batch * strides[0] + head * strides[1] + query * strides[2];
  }
};

// delta[row] = the sum of out * grad_out, less the gradient of the logsumexp. C: float or double.
template <class C>
struct DeltaTask : LaneBlocks {
  static constexpr int kPhases = 1;

  HeadRows out, grad_out;
  std::int64_t rows, heads, queries, length;
  double unit;        // of the logsumexp, the natural one having 1
  const C* grad_lse;  // of each row; null: none
  C* delta;

  struct Shared {
    C sums[kRows][kLanes];
  };
  struct Registers {};

  EPWEAVE_HD bool has_work(const Part& part) const { return part.row < rows; }
  EPWEAVE_HD static constexpr int chunks(const Part&) { return 1; }
  EPWEAVE_HD void start(const Part& part, int thread, Shared& shared, Registers&) const {
    const std::int64_t row = part.row + row_of(thread);
    if (row >= rows) return;
    const std::int64_t query = row % queries, head = row / queries % heads, batch = row / queries / heads;
    const std::int64_t x = out.at(batch, head, query), y = grad_out.at(batch, head, query);
    C sum = C(0);
    for (std::int64_t e = lane_of(thread); e < length; e += kLanes)
      sum = sum + math::load_element<C>(out.data, out.stored, x + e * out.strides[3]) *
                      math::load_element<C>(grad_out.data, grad_out.stored, y + e * grad_out.strides[3]);
    shared.sums[row_of(thread)][lane_of(thread)] = sum;
  }
  template <int>
  EPWEAVE_HD void phase(const Part& part, int, int thread, Shared& shared, Registers&) const {
    const std::int64_t row = part.row + row_of(thread);
    if (row >= rows || lane_of(thread) != 0) return;
    const C total = math::add_lanes(shared.sums[row_of(thread)]);
    delta[row] =
        grad_lse == nullptr ? total : total - static_cast<C>(static_cast<double>(grad_lse[row]) / unit);
  }
};

// Scores of pairs that are not looked at, or that do not count, become -inf. Index: (head, query,
// key).
struct MaskScoresTask {
  PairRules rules;
  void* scores;
  Stored stored;

  EPWEAVE_HD void run(std::int64_t i) const {
    const std::int64_t k = i % rules.keys, q = i / rules.keys % rules.queries,
                       head = i / rules.keys / rules.queries;
    const std::uint8_t block = rules.blocks_of(head, q)[k / rules.k_block];
    if (block == 0 || !rules.keeps(block, head, q, k))
      math::store_element(scores, stored, i, -math::infinity<float>());
  }
};

// A mask function's elementwise steps, made one kernel: the value of each pair in one go. Strides
// are over (head, query, key). Nothing is padded: of an array in an array g++ 12 clears more bytes
// than the padding (shared/launch.h).
struct PairProgram {
  static constexpr int kMostSteps = 12;

  struct Operand {
    const void* data;  // null: the value of an earlier step
    std::int64_t strides[3];
    std::int32_t step;
    Stored stored;
    std::uint8_t unused[3];
  };
  struct Step {
    Operand in[3];
    Number number;
    int inputs;
    ElementOp op;
    Compute compute;  // kInt or kFloat
    Stored stored;    // the value is rounded to it
    std::uint8_t unused;
  };
  static_assert(sizeof(Step) == 3 * sizeof(Operand) + sizeof(Number) + 8);
  Step steps[kMostSteps];
  std::int64_t count;

  // Whether the last step's value is not 0.
  EPWEAVE_HD bool holds(std::int64_t head, std::int64_t query, std::int64_t key) const {
    std::uint64_t values[kMostSteps] = {};
    EPWEAVE_NO_UNROLL
    for (std::int64_t i = 0; i < count; ++i)
      if (steps[i].compute == Compute::kFloat)
        run<float>(i, head, query, key, values);
      else
        run<std::int64_t>(i, head, query, key, values);
    return math::load_element<std::int64_t>(&values[count - 1], steps[count - 1].stored, 0) != 0;
  }

 private:
  template <class C>
  EPWEAVE_HD void run(std::int64_t i, std::int64_t head, std::int64_t query, std::int64_t key,
                      std::uint64_t* values) const {
    const Step& step = steps[i];
    const auto load = [&](const Operand& in) {
      return in.data == nullptr
                 ? math::load_element<C>(&values[in.step], in.stored, 0)
                 : math::load_element<C>(in.data, in.stored,
                                         head * in.strides[0] + query * in.strides[1] + key * in.strides[2]);
    };
    math::ElementArgs<C> args{step.number.as<C>(), C(0), C(0), C(0)};
    C result = args.number;
    if (step.inputs > 0) args.x = load(step.in[0]);
    if (step.inputs > 1) args.y = load(step.in[1]);
    if (step.inputs > 2) args.z = load(step.in[2]);
    if (step.inputs == 1) result = math::apply_unary(step.op, args);
    if (step.inputs == 2) result = math::apply_binary(step.op, args);
    if (step.inputs == 3) result = math::apply_ternary(step.op, args);
    math::store_element(&values[i], step.stored, 0, result);
  }
};
// Bits of the mask that a program computes, `words` of 32 for each query. Index: (head, query,
// word).
struct PackProgramTask {
  PairProgram program;
  std::int64_t first_head, queries, keys, words;
  std::uint32_t* bits;
  std::int64_t bits_of_head;  // words from one head to the next

  EPWEAVE_HD void run(std::int64_t i) const {
    const std::int64_t word = i % words, q = i / words % queries, head = i / words / queries;
    const std::int64_t left = keys - word * 32;
    std::uint32_t packed = 0;
    EPWEAVE_NO_UNROLL
    for (int b = 0; b < 32 && b < left; ++b)
      if (program.holds(first_head + head, q, word * 32 + b)) packed |= 1u << b;
    bits[head * bits_of_head + q * words + word] = packed;
  }
};

// Bits of a mask of bools [head, query, key], `words` of 32 for each query. Index: (head, query,
// word).
struct PackMaskTask {
  const std::uint8_t* mask;
  std::int64_t strides[3];
  std::int64_t queries, keys, words;
  std::uint32_t* bits;
  std::int64_t bits_of_head;  // words from one head to the next

  EPWEAVE_HD void run(std::int64_t i) const {
    const std::int64_t word = i % words, q = i / words % queries, head = i / words / queries;
    const std::uint8_t* from = mask + head * strides[0] + q * strides[1] + word * 32 * strides[2];
    const std::int64_t left = keys - word * 32;
    std::uint32_t packed = 0;
    for (int b = 0; b < 32; ++b)
      if (b < left && from[b * strides[2]] != 0) packed |= 1u << b;
    bits[head * bits_of_head + q * words + word] = packed;
  }
};

}  // namespace epweave::replay::tasks
