#include "analysis/fused_products.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>

#include "analysis/fused_metadata.h"
#include "analysis/users.h"
#include "analysis/verify_report.h"
#include "ir/facts.h"
#include "ir/types/layout.h"
#include "ops/bind.h"
#include "ops/may_copy.h"
#include "ops/op.h"
#include "ops/rules.h"
#include "ops/type_rules.h"

namespace epweave {
namespace {

bool is_exchange_pair(const Node& node) {
  return node.op != nullptr &&
         (node.op->family == OpFamily::kGatherPair || node.op->family == OpFamily::kScatterPair);
}

bool is_written_out(const Node& node, WrittenOut kinds) {
  return is_fused_product(node) || (kinds == WrittenOut::kAll && is_exchange_pair(node));
}

class ProductExpander {
 public:
  ProductExpander(Graph& graph, Body& body, FusedExpansion& expansion)
      : graph_(graph),
        context_(*graph.context),
        body_(body),
        facts_(graph),
        users_(list_users(context_, body)),
        kinds_(expansion.kinds),
        kept_(expansion.kept),
        regrouped_(expansion.regrouped) {
    for (NodeId id : body.order) by_name_.at(body.nodes[id].name) = id;
  }

  void run() {
    const std::vector<NodeId> old = std::move(body_.order);
    body_.order.clear();
    for (NodeId id : old) {
      if (gone_.contains(id)) continue;
      if (is_written_out(body_.nodes[id], kinds_) && !kept_.contains(body_.nodes[id].name)) {
        gone_.insert(id);
        expand(id);
      } else {
        place(id);
      }
    }
    std::erase_if(body_.order, [&](NodeId id) { return gone_.contains(id); });
    for (NodeId id : body_.order) redirect(body_.nodes[id]);
  }

 private:
  // ------------------------------------------------------------------------- the two ops

  void expand(NodeId id) {
    call_ = body_.nodes[id];
    text_ = read_fused(context_, call_);
    fronts_.clear();
    written_ = 0;
    if (is_exchange_pair(call_))
      expand_pair(id);
    else if (call_.op->family == OpFamily::kGatherMatmul)
      expand_gather(id);
    else
      expand_scatter(id);
  }

  void expand_pair(NodeId id) {
    read_call(2);
    const auto rank = static_cast<std::int64_t>(tensor(node_arg(0)).rank());
    const std::int64_t named = arg_of(context_, call_, 2).as_int();
    dim_ = static_cast<std::size_t>(named < 0 ? named + rank : named);
    const std::array<NodeId, 2> both = {exchange(node_arg(0)), exchange(node_arg(1))};
    for (NodeId user : users_[id]) {
      const auto element = tuple_element(context_, body_, body_.nodes[user]);
      EPWEAVE_CHECK(element);
      gone_.insert(user);
      replaced_.at(user) = both[static_cast<std::size_t>(element->index)];
    }
  }

  NodeId exchange(NodeId rows) {
    const bool is_gather = call_.op->family == OpFamily::kGatherPair;
    const Arg sum = Arg::text(graph_.intern("sum"));
    text_.cuts.clear();
    if (!is_gather && dim_ != 0) rows = regroup(rows, dim_, 0);
    rows = is_gather ? gather(rows) : scatter(rows, sum);
    return is_gather && dim_ != 0 ? regroup(rows, 0, dim_) : rows;
  }

  void expand_gather(NodeId id) {
    read_call(2);
    NodeId rows = gather(node_arg(0));
    if (dim_ != 0) rows = regroup(rows, 0, dim_);
    const Arg list = current(arg_of(context_, call_, 1));
    const std::vector<Arg> factors(context_.args.children(list).begin(), context_.args.children(list).end());
    text_.products.resize(factors.size());
    std::vector<Written> products;
    for (std::size_t i = 0; i < factors.size(); ++i)
      products.push_back(multiply(rows, factors[i], text_.products[i]));
    hand_out(id, rows, products);
  }

  void expand_scatter(NodeId id) {
    read_call(3);
    text_.products.resize(1);
    NodeId value = multiply(node_arg(0), Arg::node(node_arg(1)), text_.products.front()).in_rows;
    if (dim_ != 0) value = regroup(value, dim_, 0);
    replaced_.at(id) = scatter(value, arg_of(context_, call_, 2));
  }

