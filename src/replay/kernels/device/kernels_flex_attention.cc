// FlexAttention on the device (attention.h): scores and masks are what functions of the graph make
// of positions.
#include "replay/kernels/device/attention.h"
#include "replay/kernels/device/kernels.h"
#include "replay/kernels/host/elements.h"

namespace epweave::replay::device {
namespace {

using cpu::kLn2;

class Flex : public AttentionKind {
 public:
  // `joint`: the score function's derivative, none in the forward direction.
  struct Functions {
    const Value* score = nullptr;
    const Value* joint = nullptr;
    const Value* score_captured = nullptr;
    const Value* mask_captured = nullptr;
  };
  Flex(Scratch& scratch, AttentionProblem& p, const std::vector<Value>& block_mask, Functions functions)
      : scratch_(scratch), p_(p), tables_(block_mask), functions_(functions) {
    cpu::read_block_sizes(block_mask, p);
  }

  Tensor cover() override {
    const Tensor by_query = cover_of(2, {p_.q_blocks(), p_.k_blocks()});
    if (functions_.joint != nullptr && !tables_[6].is_none()) {
      // The backward kernels of others find the queries of a key in tables of their own.
      const Tensor by_key = cover_of(6, {p_.k_blocks(), p_.q_blocks()});
      launcher_of(scratch_).launch(
          CompareCoverTask{by_query.data<std::uint8_t>(), by_key.data<std::uint8_t>(), p_.q_blocks(),
                           p_.k_blocks(), launcher_of(scratch_).sink()},
          by_query.numel(), {&by_query, &by_key});
    }
    return by_query;
  }
  std::int64_t keys_before(std::int64_t) const override { return p_.keys; }
  void modify(const Slab& slab, const Tensor& scores) override {
    const auto& score = functions_.score->as<Function>();
    if (score.returned_param == kScore) return;
    std::vector<Value> args = positions(slab);
    args.insert(args.begin(), scores);
    append(args, *functions_.score_captured);
    read_matrix(score.call(args), scores);
  }
  void mask(const Slab& slab, const Tensor& scores, const Tensor& cover) override {
    std::vector<Value> args = positions(slab);
    append(args, *functions_.mask_captured);
    const Value kept = tables_.back().as<Function>().call(args);
    const Tensor mask = kept.is<List>() ? kept.items().at(0).tensor() : kept.tensor();
    drop_pairs(scratch_, p_, slab, scores, cover, {&mask, false});
  }
  bool modifies_gradient() const override {
    return functions_.joint->as<Function>().returned_param != kGradOfScore ||
           !functions_.score_captured->items().empty();
  }
  void modify_backward(const Slab& slab, const Tensor& before, const Tensor& grad) override {
    std::vector<Value> args = positions(slab);
    args.insert(args.begin(), before);
    args.emplace_back(grad);
    append(args, *functions_.score_captured);
    const Value result = functions_.joint->as<Function>().call(args);
    const std::vector<Value>& grads = result.items();
    cpu::refuse_captured_gradients(grads);
    read_matrix(grads[0], grad);
  }

 private:
  static constexpr std::size_t kScore = 0, kGradOfScore = 5;  // of the functions' parameters

  // The pairs of blocks that the tables at `first` (masked, then full) name: [batch, head, row,
  // column].
  struct Blocks {
    std::int64_t rows, columns;
  };
  Tensor cover_of(std::size_t first, const Blocks& blocks) {
    const Tensor cover = scratch_.filled(DType::kUint8, {p_.batches, p_.heads, blocks.rows, blocks.columns},
                                         Value(std::int64_t{0}));
    for (const std::size_t table : {first, first + 2}) {
      if (tables_[table].is_none()) continue;
      const Tensor counts = scratch_.dense(tables_[table].tensor(), DType::kInt64);
      const Tensor indices = scratch_.dense(tables_[table + 1].tensor(), DType::kInt64);
      const Extents& sizes = indices.sizes;
      if (sizes.size() != 4 || counts.numel() != sizes[0] * sizes[1] * sizes[2])
        throw KernelError("flex_attention: a block table has other sizes than its counts");
      if (blocks.rows > sizes[2] || (sizes[0] != 1 && sizes[0] < p_.batches) ||
          (sizes[1] != 1 && sizes[1] < p_.heads))
        throw KernelError("flex_attention: the block tables are too small for the queries and keys");
      launcher_of(scratch_).launch(
          CoverTask{counts.data<std::int64_t>(), indices.data<std::int64_t>(), sizes[0], sizes[1], sizes[2],
                    sizes[3], p_.heads, blocks.rows, blocks.columns, cover.data<std::uint8_t>(),
                    static_cast<std::uint8_t>(table == first ? 1 : 2), launcher_of(scratch_).sink()},
          p_.batches * p_.heads * blocks.rows, {&counts, &indices, &cover});
    }
    return cover;
  }
  // Copies a function's result, broadcast; it may be a view of `to`.
  void read_matrix(const Value& value, const Tensor& to) {
    const Tensor& tensor = value.is<List>() ? value.items().at(0).tensor() : value.tensor();
    const Strided full = strided(tensor, to.sizes);
    const Tensor result{tensor.dtype, to.sizes, Extents(full.strides, full.strides + 4), tensor.offset,
                        tensor.storage};
    const bool overlaps = tensor.storage == to.storage;
    cpu::copy_elements(overlaps ? scratch_.copied(result, DType::kFloat32) : result, to);
  }
  Tensor range(std::int64_t first, std::int64_t count, Extents sizes) {
    const Tensor tensor = scratch_.make(DType::kInt32, std::move(sizes));
    launcher_of(scratch_).progress(tensor.view({count}, {1}, 0), first, std::int64_t{1});
    return tensor;
  }
  std::vector<Value> positions(const Slab& slab) {
    return {range(slab.batch, 1, {1, 1, 1, 1}), range(slab.head, slab.heads, {1, slab.heads, 1, 1}),
            range(slab.query, slab.queries, {1, 1, slab.queries, 1}),
            range(0, slab.keys, {1, 1, 1, slab.keys})};
  }
  static void append(std::vector<Value>& args, const Value& captured) {
    for (const Value& item : captured.items()) args.push_back(item);
  }

