#include "compare/rewrite/verify_counts.h"

#include <algorithm>
#include <string_view>

#include "analysis/collectives.h"
#include "analysis/same_code.h"
#include "compare/rewrite/conditions.h"
#include "ir/types/dimension.h"
#include "ops/bind.h"
#include "ops/family.h"
#include "ops/named_arg.h"
#include "ops/number_ops.h"
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

// What the rows are sorted by.
NodeId CountCheck::key_of(NodeId sort) const {
  const NodeId keys = first_input(sort);
  return keys ? ids_behind(keys) : NodeId();
}

const CountCheck::Counted& CountCheck::list_counted(NodeId exchange) const {
  const auto [entry, is_new] = counted_.try_emplace(exchange);
  if (is_new)
    entry->second = {counted_by(list(node(exchange), "input_split_sizes")),
                     counted_by(list(node(exchange), "output_split_sizes"))};
  return entry->second;
}

CountCheck::Finding CountCheck::check(NodeId exchange, NodeId sort) const {
  const Counted& counted = list_counted(exchange);
  const Finding finding = compare(counted, key_of(sort));
  if (finding.verdict != Verdict::kCounted) return finding;
  const std::optional<Arg>&sent_over = counted[0]->received_over, &received_over = counted[1]->received_over;
  const bool is_sent = !sent_over && received_over &&
                       is_same(*received_over, named_arg(context_, node(exchange), "group_name"));
  return is_sent ? in_order(sort, list(node(exchange), "input_split_sizes").size()) : Finding();
}

CountCheck::Finding CountCheck::compare_ids(NodeId exchange, NodeId sort) const {
  return compare(list_counted(exchange), key_of(sort));
}

CountCheck::Finding CountCheck::check_ends(NodeId ends, NodeId sort) const {
  const auto groups = static_cast<std::size_t>(length_of(integers_behind(ends)).value_or(1));
  if (counts_classes(ends, sort)) return in_order(sort, groups);
  const Counted counted = {counted_by_ends(ends)};
  const Finding finding = compare(counted, key_of(sort));
  if (finding.verdict != Verdict::kCounted) return finding;
  return counted[0]->received_over ? Finding() : in_order(sort, groups);
}

CountCheck::Finding CountCheck::compare_ids_of_ends(NodeId ends, NodeId sort) const {
  if (counts_classes(ends, sort)) return {Verdict::kCounted, {}, {}};
  return compare({counted_by_ends(ends)}, key_of(sort));
}

// Sorted rows lie in runs of an id each, received ones in those of a rank and an id. Sums of
// neighbours count runs that follow one another as one.
CountCheck::Finding CountCheck::check_runs(NodeId counts, NodeId exchange, NodeId sort) const {
  const std::optional<Histogram> histogram = follow(counts, std::nullopt);
  const Finding finding = compare({histogram}, key_of(sort));
  if (finding.verdict != Verdict::kCounted) return finding;
  const std::optional<Arg>& over = histogram->received_over;
  if (!exchange)
    return over ? Finding() : in_order(sort, static_cast<std::size_t>(length_of(counts).value_or(1)));
  const bool is_received = over && is_same(*over, named_arg(context_, node(exchange), "group_name"));
  return is_received ? check(exchange, sort) : Finding();
}

// They are known to be others where neither is made of the other.
CountCheck::Finding CountCheck::compare(const Counted& counted, NodeId key) const {
  bool are_all_key = static_cast<bool>(key);
  NodeId other;
  for (const std::optional<Histogram>& histogram : counted) {
    const bool is_key = key && histogram && numbers_[histogram->ids] == numbers_[key];
    are_all_key &= is_key;
    if (!key || !histogram || is_key) continue;
    const NodeId ids = histogram->ids;
    const bool may_be_key =
        may_be_same_value(graph_, numbers_, ids, key) || is_made_of(ids, key) || is_made_of(key, ids);
    if (!holds(Condition::kCountsTheSorted, may_be_key)) return {Verdict::kOthers, ids, key};
    other = ids;
  }
  if (are_all_key) return {Verdict::kCounted, {}, {}};
  return other ? Finding{Verdict::kUnknown, other, key} : Finding();
}