  NodeId gather(NodeId rows) {
    return wait(add("_c10d_functional.all_gather_into_tensor.default",
                    {Arg::node(rows), Arg::integer(ranks_), group_}, text_.launch));
  }
  NodeId scatter(NodeId rows, Arg reduction) {
    return wait(add("_c10d_functional.reduce_scatter_tensor.default",
                    {Arg::node(rows), reduction, Arg::integer(ranks_), group_}, text_.launch));
  }
  NodeId wait(NodeId launch) {
    return add("_c10d_functional.wait_tensor.default", {Arg::node(launch)}, text_.wait);
  }

  void read_call(std::size_t dim_param) {
    group_ = current(arg_of(context_, call_, dim_param + 1));
    const ProcessGroup* row = graph_.find_group(recorded_group(context_, body_, group_));
    ranks_ = static_cast<std::int64_t>(row->ranks.size());  // find_fused_faults has seen it
    dim_ = static_cast<std::size_t>(arg_of(context_, call_, dim_param).as_int());
  }

  // ------------------------------------------------------------------------- products

  struct Written {
    NodeId call, in_rows;  // in_rows: with the dimensions of its rows
  };

  Written multiply(NodeId rows, Arg factor, const FusedText::Product& text) {
    const Dims sizes = tensor(rows).sizes;
    const NodeId matrix = flatten(rows, text.front);
    const NodeId call = add("aten.mm.default", {Arg::node(matrix), factor}, text.call);
    if (sizes.size() == 2) return {call, call};
    Dims of_product = sizes;
    of_product.back() = tensor(call).sizes.back();
    return {call, reshape(call, of_product, text.back)};
  }

  NodeId flatten(NodeId value, const std::optional<FusedNode>& text) {
    const Dims sizes = tensor(value).sizes;
    if (sizes.size() == 2 && !text) return value;
    for (const auto& [name, written] : fronts_)
      if (text && text->name == name) return written;
    ExprId rows = context_.exprs.number(1);
    for (std::size_t i = 0; i + 1 < sizes.size(); ++i) rows = context_.exprs.mul(rows, sizes[i]);
    const Dims flat{rows, sizes.back()};
    if (const NodeId before = find_reshaped(value, flat); !text && before) return before;
    const NodeId kept = text ? find_kept_front(value, flat, *text) : NodeId();
    if (kept && placed_.contains(kept)) return kept;
    const NodeId made = reshape(value, flat, text);
    if (kept) {
      gone_.insert(kept);
      replaced_.at(kept) = made;
    }
    if (text) fronts_.emplace_back(text->name, made);
    return made;
  }

  // The view in front of the product that the call was written for: it stays where others read it.
  NodeId find_kept_front(NodeId value, const Dims& sizes, const FusedNode& text) {
    const NodeId kept = by_name_[text.name];
    if (!kept || gone_.contains(kept) || text.op == nullptr || text.op->family != OpFamily::kReshape)
      return {};
    const Node& node = body_.nodes[kept];
    const TensorType& viewed = tensor(value);
    const bool shows = node.op == text.op && is_contiguous(facts_, layout_of(viewed)) &&
                       current(arg_of(context_, node, 0)) == Arg::node(value) && has_sizes(kept, sizes);
    return shows ? kept : NodeId();
  }

  // What the value is a reshape of, if that has these sizes.
  NodeId find_reshaped(NodeId value, const Dims& sizes) {
    const Node& node = body_.nodes[value];
    if (node.op == nullptr || node.op->family != OpFamily::kReshape) return {};
    const Arg from = current(arg_of(context_, node, 0));
    return from.is_node() && has_sizes(from.as_node(), sizes) ? from.as_node() : NodeId();
  }
  bool has_sizes(NodeId id, const Dims& sizes) {
    const TensorType* type = tensor_of(context_, body_.nodes[id].type);
    return type != nullptr &&
           std::ranges::equal(type->sizes, sizes, [&](ExprId a, ExprId b) { return facts_.equal(a, b); });
  }

