#include "passes/cpu_offload.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <unordered_set>

#include "analysis/collectives.h"
#include "analysis/layers.h"
#include "analysis/recompute_tags.h"
#include "analysis/users.h"
#include "analysis/write_places.h"
#include "base/counted.h"
#include "base/memory_text.h"
#include "ir/facts.h"
#include "ir/types/layout.h"
#include "ops/bind.h"
#include "ops/memory_traits.h"
#include "ops/op.h"
#include "passes/node_names.h"
#include "passes/order_list.h"
#include "passes/record.h"

namespace epweave {
namespace {

constexpr std::int64_t kSmallest = 4096;  // bytes: less is not worth a copy

// Calls visit(NodeId) once for each call that reads the value or a view that forward takes of it.
template <class Visit>
void visit_readers(const Body& body, const NodeLists& users, MemoryTraits& traits, NodeId value,
                   const Visit& visit) {
  std::unordered_set<NodeId> seen;
  std::vector<NodeId> shown = {value};
  while (!shown.empty()) {
    const NodeId id = shown.back();
    shown.pop_back();
    for (NodeId user : users[id]) {
      const Node& node = body.nodes[user];
      if (node.kind != NodeKind::kCall || !seen.insert(user).second) continue;
      visit(user);
      if (!node.is_backward() && traits.has(node, kIsAliasOp)) shown.push_back(user);
    }
  }
}

// ---------------------------------------------------------------------------- tags

class OffloadTagger {
 public:
  explicit OffloadTagger(Graph& graph)
      : graph_(graph),
        context_(*graph.context),
        body_(graph.step()),
        facts_(graph),
        tags_(graph),
        users_(list_users(context_, body_)),
        traits_(context_),
        layers_(graph) {}

  std::string run(double gib) {
    const std::int64_t last_layer = find_last_layer();
    std::vector<Candidate> candidates;
    for (NodeId id : body_.order) {
      const Node& node = body_.nodes[id];
      const std::int64_t layer = layers_.of(node);
      if (node.is_backward() || layer == kNoLayer || layer == last_layer) continue;
      if (const auto bytes = find_bytes(node); bytes && is_kept(id, node)) candidates.push_back({id, *bytes});
    }
    std::ranges::stable_sort(candidates, std::greater(), &Candidate::bytes);
    return tag(candidates, gib);
  }

 private:
  struct Candidate {
    NodeId node;
    std::int64_t bytes;
  };

  std::int64_t find_last_layer() {
    std::int64_t first = kNoLayer, last = kNoLayer;
    for (NodeId id : body_.order) {
      const std::int64_t layer = layers_.of(body_.nodes[id]);
      if (layer == kNoLayer) continue;
      first = first == kNoLayer ? layer : std::min(first, layer);
      last = std::max(last, layer);
    }
    return first == last ? kNoLayer : last;
  }

  // Whether backward has it from forward, as far as tags say.
  bool is_kept(NodeId id, const Node& node) {
    if (node.recompute == tags_.must_save) return true;
    if (tags_.is_recomputed(node.recompute)) return false;
    bool is_read_in_backward = false, is_recomputed_from = false;
    visit_readers(body_, users_, traits_, id, [&](NodeId reader) {
      is_read_in_backward |= body_.nodes[reader].is_backward();
      is_recomputed_from |= tags_.is_recomputed(body_.nodes[reader]);
    });
    return is_read_in_backward && !is_recomputed_from;
  }

  bool is_alias(const Node& node) { return traits_.has(node, kIsAliasOp); }

  // None where the value cannot be moved or is too small. What has no number counts as large
  // enough.
  std::optional<std::int64_t> find_bytes(const Node& node) {
    const bool is_element = has_family(node, OpFamily::kElement);
    if (node.kind != NodeKind::kCall) return std::nullopt;
    if (!is_element && (is_alias(node) || is_communication(node))) return std::nullopt;
    const TensorType* type = tensor_of(context_, node.type);
    if (type == nullptr) return std::nullopt;
    const bool is_strided = type->strides.size() == type->sizes.size();
    if (is_strided && !has_symbol(facts_, type->sizes) && !is_contiguous(facts_, layout_of(*type)))
      return std::nullopt;
    std::int64_t bytes = info(type->dtype).bytes;
    for (ExprId size : type->sizes) {
      const auto number = context_.exprs.constant(size);
      if (!number) return kSmallest;
      bytes *= *number;
    }
    return bytes < kSmallest ? std::nullopt : std::optional(bytes);
  }

  bool is_communication(const Node& node) const {
    return graph_.text(node.target).starts_with("_c10d_functional.");
  }

