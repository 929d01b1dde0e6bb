// Attention: FlexAttention with its score and mask functions and block tables, and scaled dot product
// attention.
//
// For each query row, in float32:
//   score(j)  = (chain of fused multiply-adds over the head dimension) * scale, then the score function; a
//               masked pair has -inf
//   weight(j) = exp(score(j) - the row's maximum)
//   total     = the sum of all weights by ascending key: 16 lanes by key position modulo 16, as in sum.h
//   out       = (chain over ascending keys of weight(j) * value(j)) / total
// A row without any key gives 0 and a logsumexp of -inf. A masked pair adds exactly 0, so it does not matter
// whether its block is visited; but what the block tables leave out is never looked at, whatever the mask
// function says there, and a full block is not masked.
//
// Backward, with weight(j) = exp(score(j) - logsumexp) and delta = ordered_sum(out * grad_out):
//   d score        = weight * (grad_out . value - delta + d logsumexp), through the score function's
//                    derivative, * scale
//   d query        = chain over ascending keys
//   d key, d value = chains over (query head of the group, query), ascending
// Nothing but the results is rounded to 16 bits.
#include <cmath>
#include <functional>
#include <limits>
#include <map>

#include "replay/cpu/attention_call.h"
#include "replay/cpu/kernels.h"
#include "replay/cpu/operands.h"
#include "replay/cpu/product.h"
#include "replay/cpu/sum.h"
#include "replay/cpu/vector_math.h"

