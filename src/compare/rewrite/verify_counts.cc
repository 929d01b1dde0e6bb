#include "compare/rewrite/verify_counts.h"

#include <algorithm>
#include <string_view>

#include "analysis/same_code.h"
#include "ops/bind.h"
#include "ops/named_arg.h"
#include "ops/op.h"
#include "ops/sorting.h"

namespace epweave {
namespace {

// Narrower ones may wrap.
bool is_wide_integer(DType dtype) {
  return dtype == DType::kInt64 || dtype == DType::kInt32;
}

}  // namespace

CountCheck::CountCheck(const Graph& graph, const Effects& effects, const ValueNumbers& numbers)
    : graph_(graph), context_(*graph.context), body_(graph.step()), effects_(effects), numbers_(numbers) {
  for (NodeId id : body_.order)
    for (const StorageAccess& access : effects.accesses_of(id))
      if (access.writes && !is_wait(node(id))) ++writes_.at(access.storage);
}

CountCheck::Finding CountCheck::check(NodeId exchange, NodeId sort) const {
  const Node& call = node(exchange);
  const NodeId keys = first_input(sort), key = keys ? without_shape(keys) : NodeId();
  const auto sent = counted_by(list(call, "input_split_sizes")),
             received = counted_by(list(call, "output_split_sizes"));
  if (!key || !sent) return {};
  if (!may_be(sent->ids, key)) return {Verdict::kOthers, sent->ids, key};
  if (received && !may_be(received->ids, key)) return {Verdict::kOthers, received->ids, key};
  const bool are_these =
      received && numbers_[sent->ids] == numbers_[key] && numbers_[received->ids] == numbers_[key];
  const bool is_sent = !sent->group && received && received->group &&
                       is_same(*received->group, named_arg(context_, call, "group_name"));
  return {are_these && is_sent && sorts_upwards_one(sort) ? Verdict::kCounted : Verdict::kUnknown, {}, {}};
}

CountCheck::Finding CountCheck::check_ends(NodeId ends, NodeId sort) const {
  const NodeId keys = first_input(sort), key = keys ? without_shape(keys) : NodeId();
  const NodeId sums = without_shape(ends), counts = sums ? first_input(sums) : NodeId();
  const TensorType* type = counts ? tensor_of(context_, node(counts).type) : nullptr;
  const auto groups = type != nullptr && type->rank() == 1 ? context_.exprs.constant(type->sizes[0])
                                                           : std::optional<std::int64_t>();
  if (!key || !groups || !is_of(sums, OpFamily::kScan) || node(sums).op->linearity == Linearity::kNone)
    return {};
  const auto counted = follow(counts, static_cast<std::size_t>(*groups));
  if (!counted) return {};
  if (!may_be(counted->ids, key)) return {Verdict::kOthers, counted->ids, key};
  const bool are_these = numbers_[counted->ids] == numbers_[key] && !counted->group;
  return {are_these && sorts_upwards_one(sort) ? Verdict::kCounted : Verdict::kUnknown, {}, {}};
}

bool CountCheck::sorts_upwards_one(NodeId sort) const {
  const TensorType* sorted = tensor_of(context_, node(first_input(sort)).type);
  return sorted != nullptr && sorted->rank() == 1 && sorts_upwards(context_, node(sort));
}

// Sizes that are the numbers of one vector, each in its place.
std::optional<CountCheck::Histogram> CountCheck::counted_by(const Sizes& sizes) const {
  NodeId vector;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const NodeId from = vector_of(sizes[i], i);
    if (!from || (vector && from != vector)) return {};
    vector = from;
  }
  const TensorType* type = vector ? tensor_of(context_, node(vector).type) : nullptr;
  const bool are_all = type != nullptr && type->rank() == 1 &&
                       context_.exprs.constant(type->sizes[0]) == static_cast<std::int64_t>(sizes.size());
  return are_all ? follow(vector, sizes.size()) : std::nullopt;
}

