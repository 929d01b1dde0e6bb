#include "compare/rewrite/verify_movement.h"

#include <fmt/format.h>

#include <algorithm>

#include "analysis/collectives.h"
#include "compare/rewrite/verify_interface.h"
#include "ir/walk.h"
#include "ops/bind.h"
#include "ops/bucket_dtypes.h"
#include "ops/op.h"
#include "ops/rules.h"

namespace epweave {
namespace {

std::int64_t product(std::span<const std::int64_t> sizes) {
  std::int64_t result = 1;
  for (std::int64_t size : sizes) result *= size;
  return result;
}

// Calls visit(first, count) for stretches of storage that a view shows, in row-major order.
template <class Visit>
void visit_runs(std::span<const std::int64_t> sizes, std::span<const std::int64_t> strides,
                std::int64_t offset, const Visit& visit) {
  // The last dimensions that lie side by side are one run.
  std::size_t outer = sizes.size();
  std::int64_t run = 1;
  while (outer > 0 && (strides[outer - 1] == run || sizes[outer - 1] == 1)) run *= sizes[--outer];
  if (outer == 0) return visit(offset, run);
  const std::int64_t count = product(sizes.subspan(0, outer));
  std::vector<std::int64_t> index(outer);
  for (std::int64_t n = 0; n < count; ++n) {
    std::int64_t first = offset;
    for (std::size_t d = 0; d < outer; ++d) first += index[d] * strides[d];
    visit(first, run);
    for (std::size_t d = outer; d-- > 0 && ++index[d] == sizes[d];) index[d] = 0;
  }
}

std::vector<std::int64_t> row_major(std::span<const std::int64_t> sizes) {
  std::vector<std::int64_t> strides(sizes.size(), 1);
  for (std::size_t d = sizes.size(); d-- > 1;) strides[d - 1] = strides[d] * sizes[d];
  return strides;
}

template <class Part>
void merge(std::vector<Part>& into, const std::vector<Part>& from) {
  for (const Part& part : from)
    if (std::ranges::find(into, part) == into.end()) into.push_back(part);
}

// The same elements in the same order, in new memory.
bool copies(const Node& node) {
  return node.op->type_rule == rules::clone;
}
bool keeps_order(const Node& node) {
  const OpFamily family = node.op->family;
  return family == OpFamily::kReshape || family == OpFamily::kUnsqueeze || family == OpFamily::kSqueeze ||
         node.op->type_rule == rules::alias;
}
bool is_functional_launch(const Node& node) {
  return is_launch(node) && !node.op->writes && node.op->returns.size() == 1 &&
         node.op->returns.front().type == "Tensor";
}

}  // namespace

MovementCheck::MovementCheck(RewriteClaims& claims, const Effects& effects_a, const Effects& effects_b)
    : claims_(claims),
      graph_a_(claims.graph_a()),
      graph_b_(claims.graph_b()),
      context_(*graph_a_.context),
      a_(graph_a_.step()),
      b_(graph_b_.step()),
      later_in_a_(effects_a),
      later_in_b_(effects_b) {
  has_moved_ =
      std::ranges::any_of(b_.order, [&](NodeId id) { return claims_[id].kind == ClaimKind::kMoved; });
  if (!has_moved_) return;
  for (const Launch& launch : find_launches(context_, a_)) {
    const Node& node = a_.nodes[launch.node];
    const Arg group = arg_of(context_, node, group_position(*node.op));
    if (group.is_node() && launch.group.is_node()) lookups_.at(group.as_node()) = launch.group.as_node();
  }
}

void MovementCheck::visit(NodeId id) {
  const Node& node = b_.nodes[id];
  const ClaimKind kind = claims_[id].kind;
  if (!has_moved_ || node.kind != NodeKind::kCall || node.op == nullptr) return;
  if (kind == ClaimKind::kNone || kind == ClaimKind::kBlocks || kind == ClaimKind::kMoved) follow(id);
  if (kind == ClaimKind::kMoved) prove(id);
}

// ---- values of A -------------------------------------------------------------------------------------------------

Sequence MovementCheck::leaf(NodeId a) {
  Sequence value;
  const TensorType* type = claims_.tensor_a(a);
  const auto sizes = type != nullptr ? numbers(type->sizes) : std::nullopt;
  if (sizes)
    value.append({terms_.intern({.kind = TermKind::kValue, .what = a.index()}), 0, 0, product(*sizes)});
  return value;
}

// What is moved, is followed to what is not, which may be far.
const Sequence& MovementCheck::of_a(NodeId id) {
  std::vector<NodeId> chain{claims_.find_class(id)};
  while (!of_a_.contains(chain.back())) {
    const NodeId operand = moved_operand(chain.back());
    if (!operand) break;
    chain.push_back(claims_.find_class(operand));
  }
  for (; !chain.empty(); chain.pop_back()) {
    const NodeId a = chain.back();
    if (of_a_.contains(a)) continue;
    std::optional<Sequence> moved = move_in_a(a);
    of_a_.emplace(a, moved ? std::move(*moved) : leaf(a));
  }
  return of_a_.at(claims_.find_class(id));
}

// What a call moves, if that is all it may do and what it reads is still there. None: it computes.
NodeId MovementCheck::moved_operand(NodeId a) const {
  const Node& node = a_.nodes[a];
  if (node.kind != NodeKind::kCall || node.op == nullptr) return {};
  const bool moves = keeps_order(node) || is_wait(node) || copies(node) ||
                     node.op->family == OpFamily::kCast || is_functional_launch(node);
  const Arg first = arg_of(context_, node, 0);
  const TensorType* type = claims_.tensor_a(a);
  if (!moves || !first.is_node() || type == nullptr || later_in_a_.any(first.as_node())) return {};
  const TensorType* from = claims_.tensor_a(first.as_node());
  return from != nullptr && numbers(type->sizes) && numbers(from->sizes) ? first.as_node() : NodeId();
}

// None: it computes.
std::optional<Sequence> MovementCheck::move_in_a(NodeId a) {
  const NodeId operand = moved_operand(a);
  if (!operand) return {};
  const Node& node = a_.nodes[a];
  const TensorType &type = *claims_.tensor_a(a), &from = *claims_.tensor_a(operand);
  if (!is_launch(node)) {
    if (from.device != type.device) return {};
    if (from.dtype == type.dtype) return of_a(operand);
    if (node.op->family != OpFamily::kCast) return {};
    return terms_.cast(of_a(operand), type.dtype);
  }
  const auto group = group_of(graph_a_, arg_of(context_, node, group_position(*node.op)), false);
  if (!group) return {};
  const Sequence& sent = of_a(operand);
  const auto ranks_at = node.op->find_param("group_size"), reduction_at = node.op->find_param("reduce_op");
  const Arg ranks = ranks_at ? arg_of(context_, node, *ranks_at) : Arg(),
            reduction = reduction_at ? arg_of(context_, node, *reduction_at) : Arg();
  switch (node.op->family) {
    case OpFamily::kAllGather:
      if (!ranks.is_int()) return {};
      return terms_.gather(sent, *group, ranks.as_int());
    case OpFamily::kReduceScatter:
      if (!ranks.is_int()) return {};
      return terms_.scatter(terms_.reduce(sent, *group, reduction.bits()), *group, ranks.as_int());
    case OpFamily::kAllReduce:
      return terms_.reduce(sent, *group, reduction.bits());
    default:
      return {};
  }
}

// ---- new nodes of B ----------------------------------------------------------------------------------------------

void MovementCheck::follow(NodeId b) {
  const Node& node = b_.nodes[b];
  if (node.op->writes) {
    if (write(b, node)) accounted_.insert(b);
    return;
  }
  if (make_view(b, node)) return;
  make_result(b, node);
}

// A view of storage, as the strides and the offset say that are recorded of it (`verify` checks them).
bool MovementCheck::make_view(NodeId b, const Node& node) {
  const Arg first = arg_of(context_, node, 0);
  const bool is_element = node.op->family == OpFamily::kElement;
  if (!(node.op->is_view || is_element || is_wait(node)) || !first.is_node()) return false;
  std::optional<std::size_t> storage;
  const TensorType* from = claims_.tensor_b(first.as_node());
  std::int64_t origin = 0;
  if (const auto tuple = tuples_.find(first.as_node()); tuple != tuples_.end()) {
    storage = tuple->second;
  } else if (const auto view = view_of(first)) {
    storage = view->storage;
    // Memory of A's values begins where the value does.
    const bool is_of_a = claims_[first.as_node()].kind != ClaimKind::kNone &&
                         claims_[first.as_node()].kind != ClaimKind::kBlocks &&
                         claims_[first.as_node()].kind != ClaimKind::kMoved;
    if (is_of_a && !is_row_major(*from)) return false;
    if (is_of_a && from->offset) {
      const auto offset = context_.exprs.constant(from->offset);
      if (!offset) return false;
      origin = *offset;
    }
  }
  if (!storage) return false;
  const TensorType* type = claims_.tensor_b(b);
  if (type == nullptr) {
    tuples_[b] = *storage;
    return true;
  }
  const auto sizes = numbers(type->sizes), strides = numbers(type->strides);
  const auto offset = type->offset ? context_.exprs.constant(type->offset) : 0;
  if (!sizes || !strides || strides->size() != sizes->size() || !offset ||
      type->dtype != storages_[*storage].dtype)
    return false;
  views_[b] = {*storage, *sizes, *strides, *offset - origin};
  if (is_wait(node)) waits_of_[first.as_node()].push_back(b);
  return true;
}

// New memory, and what is put there.
bool MovementCheck::make_result(NodeId b, const Node& node) {
  const TensorType* type = claims_.tensor_b(b);
  const auto sizes = type != nullptr ? numbers(type->sizes) : std::nullopt;
  if (!sizes) return false;
  std::optional<Read> value;
  if (node.op->family == OpFamily::kFactory) {
    value.emplace();
    value->elements.append(
        {terms_.intern({.kind = TermKind::kUnknown, .what = b.index()}), 0, 0, product(*sizes)});
  } else if (is_functional_launch(node)) {
    if (auto sent = read(arg_of(context_, node, 0))) value = launch(b, node, std::move(*sent));
  } else if (copies(node) || keeps_order(node)) {
    value = read(arg_of(context_, node, 0));
  } else if (node.op->family == OpFamily::kCast) {
    value = read(arg_of(context_, node, 0));
    const Arg from = arg_of(context_, node, 0);
    if (value && claims_.tensor_b(from.as_node())->dtype != type->dtype)
      value->elements = terms_.cast(value->elements, type->dtype);
  } else if (node.op->family == OpFamily::kJoin) {
    const Arg dim = arg_of(context_, node, 1);
    if (dim.is_none() || (dim.is_int() && dim.as_int() == 0)) value = read_list(arg_of(context_, node, 0));
  } else {
    value = pack(node);
  }
  if (!value || value->elements.size() != product(*sizes)) return false;
  keep(b, std::move(*value));
  return true;
}

void MovementCheck::keep(NodeId b, Read value) {
  const TensorType& type = *claims_.tensor_b(b);
  const std::vector<std::int64_t> sizes = *numbers(type.sizes);
  storages_.push_back({std::move(value.elements), std::move(value.launches), value.packed, type.dtype, {}});
  views_[b] = {storages_.size() - 1, sizes, row_major(sizes), 0};
}

std::optional<MovementCheck::View> MovementCheck::view_of(Arg arg) {
  return arg.is_node() ? view_of(arg.as_node()) : std::nullopt;
}

std::optional<MovementCheck::View> MovementCheck::view_of(NodeId b) {
  if (const auto known = views_.find(b); known != views_.end()) return known->second;
  const TensorType* type = claims_.tensor_b(b);
  if (type == nullptr || !claims_.is_whole(b) || claims_[b].kind == ClaimKind::kMoved || later_in_b_.any(b))
    return {};
  const auto sizes = numbers(type->sizes), strides = numbers(type->strides);
  if (!sizes || !strides) return {};
  const Sequence& value = of_a(claims_[b].origin);
  if (value.size() != product(*sizes)) return {};
  storages_.push_back({value, {}, 0, type->dtype, {}});
  // What shows it by other strides is not followed.
  return views_[b] = {storages_.size() - 1, *sizes, row_major(*sizes), 0};
}

std::optional<MovementCheck::Read> MovementCheck::read(Arg arg) {
  const auto view = view_of(arg);
  if (!view) return {};
  const Storage& storage = storages_[view->storage];
  Read result{.launches = storage.launches, .packed = storage.packed};
  visit_runs(view->sizes, view->strides, view->offset, [&](std::int64_t first, std::int64_t count) {
    result.elements.append(storage.content, first, count);
  });
  if (result.elements.size() != product(view->sizes)) return {};
  return result;
}

// One behind the other.
std::optional<MovementCheck::Read> MovementCheck::read_list(Arg list) {
  if (!list.is_list()) return {};
  Read all;
  const auto items = context_.args.children(list);
  for (std::size_t i = 0; i < items.size(); ++i) {
    const auto item = read(context_.args.children(list)[i]);
    if (!item) return {};
    all.elements.append(item->elements, 0, item->elements.size());
    merge(all.launches, item->launches);
    all.packed = std::max(all.packed, item->packed);
  }
  return all;
}

std::optional<MovementCheck::Read> MovementCheck::launch(NodeId b, const Node& node, Read sent) {
  const auto group = group_of(graph_b_, arg_of(context_, node, group_position(*node.op)), true);
  const auto ranks_at = node.op->find_param("group_size"), reduction_at = node.op->find_param("reduce_op");
  const Arg ranks = ranks_at ? arg_of(context_, node, *ranks_at) : Arg(),
            reduction = reduction_at ? arg_of(context_, node, *reduction_at) : Arg();
  if (!group || (ranks_at && !ranks.is_int())) return {};
  const std::int64_t moved = sent.elements.size();
  switch (node.op->family) {
    case OpFamily::kAllGather:
      sent.elements = terms_.gather(sent.elements, *group, ranks.as_int());
      break;
    case OpFamily::kReduceScatter: {
      auto share =
          terms_.scatter(terms_.reduce(sent.elements, *group, reduction.bits()), *group, ranks.as_int());
      if (!share) return {};
      sent.elements = std::move(*share);
      sent.packed = std::max(sent.packed, moved);
      break;
    }
    case OpFamily::kAllReduce:
      sent.elements = terms_.reduce(sent.elements, *group, reduction.bits());
      sent.packed = std::max(sent.packed, moved);
      break;
    default:
      return {};
  }
  sent.launches.push_back(b);
  return sent;
}

std::optional<MovementCheck::Read> MovementCheck::pack(const Node& node) {
  if (node.op->type_rule == rules::bucket_all_gather) return pack_gather(node);
  if (node.op->type_rule == rules::bucket_reduce_scatter) return pack_scatter(node);
  return {};
}

// A buffer for all ranks, of which this rank's share holds the tensors, cast, one behind the other.
std::optional<MovementCheck::Read> MovementCheck::pack_gather(const Node& node) {
  const Arg list = arg_of(context_, node, 0), ranks = arg_of(context_, node, 1),
            rank = arg_of(context_, node, 4);
  const auto dtypes = integers(arg_of(context_, node, 3));
  const TensorType* type = tensor_of(context_, node.type);
  if (!list.is_list() || !ranks.is_int() || !rank.is_int() || !dtypes || type == nullptr) return {};
  const std::size_t count = context_.args.children(list).size();
  if (dtypes->size() != count || rank.as_int() < 0 || rank.as_int() >= ranks.as_int()) return {};
  Read own;
  for (std::size_t i = 0; i < count; ++i) {
    const Arg item = context_.args.children(list)[i];
    const auto sent = read(item);
    // Elements of other sizes do not begin where one of the buffer does.
    if (!sent || dtype_at_position((*dtypes)[i]) != type->dtype) return {};
    const bool is_cast = claims_.tensor_b(item.as_node())->dtype != type->dtype;
    const Sequence elements = is_cast ? terms_.cast(sent->elements, type->dtype) : sent->elements;
    own.elements.append(elements, 0, elements.size());
    merge(own.launches, sent->launches);
    own.packed = std::max(own.packed, sent->packed);
  }
  const std::int64_t length = own.elements.size();
  const TermId unknown = terms_.intern({.kind = TermKind::kUnknown, .what = node.name.index()});
  Read all{.launches = std::move(own.launches), .packed = own.packed};
  all.elements.append({unknown, 0, 0, rank.as_int() * length});
  all.elements.append(own.elements, 0, length);
  all.elements.append(
      {unknown, 0, (rank.as_int() + 1) * length, (ranks.as_int() - rank.as_int() - 1) * length});
  return all;
}

// For each rank, its share of the rows of each tensor.
std::optional<MovementCheck::Read> MovementCheck::pack_scatter(const Node& node) {
  const Arg list = arg_of(context_, node, 0), ranks = arg_of(context_, node, 1),
            unpadded = arg_of(context_, node, 2);
  if (!list.is_list() || !ranks.is_int() || ranks.as_int() < 1 || !unpadded.is_none()) return {};
  const std::size_t count = context_.args.children(list).size();
  Read all;
  std::vector<Sequence> sent;
  for (std::size_t i = 0; i < count; ++i) {
    const Arg item = context_.args.children(list)[i];
    const auto value = read(item);
    if (!value) return {};
    const auto view = view_of(item);
    if (view->sizes.empty() || view->sizes.front() % ranks.as_int() != 0) return {};
    sent.push_back(value->elements);
    merge(all.launches, value->launches);
    all.packed = std::max(all.packed, value->packed);
  }
  for (std::int64_t rank = 0; rank < ranks.as_int(); ++rank)
    for (const Sequence& x : sent) {
      const std::int64_t share = x.size() / ranks.as_int();
      all.elements.append(x, rank * share, share);
    }
  return all;
}

// Into storage that the rewrite made, where nothing claimed shows it yet.
bool MovementCheck::write_to(Arg target, const Read& what, std::int64_t first) {
  const auto view = view_of(target);
  if (!view || !target.is_node() || claims_[target.as_node()].kind == ClaimKind::kWhole) return false;
  Storage& storage = storages_[view->storage];
  if (!storage.shown.empty()) return false;
  const std::int64_t count = product(view->sizes);
  if (first + count > what.elements.size()) return false;
  Sequence content;
  std::int64_t done = 0, at = 0;
  bool is_forward = true;
  visit_runs(view->sizes, view->strides, view->offset, [&](std::int64_t begin, std::int64_t length) {
    is_forward = is_forward && begin >= at;
    if (!is_forward) return;
    content.append(storage.content, at, begin - at);
    content.append(what.elements, first + done, length);
    done += length;
    at = begin + length;
  });
  if (!is_forward) return false;
  content.append(storage.content, at, storage.content.size() - at);
  storage.content = std::move(content);
  merge(storage.launches, what.launches);
  storage.packed = std::max(storage.packed, what.packed);
  return true;
}

bool MovementCheck::write(NodeId b, const Node& node) {
  const auto out_at = node.op->find_param("out");
  const Arg out = out_at ? arg_of(context_, node, *out_at) : Arg();
  if (is_launch(node)) {
    auto sent = out.is_node() ? read(arg_of(context_, node, 0)) : std::nullopt;
    auto moved = sent ? launch(b, node, std::move(*sent)) : std::nullopt;
    if (!moved || !write_to(out, *moved, 0)) return false;
    views_[b] = *view_of(out);
    return false;  // until what it moved is proved
  }
  if (node.op->type_rule == rules::copy_in_place) {
    const Arg target = arg_of(context_, node, 0), source = arg_of(context_, node, 1);
    auto what = read(source);
    const auto to = view_of(target), from = view_of(source);
    if (!what || !to || to->sizes != from->sizes) return false;
    if (claims_.tensor_b(source.as_node())->dtype != storages_[to->storage].dtype)
      what->elements = terms_.cast(what->elements, storages_[to->storage].dtype);
    if (!write_to(target, *what, 0)) return false;
    views_[b] = *view_of(target);
    return true;
  }
  // Pieces along a dimension, each into a buffer.
  const auto sizes_at = node.op->find_param("split_sizes"), dim_at = node.op->find_param("dim");
  if (!sizes_at || !dim_at || !out.is_list()) return false;
  const auto whole = view_of(arg_of(context_, node, 0));
  const auto lengths = integers(arg_of(context_, node, *sizes_at));
  const Arg dim = arg_of(context_, node, *dim_at);
  const std::size_t d = dim.is_int() && dim.as_int() >= 0 ? static_cast<std::size_t>(dim.as_int()) : 0;
  if (!whole || !lengths || !(dim.is_none() || dim.is_int()) || d >= whole->sizes.size() ||
      lengths->size() != context_.args.children(out).size())
    return false;
  std::int64_t start = 0;
  for (std::size_t i = 0; i < lengths->size(); ++i) {
    View piece = *whole;
    piece.sizes[d] = (*lengths)[i];
    piece.offset += start * piece.strides[d];
    start += (*lengths)[i];
    const Storage& storage = storages_[piece.storage];
    Read part{.launches = storage.launches, .packed = storage.packed};
    visit_runs(piece.sizes, piece.strides, piece.offset, [&](std::int64_t first, std::int64_t count) {
      part.elements.append(storage.content, first, count);
    });
    const auto to = view_of(context_.args.children(out)[i]);
    if (!to || to->sizes != piece.sizes || storages_[to->storage].dtype != storage.dtype) return false;
    if (!write_to(context_.args.children(out)[i], part, 0)) return false;
  }
  return true;
}

void MovementCheck::prove(NodeId b) {
  const NodeId origin = claims_[b].origin;
  const auto fail = [&](std::string_view why) {
    claims_.fail(b, "rewrite-moved", fmt::format("is said to be {}, moved; {}", claims_.name_a(origin), why));
  };
  const auto value = read(Arg::node(b));
  if (!value) return fail("how its elements came there cannot be followed");
  if (!(value->elements == of_a(origin))) return fail("it has other elements, or has them in another order");
  const View& view = views_.at(b);
  Storage& storage = storages_[view.storage];
  bool is_apart = true;
  visit_runs(view.sizes, view.strides, view.offset, [&](std::int64_t first, std::int64_t count) {
    for (const auto& [begin, length] : storage.shown)
      is_apart = is_apart && (first + count <= begin || begin + length <= first);
    storage.shown.emplace_back(first, count);
  });
  if (!is_apart) return fail("another value shows the same memory");
  for (NodeId launch : value->launches) {
    accounted_.insert(launch);
    for (NodeId wait : waits_of_[launch]) accounted_.insert(wait);
  }
  const TensorType* type = claims_.tensor_a(origin);
  const Node& waited = a_.nodes[origin];
  const NodeId before = is_wait(waited) ? find_waited_launch(context_, a_, origin) : NodeId();
  const Arg sent = before ? arg_of(context_, a_.nodes[before], 0) : Arg();
  const TensorType* alone = sent.is_node() ? claims_.tensor_a(sent.as_node()) : nullptr;
  const auto sizes = alone != nullptr ? numbers(alone->sizes) : std::nullopt;
  const bool keeps_layout = sizes && value->packed == product(*sizes);
  if (value->packed > 0 && !keeps_layout && type != nullptr && is_floating(type->dtype))
    claims_.set_regrouped(b);
}

// ---- small things ------------------------------------------------------------------------------------------------

bool MovementCheck::is_row_major(const TensorType& type) const {
  const auto sizes = numbers(type.sizes), strides = numbers(type.strides);
  if (!sizes || !strides || sizes->size() != strides->size()) return false;
  const std::vector<std::int64_t> wanted = row_major(*sizes);
  for (std::size_t d = 0; d < sizes->size(); ++d)
    if ((*sizes)[d] != 1 && (*strides)[d] != wanted[d]) return false;
  return true;
}

// Groups of the same ranks are one; of groups that are looked up, those that stand for the same node of A.
std::optional<std::uint64_t> MovementCheck::group_of(const Graph& graph, Arg group, bool of_b) {
  if (group.is_node()) {
    const NodeId a = of_b ? claims_[group.as_node()].origin : group.as_node();
    if (!a) return {};
    const NodeId first = lookups_[a] ? lookups_[a] : claims_.find_class(a);
    return (std::uint64_t{1} << 32) + first.index();
  }
  if (!group.is(ArgKind::kText) && !group.is(ArgKind::kProcessGroup)) return {};
  const ProcessGroup* found = find_group(graph, group.as_name());
  if (found == nullptr) return (std::uint64_t{2} << 32) + group.as_name().index();
  const auto known = std::ranges::find(groups_, found->ranks);
  const auto at = static_cast<std::size_t>(known - groups_.begin());
  if (known == groups_.end()) groups_.push_back(found->ranks);
  return at;
}

std::optional<std::vector<std::int64_t>> MovementCheck::numbers(std::span<const ExprId> exprs) const {
  std::vector<std::int64_t> result;
  for (ExprId expr : exprs) {
    const auto number = context_.exprs.constant(expr);
    if (!number) return {};
    result.push_back(*number);
  }
  return result;
}

std::optional<std::vector<std::int64_t>> MovementCheck::integers(Arg list) const {
  if (!list.is_list()) return {};
  std::vector<std::int64_t> result;
  for (const Arg& item : context_.args.children(list)) {
    if (!item.is_int()) return {};
    result.push_back(item.as_int());
  }
  return result;
}

}  // namespace epweave
