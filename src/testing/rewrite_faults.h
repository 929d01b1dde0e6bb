// Faults by name: each kind changes a rewritten graph at one random place, so that it does not
// compute any more what its original does. For verify_rewrite_test.cc, which must find each, and
// for wrong_rewrites.h.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "analysis/collectives.h"
#include "analysis/effects.h"
#include "analysis/users.h"
#include "compare/lineage.h"
#include "ops/op.h"

namespace epweave {

// A graph with one fault, and where it is.
struct Fault {
  Graph graph;
  std::string where;
};

class FaultMaker {
 public:
  FaultMaker(const Graph& a, const Graph& b, std::uint32_t seed)
      : a_(a),
        b_(b),
        body_(b.step()),
        random_(seed),
        effects_(b, b.step()),
        users_(list_users(*b.context, body_)) {
    for (NodeId id : body_.order) {
      lineages_[id] = find_lineage(body_.nodes[id]);
      const Lineage& lineage = lineages_[id];
      if (lineage.is_part()) part_[{lineage.origins.front(), lineage.part}] = id;
    }
  }

  // Candidates are tried from a random one on; none: the graph has no place for the fault.
  template <class Make>  // bool(Graph&, NodeId): whether it put the fault there
  std::optional<Fault> at_random(const Make& make) {
    Fault fault{b_, ""};  // a maker that fails leaves it as it is
    const std::size_t n = body_.order.size(), start = random_() % n;
    for (std::size_t i = 0; i < n; ++i) {
      const NodeId id = body_.order[(start + i) % n];
      if (!make(fault.graph, id)) continue;
      fault.where = b_.text(body_.nodes[id].name);
      return fault;
    }
    return std::nullopt;
  }

  virtual ~FaultMaker() = default;

  virtual std::optional<Fault> make(const std::string& kind) {
    using Maker = bool (FaultMaker::*)(Graph&, NodeId);
    static const std::map<std::string, Maker> kMakers = {
        {"part takes another part's value", &FaultMaker::swap_part},
        {"cat in another order", &FaultMaker::reverse_cat},
        {"cat along another dimension", &FaultMaker::turn_cat},
        {"sum instead of cat", &FaultMaker::sum_for_cat},
        {"cat instead of sum", &FaultMaker::cat_for_sum},
        {"part twice in a cat", &FaultMaker::repeat_in_cat},
        {"part missing in a cat", &FaultMaker::miss_in_cat},
        {"part twice in a sum", &FaultMaker::repeat_in_sum},
        {"wait dropped", &FaultMaker::drop_wait},
        {"collective on another group", &FaultMaker::change_group},
        {"moved across a write", &FaultMaker::move_across_write},
        {"kept node with another argument", &FaultMaker::change_kept_argument},
        {"part with another argument", &FaultMaker::change_part_argument},
        {"constant changed", &FaultMaker::change_constant},
        {"split into unequal sizes", &FaultMaker::unequal_split},
        {"split along another dimension", &FaultMaker::turn_split},
        {"another piece of a split", &FaultMaker::change_piece},
        {"another op", &FaultMaker::change_target},
        {"outputs swapped", &FaultMaker::swap_outputs},
        {"buffer update dropped", &FaultMaker::drop_update},
        {"part of a value for all of it", &FaultMaker::part_for_whole},
        {"host does not wait for a copy", &FaultMaker::unblock_copy},
        {"stale buffer", &FaultMaker::read_stale_buffer},
        {"buffer read behind a part's update", &FaultMaker::read_late},
        {"symbol bound twice", &FaultMaker::bind_twice},
        {"symbol of another part", &FaultMaker::name_other_symbol},
        {"write added", &FaultMaker::add_write},
        {"collective added", &FaultMaker::add_collective},
        {"random draw added", &FaultMaker::add_draw},
        {"unknown op added", &FaultMaker::add_unknown},
        {"write to a returned value dropped", &FaultMaker::drop_returned_write},
        {"unknown op dropped", &FaultMaker::drop_unknown},
        {"random draw dropped", &FaultMaker::drop_draw},
        {"random draws swapped", &FaultMaker::swap_draws},
        {"ranks of a group changed", &FaultMaker::change_ranks},
        {"host read before the copy has arrived", &FaultMaker::read_early},
        {"operands swapped", &FaultMaker::swap_operands},
        {"keyword changed or dropped", &FaultMaker::change_keyword},
        {"nested graph changed", &FaultMaker::change_nested},
        {"symbol said to be a number", &FaultMaker::fix_symbol},
    };
    const Maker maker = kMakers.at(kind);
    return at_random([&](Graph& graph, NodeId id) { return (this->*maker)(graph, id); });
  }