// The vector in which a number that the host reads stands at this place; none: no such.
NodeId CountCheck::vector_of(Arg number, std::size_t place) const {
  if (!number.is_node() || !is_of(number.as_node(), OpFamily::kHostRead)) return {};
  NodeId entry = first_input(number.as_node());
  while (entry && keeps_integers(entry)) entry = first_input(entry);
  return entry ? entry_of(entry, place) : NodeId();
}

NodeId CountCheck::entry_of(NodeId entry, std::size_t place) const {
  const auto at = static_cast<std::int64_t>(place);
  NodeId vector;
  if (const auto element = tuple_element(context_, body_, node(entry))) {
    if (is_of(element->tuple, OpFamily::kUnbind) && element->index == at)
      vector = first_input(element->tuple);
  } else if (is_of(entry, OpFamily::kSelect)) {
    if (named_arg(context_, node(entry), "dim") == Arg::integer(0) &&
        named_arg(context_, node(entry), "index") == Arg::integer(at))
      vector = first_input(entry);
  }
  const TensorType* type = vector ? tensor_of(context_, node(vector).type) : nullptr;
  return type != nullptr && type->rank() == 1 ? vector : NodeId();
}

std::optional<CountCheck::Histogram> CountCheck::follow(NodeId vector, std::size_t buckets) const {
  Histogram histogram;
  for (NodeId id = vector; id; id = first_input(id)) {
    if (writes_to(id) > 0) return {};
    if (keeps_integers(id)) continue;
    if (is_of(id, OpFamily::kSum) && sums_rows_of_marks(id)) {
      histogram.ids = marked_ids(first_input(id));
      return histogram.ids ? std::optional(histogram) : std::nullopt;
    }
    if (is_of(id, OpFamily::kSum) && sums_neighbours(id)) continue;
    if (!is_of(id, OpFamily::kAllToAll) || histogram.group || !is_even(node(id), buckets)) return {};
    histogram.group = named_arg(context_, node(id), "group_name");
  }
  return {};
}

// The same numbers, row-major.
bool CountCheck::keeps_integers(NodeId value) const {
  const TensorType* type = tensor_of(context_, node(value).type);
  const NodeId from = first_input(value);
  const TensorType* before = from ? tensor_of(context_, node(from).type) : nullptr;
  if (type == nullptr || before == nullptr || !is_wide_integer(type->dtype)) return false;
  if (writes_to(value) > 0) return false;
  if (!is_wide_integer(before->dtype)) return false;
  switch (node(value).op != nullptr ? node(value).op->family : OpFamily::kOpaque) {
    case OpFamily::kIdentity:
    case OpFamily::kReshape:
    case OpFamily::kWait:
    case OpFamily::kCast:
    case OpFamily::kTransfer:
      return true;
    default:
      return false;
  }
}

NodeId CountCheck::without_shape(NodeId value) const {
  while (value && keeps_integers(value)) value = first_input(value);
  return value && writes_to(value) == 0 ? value : NodeId();
}

NodeId CountCheck::first_input(NodeId value) const {
  const Arg first = arg_of(context_, node(value), 0);
  return first.is_node() ? first.as_node() : NodeId();
}

// As much to and from each of so many ranks.
bool CountCheck::is_even(const Node& exchange, std::size_t ranks) const {
  for (const std::string_view name : {"output_split_sizes", "input_split_sizes"}) {
    const Sizes sizes = list(exchange, name);
    const bool are_equal =
        std::ranges::all_of(sizes, [&](Arg size) { return size.is_int() && size == sizes.front(); });
    if (sizes.size() != ranks || !are_equal) return false;
  }
  return true;
}

