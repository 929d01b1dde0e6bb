#include "compare/rewrite/verify_movement.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>
#include <utility>

#include "analysis/collectives.h"
#include "analysis/looked_up_group.h"
#include "analysis/rank_view.h"
#include "compare/rewrite/verify_interface.h"
#include "ir/walk.h"
#include "ops/bind.h"
#include "ops/bucket_dtypes.h"
#include "ops/mesh_calls.h"
#include "ops/op.h"
#include "ops/rules.h"
#include "ops/type_rules.h"

namespace epweave {
namespace {

// Of sizes that count_of counts.
std::vector<std::int64_t> row_major(std::span<const std::int64_t> sizes) {
  std::vector<std::int64_t> strides(sizes.size(), 1);
  for (std::size_t d = sizes.size(); d-- > 1;) strides[d - 1] = strides[d] * sizes[d];
  return strides;
}

// The same elements in the same order, in new memory.
bool copies(const Node& node) {
  return node.op->type_rule == rules::clone;
}
bool keeps_order(const Node& node) {
  const OpFamily family = node.op->family;
  return family == OpFamily::kReshape || family == OpFamily::kUnsqueeze || family == OpFamily::kSqueeze ||
         (family == OpFamily::kIdentity && node.op->type_rule == rules::alias);
}
// Whether a range meets none that is there, and adds it.
bool add_apart(std::map<std::int64_t, std::int64_t>& ranges, const Run& run) {
  const auto next = ranges.lower_bound(run.first);
  if (next != ranges.end() && next->first < run.first + run.count) return false;
  if (next != ranges.begin() && std::prev(next)->second > run.first) return false;
  ranges.emplace_hint(next, run.first, run.first + run.count);
  return true;
}

void collect_integers(const Context& context, Arg list, std::vector<std::int64_t>& into) {
  if (list.is_int()) into.push_back(list.as_int());
  if (!list.is_list()) return;
  for (Arg item : context.args.children(list)) collect_integers(context, item, into);
}

bool is_new_launch(const Node& node, std::string_view returned) {
  return is_launch(node) && !node.op->writes && node.op->returns.size() == 1 &&
         node.op->returns.front().type == returned;
}
bool is_functional_launch(const Node& node) {
  return is_new_launch(node, "Tensor");
}
// l = reduce_scatter_tensor_coalesced([x, y], ..): each operand by itself.
bool is_launch_of_each(const Node& node) {
  return is_new_launch(node, "Tensor[]");
}

}  // namespace

MovementCheck::MovementCheck(RewriteClaims& claims, Numbers& numbers, const Effects& effects_a,
                             const Effects& effects_b)
    : claims_(claims),
      numbers_(numbers),
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
  memory_.emplace(context_, b_);
  later_in_memory_.emplace(*memory_);
  for (const Launch& launch : find_launches(context_, a_)) {
    const Node& node = a_.nodes[launch.node];
    const Arg group = arg_of(context_, node, group_position(*node.op));
    if (group.is_node() && launch.group.is_node()) lookups_.at(group.as_node()) = launch.group.as_node();
  }
  number_lookups();
}

// Lookups of one recorded group along the same axis are one, also those that no launch of A names:
// of what B does again.
void MovementCheck::number_lookups() {
  std::map<std::tuple<StringId, std::uint32_t, std::uint32_t>, NodeId> first;
  for (const auto [id, node] : walk(a_)) {
    const auto group = looked_up_group(context_, a_, node);
    if (!group) continue;
    const auto [known, is_new] = first.try_emplace({group->name, group->stride, group->extent}, id);
    lookups_.at(id) = known->second;
    if (is_new) lookups_of_[group->name].push_back(id);
  }
}

void MovementCheck::visit(NodeId id) {
  if (!has_moved_) return;
  prove_read_by(id);
  const Node& node = b_.nodes[id];
  if (node.kind != NodeKind::kCall) return;
  const bool is_followed = node.op != nullptr && is_new(id) && follow(id);
  if (!is_followed) forget_writes_of(id);
  if (claims_[id].kind != ClaimKind::kMoved) return;
  if (shows_before_it_is_there(id)) {
    unread_.push_back(id);
  } else {
    prove(id);
  }
}

// A view of the rewrite's own memory, which may be written before anything reads it there.
bool MovementCheck::shows_before_it_is_there(NodeId b) {
  const NodeId memory = memory_->storage_of(b);
  if (!views_.contains(b) || memory == b || !is_new(memory)) return false;
  const auto value = read(Arg::node(b));
  return !value || !(value->elements == of_a(claims_[b].origin));
}

// What a node takes of a memory that holds values of A by then, or, at the end, all that is left.
// A view of A reads nothing: it shows what is read behind it.
void MovementCheck::prove_read_by(NodeId b) {
  if (unread_.empty()) return;
  const Node& node = b_.nodes[b];
  const bool shows_only = claims_[b].kind == ClaimKind::kWhole && node.op != nullptr && node.op->is_view &&
                          node.op->family != OpFamily::kElementwise && !may_copy(node) &&
                          claims_.tensor_b(b) != nullptr;
  if (shows_only) return;
  IdSet<NodeId> read;
  for_each_input(context_, node, [&](NodeId input) {
    if (claims_[input].kind == ClaimKind::kMoved || !is_new(input)) read.insert(memory_->storage_of(input));
  });
  const bool is_end = node.kind == NodeKind::kOutput;
  std::vector<NodeId> left;
  for (NodeId value : std::exchange(unread_, {}))
    if (is_end || read.contains(memory_->storage_of(value))) {
      prove(value);
    } else {
      left.push_back(value);
    }
  unread_ = std::move(left);
}