 protected:
  Context& context() { return *b_.context; }
  bool is_target(NodeId id, std::string_view target) { return b_.text(body_.nodes[id].target) == target; }
  bool is_join(NodeId id) { return lineages_[id].role == ProvenanceRole::kMaterialize; }
  bool is_cat(NodeId id) { return is_join(id) && is_target(id, "aten.cat.default"); }
  bool is_sum(NodeId id) { return is_join(id) && is_target(id, "aten.add.Tensor"); }
  std::vector<Arg> args_of(NodeId id) {
    const auto args = context().args[body_.nodes[id].args];
    return {args.begin(), args.end()};
  }
  std::vector<Arg> items_of(Arg list) {
    const auto items = context().args.children(list);
    return {items.begin(), items.end()};
  }
  void set_args(Graph& graph, NodeId id, const std::vector<Arg>& args) {
    graph.step().nodes[id].args = context().args.add(args);
  }
  Arg list(const std::vector<Arg>& items) { return context().args.add_tree(ArgKind::kList, items); }
  void set_target(Graph& graph, NodeId id, std::string_view target) {
    graph.step().nodes[id].target = graph.intern(target);
    resolve_op(context(), graph.step().nodes[id]);
  }

  // Replaces the first node argument for which `choose` gives another node.
  template <class Choose>  // NodeId(NodeId)
  bool replace_argument(Graph& graph, NodeId id, const Choose& choose) {
    bool done = false;
    graph.step().nodes[id].args = context().args.map(body_.nodes[id].args, [&](Arg arg) {
      if (done || !arg.is_node()) return arg;
      const NodeId other = choose(arg.as_node());
      if (!other || other == arg.as_node()) return arg;
      done = true;
      return Arg::node(other);
    });
    return done;
  }
  NodeId sibling(NodeId id) {
    const Lineage& lineage = lineages_[id];
    if (!lineage.is_part()) return {};
    const auto found = part_.find({lineage.origins.front(), (lineage.part + 1) % lineage.parts});
    return found == part_.end() ? NodeId() : found->second;
  }

