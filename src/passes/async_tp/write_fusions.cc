#include "passes/async_tp/write_fusions.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <string_view>
#include <vector>

#include "analysis/collectives.h"
#include "analysis/effects.h"
#include "analysis/users.h"
#include "ir/facts.h"
#include "ir/types/layout.h"
#include "ops/bind.h"
#include "ops/op.h"
#include "ops/type_memo.h"
#include "ops/type_rules.h"
#include "passes/node_names.h"
#include "passes/pass.h"
#include "passes/record.h"

namespace epweave {
namespace {

constexpr std::string_view kGatherMatmul = "symm_mem.fused_all_gather_matmul.default";
constexpr std::string_view kElement = "operator.getitem";
constexpr std::string_view kMatmulScatter = "symm_mem.fused_matmul_reduce_scatter.default";

class FusionWriter {
 public:
  FusionWriter(Graph& graph, const Fusions& found)
      : graph_(graph),
        context_(*graph.context),
        body_(graph.step()),
        found_(found),
        users_(list_users(context_, body_)),
        position_(find_positions(body_, body_.order)),
        facts_(graph),
        types_(facts_),
        names_(graph, graph.step()),
        pass_(graph.intern("async-tp")) {}

  void run() {
    take_out();
    SideTable<NodeId, std::uint32_t> gather_at{kNone}, scatter_at{kNone};
    for (std::uint32_t i = 0; i < found_.gathers.size(); ++i)
      gather_at.at(found_.gathers[i].nodes.launch) = i;
    for (std::uint32_t i = 0; i < found_.scatters.size(); ++i)
      scatter_at.at(found_.scatters[i].nodes.launch) = i;
    std::vector<NodeId> anchored;
    for (NodeId id : body_.order)
      if (found_.anchor[id]) anchored.push_back(id);
    const NodeLists moved = list_moved(anchored);
    const std::vector<NodeId> old = std::move(body_.order);
    body_.order.clear();
    for (NodeId id : old) {
      for (NodeId early : moved[id])
        if (!gone_.contains(early)) place(early, id);
      if (gather_at[id] != kNone) write(found_.gathers[gather_at[id]]);
      if (scatter_at[id] != kNone) write(found_.scatters[scatter_at[id]]);
      if (!gone_.contains(id) && !found_.anchor[id]) place(id, {});
    }
  }

 private:
  static constexpr std::uint32_t kNone = ~0U;

  NodeLists list_moved(std::span<const NodeId> anchored) const {
    std::vector<std::pair<NodeId, NodeId>> pairs;
    for (NodeId id : anchored) pairs.emplace_back(found_.anchor[id], id);
    return list_pairs(body_.nodes.size(), pairs);
  }

  // ------------------------------------------------------------------------- what goes

  void take_out(const FusedNodes& nodes) {
    gone_.insert(nodes.launch);
    gone_.insert(nodes.wait);
    for (NodeId id : nodes.cuts)
      if (id) gone_.insert(id);
    for (const FusedNodes::Product& product : nodes.products) take_out(product);
  }
  void take_out(const FusedNodes::Product& product) {
    gone_.insert(product.call);
    if (product.back) gone_.insert(product.back);
    front_of_.at(product.call) = product.front;
  }
  void take_out_fronts(const FusedNodes& nodes) {
    for (const FusedNodes::Product& product : nodes.products) take_out_front(product);
  }
  // The reshape in front of a product, unless something else reads it.
  void take_out_front(const FusedNodes::Product& product) {
    const NodeId front = product.front;
    if (!front) return;
    const bool is_read = std::ranges::any_of(users_[front], [&](NodeId user) {
      return front_of_[user] != front || arg_of(context_, body_.nodes[user], 1) == Arg::node(front);
    });
    if (!is_read) gone_.insert(front);
  }
  void take_out() {
    for (const GatherFusion& gather : found_.gathers) take_out(gather.nodes);
    for (const ScatterFusion& scatter : found_.scatters) take_out(scatter.nodes);
    for (const GatherFusion& gather : found_.gathers) take_out_fronts(gather.nodes);
    for (const ScatterFusion& scatter : found_.scatters) take_out_fronts(scatter.nodes);
  }