// Whether the rewrite made it.
bool MovementCheck::is_new(NodeId b) const {
  const ClaimKind kind = claims_[b].kind;
  return kind == ClaimKind::kNone || kind == ClaimKind::kBlocks || kind == ClaimKind::kMoved;
}

// ---- values of A
// -------------------------------------------------------------------------------------------------

Sequence MovementCheck::leaf(NodeId a) {
  Sequence value;
  if (const auto sizes = sizes_of(claims_.tensor_a(a)))
    value.append(
        {.term = terms_.intern({.kind = TermKind::kValue, .what = a.index()}), .count = *count_of(*sizes)});
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
    if (moved && !reserve(std::ssize(moved->pieces()))) moved.reset();
    of_a_.emplace(a, moved ? std::move(*moved) : leaf(a));
  }
  return of_a_.at(claims_.find_class(id));
}

// What a call moves, if that is all it may do and what it reads is still there. None: it computes.
NodeId MovementCheck::moved_operand(NodeId a) {
  const Node& node = a_.nodes[a];
  if (node.kind != NodeKind::kCall || node.op == nullptr) return {};
  const bool moves = keeps_order(node) || is_wait(node) || copies(node) ||
                     node.op->family == OpFamily::kCast || is_functional_launch(node);
  const Arg first = arg_of(context_, node, 0);
  const TensorType* type = claims_.tensor_a(a);
  if (!moves || !first.is_node() || type == nullptr || is_written_before(first.as_node(), a)) return {};
  const TensorType* from = claims_.tensor_a(first.as_node());
  return sizes_of(type) && sizes_of(from) ? first.as_node() : NodeId();
}

// Whether a value of A may have been written when a call reads it. What is written behind a wait is
// the wait's result, which that is not yet; other values may be read later, through views.
bool MovementCheck::is_written_before(NodeId value, NodeId reader) {
  if (!later_in_a_.any(value)) return false;
  if (!is_wait(a_.nodes[reader])) return true;
  if (!writes_in_a_) {
    writes_in_a_.emplace(context_, a_);
    place_in_a_ = find_positions(a_, a_.order);
  }
  return writes_in_a_->any(writes_in_a_->effects().storage_of(value), place_in_a_[value],
                           place_in_a_[reader]);
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
  return send(node, of_a(operand), false);
}

// What a launch gives, of which one rank sends this.
std::optional<Sequence> MovementCheck::send(const Node& node, const Sequence& sent, bool of_b) {
  const Arg at = arg_of(context_, node, group_position(*node.op));
  const auto group = group_of(of_b ? graph_b_ : graph_a_, at, of_b);
  const auto ranks_at = node.op->find_param("group_size"), reduction_at = node.op->find_param("reduce_op");
  const Arg size = ranks_at ? arg_of(context_, node, *ranks_at) : Arg(),
            reduction = reduction_at ? arg_of(context_, node, *reduction_at) : Arg();
  if (!group || (ranks_at && !size.is_int())) return {};
  const std::int64_t ranks = ranks_at ? size.as_int() : 1;
  const bool has_members = *group < groups_.size();
  if (ranks < 1 || ranks > kMaxPieces) return {};
  if (ranks_at && has_members && ranks != std::ssize(groups_[*group].group->ranks)) return {};
  std::optional<Sequence> result;
  if (node.op->family == OpFamily::kAllGather && ranks_at) {
    result = terms_.gather(sent, *group, ranks);
  } else if (node.op->family == OpFamily::kReduceScatter && ranks_at) {
    result = terms_.scatter(terms_.reduce(sent, *group, reduction.bits()), *group, ranks);
  } else if (node.op->family == OpFamily::kAllReduce) {
    result = terms_.reduce(sent, *group, reduction.bits());
  }
  return result && result->is_followed() ? result : std::nullopt;
}

// ---- new nodes of B
// ----------------------------------------------------------------------------------------------

// Whether it is known what it does.
bool MovementCheck::follow(NodeId b) {
  const Node& node = b_.nodes[b];
  if (is_launch_of_each(node)) return launch_each(b, node);
  if (!node.op->writes) return make_view(b, node) || make_result(b, node);
  if (!write(b, node)) return false;
  if (!is_launch(node)) accounted_.insert(b);  // a launch, when what it moved is proved
  return true;
}

// Whether its recorded strides and offset are those that its arguments give. Where they are not in
// the first graph either, that is no fault of the second.
bool MovementCheck::lies_as_recorded(const Node& node) {
  if (!has_type_rule(node)) return true;
  try {
    const TypeId type = infer_type(claims_.facts_b(), graph_b_, b_, node);
    return !type || !node.type || reaches_same_elements(claims_.facts_b(), context_, type, node.type);
  } catch (const TypeMismatch&) {
    return false;
  }
}