  std::string tag(const std::vector<Candidate>& candidates, double gib) {
    const StringId pass = graph_.intern("memory-policy"), why = graph_.intern("saved on the host");
    const double budget = gib * (1 << 30);
    std::int64_t total = 0;
    std::size_t count = 0;
    for (const Candidate& candidate : candidates) {
      if (gib > 0 && static_cast<double>(total + candidate.bytes) > budget) continue;
      total += candidate.bytes;
      ++count;
      Node& node = body_.nodes[candidate.node];
      node.recompute = tags_.must_offload;
      record_specialized(context_, node, pass, why);
    }
    return fmt::format("{} of {} values that could be are kept on the host, {}", count, candidates.size(),
                       memory_text(total));
  }

  Graph& graph_;
  Context& context_;
  Body& body_;
  Facts facts_;
  const RecomputeTags tags_;
  NodeLists users_;
  MemoryTraits traits_;
  Layers layers_;
};

// ---------------------------------------------------------------------------- what goes

// A value that goes to the host.
struct Offloaded {
  NodeId value;
  std::vector<NodeId> views;    // done again in backward, in order
  std::vector<NodeId> readers;  // in backward, of the value or of those views
  NodeId first_reader;
  NodeId last_use;    // in forward, a tensor: named by the wait, which frees the storage; or none
  NodeId last_touch;  // the last place of forward that needs the storage
};

struct OffloadPlan {
  std::vector<Offloaded> values;
  std::vector<std::pair<NodeId, std::string_view>> kept;  // tagged, but on the device: why
};

class OffloadFinder {
 public:
  explicit OffloadFinder(const Graph& graph)
      : graph_(graph),
        context_(*graph.context),
        body_(graph.step()),
        users_(list_users(context_, body_)),
        positions_(find_positions(body_, body_.order)),
        traits_(context_),
        writes_(graph, body_),
        effects_(writes_.effects()) {
    for (NodeId id : body_.order) {
      shown_by_.at(effects_.storage_of(id)).push_back(id);
      if (!is_wait(body_.nodes[id])) continue;
      if (const NodeId launch = find_waited_launch(context_, body_, id)) completed_by_.at(launch) = id;
    }
  }

  OffloadPlan run() {
    const RecomputeTags tags(graph_);
    for (NodeId id : body_.order)
      if (body_.nodes[id].recompute == tags.must_offload && !body_.nodes[id].is_backward()) find(id);
    return std::move(plan_);
  }

 private:
  bool is_alias(NodeId id) { return traits_.has(body_.nodes[id], kIsAliasOp); }
  bool is_call(NodeId id) const { return body_.nodes[id].kind == NodeKind::kCall; }
  bool is_forward_call(NodeId id) const { return is_call(id) && !body_.nodes[id].is_backward(); }

  void find(NodeId id) {
    const Node& node = body_.nodes[id];
    if (is_alias(id) || tensor_of(context_, node.type) == nullptr)
      throw PassError("cpu-offload.view",
                      is_alias(id) ? "it is tagged MUST_CPU_OFFLOAD and shows another value's storage"
                                   : "it is tagged MUST_CPU_OFFLOAD and is no tensor",
                      site_of(graph_, node), "tag the value whose storage it is");
    if (!is_call(id)) {
      plan_.kept.emplace_back(id, "no call of the step makes it");
      return;
    }
    Offloaded found{.value = id};
    visit_readers(body_, users_, traits_, id, [&](NodeId reader) {
      if (body_.nodes[reader].is_backward()) {
        add_reader(reader, found);
      } else if (is_alias(reader)) {
        found.views.push_back(reader);
      }
    });
    if (found.readers.empty()) return;
    if (is_written_behind(id)) {
      plan_.kept.emplace_back(id, "its storage is written behind it");
      return;
    }
    if (is_shown_elsewhere(found)) {
      plan_.kept.emplace_back(id, "backward reads its storage through another value, too");
      return;
    }
    if (is_returned(id)) {
      plan_.kept.emplace_back(id, "the step returns it");
      return;
    }
    found.last_use = find_last_use(id);
    found.last_touch = find_last_touch(id);
    if (found.last_use) found.last_touch = later(found.last_touch, found.last_use);
    if (positions_[found.last_touch] > positions_[found.first_reader]) {
      plan_.kept.emplace_back(id, "forward reads it behind the first read of backward");
      return;
    }
    std::ranges::sort(found.views, {}, [&](NodeId view) { return positions_[view]; });
    plan_.values.push_back(std::move(found));
  }

  NodeId later(NodeId a, NodeId b) const { return positions_[a] < positions_[b] ? b : a; }

