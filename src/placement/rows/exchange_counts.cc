#include "placement/rows/exchange_counts.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <unordered_set>
#include <utility>
#include <vector>

#include "analysis/same_code.h"
#include "ir/types/dimension.h"
#include "ops/bind.h"
#include "ops/family.h"
#include "ops/op.h"
#include "ops/sorting.h"

namespace epweave {
namespace {

class Tracer {
 public:
  Tracer(const Graph& graph, const ValueNumbers& numbers)
      : graph_(graph), context_(*graph.context), body_(graph.step()), numbers_(numbers) {}

  ExchangeCounts check(NodeId exchange, NodeId sort) {
    const BoundArgs args = bind_args(context_, node(exchange));
    const std::vector<Arg> out = items(args.values[1]), in = items(args.values[2]);
    if (!in.empty() && are_sizes(in))
      return {ExchangeCounts::Verdict::kWrong,
              "its split sizes follow from the number of tokens alone, and the rows are sorted"};
    if (const auto vector = is_descending(sort) ? std::nullopt : shuffled(in))
      return wrong("its split sizes are the entries of '{}' in another order than the ranks'", *vector);
    if (const auto vector = shuffled(out))
      return wrong("it receives by the entries of '{}' in another order than the ranks'", *vector);
    const auto sent = histogram(in), received = histogram(out);
    const auto key = key_of(sort);
    if (!sent || !key) return {};
    const NodeId sorted_by = numbers_[key->made_of];
    for (const auto& counts : {sent, received})
      if (counts && counts->scattered)
        return wrong("its split sizes come from '{}', which adds up counts of ids that are no neighbours",
                     counts->scattered);
    if (sent->group) return wrong("its split sizes count what other ranks have of '{}'", sent->ids);
    if (is_other(*sent, sorted_by))
      return wrong("its split sizes count '{}', and the rows are sorted by '{}'", sent->ids, sorted_by);
    if (numbers_[sent->ids] != sorted_by || sent->may_merge || key->may_merge) return {};
    if (is_descending(sort))
      return {ExchangeCounts::Verdict::kWrong,
              "its split sizes count ids upwards, and the rows are sorted downwards"};
    if (!received) return {};
    if (is_other(*received, sorted_by))
      return wrong("it receives by counts of '{}', and the rows are sorted by '{}'", received->ids,
                   sorted_by);
    if (!received->group)
      return wrong("it receives by its own counts of '{}', not by those of other ranks", received->ids);
    const bool is_matched = numbers_[received->ids] == sorted_by && !received->may_merge &&
                            is_same_group(*received->group, args.values[3]);
    return {is_matched ? ExchangeCounts::Verdict::kProved : ExchangeCounts::Verdict::kUnknown, {}};
  }

 private:
  // `why` names the values.
  template <class... Values>
  ExchangeCounts wrong(std::string_view why, Values... values) const {
    return {ExchangeCounts::Verdict::kWrong,
            fmt::format(fmt::runtime(why), context_.text(node(values).name)...)};
  }

  // Numbers of rows of each bucket of ids; of other ranks' rows if exchanged within a group.
  struct Histogram {
    NodeId ids;
    bool may_merge = false;  // as of Ids
    std::optional<Arg> group;
    NodeId scattered = {};  // the sum whose buckets are not neighbouring ids; none: all are
  };

  bool is_other(const Histogram& histogram, NodeId key) const {
    return numbers_[histogram.ids] != key && !may_be_same_value(graph_, numbers_, histogram.ids, key);
  }
  // The vector whose entries the sizes are, each once but not in order.
  std::optional<NodeId> shuffled(const std::vector<Arg>& sizes) const {
    std::vector<std::int64_t> places;
    NodeId vector;
    for (const Arg size : sizes) {
      const auto entry = size.is_node() ? entry_of(size.as_node()) : std::nullopt;
      if (!entry || (vector && entry->vector != vector)) return {};
      vector = entry->vector;
      places.push_back(entry->place);
    }
    if (!vector || std::is_sorted(places.begin(), places.end())) return {};
    std::sort(places.begin(), places.end());
    for (std::size_t i = 0; i < places.size(); ++i)
      if (places[i] != static_cast<std::int64_t>(i)) return {};
    return vector;
  }

  const Node& node(NodeId id) const { return body_.nodes[id]; }
  bool is_of(NodeId id, OpFamily family) const { return has_family(node(id), family); }
  std::vector<Arg> items(Arg list) const {
    if (!list.is_list()) return {};
    const auto children = context_.args.children(list);
    return {children.begin(), children.end()};
  }
  // The same numbers in the same order.
  bool keeps_counts(NodeId id) const { return node(id).op != nullptr && keeps_numbers(node(id).op->family); }
  Arg first_arg(NodeId id) const { return arg_of(context_, node(id), 0); }

