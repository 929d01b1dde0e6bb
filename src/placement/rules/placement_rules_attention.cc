// Placement of attention.
//
// A divided batch dimension is independent. Along a divided sequence
//
//   whole-kv      each part's queries see the keys and values of all parts: these are taken whole,
//                 and their gradients are sums over the parts
//   prefix        each part's queries see the keys and values of their part and of those before it,
//                 which are all that a causal mask shows them; gradients of a part's keys are sums
//                 over this part and those behind
//   independent   each part's queries see the keys of their part only
//
// FlexAttention's mask and score functions are given numbers of rows of the whole model, and a
// causal mask begins at the first row; AttentionCut says which of them a part must count from its
// first row. What the functions capture stays whole then.
#include <fmt/format.h>

#include <algorithm>

#include "analysis/random_draws.h"
#include "ops/random_draws.h"
#include "ops/rules.h"
#include "placement/attention_cut.h"
#include "placement/rules/placement_rules.h"

namespace epweave {
namespace {

constexpr int kBatchDim = 0, kSequenceDim = 2;
constexpr std::string_view kLeaveOut = "select roots without attention, such as layers.*.moe";

Operand named(PlacementCall& call, std::string_view name) {
  const auto position = call.op().find_param(name);
  return position ? call.arg(*position, name) : Operand();
}

// Whether a part's rows are one slice of the dimension, in order.
bool is_one_slice(const Placement& p) {
  return p.is(PlacementKind::kSplit) && !p.blocks;
}

// The one dimension of the query along which attention is divided.
int divided_dimension(PlacementCall& call, const Placement& query) {
  if (!is_one_slice(query) || (query.dim != kBatchDim && query.dim != kSequenceDim))
    call.refuse("chunk.attention",
                fmt::format("its query is placed {}; only its batch and its sequence can be divided",
                            print_placement(query)),
                std::string(kLeaveOut));
  return query.dim;
}

// An operand that has the query's rows along `dim`, or lacks the dimension.
void take_rows(PlacementCall& call, Operand operand, int dim) {
  const TensorType* type = call.tensor(operand);
  if (type == nullptr) return;
  const Placement p = call.of(operand);
  if (is_one_slice(p) && p.dim == dim) return;
  const bool has_dim = dim < static_cast<int>(type->rank());
  const ExprId extent = has_dim ? type->sizes[static_cast<std::size_t>(dim)] : ExprId();
  if (p.is_whole() && has_dim && call.tokens().scales(extent)) return call.take_slice(operand, dim);
  if (p.is_whole() && (!has_dim || call.facts().pool().constant(extent) == 1)) return;
  call.refuse("chunk.attention",
              fmt::format("'{}' is placed {}, not along dimension {} like the query", call.name_of(operand),
                          print_placement(p), dim),
              std::string(kLeaveOut));
}

constexpr std::string_view kWholeKeys = "use chunk{attention=whole-kv}";

Placement take_earlier_keys(PlacementCall& call, Operand operand, const AttentionCut& cut) {
  const Placement p = call.of(operand);
  if (!is_one_slice(p) || p.dim != cut.dim)
    call.refuse("chunk.attention",
                fmt::format("'{}' is placed {}, so that parts of it are no keys of earlier tokens",
                            call.name_of(operand), print_placement(p)),
                std::string(kWholeKeys));
  call.take_prefix(operand, cut.dim);
  return p;
}

// Keys and values, taken whole where the query's rows see all of them: along the batch those that
// are one row for all of it. Returns the placement of a gradient.
Placement take_keys(PlacementCall& call, Operand operand, AttentionCut& cut) {
  if (cut.prefix) return take_earlier_keys(call, operand, cut);
  const Placement p = call.of(operand);
  const bool has_part = cut.dim == kBatchDim || cut.keys;
  if (p.is_rows() && (p.dim != cut.dim || p.is_local() || (has_part && !is_one_slice(p))))
    call.refuse("chunk.attention",
                fmt::format("'{}' is placed {} beside a query that is divided along dimension {}",
                            call.name_of(operand), print_placement(p), cut.dim),
                std::string(kLeaveOut));
  if (p.is(PlacementKind::kSplit) && (cut.dim == kBatchDim || cut.keys)) return p;
  const TensorType* type = call.tensor(operand);
  if (cut.dim == kBatchDim && type != nullptr && call.facts().pool().constant(type->sizes[kBatchDim]) != 1) {
    call.take_rows_of(operand, kBatchDim);
    return Placement::split(kBatchDim);
  }
  cut.keys = false;
  call.take_whole(operand);
  return Placement::partial();
}

// ------------------------------------------------------------------------- scaled dot product

void require_no_dropout(PlacementCall& call) {
  if (has_dropout(*call.graph().context, call.node()))
    call.refuse("chunk.random", "it drops elements at random, each part others than the whole would",
                "trace with dropout_p=0");
}

// The CPU's kernel calls it a mask.
Operand bias_of(PlacementCall& call) {
  return named(call, call.op().find_param("attn_mask") ? "attn_mask" : "attn_bias");
}

// is_causal begins at the first or at the last row, depending on the kernel. Beside all keys a part
// gets a bias of the scores instead.
void take_causal_mask(PlacementCall& call, AttentionCut& cut) {
  const Operand causal = named(call, "is_causal");
  cut.causal =
      cut.dim == kSequenceDim && !cut.keys && causal && causal.arg.is(ArgKind::kBool) && causal.arg.as_bool();
  if (!cut.causal) return;
  if (!call.op().find_param("attn_bias"))
    call.refuse(
        "chunk.attention",
        "its causal mask must count a part's queries from the part's first row, and this kernel takes "
        "no mask but its own",
        "trace with the cuDNN or the memory-efficient kernel (torch.nn.attention.sdpa_kernel) or with "
        "FlexAttention, use chunk{attention=independent} if no token sees one of another part, or " +
            std::string(kLeaveOut));
  if (call.tensor(bias_of(call)) != nullptr)
    call.refuse("chunk.attention",
                "it has a causal mask and a bias of its scores, and a part's mask would be a bias, too",
                "trace with the mask in the bias, or " + std::string(kLeaveOut));
}

// Added to the scores, [batch, heads, queries, keys]. Returns the placement of its gradient.
Placement take_bias(PlacementCall& call, const AttentionCut& cut) {
  const Operand bias = bias_of(call);
  const TensorType* type = call.tensor(bias);
  if (type == nullptr) return Placement::whole();
  constexpr std::size_t kRank = 4;
  if (cut.dim == kSequenceDim && type->rank() >= 2 && type->rank() < kRank &&
      call.facts().pool().constant(type->sizes[type->rank() - 2]) != 1)
    call.refuse("chunk.attention",
                fmt::format("'{}' has rows of queries, but not the four dimensions of the scores",
                            call.name_of(bias)),
                "trace with a mask of [batch, heads, queries, keys] (mask[None, None]), or " +
                    std::string(kLeaveOut));
  if (cut.keys)
    call.refuse("chunk.attention", "a bias of its scores pairs queries and keys of different parts",
                "use chunk{attention=whole-kv}");
  const auto dim = static_cast<std::size_t>(cut.dim);
  if (type->rank() == kRank && call.facts().pool().constant(type->sizes[dim]) != 1) {
    call.take_rows_of(bias, cut.dim);
    return Placement::split(cut.dim);
  }
  call.take_whole(bias);
  return Placement::partial();
}

// Results by their types: rows and numbers of rows of the query; else what a kernel keeps for its
// backward, which only this part's backward can read.
Placement forward_result(PlacementCall& call, std::size_t i, const AttentionCut& cut) {
  const TypeId id = call.graph().context->types[call.node().type].elements[i];
  const Type* type = id ? &call.graph().context->types[id] : nullptr;
  if (type == nullptr || type->kind == TypeKind::kValue) return Placement::local();
  if (type->kind == TypeKind::kScalar) {
    const bool is_key_length = call.op().returns.size() > i && call.op().returns[i].name == "max_k";
    const bool is_sum = call.tokens().is_linear(type->expr) && (cut.keys || !is_key_length);
    return is_sum ? Placement::partial() : Placement::local();
  }
  const auto dim = static_cast<std::size_t>(cut.dim);
  if (type->tensor.rank() <= dim || !call.tokens().scales(type->tensor.sizes[dim])) return Placement::local();
  // Rows padded to a multiple do not line up with the whole's.
  return call.tokens().is_linear(type->tensor.sizes[dim]) ? Placement::split(cut.dim)
                                                          : Placement::local(cut.dim);
}

// Once, on all rows: where none of the query is divided, and where a part's rows are several slices
// of it, as those of a sequence that tensor-parallel ranks share.
bool runs_whole(PlacementCall& call, const Placement& query) {
  if (query.is_divided() && !(query.is(PlacementKind::kSplit) && query.blocks)) return false;
  for (const Operand& operand : call.operands()) call.take_whole(operand);
  return true;
}

Placement dot_product(PlacementCall& call) {
  const Placement query = call.of(named(call, "query"));
  if (runs_whole(call, query)) return Placement::whole();
  AttentionCut cut{.dim = divided_dimension(call, query)};
  cut.keys = cut.dim == kSequenceDim && call.options().attention == AttentionMode::kIndependent;
  if (cut.dim == kSequenceDim && call.options().attention == AttentionMode::kPrefix)
    call.refuse(
        "chunk.attention",
        "attention=prefix is for FlexAttention: kernels of scaled dot product attention differ in which keys "
        "is_causal hides where queries are fewer than keys",
        std::string(kWholeKeys) + ", or trace with FlexAttention");
  const Placement key = take_keys(call, named(call, "key"), cut);
  const Placement value = take_keys(call, named(call, "value"), cut);
  const Placement bias = take_bias(call, cut);
  require_no_dropout(call);
  take_causal_mask(call, cut);
  for (const std::string_view length : {"max_q", "max_k"})
    if (const Operand operand = named(call, length); operand && !operand.arg.is_int()) {
      if (!operand.arg.is_node())
        call.refuse("chunk.raw-symbol", "a length is a raw symbolic argument",
                    "trace with symbolic sizes as nodes");
      call.take_part(operand);
    }
  call.cut_attention(cut);
  if (!named(call, "out")) {
    std::vector<Placement> results;
    for (std::size_t i = 0; i < call.result_count(); ++i) results.push_back(forward_result(call, i, cut));
    return Placement::tuple(std::move(results));
  }
  for (const std::string_view rows : {"grad_out", "grad_out_", "out"})
    take_rows(call, named(call, rows), cut.dim);
  // What the part's forward call kept for it.
  for (const std::string_view kept : {"logsumexp", "cum_seq_q", "cum_seq_k", "philox_seed", "philox_offset"})
    if (const Operand operand = named(call, kept)) call.take_part(operand);
  std::vector<Placement> results = {query, key, value};
  if (call.result_count() > results.size()) results.push_back(bias);
  return Placement::tuple(std::move(results));
}

// ------------------------------------------------------------------------- FlexAttention

class FlexRule {
 public:
  explicit FlexRule(PlacementCall& call) : call_(call), context_(*call.graph().context) {}