// A view of storage, as the strides and the offset say that are recorded of it.
bool MovementCheck::make_view(NodeId b, const Node& node) {
  const Arg first = arg_of(context_, node, 0);
  const bool is_element = node.op->family == OpFamily::kElement;
  // A conjugate is a view, too, and has other values.
  const bool is_copy = may_copy(node) && showing_of(claims_.facts_b(), graph_b_, b) != Showing::kView;
  const bool shows = node.op->is_view && node.op->family != OpFamily::kElementwise && !is_copy;
  if (!(shows || is_element || is_wait(node)) || !first.is_node() || !lies_as_recorded(node) ||
      waits_for_copies(node))
    return false;
  const std::optional<std::size_t> storage = find_storage(first, node);
  if (!storage) return false;
  const TensorType* type = claims_.tensor_b(b);
  if (type == nullptr) {
    tuples_[b] = *storage;
    return true;
  }
  const auto sizes = sizes_of(type), strides = numbers(type->strides);
  const auto offset = offset_of(*type, storages_[*storage]);
  const auto origin = storages_[*storage].origin;
  if (!sizes || !strides || strides->size() != sizes->size() || !offset || !origin || *offset < *origin ||
      type->dtype != storages_[*storage].dtype)
    return false;
  views_[b] = {*storage, *sizes, *strides, *offset - *origin, storages_[*storage].own_start.has_value()};
  if (is_wait(node)) {
    const NodeId list = storages_[*storage].list;
    launches_.add_wait(list ? list : first.as_node(), b);
    end_launch(*storage);
  }
  return true;
}

// Which storage `node` shows of a value that it takes.
std::optional<std::size_t> MovementCheck::find_storage(Arg shown, const Node& node) {
  if (const auto list = lists_.find(shown.as_node()); list != lists_.end()) {
    const Arg index = arg_of(context_, node, 1);
    const bool is_one = node.op->family == OpFamily::kElement && index.is_int() && index.as_int() >= 0 &&
                        index.as_int() < std::ssize(list->second);
    return is_one ? std::optional(list->second[static_cast<std::size_t>(index.as_int())]) : std::nullopt;
  }
  if (const auto tuple = tuples_.find(shown.as_node()); tuple != tuples_.end()) return tuple->second;
  const auto view = view_of(shown);
  return view ? std::optional(view->storage) : std::nullopt;
}

// New memory, and what is put there.
bool MovementCheck::make_result(NodeId b, const Node& node) {
  const TensorType* type = claims_.tensor_b(b);
  const auto sizes = sizes_of(type);
  if (!sizes) return false;
  std::optional<Read> value;
  if (node.op->family == OpFamily::kFactory) {
    // Memory of the host alone can be pinned: elsewhere the call fails.
    const auto pinned = node.op->find_param("pin_memory");
    const Arg* is_pinned = pinned ? find_arg(context_, node, *pinned, "pin_memory") : nullptr;
    const bool is_host = context_.text(type->device).starts_with("cpu");
    if (is_pinned != nullptr && is_pinned->is(ArgKind::kBool) && is_pinned->as_bool() && !is_host)
      return false;
    value.emplace();
    value->elements.append(
        {.term = terms_.intern({.kind = TermKind::kUnknown, .what = b.index()}), .count = *count_of(*sizes)});
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
    if (dim.is_none() || dim.is_int())
      value = read_joined(arg_of(context_, node, 0), dim.is_int() ? dim.as_int() : 0, type->dtype);
  } else {
    value = pack(node);
  }
  if (!value || !value->elements.is_followed() || value->elements.size() != *count_of(*sizes) ||
      !reserve(std::ssize(value->elements.pieces())))
    return false;
  const std::size_t storage = keep(b, std::move(*value)).storage;
  if (is_functional_launch(node)) begin_launch(storage, arg_of(context_, node, 0).as_node());
  return true;
}

// Several collectives in one launch, with a result for each.
bool MovementCheck::launch_each(NodeId b, const Node& node) {
  if (!node.type) return false;
  const Arg list = arg_of(context_, node, 0);
  const Type& type = context_.types[node.type];
  if (!list.is_list() || type.kind != TypeKind::kList) return false;
  const auto operands = context_.args.children(list);
  if (type.elements.size() != operands.size()) return false;
  std::vector<Read> values;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    const auto sizes = sizes_of(tensor_of(context_, type.elements[i]));
    auto sent = sizes ? read(operands[i]) : std::nullopt;
    auto value = sent ? launch(b, node, std::move(*sent)) : std::nullopt;
    if (!value || value->elements.size() != *count_of(*sizes) ||
        !reserve(std::ssize(value->elements.pieces())))
      return false;
    values.push_back(std::move(*value));
  }
  std::vector<std::size_t>& storages = lists_[b];
  for (std::size_t i = 0; i < operands.size(); ++i) {
    storages.push_back(add_storage(b, *tensor_of(context_, type.elements[i]), std::move(values[i])));
    storages_[storages.back()].list = b;
    begin_launch(storages.back(), operands[i].as_node());
  }
  return true;
}

// As storage of its own, which other storage may be the same memory as.
MovementCheck::View MovementCheck::keep(NodeId b, Read value) {
  const TensorType& type = *claims_.tensor_b(b);
  const std::vector<std::int64_t> sizes = *sizes_of(&type);
  return views_[b] = {add_storage(b, type, std::move(value)), sizes, row_major(sizes), 0};
}

std::size_t MovementCheck::add_storage(NodeId b, const TensorType& type, Read value) {
  storages_in_[memory_->storage_of(b)].push_back(storages_.size());
  storages_.push_back({std::move(value.elements),
                       value.packed,
                       type.dtype,
                       origin_of(type),
                       {},
                       memory_->storage_of(b),
                       value.own_start,
                       value.place,
                       {},
                       {}});
  return storages_.size() - 1;
}