  // ------------------------------------------------------------------------- what comes

  // By name, also of one that is looked up: fused calls take nothing else.
  Arg group_of(const Node& launch) const {
    return Arg::text(recorded_group(context_, body_, arg_of(context_, launch, group_position(*launch.op))));
  }

  void write(const GatherFusion& gather) {
    const FusedNodes& nodes = gather.nodes;
    const Node launch = body_.nodes[nodes.launch];
    std::vector<Arg> factors;
    for (const FusedNodes::Product& product : nodes.products)
      factors.push_back(arg_of(context_, body_.nodes[product.call], 1));
    model_ = launch;
    origins_ = list_origins(list_all(nodes));
    const NodeId fused =
        add(kGatherMatmul, {arg_of(context_, launch, 0), list(factors), number(gather.dim), group_of(launch)},
            {Arg::text(graph_.intern("return_A")), Arg::boolean(gather.shows_rows)});
    describe(fused, nodes);
    if (gather.shows_rows) {
      origins_ = list_origins({&gather.value, 1});
      replace(gather.value, add_element(fused, 0, gather.dim));
    }
    model_ = launch;
    origins_ = list_origins(list_all(nodes));
    const NodeId products = add(kElement, {Arg::node(fused), Arg::integer(1)});
    for (std::size_t i = 0; i < nodes.products.size(); ++i)
      write(nodes.products[i], {products, i, gather.dim});
  }

  // Each once, in the order of the graph.
  std::vector<NodeId> list_all(const FusedNodes& nodes) const {
    std::vector<NodeId> all{nodes.launch, nodes.wait};
    all.insert(all.end(), nodes.cuts.begin(), nodes.cuts.end());
    for (const auto& product : nodes.products)
      all.insert(all.end(), {product.front, product.call, product.back});
    std::erase_if(all, [](NodeId id) { return !id; });
    std::ranges::sort(all, {}, [&](NodeId id) { return position_[id]; });
    all.erase(std::unique(all.begin(), all.end()), all.end());
    return all;
  }
  void describe(NodeId fused, const FusedNodes& nodes) {
    Node& node = body_.nodes[fused];
    node.extra = describe_fused(graph_, nodes, node.extra != nullptr ? *node.extra : NodeExtra(), pass_);
  }

  struct Slot {
    NodeId products;
    std::size_t index, dim;
  };
  void write(const FusedNodes::Product& product, const Slot& place) {
    model_ = body_.nodes[product.call];
    const NodeId last = product.back ? product.back : product.call;
    origins_ = list_origins({&last, 1});
    const NodeId value = add_element(place.products, place.index, place.dim);
    if (product.back) replace(product.back, value);
    const bool is_read =
        std::ranges::any_of(users_[product.call], [&](NodeId user) { return user != product.back; });
    if (!is_read) return;
    const Dims sizes = tensor_of(context_, body_.nodes[product.call].type)->sizes;
    const bool is_flat = tensor_of(context_, body_.nodes[value].type)->rank() == sizes.size();
    replace(product.call, is_flat ? value : add_reshape(value, sizes));
  }

  // In memory as what it stands for.
  NodeId add_element(NodeId of, std::size_t index, std::size_t dim) {
    const NodeId element = add(kElement, {Arg::node(of), number(index)});
    const TensorType& type = *tensor_of(context_, body_.nodes[element].type);
    if (dim == 0 || dim + 1 == type.rank()) return element;
    const StringId contiguous = graph_.intern("torch.contiguous_format");
    return add("aten.clone.default", {Arg::node(element)},
               {Arg::text(graph_.intern("memory_format")), Arg::named(ArgKind::kMemoryFormat, contiguous)});
  }