  Placement place() {
    const Placement query = call_.of(named(call_, "query"));
    if (runs_whole(call_, query)) return Placement::whole();
    cut_.dim = divided_dimension(call_, query);
    cut_.keys = cut_.dim == kSequenceDim && call_.options().attention == AttentionMode::kIndependent;
    cut_.prefix = cut_.dim == kSequenceDim && call_.options().attention == AttentionMode::kPrefix;
    const auto flex = FlexCall::read(call_.graph(), call_.node());
    if (!flex)
      call_.refuse("chunk.attention",
                   "its arguments are not those of a FlexAttention call as torch traces it",
                   std::string(kLeaveOut));
    flex_ = *flex;
    if (draws_random(call_.graph(), call_.node()))
      call_.refuse("chunk.random",
                   "its functions draw random numbers, for each part others than for the whole",
                   std::string(kLeaveOut));
    if (cut_.prefix) require_causal();
    const Placement key = take_keys(call_, named(call_, "key"), cut_);
    const Placement value = take_keys(call_, named(call_, "value"), cut_);
    for (const std::string_view rows : {"out", "logsumexp", "grad_out", "grad_logsumexp"})
      take_rows(call_, named(call_, rows), cut_.dim);
    take_mask();
    take_captured(FlexFunctionKind::kMask, call_.arg(flex_.mask_captured_param, "mask_mod_other_buffers"));
    take_captured(FlexFunctionKind::kScore, call_.arg(flex_.score_captured_param, "score_mod_other_buffers"));
    call_.cut_attention(cut_);
    if (!flex_.is_backward) return Placement::tuple({query, query, query});
    return Placement::tuple({query, key, value, Placement::tuple(captured_gradients())});
  }