  bool swap_part(Graph& graph, NodeId id) {
    if (!lineages_[id].is_part()) return false;
    return replace_argument(graph, id, [&](NodeId arg) {
      return lineages_[arg].part == lineages_[id].part ? sibling(arg) : NodeId();
    });
  }
  bool reverse_cat(Graph& graph, NodeId id) {
    if (!is_cat(id)) return false;
    std::vector<Arg> args = args_of(id), items = items_of(args[0]);
    std::ranges::reverse(items);
    args[0] = list(items);
    set_args(graph, id, args);
    return true;
  }
  bool turn_dim(Graph& graph, NodeId id, std::size_t position, std::size_t rank) {
    std::vector<Arg> args = args_of(id);
    if (rank < 2 || args.size() <= position || !args[position].is_int()) return false;
    args[position] = Arg::integer((args[position].as_int() + 1) % static_cast<std::int64_t>(rank));
    set_args(graph, id, args);
    return true;
  }
  bool turn_cat(Graph& graph, NodeId id) {
    const TensorType* type = tensor_of(context(), body_.nodes[id].type);
    return is_cat(id) && turn_dim(graph, id, 1, type->rank());
  }
  bool sum_for_cat(Graph& graph, NodeId id) {
    if (!is_cat(id)) return false;
    const std::vector<Arg> items = items_of(args_of(id)[0]);
    if (items.size() < 2) return false;
    set_target(graph, id, "aten.add.Tensor");
    set_args(graph, id, {items[0], items[1]});
    return true;
  }
  bool cat_for_sum(Graph& graph, NodeId id) {
    if (!is_sum(id)) return false;
    set_target(graph, id, "aten.cat.default");
    set_args(graph, id, {list(args_of(id)), Arg::integer(0)});
    return true;
  }
  bool repeat_in_cat(Graph& graph, NodeId id) {
    if (!is_cat(id)) return false;
    std::vector<Arg> args = args_of(id), items = items_of(args[0]);
    items.back() = items.front();
    args[0] = list(items);
    set_args(graph, id, args);
    return true;
  }
  bool miss_in_cat(Graph& graph, NodeId id) {
    if (!is_cat(id)) return false;
    std::vector<Arg> args = args_of(id), items = items_of(args[0]);
    items.pop_back();
    args[0] = list(items);
    set_args(graph, id, args);
    return true;
  }
  bool repeat_in_sum(Graph& graph, NodeId id) {
    if (!is_sum(id)) return false;
    std::vector<Arg> args = args_of(id);
    args[0] = args[1];
    set_args(graph, id, args);
    return true;
  }
  bool drop_wait(Graph& graph, NodeId id) {
    if (is_wait(body_.nodes[id])) return false;
    return replace_argument(graph, id, [&](NodeId arg) { return find_waited_launch(context(), body_, arg); });
  }
  bool change_group(Graph& graph, NodeId id) {
    if (!is_launch(body_.nodes[id])) return false;
    std::vector<Arg> args = args_of(id);
    const std::size_t at = group_position(*body_.nodes[id].op);
    if (at >= args.size() || !args[at].is(ArgKind::kText)) return false;
    std::vector<StringId> others;
    for (const ProcessGroup& group : b_.groups)
      if (group.name != args[at].as_name() && group.split_from != args[at].as_name())
        others.push_back(group.name);
    if (others.empty()) return false;
    args[at] = Arg::text(others[random_() % others.size()]);
    set_args(graph, id, args);
    return true;
  }
  // The second of two accesses, of which one writes, goes before the first.
  bool move_across_write(Graph& graph, NodeId id) {
    const auto position = find_positions(body_, body_.order);
    const NodeLists inputs = list_inputs(context(), body_);
    for (const OrderEdge& edge : effects_.order_edges()) {
      if (edge.after != id || is_wait(body_.nodes[edge.before]) || is_wait(body_.nodes[id])) continue;
      if (edge.reason != OrderReason::kReadAfterWrite && edge.reason != OrderReason::kWriteAfterRead)
        continue;
      const bool is_free = std::ranges::all_of(
          inputs[id], [&](NodeId input) { return position[input] < position[edge.before]; });
      if (!is_free) continue;
      std::vector<NodeId>& order = graph.step().order;
      order.erase(order.begin() + position[id]);
      order.insert(order.begin() + position[edge.before], id);
      return true;
    }
    return false;
  }
  bool is_named(NodeId id, std::string_view prefix) {
    return b_.text(body_.nodes[id].name).starts_with(prefix);
  }
  void move_behind(Graph& graph, NodeId id, NodeId other) {
    std::vector<NodeId>& order = graph.step().order;
    std::erase(order, id);
    order.insert(std::ranges::find(order, other) + 1, id);
  }
  // Reads what the buffer held after an earlier part's update.
  bool read_stale_buffer(Graph& graph, NodeId id) {
    if (!is_named(id, "buffer_after")) return false;
    NodeId update = args_of(id)[0].as_node();
    const std::size_t steps = 1 + random_() % (lineages_[update].parts - 1);
    for (std::size_t i = 0; i < steps; ++i) update = args_of(update)[0].as_node();
    set_args(graph, id, {Arg::node(update)});
    move_behind(graph, id, update);
    return true;
  }
  // A read of the buffer from before the updates goes anywhere behind the first part's.
  bool read_late(Graph& graph, NodeId id) {
    if (!is_named(id, "buffer_before")) return false;
    const NodeId buffer = args_of(id)[0].as_node();
    const auto position = find_positions(body_, body_.order);
    for (NodeId user : users_[buffer]) {
      if (!lineages_[user].is_part() || body_.nodes[user].op == nullptr || !body_.nodes[user].op->writes)
        continue;
      const std::size_t begin = position[user], end = body_.order.size() - 1;
      move_behind(graph, id, body_.order[begin + random_() % (end - begin)]);
      return true;
    }
    return false;
  }
  bool bind_twice(Graph& graph, NodeId id) {
    const NodeId other = sibling(id);
    const Node& node = body_.nodes[id];
    if (!other || node.extra == nullptr || node.extra->bindings.empty()) return false;
    graph.step().nodes[id].extra = body_.nodes[other].extra;
    graph.step().nodes[id].type = body_.nodes[other].type;
    return true;
  }
  // Those that parts bind, not the token count.
  std::set<StringId> part_symbols_of(const TensorType& type) {
    std::set<StringId> symbols;
    for (ExprId size : type.sizes)
      for (StringId symbol : context().exprs.symbols(size))
        if (bound_by_parts().contains(symbol)) symbols.insert(symbol);
    return symbols;
  }
  const std::set<StringId>& bound_by_parts() {
    if (bound_by_parts_.empty())
      for (NodeId id : body_.order)
        if (const NodeExtra* extra = body_.nodes[id].extra; extra != nullptr && lineages_[id].is_part())
          for (const Binding& binding : extra->bindings) bound_by_parts_.insert(binding.symbol);
    return bound_by_parts_;
  }
  bool name_other_symbol(Graph& graph, NodeId id) {
    const NodeId other = sibling(id);
    const TensorType* type = tensor_of(context(), body_.nodes[id].type);
    const TensorType* sibling_type = other ? tensor_of(context(), body_.nodes[other].type) : nullptr;
    if (type == nullptr || sibling_type == nullptr) return false;
    // Parts of different sizes differ in their numbers, too, which is for `verify B` to see.
    if (part_symbols_of(*type) == part_symbols_of(*sibling_type)) return false;
    graph.step().nodes[id].type = body_.nodes[other].type;
    return true;
  }
  // An earlier value of the same type that is not the same value.
  NodeId find_other(NodeId user, NodeId arg) {
    const auto at = std::ranges::find(body_.order, user) - body_.order.begin();
    const auto start = static_cast<std::ptrdiff_t>(random_() % static_cast<std::size_t>(at + 1));
    for (std::ptrdiff_t i = 0; i < at; ++i) {
      const NodeId other = body_.order[static_cast<std::size_t>((start + i) % at)];
      const Node& node = body_.nodes[other];
      if (other != arg && tensor_of(context(), node.type) != nullptr && node.type == body_.nodes[arg].type &&
          node.target != body_.nodes[arg].target && lineages_[other].origins != lineages_[arg].origins)
        return other;
    }
    return {};
  }
  bool change_kept_argument(Graph& graph, NodeId id) {
    if (!lineages_[id].is_whole() || body_.nodes[id].kind != NodeKind::kCall) return false;
    return replace_argument(graph, id, [&](NodeId arg) { return find_other(id, arg); });
  }
  bool change_part_argument(Graph& graph, NodeId id) {
    if (!lineages_[id].is_part()) return false;
    return replace_argument(graph, id, [&](NodeId arg) { return find_other(id, arg); });
  }
  bool change_constant(Graph& graph, NodeId id) {
    if (body_.nodes[id].kind != NodeKind::kCall || !(lineages_[id].is_whole() || lineages_[id].is_part()))
      return false;
    bool done = false;
    graph.step().nodes[id].args = context().args.map(body_.nodes[id].args, [&](Arg arg) {
      if (done || !arg.is_int()) return arg;
      done = true;
      return Arg::integer(arg.as_int() + 1);
    });
    return done;
  }
  bool is_split(NodeId id) {
    return lineages_[id].role == ProvenanceRole::kSplit && is_target(id, "aten.split_with_sizes.default");
  }
  bool unequal_split(Graph& graph, NodeId id) {
    if (!is_split(id)) return false;
    std::vector<Arg> args = args_of(id), sizes = items_of(args[1]);
    if (sizes.size() < 2 || !(sizes[0].is_int() || sizes[0].is_node())) return false;
    if (sizes[0].is_int()) {
      // The last of given sizes may be what is left of the tokens.
      sizes[0] = Arg::integer(sizes[0].as_int() - 1);
      if (sizes[1].is_int()) sizes[1] = Arg::integer(sizes[1].as_int() + 1);
    } else {
      // All of it for the first part: the operand of the division.
      const std::vector<Arg> division = args_of(sizes[0].as_node());
      if (division.empty() || !division[0].is_node()) return false;
      sizes[0] = division[0];
    }
    args[1] = list(sizes);
    set_args(graph, id, args);
    return true;
  }
  bool turn_split(Graph& graph, NodeId id) {
    if (!is_split(id)) return false;
    const Type& type = context().types[body_.nodes[id].type];
    return turn_dim(graph, id, 2, tensor_of(context(), type.elements.front())->rank());
  }
  bool change_piece(Graph& graph, NodeId id) {
    if (lineages_[id].role != ProvenanceRole::kSplit || !is_target(id, "operator.getitem")) return false;
    std::vector<Arg> args = args_of(id);
    if (lineages_[id].parts == 0 || !args[1].is_int()) return false;
    args[1] = Arg::integer((args[1].as_int() + 1) % lineages_[id].parts);
    set_args(graph, id, args);
    return true;
  }
  bool change_target(Graph& graph, NodeId id) {
    static const std::pair<std::string_view, std::string_view> kOthers[] = {
        {"aten.mul.Tensor", "aten.sub.Tensor"},
        {"aten.sub.Tensor", "aten.mul.Tensor"},
        {"aten.add.Tensor", "aten.sub.Tensor"},
        {"aten.silu.default", "aten.relu.default"},
        {"aten.add_.Tensor", "aten.mul_.Tensor"}};
    for (const auto& [from, to] : kOthers)
      if (is_target(id, from)) return set_target(graph, id, to), true;
    return false;
  }
  bool swap_outputs(Graph& graph, NodeId id) {
    if (body_.nodes[id].kind != NodeKind::kOutput) return false;
    std::vector<Arg> args = args_of(id), items = items_of(args[0]);
    for (int i = 0; i < 100 && !items.empty(); ++i) {
      Arg& x = items[random_() % items.size()];
      Arg& y = items[random_() % items.size()];
      if (!x.is_node() || !y.is_node() || x == y) continue;
      std::swap(x, y);
      args[0] = list(items);
      set_args(graph, id, args);
      return true;
    }
    return false;
  }
  NodeId storage_of_first(NodeId id) {
    const std::vector<Arg> args = args_of(id);
    return !args.empty() && args[0].is_node() ? effects_.storage_of(args[0].as_node()) : NodeId();
  }
  bool drop(Graph& graph, NodeId id) {
    std::erase(graph.step().order, id);
    return true;
  }
  // Nothing reads it, but the step returns what it writes.
  bool drop_returned_write(Graph& graph, NodeId id) {
    return is_named(id, "local_write") && users_[id].empty() && drop(graph, id);
  }
  bool drop_unknown(Graph& graph, NodeId id) {
    return body_.nodes[id].kind == NodeKind::kCall && body_.nodes[id].op == nullptr && users_[id].empty() &&
           drop(graph, id);
  }
  bool is_draw(NodeId id) { return body_.nodes[id].op != nullptr && body_.nodes[id].op->is_random; }
  bool drop_draw(Graph& graph, NodeId id) { return is_draw(id) && users_[id].empty() && drop(graph, id); }
  bool swap_draws(Graph& graph, NodeId id) {
    if (!is_draw(id)) return false;
    for (NodeId other : body_.order) {
      if (other == id) return false;  // the first one
      if (!is_draw(other)) continue;
      std::vector<NodeId>& order = graph.step().order;
      std::erase(order, id);
      order.insert(std::ranges::find(order, other), id);
      return true;
    }
    return false;
  }