// In memory, in elements; of the rank's own part of a buffer, from where that begins on every rank.
std::optional<std::int64_t> MovementCheck::offset_of(const TensorType& type, const Storage& storage) const {
  if (!storage.own_start) return type.offset ? numbers_.find_number(type.offset) : 0;
  if (!type.offset) return {};
  ExprPool& exprs = graph_b_.context->exprs;
  const auto behind = exprs.constant(exprs.sub(type.offset, *storage.own_start));
  return behind && storage.origin ? std::optional(*behind + *storage.origin) : std::nullopt;
}

// A number, or the rank's coordinate.
std::optional<ExprId> MovementCheck::place_of(Arg arg) const {
  if (arg.is_int()) return graph_b_.context->exprs.number(arg.as_int());
  if (!arg.is_node()) return {};
  const Node& node = graph_b_.step().nodes[arg.as_node()];
  if (mesh_call_of(node) != MeshCall::kCoordinate || context_.types[node.type].kind != TypeKind::kScalar)
    return {};
  return context_.types[node.type].expr;
}

std::optional<MovementCheck::View> MovementCheck::view_of(Arg arg) {
  return arg.is_node() ? view_of(arg.as_node()) : std::nullopt;
}

std::optional<MovementCheck::View> MovementCheck::view_of(NodeId b) {
  if (const auto known = views_.find(b); known != views_.end()) return known->second;
  const TensorType* type = claims_.tensor_b(b);
  if (type == nullptr || !claims_.is_whole(b) || claims_[b].kind == ClaimKind::kMoved || later_in_b_.any(b))
    return {};
  const auto sizes = sizes_of(type);
  if (!sizes || !numbers(type->strides)) return {};
  const Sequence& value = of_a(claims_[b].origin);
  if (value.size() != *count_of(*sizes) || !reserve(std::ssize(value.pieces()))) return {};
  return keep(b, {.elements = value});
}

// None: they cannot be followed, are not there yet, or lie outside of the storage.
std::optional<Sequence> MovementCheck::elements_of(const View& view) const {
  if (storages_[view.storage].sent) return {};
  if (storages_[view.storage].own_start.has_value() != view.is_own) return {};  // it lies elsewhere
  const Sequence& content = storages_[view.storage].content;
  const auto runs = runs_of(view.sizes, view.strides, view.offset, content.size());
  if (!runs) return {};
  Sequence elements;
  for (const Run& run : *runs) elements.append(content, run.first, run.count);
  return elements.is_followed() ? std::optional(std::move(elements)) : std::nullopt;
}

std::optional<MovementCheck::Read> MovementCheck::read(Arg arg) {
  const auto view = view_of(arg);
  if (!view) return {};
  auto elements = elements_of(*view);
  if (!elements) return {};
  const Storage& storage = storages_[view->storage];
  return Read{std::move(*elements), storage.packed};
}

// One behind the other along the dimension: for each place in those in front of it, its part of
// each. Items of another dtype are cast to that of the result.
std::optional<MovementCheck::Read> MovementCheck::read_joined(Arg list, std::int64_t dim, DType dtype) {
  if (!list.is_list() || dim < 0) return {};
  Read all;
  std::vector<Sequence> items;
  std::int64_t rows = 1;  // of all items alike, as `cat` has it
  for (std::size_t i = 0; i < context_.args.children(list).size(); ++i) {
    const Arg arg = context_.args.children(list)[i];
    const auto item = read(arg);
    const auto sizes = item ? sizes_of(claims_.tensor_b(arg.as_node())) : std::nullopt;
    if (!sizes || dim >= std::ssize(*sizes)) return {};
    std::int64_t in_front = 1;
    for (std::int64_t d = 0; d < dim; ++d) in_front *= (*sizes)[static_cast<std::size_t>(d)];
    if (i > 0 && in_front != rows) return {};
    rows = in_front;
    const bool is_cast = claims_.tensor_b(arg.as_node())->dtype != dtype;
    items.push_back(is_cast ? terms_.cast(item->elements, dtype) : item->elements);
    all.packed = std::max(all.packed, item->packed);
  }
  if (rows < 1 || rows > kMaxPieces) return {};
  for (std::int64_t row = 0; row < rows; ++row)
    for (const Sequence& item : items) {
      const std::int64_t share = item.size() / rows;
      all.elements.append(item, row * share, share);
    }
  return all;
}