  // Calls visit(user) for what reads the storage and is not given the copy from the host.
  template <class Visit>
  void visit_forward_users(NodeId value, const Visit& visit) const {
    for (NodeId id : shown_by_[effects_.storage_of(value)])
      if (!body_.nodes[id].is_backward())
        for (NodeId user : users_[id])
          if (!is_call(user) || is_forward_call(user)) visit(user);
  }

  bool is_returned(NodeId value) const {
    bool is_returned = false;
    visit_forward_users(value, [&](NodeId user) { is_returned |= !is_call(user); });
    return is_returned;
  }

  // The last call that forward makes of the storage, or the wait for a collective that sends it.
  NodeId find_last_touch(NodeId value) const {
    NodeId last = value;
    visit_forward_users(value, [&](NodeId user) {
      last = later(last, user);
      if (completed_by_[user]) last = later(last, completed_by_[user]);
    });
    return last;
  }

  // The copy has what the storage holds right behind the value, and writes to either do not reach
  // the other.
  bool is_written_behind(NodeId value) const {
    const auto end = static_cast<std::uint32_t>(body_.order.size());
    return writes_.any(effects_.storage_of(value), positions_[value], end);
  }

  // Whether backward reads the storage through a value that does not come from the one that goes to
  // the host, as through another element node of the same tuple: it would find it freed.
  bool is_shown_elsewhere(const Offloaded& found) const {
    IdSet<NodeId> redirected;
    redirected.insert(found.value);
    for (NodeId view : found.views) redirected.insert(view);
    const NodeId storage = effects_.storage_of(found.value);
    for (NodeId id : shown_by_[storage]) {
      for (NodeId user : users_[id]) {
        if (is_forward_call(user)) continue;
        if (!redirected.contains(id)) return true;
        if (effects_.storage_of(user) == storage) redirected.insert(user);
      }
    }
    return false;
  }

  void add_reader(NodeId reader, Offloaded& found) const {
    found.readers.push_back(reader);
    if (!found.first_reader || positions_[reader] < positions_[found.first_reader])
      found.first_reader = reader;
  }

  // The last forward call that reads the storage, or the element of it that is a tensor.
  NodeId find_last_use(NodeId value) {
    NodeId last = value;
    visit_readers(body_, users_, traits_, value, [&](NodeId reader) {
      if (is_forward_call(reader)) last = later(last, reader);
    });
    if (tensor_of(context_, body_.nodes[last].type) != nullptr) return last;
    for (NodeId user : users_[last])
      if (is_forward_call(user) && tensor_of(context_, body_.nodes[user].type) != nullptr) return user;
    return {};
  }

  const Graph& graph_;
  const Context& context_;
  const Body& body_;
  const NodeLists users_;
  const IdVector<NodeId, std::uint32_t> positions_;
  MemoryTraits traits_;
  const WritePlaces writes_;
  const Effects& effects_;
  SideTable<NodeId, std::vector<NodeId>> shown_by_;  // by storage: the values that show it, in order
  SideTable<NodeId, NodeId> completed_by_;           // a launch, by its wait
  OffloadPlan plan_;
};

// ---------------------------------------------------------------------------- insertion

// Of one value: the calls that move it.
struct Copy {
  NodeId value, offload, wait, last, last_touch;  // wait: for the offload. The rest as of Offloaded
  NodeId reload;
};

class CopyWriter {
 public:
  CopyWriter(Graph& graph, OrderList& list)
      : graph_(graph),
        context_(*graph.context),
        body_(graph.step()),
        facts_(graph),
        list_(list),
        names_(graph, body_),
        pass_(graph.intern("cpu-offload")),
        cpu_(graph.intern("cpu")) {}

  Copy insert(const Offloaded& offloaded) {
    const NodeId value = offloaded.value, reader = offloaded.first_reader;
    const TypeId type = body_.nodes[value].type;
    const TensorType tensor = *tensor_of(context_, type);
    TensorType host = tensor;
    host.device = cpu_;
    host.strides =
        contiguous_strides(facts_, tensor.sizes);  // as the op makes it; reload names the value's own
    host.offset = ExprId();
    const TypeId host_type = context_.types.tensor(host);

    const NodeId offload = make("ao.offload.default", value, {Arg::node(value)}, host_type);
    list_.put_behind(value, offload);
    const NodeId last = offloaded.last_use;
    const NodeId sent =
        make("ao.wait_tensor.default", value,
             {Arg::node(offload), Arg::node(value), last ? Arg::node(last) : Arg::none()}, host_type);
    list_.put_behind(offload, sent);
    const NodeId reload = make("ao.reload.default", value,
                               {Arg::node(sent), Arg::named(ArgKind::kDevice, tensor.device),
                                list_extents(tensor.sizes), list_extents(tensor.strides)},
                               type);
    const NodeId loaded = make("ao.wait_tensor.default", value, {Arg::node(reload), Arg::node(sent)}, type);
    SideTable<NodeId, NodeId> again;
    again.at(value) = loaded;
    for (NodeId id : {reload, loaded}) {
      body_.nodes[id].backward = true;
      list_.put_before(reader, id);
    }
    for (NodeId view : offloaded.views) again.at(view) = repeat_view(view, again, reader);
    for (NodeId user : offloaded.readers) redirect(body_.nodes[user], again);
    return {value, offload, sent, last, offloaded.last_touch, reload};
  }