// None: all of them, or which is not known.
std::optional<std::vector<bool>> CountCheck::summed_dimensions(NodeId sum) const {
  const NodeId from = first_input(sum);
  const TensorType *type = from ? tensor_of(context_, node(from).type) : nullptr,
                   *result = tensor_of(context_, node(sum).type);
  if (type == nullptr || result == nullptr || !is_wide_integer(result->dtype)) return {};
  const auto rank = static_cast<std::int64_t>(type->rank());
  std::vector<bool> is_summed(type->rank());
  for (Arg dim : list(node(sum), "dim")) {
    const std::int64_t at = dim.is_int() ? dim.as_int() + (dim.as_int() < 0 ? rank : 0) : -1;
    if (at < 0 || at >= rank) return {};
    is_summed[static_cast<std::size_t>(at)] = true;
  }
  const bool is_some = std::ranges::find(is_summed, true) != is_summed.end() &&
                       std::ranges::find(is_summed, false) != is_summed.end();
  return is_some ? std::optional(is_summed) : std::nullopt;
}

// Each number is a sum of those that stand side by side.
bool CountCheck::sums_neighbours(NodeId sum) const {
  const auto is_summed = summed_dimensions(sum);
  if (!is_summed) return false;
  const TensorType& type = *tensor_of(context_, node(first_input(sum)).type);
  bool any_summed = false;
  for (std::size_t i = 0; i < type.rank(); ++i) {
    if (context_.exprs.constant(type.sizes[i]) == 1) continue;
    if (any_summed && !(*is_summed)[i]) return false;
    any_summed |= (*is_summed)[i];
  }
  return true;
}

// Over all dimensions but the last, along which the marks were set.
bool CountCheck::sums_rows_of_marks(NodeId sum) const {
  const auto is_summed = summed_dimensions(sum);
  return is_summed && !is_summed->back() && std::ranges::count(*is_summed, false) == 1 &&
         (is_of(first_input(sum), OpFamily::kScatter) || is_of(first_input(sum), OpFamily::kOneHot));
}

// Of ones that are set in zeros along the last dimension, or for each id one, where.
NodeId CountCheck::marked_ids(NodeId marks) const {
  const TensorType* type = tensor_of(context_, node(marks).type);
  if (is_of(marks, OpFamily::kOneHot)) {
    const Arg classes = named_arg(context_, node(marks), "num_classes");
    const bool are_all = classes.is_int() && classes.as_int() > 0 && first_input(marks);
    return are_all ? without_shape(first_input(marks)) : NodeId();
  }
  const NodeId zeros = first_input(marks);
  const Arg value = named_arg(context_, node(marks), "value"), dim = named_arg(context_, node(marks), "dim"),
            ids = named_arg(context_, node(marks), "index");
  if (type == nullptr || !zeros || !dim.is_int() || !ids.is_node()) return {};
  const auto rank = static_cast<std::int64_t>(type->rank());
  const bool is_one = value == Arg::integer(1) || value == Arg::boolean(true);
  const bool is_last = dim.as_int() == -1 || dim.as_int() == rank - 1;
  const bool are_zeros = node(zeros).op != nullptr && node(zeros).op->makes_zeros;
  // In place, they are the only write to the zeros.
  const std::uint32_t own = effects_.storage_of(marks) == effects_.storage_of(zeros) ? 1 : 0;
  const bool is_new = are_zeros && writes_to(zeros) == own && writes_to(marks) == own;
  return is_one && is_last && is_new ? without_shape(ids.as_node()) : NodeId();
}

// Unless they are known to be two values.
bool CountCheck::may_be(NodeId ids, NodeId key) const {
  return numbers_[ids] == numbers_[key] || may_be_same_value(graph_, numbers_, ids, key);
}

bool CountCheck::is_same(Arg a, Arg b) const {
  return a == b || (a.is_node() && b.is_node() && numbers_[a.as_node()] == numbers_[b.as_node()]);
}

CountCheck::Sizes CountCheck::list(const Node& node, std::string_view name) const {
  const Arg given = named_arg(context_, node, name);
  if (!given.is_list()) return {};
  const auto items = context_.args.children(given);
  return {items.begin(), items.end()};
}

}  // namespace epweave