std::optional<MovementCheck::Read> MovementCheck::launch(NodeId b, const Node& node, Read sent) {
  auto moved = send(node, sent.elements, true);
  if (!moved) return {};
  if (node.op->family != OpFamily::kAllGather) sent.packed = std::max(sent.packed, sent.elements.size());
  sent.elements = launches_.add(b, sent.elements, *moved);
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
  const auto place = place_of(rank);
  if (!list.is_list() || !ranks.is_int() || !place || !dtypes || type == nullptr || !packs_all(node))
    return {};
  // A coordinate is within its group on every rank; a number is looked at.
  const std::int64_t at = rank.is_int() ? rank.as_int() : 0;
  const std::size_t count = context_.args.children(list).size();
  if (dtypes->size() != count || at < 0 || at >= ranks.as_int() || ranks.as_int() > kMaxPieces) return {};
  Read own;
  for (std::size_t i = 0; i < count; ++i) {
    const Arg item = context_.args.children(list)[i];
    const auto sent = read(item);
    // Elements of other sizes do not begin where one of the buffer does.
    if (!sent || dtype_at_position((*dtypes)[i]) != type->dtype) return {};
    const bool is_cast = claims_.tensor_b(item.as_node())->dtype != type->dtype;
    const Sequence elements = is_cast ? terms_.cast(sent->elements, type->dtype) : sent->elements;
    own.elements.append(elements, 0, elements.size());
    own.packed = std::max(own.packed, sent->packed);
  }
  const std::int64_t length = own.elements.size();
  const TermId unknown = terms_.intern({.kind = TermKind::kUnknown, .what = node.name.index()});
  Read all{.packed = own.packed};
  all.elements.append({.term = unknown, .count = at * length});
  all.elements.append(own.elements, 0, length);
  all.elements.append(
      {.term = unknown, .first = (at + 1) * length, .count = (ranks.as_int() - at - 1) * length});
  if (!rank.is_int()) {
    ExprPool& exprs = graph_b_.context->exprs;
    all.own_start = exprs.mul(*place, exprs.number(length));
    all.place = rank.as_node();
  }
  return all;
}

// Whether the groups in which tensors are copied have each of them once: what is in none, is not
// copied.
bool MovementCheck::packs_all(const Node& node) const {
  const auto at = node.op->find_param("foreach_group_indices");
  const Arg given = at ? arg_of(context_, node, *at) : Arg();
  if (given.is_none()) return true;
  auto groups = integers(given);
  if (!groups) return false;
  std::erase(*groups, -1);  // between two groups
  std::ranges::sort(*groups);
  const std::size_t count = context_.args.children(arg_of(context_, node, 0)).size();
  if (groups->size() != count) return false;
  for (std::size_t i = 0; i < count; ++i)
    if ((*groups)[i] != static_cast<std::int64_t>(i)) return false;
  return true;
}

// For each rank, its share of the rows of each tensor.
std::optional<MovementCheck::Read> MovementCheck::pack_scatter(const Node& node) {
  const Arg list = arg_of(context_, node, 0), ranks = arg_of(context_, node, 1),
            unpadded = arg_of(context_, node, 2);
  if (!list.is_list() || !ranks.is_int() || ranks.as_int() < 1 || ranks.as_int() > kMaxPieces ||
      !unpadded.is_none())
    return {};
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
    all.packed = std::max(all.packed, value->packed);
  }
  for (std::int64_t rank = 0; rank < ranks.as_int(); ++rank)
    for (const Sequence& x : sent) {
      const std::int64_t share = x.size() / ranks.as_int();
      all.elements.append(x, rank * share, share);
    }
  return all;
}

// In the view's row-major order. False: it shows them in another order than they lie, or outside of
// the storage.
bool MovementCheck::put(const View& view, const Sequence& what) {
  Sequence& old = storages_[view.storage].content;
  const auto runs = runs_of(view.sizes, view.strides, view.offset, old.size());
  if (!runs) return false;
  Sequence content;
  std::int64_t done = 0, at = 0;
  for (const Run& run : *runs) {
    if (run.first < at) return false;
    content.append(old, at, run.first - at);
    content.append(what, done, run.count);
    done += run.count;
    at = run.first + run.count;
  }
  content.append(old, at, old.size() - at);
  if (!content.is_followed() || !reserve(std::ssize(content.pieces()) - std::ssize(old.pieces())))
    return false;
  old = std::move(content);
  return true;
}

// Into storage that the rewrite made, where nothing claimed shows it yet.
bool MovementCheck::write_to(Arg target, const Read& what) {
  const auto view = view_of(target);
  if (!view || !target.is_node() || claims_[target.as_node()].kind == ClaimKind::kWhole) return false;
  const std::vector<std::size_t>& same_memory = storages_in_[memory_->storage_of(target.as_node())];
  if (std::ranges::any_of(same_memory, [&](std::size_t other) { return !storages_[other].shown.empty(); }))
    return false;
  Storage& target_storage = storages_[view->storage];
  const bool is_all = *count_of(view->sizes) == target_storage.content.size();
  if (target_storage.own_start && !view->is_own && !is_all) return false;
  if (*count_of(view->sizes) > what.elements.size() || !put(*view, what.elements)) return false;
  if (is_all) target_storage.own_start.reset();
  for (std::size_t other : same_memory)
    if (other != view->storage) forget(other, target.as_node());
  disturb_launches(memory_->storage_of(target.as_node()), target.as_node());
  Storage& storage = storages_[view->storage];
  storage.packed = std::max(storage.packed, what.packed);
  return true;
}

// Whether it is known what is written.
bool MovementCheck::write(NodeId b, const Node& node) {
  const auto out_at = node.op->find_param("out");
  const Arg out = out_at ? arg_of(context_, node, *out_at) : Arg();
  if (is_launch(node)) {
    auto sent = out.is_node() ? read(arg_of(context_, node, 0)) : std::nullopt;
    if (!sent || !sends_own_place(node, out.as_node())) return false;
    auto moved = launch(b, node, std::move(*sent));
    if (!moved || !write_to(out, *moved)) return false;
    views_[b] = *view_of(out);
    begin_launch(views_.at(b).storage, arg_of(context_, node, 0).as_node());
    return true;
  }
  if (node.op->type_rule == rules::copy_in_place) return write_copy(b, node);
  return out.is_list() && write_pieces(node, out);
}

