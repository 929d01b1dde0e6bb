#include "analysis/fused_products.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "analysis/fused_call_nodes.h"
#include "analysis/fused_metadata.h"
#include "analysis/open_body.h"
#include "ir/types/dimension.h"
#include "ir/types/layout.h"
#include "ops/bind.h"
#include "ops/op.h"

namespace epweave {
namespace {

// A call's arguments behind its tensors; find_fused_faults has seen them.
struct Exchanged {
  Arg group;
  std::int64_t ranks;
  std::size_t dim;
};

Exchanged read_exchange(const OpenBody& body, const Node& call) {
  const Context& context = body.context();
  const std::size_t dim_param = call.op->family == OpFamily::kMatmulScatter ? 3 : 2;
  const Arg group = body.current(arg_of(context, call, dim_param + 1));
  const ProcessGroup* row = body.graph().find_group(recorded_group(context, body.body(), group));
  const NodeId rows = body.current(arg_of(context, call, 0)).as_node();
  return {group, static_cast<std::int64_t>(row->ranks.size()),
          find_dimension(arg_of(context, call, dim_param).as_int(), body.tensor(rows).rank()).value()};
}

// By a pass, for a reader of the product; others are nodes that the step has.
bool was_added(const Node& node) {
  const Provenance* maker = find_maker(node);
  return maker != nullptr ? maker->role == ProvenanceRole::kAdded : node.provenance.empty();
}

// Writes out one call: the exchange, and the products.
class CallExpander {
 public:
  CallExpander(OpenBody& body, NodeId id, IdSet<StringId>& regrouped)
      : body_(body),
        id_(id),
        call_(body.body().nodes[id]),
        text_(read_fused(body.context(), call_)),
        exchanged_(read_exchange(body, call_)),
        nodes_(body, call_, text_, regrouped) {
    body.drop(id);
  }

  void run() {
    if (is_exchange_pair(call_))
      expand_pair();
    else if (call_.op->family == OpFamily::kGatherMatmul)
      expand_gather();
    else
      expand_scatter();
  }

 private:
  using Text = FusedCallNodes::Text;

  void expand_pair() {
    const std::array<NodeId, 2> both = {exchange(node_arg(0)), exchange(node_arg(1))};
    for (NodeId user : body_.users_of(id_)) {
      const auto element = tuple_element(body_.context(), body_.body(), body_.body().nodes[user]);
      EPWEAVE_CHECK(element);
      body_.replace(user, both[static_cast<std::size_t>(element->index)]);
    }
  }

  NodeId exchange(NodeId rows) {
    const bool is_gather = call_.op->family == OpFamily::kGatherPair;
    const std::size_t dim = exchanged_.dim;
    if (!is_gather && dim != 0) rows = regroup(rows, dim, 0, {});
    rows = is_gather ? gather(rows) : scatter(rows, Arg::text(body_.graph().intern("sum")));
    return is_gather && dim != 0 ? regroup(rows, 0, dim, {}) : rows;
  }

  void expand_gather() {
    NodeId rows = gather(node_arg(0));
    if (exchanged_.dim != 0) rows = regroup(rows, 0, exchanged_.dim, text_.cuts);
    const Arg list = body_.current(arg_of(body_.context(), call_, 1));
    const auto children = body_.context().args.children(list);
    const std::vector<Arg> factors(children.begin(), children.end());
    text_.products.resize(factors.size());
    std::vector<Written> products;
    for (std::size_t i = 0; i < factors.size(); ++i)
      products.push_back(multiply(rows, factors[i], text_.products[i]));
    hand_out(rows, products);
  }

  void expand_scatter() {
    text_.products.resize(1);
    NodeId value = multiply(node_arg(0), Arg::node(node_arg(1)), text_.products.front()).in_rows;
    if (exchanged_.dim != 0) value = regroup(value, exchanged_.dim, 0, text_.cuts);
    body_.replace(id_, scatter(value, arg_of(body_.context(), call_, 2)));
  }

  NodeId gather(NodeId rows) {
    return wait(nodes_.add("_c10d_functional.all_gather_into_tensor.default",
                           {Arg::node(rows), Arg::integer(exchanged_.ranks), exchanged_.group},
                           text_.launch));
  }
  NodeId scatter(NodeId rows, Arg reduction) {
    return wait(nodes_.add("_c10d_functional.reduce_scatter_tensor.default",
                           {Arg::node(rows), reduction, Arg::integer(exchanged_.ranks), exchanged_.group},
                           text_.launch));
  }
  NodeId wait(NodeId launch) {
    return nodes_.add("_c10d_functional.wait_tensor.default", {Arg::node(launch)}, text_.wait);
  }
  NodeId regroup(NodeId value, std::size_t from, std::size_t to, const std::vector<Text>& cuts) {
    return nodes_.regroup(value, {exchanged_.ranks, from, to}, cuts);
  }