  // The same, but that one may be -1.
  static bool are_extents(std::span<const Arg> named, std::span<const Arg> extents) {
    const auto free = std::count(named.begin(), named.end(), Arg::integer(-1));
    return free <= 1 &&
           std::ranges::equal(named, extents, [](Arg a, Arg b) { return a == b || a == Arg::integer(-1); });
  }

  NodeId reshape(NodeId value, const Dims& sizes, const std::optional<FusedNode>& text) {
    std::vector<Arg> extents;
    for (ExprId size : sizes) extents.push_back(extent(size));
    if (text && are_extents(text->numbers, extents)) extents = text->numbers;
    const bool is_as_named = text && text->op != nullptr && text->op->family == OpFamily::kReshape &&
                             text->op->params.size() == 2 &&
                             (may_copy(*text->op) || view_strides(facts_, layout_of(tensor(value)), sizes));
    return add(is_as_named ? text->op->target : "aten.reshape.default",
               {Arg::node(value), context_.args.add_tree(ArgKind::kList, extents)}, text);
  }

  // ------------------------------------------------------------------------- blocks

  // Blocks that lie one behind another along `from`, along `to`.
  NodeId regroup(NodeId value, std::size_t from, std::size_t to) {
    const ExprId size = context_.exprs.floordiv(tensor(value).sizes[from], context_.exprs.number(ranks_));
    text_.cuts.resize(static_cast<std::size_t>(ranks_) + 2);
    std::vector<Arg> pieces;
    const auto own = context_.exprs.constant(facts_.normalize(size));
    const bool is_sliced = !text_.cuts.front() && own && are_slices(*own);
    const NodeId split = is_sliced ? NodeId() : cut(value, size, from);
    for (std::int64_t i = 0; i < ranks_; ++i) {
      const std::optional<FusedNode>& text = text_.cuts[static_cast<std::size_t>(i) + 1];
      pieces.push_back(Arg::node(
          is_sliced ? add(text->op->target,
                          {Arg::node(value), integer(from), text->numbers[0], text->numbers[1]}, text)
                    : add("operator.getitem", {Arg::node(split), Arg::integer(i)}, text)));
    }
    const std::size_t rank = tensor(value).rank();
    return add("aten.cat.default",
               with_dim({context_.args.add_tree(ArgKind::kList, pieces)}, to, rank, text_.cuts.back()),
               text_.cuts.back());
  }

  // Whether each piece is named as a slice, [i * own, (i + 1) * own) or to the end.
  bool are_slices(std::int64_t own) const {
    static const OpInfo* const slice = find_op("aten.slice.Tensor");
    for (std::int64_t i = 0; i < ranks_; ++i) {
      const std::optional<FusedNode>& text = text_.cuts[static_cast<std::size_t>(i) + 1];
      if (!text || text->op != slice || text->numbers.size() != 2) return false;
      const Arg start = text->numbers[0], end = text->numbers[1];
      const bool begins = start.is_int() ? start.as_int() == i * own : start.is_none() && i == 0;
      const bool is_last = i + 1 == ranks_;
      const bool ends = end.is_int()
                            ? end.as_int() == (i + 1) * own || (is_last && end.as_int() > ranks_ * own)
                            : end.is_none() && is_last;
      if (!begins || !ends) return false;
    }
    return true;
  }

  NodeId cut(NodeId value, ExprId size, std::size_t dim) {
    const std::optional<FusedNode>& text = text_.cuts.front();
    const OpInfo* op = text ? text->op : nullptr;
    Arg count = extent(size);
    std::string_view target = "aten.split.Tensor";
    if (op != nullptr && op->family == OpFamily::kSplit) {
      target = op->target;
      const std::vector<Arg> sizes(static_cast<std::size_t>(ranks_), extent(size));
      if (op->type_rule == rules::chunk)
        count = Arg::integer(ranks_);
      else if (op->type_rule != rules::split)
        count = context_.args.add_tree(ArgKind::kList, sizes);
    }
    return add(target, with_dim({Arg::node(value), count}, dim, tensor(value).rank(), text), text);
  }