  // A call behind `id`, which it says it was added for.
  bool add_call(Graph& graph, NodeId id, Node call) {
    call.name = graph.intern(fmt::format("added_behind_{}", b_.text(body_.nodes[id].name)));
    std::vector<Provenance> records(body_.nodes[id].provenance.begin(), body_.nodes[id].provenance.end());
    if (records.empty()) return false;
    records.back().role = ProvenanceRole::kAdded;
    call.provenance = context().own(std::move(records));
    resolve_op(context(), call);
    Body& step = graph.step();
    const NodeId added(static_cast<std::uint32_t>(step.nodes.size()));
    step.nodes.push_back(std::move(call));
    step.order.insert(std::ranges::find(step.order, id) + 1, added);
    return true;
  }
  bool add_call(Graph& graph, NodeId id, std::string_view target) {
    const TensorType* type = tensor_of(context(), body_.nodes[id].type);
    if (type == nullptr || !is_floating(type->dtype)) return false;
    const Arg value = Arg::node(id);
    return add_call(graph, id,
                    {.target = graph.intern(target),
                     .args = context().args.add({&value, 1}),
                     .type = body_.nodes[id].type});
  }
  bool add_write(Graph& graph, NodeId id) { return add_call(graph, id, "aten.zero_.default"); }
  bool add_draw(Graph& graph, NodeId id) { return add_call(graph, id, "aten.rand_like.default"); }
  bool add_unknown(Graph& graph, NodeId id) { return add_call(graph, id, "mylib.scale_.default"); }
  bool add_collective(Graph& graph, NodeId id) {
    const Node& node = body_.nodes[id];
    return is_launch(node) &&
           add_call(graph, id,
                    {.target = node.target, .args = node.args, .kwargs = node.kwargs, .type = node.type});
  }