  // ------------------------------------------------------------------------- products

  struct Written {
    NodeId call, in_rows;  // in_rows: with the dimensions of its rows
  };

  Written multiply(NodeId rows, Arg factor, const FusedText::Product& text) {
    const Dims sizes = body_.tensor(rows).sizes;
    const NodeId matrix = flatten(rows, text.front);
    const NodeId call = nodes_.add("aten.mm.default", {Arg::node(matrix), factor}, text.call);
    if (sizes.size() == 2) return {call, call};
    Dims of_product = sizes;
    of_product.back() = body_.tensor(call).sizes.back();
    return {call, nodes_.reshape(call, of_product, text.back)};
  }

  NodeId flatten(NodeId value, const Text& text) {
    const Dims sizes = body_.tensor(value).sizes;
    if (sizes.size() == 2 && !text) return value;
    for (const auto& [name, written] : fronts_)
      if (text && text->name == name) return written;
    ExprPool& pool = body_.context().exprs;
    ExprId rows = pool.number(1);
    for (std::size_t i = 0; i + 1 < sizes.size(); ++i) rows = pool.mul(rows, sizes[i]);
    const Dims flat{rows, sizes.back()};
    if (const NodeId before = find_reshaped(value, flat); !text && before) return before;
    const NodeId kept = text ? find_kept_front(value, flat, *text) : NodeId();
    if (kept && body_.is_placed(kept)) return kept;
    const NodeId made = nodes_.reshape(value, flat, text);
    if (kept) body_.replace(kept, made);
    if (text) fronts_.emplace_back(text->name, made);
    return made;
  }

  // The view in front of the product that the call was written for: it stays where others read it.
  NodeId find_kept_front(NodeId value, const Dims& sizes, const FusedNode& text) {
    const NodeId kept = body_.find(text.name);
    if (!kept || body_.is_gone(kept) || text.op == nullptr || text.op->family != OpFamily::kReshape)
      return {};
    const Node& node = body_.body().nodes[kept];
    const bool shows = node.op == text.op && is_contiguous(body_.facts(), layout_of(body_.tensor(value))) &&
                       body_.current(arg_of(body_.context(), node, 0)) == Arg::node(value) &&
                       body_.has_sizes(kept, sizes);
    return shows ? kept : NodeId();
  }

  // What the value is a reshape of, if that has these sizes.
  NodeId find_reshaped(NodeId value, const Dims& sizes) {
    const Node& node = body_.body().nodes[value];
    if (node.op == nullptr || node.op->family != OpFamily::kReshape) return {};
    const Arg from = body_.current(arg_of(body_.context(), node, 0));
    return from.is_node() && body_.has_sizes(from.as_node(), sizes) ? from.as_node() : NodeId();
  }

  // ------------------------------------------------------------------------- elements

  void hand_out(NodeId rows, const std::vector<Written>& products) {
    for (NodeId user : body_.users_of(id_)) {
      const auto element = tuple_element(body_.context(), body_.body(), body_.body().nodes[user]);
      EPWEAVE_CHECK(element);
      body_.drop(user);
      if (element->index == 0) {
        give(user, {rows, rows});
        continue;
      }
      for (NodeId taker : body_.users_of(user)) {
        const auto product = tuple_element(body_.context(), body_.body(), body_.body().nodes[taker]);
        EPWEAVE_CHECK(product);
        body_.drop(taker);
        give(taker, products[static_cast<std::size_t>(product->index)]);
      }
    }
  }

  // `value` is row-major; the element is laid out by the gathered dimension.
  void give(NodeId element, const Written& value) {
    const std::size_t rank = body_.tensor(value.in_rows).rank();
    const NodeId copy = find_only_copy(element);
    const NodeId shown = copy ? copy : element;
    const bool is_row_major = copy || exchanged_.dim == 0 || exchanged_.dim + 1 == rank;
    body_.replace(shown, is_row_major ? value.in_rows : lay_out(value.in_rows, rank));
    if (is_row_major) give_way(shown, value);
  }