// A gather that sends from the memory that it fills must send from the rank's own place there:
// elsewhere, what arrives may overwrite what is not sent yet.
bool MovementCheck::sends_own_place(const Node& node, NodeId out) {
  const Arg sent = arg_of(context_, node, 0);
  if (!sent.is_node() || memory_->storage_of(sent.as_node()) != memory_->storage_of(out)) return true;
  const auto from = view_of(sent), to = view_of(out);
  const ProcessGroup* group = find_recorded_group(arg_of(context_, node, group_position(*node.op)));
  if (node.op->family != OpFamily::kAllGather || !from || !to || from->storage != to->storage ||
      group == nullptr)
    return false;
  if (const NodeId coordinate = storages_[from->storage].place)
    return is_place_in(coordinate, *group) && from->offset == to->offset;
  if (is_rank_agnostic(graph_b_)) return group->ranks.size() == 1;
  const auto place = std::ranges::find(group->ranks, own_rank(graph_b_));
  return place != group->ranks.end() &&
         from->offset - to->offset == (place - group->ranks.begin()) * *count_of(from->sizes);
}

// In B; one that is looked up is recorded.
const ProcessGroup* MovementCheck::find_recorded_group(Arg group) const {
  return graph_b_.find_group(recorded_group(context_, b_, group));
}

// Whether a coordinate in a constant of all ranks is, on each of them, its place among its group's.
bool MovementCheck::is_place_in(NodeId coordinate, const ProcessGroup& group) const {
  const Arg of = arg_of(context_, b_.nodes[coordinate], 0), dim = arg_of(context_, b_.nodes[coordinate], 1);
  const World world = read_world(graph_b_);
  const std::uint32_t world_size = world.size;
  const auto rule = find_group_rule(group.ranks, world_size);
  if (!rule || !of.is_node() || !dim.is_int()) return false;
  const Node& table = b_.nodes[of.as_node()];
  const auto sizes = sizes_of(tensor_of(context_, table.type));
  const bool is_constant = table.kind == NodeKind::kGetAttr && table.attr.is(ArgKind::kTensor);
  if (!is_constant || later_in_memory_->any(of.as_node()) || !sizes) return false;
  const auto fields = context_.args.children(table.attr);
  std::vector<std::int64_t> ranks;
  if (fields.size() == 3) collect_integers(context_, fields[2], ranks);
  const std::int64_t depth = std::ssize(*sizes), d = dim.as_int() < 0 ? dim.as_int() + depth : dim.as_int();
  if (std::ssize(ranks) != std::int64_t{world_size} || *count_of(*sizes) != std::int64_t{world_size} ||
      d < 0 || d >= depth)
    return false;
  const auto at = static_cast<std::size_t>(d);
  const std::int64_t stride = row_major(*sizes)[at];
  std::vector<bool> seen(world_size);
  for (std::int64_t i = 0; i < std::ssize(ranks); ++i) {
    const std::int64_t rank = ranks[static_cast<std::size_t>(i)];
    if (rank < 0 || rank >= world_size || seen[static_cast<std::size_t>(rank)]) return false;
    seen[static_cast<std::size_t>(rank)] = true;
    if (i / stride % (*sizes)[at] != rule->coordinate(static_cast<Rank>(rank))) return false;
    const auto there = group_on_rank(graph_b_, world, group, static_cast<Rank>(rank));
    if (!there || there->ranks != rule->members(static_cast<Rank>(rank))) return false;
  }
  return true;
}

bool MovementCheck::write_copy(NodeId b, const Node& node) {
  const Arg target = arg_of(context_, node, 0), source = arg_of(context_, node, 1);
  auto what = read(source);
  const auto to = view_of(target), from = view_of(source);
  if (!what || !to || to->sizes != from->sizes) return false;
  if (claims_.tensor_b(source.as_node())->dtype != storages_[to->storage].dtype)
    what->elements = terms_.cast(what->elements, storages_[to->storage].dtype);
  if (!write_to(target, *what)) return false;
  views_[b] = *view_of(target);
  return true;
}

// Pieces along a dimension, each into a buffer.
bool MovementCheck::write_pieces(const Node& node, Arg out) {
  const auto sizes_at = node.op->find_param("split_sizes"), dim_at = node.op->find_param("dim");
  if (!sizes_at || !dim_at) return false;
  const auto whole = view_of(arg_of(context_, node, 0));
  const auto lengths = integers(arg_of(context_, node, *sizes_at));
  const Arg dim = arg_of(context_, node, *dim_at);
  if (!whole || !lengths || !(dim.is_none() || dim.is_int()) ||
      lengths->size() != context_.args.children(out).size() || !elements_of(*whole))
    return false;
  const std::int64_t from_end = std::ssize(whole->sizes), d = dim.is_none() ? 0 : dim.as_int();
  if (d < -from_end || d >= from_end) return false;
  const auto at = static_cast<std::size_t>(d < 0 ? d + from_end : d);
  std::int64_t start = 0;
  for (std::size_t i = 0; i < lengths->size(); ++i) {
    const std::int64_t length = (*lengths)[i];
    if (length < 0 || length > whole->sizes[at] - start) return false;
    View piece = *whole;
    piece.sizes[at] = length;
    if (length > 0) piece.offset += start * piece.strides[at];
    start += length;
    const auto elements = elements_of(piece);
    const auto to = view_of(context_.args.children(out)[i]);
    if (!elements || !to || to->sizes != piece.sizes ||
        storages_[to->storage].dtype != storages_[piece.storage].dtype)
      return false;
    const Read part{*elements, storages_[piece.storage].packed};
    if (!write_to(context_.args.children(out)[i], part)) return false;
  }
  return start == whole->sizes[at];
}

