#include "passes/async_tp/write_fusions.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "analysis/collectives.h"
#include "analysis/open_body.h"
#include "analysis/users.h"
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

Arg number(std::size_t n) {
  return Arg::integer(static_cast<std::int64_t>(n));
}

// What is fused leaves the graph: the collective with its wait and cuts, the products with the
// reshapes behind them, and those in front of them that nothing else reads.
class TakenOut {
 public:
  TakenOut(const Body& body, const Context& context, const Fusions& found)
      : body_(body), context_(context), users_(list_users(context, body)) {
    const auto each = [&](const auto& visit) {
      for (const GatherFusion& gather : found.gathers) visit(gather.nodes);
      for (const ScatterFusion& scatter : found.scatters) visit(scatter.nodes);
    };
    each([&](const FusedNodes& nodes) { take(nodes); });
    each([&](const FusedNodes& nodes) {
      for (const FusedNodes::Product& product : nodes.products)
        if (product.front && !is_read(product.front)) nodes_.push_back(product.front);
    });
  }
  const std::vector<NodeId>& nodes() const { return nodes_; }

 private:
  void take(const FusedNodes& nodes) {
    nodes_.push_back(nodes.launch);
    nodes_.push_back(nodes.wait);
    for (NodeId id : nodes.cuts)
      if (id) nodes_.push_back(id);
    for (const FusedNodes::Product& product : nodes.products) {
      nodes_.push_back(product.call);
      if (product.back) nodes_.push_back(product.back);
      front_of_.at(product.call) = product.front;
    }
  }
  // By another than products that are fused.
  bool is_read(NodeId front) const {
    return std::ranges::any_of(users_[front], [&](NodeId user) {
      return front_of_[user] != front || arg_of(context_, body_.nodes[user], 1) == Arg::node(front);
    });
  }

  const Body& body_;
  const Context& context_;
  const NodeLists users_;
  SideTable<NodeId, NodeId> front_of_;  // of a product that is fused
  std::vector<NodeId> nodes_;
};

// New nodes, in the place that the body has come to.
class NodeWriter {
 public:
  NodeWriter(OpenBody& body, NodeNames names)
      : body_(body), types_(body.facts()), names_(std::move(names)), pass_(body.graph().intern("async-tp")) {}

  StringId pass() const { return pass_; }

  // What a new node has in common with the node that it is made for, and which nodes it stands for.
  struct Like {
    Node model;
    NameList origins;
  };
  Like like(NodeId model, std::span<const NodeId> origins) {
    std::vector<StringId> names;
    for (NodeId id : origins)
      for (StringId origin : origins_of(body_.body().nodes[id])) names.push_back(origin);
    return {body_.body().nodes[model], body_.context().own(names)};
  }

  NodeId add(const Like& like, std::string_view target, std::vector<Arg> args, std::vector<Arg> kwargs = {}) {
    Graph& graph = body_.graph();
    Context& context = body_.context();
    Node made = like.model;
    made.name = names_.make_like(target.substr(target.find('.') + 1));
    made.target = graph.intern(target);
    made.args = context.args.add(args);
    made.kwargs = context.args.add(kwargs);
    made.extra = nullptr;
    if (like.model.extra != nullptr) {
      NodeExtra extra;
      extra.custom = like.model.extra->custom;
      made.extra = context.own(std::move(extra));
    }
    made.provenance = {};
    append_provenance(context, made,
                      {.pass = pass_,
                       .role = ProvenanceRole::kAdded,
                       .origins = like.origins,
                       .reason = graph.intern("fused over symmetric memory")});
    body_.redirect(made);
    resolve_op(context, made);
    try {
      made.type = types_.infer(graph, body_.body(), made);
    } catch (const TypeMismatch& error) {
      throw PassError("async-tp.type", fmt::format("fusing it does not type-check: {}", error.what()),
                      site_of(graph, like.model),
                      "leave async-tp out; what the graph records contradicts itself");
    }
    return body_.add(made);
  }

  NodeId add_reshape(const Like& like, NodeId of, const Dims& sizes) {
    ArgPool& pool = body_.context().args;
    std::vector<Arg> extents;
    for (ExprId size : sizes) extents.push_back(Arg::integer(*body_.context().exprs.constant(size)));
    return add(like, "aten.reshape.default", {Arg::node(of), pool.add_tree(ArgKind::kList, extents)});
  }

  // Of a fused call, in memory as what it stands for.
  NodeId add_element(const Like& like, NodeId of, std::size_t index, std::size_t dim) {
    const NodeId element = add(like, kElement, {Arg::node(of), number(index)});
    if (dim == 0 || dim + 1 == body_.tensor(element).rank()) return element;
    Graph& graph = body_.graph();
    const StringId contiguous = graph.intern("torch.contiguous_format");
    return add(like, "aten.clone.default", {Arg::node(element)},
               {Arg::text(graph.intern("memory_format")), Arg::named(ArgKind::kMemoryFormat, contiguous)});
  }

 private:
  OpenBody& body_;
  TypeMemo types_;
  NodeNames names_;
  const StringId pass_;
};

class FusionWriter {
 public:
  // `position`: of nodes in the graph as it was.
  FusionWriter(OpenBody& body, NodeNames names, const IdVector<NodeId, std::uint32_t>& position)
      : body_(body), position_(position), nodes_(body, std::move(names)) {}

  StringId pass() const { return nodes_.pass(); }