  // As many of each, in whatever order.
  bool keeps_ids(NodeId id) const {
    const OpInfo* op = node(id).op;
    return keeps_counts(id) || (op != nullptr && traits_of(op->family).elements == Elements::kMoved);
  }

  struct Ids {
    NodeId made_of;          // before they were moved or given another shape or dtype
    bool may_merge = false;  // some may have become one, which no order tells apart any more
  };
  Ids trace_ids(NodeId id) const {
    bool may_merge = false;
    for (; keeps_ids(id) && first_arg(id).is_node(); id = first_arg(id).as_node())
      may_merge |= is_of(id, OpFamily::kCast) && merges_ids(id);
    return {id, may_merge};
  }
  // Whether a cast is to bool, or to what rounds or wraps before 31 bits: an id numbers places of a
  // dimension.
  bool merges_ids(NodeId cast) const {
    const TensorType* type = tensor_of(context_, node(cast).type);
    return type == nullptr || !is_integral(type->dtype) || info(type->dtype).bytes < 4;
  }

  std::optional<Ids> key_of(NodeId sort) const {
    const Arg key = first_arg(sort);
    return key.is_node() ? std::optional(trace_ids(key.as_node())) : std::nullopt;
  }
  bool is_descending(NodeId sort) const { return !sorts_upwards(context_, node(sort)); }
  bool is_same_group(Arg a, Arg b) const {
    return a == b || (a.is_node() && b.is_node() && numbers_[a.as_node()] == numbers_[b.as_node()]);
  }

  NodeId unshaped(NodeId id) const {
    while (keeps_counts(id) && first_arg(id).is_node()) id = first_arg(id).as_node();
    return id;
  }

  // Whether all are numbers made of sizes and literals.
  bool are_sizes(const std::vector<Arg>& numbers) const {
    std::vector<Arg> open = numbers;
    std::unordered_set<std::uint32_t> seen;  // nodes
    while (!open.empty()) {
      const Arg number = open.back();
      open.pop_back();
      if (number.is_int()) continue;
      if (!number.is_node()) return false;
      const Node& made = node(number.as_node());
      if (!seen.insert(number.as_node().index()).second || is_of(number.as_node(), OpFamily::kSize)) continue;
      if (!is_of(number.as_node(), OpFamily::kNumber)) return false;
      const auto args = context_.args[made.args], kwargs = context_.args[made.kwargs];
      open.insert(open.end(), args.begin(), args.end());
      for (std::size_t i = 1; i < kwargs.size(); i += 2) open.push_back(kwargs[i]);
    }
    return true;
  }

  // Of split sizes that are the entries of one vector, in order.
  std::optional<Histogram> histogram(const std::vector<Arg>& sizes) const {
    NodeId vector;
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      const auto entry = sizes[i].is_node() ? entry_of(sizes[i].as_node()) : std::nullopt;
      if (!entry || entry->place != static_cast<std::int64_t>(i)) return {};
      if (vector && entry->vector != vector) return {};
      vector = entry->vector;
    }
    if (!vector) return {};
    const TensorType* type = tensor_of(context_, node(vector).type);
    const bool is_all = type != nullptr && type->rank() == 1 &&
                        context_.exprs.constant(type->sizes[0]) == static_cast<std::int64_t>(sizes.size());
    return is_all ? traced(vector, sizes.size()) : std::nullopt;
  }

  // Where a number is read from.
  struct Entry {
    NodeId vector;
    std::int64_t place = 0;
  };
  std::optional<Entry> entry_of(NodeId number) const {
    const Arg read = is_of(number, OpFamily::kHostRead) ? first_arg(number) : Arg::none();
    if (!read.is_node()) return {};
    const NodeId entry = unshaped(read.as_node());
    if (const auto element = tuple_element(context_, body_, node(entry))) {
      const Arg vector = first_arg(element->tuple);
      const bool is_unbound = is_of(element->tuple, OpFamily::kUnbind) && vector.is_node();
      return is_unbound ? std::optional(Entry{vector.as_node(), element->index}) : std::nullopt;
    }
    return is_of(entry, OpFamily::kSelect) ? selected(entry) : std::nullopt;
  }
  // Of `select(vector, 0, place)`.
  std::optional<Entry> selected(NodeId entry) const {
    const BoundArgs args = bind_args(context_, node(entry));
    const Arg vector = args.values[0], place = args.values[2];
    if (!vector.is_node() || args.values[1] != Arg::integer(0) || !place.is_int()) return {};
    if (place.as_int() >= 0) return Entry{vector.as_node(), place.as_int()};
    const TensorType* type = tensor_of(context_, node(vector.as_node()).type);
    const auto size =
        type == nullptr || type->rank() == 0 ? std::nullopt : context_.exprs.constant(type->sizes[0]);
    return size ? std::optional(Entry{vector.as_node(), place.as_int() + *size}) : std::nullopt;
  }