  // Reshapes that show what was reshaped, and those that were written out in front of a product.
  void give_way(NodeId shown, const Written& value) {
    for (NodeId user : body_.users_of(shown)) {
      const Node& node = body_.body().nodes[user];
      const bool shows =
          node.op != nullptr && node.op->family == OpFamily::kReshape && node.op->cost == CostClass::kFree;
      if (!shows) continue;  // a copy is apart from what it copies
      if (value.call != value.in_rows && was_added(node) &&
          body_.has_sizes(user, body_.tensor(value.call).sizes))
        body_.replace(user, value.call);
      for (const auto& [name, written] : fronts_)
        if (name == node.name && body_.has_sizes(user, body_.tensor(written).sizes))
          body_.replace(user, written);
    }
  }

  // The contiguous copy of it, if that is all that reads it.
  NodeId find_only_copy(NodeId element) const {
    static const OpInfo* const clone = find_op("aten.clone.default");
    const auto readers = body_.users_of(element);
    if (readers.size() != 1) return {};
    const Node& reader = body_.body().nodes[readers.front()];
    if (reader.op != clone) return {};
    const Arg format = arg_of(body_.context(), reader, 1);
    const bool is_contiguous = format.is(ArgKind::kMemoryFormat) &&
                               body_.context().text(format.as_name()).ends_with("contiguous_format");
    return is_contiguous ? readers.front() : NodeId();
  }

  NodeId lay_out(NodeId value, std::size_t rank) {
    std::vector<std::size_t> outer(rank), back(rank);
    std::iota(outer.begin(), outer.end(), 0);
    const auto first = outer.begin() + static_cast<std::ptrdiff_t>(exchanged_.dim);
    std::rotate(outer.begin(), first, first + 1);
    for (std::size_t i = 0; i < rank; ++i) back[outer[i]] = i;
    return nodes_.permute(nodes_.copy_contiguous(nodes_.permute(value, outer)), back);
  }

  NodeId node_arg(std::size_t param) const {
    return body_.current(arg_of(body_.context(), call_, param)).as_node();
  }

  OpenBody& body_;
  const NodeId id_;
  const Node call_;
  FusedText text_;
  const Exchanged exchanged_;
  FusedCallNodes nodes_;
  std::vector<std::pair<StringId, NodeId>> fronts_;  // reshapes in front of products, by their names before
};

void expand_body(Graph& graph, Body& body, FusedExpansion& expansion) {
  OpenBody open(graph, body);
  for (NodeId id : open.old_order()) {
    if (open.is_gone(id)) continue;
    const Node& node = body.nodes[id];
    if (is_written_out(node, expansion.kinds) && !expansion.kept.contains(node.name))
      CallExpander(open, id, expansion.regrouped).run();
    else
      open.place(id);
  }
  open.close();
}

bool has_written_out(const Body& body, WrittenOut kinds) {
  return std::ranges::any_of(body.order, [&](NodeId id) { return is_written_out(body.nodes[id], kinds); });
}

}  // namespace

bool is_exchange_pair(const Node& node) {
  return node.op != nullptr &&
         (node.op->family == OpFamily::kGatherPair || node.op->family == OpFamily::kScatterPair);
}

bool is_written_out(const Node& node, WrittenOut kinds) {
  return is_fused_product(node) || (kinds == WrittenOut::kAll && is_exchange_pair(node));
}

bool is_fused_product(const Node& node) {
  return node.op != nullptr &&
         (node.op->family == OpFamily::kGatherMatmul || node.op->family == OpFamily::kMatmulScatter);
}

TypeId block_of_rank(const Context& context, const Body& body, const Node& call) {
  if (call.op->family == OpFamily::kMatmulScatter) return call.type;
  const Arg shard = arg_of(context, call, 0);
  return shard.is_node() ? body.nodes[shard.as_node()].type : TypeId();
}

std::vector<StringId> list_fused_products(const Graph& graph) {
  std::vector<StringId> names;
  const Body& body = graph.step();
  for (NodeId id : body.order)
    if (is_fused_product(body.nodes[id])) names.push_back(body.nodes[id].name);
  std::ranges::sort(names, {}, [](StringId name) { return name.index(); });
  return names;
}

Graph expand_fused_products(Graph graph, FusedExpansion& expansion) {
  for (Body& body : graph.bodies)
    if (has_written_out(body, expansion.kinds)) expand_body(graph, body, expansion);
  return graph;
}

Graph expand_fused_products(Graph graph) {
  for (const FusedFault& fault : find_fused_faults(graph, WrittenOut::kAll))
    throw InputError(print_violation(graph, fault.violation));
  FusedExpansion expansion{.kinds = WrittenOut::kAll};
  return expand_fused_products(std::move(graph), expansion);
}

}  // namespace epweave
