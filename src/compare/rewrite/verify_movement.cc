#include "compare/rewrite/verify_movement.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "analysis/collectives.h"
#include "analysis/rank_view.h"
#include "compare/rewrite/conditions.h"
#include "ir/types/dimension.h"
#include "ir/walk.h"
#include "ops/bind.h"
#include "ops/bucket_dtypes.h"
#include "ops/mesh_calls.h"
#include "ops/op.h"
#include "ops/rules.h"
#include "ops/type_rules.h"

namespace epweave {

MovementCheck::MovementCheck(RewriteClaims& claims, Numbers& numbers, const Effects& effects_a,
                             const LaterWrites& in_b)
    : claims_(claims),
      numbers_(numbers),
      graph_a_(claims.graph_a()),
      graph_b_(claims.graph_b()),
      context_(*graph_a_.context),
      a_(graph_a_.step()),
      b_(graph_b_.step()),
      later_in_b_(in_b) {
  has_moved_ =
      std::ranges::any_of(b_.order, [&](NodeId id) { return claims_[id].kind == ClaimKind::kMoved; });
  if (!has_moved_) return;
  memory_.emplace(graph_b_, b_);
  later_in_memory_.emplace(*memory_);
  groups_.emplace(claims_);
  values_.emplace(claims_, numbers_, *groups_, terms_, effects_a);
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
  return !value || !(value->elements == values_->of(claims_[b].origin));
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

// Whether its recorded strides and offset are those that its arguments give. `verify B` says so,
// but not of a node at whose name the first graph has a wrong type, too.
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
  const bool is_copy =
      !holds(Condition::kReshapesCopy,
             !may_copy(node) || showing_of(claims_.facts_b(), graph_b_, b) == Showing::kView);
  const bool shows = node.op->is_view && node.op->family != OpFamily::kElementwise && !is_copy;
  if (!(shows || is_element || is_wait(node)) || !first.is_node() || waits_for_copies(node) ||
      !lies_as_recorded(node))
    return false;
  const std::optional<std::size_t> storage = find_storage(first, node);
  if (!storage) return false;
  const TensorType* type = claims_.tensor_b(b);
  if (type == nullptr) {
    tuples_[b] = *storage;
    return true;
  }
  find_own_part(*storage, *type);
  const auto sizes = find_sizes(numbers_, type), strides = numbers_.find_numbers(type->strides);
  const auto offset = offset_of(*type, storages_[*storage]);
  const auto origin = storages_[*storage].origin;
  if (!sizes || !strides || strides->size() != sizes->size() || !offset || !origin || *offset < *origin ||
      type->dtype != storages_[*storage].dtype)
    return false;
  views_[b] = {*storage, *sizes, *strides, *offset - *origin,
               storages_[*storage].content.own_start.has_value()};
  if (is_wait(node)) {
    const NodeId list = storages_[*storage].list;
    launches_.add_wait(list ? list : first.as_node(), b);
    storages_.end_launch(*storage);
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
  const auto sizes = find_sizes(numbers_, type);
  if (!sizes) return false;
  std::optional<MovedContent> value;
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
      !terms_.reserve(std::ssize(value->elements.pieces())))
    return false;
  const std::size_t storage = keep(b, std::move(*value)).storage;
  if (is_functional_launch(node))
    storages_.begin_launch(storage, memory_->storage_of(arg_of(context_, node, 0).as_node()));
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
  std::vector<MovedContent> values;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    const auto sizes = find_sizes(numbers_, tensor_of(context_, type.elements[i]));
    auto sent = sizes ? read(operands[i]) : std::nullopt;
    auto value = sent ? launch(b, node, std::move(*sent)) : std::nullopt;
    if (!value || value->elements.size() != *count_of(*sizes) ||
        !terms_.reserve(std::ssize(value->elements.pieces())))
      return false;
    values.push_back(std::move(*value));
  }
  std::vector<std::size_t>& storages = lists_[b];
  for (std::size_t i = 0; i < operands.size(); ++i) {
    const std::size_t storage =
        add_storage(b, *tensor_of(context_, type.elements[i]), std::move(values[i]), b);
    storages_.begin_launch(storage, memory_->storage_of(operands[i].as_node()));
    storages.push_back(storage);
  }
  return true;
}

// As storage of its own, which other storage may be the same memory as.
MovedView MovementCheck::keep(NodeId b, MovedContent value) {
  const TensorType& type = *claims_.tensor_b(b);
  const std::vector<std::int64_t> sizes = *find_sizes(numbers_, &type);
  return views_[b] = {add_storage(b, type, std::move(value)), sizes, row_major(sizes), 0};
}