 private:
  void refuse_mask(std::string problem) {
    call_.refuse("chunk.block-mask", std::move(problem), std::string(kLeaveOut));
  }

  void require_causal() {
    const FlexFunction& mask = flex_.functions.back();
    if (!hides_later_keys(context_, mask))
      call_.refuse(
          "chunk.attention",
          fmt::format("attention=prefix leaves out the keys behind a part, and nothing shows that its mask "
                      "function '{}' hides from each query the keys behind it",
                      context_.text(mask.body->name)),
          std::string(kWholeKeys) + ", or trace with a mask that says q_idx >= kv_idx and whatever else");
  }

  // Lengths and block tables. Along the sequence lowering makes them; along the batch they are
  // divided where they are not the same for all of it.
  void take_mask() {
    const auto fields = call_.items(call_.arg(flex_.mask_param, "block_mask"));
    for (const Operand& field : fields) call_.take_whole(field);
    if (cut_.dim == kSequenceDim) call_.take_part(fields[kFlexQueryLength]);
    if (cut_.keys) call_.take_part(fields[kFlexKeyLength]);
    for (const FlexTablePair& pair : kFlexTables)
      for (const std::size_t position : {pair.counts, pair.indices}) {
        const Operand table = fields[position];
        if (table.arg.is_none()) continue;
        const TensorType* type = call_.tensor(table);
        if (type == nullptr || type->rank() != (position == pair.counts ? 3U : 4U))
          refuse_mask(fmt::format("field {} of its mask is no block table", position));
        cut_.dim == kBatchDim ? take_batch_of_table(table, *type) : require_plain_table(table, *type);
      }
    if (cut_.dim == kBatchDim) return;
    for (const Arg& other : flex_.other_mask_fields())
      if (!other.is_none())
        refuse_mask(
            "its mask holds an order of writing (deterministic backward), which would be another for "
            "a part");
  }
  void take_batch_of_table(Operand table, const TensorType& type) {
    const Placement p = call_.of(table);
    if (p.is_rows() && p.dim == kBatchDim) return call_.take_part(table);
    if (p.is_whole() && call_.facts().pool().constant(type.sizes[0]) == 1) return;
    call_.refuse(
        "chunk.block-mask",
        fmt::format("its queries are divided along the batch, and block table '{}' is for {} batch rows, "
                    "which does not count tokens",
                    call_.name_of(table), context_.exprs.text(type.sizes[0])),
        "trace with dimension 0 of the block mask's tensors marked dynamic, or name them: "
        "symbolize{inputs=[tokens:0,..]}");
  }
  void require_plain_table(Operand table, const TensorType& type) {
    for (const ExprId extent : type.sizes)
      if (!call_.facts().pool().constant(extent))
        refuse_mask(fmt::format("block table '{}' has a symbolic number of blocks", call_.name_of(table)));
  }