 private:
  NodeId repeat_view(NodeId view, const SideTable<NodeId, NodeId>& again, NodeId reader) {
    Node made = body_.nodes[view];
    append_provenance(
        context_, made,
        {.pass = pass_, .role = ProvenanceRole::kBody, .origins = origins_of(made), .parts = 1});
    const std::string_view target = graph_.text(made.target);
    made.name = names_.make_like(target.substr(target.find('.') + 1));
    made.recompute = StringId();
    made.backward = true;
    redirect(made, again);
    const NodeId id = body_.nodes.push_back(made);
    list_.put_before(reader, id);
    return id;
  }

  void redirect(Node& node, const SideTable<NodeId, NodeId>& again) {
    const auto map = [&](Arg arg) {
      return arg.is_node() && again[arg.as_node()] ? Arg::node(again[arg.as_node()]) : arg;
    };
    map_arguments(context_, node, map);
  }

  Arg list_extents(const std::vector<ExprId>& extents) {
    std::vector<Arg> items;
    for (ExprId extent : extents) {
      const auto number = context_.exprs.constant(extent);
      items.push_back(number ? Arg::integer(*number) : Arg::symbolic(extent));
    }
    return context_.args.add_tree(ArgKind::kList, items);
  }

  // A call about the value: where it is in the model is where the value is.
  NodeId make(std::string_view target, NodeId value, const std::vector<Arg>& args, TypeId type) {
    Node made = body_.nodes[value];
    const NameList origins = origins_of(made);
    made.provenance = {};  // it is not what the value is
    append_provenance(context_, made, {.pass = pass_, .role = ProvenanceRole::kAdded, .origins = origins});
    made.name = names_.make_like(target.substr(target.find('.') + 1));
    made.target = graph_.intern(target);
    made.args = context_.args.add(args);
    made.kwargs = {};
    made.type = type;
    made.recompute = StringId();
    resolve_op(context_, made);
    return body_.nodes.push_back(made);
  }

  Graph& graph_;
  Context& context_;
  Body& body_;
  Facts facts_;
  OrderList& list_;
  NodeNames names_;
  const StringId pass_, cpu_;
};

// ---------------------------------------------------------------------------- moves

class CopyMover {
 public:
  CopyMover(const Graph& graph, OrderList& list)
      : graph_(graph),
        context_(*graph.context),
        body_(graph.step()),
        traits_(context_),
        layers_(graph),
        list_(list) {}

  // Forward's regions are runs of calls of one layer, up to backward's first call. A wait goes to
  // the end of the region that is `defer` behind the value's; right behind the last touch where
  // that is no later, or where 0 is asked for, or where the value is made behind those regions.
  void place_waits(const std::vector<Copy>& copies, std::int64_t defer) {
    std::vector<NodeId> ends;
    SideTable<NodeId, std::int64_t> region_of(-1);
    SideTable<NodeId, std::uint32_t> place_of;
    std::uint32_t places = 0;
    std::optional<std::int64_t> layer;
    bool is_before_backward = true;
    for (NodeId id = list_.first(); id; id = list_.next(id)) {
      place_of.at(id) = places++;
      if (!is_call(id)) continue;
      is_before_backward = is_before_backward && !body_.nodes[id].is_backward();
      if (!is_before_backward) continue;
      const std::int64_t own = layers_.of(body_.nodes[id]);
      if (layer != own) ends.emplace_back();
      layer = own;
      ends.back() = id;
      region_of.at(id) = static_cast<std::int64_t>(ends.size()) - 1;
    }
    for (const Copy& copy : copies) {
      const NodeId earliest = copy.last_touch == copy.value ? copy.offload : copy.last_touch;
      const std::int64_t own = region_of[copy.value], used = copy.last ? region_of[copy.last] : own;
      const std::int64_t region =
          std::min(std::max(own + defer, used), static_cast<std::int64_t>(ends.size()) - 1);
      const NodeId end = region < 0 ? NodeId() : ends[static_cast<std::size_t>(region)];
      const bool is_later = end && place_of[end] > place_of[earliest];
      list_.put_behind(defer > 0 && is_later ? end : earliest, copy.wait);
    }
  }

