#include "ops/op.h"

#include <algorithm>
#include <array>

#include "ops/bind.h"
#include "ops/op_table.h"

namespace epweave {
namespace {

std::string_view strip(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

// Splits at commas outside brackets.
std::vector<std::string_view> split_list(std::string_view text) {
  std::vector<std::string_view> items;
  int depth = 0;
  std::size_t begin = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '(' || text[i] == '[') ++depth;
    if (text[i] == ')' || text[i] == ']') --depth;
    if (text[i] == ',' && depth == 0) {
      items.push_back(strip(text.substr(begin, i - begin)));
      begin = i + 1;
    }
  }
  if (!strip(text.substr(begin)).empty()) items.push_back(strip(text.substr(begin)));
  return items;
}

// Takes "(a!)", "(a -> *)" out of "Tensor(a!)[]"; gives "Tensor" (the list brackets stay in `text`
// behind).
struct Annotated {
  std::string_view type, alias_set, rest;
  bool is_written = false;
};

Annotated take_type(std::string_view text) {
  Annotated result;
  std::size_t end = text.find(' ');
  const std::size_t open = text.find('(');
  if (open != text.npos && open < end) {
    const std::size_t close = text.find(')', open);
    std::string_view note = text.substr(open + 1, close - open - 1);
    result.alias_set = note.substr(0, note.find_first_of("! "));
    result.is_written = note.find('!') != note.npos;
    result.type = text.substr(0, open);
    end = text.find(' ', close);
  } else {
    result.type = text.substr(0, end);
  }
  result.rest = end == text.npos ? std::string_view() : strip(text.substr(end));
  return result;
}

void read_schema(OpInfo& op) {
  const std::size_t arrow = op.schema.rfind(") -> ");
  EPWEAVE_CHECK(op.schema.front() == '(' && arrow != op.schema.npos);
  bool kwarg_only = false;
  for (std::string_view item : split_list(op.schema.substr(1, arrow - 1))) {
    if (item == "*") {
      kwarg_only = true;
      continue;
    }
    OpParam param;
    const Annotated typed = take_type(item);
    param.type = typed.type;
    param.alias_set = typed.alias_set;
    param.is_written = typed.is_written;
    param.kwarg_only = kwarg_only;
    const std::size_t equals = typed.rest.find('=');
    param.name = typed.rest.substr(0, equals);
    if (equals != typed.rest.npos) {
      param.has_default = true;
      param.default_value = typed.rest.substr(equals + 1);
    }
    op.writes |= param.is_written;
    op.params.push_back(param);
  }
  std::string_view returns = strip(op.schema.substr(arrow + 5));
  if (returns.front() == '(') returns = returns.substr(1, returns.size() - 2);
  for (std::string_view item : split_list(returns)) {
    const Annotated typed = take_type(item);
    op.returns.push_back({typed.type, typed.rest, typed.alias_set, typed.is_written});
    op.is_view |= !typed.alias_set.empty() && !typed.is_written;
  }
}

// What the schema would say.
void show_first_operand(OpInfo& op) {
  constexpr std::string_view kSet = "a";
  op.params.front().alias_set = kSet;
  for (OpReturn& result : op.returns) result.alias_set = kSet;
  op.is_view = true;
}

std::vector<OpInfo> read_table() {
  std::vector<OpInfo> table;
  for (const OpRow& row : op_rows()) {
    OpInfo op;
    op.target = row.target;
    op.schema = row.schema;
    op.family = row.family;
    op.linearity = row.linearity;
    op.cost = row.cost;
    op.type_rule = row.type_rule;
    op.is_effectful = (row.flags & kEffectful) != 0;
    op.is_random = (row.flags & kRandom) != 0;
    op.reads_types_only = (row.flags & kTypesOnly) != 0;
    op.makes_zeros = (row.flags & kZeros) != 0;
    read_schema(op);
    if ((row.flags & kShowsUnsaid) != 0) show_first_operand(op);
    EPWEAVE_CHECK(op.params.size() <= kMaxParams);
    table.push_back(std::move(op));
  }
  std::sort(table.begin(), table.end(), [](const OpInfo& a, const OpInfo& b) { return a.target < b.target; });
  for (std::size_t i = 0; i < table.size(); ++i) {
    table[i].index = static_cast<std::uint16_t>(i);
    EPWEAVE_CHECK(i == 0 || table[i - 1].target != table[i].target);
  }
  return table;
}

}  // namespace

std::string_view name_of(CostClass cost) {
  static constexpr std::array<std::string_view, 9> kNames = {
      "free", "memory", "reduction", "matmul", "attention", "sort", "collective", "wait", "host-sync"};
  return kNames[static_cast<std::size_t>(cost)];
}