  // The dimension as it was named: from the end, or, where it is 0, not at all.
  static std::vector<Arg> with_dim(std::vector<Arg> args, std::size_t dim, std::size_t rank,
                                   const std::optional<FusedNode>& text) {
    const Arg from_end = Arg::integer(static_cast<std::int64_t>(dim) - static_cast<std::int64_t>(rank));
    if (text && text->numbers.empty() && dim == 0) return args;
    const bool is_from_end = text && text->numbers.size() == 1 && text->numbers.front() == from_end;
    args.push_back(is_from_end ? from_end : integer(dim));
    return args;
  }

  // ------------------------------------------------------------------------- elements

  void hand_out(NodeId call, NodeId rows, const std::vector<Written>& products) {
    for (NodeId user : users_[call]) {
      const auto element = tuple_element(context_, body_, body_.nodes[user]);
      EPWEAVE_CHECK(element);
      gone_.insert(user);
      if (element->index == 0) {
        give(user, {rows, rows});
        continue;
      }
      for (NodeId taker : users_[user]) {
        const auto product = tuple_element(context_, body_, body_.nodes[taker]);
        EPWEAVE_CHECK(product);
        gone_.insert(taker);
        give(taker, products[static_cast<std::size_t>(product->index)]);
      }
    }
  }

  // `value` is row-major; the element is laid out by the gathered dimension.
  void give(NodeId element, const Written& value) {
    const std::size_t rank = tensor(value.in_rows).rank();
    NodeId shown = element;
    if (const NodeId copy = find_only_copy(element)) {
      gone_.insert(copy);
      shown = copy;
    }
    const bool is_row_major = shown != element || dim_ == 0 || dim_ + 1 == rank;
    replaced_.at(shown) = is_row_major ? value.in_rows : lay_out(value.in_rows, rank);
    if (is_row_major) give_way(shown, value);
  }

  // Reshapes that show what was reshaped, and those that were written out in front of a product.
  void give_way(NodeId shown, const Written& value) {
    for (NodeId user : users_[shown]) {
      const Node& node = body_.nodes[user];
      const bool shows =
          node.op != nullptr && node.op->family == OpFamily::kReshape && node.op->cost == CostClass::kFree;
      if (!shows) continue;  // a copy is apart from what it copies
      if (value.call != value.in_rows && was_added(node) && has_sizes(user, tensor(value.call).sizes)) {
        gone_.insert(user);
        replaced_.at(user) = value.call;
      }
      for (const auto& [name, written] : fronts_) {
        if (name != node.name || !has_sizes(user, tensor(written).sizes)) continue;
        gone_.insert(user);
        replaced_.at(user) = written;
      }
    }
  }

  // By a pass, for a reader of the product; others are nodes that the step has.
  static bool was_added(const Node& node) {
    const Provenance* maker = find_maker(node);
    return maker != nullptr ? maker->role == ProvenanceRole::kAdded : node.provenance.empty();
  }

  // The contiguous copy of it, if that is all that reads it.
  NodeId find_only_copy(NodeId element) const {
    static const OpInfo* const clone = find_op("aten.clone.default");
    const auto readers = users_[element];
    if (readers.size() != 1 || body_.nodes[readers.front()].op != clone) return {};
    const Arg format = arg_of(context_, body_.nodes[readers.front()], 1);
    const bool is_contiguous =
        format.is(ArgKind::kMemoryFormat) && context_.text(format.as_name()).ends_with("contiguous_format");
    return is_contiguous ? readers.front() : NodeId();
  }

  NodeId lay_out(NodeId value, std::size_t rank) {
    std::vector<std::size_t> outer(rank), back(rank);
    std::iota(outer.begin(), outer.end(), 0);
    const auto first = outer.begin() + static_cast<std::ptrdiff_t>(dim_);
    std::rotate(outer.begin(), first, first + 1);
    for (std::size_t i = 0; i < rank; ++i) back[outer[i]] = i;
    NodeId moved = permute(value, outer);
    const Arg format = Arg::named(ArgKind::kMemoryFormat, graph_.intern("torch.contiguous_format"));
    moved = add("aten.clone.default", {Arg::node(moved)}, {},
                {Arg::text(graph_.intern("memory_format")), format});
    return permute(moved, back);
  }
  NodeId permute(NodeId value, const std::vector<std::size_t>& dims) {
    std::vector<Arg> list;
    for (std::size_t dim : dims) list.push_back(integer(dim));
    return add("aten.permute.default", {Arg::node(value), context_.args.add_tree(ArgKind::kList, list)}, {});
  }