void MovementCheck::prove(NodeId b) {
  const NodeId origin = claims_[b].origin;
  const auto fail = [&](std::string_view why) {
    claims_.fail(b, "rewrite-moved", fmt::format("is said to be {}, moved; {}", claims_.name_a(origin), why));
  };
  const auto value = read(Arg::node(b));
  if (!value) return fail("how its elements came there cannot be followed");
  if (!(value->elements == of_a(origin))) return fail("it has other elements, or has them in another order");
  if (!show_apart(b)) return fail("another value shows the same memory");
  if (may_be_overwritten(b)) return fail("it shows memory of the first graph, which is written behind it");
  launches_.show(value->elements);
  if (is_regrouped(origin, *value)) claims_.set_regrouped(b);
}

void MovementCheck::settle_launches() {
  if (!has_moved_) return;
  for (NodeId a : a_.order)
    if (is_wait(a_.nodes[a]) && !claims_.whole(claims_.find_class(a)) && claims_.part_count(a) == 0 &&
        launches_.show_unshown(of_a(a)))
      waited_.insert(a);
  for (NodeId b : launches_.settle()) accounted_.insert(b);
}

// Whether a value that is readable shows memory that no other claimed one does.
bool MovementCheck::show_apart(NodeId b) {
  const View& view = views_.at(b);
  Storage& storage = storages_[view.storage];
  for (std::size_t other : storages_in_[memory_->storage_of(b)])
    if (may_share_memory(view.storage, other) && !storages_[other].shown.empty()) return false;
  const auto runs = runs_of(view.sizes, view.strides, view.offset, storage.content.size());
  return std::ranges::all_of(*runs, [&](const Run& run) { return add_apart(storage.shown, run); });
}

// Of two storages that effects take for one. Results of one launch are apart.
bool MovementCheck::may_share_memory(std::size_t storage, std::size_t other) const {
  const NodeId list = storages_[storage].list;
  return other != storage && (!list || storages_[other].list != list);
}

// What the rewrite made, shows a value of A only where it is claimed, and is written there as that
// value is.
bool MovementCheck::may_be_overwritten(NodeId b) const {
  return !is_new(memory_->storage_of(b)) && later_in_memory_->any(b);
}

// Whether a reduction adds up other elements at once than the one that the value comes from in A.
bool MovementCheck::is_regrouped(NodeId origin, const Read& value) const {
  const TensorType* type = claims_.tensor_a(origin);
  if (value.packed == 0 || type == nullptr || !is_floating(type->dtype)) return false;
  const bool is_waited = is_wait(a_.nodes[origin]);
  const NodeId before = is_waited ? find_waited_launch(context_, a_, origin) : NodeId();
  const Arg sent = before ? arg_of(context_, a_.nodes[before], 0) : Arg();
  const auto sizes = sizes_of(sent.is_node() ? claims_.tensor_a(sent.as_node()) : nullptr);
  return !sizes || value.packed != *count_of(*sizes);
}

// ---- launches that are under way
// ---------------------------------------------------------------------------------

void MovementCheck::begin_launch(std::size_t storage, NodeId operand) {
  storages_[storage].sent = memory_->storage_of(operand);
  under_way_.push_back(storage);
}

void MovementCheck::end_launch(std::size_t storage) {
  storages_[storage].sent = {};
  std::erase(under_way_, storage);
}

// What a launch gives, is unknown if what it reads or writes is written before it is waited for.
void MovementCheck::disturb_launches(NodeId memory, NodeId writer) {
  for (std::size_t storage : under_way_)
    if (storages_[storage].sent == memory || storages_[storage].memory == memory) forget(storage, writer);
}

// ---- writes that are not followed
// --------------------------------------------------------------------------------

void MovementCheck::forget_writes_of(NodeId b) {
  if (is_wait(b_.nodes[b])) return;
  for (const StorageAccess& access : memory_->accesses_of(b)) {
    if (!access.writes) continue;
    disturb_launches(access.storage, b);
    const auto written = find_written(b, access.storage);
    for (std::size_t storage : storages_in_[access.storage]) {
      const bool is_part =
          written && std::ranges::all_of(*written, [&](const View& view) { return view.storage == storage; });
      if (!is_part) forget(storage, b);
    }
    if (written)
      for (const View& view : *written) forget(view, b);
  }
}

// What of a memory a call writes, if that is no more than some moved values show.
std::optional<std::vector<MovementCheck::View>> MovementCheck::find_written(NodeId b, NodeId memory) const {
  const Node& node = b_.nodes[b];
  std::vector<View> written;
  bool is_known = node.op != nullptr;
  for (std::size_t i = 0; is_known && i < node.op->params.size(); ++i) {
    if (!node.op->params[i].is_written) continue;
    context_.args.for_each_node(arg_of(context_, node, i), [&](NodeId target) {
      if (memory_->storage_of(target) != memory) return;
      const View* view = find_shown_moved(target);
      is_known = is_known && view != nullptr;
      if (view != nullptr) written.push_back(*view);
    });
  }
  return is_known && !written.empty() ? std::optional(std::move(written)) : std::nullopt;
}