  bool change_ranks(Graph& graph, NodeId id) {
    if (!is_launch(body_.nodes[id])) return false;
    const std::vector<Arg> args = args_of(id);
    const std::size_t at = group_position(*body_.nodes[id].op);
    if (at >= args.size() || !args[at].is(ArgKind::kText)) return false;
    for (ProcessGroup& group : graph.groups) {
      // A group that the pass split off has to have the ranks of the one it was.
      if (group.name != args[at].as_name() || group.ranks.empty()) continue;
      ++group.ranks.back();
      return true;
    }
    return false;
  }

  bool swap_operands(Graph& graph, NodeId id) {
    std::vector<Arg> args = args_of(id);
    const bool is_pair = is_whole_or_part(id) && args.size() > 1 && args[0].is_node() && args[1].is_node() &&
                         args[0] != args[1];
    if (!is_pair) return false;
    std::swap(args[0], args[1]);
    set_args(graph, id, args);
    return true;
  }
  bool is_whole_or_part(NodeId id) { return lineages_[id].is_whole() || lineages_[id].is_part(); }

  // One keyword: another flag or number, or gone.
  bool change_keyword(Graph& graph, NodeId id) {
    const auto old = context().args[body_.nodes[id].kwargs];
    std::vector<Arg> kwargs(old.begin(), old.end());
    if (kwargs.empty() || !is_whole_or_part(id)) return false;
    const std::size_t at = random_() % (kwargs.size() / 2) * 2;
    Arg& value = kwargs[at + 1];
    if (b_.text(kwargs[at].as_name()) == "non_blocking") return false;  // free where nothing reads too early
    if (value.is(ArgKind::kBool)) {
      value = Arg::boolean(!value.as_bool());
    } else if (value.is_int()) {
      value = Arg::integer(value.as_int() + 1);
    } else {
      const auto begin = kwargs.begin() + static_cast<std::ptrdiff_t>(at);
      kwargs.erase(begin, begin + 2);
    }
    graph.step().nodes[id].kwargs = context().args.add(kwargs);
    return true;
  }