// Ends that are the sums of counts from the first on.
std::optional<CountCheck::Histogram> CountCheck::counted_by_ends(NodeId ends) const {
  const NodeId sums = integers_behind(ends), counts = sums ? first_input(sums) : NodeId();
  const auto groups = length_of(counts);
  if (!groups || !is_sum_from_first(sums)) return {};
  return follow(counts, static_cast<std::size_t>(*groups));
}

// Groups of the rows whose runs have the same number in a list that counts 0 .. m-1 over and over:
// sums of each m-th count. By these numbers the rows are sorted.
bool CountCheck::counts_classes(NodeId ends, NodeId sort) const {
  const NodeId key = key_of(sort), counts = key ? counts_of_runs(key) : NodeId();
  const NodeId list = counts ? first_input(key) : NodeId();
  const auto classes = list ? length_of_cycle(list) : std::optional<std::int64_t>();
  const NodeId sums = integers_behind(ends), sizes = sums ? integers_behind(first_input(sums)) : NodeId();
  if (!classes || !sizes || !is_sum_from_first(sums) || !is_of(sizes, OpFamily::kSum)) return false;
  const auto is_summed = summed_dimensions(sizes);
  if (!is_summed || is_summed->back() || std::ranges::count(*is_summed, false) != 1) return false;
  const NodeId grid = first_input(sizes), counted = integers_behind(grid);
  const bool sums_each_class =
      context_.exprs.constant(tensor_of(context_, node(grid).type)->sizes.back()) == classes;
  return counted && numbers_[counted] == numbers_[counts] &&
         holds(Condition::kSumsEachClass, sums_each_class);
}

// What picks elements of a list.
NodeId CountCheck::index_of(NodeId picked) const {
  Arg index = Arg::none();
  if (is_of(picked, OpFamily::kIndexSelect)) index = named_arg(context_, node(picked), "index");
  if (is_of(picked, OpFamily::kIndex)) {
    const Sizes indices = list(node(picked), "indices");
    if (indices.size() == 1) index = indices.front();
  }
  const bool are_lists = is_list(picked) && is_list(first_input(picked));
  return are_lists && index.is_node() ? integers_behind(index.as_node()) : NodeId();
}

// Of elements of a list, each picked as often as its count says: the counts.
NodeId CountCheck::counts_of_runs(NodeId picked) const {
  NodeId runs = index_of(picked);
  // 0, 1, .. picked by the numbers of runs are these.
  while (runs && index_of(runs)) {
    const NodeId numbers = integers_behind(first_input(runs));
    if (!numbers || !is_of(numbers, OpFamily::kIota) || !counts_from_zero(context_, node(numbers))) return {};
    runs = index_of(runs);
  }
  if (!runs || !is_of(runs, OpFamily::kRepeatRows) || node(runs).op->params.front().name != "repeats")
    return {};
  return integers_behind(first_input(runs));
}

std::optional<CountCheck::Grid> CountCheck::grid_of(NodeId value) const {
  const TensorType* type = value ? tensor_of(context_, node(value).type) : nullptr;
  const NodeId list = integers_behind(value);
  if (!list || type == nullptr || type->rank() != 2 || !is_wide_integer(type->dtype)) return {};
  const auto columns = context_.exprs.constant(type->sizes[1]);
  const bool are_known = columns && context_.exprs.constant(type->sizes[0]);
  return are_known ? std::optional(Grid{list, *columns}) : std::nullopt;
}

std::optional<CountCheck::Grid> CountCheck::transposed(NodeId list) const {
  const NodeId moved = integers_behind(list);
  if (!moved || !is_of(moved, OpFamily::kPermute)) return {};
  const Arg first = named_arg(context_, node(moved), "dim0"),
            second = named_arg(context_, node(moved), "dim1");
  const Sizes dims = CountCheck::list(node(moved), "dims");
  const auto at = [](Arg dim) {
    const bool is_dim = dim.is_int() && dim.as_int() >= -2 && dim.as_int() < 2;
    return is_dim ? (dim.as_int() + 2) % 2 : -1;
  };
  bool is_swapped = node(moved).op->params.size() == 1;  // t
  if (!first.is_none()) is_swapped = at(first) >= 0 && at(second) >= 0 && at(first) != at(second);
  if (!dims.empty()) is_swapped = dims.size() == 2 && at(dims[0]) == 1 && at(dims[1]) == 0;
  return is_swapped ? grid_of(first_input(moved)) : std::nullopt;
}

