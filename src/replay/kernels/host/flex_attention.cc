// FlexAttention: score and mask functions, and block tables.
#include <algorithm>
#include <array>
#include <functional>
#include <limits>
#include <map>
#include <span>

#include "replay/kernels/host/attention_tiles.h"
#include "replay/kernels/host/elements.h"
#include "replay/kernels/host/kernels.h"

namespace epweave::replay::cpu {
namespace {

// Of the masks of tiles that are kept for the next head.
constexpr std::size_t kMostMaskBytes = std::size_t{64} << 20;

std::size_t at(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

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

// `score`: the score function; `joint`: its derivative, none in the forward direction.
struct FlexFunctions {
  const Value* score = nullptr;
  const Value* joint = nullptr;
  const Value* score_captured = nullptr;
  const Value* mask_captured = nullptr;
};

template <class C>
class Flex : public AttentionKind<C> {
 public:
  using typename AttentionKind<C>::Block;
  Flex(KernelCall& call, AttentionShape& p, const Value& block_mask, FlexFunctions functions)
      : call_(call), p_(p), functions_(functions) {
    const std::vector<Value>& items = block_mask.items();
    read_block_sizes(items, p);
    partial_ = BlockTable(items[2], items[3]);
    full_ = BlockTable(items[4], items[5]);
    partial_of_keys_ = BlockTable(items[6], items[7]);
    full_of_keys_ = BlockTable(items[8], items[9]);
    mask_ = &items.back();
  }

  // The backward kernels on GPUs find the queries of a key in tables of their own: they must name
  // the same pairs.
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

  void modify(const AttentionTile& tile, Buffer<C>& scores) override {
    if (const auto& score = functions_.score->as<Function>(); score.returned_param != kScore) {
      std::vector<Value> args = positions(tile);
      args.insert(args.begin(), matrix(tile, scores));
      append(args, *functions_.score_captured);
      read_matrix(tile, score.call(args), scores);
    }
    if (tile.is_full) return;
    const std::vector<char>& mask = mask_of(tile);
    for (std::size_t i = 0; i < scores.size(); ++i) scores[i] = mask[i] == 0 ? kMasked : scores[i];
  }

  bool modifies_gradient() const override {
    return functions_.joint->as<Function>().returned_param != kGradOfScore ||
           !functions_.score_captured->items().empty();
  }
  void modify_backward(const AttentionTile& tile, const Buffer<C>& before, Buffer<C>& grad) override {
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
  static constexpr C kMasked = -std::numeric_limits<C>::infinity();
  static constexpr std::size_t kScore = 0, kGradOfScore = 5;  // of the functions' parameters

  Tensor matrix(const AttentionTile& tile, const Buffer<C>& values) {
    constexpr DType kType = std::is_same_v<C, double> ? DType::kFloat64 : DType::kFloat32;
    Tensor tensor = call_.make(kType, {1, 1, tile.rows, tile.width});
    std::copy(values.begin(), values.end(), tensor.template data<C>());
    return tensor;
  }
  // A result broadcastable to [1, 1, rows, width].
  template <class T>
  Buffer<T> broadcast_dense(const AttentionTile& tile, const Tensor& tensor) {
    const Extents sizes{1, 1, tile.rows, tile.width};
    const Operand operand = broadcast_operand(tensor, sizes);
    return dense<T>(Tensor{tensor.dtype, sizes, operand.strides, tensor.offset, tensor.storage});
  }
  void read_matrix(const AttentionTile& tile, const Value& value, Buffer<C>& to) {
    const Value& single = value.is<List>() ? value.items().at(0) : value;
    to = broadcast_dense<C>(tile, single.tensor());
  }
  Tensor range(std::int64_t first, std::int64_t count, Extents sizes) {
    Tensor tensor = call_.make(DType::kInt32, std::move(sizes));
    for (std::int64_t i = 0; i < count; ++i)
      tensor.data<std::int32_t>()[i] = static_cast<std::int32_t>(first + i);
    return tensor;
  }
  std::vector<Value> positions(const AttentionTile& tile) {
    return {range(tile.batch, 1, {1, 1, 1, 1}), range(tile.head, 1, {1, 1, 1, 1}),
            range(tile.q_first, tile.rows, {1, 1, tile.rows, 1}),
            range(tile.k_first, tile.width, {1, 1, 1, tile.width})};
  }
  static void append(std::vector<Value>& args, const Value& captured) {
    for (const Value& item : captured.items()) args.push_back(item);
  }

  // Which pairs of the tile are kept. The mask of all heads is asked for at once and kept for the
  // next head where it does not depend on the head, and as long as there is room: behind that it is
  // asked for again.
  const std::vector<char>& mask_of(const AttentionTile& tile) {
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
    const bool is_kept = !depends_on_head && mask_bytes_ + flags.size() <= kMostMaskBytes;
    if (is_kept) mask_bytes_ += flags.size();
    std::vector<char>& mask = is_kept ? masks_[key] : last_mask_;
    mask.assign(flags.begin(), flags.end());
    return mask;
  }

  KernelCall& call_;
  const AttentionShape& p_;
  FlexFunctions functions_;
  BlockTable partial_, full_, partial_of_keys_, full_of_keys_;
  const Value* mask_ = nullptr;
  std::map<std::array<std::int64_t, 3>, std::vector<char>> masks_;
  std::size_t mask_bytes_ = 0;  // of masks_
  std::vector<char> last_mask_;
};

// query, key, value, score_mod, block_mask, scale, kernel_options, score captured, mask captured
// -> out, logsumexp and maximum in units of log 2
Value flex_attention(KernelCall& call) {
  const Tensor& query = call.tensor(0);
  auto p = read_attention_problem<float>(call, {query, call.tensor(1), call.tensor(2), call.real(5)});
  Flex<float> kind(call, p, call[4], {&call[3], nullptr, &call[7], &call[8]});
  Tensor out = call.make_result(0, query.dtype, {p.batches, p.heads, p.queries, p.value_depth});
  const AttentionSums sums = run_attention(p, kind, out);
  Buffer<double> lse = sums.lse, maximum(sums.maximum.begin(), sums.maximum.end());
  for (double& x : lse) x = x / kLn2;
  for (double& x : maximum) x = x / kLn2;
  Tensor lse_out = call.make_result(1, DType::kFloat32, {p.batches, p.heads, p.queries});
  Tensor maximum_out = call.make_result(2, DType::kFloat32, {p.batches, p.heads, p.queries});
  store_dense(lse, lse_out);
  store_dense(maximum, maximum_out);
  return Value::tuple({out, lse_out, maximum_out});
}

// Zeros where nothing flows back to the output.
Tensor grad_of_out(KernelCall& call) {
  if (!call[5].is_none()) return call.tensor(5);
  Tensor zeros = call.make(call.tensor(3).dtype, call.tensor(3).sizes);
  fill_elements(zeros, Value(0.0));
  return zeros;
}

// query, key, value, out, logsumexp, grad_out, grad_logsumexp, fw_graph, joint_graph, block_mask,
// scale, kernel_options, score captured, mask captured -> grads of query, key, value and of what
// the score function captured
template <class C>
void differentiate(KernelCall& call, const AttentionGradients& grads) {
  auto p = read_attention_problem<C>(call, {call.tensor(0), call.tensor(1), call.tensor(2), call.real(10)});
  Flex<C> kind(call, p, call[9], {&call[7], &call[8], &call[12], &call[13]});
  kind.check_tables_agree();
  AttentionSaved<C> saved{call.tensor(3), grad_of_out(call), dense<C>(call.tensor(4)), {}};
  for (C& x : saved.lse) x = static_cast<C>(static_cast<double>(x) * kLn2);
  if (!call[6].is_none()) {
    saved.grad_lse = dense<C>(call.tensor(6));
    for (C& x : saved.grad_lse) x = static_cast<C>(static_cast<double>(x) / kLn2);
  }
  run_attention_backward(p, kind, saved, grads);
}
Value flex_attention_backward(KernelCall& call) {
  const Tensor &query = call.tensor(0), &key = call.tensor(1), &value = call.tensor(2);
  const AttentionGradients grads{call.make_result(0, query.dtype, query.sizes),
                                 call.make_result(1, key.dtype, key.sizes),
                                 call.make_result(2, value.dtype, value.sizes)};
  with_floating(query.dtype, [&](auto tag) { differentiate<typename decltype(tag)::type>(call, grads); });
  return Value::tuple(
      {grads.query, grads.key, grads.value, Value::tuple(std::vector<Value>(call[12].items().size()))});
}

constexpr KernelRow kRows[] = {
    {"higher_order.flex_attention", flex_attention},
    {"higher_order.flex_attention_backward", flex_attention_backward},
};

}  // namespace

std::span<const KernelRow> flex_attention_rows() {
  return kRows;
}

}  // namespace epweave::replay::cpu