  // A call in a nested graph takes its first operand twice.
  bool change_nested(Graph& graph, NodeId) {
    for (int i = 0; i < 100 && graph.bodies.size() > 1; ++i) {
      Body& body = graph.bodies[1 + random_() % (graph.bodies.size() - 1)];
      Node& node = body.nodes[body.order[random_() % body.order.size()]];
      const auto args = context().args[node.args];
      if (node.kind != NodeKind::kCall || args.size() < 2 || args[0] == args[1]) continue;
      std::vector<Arg> changed(args.begin(), args.end());
      changed[1] = changed[0];
      node.args = context().args.add(changed);
      return true;
    }
    return false;
  }

  // One of the first graph's.
  bool fix_symbol(Graph& graph, NodeId) {
    if (graph.symbols.empty()) return false;
    Symbol& symbol = graph.symbols[random_() % graph.symbols.size()];
    const bool is_old =
        std::ranges::any_of(a_.symbols, [&](const Symbol& s) { return s.name == symbol.name; });
    if (!is_old) return false;
    std::vector<ExprId> asserts = symbol.asserts.value_or(std::vector<ExprId>());
    asserts.push_back(context().exprs.parse(fmt::format("Eq({}, {})", b_.text(symbol.name), random_() % 64)));
    symbol.asserts = std::move(asserts);
    return true;
  }