// `list`: of a launch with several results.
std::size_t MovementCheck::add_storage(NodeId b, const TensorType& type, MovedContent value, NodeId list) {
  return storages_.add({.content = std::move(value),
                        .dtype = type.dtype,
                        .origin = origin_of(type),
                        .memory = memory_->storage_of(b),
                        .list = list});
}

// In memory, in elements; of the rank's own part of a buffer, from where that begins on every rank.
std::optional<std::int64_t> MovementCheck::offset_of(const TensorType& type,
                                                     const MovedStorage& storage) const {
  if (!storage.content.own_start) return type.offset ? numbers_.find_number(type.offset) : 0;
  if (!type.offset) return {};
  ExprPool& exprs = graph_b_.context->exprs;
  const auto behind = exprs.constant(exprs.sub(type.offset, *storage.content.own_start));
  return behind && storage.origin ? std::optional(*behind + *storage.origin) : std::nullopt;
}

// New memory that nothing wrote is a buffer for all ranks once a view shows so many of its elements
// from the rank's coordinate times that number on: within it, as the coordinate's symbol says.
void MovementCheck::find_own_part(std::size_t storage, const TensorType& shown) {
  const MovedStorage& buffer = storages_[storage];
  const auto sizes = find_sizes(numbers_, &shown);
  if (buffer.content.own_start || !shown.offset || numbers_.find_number(shown.offset) || !sizes ||
      buffer.origin != 0 || !terms_.is_unknown(buffer.content.elements))
    return;
  const std::int64_t count = *count_of(*sizes);
  for (const NodeId coordinate : list_coordinates()) {
    if (!begins_at(shown.offset, coordinate, count)) continue;
    const auto last = find_last_place(coordinate);
    if (!last || *last >= buffer.content.elements.size() / std::max<std::int64_t>(count, 1)) continue;
    storages_.begin_own_part(storage, shown.offset, coordinate);
    return;
  }
}

// Whether that is where a rank's part begins, of parts of so many elements.
bool MovementCheck::begins_at(ExprId start, NodeId coordinate, std::int64_t count) const {
  ExprPool& exprs = graph_b_.context->exprs;
  const ExprId place = *place_of(Arg::node(coordinate));
  return exprs.constant(exprs.sub(start, exprs.mul(place, exprs.number(count)))) == 0;
}

// Of B's step, found once.
const std::vector<NodeId>& MovementCheck::list_coordinates() {
  if (!coordinates_) {
    coordinates_.emplace();
    for (const NodeId id : b_.order)
      if (place_of(Arg::node(id))) coordinates_->push_back(id);
  }
  return *coordinates_;
}

