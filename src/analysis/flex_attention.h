// FlexAttention calls: what their arguments are.
//
// A call names a score and a mask function, nested graphs, and the tensors and numbers that they
// capture:
//
//   flex_attention(query, key, value, score, (q_len, kv_len, kv_num_blocks, .., block_q, block_kv, mask), ..,
//                  (captured by score), (captured by mask))
//   score(score, batch, head, query, key, captured..)        mask(batch, head, query, key, captured..)
//   joint(score, batch, head, query, key, gradient, captured..)   of the backward call: gradients of its
//   first
//                                                                 five arguments and of what it captures
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "ir/graph.h"
#include "ops/op.h"

namespace epweave {

// The numbers that a function gets for a pair of a query and a key.
enum class FlexIndex : std::uint8_t { kBatch, kHead, kQuery, kKey };

enum class FlexFunctionKind : std::uint8_t { kScore, kJoint, kMask };

// Positions among the parameters of a function.
std::size_t flex_index_position(FlexFunctionKind kind, FlexIndex index);
std::size_t flex_captured_position(FlexFunctionKind kind);

struct FlexFunction {
  FlexFunctionKind kind;
  std::size_t param;  // of the schema; the mask function is the last field of the mask
  NodeId source;      // the get_attr node that the call names
  const Body* body = nullptr;
};

// The block tables of a mask: for each block of queries the blocks of keys that it sees in part
// (partial) or altogether (full), `kv_*`, and the same the other way round, `q_*`. `num_blocks` [B,
// H, rows] counts them, `indices` [B, H, rows, columns] lists them, the rest of a row is padding.
// Fields by position in the mask.
struct FlexTablePair {
  std::size_t counts, indices;
  bool by_key;  // q_*: rows are blocks of keys
};
// Whether an element of a backward call's result is the gradient of its keys or of its values.
inline bool is_flex_key_gradient(Arg element) {
  return element == Arg::integer(1) || element == Arg::integer(2);
}
inline constexpr std::size_t kFlexQueryLength = 0, kFlexKeyLength = 1;
inline constexpr std::array<FlexTablePair, 4> kFlexTables = {
    {{2, 3, false}, {4, 5, false}, {6, 7, true}, {8, 9, true}}};

// What block tables made from the mask function fulfil (torch's create_block_mask).
inline constexpr std::string_view kFlexFullBlocks =
    "of blocks that tables of a block mask list as seen altogether its mask function hides nothing";

// What parts that see their own keys alone need, of whatever attention.
inline constexpr std::string_view kOwnKeys =
    "no token attends to one of another part (attention=independent): every border between parts is one "
    "between documents";

class FlexCall {
 public:
  // None if the node is no FlexAttention call, or not one of this form.
  static std::optional<FlexCall> read(const Graph& graph, const Node& node);

  bool is_backward = false;
  std::vector<FlexFunction> functions;
  std::size_t mask_param = 0, score_captured_param = 0, mask_captured_param = 0;  // of the schema
  std::vector<Arg> mask;                                                          // the tuple's fields
  std::int64_t query_block = 0, key_block = 0;

  // Fields of the mask that are neither lengths, tables, block sizes nor the function: orders of
  // writing for deterministic kernels, in newer versions of torch.
  std::vector<Arg> other_mask_fields() const;
  // Whether block tables list blocks that are seen altogether, to which the mask function is not
  // applied.
  bool has_full_blocks() const;
};

// The parameters of a function, in order.
std::vector<NodeId> parameters_of(const Body& body);

// Whether the mask function is false wherever the key stands behind the query: comparisons of the
// two indices, joined by `and` and `or`. False where nothing shows it.
bool hides_later_keys(const Context& context, const FlexFunction& mask);

// Whether a node of the body other than `except` reads the parameter's value (not only its dtype
// and device).
bool reads_parameter(const Context& context, const Body& body, NodeId parameter,
                     const std::vector<NodeId>& except = {});

// The reads of a parameter, if all are `tensor[first, ..]` of the same parameter `first`.
std::optional<std::vector<NodeId>> lookups_of(const Context& context, const Body& body, NodeId tensor,
                                              NodeId first);

}  // namespace epweave