  bool is_on_host(NodeId id) {
    const TensorType* type = tensor_of(context(), body_.nodes[id].type);
    return type != nullptr && b_.text(type->device).starts_with("cpu");
  }
  bool is_nonblocking(const Node& node) {
    const Arg* flag = find_kwarg(context(), node, "non_blocking");
    return flag != nullptr && flag->as_bool();
  }
  // The read of a copy from the device, with the views in between, goes right behind the copy,
  // where something makes the host wait between the two.
  bool read_early(Graph& graph, NodeId id) {
    if (!is_target(id, "aten._local_scalar_dense.default") || !is_on_host(args_of(id)[0].as_node()))
      return false;
    std::vector<NodeId> moved = {id};  // the last one first
    while (!is_target(moved.back(), "aten._to_copy.default")) {
      const std::vector<Arg> args = args_of(moved.back());
      const bool is_step = !args.empty() && args[0].is_node() &&
                           std::ranges::count_if(args, [](Arg arg) { return arg.is_node(); }) == 1;
      if (!is_step) return false;
      moved.push_back(args[0].as_node());
    }
    const NodeId copy = moved.back();
    moved.pop_back();
    if (!is_nonblocking(body_.nodes[copy])) return false;
    const auto position = find_positions(body_, body_.order);
    bool waits = false;
    for (std::size_t i = position[copy] + 1; i < position[id]; ++i) {
      const NodeId other = body_.order[i];
      waits = waits || (is_target(other, "aten._to_copy.default") && is_on_host(other) &&
                        !is_on_host(args_of(other)[0].as_node()) && !is_nonblocking(body_.nodes[other]));
    }
    if (!waits) return false;
    for (NodeId node : moved) move_behind(graph, node, copy);
    return true;
  }
  // Nothing reads it in the step: only the next step sees that it is gone.
  bool drop_update(Graph& graph, NodeId id) {
    const Node& node = body_.nodes[id];
    if (node.op == nullptr || !node.op->writes || !users_[id].empty()) return false;
    return body_.nodes[storage_of_first(id)].kind != NodeKind::kCall && drop(graph, id);
  }
  bool part_for_whole(Graph& graph, NodeId id) {
    if (!lineages_[id].is_whole()) return false;
    return replace_argument(graph, id, [&](NodeId arg) {
      if (!is_join(arg)) return NodeId();
      return part_[{lineages_[arg].origins.front(), 0}];
    });
  }
  bool unblock_copy(Graph& graph, NodeId id) {
    const TensorType* type = tensor_of(context(), body_.nodes[id].type);
    const std::vector<Arg> args = args_of(id);
    if (!is_target(id, "aten._to_copy.default") || type == nullptr ||
        !b_.text(type->device).starts_with("cpu"))
      return false;
    const TensorType* from = tensor_of(context(), body_.nodes[args[0].as_node()].type);
    const Arg* flag = find_kwarg(context(), body_.nodes[id], "non_blocking");
    if (from == nullptr || b_.text(from->device).starts_with("cpu") || (flag != nullptr && flag->as_bool()))
      return false;
    // No fault where a later copy makes the host wait before anything reads this one.
    const auto position = find_positions(body_, body_.order);
    for (std::size_t i = position[id] + 1; !users_[id].empty() && i < position[users_[id].front()]; ++i)
      if (is_target(body_.order[i], "aten._to_copy.default")) return false;
    std::vector<Arg> kwargs;
    const auto old = context().args[body_.nodes[id].kwargs];
    for (std::size_t i = 0; i + 1 < old.size(); i += 2)
      if (b_.text(old[i].as_name()) != "non_blocking") kwargs.insert(kwargs.end(), {old[i], old[i + 1]});
    kwargs.push_back(Arg::text(b_.context->strings.intern("non_blocking")));
    kwargs.push_back(Arg::boolean(true));
    graph.step().nodes[id].kwargs = context().args.add(kwargs);
    return true;
  }

  const Graph& a_;
  const Graph& b_;
  const Body& body_;
  std::mt19937 random_;
  std::set<StringId> bound_by_parts_;
  Effects effects_;
  NodeLists users_;
  std::map<NodeId, Lineage> lineages_;
  std::map<std::pair<StringId, std::uint32_t>, NodeId> part_;
};

// The graph with reads of every buffer that a layer's `moe` updates, in front of the module and
// behind it, all returned: traced steps update buffers that nothing in the step reads. At its end
// comes what traced steps seldom have: writes to inputs that nothing reads, writes to returned
// values, calls of unknown ops, and random draws that nothing uses.
class BufferReads {
 public:
  explicit BufferReads(Graph graph) : graph_(std::move(graph)), context_(*graph_.context) {}

  Graph add() {
    Body& step = graph_.step();
    const std::vector<NodeId> order = step.order;
    step.order.clear();
    for (std::size_t i = 0; i < order.size(); ++i) {
      const StringId module = moe_of(order[i]);
      if (module && i > 0 && moe_of(order[i - 1]) != module && !is_read_.contains(module)) {
        is_read_.insert(module);
        if (const NodeId update = find_update(order, module))
          add_read("buffer_before", context_.args[step.nodes[update].args][0]);
      }
      if (node(order[i]).kind == NodeKind::kOutput) add_effects(order);
      if (pending_ && !module) add_read("buffer_after", Arg::node(*std::exchange(pending_, std::nullopt)));
      step.order.push_back(order[i]);
      if (is_update(order[i])) pending_ = order[i];
    }
    Node& output = step.nodes[step.order.back()];
    std::vector<Arg> results;
    for (Arg arg : context_.args.children(context_.args[output.args][0])) results.push_back(arg);
    results.insert(results.end(), reads_.begin(), reads_.end());
    const Arg list = context_.args.add_tree(ArgKind::kList, results);
    output.args = context_.args.add({&list, 1});
    EPWEAVE_CHECK(reads_.size() > 8);
    return std::move(graph_);
  }