  void prefetch_reloads(const std::vector<Copy>& copies, std::int64_t prefetch) {
    std::vector<NodeId> begins;  // of the regions of backward
    std::vector<std::pair<std::int64_t, std::size_t>>
        first;  // layers in the order of backward, and their first region
    std::optional<std::int64_t> layer;
    const auto find_layer = [&](std::int64_t wanted) {
      return std::ranges::find(first, wanted, &std::pair<std::int64_t, std::size_t>::first);
    };
    SideTable<NodeId, std::uint32_t> place_of;
    std::uint32_t places = 0;
    for (NodeId id = list_.first(); id; id = list_.next(id)) {
      const Node& node = body_.nodes[id];
      place_of.at(id) = places++;
      if (!is_call(id) || !node.is_backward() || is_offload_call(node)) continue;
      const std::int64_t own = layers_.of(node);
      if (layer == own) continue;
      layer = own;
      begins.push_back(id);
      if (own != kNoLayer && find_layer(own) == first.end()) first.emplace_back(own, begins.size() - 1);
    }
    for (NodeId reload : reloads_in_order(copies)) {
      const auto found = find_layer(layers_.of(body_.nodes[reload]));
      if (found == first.end()) continue;
      const std::int64_t place = found - first.begin() - prefetch;
      const std::size_t region = place < 0 ? 0 : first[static_cast<std::size_t>(place)].second;
      const NodeId sent = context_.args[body_.nodes[reload].args][0].as_node();
      const bool is_earlier =
          place_of[begins[region]] < place_of[reload] && place_of[sent] < place_of[begins[region]];
      if (region < found->second && is_earlier) list_.put_before(begins[region], reload);
    }
  }

 private:
  bool is_call(NodeId id) const { return body_.nodes[id].kind == NodeKind::kCall; }
  bool is_offload_call(const Node& node) {
    return traits_.has(node, kSendsToHost) || traits_.has(node, kLoadsFromHost) ||
           (is_wait(node) && graph_.text(node.target).starts_with("ao."));
  }

  std::vector<NodeId> reloads_in_order(const std::vector<Copy>& copies) const {
    IdSet<NodeId> is_reload;
    for (const Copy& copy : copies) is_reload.insert(copy.reload);
    std::vector<NodeId> order;
    for (NodeId id = list_.first(); id; id = list_.next(id))
      if (is_reload.contains(id)) order.push_back(id);
    return order;
  }

  const Graph& graph_;
  const Context& context_;
  const Body& body_;
  MemoryTraits traits_;
  Layers layers_;
  OrderList& list_;
};

std::vector<std::string> list_notes(const Graph& graph, const OffloadPlan& plan) {
  const std::vector<Offloaded>& all = plan.values;
  std::vector<std::string> notes = {
      fmt::format("{} {} kept on the host from forward to backward, {} of them read through views",
                  counted(all.size(), "value"), is_or_are(all.size()),
                  std::ranges::count_if(all, [](const Offloaded& o) { return !o.views.empty(); }))};
  for (const auto& [id, why] : plan.kept)
    notes.push_back(fmt::format("{} is tagged MUST_CPU_OFFLOAD and stays on the device: {}",
                                graph.text(graph.step().nodes[id].name), why));
  return notes;
}

}  // namespace

std::string tag_for_offload(Graph& graph, double gib) {
  return OffloadTagger(graph).run(gib);
}

PassResult cpu_offload(const Graph& graph, const CpuOffloadOptions& options) {
  PassResult result{graph};
  const OffloadPlan plan = OffloadFinder(result.graph).run();
  if (plan.values.empty() && plan.kept.empty()) {
    result.notes = {
        "unused: no value that backward reads is tagged MUST_CPU_OFFLOAD: run "
        "memory-policy{policy=sac-and-offload} first"};
    return result;
  }
  OrderList list(result.graph.step().order);
  CopyWriter writer(result.graph, list);
  std::vector<Copy> copies;
  for (const Offloaded& offloaded : plan.values) copies.push_back(writer.insert(offloaded));
  CopyMover mover(result.graph, list);
  mover.place_waits(copies, options.defer);
  if (options.prefetch > 0) mover.prefetch_reloads(copies, options.prefetch);
  result.graph.step().order = list.list();
  result.notes = list_notes(result.graph, plan);
  return result;
}

}  // namespace epweave