  void write(const GatherFusion& gather) {
    const FusedNodes& nodes = gather.nodes;
    const Like like = nodes_.like(nodes.launch, list_all(nodes));
    std::vector<Arg> factors;
    for (const FusedNodes::Product& product : nodes.products)
      factors.push_back(arg(body_.body().nodes[product.call], 1));
    const NodeId fused =
        nodes_.add(like, kGatherMatmul,
                   {arg(like.model, 0), body_.context().args.add_tree(ArgKind::kList, factors),
                    number(gather.dim), group_of(like.model)},
                   {Arg::text(body_.graph().intern("return_A")), Arg::boolean(gather.shows_rows)});
    describe(fused, nodes);
    if (gather.shows_rows)
      body_.replace(gather.value,
                    nodes_.add_element(nodes_.like(nodes.launch, {&gather.value, 1}), fused, 0, gather.dim));
    const NodeId products = nodes_.add(like, kElement, {Arg::node(fused), Arg::integer(1)});
    for (std::size_t i = 0; i < nodes.products.size(); ++i)
      write(nodes.products[i], {products, i, gather.dim});
  }

  void write(const ScatterFusion& scatter) {
    const FusedNodes& nodes = scatter.nodes;
    const Node launch = body_.body().nodes[nodes.launch];
    const Like like = nodes_.like(nodes.products.front().call, list_all(nodes));
    Arg rows = scatter.rows ? Arg::node(scatter.rows) : Arg::none();
    if (!scatter.rows) {
      const NodeId left = arg(like.model, 0).as_node();
      Dims sizes = body_.tensor(scatter.value).sizes;
      sizes.back() = body_.tensor(left).sizes[1];
      rows = Arg::node(nodes_.add_reshape(like, left, sizes));
    }
    const Arg reduction = arg(launch, *launch.op->find_param("reduce_op"));
    const NodeId fused = nodes_.add(
        like, kMatmulScatter, {rows, arg(like.model, 1), reduction, number(scatter.dim), group_of(launch)});
    describe(fused, nodes);
    body_.replace(nodes.wait, fused);
  }

 private:
  using Like = NodeWriter::Like;

  struct Slot {
    NodeId products;
    std::size_t index, dim;
  };
  void write(const FusedNodes::Product& product, const Slot& slot) {
    const NodeId last = product.back ? product.back : product.call;
    const Like like = nodes_.like(product.call, {&last, 1});
    const NodeId value = nodes_.add_element(like, slot.products, slot.index, slot.dim);
    if (product.back) body_.replace(product.back, value);
    const bool is_read =
        std::ranges::any_of(body_.users_of(product.call), [&](NodeId user) { return user != product.back; });
    if (!is_read) return;
    const Dims sizes = body_.tensor(product.call).sizes;
    const bool is_flat = body_.tensor(value).rank() == sizes.size();
    body_.replace(product.call, is_flat ? value : nodes_.add_reshape(like, value, sizes));
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
    Node& node = body_.node(fused);
    node.extra = describe_fused(body_.graph(), nodes, node.extra != nullptr ? *node.extra : NodeExtra(),
                                nodes_.pass());
  }

  // By name, also of one that is looked up: fused calls take nothing else.
  Arg group_of(const Node& launch) const {
    return Arg::text(recorded_group(body_.context(), body_.body(), arg(launch, group_position(*launch.op))));
  }
  Arg arg(const Node& node, std::size_t param) const { return arg_of(body_.context(), node, param); }

  OpenBody& body_;
  const IdVector<NodeId, std::uint32_t>& position_;
  NodeWriter nodes_;
};

// By the launch in front of which they move.
NodeLists list_moved(const Body& body, const Fusions& found) {
  std::vector<std::pair<NodeId, NodeId>> pairs;
  for (NodeId id : body.order)
    if (found.anchor[id]) pairs.emplace_back(found.anchor[id], id);
  return list_pairs(body.nodes.size(), pairs);
}

}  // namespace

void write_fusions(Graph& graph, const Fusions& found) {
  Body& step = graph.step();
  const NodeLists moved = list_moved(step, found);
  const TakenOut taken(step, *graph.context, found);
  const auto position = find_positions(step, step.order);
  NodeNames names(graph, step);
  SideTable<NodeId, const GatherFusion*> gather_at{nullptr};
  SideTable<NodeId, const ScatterFusion*> scatter_at{nullptr};
  for (const GatherFusion& gather : found.gathers) gather_at.at(gather.nodes.launch) = &gather;
  for (const ScatterFusion& scatter : found.scatters) scatter_at.at(scatter.nodes.launch) = &scatter;
  OpenBody body(graph, step);
  for (NodeId id : taken.nodes()) body.drop(id);
  FusionWriter writer(body, std::move(names), position);
  for (NodeId id : body.old_order()) {
    for (NodeId early : moved[id]) {
      if (body.is_gone(early)) continue;
      const StringId reason =
          graph.intern(fmt::format("needed by what is fused with %{}", graph.text(step.nodes[id].name)));
      record_moved(*graph.context, body.node(early), {.pass = writer.pass(), .reason = reason});
      body.place(early);
    }
    if (gather_at[id] != nullptr) writer.write(*gather_at[id]);
    if (scatter_at[id] != nullptr) writer.write(*scatter_at[id]);
    if (!body.is_gone(id) && !found.anchor[id]) body.place(id);
  }
  body.close();
}

}  // namespace epweave
