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

bool has_flag(const OpInfo& op, OpFlags flag) {
  static const std::vector<unsigned> by_index = [] {
    std::vector<unsigned> flags(ops().size());
    for (const OpRow& row : op_rows()) flags[find_op(row.target)->index] = row.flags;
    return flags;
  }();
  return (by_index[op.index] & flag) != 0;
}

void resolve_op(const Context& context, Node& node) {
  node.op = node.kind == NodeKind::kCall ? find_op(context.text(node.target)) : nullptr;
}

}  // namespace epweave