  // Back from `buckets` numbers, each a sum of neighbours, to the ids that they count.
  std::optional<Histogram> traced(NodeId id, std::size_t buckets) const {
    Histogram histogram;
    for (;;) {
      const Arg from = first_arg(id);
      if (!from.is_node()) return {};
      if (is_of(id, OpFamily::kAllToAll)) {
        const BoundArgs args = bind_args(context_, node(id));
        if (histogram.group || !is_even(args.values[1], buckets) || !is_even(args.values[2], buckets))
          return {};
        histogram.group = args.values[3];
      } else if (is_of(id, OpFamily::kSum) && node(id).op->find_param("dim")) {
        const NodeId summed = from.as_node();
        if (is_of(summed, OpFamily::kScatter) && node(summed).op->find_param("value")) {
          const auto ids = sums_all_but_last(id, summed) ? marked_ids(summed) : std::nullopt;
          if (!ids) return {};
          histogram.ids = ids->made_of;
          histogram.may_merge = ids->may_merge;
          return histogram;
        }
        if (!summed_dims(id, summed)) return {};
        if (!sums_neighbours(id, summed)) histogram.scattered = id;
      } else if (!keeps_counts(id)) {
        return {};
      }
      id = from.as_node();
    }
  }

  // As much to and from each of `ranks`.
  bool is_even(Arg splits, std::size_t ranks) const {
    const std::vector<Arg> sizes = items(splits);
    return sizes.size() == ranks && std::all_of(sizes.begin(), sizes.end(),
                                                [&](Arg size) { return size.is_int() && size == sizes[0]; });
  }

  // Whether a sum is over a dimension each; none if that cannot be told, or nothing or all is
  // summed.
  std::optional<std::vector<bool>> summed_dims(NodeId sum, NodeId summed) const {
    const TensorType* type = tensor_of(context_, node(summed).type);
    if (type == nullptr) return {};
    std::vector<bool> is_summed(type->rank());
    for (Arg item : items(bind_args(context_, node(sum)).values[1])) {
      const auto dim = item.is_int() ? find_dimension(item.as_int(), type->rank()) : std::nullopt;
      if (!dim) return {};
      is_summed[*dim] = true;
    }
    const auto count = std::count(is_summed.begin(), is_summed.end(), true);
    return count == 0 || count == std::ssize(is_summed) ? std::nullopt : std::optional(is_summed);
  }
  bool sums_all_but_last(NodeId sum, NodeId summed) const {
    const auto dims = summed_dims(sum, summed);
    return dims && std::count(dims->begin(), dims->end(), false) == 1 && !dims->back();
  }
  // Whether each number is the sum of numbers that stand side by side.
  bool sums_neighbours(NodeId sum, NodeId summed) const {
    const auto dims = summed_dims(sum, summed);
    const auto& sizes = tensor_of(context_, node(summed).type)->sizes;
    bool any_summed = false;
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      if (context_.exprs.constant(sizes[i]) == 1) continue;
      if (!(*dims)[i] && any_summed) return false;
      any_summed |= (*dims)[i];
    }
    return true;
  }

  // Of ones written into zeros along the last dimension.
  std::optional<Ids> marked_ids(NodeId marks) const {
    const BoundArgs args = bind_args(context_, node(marks));
    const TensorType* type = tensor_of(context_, node(marks).type);
    if (type == nullptr || !args.values[0].is_node() || !args.values[1].is_int() || !args.values[2].is_node())
      return {};
    const auto rank = static_cast<std::int64_t>(type->rank());
    const std::int64_t dim = args.values[1].as_int();
    const Arg value = args.values[3];
    const bool is_one = value == Arg::integer(1) || (value.is(ArgKind::kBool) && value.as_bool()) ||
                        (value.is(ArgKind::kReal) && value.as_real() == 1);
    const OpInfo* made = node(args.values[0].as_node()).op;
    if (!is_one || made == nullptr || !made->makes_zeros || (dim != -1 && dim != rank - 1)) return {};
    return trace_ids(args.values[2].as_node());
  }

  const Graph& graph_;
  const Context& context_;
  const Body& body_;
  const ValueNumbers& numbers_;
};

}  // namespace

ExchangeCounts check_exchange_counts(const Graph& graph, const ValueNumbers& numbers, NodeId exchange,
                                     NodeId sort) {
  return Tracer(graph, numbers).check(exchange, sort);
}

}  // namespace epweave
