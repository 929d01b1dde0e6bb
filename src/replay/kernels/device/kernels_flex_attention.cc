// FlexAttention on the device (attention.h): scores and masks are what functions of the graph make
// of positions.
#include <algorithm>
#include <array>

#include "replay/kernels/device/attention.h"
#include "replay/kernels/device/kernels.h"
#include "replay/kernels/host/elements.h"

namespace epweave::replay::device {
namespace {

using cpu::kLn2;

// The maps that lead to `result`, of the slab's pairs, as one program; none where they are too many
// or see a tensor in another way than pair by pair.
std::optional<PairProgram> as_program(const std::vector<DeferredMap>& maps, const Tensor& result,
                                      const Slab& slab) {
  const Extents pairs{1, slab.heads, slab.queries, slab.keys};
  const auto are_pairs = [&](const Tensor& tensor) {
    const std::size_t rank = tensor.rank();
    if (rank > pairs.size()) return false;
    for (std::size_t d = 0; d < rank; ++d)
      if (tensor.sizes[d] != 1 && tensor.sizes[d] != pairs[pairs.size() - rank + d]) return false;
    return true;
  };
  const auto is_same = [&](const Tensor& a, const Tensor& b) {
    const Strided x = strided(a, pairs), y = strided(b, pairs);
    return a.dtype == b.dtype && x.data == y.data && std::equal(x.strides, x.strides + 4, y.strides);
  };
  const auto step_of = [&](const Tensor& tensor) {
    const auto found = std::find_if(
        maps.begin(), maps.end(), [&](const DeferredMap& map) { return map.out.storage == tensor.storage; });
    return static_cast<std::size_t>(found - maps.begin());
  };
  PairProgram program{};
  const std::size_t last = step_of(result);
  if (last >= std::min<std::size_t>(maps.size(), PairProgram::kMostSteps)) return std::nullopt;
  if (!are_pairs(result) || !is_same(result, maps[last].out)) return std::nullopt;
  for (std::size_t i = 0; i <= last; ++i) {
    const DeferredMap& map = maps[i];
    if (!are_pairs(map.out)) return std::nullopt;
    PairProgram::Step& step = program.steps[i];
    step.number = number_of(map.number);
    step.inputs = static_cast<int>(map.count);
    step.op = map.op;
    step.compute = cpu::compute_of(map.compute);
    step.stored = stored_of(map.out.dtype);
    for (std::size_t k = 0; k < map.count; ++k) {
      const Tensor& in = map.in[k];
      const std::size_t from = step_of(in);
      if (!are_pairs(in) || (from < maps.size() && !is_same(in, maps[from].out))) return std::nullopt;
      const Strided operand = strided(in, pairs);
      step.in[k].stored = stored_of(in.dtype);
      step.in[k].step = static_cast<int>(from);
      if (from < maps.size()) continue;
      step.in[k].data = operand.data;
      std::copy(operand.strides + 1, operand.strides + 4, step.in[k].strides);
    }
  }
  program.count = static_cast<std::int64_t>(last) + 1;
  return program;
}

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
  bool modifies_scores() const override { return functions_.score->as<Function>().returned_param != kScore; }
  void modify(const Slab& slab, const Tensor& scores) override {
    const auto& score = functions_.score->as<Function>();
    std::vector<Value> args = positions(slab);
    args.insert(args.begin(), scores);
    append(args, *functions_.score_captured);
    read_matrix(score.call(args), scores);
  }
  bool is_causal() const override { return false; }
  // What does not look at heads is kept for the heads that follow.
  PairBits mask(const Slab& slab) override {
    if (!kept_.empty() && kept_.front().slab.batch != slab.batch) kept_.clear();
    const auto found = std::find_if(kept_.begin(), kept_.end(), [&](const Kept& kept) {
      return kept.slab.query == slab.query && kept.slab.queries == slab.queries;
    });
    if (found != kept_.end()) return found->mask;
    const PairBits made = make_mask(slab);
    if (made.of_head == 0) kept_.push_back({slab, made});
    return made;
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
  static constexpr std::size_t kMasks = 8;                    // float32 matrices that a mask may need

  // The pairs of blocks that the tables at `first` (masked, then full) name: [batch, head, row,
  // column].
  struct Blocks {
    std::int64_t rows, columns;
  };
  Tensor cover_of(std::size_t first, const Blocks& blocks) {
    const Tensor cover = scratch_.make(DType::kUint8, {p_.batches, p_.heads, blocks.rows, blocks.columns});
    CoverTask task{};
    task.all_heads = p_.heads;
    task.rows = blocks.rows;
    task.columns = blocks.columns;
    task.cover = cover.data<std::uint8_t>();
    task.sink = launcher_of(scratch_).sink();
    std::array<Tensor, 4> lists;
    for (const std::size_t k : {0u, 1u}) {
      if (tables_[first + 2 * k].is_none()) continue;
      Tensor &counts = lists[2 * k], &indices = lists[2 * k + 1];
      counts = row_major(tables_[first + 2 * k].tensor());
      indices = row_major(tables_[first + 2 * k + 1].tensor());
      const Extents& sizes = indices.sizes;
      if (sizes.size() != 4 || counts.numel() != sizes[0] * sizes[1] * sizes[2])
        throw KernelError("flex_attention: a block table has other sizes than its counts");
      if (blocks.rows > sizes[2] || (sizes[0] != 1 && sizes[0] < p_.batches) ||
          (sizes[1] != 1 && sizes[1] < p_.heads))
        throw KernelError("flex_attention: the block tables are too small for the queries and keys");
      task.tables[k] = {counts.bytes(),
                        indices.bytes(),
                        stored_of(counts.dtype),
                        stored_of(indices.dtype),
                        sizes[0],
                        sizes[1],
                        sizes[2],
                        sizes[3]};
    }
    const auto given = [](const Tensor& tensor) { return tensor.storage == nullptr ? nullptr : &tensor; };
    launcher_of(scratch_).launch(
        task, p_.batches * p_.heads * blocks.rows,
        {&cover, given(lists[0]), given(lists[1]), given(lists[2]), given(lists[3])});
    return cover;
  }
  Tensor row_major(const Tensor& tensor) { return scratch_.dense(tensor, tensor.dtype); }

  // The mask function of the slab's pairs, some queries at a time: what it computes has the bound
  // of a slab whose scores are modified.
  PairBits make_mask(const Slab& slab) {
    const auto pairs = static_cast<std::int64_t>(score_bytes() / kMasks / sizeof(float));
    const std::int64_t words = (slab.keys + 31) / 32;
    PairBits made;
    for (std::int64_t done = 0; done < slab.queries;) {
      Slab part = slab;
      // It is not known yet whether it looks at heads: it is asked for all of them.
      if (!looks_at_heads_) {
        part.head = 0;
        part.heads = p_.heads;
      } else if (!*looks_at_heads_) {
        part.heads = 1;
      }
      part.query += done;
      part.queries = std::clamp<std::int64_t>(pairs / std::max<std::int64_t>(part.heads * slab.keys, 1), 1,
                                              slab.queries - done);
      Launcher::Deferral deferral(launcher_of(scratch_), part.queries * part.keys);
      const Tensor kept = evaluate_mask(part);
      Strided strides = strided(kept, Extents{1, part.heads, part.queries, part.keys});
      if (!looks_at_heads_) looks_at_heads_ = part.heads == 1 || strides.strides[1] != 0;
      const std::int64_t heads = *looks_at_heads_ ? slab.heads : 1;
      if (!made.bits) {
        made.bits = scratch_.make(DType::kInt32, {heads, slab.queries, words});
        made.of_query = words;
        made.of_head = *looks_at_heads_ ? slab.queries * words : 0;
      }
      const Packed packed{kept, part, part.heads > heads ? slab.head : 0, heads, *made.bits, done * words};
      if (const auto program = as_program(deferral.maps(), kept, part)) {
        pack(*program, deferral.maps(), packed);
      } else {
        deferral.end();
        pack(packed);
      }
      done += part.queries;
    }
    return made;
  }
  // Where the bits of some queries' mask go: `heads` of the mask's heads from `head` on.
  struct Packed {
    const Tensor& mask;
    const Slab& part;
    std::int64_t head, heads;
    const Tensor& bits;
    std::int64_t first_word;

    std::int64_t words() const { return bits.sizes[2]; }
    std::int64_t count() const { return heads * part.queries * words(); }
    std::uint32_t* to() const { return reinterpret_cast<std::uint32_t*>(bits.bytes()) + first_word; }
    std::int64_t of_head() const { return bits.sizes[1] * words(); }
  };
  void pack(const Packed& packed) {
    const Strided mask =
        strided(packed.mask, Extents{1, packed.part.heads, packed.part.queries, packed.part.keys});
    PackMaskTask task{};
    task.mask = static_cast<const std::uint8_t*>(mask.data) + packed.head * mask.strides[1];
    std::copy(mask.strides + 1, mask.strides + 4, task.strides);
    task.queries = packed.part.queries;
    task.keys = packed.part.keys;
    task.words = packed.words();
    task.bits = packed.to();
    task.bits_of_head = packed.of_head();
    launcher_of(scratch_).launch(task, packed.count(), {&packed.mask, &packed.bits});
  }
  void pack(const PairProgram& program, const std::vector<DeferredMap>& maps, const Packed& packed) {
    PackProgramTask task{};
    task.program = program;
    task.first_head = packed.head;
    task.queries = packed.part.queries;
    task.keys = packed.part.keys;
    task.words = packed.words();
    task.bits = packed.to();
    task.bits_of_head = packed.of_head();
    for (const DeferredMap& map : maps)
      for (std::size_t k = 0; k < map.count; ++k) launcher_of(scratch_).use(map.in[k]);
    launcher_of(scratch_).launch(task, packed.count(), {&packed.bits});
  }
  Tensor evaluate_mask(const Slab& slab) {
    std::vector<Value> args = positions(slab);
    append(args, *functions_.mask_captured);
    const Value kept = tables_.back().as<Function>().call(args);
    Tensor mask = kept.is<List>() ? kept.items().at(0).tensor() : kept.tensor();
    if (mask.dtype != DType::kBool) throw KernelError("flex_attention: the mask is not of bool");
    return mask;
  }

  // Copies a function's result, broadcast; it may be a view of `to`.
  void read_matrix(const Value& value, const Tensor& to) {
    const Tensor& tensor = value.is<List>() ? value.items().at(0).tensor() : value.tensor();
    const Strided full = strided(tensor, to.sizes);
    const Tensor result{tensor.dtype, to.sizes, Extents(full.strides, full.strides + 4), tensor.offset,
                        tensor.storage};
    const bool overlaps = tensor.storage == to.storage;
    cpu::copy_elements(overlaps ? scratch_.copied(result, to.dtype) : result, to);
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
  // Masks of this batch's slabs that count for all heads.
  struct Kept {
    Slab slab;
    PairBits mask;
  };
  std::vector<Kept> kept_;
  std::optional<bool> looks_at_heads_;  // the mask function
};

// query, key, value, score_mod, block_mask, scale, kernel_options, score captured, mask captured
// -> out, logsumexp and maximum in units of log 2
Value flex_attention(KernelCall& call) {
  const Tensor& query = call.tensor(0);
  Scratch scratch(call);
  AttentionProblem p = read_problem({&query, &call.tensor(1), &call.tensor(2)}, call.real(5), Pass::kForward);
  Flex kind(scratch, p, call[4].items(), {&call[3], nullptr, &call[7], &call[8]});
  const Extents sizes{p.batches, p.heads, p.queries};
  const Tensor out = call.make_result(0, query.dtype, {p.batches, p.heads, p.queries, p.value_depth});
  const Tensor lse = call.make_result(1, DType::kFloat32, sizes);
  const Tensor maximum = call.make_result(2, DType::kFloat32, sizes);
  const RowsResult lse_rows(scratch, lse), maximum_rows(scratch, maximum);
  Attention(scratch, p, kind).forward({out, lse_rows.rows(), maximum_rows.rows(), kLn2});
  lse_rows.finish();
  maximum_rows.finish();
  return Value::tuple({out, lse, maximum});
}

// query, key, value, out, logsumexp, grad_out, grad_logsumexp, fw_graph, joint_graph, block_mask,
// scale, kernel_options, score captured, mask captured -> grads of query, key, value and of what
// the score function captured
Value flex_attention_backward(KernelCall& call) {
  const Tensor& query = call.tensor(0);
  Scratch scratch(call);
  AttentionProblem p =
      read_problem({&query, &call.tensor(1), &call.tensor(2)}, call.real(10), Pass::kBackward);
  Flex kind(scratch, p, call[9].items(), {&call[7], &call[8], &call[12], &call[13]});
  Attention::Saved saved;
  saved.out = call.tensor(3);
  saved.lse = scratch.dense(call.tensor(4), p.computed);
  saved.grad_out =
      call[5].is_none() ? scratch.filled(p.computed, saved.out.sizes, Value(0.0)) : call.tensor(5);
  if (!call[6].is_none()) saved.grad_lse = scratch.dense(call.tensor(6), p.computed);
  saved.unit = kLn2;
  const Attention::Gradients grads{call.make_result(0, query.dtype, query.sizes),
                                   call.make_result(1, call.tensor(1).dtype, call.tensor(1).sizes),
                                   call.make_result(2, call.tensor(2).dtype, call.tensor(2).sizes)};
  Attention(scratch, p, kind).backward(saved, grads);
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

}  // namespace epweave::replay::device