// The moved value of which a value shows elements, and no others.
const MovementCheck::View* MovementCheck::find_shown_moved(NodeId b) const {
  for (NodeId id = b; id; id = shown_operand(context_, b_, id)) {
    const auto view = views_.find(id);
    if (claims_[id].kind == ClaimKind::kMoved) return view != views_.end() ? &view->second : nullptr;
    if (addresses_storage(b_.nodes[id])) return nullptr;
  }
  return nullptr;
}

void MovementCheck::forget(std::size_t storage, NodeId writer) {
  Sequence& content = storages_[storage].content;
  Sequence unknown;
  unknown.append(
      {.term = terms_.intern({.kind = TermKind::kUnknown, .what = writer.index()}), .count = content.size()});
  content = std::move(unknown);
}

void MovementCheck::forget(const View& view, NodeId writer) {
  Sequence unknown;
  unknown.append({.term = terms_.intern({.kind = TermKind::kUnknown, .what = writer.index()}),
                  .count = *count_of(view.sizes)});
  if (!put(view, unknown)) forget(view.storage, writer);
}

// ---- small things
// ------------------------------------------------------------------------------------------------

// Whether there is room for so many more.
bool MovementCheck::reserve(std::int64_t pieces) {
  if (pieces > kMaxAllPieces - pieces_) return false;
  pieces_ += pieces;
  return true;
}

// Where the elements of a value begin in its memory, if they lie there in row-major order.
std::optional<std::int64_t> MovementCheck::origin_of(const TensorType& type) const {
  const auto sizes = sizes_of(&type), strides = numbers(type.strides);
  if (!sizes || !strides || sizes->size() != strides->size()) return {};
  const std::vector<std::int64_t> wanted = row_major(*sizes);
  for (std::size_t d = 0; d < sizes->size(); ++d)
    if ((*sizes)[d] != 1 && (*strides)[d] != wanted[d]) return {};
  const auto offset = type.offset ? numbers_.find_number(type.offset) : 0;
  return offset && *offset >= 0 ? offset : std::nullopt;
}

// None: there is no tensor, or some size has no number, or there are more elements than are
// followed.
std::optional<std::vector<std::int64_t>> MovementCheck::sizes_of(const TensorType* type) const {
  auto sizes = type != nullptr ? numbers(type->sizes) : std::nullopt;
  return sizes && count_of(*sizes) ? sizes : std::nullopt;
}

// The lookup in A of the group from which this one of either graph was split; none where A looks up
// more than one of that name.
NodeId MovementCheck::lookup_split(const Graph& graph, StringId name) const {
  const ProcessGroup* group = graph.find_group(name);
  if (group == nullptr || !group->split_from) return {};
  const ProcessGroup* whole = graph_a_.find_group(group->split_from);
  const auto lookups = lookups_of_.find(group->split_from);
  if (whole == nullptr || lookups == lookups_of_.end() || !is_one_group(graph_a_, *whole, graph, *group))
    return {};
  return lookups->second.size() == 1 ? lookups->second.front() : NodeId();
}

// Groups of the same ranks, on every rank, are one; of groups that are looked up, those that stand
// for the same node of A, and what is split from them.
std::optional<std::uint64_t> MovementCheck::group_of(const Graph& graph, Arg group, bool of_b) {
  if (group.is_node()) {
    const NodeId a = of_b ? claims_[group.as_node()].origin : group.as_node();
    if (!a) return {};
    if (of_b && !claims_.is_whole(group.as_node())) {
      const StringId before = recorded_group(context_, a_, Arg::node(a));
      if (!before || before != recorded_group(context_, b_, group)) return {};
    }
    const NodeId first = lookups_[a] ? lookups_[a] : claims_.find_class(a);
    return (std::uint64_t{1} << 32) + first.index();
  }
  if (!group.is(ArgKind::kText) && !group.is(ArgKind::kProcessGroup)) return {};
  if (const NodeId lookup = lookup_split(graph, group.as_name()))
    return (std::uint64_t{1} << 32) + lookup.index();
  const ProcessGroup* found = graph.find_group(group.as_name());
  if (found == nullptr || found->ranks.empty()) return (std::uint64_t{2} << 32) + group.as_name().index();
  return number_group(graph, *found);
}

// Of all that are one on every rank.
std::size_t MovementCheck::number_group(const Graph& graph, const ProcessGroup& group) {
  const auto [number, is_new] = group_numbers_.try_emplace({&graph, group.name}, groups_.size());
  if (!is_new) return number->second;
  const auto known = std::ranges::find_if(groups_, [&](const RecordedGroup& other) {
    return is_one_group(*other.graph, *other.group, graph, group);
  });
  number->second = static_cast<std::size_t>(known - groups_.begin());
  if (known == groups_.end()) groups_.push_back({&graph, &group});
  return number->second;
}

std::optional<std::vector<std::int64_t>> MovementCheck::numbers(std::span<const ExprId> exprs) const {
  std::vector<std::int64_t> result;
  for (ExprId expr : exprs) {
    const auto number = numbers_.find_number(expr);
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