// cumsum(list) - list: the list.
NodeId CountCheck::sums_before(NodeId list) const {
  const std::vector<Term> terms = list ? terms_of(list) : std::vector<Term>();
  if (terms.size() != 2 || terms[0].is_subtracted == terms[1].is_subtracted) return {};
  const NodeId sums = terms[terms[0].is_subtracted ? 1 : 0].value,
               of = terms[terms[0].is_subtracted ? 0 : 1].value;
  const bool is_scan = is_sum_from_first(sums) && is_one(integers_behind(first_input(sums)), of);
  return is_scan ? of : NodeId();
}

// Lists of integers that are added or subtracted, of one length.
std::vector<CountCheck::Term> CountCheck::terms_of(NodeId sum) const {
  constexpr std::size_t kMost = 3;
  std::vector<Term> terms, open = {{sum, false}};
  if (!is_list(sum)) return {};
  const TensorType* whole = tensor_of(context_, node(sum).type);
  while (!open.empty()) {
    const Term term = open.back();
    open.pop_back();
    const NodeId value = is_list(term.value) ? integers_behind(term.value) : NodeId();
    const TensorType *type = tensor_of(context_, node(term.value).type),
                     *made = value ? tensor_of(context_, node(value).type) : nullptr;
    if (made == nullptr || !is_wide_integer(made->dtype) || type->sizes[0] != whole->sizes[0] ||
        terms.size() + open.size() >= kMost)
      return {};
    const OpInfo* op = node(value).op;
    const bool is_sum = op != nullptr && op->family == OpFamily::kElementwise &&
                        op->linearity == Linearity::kSum && op->find_param("alpha") &&
                        op->find_param("other");
    if (!is_sum) {
      terms.push_back({value, term.is_subtracted});
      continue;
    }
    const Arg alpha = named_arg(context_, node(value), "alpha"),
              other = named_arg(context_, node(value), "other");
    const NodeId self = first_input(value);
    if (!self || !other.is_node() || !(alpha.is_none() || alpha == Arg::integer(1))) return {};
    const auto subtracted = subtracted_operand(*op);
    open.push_back({other.as_node(), term.is_subtracted != (subtracted == 1)});
    open.push_back({self, term.is_subtracted != (subtracted == 0)});
  }
  return terms;
}

// from[run] + arange - sums_before(sizes)[run].
std::optional<CountCheck::PlacesByRun> CountCheck::places_by_run(NodeId places) const {
  PlacesByRun found;
  NodeId sizes_of_from;
  bool counts = false;
  const std::vector<Term> terms = terms_of(places);
  for (const Term& term : terms) {
    const NodeId picked_of = first_input(term.value);
    if (is_of(term.value, OpFamily::kIota) && !term.is_subtracted) {
      counts = counts_from_zero(context_, node(term.value));
    } else if (const NodeId sizes = counts_of_runs(term.value); sizes && !term.is_subtracted) {
      found.from = picked_of;
      sizes_of_from = sizes;
    } else if (sizes && is_one(sums_before(picked_of), sizes)) {
      found.sizes = sizes;
    }
  }
  const bool are_places = terms.size() == 3 && counts && is_one(sizes_of_from, found.sizes);
  return are_places ? std::optional(found) : std::nullopt;
}

CountCheck::Finding CountCheck::check_ends_of_places(NodeId ends, NodeId places, NodeId exchange,
                                                     NodeId sort) const {
  const auto [known, is_new] = ends_checked_.try_emplace({ends, places, exchange, sort});
  if (is_new) known->second = find_ends_of_places(ends, places, exchange, sort);
  return known->second;
}