  // ------------------------------------------------------------------------- nodes

  NodeId add(std::string_view target, std::vector<Arg> args, const std::optional<FusedNode>& text,
             std::vector<Arg> kwargs = {}) {
    Node node = call_;
    node.target = graph_.intern(target);
    node.args = context_.args.add(args);
    node.kwargs = context_.args.add(kwargs);
    node.extra = nullptr;
    node.has_custom = false;
    redirect(node);
    resolve_op(context_, node);
    if (text && is_alike(node.op, text->op)) {
      node.op = text->op;
      node.target = graph_.intern(text->op->target);
    }
    node.type = infer_type(facts_, graph_, body_, node);
    if (text && node.op == text->op) {
      node.name = free_name(text->name);
      node.provenance = context_.own(std::span<const Provenance>(text->records));
    } else {
      node.name = free_name(graph_.intern(fmt::format("{}_{}", graph_.text(call_.name), written_++)));
      node.provenance = {};
      if (!call_.provenance.empty())
        append_provenance(context_, node,
                          {.pass = call_.provenance.back().pass,
                           .role = ProvenanceRole::kAdded,
                           .origins = call_.provenance.back().origins,
                           .reason = call_.provenance.back().reason});
    }
    const NodeId id = body_.nodes.push_back(node);
    by_name_.at(node.name) = id;
    if (node.op->family == OpFamily::kMatmul || node.op->family == OpFamily::kReduceScatter)
      regrouped_.insert(node.name);
    place(id);
    return id;
  }
  void place(NodeId id) {
    body_.order.push_back(id);
    placed_.insert(id);
  }

  static bool is_alike(const OpInfo* op, const OpInfo* other) {
    return op != nullptr && other != nullptr && op->family == other->family && op->schema == other->schema &&
           op->type_rule == other->type_rule;
  }

  StringId free_name(StringId wanted) {
    StringId name = wanted;
    for (std::size_t i = 0; by_name_[name] && !is_front(by_name_[name]); ++i)
      name = graph_.intern(fmt::format("{}_{}", graph_.text(wanted), i));
    return name;
  }
  // A reshape that gives way to the one that is written out.
  bool is_front(NodeId id) const {
    return std::ranges::any_of(text_.products, [&](const FusedText::Product& product) {
      return product.front && product.front->name == body_.nodes[id].name;
    });
  }

  Arg current(Arg arg) {
    return context_.args.map(arg, [&](Arg leaf) {
      return leaf.is_node() && replaced_[leaf.as_node()] ? Arg::node(replaced_[leaf.as_node()]) : leaf;
    });
  }
  void redirect(Node& node) {
    const auto by = [&](Arg leaf) { return current(leaf); };
    map_arguments(context_, node, by);
  }
  NodeId node_arg(std::size_t param) { return current(arg_of(context_, call_, param)).as_node(); }
  const TensorType& tensor(NodeId id) const { return *tensor_of(context_, body_.nodes[id].type); }
  Arg extent(ExprId size) const {
    const auto number = context_.exprs.constant(size);
    return number ? Arg::integer(*number) : Arg::symbolic(size);
  }
  static Arg integer(std::size_t number) { return Arg::integer(static_cast<std::int64_t>(number)); }

  Graph& graph_;
  Context& context_;
  Body& body_;
  Facts facts_;
  const NodeLists users_;
  const WrittenOut kinds_;
  const IdSet<StringId>& kept_;
  IdSet<StringId>& regrouped_;
  SideTable<StringId, NodeId> by_name_;
  IdSet<NodeId> gone_, placed_;  // placed_: what stands in the new order so far
  SideTable<NodeId, NodeId> replaced_;

  // Of the call that is being written out:
  Node call_;
  FusedText text_;
  Arg group_;
  std::int64_t ranks_ = 1;
  std::size_t dim_ = 0;
  std::vector<std::pair<StringId, NodeId>> fronts_;  // reshapes in front of products, by their names before
  std::size_t written_ = 0;                          // nodes that got names of their own
};

class FaultFinder {
 public:
  FaultFinder(const Graph& graph, const Body& body)
      : graph_(graph),
        context_(*graph.context),
        body_(body),
        facts_(graph),
        users_(list_users(context_, body)) {}