 private:
  const Node& node(NodeId id) const { return graph_.step().nodes[id]; }
  bool is_update(NodeId id) const {
    return graph_.text(node(id).target) == "aten.add_.Tensor" &&
           graph_.text(node(id).module).ends_with(".moe");
  }
  // "layers.3.moe" of a forward node of it.
  StringId moe_of(NodeId id) {
    const std::string_view module = graph_.text(node(id).module);
    const std::size_t end = module.find(".moe");
    if (end == module.npos || node(id).is_backward()) return {};
    return graph_.intern(module.substr(0, end + 4));
  }
  NodeId find_update(const std::vector<NodeId>& order, StringId module) const {
    const auto found =
        std::ranges::find_if(order, [&](NodeId id) { return is_update(id) && node(id).module == module; });
    return found == order.end() ? NodeId() : *found;
  }
  void add_read(std::string_view name, Arg value) {
    const NodeId id = add_call(name, "aten.clone.default", {value});
    reads_.push_back(Arg::node(id));
    graph_.outputs.push_back({.role = graph_.intern("other")});
  }

  // With copies of the first inputs.
  void add_effects(const std::vector<NodeId>& order) {
    int left = 3;
    for (NodeId id : order) {
      const TensorType* type = tensor_of(context_, node(id).type);
      if (left == 0 || node(id).kind != NodeKind::kPlaceholder) return;
      if (type == nullptr || !is_floating(type->dtype)) continue;
      const NodeId local = add_call("local", "aten.clone.default", {Arg::node(id)});
      add_call("local_write", "aten.mul_.Tensor", {Arg::node(local), Arg::node(id)});
      add_call("local_draw", "aten.rand_like.default", {Arg::node(id)});
      add_call("local_log", "mylib.log.default",
               {Arg::node(add_call("logged", "aten.neg.default", {Arg::node(id)}))});
      add_call("input_write", "aten.mul_.Tensor", {Arg::node(id), Arg::node(id)});
      reads_.push_back(Arg::node(local));
      graph_.outputs.push_back({.role = graph_.intern("other")});
      --left;
    }
  }
  NodeId add_call(std::string_view name, std::string_view target, const std::vector<Arg>& args) {
    Body& step = graph_.step();
    const NodeId id(static_cast<std::uint32_t>(step.nodes.size()));
    step.nodes.push_back({.name = graph_.intern(fmt::format("{}_{}", name, id.index())),
                          .target = graph_.intern(target),
                          .args = context_.args.add(args),
                          .type = node(args[0].as_node()).type});
    resolve_op(context_, step.nodes[id]);
    step.order.push_back(id);
    return id;
  }

  Graph graph_;
  Context& context_;
  std::set<StringId> is_read_;
  std::optional<NodeId> pending_;  // an update whose read is still to come
  std::vector<Arg> reads_;
};

// In the order of the table in docs/rewrite_verification.md.
inline const std::vector<std::string>& fault_kinds() {
  static const std::vector<std::string> kKinds = {
      "part takes another part's value",
      "part with another argument",
      "part of a value for all of it",
      "kept node with another argument",
      "constant changed",
      "another op",
      "cat in another order",
      "cat along another dimension",
      "part twice in a cat",
      "part missing in a cat",
      "sum instead of cat",
      "cat instead of sum",
      "part twice in a sum",
      "split into unequal sizes",
      "split along another dimension",
      "another piece of a split",
      "buffer update dropped",
      "moved across a write",
      "wait dropped",
      "collective on another group",
      "host does not wait for a copy",
      "outputs swapped",
      "stale buffer",
      "buffer read behind a part's update",
      "symbol bound twice",
      "symbol of another part",
      "write added",
      "collective added",
      "random draw added",
      "unknown op added",
      "write to a returned value dropped",
      "unknown op dropped",
      "random draw dropped",
      "random draws swapped",
      "ranks of a group changed",
      "host read before the copy has arrived",
      "operands swapped",
      "keyword changed or dropped",
      "nested graph changed",
      "symbol said to be a number",
  };
  return kKinds;
}

}  // namespace epweave