// The largest number that a coordinate is on any rank.
std::optional<std::int64_t> MovementCheck::find_last_place(NodeId coordinate) const {
  const NodeExtra* extra = b_.nodes[coordinate].extra;
  if (extra == nullptr || extra->bindings.size() != 1) return {};
  const auto symbol = std::ranges::find(graph_b_.symbols, extra->bindings.front().symbol, &Symbol::name);
  if (symbol == graph_b_.symbols.end() || !symbol->upper) return {};
  return graph_b_.context->exprs.constant(*symbol->upper);
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

std::optional<MovedView> MovementCheck::view_of(Arg arg) {
  return arg.is_node() ? view_of(arg.as_node()) : std::nullopt;
}

std::optional<MovedView> MovementCheck::view_of(NodeId b) {
  if (const auto known = views_.find(b); known != views_.end()) return known->second;
  const TensorType* type = claims_.tensor_b(b);
  if (type == nullptr || !claims_.is_whole(b) || claims_[b].kind == ClaimKind::kMoved ||
      !holds(Condition::kMovesUnwritten, !later_in_b_.any(b)))
    return {};
  const auto sizes = find_sizes(numbers_, type);
  if (!sizes || !numbers_.find_numbers(type->strides)) return {};
  const Sequence& value = values_->of(claims_[b].origin);
  if (value.size() != *count_of(*sizes) || !terms_.reserve(std::ssize(value.pieces()))) return {};
  return keep(b, {.elements = value});
}

std::optional<MovedContent> MovementCheck::read(Arg arg) {
  const auto view = view_of(arg);
  if (!view) return {};
  auto elements = storages_.elements_of(*view);
  if (!elements) return {};
  const MovedStorage& storage = storages_[view->storage];
  return MovedContent{std::move(*elements), storage.content.packed};
}

// One behind the other along the dimension: for each place in those in front of it, its part of
// each. Items of another dtype are cast to that of the result.
std::optional<MovedContent> MovementCheck::read_joined(Arg list, std::int64_t dim, DType dtype) {
  if (!list.is_list() || dim < 0) return {};
  MovedContent all;
  std::vector<Sequence> items;
  std::int64_t rows = 1;  // of all items alike, as `cat` has it
  for (std::size_t i = 0; i < context_.args.children(list).size(); ++i) {
    const Arg arg = context_.args.children(list)[i];
    const auto item = read(arg);
    const auto sizes = item ? find_sizes(numbers_, claims_.tensor_b(arg.as_node())) : std::nullopt;
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

std::optional<MovedContent> MovementCheck::launch(NodeId b, const Node& node, MovedContent sent) {
  auto moved = groups_->send(terms_, node, sent.elements, true);
  if (!moved) return {};
  if (node.op->family != OpFamily::kAllGather) sent.packed = std::max(sent.packed, sent.elements.size());
  sent.elements = launches_.add(b, sent.elements, *moved);
  return sent;
}

std::optional<MovedContent> MovementCheck::pack(const Node& node) {
  if (node.op->type_rule == rules::bucket_all_gather) return pack_gather(node);
  if (node.op->type_rule == rules::bucket_reduce_scatter) return pack_scatter(node);
  return {};
}

// A buffer for all ranks, of which this rank's share holds the tensors, cast, one behind the other.
std::optional<MovedContent> MovementCheck::pack_gather(const Node& node) {
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
  MovedContent own;
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
  MovedContent all{.packed = own.packed};
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
std::optional<MovedContent> MovementCheck::pack_scatter(const Node& node) {
  const Arg list = arg_of(context_, node, 0), ranks = arg_of(context_, node, 1),
            unpadded = arg_of(context_, node, 2);
  if (!list.is_list() || !ranks.is_int() || ranks.as_int() < 1 || ranks.as_int() > kMaxPieces ||
      !unpadded.is_none())
    return {};
  const std::size_t count = context_.args.children(list).size();
  MovedContent all;
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

// Into storage that the rewrite made, where nothing claimed shows it yet.
bool MovementCheck::write_to(Arg target, const MovedContent& what) {
  const auto view = view_of(target);
  if (!view) return false;
  const bool is_shown = storages_.is_shown(memory_->storage_of(target.as_node()));
  return holds(Condition::kWritesBeforeShown, !is_shown) && storages_.write(*view, what, target.as_node());
}

// Whether it is known what is written.
bool MovementCheck::write(NodeId b, const Node& node) {
  const auto out_at = node.op->find_param("out");
  const Arg out = out_at ? arg_of(context_, node, *out_at) : Arg();
  if (is_launch(node)) {
    auto sent = out.is_node() ? read(arg_of(context_, node, 0)) : std::nullopt;
    if (!sent || !holds(Condition::kGathersFromOwnPlace, sends_own_place(node, out.as_node()))) return false;
    auto moved = launch(b, node, std::move(*sent));
    if (!moved || !write_to(out, *moved)) return false;
    views_[b] = *view_of(out);
    storages_.begin_launch(views_.at(b).storage, memory_->storage_of(arg_of(context_, node, 0).as_node()));
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
  if (from->is_own) {
    const MovedContent& content = storages_[from->storage].content;
    return from->offset == to->offset &&
           begins_at(*content.own_start, content.place, *count_of(from->sizes)) &&
           is_place_in(graph_b_, content.place, *group, numbers_, *later_in_memory_);
  }
  if (is_rank_agnostic(graph_b_)) return group->ranks.size() == 1;
  const auto place = std::ranges::find(group->ranks, own_rank(graph_b_));
  return place != group->ranks.end() &&
         from->offset - to->offset == (place - group->ranks.begin()) * *count_of(from->sizes);
}

// In B; one that is looked up is recorded.
const ProcessGroup* MovementCheck::find_recorded_group(Arg group) const {
  return graph_b_.find_group(recorded_group(context_, b_, group));
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
      lengths->size() != context_.args.children(out).size() || !storages_.elements_of(*whole))
    return false;
  const auto found = find_dimension(dim.is_none() ? 0 : dim.as_int(), whole->sizes.size());
  if (!found) return false;
  const std::size_t at = *found;
  std::int64_t start = 0;
  for (std::size_t i = 0; i < lengths->size(); ++i) {
    const std::int64_t length = (*lengths)[i];
    if (length < 0 || length > whole->sizes[at] - start) return false;
    MovedView piece = *whole;
    piece.sizes[at] = length;
    if (length > 0) piece.offset += start * piece.strides[at];
    start += length;
    const auto elements = storages_.elements_of(piece);
    const auto to = view_of(context_.args.children(out)[i]);
    if (!elements || !to || to->sizes != piece.sizes ||
        storages_[to->storage].dtype != storages_[piece.storage].dtype)
      return false;
    const MovedContent part{*elements, storages_[piece.storage].content.packed};
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
  if (!holds(Condition::kMovedElements, value->elements == values_->of(origin)))
    return fail("it has other elements, or has them in another order");
  if (!holds(Condition::kShowsApart, storages_.show_apart(views_.at(b))))
    return fail("another value shows the same memory");
  if (!holds(Condition::kMovedStays, !may_be_overwritten(b)))
    return fail("it shows memory of the first graph, which is written behind it");
  launches_.show(value->elements);
  if (is_regrouped(origin, *value)) claims_.set_regrouped(b);
}

void MovementCheck::settle_launches() {
  if (!has_moved_) return;
  for (NodeId a : a_.order)
    if (is_wait(a_.nodes[a]) && !claims_.whole(claims_.find_class(a)) && claims_.part_count(a) == 0 &&
        launches_.show_unshown(values_->of(a)))
      waited_.insert(a);
  for (NodeId b : launches_.settle()) accounted_.insert(b);
}

// What the rewrite made, shows a value of A only where it is claimed, and is written there as that
// value is.
bool MovementCheck::may_be_overwritten(NodeId b) const {
  return !is_new(memory_->storage_of(b)) && later_in_memory_->any(b);
}

// Whether a reduction adds up other elements at once than the one that the value comes from in A.
bool MovementCheck::is_regrouped(NodeId origin, const MovedContent& value) const {
  const TensorType* type = claims_.tensor_a(origin);
  const bool is_rounded = type != nullptr && is_inexact(type->dtype);
  if (value.packed == 0 || !is_rounded) return false;
  const bool is_waited = is_wait(a_.nodes[origin]);
  const NodeId before = is_waited ? find_waited_launch(context_, a_, origin) : NodeId();
  const Arg sent = before ? arg_of(context_, a_.nodes[before], 0) : Arg();
  const auto sizes = find_sizes(numbers_, sent.is_node() ? claims_.tensor_a(sent.as_node()) : nullptr);
  return !sizes || value.packed != *count_of(*sizes);
}

// ---- writes that are not followed
// --------------------------------------------------------------------------------

void MovementCheck::forget_writes_of(NodeId b) {
  if (is_wait(b_.nodes[b]) || holds(Condition::kForgetsWritten, false)) return;
  for (const StorageAccess& access : memory_->accesses_of(b)) {
    if (!access.writes) continue;
    storages_.disturb_launches(access.storage, b);
    const auto written = find_written(b, access.storage);
    for (std::size_t storage : storages_.in(access.storage)) {
      const bool is_part = written && std::ranges::all_of(*written, [&](const MovedView& view) {
                             return view.storage == storage;
                           });
      if (!is_part) storages_.forget(storage, b);
    }
    if (written)
      for (const MovedView& view : *written) storages_.forget(view, b);
  }
}

// What of a memory a call writes, if that is no more than some moved values show.
std::optional<std::vector<MovedView>> MovementCheck::find_written(NodeId b, NodeId memory) const {
  const Node& node = b_.nodes[b];
  std::vector<MovedView> written;
  bool is_known = node.op != nullptr;
  for (std::size_t i = 0; is_known && i < node.op->params.size(); ++i) {
    if (!node.op->params[i].is_written) continue;
    context_.args.for_each_node(arg_of(context_, node, i), [&](NodeId target) {
      if (memory_->storage_of(target) != memory) return;
      const MovedView* view = find_shown_moved(target);
      is_known = is_known && view != nullptr;
      if (view != nullptr) written.push_back(*view);
    });
  }
  return is_known && !written.empty() ? std::optional(std::move(written)) : std::nullopt;
}

// The moved value of which a value shows elements, and no others.
const MovedView* MovementCheck::find_shown_moved(NodeId b) const {
  for (NodeId id = b; id; id = shown_operand(context_, b_, id)) {
    const auto view = views_.find(id);
    if (claims_[id].kind == ClaimKind::kMoved) return view != views_.end() ? &view->second : nullptr;
    if (addresses_storage(b_.nodes[id])) return nullptr;
  }
  return nullptr;
}

// ---- small things
// ------------------------------------------------------------------------------------------------

// Where the elements of a value begin in its memory, if they lie there in row-major order.
std::optional<std::int64_t> MovementCheck::origin_of(const TensorType& type) const {
  const auto sizes = find_sizes(numbers_, &type), strides = numbers_.find_numbers(type.strides);
  if (!sizes || !strides || sizes->size() != strides->size()) return {};
  const std::vector<std::int64_t> wanted = row_major(*sizes);
  for (std::size_t d = 0; d < sizes->size(); ++d)
    if ((*sizes)[d] != 1 && (*strides)[d] != wanted[d]) return {};
  const auto offset = type.offset ? numbers_.find_number(type.offset) : 0;
  return offset && *offset >= 0 ? offset : std::nullopt;
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