// The runs of each column of a grid of counts, one behind another: groups end at the sums of
// columns.
CountCheck::Finding CountCheck::find_ends_of_places(NodeId ends, NodeId places, NodeId exchange,
                                                    NodeId sort) const {
  const auto by_run = places_by_run(places);
  const auto sizes = by_run ? transposed(by_run->sizes) : std::nullopt,
             from = by_run ? transposed(by_run->from) : std::nullopt;
  const NodeId sums = integers_behind(ends), groups = sums ? integers_behind(first_input(sums)) : NodeId();
  if (!sizes || !from || !groups || !is_sum_from_first(sums) || !is_of(groups, OpFamily::kSum)) return {};
  const auto is_summed = summed_dimensions(groups);
  const auto summed = grid_of(first_input(groups));
  if (!summed || !is_summed || !is_list(groups) || !is_one(sizes->list, sums_before(from->list)) ||
      !is_one(sizes->list, summed->list))
    return {};
  const auto has_columns_of = [&](const Grid& grid) { return grid.columns == sizes->columns; };
  const bool sums_columns = is_summed->front() && has_columns_of(*summed);
  if (!holds(Condition::kSumsRunsOfPlaces, sums_columns) ||
      !holds(Condition::kPlacesBeginRuns, has_columns_of(*from)))
    return {};
  return check_runs(sizes->list, exchange, sort);
}

// m of 0 .. m-1, 0 .. m-1, ..
std::optional<std::int64_t> CountCheck::length_of_cycle(NodeId list) const {
  const NodeId repeated = integers_behind(list);
  if (!repeated || !is_of(repeated, OpFamily::kRepeat)) return {};
  const NodeId cycle = integers_behind(first_input(repeated));
  if (!is_list(repeated) || !is_list(cycle) || !is_of(cycle, OpFamily::kIota)) return {};
  if (!holds(Condition::kCountsOverAndOver, counts_from_zero(context_, node(cycle)))) return {};
  return length_of(cycle);
}

bool CountCheck::is_sum_from_first(NodeId scan) const {
  return is_of(scan, OpFamily::kScan) && node(scan).op->linearity != Linearity::kNone &&
         is_list(first_input(scan));
}

bool CountCheck::is_list(NodeId value) const {
  const TensorType* type = value ? tensor_of(context_, node(value).type) : nullptr;
  return type != nullptr && type->rank() == 1;
}

std::optional<std::int64_t> CountCheck::length_of(NodeId list) const {
  return is_list(list) ? context_.exprs.constant(tensor_of(context_, node(list).type)->sizes[0])
                       : std::nullopt;
}

// Of several ids, which are counted from the first on: so are their rows sorted, or from the last.
CountCheck::Finding CountCheck::in_order(NodeId sort, std::size_t ids) const {
  const TensorType* sorted = tensor_of(context_, node(first_input(sort)).type);
  if (sorted == nullptr || sorted->rank() != 1) return {};
  if (holds(Condition::kSortsUpwards, sorts_upwards(context_, node(sort))))
    return {Verdict::kCounted, {}, {}};
  const bool is_downwards = named_arg(context_, node(sort), "descending") == Arg::boolean(true);
  return is_downwards && ids > 1 ? Finding{Verdict::kOthers, key_of(sort), key_of(sort)} : Finding();
}

// Sizes that are the numbers of one vector, each in its place.
std::optional<CountCheck::Histogram> CountCheck::counted_by(const Sizes& sizes) const {
  NodeId vector;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const NodeId from = vector_of(sizes[i], i);
    if (!from || (vector && from != vector)) return {};
    vector = from;
  }
  const bool are_all = length_of(vector) == static_cast<std::int64_t>(sizes.size());
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
  return is_list(vector) ? vector : NodeId();
}