  std::vector<Violation> run(NodeId call) {
    found_.clear();
    check_types(body_.nodes[call]);
    if (found_.empty() && body_.nodes[call].op->family != OpFamily::kMatmulScatter) check_elements(call);
    return std::move(found_);
  }

 private:
  void check_types(const Node& node) {
    if (std::string problem = find_schema_problem(context_, node); !problem.empty())
      return report(graph_, body_, node, "schema", std::move(problem), found_);
    try {
      const TypeId type = infer_type(facts_, graph_, body_, node);
      if (!type)
        report(graph_, body_, node, "type", "has operands whose types are not recorded", found_);
      else if (node.type && !reaches_same_elements(facts_, context_, type, node.type))
        report(graph_, body_, node, "type",
               fmt::format("recorded {}, the arguments give {}", print_type(context_, node.type),
                           print_type(context_, type)),
               found_);
    } catch (const TypeMismatch& mismatch) {
      report(graph_, body_, node, "type", mismatch.what(), found_);
    }
  }

  // What was gathered, and the products; or both tensors of a pair.
  void check_elements(NodeId call) {
    if (is_exchange_pair(body_.nodes[call])) {
      for (NodeId user : users_[call]) find_element(call, user, 2);
      return;
    }
    const auto products = arg_of(context_, body_.nodes[call], 1).children().count;
    for (NodeId user : users_[call]) {
      const auto element = find_element(call, user, 2);
      if (!element || *element == 0) continue;
      for (NodeId taker : users_[user]) find_element(call, taker, products);
    }
  }

  std::optional<std::int64_t> find_element(NodeId call, NodeId user, std::uint32_t count) {
    const Node& node = body_.nodes[user];
    const auto element = tuple_element(context_, body_, node);
    const std::size_t before = found_.size();
    if (node.op != nullptr) check_types(node);
    if (element && element->index >= 0 && element->index < std::int64_t{count}) return element->index;
    if (found_.size() == before)
      report(graph_, body_, node, "type",
             fmt::format("takes more of the result of %{} than an element of it: take elements with getitem",
                         graph_.text(body_.nodes[call].name)),
             found_);
    return std::nullopt;
  }

  const Graph& graph_;
  Context& context_;
  const Body& body_;
  Facts facts_;
  const NodeLists users_;
  std::vector<Violation> found_;
};

bool has_written_out(const Body& body, WrittenOut kinds) {
  return std::ranges::any_of(body.order, [&](NodeId id) { return is_written_out(body.nodes[id], kinds); });
}

}  // namespace

bool is_fused_product(const Node& node) {
  return node.op != nullptr &&
         (node.op->family == OpFamily::kGatherMatmul || node.op->family == OpFamily::kMatmulScatter);
}

std::vector<StringId> list_fused_products(const Graph& graph) {
  std::vector<StringId> names;
  const Body& body = graph.step();
  for (NodeId id : body.order)
    if (is_fused_product(body.nodes[id])) names.push_back(body.nodes[id].name);
  std::ranges::sort(names, {}, [](StringId name) { return name.index(); });
  return names;
}

std::vector<FusedFault> find_fused_faults(const Graph& graph, WrittenOut kinds) {
  std::vector<FusedFault> faults;
  for (const Body& body : graph.bodies) {
    if (!has_written_out(body, kinds)) continue;
    FaultFinder finder(graph, body);
    for (NodeId id : body.order)
      if (is_written_out(body.nodes[id], kinds))
        for (Violation& violation : finder.run(id))
          faults.push_back({body.nodes[id].name, std::move(violation)});
  }
  return faults;
}

Graph expand_fused_products(Graph graph, FusedExpansion& expansion) {
  for (Body& body : graph.bodies)
    if (has_written_out(body, expansion.kinds)) ProductExpander(graph, body, expansion).run();
  return graph;
}

Graph expand_fused_products(Graph graph) {
  for (const FusedFault& fault : find_fused_faults(graph, WrittenOut::kAll))
    throw InputError(print_violation(graph, fault.violation));
  FusedExpansion expansion{.kinds = WrittenOut::kAll};
  return expand_fused_products(std::move(graph), expansion);
}

}  // namespace epweave