  // What the functions of one kind capture, and whether they must count from the part's first row.
  void take_captured(FlexFunctionKind kind, Operand list) {
    const auto captured = call_.items(list);
    bool& is_rebased = kind == FlexFunctionKind::kMask ? cut_.mask : cut_.score;
    for (const Operand& operand : captured) call_.take_whole(operand);
    if (cut_.dim == kBatchDim && kind == FlexFunctionKind::kMask && take_batch_of_captured(captured)) return;
    for (const FlexFunction& function : flex_.functions) {
      if ((function.kind == FlexFunctionKind::kMask) != (kind == FlexFunctionKind::kMask)) continue;
      const auto parameters = parameters_of(*function.body);
      for (const FlexIndex index : indices_of(cut_))
        is_rebased |=
            reads_parameter(context_, *function.body, parameters[flex_index_position(function.kind, index)]);
    }
  }

  // A mask function that reads the batch number only to index tensors divided along the batch can
  // be given parts of those, and numbers of the part.
  bool take_batch_of_captured(const std::vector<Operand>& captured) {
    const auto mask = std::find_if(flex_.functions.begin(), flex_.functions.end(),
                                   [](auto& f) { return f.kind == FlexFunctionKind::kMask; });
    const auto parameters = parameters_of(*mask->body);
    const std::size_t first = flex_captured_position(FlexFunctionKind::kMask);
    if (parameters.size() != first + captured.size()) return false;
    const NodeId batch = parameters[flex_index_position(FlexFunctionKind::kMask, FlexIndex::kBatch)];
    std::vector<NodeId> lookups;
    std::vector<Operand> divided;
    for (std::size_t i = 0; i < captured.size(); ++i) {
      if (call_.tensor(captured[i]) == nullptr) continue;
      const Placement p = call_.of(captured[i]);
      call_.take_whole(captured[i]);
      if (!p.is(PlacementKind::kSplit) || p.dim != kBatchDim) continue;
      const auto found = lookups_of(context_, *mask->body, parameters[first + i], batch);
      if (!found) return false;
      lookups.insert(lookups.end(), found->begin(), found->end());
      divided.push_back(captured[i]);
    }
    if (reads_parameter(context_, *mask->body, batch, lookups)) return false;
    for (const Operand& operand : divided) call_.take_part(operand);
    return true;
  }
  std::vector<Placement> captured_gradients() {
    std::vector<Placement> gradients;
    const TypeId captured = context_.types[call_.node().type].elements.back();
    for (const TypeId gradient : context_.types[captured].elements)
      gradients.push_back(tensor_of(context_, gradient) == nullptr ? Placement::whole()
                                                                   : Placement::partial());
    return gradients;
  }

  PlacementCall& call_;
  const Context& context_;
  FlexCall flex_;
  AttentionCut cut_;
};

Placement flex(PlacementCall& call) {
  return FlexRule(call).place();
}

// Not of one that a backend outside torch brings.
bool is_of_known_kernel(const OpInfo& op) {
  return op.type_rule != rules::overrideable_attention &&
         op.type_rule != rules::overrideable_attention_backward;
}

constexpr PlacementRow kAttentionRows[] = {
    {OpFamily::kAttention, dot_product, is_of_known_kernel},
    {OpFamily::kFlexAttention, flex},
};

}  // namespace

std::span<const PlacementRow> attention_placement_rows() {
  return kAttentionRows;
}

}  // namespace epweave