  void write(const ScatterFusion& scatter) {
    const FusedNodes& nodes = scatter.nodes;
    const Node launch = body_.nodes[nodes.launch], call = body_.nodes[nodes.products.front().call];
    model_ = call;
    origins_ = list_origins(list_all(nodes));
    Arg rows = scatter.rows ? Arg::node(scatter.rows) : Arg::none();
    if (!scatter.rows) {
      const Arg left = arg_of(context_, call, 0);
      Dims sizes = tensor_of(context_, body_.nodes[scatter.value].type)->sizes;
      sizes.back() = tensor_of(context_, body_.nodes[left.as_node()].type)->sizes[1];
      rows = Arg::node(add_reshape(left.as_node(), sizes));
    }
    const Arg reduction = arg_of(context_, launch, *launch.op->find_param("reduce_op"));
    const NodeId fused = add(
        kMatmulScatter, {rows, arg_of(context_, call, 1), reduction, number(scatter.dim), group_of(launch)});
    describe(fused, nodes);
    replace(nodes.wait, fused);
  }

  // ------------------------------------------------------------------------- nodes

  NodeId add_reshape(NodeId of, const Dims& sizes) {
    std::vector<Arg> extents;
    for (ExprId size : sizes) extents.push_back(Arg::integer(*context_.exprs.constant(size)));
    return add("aten.reshape.default", {Arg::node(of), list(extents)});
  }

  NodeId add(std::string_view target, std::vector<Arg> args, std::vector<Arg> kwargs = {}) {
    Node made = model_;
    made.name = names_.make_like(target.substr(target.find('.') + 1));
    made.target = graph_.intern(target);
    made.args = context_.args.add(args);
    made.kwargs = context_.args.add(kwargs);
    made.extra = nullptr;
    if (model_.extra != nullptr) {
      NodeExtra extra;
      extra.custom = model_.extra->custom;
      made.extra = context_.own(std::move(extra));
    }
    made.provenance = {};
    append_provenance(context_, made,
                      {.pass = pass_,
                       .role = ProvenanceRole::kAdded,
                       .origins = origins_,
                       .reason = graph_.intern("fused over symmetric memory")});
    redirect(made);
    resolve_op(context_, made);
    try {
      made.type = types_.infer(graph_, body_, made);
    } catch (const TypeMismatch& error) {
      throw PassError("async-tp.type", fmt::format("fusing it does not type-check: {}", error.what()),
                      site_of(graph_, model_),
                      "leave async-tp out; what the graph records contradicts itself");
    }
    const NodeId id = body_.nodes.push_back(made);
    body_.order.push_back(id);
    return id;
  }

  NameList list_origins(std::span<const NodeId> nodes) {
    std::vector<StringId> origins;
    for (NodeId id : nodes)
      for (StringId origin : origins_of(body_.nodes[id])) origins.push_back(origin);
    return context_.own(origins);
  }

  void replace(NodeId value, NodeId by) { replaced_.at(value) = by; }
  void redirect(Node& node) {
    const auto by = [&](Arg leaf) {
      return leaf.is_node() && replaced_[leaf.as_node()] ? Arg::node(replaced_[leaf.as_node()]) : leaf;
    };
    map_arguments(context_, node, by);
  }

  // In the new order, everything that it takes being there; in front of `launch`, or where it
  // stood.
  void place(NodeId id, NodeId launch) {
    Node& node = body_.nodes[id];
    redirect(node);
    if (launch)
      record_moved(context_, node,
                   {.pass = pass_,
                    .reason = graph_.intern(fmt::format("needed by what is fused with %{}",
                                                        graph_.text(body_.nodes[launch].name)))});
    body_.order.push_back(id);
  }

  Arg list(std::span<const Arg> items) { return context_.args.add_tree(ArgKind::kList, items); }
  static Arg number(std::size_t n) { return Arg::integer(static_cast<std::int64_t>(n)); }

  Graph& graph_;
  Context& context_;
  Body& body_;
  const Fusions& found_;
  const NodeLists users_;
  const IdVector<NodeId, std::uint32_t> position_;
  Facts facts_;
  TypeMemo types_;
  NodeNames names_;
  StringId pass_;
  IdSet<NodeId> gone_;
  SideTable<NodeId, NodeId> replaced_;
  SideTable<NodeId, NodeId> front_of_;  // of a product that is fused: the reshape that gives way with it

  // Of the nodes that are being written:
  Node model_;
  NameList origins_;
};

}  // namespace

void write_fusions(Graph& graph, const Fusions& found) {
  FusionWriter(graph, found).run();
}

}  // namespace epweave
