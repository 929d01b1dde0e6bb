#include "passes/bucket/bucket_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "base/counted.h"
#include "ops/bucket_dtypes.h"

namespace epweave {
namespace {

std::string_view noun(MergeKind kind) {
  switch (kind) {
    case MergeKind::kAllGather:
      return "all-gather";
    case MergeKind::kReduceScatter:
      return "reduce-scatter";
    case MergeKind::kAllReduce:
      return "all-reduce";
  }
  return "";
}

}  // namespace

BucketWriter::BucketWriter(MergedGraph& merged, GroupCoordinates coordinates, WaitPlace of_reductions,
                           Packing packing, std::string_view pass)
    : merged_(merged),
      coordinates_(std::move(coordinates)),
      of_reductions_(of_reductions),
      packing_(packing),
      graph_(merged.graph()),
      context_(*graph_.context),
      nodes_(merged),
      pass_(graph_.intern(pass)) {}

MergedLaunch BucketWriter::write(std::span<const Mergeable* const> members, const BucketScope& scope) {
  begin(members, scope);
  const MergeKind kind = members.front()->kind;
  MergedLaunch made;
  made.kind = kind;
  made.backward = scope.backward;
  const bool is_listed = kind == MergeKind::kReduceScatter && packing_ == Packing::kListed;
  switch (kind) {
    case MergeKind::kAllGather:
      made.launch = packing_ == Packing::kOneCall ? pack_gather() : pack_gather_plainly();
      break;
    case MergeKind::kReduceScatter:
      made.launch = is_listed ? launch_scatters() : pack_scatter();
      break;
    case MergeKind::kAllReduce:
      made.launch = pack_reduce();
      break;
  }
  front_ = nodes_.take();
  if (kind == MergeKind::kAllGather) made.pack = packing_ == Packing::kOneCall ? front_.front() : made.launch;
  if (is_listed) {
    made.waits = wait_for_each(made.launch);
    made.wait = made.waits.front();
  } else {
    made.wait = nodes_.add_wait(made.launch);
    kind == MergeKind::kAllGather ? cut_gather(made.wait) : cut_pieces(made.wait);
  }
  back_ = nodes_.take();
  of_reductions_ == WaitPlace::kWithLaunch ? place_together() : place();
  return made;
}

void BucketWriter::begin(std::span<const Mergeable* const> members, const BucketScope& scope) {
  members_ = members;
  dtype_ = (*std::ranges::min_element(members, {}, [](const Mergeable* m) {
             return info(m->dtype).bytes;
           }))->dtype;
  results_.assign(members.size(), {});
  members_models_.clear();
  const StringId module = (scope.entry != nullptr ? scope.entry->modules : list_modules(members)).front();
  const StringId reason = graph_.intern(fmt::format(
      "bucket of {} of {}", counted(members.size(), noun(members.front()->kind)), graph_.text(module)));
  bucket_model_ = make_model(members, scope, reason);
  for (std::size_t i = 0; i < members.size() && scope.entry == nullptr; ++i)
    members_models_.push_back(make_model(members.subspan(i, 1), scope, reason));
  nodes_.write_for(members.front()->launch);
  turn_to_all();
}

// The labels of the first, the plan's entry, and whom the nodes stand for.
Node BucketWriter::make_model(std::span<const Mergeable* const> stood_for, const BucketScope& scope,
                              StringId reason) {
  const Node& first = merged_.body().nodes[stood_for.front()->launch];
  Node model;
  model.module = first.module;
  model.has_custom = first.has_custom;
  model.ep = first.ep;
  model.source = first.source;
  if (scope.backward) model.backward = true;
  const auto text = [&](std::string_view word) { return Arg::text(graph_.intern(word)); };
  std::vector<Arg> modules;
  for (StringId module : scope.entry != nullptr ? scope.entry->modules : list_modules(stood_for))
    modules.push_back(Arg::text(module));
  const std::array entries = {text("plan_fqns"), context_.args.add_tree(ArgKind::kTuple, modules),
                              text("direction"), text(scope.backward ? "bwd" : "fwd")};
  NodeExtra extra;
  if (first.extra != nullptr) extra.custom = first.extra->custom;
  extra.meta =
      context_.args.add(std::array{text("fsdp_bucket"), context_.args.add_tree(ArgKind::kDict, entries)});
  model.extra = context_.own(std::move(extra));

  std::vector<StringId> origins;
  for (const Mergeable* m : stood_for) {
    for (NodeId id : {m->cast, m->launch})
      if (id)
        for (StringId origin : origins_of(merged_.body().nodes[id])) origins.push_back(origin);
  }
  append_provenance(
      context_, model,
      {.pass = pass_, .role = ProvenanceRole::kAdded, .origins = context_.own(origins), .reason = reason});
  return model;
}

// Each once; "step" where the launches are of none.
std::vector<StringId> BucketWriter::list_modules(std::span<const Mergeable* const> members) {
  std::vector<StringId> modules;
  IdSet<StringId> known;
  for (const Mergeable* m : members)
    if (const StringId module = merged_.body().nodes[m->launch].module; module && known.insert(module))
      modules.push_back(module);
  if (modules.empty()) modules.push_back(graph_.intern("step"));
  return modules;
}

// The next nodes are of one member, or of all of them again. In a bucket of any size, what each
// member has would otherwise list all others.
void BucketWriter::turn_to(std::size_t member) {
  if (!members_models_.empty()) nodes_.write_like(members_models_[member]);
}
void BucketWriter::turn_to_all() {
  nodes_.write_like(bucket_model_);
}

std::int64_t BucketWriter::elements_of(std::size_t member) const {
  const Mergeable& m = *members_[member];
  std::int64_t elements = 1;
  for (std::int64_t size : nodes_.sizes_of(m.kind == MergeKind::kAllGather ? m.operand : m.launch))
    elements *= size;
  return elements;
}

Arg BucketWriter::operand(std::size_t member) const {
  return Arg::node(merged_.current(members_[member]->operand));
}

// Into the members' pieces.
NodeId BucketWriter::add_split(NodeId of, bool of_columns) {
  std::vector<std::int64_t> sizes;
  for (std::size_t i = 0; i < members_.size(); ++i)
    sizes.push_back(of_columns ? share_of(i) : elements_of(i));
  std::vector<Arg> args = {Arg::node(of), nodes_.numbers(sizes)};
  if (of_columns) args.push_back(Arg::integer(1));
  return nodes_.add("aten.split_with_sizes.default", std::move(args));
}

NodeId BucketWriter::add_element(NodeId of, std::size_t index) {
  turn_to(index);
  return nodes_.add("operator.getitem", {Arg::node(of), Arg::integer(static_cast<std::int64_t>(index))});
}

std::int64_t BucketWriter::share_of(std::size_t member) const {
  return elements_of(member) * info(members_[member]->dtype).bytes / info(dtype_).bytes;
}

NodeId BucketWriter::pack_gather() {
  const Mergeable& first = *members_.front();
  std::vector<Arg> sent;
  std::vector<std::int64_t> dtypes;
  std::int64_t elements = 0;
  for (std::size_t i = 0; i < members_.size(); ++i) {
    sent.push_back(operand(i));
    dtypes.push_back(*position_of_dtype(members_[i]->dtype));
    elements += share_of(i);
  }
  const Arg ranks = Arg::integer(first.ranks);
  std::vector<Arg> args = {nodes_.list(sent), ranks,
                           Arg::named(ArgKind::kDType, graph_.intern(info(dtype_).name)),
                           nodes_.numbers(dtypes), place_of(first)};
  if (const Arg groups = foreach_groups(); !groups.is_none()) args.push_back(groups);
  const NodeId buffer = nodes_.add("bucketing._pre_bucket_all_gather.default", std::move(args));
  return launch_gather(add_own_part(buffer, first, elements), buffer);
}

NodeId BucketWriter::launch_gather(NodeId own, NodeId buffer) {
  return nodes_.add("_c10d_functional.all_gather_into_tensor_out.default",
                    {Arg::node(own), Arg::integer(members_.front()->ranks), group_of_launch()},
                    nodes_.keyword("out", Arg::node(buffer)));
}

NodeId BucketWriter::pack_gather_plainly() {
  const Mergeable& first = *members_.front();
  std::int64_t elements = 0;
  for (std::size_t i = 0; i < members_.size(); ++i) elements += share_of(i);
  const NodeId buffer = nodes_.add_buffer(elements * first.ranks, dtype_);
  const NodeId own = add_own_part(buffer, first, elements);
  const std::vector<Arg> flat = flatten_members();
  const NodeId joined = nodes_.add("aten.cat.default", {nodes_.list(flat)});
  return launch_gather(nodes_.add("aten.copy_.default", {Arg::node(own), Arg::node(joined)}), buffer);
}

// In a graph for all ranks a coordinate, unless the rank is alone.
Arg BucketWriter::place_of(const Mergeable& gather) const {
  if (!gather.axis || gather.axis->extent == 1) return Arg::integer(gather.rank);
  return Arg::node(coordinates_.at({gather.axis->stride, gather.axis->extent}));
}

NodeId BucketWriter::add_own_part(NodeId buffer, const Mergeable& gather, std::int64_t elements) {
  const Arg place = place_of(gather);
  if (place.is_int())
    return nodes_.add("aten.slice.Tensor",
                      {Arg::node(buffer), Arg::integer(0), Arg::integer(gather.rank * elements),
                       Arg::integer((gather.rank + 1) * elements)});
  const Arg start = add_product(place, elements);
  const NodeId end = nodes_.add("operator.add", {start, Arg::integer(elements)});
  const NodeId own =
      nodes_.add("aten.slice.Tensor", {Arg::node(buffer), Arg::integer(0), start, Arg::node(end)});
  // The rule of slices does not know that the part is within the buffer.
  Node& node = graph_.step().nodes[own];
  TensorType type = *tensor_of(context_, node.type);
  type.sizes = {context_.exprs.number(elements)};
  type.offset = context_.types[graph_.step().nodes[start.as_node()].type].expr;
  node.type = context_.types.tensor(std::move(type));
  return own;
}

Arg BucketWriter::add_product(Arg place, std::int64_t by) {
  return Arg::node(nodes_.add("operator.mul", {place, Arg::integer(by)}));
}

// As the first of the launches names it: where it is looked up, that is in front of all of them.
Arg BucketWriter::group_of_launch() const {
  const auto& order = merged_.order();
  const Mergeable* first = members_.front();
  for (const Mergeable* m : members_)
    if (order.precedes(m->launch, first->launch)) first = m;
  return first->group_arg;
}

// Which tensors one copy can take together: of one dtype and to one, contiguous or not. None: all.
Arg BucketWriter::foreach_groups() {
  std::vector<std::tuple<DType, DType, bool>> kinds;
  std::vector<std::vector<std::int64_t>> groups;
  for (std::size_t i = 0; i < members_.size(); ++i) {
    const TensorType& type = *tensor_of(context_, graph_.step().nodes[members_[i]->operand].type);
    const std::tuple kind{type.dtype, members_[i]->dtype, nodes_.is_contiguous(type)};
    const auto known = std::ranges::find(kinds, kind);
    const std::size_t at = static_cast<std::size_t>(known - kinds.begin());
    if (known == kinds.end()) {
      kinds.push_back(kind);
      groups.emplace_back();
    }
    groups[at].push_back(static_cast<std::int64_t>(i));
  }
  if (groups.size() < 2) return Arg::none();
  std::vector<std::int64_t> flat;
  for (const auto& group : groups) {
    if (!flat.empty()) flat.push_back(-1);
    flat.insert(flat.end(), group.begin(), group.end());
  }
  return nodes_.numbers(flat);
}

NodeId BucketWriter::concatenate_scatter() {
  const std::int64_t ranks = members_.front()->ranks;
  std::int64_t elements = 0;
  std::vector<Arg> rows;
  for (std::size_t i = 0; i < members_.size(); ++i) {
    turn_to(i);
    rows.push_back(Arg::node(nodes_.add_reshape(operand(i).as_node(), {ranks, -1})));
    elements += elements_of(i) * ranks;
  }
  turn_to_all();
  return nodes_.add_view(nodes_.add("aten.cat.default", {nodes_.list(rows), Arg::integer(1)}), {elements});
}

NodeId BucketWriter::pack_scatter() {
  const Mergeable& first = *members_.front();
  std::vector<Arg> sent;
  for (std::size_t i = 0; i < members_.size(); ++i) sent.push_back(operand(i));
  const Arg ranks = Arg::integer(first.ranks);
  const NodeId buffer =
      packing_ == Packing::kPlain
          ? concatenate_scatter()
          : nodes_.add("bucketing._pre_bucket_reduce_scatter.default", {nodes_.list(sent), ranks});
  return nodes_.add("_c10d_functional.reduce_scatter_tensor.default",
                    {Arg::node(buffer), Arg::text(first.reduction), ranks, group_of_launch()});
}

// The launch itself has one result for each.
NodeId BucketWriter::launch_scatters() {
  const Mergeable& first = *members_.front();
  return nodes_.add("_c10d_functional.reduce_scatter_tensor_coalesced.default",
                    {nodes_.list(flatten_members()), Arg::text(first.reduction), Arg::integer(first.ranks),
                     group_of_launch()});
}

std::vector<Arg> BucketWriter::flatten_members() {
  std::vector<Arg> flat;
  for (std::size_t i = 0; i < members_.size(); ++i) {
    turn_to(i);
    flat.push_back(Arg::node(nodes_.add_reshape(operand(i).as_node(), {-1})));
  }
  turn_to_all();
  return flat;
}

NodeId BucketWriter::pack_reduce() {
  const Mergeable& first = *members_.front();
  const std::vector<Arg> flat = flatten_members();
  const NodeId buffer = nodes_.add("aten.cat.default", {nodes_.list(flat)});
  return nodes_.add("_c10d_functional.all_reduce.default",
                    {Arg::node(buffer), Arg::text(first.reduction), group_of_launch()});
}

void BucketWriter::cut_gather(NodeId wait) {
  const std::int64_t ranks = members_.front()->ranks;
  const NodeId rows = nodes_.add_view(wait, {ranks, -1});
  if (packing_ != Packing::kOneCall) return cut_columns(rows);
  if (ranks == 1 || members_.size() == 1) {
    const NodeId split = add_split(rows, true);
    std::vector<NodeId> columns;
    for (std::size_t i = 0; i < members_.size(); ++i) columns.push_back(add_element(split, i));
    for (std::size_t i = 0; i < members_.size(); ++i) {
      turn_to(i);
      stand_for(i, nodes_.add_view(nodes_.add_bit_view(columns[i], members_[i]->dtype),
                                   nodes_.sizes_of(members_[i]->launch)));
    }
    return;
  }
  std::vector<NodeId> buffers;
  std::vector<Arg> targets;
  std::vector<std::int64_t> sizes;
  for (std::size_t i = 0; i < members_.size(); ++i) {
    sizes.push_back(share_of(i));
    turn_to(i);
    buffers.push_back(nodes_.add_buffer(elements_of(i) * ranks, members_[i]->dtype));
  }
  for (std::size_t i = 0; i < members_.size(); ++i) {
    turn_to(i);
    targets.push_back(Arg::node(nodes_.add_bit_view(nodes_.add_view(buffers[i], {ranks, -1}), dtype_)));
  }
  turn_to_all();
  const NodeId copy =
      nodes_.add("aten.split_with_sizes_copy.out", {Arg::node(rows), nodes_.numbers(sizes), Arg::integer(1)},
                 nodes_.keyword("out", nodes_.list(targets)));
  for (std::size_t i = 0; i < members_.size(); ++i) {
    turn_to(i);
    stand_for(i, nodes_.add_view(buffers[i], nodes_.sizes_of(members_[i]->launch)));
    edges_.push_back({copy, results_[i], OrderReason::kReadAfterWrite, buffers[i]});
  }
}

void BucketWriter::cut_columns(NodeId rows) {
  const NodeId split = add_split(rows, true);
  std::vector<NodeId> columns;
  for (std::size_t i = 0; i < members_.size(); ++i) columns.push_back(add_element(split, i));
  for (std::size_t i = 0; i < members_.size(); ++i) {
    turn_to(i);
    stand_for(i, nodes_.add_reshape(columns[i], nodes_.sizes_of(members_[i]->launch)));
  }
}

void BucketWriter::cut_pieces(NodeId wait) {
  const NodeId split = add_split(wait, false);
  std::vector<NodeId> pieces;
  for (std::size_t i = 0; i < members_.size(); ++i) pieces.push_back(add_element(split, i));
  for (std::size_t i = 0; i < members_.size(); ++i) {
    turn_to(i);
    stand_for(i, nodes_.add_view(pieces[i], nodes_.sizes_of(members_[i]->launch)));
  }
}

std::vector<NodeId> BucketWriter::wait_for_each(NodeId launch) {
  std::vector<NodeId> results, waits;
  for (std::size_t i = 0; i < members_.size(); ++i) results.push_back(add_element(launch, i));
  for (std::size_t i = 0; i < members_.size(); ++i) {
    turn_to(i);
    waits.push_back(nodes_.add_wait(results[i]));
  }
  for (std::size_t i = 0; i < members_.size(); ++i) {
    turn_to(i);
    stand_for(i, nodes_.add_view(waits[i], nodes_.sizes_of(members_[i]->launch)));
  }
  turn_to_all();
  return waits;
}

// The value is what the member's wait was: a node of the input, or one that a pass before made (the
// wait of a bucket), which is none of it.
void BucketWriter::stand_for(std::size_t member, NodeId value) {
  const Node& wait = graph_.step().nodes[members_[member]->wait];
  const bool is_added = std::ranges::any_of(
      wait.provenance, [](const Provenance& record) { return record.role == ProvenanceRole::kAdded; });
  Node& node = graph_.step().nodes[value];
  node.provenance = {};
  append_provenance(
      context_, node,
      {.pass = pass_,
       .role = is_added ? ProvenanceRole::kAdded : ProvenanceRole::kMaterialize,
       .origins = origins_of(wait),
       .reason = graph_.intern(fmt::format("tensor {} of {} of the bucket", member, members_.size()))});
  results_[member] = value;
}

void BucketWriter::place() {
  NodeOrder& order = merged_.order();
  IdSet<NodeId> launches;
  NodeId anchor = members_.front()->launch, wait = members_.front()->wait;
  const bool is_last =
      of_reductions_ == WaitPlace::kLast && members_.front()->kind == MergeKind::kReduceScatter;
  for (const Mergeable* m : members_) {
    launches.insert(m->launch);
    if (order.precedes(m->launch, anchor)) anchor = m->launch;
    if (order.precedes(m->wait, wait) != is_last) wait = m->wait;
  }
  for (std::size_t i = 0; i < members_.size(); ++i) anchor = order.later(anchor, operand(i).as_node());
  NodeId next = order.next(anchor);
  while (launches.contains(next)) next = order.next(next);
  const NodeId wait_place = order.later(wait, next);
  order.insert_before(next, front_);
  order.insert_before(wait_place, back_);
  NodeId too_early;  // the first node that takes a result in front of it
  for (std::size_t i = 0; i < members_.size(); ++i) {
    const Mergeable& m = *members_[i];
    merged_.replace(m.wait, results_[i]);
    for (NodeId user : merged_.list_users(m.wait))
      if (order.contains(user) && order.precedes(user, results_[i]) &&
          (!too_early || order.precedes(user, too_early)))
        too_early = user;
  }
  drop_members();
  if (too_early) merged_.sort(too_early, back_.back());
}

void BucketWriter::drop_members() {
  for (const Mergeable* m : members_) {
    merged_.remove(m->wait);
    merged_.remove(m->launch);
    if (m->cast) merged_.remove(m->cast);
  }
}

void BucketWriter::place_together() {
  NodeOrder& order = merged_.order();
  const auto is_launch = [&](NodeId id) {
    return std::ranges::any_of(members_, [&](const Mergeable* m) { return m->launch == id; });
  };
  NodeId next = members_.front()->launch;
  while (is_launch(next)) next = order.next(next);
  order.insert_before(next, front_);
  order.insert_before(next, back_);
  NodeId first = front_.front(), last = back_.back();
  for (std::size_t i = 0; i < members_.size(); ++i) {
    const NodeId sent = operand(i).as_node();
    if (merged_.body().nodes[sent].kind == NodeKind::kPlaceholder) continue;
    if (order.precedes(sent, first)) first = sent;
    last = order.later(last, sent);
  }
  for (std::size_t i = 0; i < members_.size(); ++i) merged_.replace(members_[i]->wait, results_[i]);
  drop_members();
  merged_.sort(first, last);
}

}  // namespace epweave