std::string_view name_of(OpFamily family) {
  switch (family) {
    case OpFamily::kElementwise:
      return "elementwise";
    case OpFamily::kIdentity:
      return "identity";
    case OpFamily::kCast:
      return "cast";
    case OpFamily::kTransfer:
      return "transfer";
    case OpFamily::kSum:
      return "sum";
    case OpFamily::kReduce:
      return "reduce";
    case OpFamily::kTruth:
      return "truth";
    case OpFamily::kScan:
      return "scan";
    case OpFamily::kNormalise:
      return "normalise";
    case OpFamily::kHalve:
      return "halve";
    case OpFamily::kHalveBackward:
      return "halve-backward";
    case OpFamily::kNormaliseLast:
      return "normalise-last";
    case OpFamily::kNormaliseLastBackward:
      return "normalise-last-backward";
    case OpFamily::kReshape:
      return "reshape";
    case OpFamily::kBitView:
      return "bit-view";
    case OpFamily::kUnsqueeze:
      return "unsqueeze";
    case OpFamily::kSqueeze:
      return "squeeze";
    case OpFamily::kPermute:
      return "permute";
    case OpFamily::kExpand:
      return "expand";
    case OpFamily::kRepeat:
      return "repeat";
    case OpFamily::kSelect:
      return "select";
    case OpFamily::kSlice:
      return "slice";
    case OpFamily::kSplit:
      return "split";
    case OpFamily::kUnbind:
      return "unbind";
    case OpFamily::kPad:
      return "pad";
    case OpFamily::kUnslice:
      return "unslice";
    case OpFamily::kSliceWrite:
      return "slice-write";
    case OpFamily::kJoin:
      return "join";
    case OpFamily::kStack:
      return "stack";
    case OpFamily::kReorder:
      return "reorder";
    case OpFamily::kTriangle:
      return "triangle";
    case OpFamily::kIndex:
      return "index";
    case OpFamily::kGather:
      return "gather";
    case OpFamily::kIndexSelect:
      return "index-select";
    case OpFamily::kEmbedding:
      return "embedding";
    case OpFamily::kEmbeddingBackward:
      return "embedding-backward";
    case OpFamily::kIndexPut:
      return "index-put";
    case OpFamily::kScatter:
      return "scatter";
    case OpFamily::kScatterAdd:
      return "scatter-add";
    case OpFamily::kIndexCopy:
      return "index-copy";
    case OpFamily::kRowScatter:
      return "row-scatter";
    case OpFamily::kIndexAdd:
      return "index-add";
    case OpFamily::kRepeatRows:
      return "repeat-rows";
    case OpFamily::kMaskedRows:
      return "masked-rows";
    case OpFamily::kSearch:
      return "search";
    case OpFamily::kCount:
      return "count";
    case OpFamily::kOneHot:
      return "one-hot";
    case OpFamily::kTopK:
      return "top-k";
    case OpFamily::kSort:
      return "sort";
    case OpFamily::kMatmul:
      return "matmul";
    case OpFamily::kAddMatmul:
      return "add-matmul";
    case OpFamily::kGroupedMatmul:
      return "grouped-matmul";
    case OpFamily::kConvolution:
      return "convolution";
    case OpFamily::kConvolutionBackward:
      return "convolution-backward";
    case OpFamily::kSolve:
      return "solve";
    case OpFamily::kAttention:
      return "attention";
    case OpFamily::kFlexAttention:
      return "flex-attention";
    case OpFamily::kLoss:
      return "loss";
    case OpFamily::kLossBackward:
      return "loss-backward";
    case OpFamily::kClassLoss:
      return "class-loss";
    case OpFamily::kClassLossBackward:
      return "class-loss-backward";
    case OpFamily::kFactory:
      return "factory";
    case OpFamily::kIota:
      return "iota";
    case OpFamily::kLike:
      return "like";
    case OpFamily::kNew:
      return "new";
    case OpFamily::kRandom:
      return "random";
    case OpFamily::kSize:
      return "size";
    case OpFamily::kNumber:
      return "number";
    case OpFamily::kComparison:
      return "comparison";
    case OpFamily::kHostRead:
      return "host-read";
    case OpFamily::kCheck:
      return "check";
    case OpFamily::kElement:
      return "element";
    case OpFamily::kAllGather:
      return "all-gather";
    case OpFamily::kReduceScatter:
      return "reduce-scatter";
    case OpFamily::kAllReduce:
      return "all-reduce";
    case OpFamily::kAllToAll:
      return "all-to-all";
    case OpFamily::kBroadcast:
      return "broadcast";
    case OpFamily::kGatherMatmul:
      return "gather-matmul";
    case OpFamily::kMatmulScatter:
      return "matmul-scatter";
    case OpFamily::kGatherPair:
      return "gather-pair";
    case OpFamily::kScatterPair:
      return "scatter-pair";
    case OpFamily::kWait:
      return "wait";
    case OpFamily::kMesh:
      return "mesh";
    case OpFamily::kOpaque:
      return "opaque";
  }
  return {};
}

std::string_view name_of(Linearity linearity) {
  switch (linearity) {
    case Linearity::kNone:
      return "none";
    case Linearity::kFirst:
      return "first";
    case Linearity::kEach:
      return "each";
    case Linearity::kSum:
      return "sum";
  }
  return {};
}

std::optional<std::size_t> OpInfo::find_param(std::string_view name) const {
  for (std::size_t i = 0; i < params.size(); ++i)
    if (params[i].name == name) return i;
  return std::nullopt;
}

std::span<const OpInfo> ops() {
  static const std::vector<OpInfo> table = read_table();
  return table;
}

const OpInfo* find_op(std::string_view target) {
  const auto table = ops();
  auto found = std::lower_bound(table.begin(), table.end(), target,
                                [](const OpInfo& op, std::string_view t) { return op.target < t; });
  return found != table.end() && found->target == target ? &*found : nullptr;
}

void resolve_op(const Context& context, Node& node) {
  node.op = node.kind == NodeKind::kCall ? find_op(context.text(node.target)) : nullptr;
}

}  // namespace epweave