namespace epweave::replay::cpu {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::size_t at(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

// Rows [q_first, q_first + rows) of queries against keys [k_first, k_first + width).
struct Tile {
  std::int64_t batch = 0, head = 0;
  std::int64_t q_first = 0, rows = 0;
  std::int64_t k_first = 0, width = 0;
  bool is_full = false;  // no mask
};

// What distinguishes the kinds of attention. Matrices are row-major [rows, width].
class Kind {
 public:
  virtual ~Kind() = default;
  // The blocks of keys that queries of block `q_block` look at, ascending: their tiles without extents.
  struct Block {
    std::int64_t index = 0;
    bool is_full = false;
    friend auto operator<=>(const Block&, const Block&) = default;
  };
  virtual std::vector<Block> blocks(std::int64_t batch, std::int64_t head, std::int64_t q_block) = 0;
  // Changes scaled scores into what the softmax sees.
  virtual void modify(const Tile& tile, Buffer<float>& scores) = 0;
  // Changes the gradient of those into the gradient of the scaled scores (`before`: scores before modify).
  virtual void modify_backward(const Tile& tile, const Buffer<float>& before, Buffer<float>& grad) = 0;
};

struct Problem : AttentionShape {
  float scale = 1;
  Buffer<float> query, key, value;  // [batch, head, row, depth]

  std::int64_t kv_slab(std::int64_t batch, std::int64_t head) const {
    return (kv_batches == 1 ? 0 : batch) * kv_heads + head / group();
  }
  Matrix<float> query_rows(const Tile& t) const {
    return {query.data() + ((t.batch * heads + t.head) * queries + t.q_first) * depth, t.rows, depth, depth,
            1};
  }
  Matrix<float> key_rows(const Tile& t) const {
    return {key.data() + (kv_slab(t.batch, t.head) * keys + t.k_first) * depth, t.width, depth, depth, 1};
  }
  Matrix<float> value_rows(const Tile& t) const {
    return {value.data() + (kv_slab(t.batch, t.head) * keys + t.k_first) * value_depth, t.width, value_depth,
            value_depth, 1};
  }
};

Problem read_problem(const Tensor& query, const Tensor& key, const Tensor& value, double scale) {
  Problem p{read_attention_shape(query, key, value), 1, {}, {}, {}};
  p.scale = static_cast<float>(scale);
  p.query = dense<float>(query);
  p.key = dense<float>(key);
  p.value = dense<float>(value);
  return p;
}

// Adds x[0..n) to 16 lanes by position.
void add_to_lanes(float (&lanes)[kLanes], const float* x, std::int64_t n, std::int64_t position) {
  std::int64_t i = 0;
  if (position % kLanes == 0)
    for (; i + kLanes <= n; i += kLanes)
      for (std::int64_t l = 0; l < kLanes; ++l) lanes[l] += x[i + l];
  for (; i < n; ++i) lanes[(position + i) % kLanes] += x[i];
}
float add_lanes(float (&lanes)[kLanes]) {
  for (std::int64_t half = kLanes / 2; half > 0; half /= 2)
    for (std::int64_t l = 0; l < half; ++l) lanes[l] += lanes[l + half];
  return lanes[0];
}

// The tiles of one block of queries, ascending by key.
std::vector<Tile> tiles_of(const Problem& p, Kind& kind, Tile rows) {
  std::vector<Tile> tiles;
  for (const Kind::Block& block : kind.blocks(rows.batch, rows.head, rows.q_first / p.q_block)) {
    rows.k_first = block.index * p.k_block;
    rows.width = std::min(p.k_block, p.keys - rows.k_first);
    rows.is_full = block.is_full;
    if (rows.width > 0) tiles.push_back(rows);
  }
  return tiles;
}

Buffer<float> scaled_scores(const Problem& p, const Tile& tile) {
  Buffer<float> scores(at(tile.rows * tile.width));
  multiply(p.query_rows(tile), p.key_rows(tile).transposed(), scores.data(), tile.width);
  for (float& score : scores) score = score * p.scale;
  return scores;
}

template <class Visit>
void for_each_query_block(const Problem& p, const Visit& visit) {
  for (std::int64_t b = 0; b < p.batches; ++b)
    for (std::int64_t h = 0; h < p.heads; ++h)
      for (std::int64_t q = 0; q < p.queries; q += p.q_block)
        visit(Tile{b, h, q, std::min(p.q_block, p.queries - q), 0, 0, false});
}

struct Forward {
  Buffer<float> out;   // [batch, head, query, value_depth]
  Buffer<double> lse;  // natural
  Buffer<float> maximum;
};
Forward run_forward(const Problem& p, Kind& kind) {
  const std::int64_t rows_total = p.batches * p.heads * p.queries;
  Forward result{Buffer<float>(at(rows_total * p.value_depth), 0.0f), Buffer<double>(at(rows_total)),
                 Buffer<float>(at(rows_total))};
  for_each_query_block(p, [&](const Tile& block) {
    const std::vector<Tile> tiles = tiles_of(p, kind, block);
    std::vector<Buffer<float>> scores;
    Buffer<float> maximum(at(block.rows), -kInfinity);
    for (const Tile& tile : tiles) {
      scores.push_back(scaled_scores(p, tile));
      kind.modify(tile, scores.back());
      for (std::int64_t r = 0; r < tile.rows; ++r)
        maximum[at(r)] = maximum_run(tile.width, scores.back().data() + r * tile.width, maximum[at(r)]);
    }
    const std::int64_t row_first = (block.batch * p.heads + block.head) * p.queries + block.q_first;
    float* out = result.out.data() + row_first * p.value_depth;
    std::vector<std::array<float, kLanes>> lanes(at(block.rows), std::array<float, kLanes>{});
    for (std::size_t k = 0; k < tiles.size(); ++k) {
      const Tile& tile = tiles[k];
      for (std::int64_t r = 0; r < tile.rows; ++r) {
        float* row = scores[k].data() + r * tile.width;
        if (maximum[at(r)] == -kInfinity)
          std::fill(row, row + tile.width, 0.0f);
        else
          exp_shifted_run(tile.width, row, row, maximum[at(r)]);
        add_to_lanes(*reinterpret_cast<float(*)[kLanes]>(lanes[at(r)].data()), row, tile.width, tile.k_first);
      }
      multiply({scores[k].data(), tile.rows, tile.width, tile.width, 1}, p.value_rows(tile), out,
               p.value_depth, Start::kAccumulate);
    }
    for (std::int64_t r = 0; r < block.rows; ++r) {
      const float total = add_lanes(*reinterpret_cast<float(*)[kLanes]>(lanes[at(r)].data()));
      const float m = maximum[at(r)];
      result.maximum[at(row_first + r)] = m;
      result.lse[at(row_first + r)] = m == -kInfinity
                                          ? -static_cast<double>(kInfinity)
                                          : static_cast<double>(m) + math::log(static_cast<double>(total));
      if (m == -kInfinity) continue;
      for (std::int64_t e = 0; e < p.value_depth; ++e)
        out[r * p.value_depth + e] = out[r * p.value_depth + e] / total;
    }
  });
  return result;
}

struct Saved {
  Buffer<float> out, grad_out;
  Buffer<float> lse;       // natural
  Buffer<float> grad_lse;  // natural; empty: none
};
struct Gradients {
  Buffer<float> query, key, value;
};
Gradients run_backward(const Problem& p, Kind& kind, const Saved& saved) {
  Gradients grads{Buffer<float>(p.query.size(), 0.0f), Buffer<float>(p.key.size(), 0.0f),
                  Buffer<float>(p.value.size(), 0.0f)};
  Buffer<float> products(at(p.value_depth));
  for_each_query_block(p, [&](const Tile& block) {
    const std::int64_t row_first = (block.batch * p.heads + block.head) * p.queries + block.q_first;
    const float* grad_out = saved.grad_out.data() + row_first * p.value_depth;
    const Matrix<float> grad_rows{grad_out, block.rows, p.value_depth, p.value_depth, 1};
    Buffer<float> delta(at(block.rows));
    for (std::int64_t r = 0; r < block.rows; ++r) {
      const float* out = saved.out.data() + (row_first + r) * p.value_depth;
      for (std::int64_t e = 0; e < p.value_depth; ++e)
        products[at(e)] = out[e] * grad_out[r * p.value_depth + e];
      delta[at(r)] = ordered_sum(products.data(), p.value_depth);
      if (!saved.grad_lse.empty()) delta[at(r)] = delta[at(r)] - saved.grad_lse[at(row_first + r)];
    }
    for (const Tile& tile : tiles_of(p, kind, block)) {
      const Buffer<float> before = scaled_scores(p, tile);
      Buffer<float> weights = before;
      kind.modify(tile, weights);
      std::vector<char> is_masked(weights.size());
      for (std::int64_t r = 0; r < tile.rows; ++r) {
        float* row = weights.data() + r * tile.width;
        for (std::int64_t j = 0; j < tile.width; ++j)
          is_masked[at(r * tile.width + j)] = row[j] == -kInfinity;
        const float lse = saved.lse[at(row_first + r)];
        if (lse == -kInfinity)
          std::fill(row, row + tile.width, 0.0f);
        else
          exp_shifted_run(tile.width, row, row, lse);
      }
      const std::int64_t slab = p.kv_slab(tile.batch, tile.head) * p.keys + tile.k_first;
      multiply(Matrix<float>{weights.data(), tile.rows, tile.width, tile.width, 1}.transposed(), grad_rows,
               grads.value.data() + slab * p.value_depth, p.value_depth, Start::kAccumulate);
      Buffer<float> grad(weights.size());
      multiply(grad_rows, p.value_rows(tile).transposed(), grad.data(), tile.width);
      for (std::int64_t r = 0; r < tile.rows; ++r)
        for (std::int64_t j = 0; j < tile.width; ++j) {
          const std::size_t i = at(r * tile.width + j);
          grad[i] = weights[i] * (grad[i] - delta[at(r)]);
        }
      kind.modify_backward(tile, before, grad);
      for (std::size_t i = 0; i < grad.size(); ++i) grad[i] = is_masked[i] != 0 ? 0.0f : grad[i] * p.scale;
      const Matrix<float> grad_scores{grad.data(), tile.rows, tile.width, tile.width, 1};
      multiply(grad_scores, p.key_rows(tile), grads.query.data() + row_first * p.depth, p.depth,
               Start::kAccumulate);
      multiply(grad_scores.transposed(), p.query_rows(tile), grads.key.data() + slab * p.depth, p.depth,
               Start::kAccumulate);
    }
  });
  return grads;
}

Tensor result_of(KernelCall& call, std::size_t i, const Tensor& like, const Buffer<float>& values) {
  Tensor out = call.make_result(i, like.dtype, like.sizes);
  store_dense(values, out);
  return out;
}

// ---- scaled dot product -------------------------------------------------------------------

// Causal masks begin at the first query and the first key, as torch's do.
class DotProduct : public Kind {
 public:
  DotProduct(const Problem& p, bool is_causal, const Value& bias) : p_(p), is_causal_(is_causal) {
    if (bias.is_none()) return;
    const Extents sizes{p.batches, p.heads, p.queries, p.keys};
    const Operand operand = broadcast_operand(bias.tensor(), sizes);
    const Tensor& tensor = bias.tensor();
    const Tensor full{tensor.dtype, sizes, operand.strides, tensor.offset, tensor.storage};
    bias_ = dense<float>(full);
    if (tensor.dtype == DType::kBool)
      for (float& x : bias_) x = x != 0.0f ? 0.0f : -kInfinity;
  }
  std::vector<Block> blocks(std::int64_t, std::int64_t, std::int64_t q_block) override {
    std::vector<Block> all;
    const std::int64_t last_query = std::min((q_block + 1) * p_.q_block, p_.queries) - 1;
    for (std::int64_t k = 0; k * p_.k_block < p_.keys; ++k)
      if (!is_causal_ || k * p_.k_block <= last_query) all.push_back({k, false});
    return all;
  }
  void modify(const Tile& t, Buffer<float>& scores) override {
    for (std::int64_t r = 0; r < t.rows; ++r)
      for (std::int64_t j = 0; j < t.width; ++j) {
        const std::int64_t q = t.q_first + r, k = t.k_first + j;
        float& score = scores[at(r * t.width + j)];
        if (!bias_.empty())
          score = score + bias_[at(((t.batch * p_.heads + t.head) * p_.queries + q) * p_.keys + k)];
        if (is_causal_ && k > q) score = -kInfinity;
      }
  }
  void modify_backward(const Tile&, const Buffer<float>&, Buffer<float>&) override {}

 private:
  const Problem& p_;
  bool is_causal_;
  Buffer<float> bias_;
};

DotProductResult dot_product(KernelCall& call, const DotProductParams& at_param) {
  const DotProductCall c = read_dot_product(call, at_param);
  const Problem p = read_problem(c.query, c.key, c.value, c.scale);
  DotProduct kind(p, c.is_causal, c.bias);
  const Forward forward = run_forward(p, kind);
  Tensor out = call.make_result(0, c.query.dtype, {p.batches, p.heads, p.queries, p.value_depth});
  store_dense(forward.out, out);
  Tensor lse = call.make_result(1, DType::kFloat32, logsumexp_sizes(call, p));
  const auto rows = logsumexp_of_queries(lse, p);
  if (!rows || rows->numel() != lse.numel()) fill_elements(lse, Value(0.0));
  if (rows) store_dense(forward.lse, *rows);
  return {out, lse};
}
Value cudnn_attention(KernelCall& call) {
  return fused_attention_result(call, dot_product(call, kCudnn));
}
Value flash_attention(KernelCall& call) {
  return fused_attention_result(call, dot_product(call, kFlash));
}
Value efficient_attention(KernelCall& call) {
  return efficient_attention_result(call, dot_product(call, kEfficient));
}

// grad_out, query, key, value come first everywhere.
std::vector<Value> dot_product_backward(KernelCall& call, const DotProductParams& at_param) {
  const DotProductCall c = read_dot_product(call, at_param);
  const Problem p = read_problem(c.query, c.key, c.value, c.scale);
  DotProduct kind(p, c.is_causal, c.bias);
  const Saved saved{dense<float>(call.tensor(at_param.out)),
                    dense<float>(call.tensor(0)),
                    dense<float>(require_logsumexp(call.tensor(at_param.lse), p)),
                    {}};
  const Gradients grads = run_backward(p, kind, saved);
  return {result_of(call, 0, c.query, grads.query), result_of(call, 1, c.key, grads.key),
          result_of(call, 2, c.value, grads.value)};
}
Value cudnn_attention_backward(KernelCall& call) {
  return Value::tuple(dot_product_backward(call, kCudnnBackward));
}
Value flash_attention_backward(KernelCall& call) {
  return Value::tuple(dot_product_backward(call, kFlashBackward));
}
Value efficient_attention_backward(KernelCall& call) {
  return efficient_backward_result(call, dot_product_backward(call, kEfficientBackward));
}

// ---- FlexAttention ------------------------------------------------------------------------

// A count and a list of blocks per batch, head and block; batch and head may be 1 for all.
class BlockTable {
 public:
  BlockTable() = default;
  BlockTable(const Value& counts, const Value& indices) {
    if (counts.is_none()) return;
    sizes_ = indices.tensor().sizes;
    counts_ = dense<std::int64_t>(counts.tensor());
    indices_ = dense<std::int64_t>(indices.tensor());
    if (sizes_.size() != 4 || static_cast<std::int64_t>(counts_.size()) != sizes_[0] * sizes_[1] * sizes_[2])
      throw KernelError("flex_attention: a block table has other sizes than its counts");
  }
  bool empty() const { return sizes_.empty(); }
  std::span<const std::int64_t> list(std::int64_t batch, std::int64_t head, std::int64_t block) const {
    if (empty()) return {};
    if (block >= sizes_[2] || (sizes_[0] != 1 && batch >= sizes_[0]) || (sizes_[1] != 1 && head >= sizes_[1]))
      throw KernelError("flex_attention: the block tables are too small for the queries and keys");
    const std::int64_t row =
        ((sizes_[0] == 1 ? 0 : batch) * sizes_[1] + (sizes_[1] == 1 ? 0 : head)) * sizes_[2] + block;
    const std::int64_t count = counts_[at(row)];
    if (count < 0 || count > sizes_[3])
      throw KernelError("flex_attention: a block count of " + std::to_string(count) + " for a table of " +
                        std::to_string(sizes_[3]));
    return std::span(indices_).subspan(at(row * sizes_[3]), at(count));
  }

 private:
  Extents sizes_;
  Buffer<std::int64_t> counts_, indices_;
};

class Flex : public Kind {
 public:
  // `score`: the score function; `joint`: its derivative, none in the forward direction.
  struct Functions {
    const Value* score = nullptr;
    const Value* joint = nullptr;
    const Value* score_captured = nullptr;
    const Value* mask_captured = nullptr;
  };
  Flex(KernelCall& call, Problem& p, const Value& block_mask, Functions functions)
      : call_(call), p_(p), functions_(functions) {
    const std::vector<Value>& items = block_mask.items();
    read_block_sizes(items, p);
    partial_ = BlockTable(items[2], items[3]);
    full_ = BlockTable(items[4], items[5]);
    partial_of_keys_ = BlockTable(items[6], items[7]);
    full_of_keys_ = BlockTable(items[8], items[9]);
    mask_ = &items.back();
  }

  // The backward kernels on GPUs find the queries of a key in tables of their own: they must name the same
  // pairs.
  void check_tables_agree() {
    if (partial_of_keys_.empty()) return;
    const std::int64_t q_blocks = p_.q_blocks(), k_blocks = p_.k_blocks();
    for (std::int64_t b = 0; b < p_.batches; ++b)
      for (std::int64_t h = 0; h < p_.heads; ++h) {
        std::vector<std::array<std::int64_t, 3>> by_query, by_key;
        for (std::int64_t q = 0; q < q_blocks; ++q)
          for (const Block& block : blocks(b, h, q)) by_query.push_back({q, block.index, block.is_full});
        for (std::int64_t k = 0; k < k_blocks; ++k) {
          for (std::int64_t q : partial_of_keys_.list(b, h, k)) by_key.push_back({q, k, 0});
          for (std::int64_t q : full_of_keys_.list(b, h, k)) by_key.push_back({q, k, 1});
        }
        std::sort(by_query.begin(), by_query.end());
        std::sort(by_key.begin(), by_key.end());
        if (by_query != by_key)
          throw KernelError(
              "flex_attention_backward: the block tables by query and by key name different pairs (batch " +
              std::to_string(b) + ", head " + std::to_string(h) + ")");
      }
  }

  std::vector<Block> blocks(std::int64_t batch, std::int64_t head, std::int64_t q_block) override {
    std::vector<Block> all;
    const std::int64_t count = p_.k_blocks();
    const auto add = [&](std::int64_t index, bool is_full) {
      if (index < 0 || index >= count)
        throw KernelError("flex_attention: key block " + std::to_string(index) + " of " +
                          std::to_string(count));
      all.push_back({index, is_full});
    };
    for (std::int64_t index : partial_.list(batch, head, q_block)) add(index, false);
    for (std::int64_t index : full_.list(batch, head, q_block)) add(index, true);
    std::sort(all.begin(), all.end());
    for (std::size_t i = 1; i < all.size(); ++i)
      if (all[i].index == all[i - 1].index)
        throw KernelError("flex_attention: key block " + std::to_string(all[i].index) + " is listed twice");
    return all;
  }

  void modify(const Tile& tile, Buffer<float>& scores) override {
    std::vector<Value> args = positions(tile);
    args.insert(args.begin(), matrix(tile, scores));
    append(args, *functions_.score_captured);
    read_matrix(tile, functions_.score->as<Function>().call(args), scores);
    if (tile.is_full) return;
    const std::vector<char>& mask = mask_of(tile);
    for (std::size_t i = 0; i < scores.size(); ++i)
      if (mask[i] == 0) scores[i] = -kInfinity;
  }

  void modify_backward(const Tile& tile, const Buffer<float>& before, Buffer<float>& grad) override {
    std::vector<Value> args = positions(tile);
    args.insert(args.begin(), matrix(tile, before));
    args.push_back(matrix(tile, grad));
    append(args, *functions_.score_captured);
    const Value result = functions_.joint->as<Function>().call(args);
    const std::vector<Value>& grads = result.items();
    refuse_captured_gradients(grads);
    read_matrix(tile, grads[0], grad);
  }

 private:
  Tensor matrix(const Tile& tile, const Buffer<float>& values) {
    Tensor tensor = call_.make(DType::kFloat32, {1, 1, tile.rows, tile.width});
    std::copy(values.begin(), values.end(), tensor.data<float>());
    return tensor;
  }
  // A result broadcastable to [1, 1, rows, width].
  template <class C>
  Buffer<C> broadcast_dense(const Tile& tile, const Tensor& tensor) {
    const Extents sizes{1, 1, tile.rows, tile.width};
    const Operand operand = broadcast_operand(tensor, sizes);
    return dense<C>(Tensor{tensor.dtype, sizes, operand.strides, tensor.offset, tensor.storage});
  }
  void read_matrix(const Tile& tile, const Value& value, Buffer<float>& to) {
    const Value& single = value.is<List>() ? value.items().at(0) : value;
    to = broadcast_dense<float>(tile, single.tensor());
  }
  Tensor range(std::int64_t first, std::int64_t count, Extents sizes) {
    Tensor tensor = call_.make(DType::kInt32, std::move(sizes));
    for (std::int64_t i = 0; i < count; ++i)
      tensor.data<std::int32_t>()[i] = static_cast<std::int32_t>(first + i);
    return tensor;
  }
  std::vector<Value> positions(const Tile& tile) {
    return {range(tile.batch, 1, {1, 1, 1, 1}), range(tile.head, 1, {1, 1, 1, 1}),
            range(tile.q_first, tile.rows, {1, 1, tile.rows, 1}),
            range(tile.k_first, tile.width, {1, 1, 1, tile.width})};
  }
  static void append(std::vector<Value>& args, const Value& captured) {
    for (const Value& item : captured.items()) args.push_back(item);
  }

  // Which pairs of the tile are kept. The mask of all heads is asked for at once and kept for the next head
  // where it does not depend on the head.
  const std::vector<char>& mask_of(const Tile& tile) {
    const std::array<std::int64_t, 3> key{tile.batch, tile.q_first, tile.k_first};
    if (const auto found = masks_.find(key); found != masks_.end()) return found->second;
    std::vector<Value> args = positions(tile);
    args[1] = range(0, p_.heads, {1, p_.heads, 1, 1});
    append(args, *functions_.mask_captured);
    const Value value = mask_->as<Function>().call(args);
    Tensor kept = value.is<List>() ? value.items().at(0).tensor() : value.tensor();
    const bool depends_on_head = kept.rank() == 4 && kept.sizes[1] != 1;
    if (depends_on_head) {
      kept.offset += tile.head * kept.strides[1];
      kept.sizes[1] = 1;
    }
    const Buffer<std::int64_t> flags = broadcast_dense<std::int64_t>(tile, kept);
    std::vector<char>& mask = depends_on_head ? last_mask_ : masks_[key];
    mask.assign(flags.begin(), flags.end());
    return mask;
  }

  KernelCall& call_;
  const Problem& p_;
  Functions functions_;
  BlockTable partial_, full_, partial_of_keys_, full_of_keys_;
  const Value* mask_ = nullptr;
  std::map<std::array<std::int64_t, 3>, std::vector<char>> masks_;
  std::vector<char> last_mask_;
};

// query, key, value, score_mod, block_mask, scale, kernel_options, score captured, mask captured
// -> out, logsumexp and maximum in units of log 2
Value flex_attention(KernelCall& call) {
  const Tensor& query = call.tensor(0);
  Problem p = read_problem(query, call.tensor(1), call.tensor(2), call.real(5));
  Flex kind(call, p, call[4], {&call[3], nullptr, &call[7], &call[8]});
  const Forward forward = run_forward(p, kind);
  Tensor out = call.make_result(0, query.dtype, {p.batches, p.heads, p.queries, p.value_depth});
  store_dense(forward.out, out);
  Buffer<double> lse = forward.lse, maximum(forward.maximum.begin(), forward.maximum.end());
  for (double& x : lse) x = x / kLn2;
  for (double& x : maximum) x = x / kLn2;
  Tensor lse_out = call.make_result(1, DType::kFloat32, {p.batches, p.heads, p.queries});
  Tensor maximum_out = call.make_result(2, DType::kFloat32, {p.batches, p.heads, p.queries});
  store_dense(lse, lse_out);
  store_dense(maximum, maximum_out);
  return Value::tuple({out, lse_out, maximum_out});
}

// query, key, value, out, logsumexp, grad_out, grad_logsumexp, fw_graph, joint_graph, block_mask, scale,
// kernel_options, score captured, mask captured -> grads of query, key, value and of what the score function
// captured
Value flex_attention_backward(KernelCall& call) {
  const Tensor& query = call.tensor(0);
  Problem p = read_problem(query, call.tensor(1), call.tensor(2), call.real(10));
  Flex kind(call, p, call[9], {&call[7], &call[8], &call[12], &call[13]});
  kind.check_tables_agree();
  Saved saved{dense<float>(call.tensor(3)), {}, dense<float>(call.tensor(4)), {}};
  saved.grad_out = call[5].is_none() ? Buffer<float>(saved.out.size(), 0.0f) : dense<float>(call.tensor(5));
  for (float& x : saved.lse) x = static_cast<float>(static_cast<double>(x) * kLn2);
  if (!call[6].is_none()) {
    saved.grad_lse = dense<float>(call.tensor(6));
    for (float& x : saved.grad_lse) x = static_cast<float>(static_cast<double>(x) / kLn2);
  }
  const Gradients grads = run_backward(p, kind, saved);
  return Value::tuple({result_of(call, 0, query, grads.query), result_of(call, 1, call.tensor(1), grads.key),
                       result_of(call, 2, call.tensor(2), grads.value),
                       Value::tuple(std::vector<Value>(call[12].items().size()))});
}

constexpr KernelRow kRows[] = {
    {"aten._scaled_dot_product_cudnn_attention.default", cudnn_attention},
    {"aten._scaled_dot_product_cudnn_attention_backward.default", cudnn_attention_backward},
    {"aten._scaled_dot_product_efficient_attention.default", efficient_attention},
    {"aten._scaled_dot_product_efficient_attention_backward.default", efficient_attention_backward},
    {"aten._scaled_dot_product_flash_attention.default", flash_attention},
    {"aten._scaled_dot_product_flash_attention_backward.default", flash_attention_backward},
    {"higher_order.flex_attention", flex_attention},
    {"higher_order.flex_attention_backward", flex_attention_backward},
};

}  // namespace

std::span<const KernelRow> attention_rows() {
  return kRows;
}

}  // namespace epweave::replay::cpu