  Scratch& scratch_;
  const AttentionProblem& p_;
  const std::vector<Value>& tables_;
  Functions functions_;
};

// query, key, value, score_mod, block_mask, scale, kernel_options, score captured, mask captured
// -> out, logsumexp and maximum in units of log 2
Value flex_attention(KernelCall& call) {
  const Tensor& query = call.tensor(0);
  Scratch scratch(call);
  AttentionProblem p = read_problem(scratch, {&query, &call.tensor(1), &call.tensor(2)}, call.real(5));
  Flex kind(scratch, p, call[4].items(), {&call[3], nullptr, &call[7], &call[8]});
  const Attention::Forward forward = Attention(scratch, p, kind).forward();
  Tensor out = store_result(call, 0, query.dtype, forward.out.sizes, forward.out);
  const Tensor ln2 = scratch.filled(DType::kFloat64, {}, Value(kLn2));
  const Tensor lse = scratch.map<math::Div>(forward.lse, ln2);
  const Tensor wide = scratch.copied(forward.maximum, DType::kFloat64);
  const Tensor maximum = scratch.map<math::Div>(wide, ln2);
  const Extents sizes{p.batches, p.heads, p.queries};
  Tensor lse_out = store_result(call, 1, DType::kFloat32, sizes, lse);
  Tensor maximum_out = store_result(call, 2, DType::kFloat32, sizes, maximum);
  return Value::tuple({out, lse_out, maximum_out});
}

// query, key, value, out, logsumexp, grad_out, grad_logsumexp, fw_graph, joint_graph, block_mask,
// scale, kernel_options, score captured, mask captured -> grads of query, key, value and of what
// the score function captured
Value flex_attention_backward(KernelCall& call) {
  const Tensor& query = call.tensor(0);
  Scratch scratch(call);
  AttentionProblem p = read_problem(scratch, {&query, &call.tensor(1), &call.tensor(2)}, call.real(10));
  Flex kind(scratch, p, call[9].items(), {&call[7], &call[8], &call[12], &call[13]});
  const Tensor ln2 = scratch.filled(DType::kFloat64, {}, Value(kLn2));
  // Units of log 2 and natural ones, in float64, rounded to float32.
  const auto rescaled = [&](const Tensor& tensor, auto op) {
    const Tensor wide = scratch.copied(tensor, DType::kFloat64);
    return scratch.copied(scratch.map<decltype(op)>(wide, ln2), DType::kFloat32);
  };
  Attention::Saved saved;
  saved.out = scratch.dense(call.tensor(3), DType::kFloat32);
  saved.lse = rescaled(scratch.dense(call.tensor(4), DType::kFloat32), math::Mul());
  saved.grad_out = call[5].is_none() ? scratch.filled(DType::kFloat32, saved.out.sizes, Value(0.0))
                                     : scratch.dense(call.tensor(5), DType::kFloat32);
  if (!call[6].is_none())
    saved.grad_lse = rescaled(scratch.dense(call.tensor(6), DType::kFloat32), math::Div());
  const Attention::Gradients grads = Attention(scratch, p, kind).backward(saved);
  return Value::tuple({store_attention(call, 0, query, grads.query),
                       store_attention(call, 1, call.tensor(1), grads.key),
                       store_attention(call, 2, call.tensor(2), grads.value),
                       Value::tuple(std::vector<Value>(call[12].items().size()))});
}

constexpr KernelRow kRows[] = {
    {"higher_order.flex_attention", flex_attention},
    {"higher_order.flex_attention_backward", flex_attention_backward},
};

}  // namespace

std::span<const KernelRow> flex_attention_rows() {
  return kRows;
}

}  // namespace epweave::replay::device