std::optional<CountCheck::Histogram> CountCheck::follow(NodeId vector,
                                                        std::optional<std::size_t> ranks) const {
  Histogram histogram;
  for (NodeId id = vector; id; id = first_input(id)) {
    if (writes_to(id) > 0) return {};
    if (keeps_integers(id)) continue;
    if (is_of(id, OpFamily::kSum) && sums_rows_of_marks(id)) {
      histogram.ids = marked_ids(first_input(id));
      return histogram.ids ? std::optional(histogram) : std::nullopt;
    }
    if (is_of(id, OpFamily::kSum) && sums_neighbours(id)) continue;
    if (!is_of(id, OpFamily::kAllToAll) || histogram.received_over || !is_even(node(id), ranks)) return {};
    histogram.received_over = named_arg(context_, node(id), "group_name");
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
  return node(value).op != nullptr && keeps_numbers(node(value).op->family);
}

NodeId CountCheck::integers_behind(NodeId value) const {
  while (value && keeps_integers(value)) value = first_input(value);
  return value && writes_to(value) == 0 ? value : NodeId();
}

// As many of each, in whatever order.
NodeId CountCheck::ids_behind(NodeId value) const {
  NodeId ids = integers_behind(value);
  while (ids && node(ids).op != nullptr && traits_of(node(ids).op->family).elements == Elements::kMoved)
    ids = integers_behind(first_input(ids));
  return ids;
}

NodeId CountCheck::first_input(NodeId value) const {
  const Arg first = arg_of(context_, node(value), 0);
  return first.is_node() ? first.as_node() : NodeId();
}

// As much to and from each of so many ranks.
bool CountCheck::is_even(const Node& exchange, std::optional<std::size_t> ranks) const {
  for (const std::string_view name : {"output_split_sizes", "input_split_sizes"}) {
    const Sizes sizes = list(exchange, name);
    const bool are_equal =
        std::ranges::all_of(sizes, [&](Arg size) { return size.is_int() && size == sizes.front(); });
    if (sizes.size() != ranks.value_or(sizes.size()) || sizes.empty() || !are_equal) return false;
  }
  return true;
}

// None: all of them, or which is not known.
std::optional<std::vector<bool>> CountCheck::summed_dimensions(NodeId sum) const {
  const NodeId from = first_input(sum);
  const TensorType *type = from ? tensor_of(context_, node(from).type) : nullptr,
                   *result = tensor_of(context_, node(sum).type);
  if (type == nullptr || result == nullptr || !is_wide_integer(result->dtype)) return {};
  std::vector<bool> is_summed(type->rank());
  for (Arg dim : list(node(sum), "dim")) {
    const auto at = dim.is_int() ? find_dimension(dim.as_int(), type->rank()) : std::nullopt;
    if (!at) return {};
    is_summed[*at] = true;
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
    return are_all ? ids_behind(first_input(marks)) : NodeId();
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
  const bool are_counted =
      is_one && is_last && is_new && holds(Condition::kMarksDiffer, differ_in_each_row(ids.as_node()));
  return are_counted ? ids_behind(ids.as_node()) : NodeId();
}

// A mark that is set twice counts once. A row has one id, or the places that a topk gives.
bool CountCheck::differ_in_each_row(NodeId ids) const {
  const NodeId places = integers_behind(ids);
  const TensorType *type = tensor_of(context_, node(ids).type),
                   *found = places ? tensor_of(context_, node(places).type) : nullptr;
  if (type == nullptr || found == nullptr || type->rank() == 0 || found->rank() == 0) return false;
  const auto count = context_.exprs.constant(type->sizes.back());
  if (count == 1) return true;
  const auto element = tuple_element(context_, body_, node(places));
  if (!count || !element || element->index != 1 || !is_of(element->tuple, OpFamily::kTopK)) return false;
  const std::size_t rank = found->rank();
  return sorted_dimension(context_, node(element->tuple), rank) == static_cast<int>(rank) - 1 &&
         context_.exprs.constant(found->sizes.back()) == count;
}

bool CountCheck::is_made_of(NodeId value, NodeId of) const {
  IdSet<NodeId> seen;
  std::vector<NodeId> left = {value};
  while (!left.empty()) {
    const NodeId id = left.back();
    left.pop_back();
    if (numbers_[id] == numbers_[of]) return true;
    for_each_input(context_, node(id), [&](NodeId input) {
      if (seen.insert(input)) left.push_back(input);
    });
  }
  return false;
}

bool CountCheck::is_same(Arg a, Arg b) const {
  return a == b || (a.is_node() && b.is_node() && numbers_[a.as_node()] == numbers_[b.as_node()]);
}

CountCheck::Sizes CountCheck::list(const Node& node, std::string_view name) const {
  const auto items = named_items(context_, node, name);
  return {items.begin(), items.end()};
}

}  // namespace epweave
