// More faults (rewrite_faults.h), of the kind that looks right: parts that change places, numbers
// and tables of the wrong part, sums of what is no part, provenance and metadata that lie.
#pragma once

#include "testing/rewrite_faults.h"

namespace epweave {

class LieMaker : public FaultMaker {
 public:
  LieMaker(const Graph& a, const Graph& b, std::uint32_t seed) : FaultMaker(a, b, seed) {
    for (NodeId id : body_.order) {
      const Lineage& lineage = lineages_[id];
      if (lineage.is_whole())
        for (StringId origin : lineage.origins) whole_[origin] = id;
    }
  }

  static const std::vector<std::string>& kinds() {
    static const std::vector<std::string> kKinds = {
        "two parts exchange a value",
        "number of another part",
        "wait of another launch",
        "groups of two collectives exchanged",
        "split tables exchanged",
        "scale or flag changed",
        "operation left out",
        "operation done twice",
        "parts of another value in a join",
        "sum of what each part has all of",
        "parts of an update in another order",
        "all of a sum added by each part",
        "piece for all of a value",
        "inputs in another order",
        "roles of outputs exchanged",
        "provenance of two parts exchanged",
        "provenance of another node",
        "chunk field of another part",
        "range of a symbol narrowed",
        "value of a symbol changed",
    };
    return kKinds;
  }

  std::optional<Fault> make(const std::string& kind) override {
    using Maker = bool (LieMaker::*)(Graph&, NodeId);
    static const std::map<std::string, Maker> kMakers = {
        {"two parts exchange a value", &LieMaker::exchange},
        {"number of another part", &LieMaker::number_of_other_part},
        {"wait of another launch", &LieMaker::wait_for_other},
        {"groups of two collectives exchanged", &LieMaker::exchange_groups},
        {"split tables exchanged", &LieMaker::exchange_tables},
        {"scale or flag changed", &LieMaker::change_scale},
        {"operation left out", &LieMaker::leave_out},
        {"operation done twice", &LieMaker::do_twice},
        {"parts of another value in a join", &LieMaker::join_others},
        {"sum of what each part has all of", &LieMaker::sum_of_copies},
        {"parts of an update in another order", &LieMaker::reorder_update},
        {"all of a sum added by each part", &LieMaker::add_all},
        {"piece for all of a value", &LieMaker::piece_for_whole},
        {"inputs in another order", &LieMaker::exchange_inputs},
        {"roles of outputs exchanged", &LieMaker::exchange_roles},
        {"provenance of two parts exchanged", &LieMaker::exchange_provenance},
        {"provenance of another node", &LieMaker::claim_other},
        {"chunk field of another part", &LieMaker::change_chunk_field},
        {"range of a symbol narrowed", &LieMaker::narrow_range},
        {"value of a symbol changed", &LieMaker::change_hint},
    };
    const auto maker = kMakers.find(kind);
    if (maker == kMakers.end()) return FaultMaker::make(kind);
    return at_random([&](Graph& graph, NodeId id) { return (this->*maker->second)(graph, id); });
  }

 private:
  bool is_part(NodeId id) { return lineages_[id].is_part(); }
  bool is_scalar(NodeId id) {
    const TypeId type = body_.nodes[id].type;
    return type && context().types[type].kind == TypeKind::kScalar;
  }
  std::uint32_t position(NodeId id) {
    if (positions_.size() == 0) positions_ = find_positions(body_, body_.order);
    return positions_[id];
  }
  bool is_before(NodeId first, NodeId second) { return position(first) < position(second); }
  // Replaces one value by another in the arguments, lists too.
  void replace_value(Graph& graph, NodeId user, NodeId old, NodeId with) {
    Node& node = graph.step().nodes[user];
    const auto change = [&](Arg arg) { return arg == Arg::node(old) ? Arg::node(with) : arg; };
    map_arguments(context(), node, change);
  }
  std::vector<NodeId> inputs_of(NodeId id) {
    std::vector<NodeId> inputs;
    for_each_input(context(), body_.nodes[id], [&](NodeId input) { inputs.push_back(input); });
    return inputs;
  }

  // This part takes the next one's value, and that one this one's.
  bool exchange(Graph& graph, NodeId id) {
    const NodeId other = is_part(id) ? sibling(id) : NodeId();
    if (!other) return false;
    for (NodeId mine : inputs_of(id)) {
      if (!is_part(mine) || lineages_[mine].part != lineages_[id].part) continue;
      const NodeId theirs = sibling(mine);
      const std::vector<NodeId> others = theirs ? inputs_of(other) : std::vector<NodeId>();
      if (std::ranges::find(others, theirs) == others.end()) continue;
      if (!is_before(theirs, id) || !is_before(mine, other)) continue;
      replace_value(graph, id, mine, theirs);
      replace_value(graph, other, theirs, mine);
      return true;
    }
    return false;
  }

  bool number_of_other_part(Graph& graph, NodeId id) {
    if (!is_part(id)) return false;
    for (NodeId input : inputs_of(id)) {
      if (!is_part(input) || !is_scalar(input)) continue;
      const NodeId other = sibling(input);
      // Sizes of parts that are alike are alike; what the parts counted is not.
      if (!other || !is_before(other, id) || body_.nodes[other].type == body_.nodes[input].type) continue;
      replace_value(graph, id, input, other);
      return true;
    }
    return false;
  }

  // Of a launch of the same op on the same group, its result of the same type.
  bool wait_for_other(Graph& graph, NodeId id) {
    if (!is_wait(body_.nodes[id]) || args_of(id).empty() || !args_of(id)[0].is_node()) return false;
    const NodeId launch = args_of(id)[0].as_node();
    for (NodeId other : body_.order) {
      if (other == id) return false;
      if (!is_launch(body_.nodes[other]) || other == launch ||
          body_.nodes[other].target != body_.nodes[launch].target ||
          body_.nodes[other].type != body_.nodes[launch].type)
        continue;
      replace_value(graph, id, launch, other);
      return true;
    }
    return false;
  }

  StringId group_of(NodeId id) {
    const std::size_t at = is_launch(body_.nodes[id]) ? group_position(*body_.nodes[id].op) : SIZE_MAX;
    const std::vector<Arg> args = at == SIZE_MAX ? std::vector<Arg>() : args_of(id);
    return at < args.size() && args[at].is(ArgKind::kText) ? args[at].as_name() : StringId();
  }
  // The group that a group was split from, or itself.
  StringId source_of(StringId group) {
    for (const ProcessGroup& g : b_.groups)
      if (g.name == group && g.split_from) return g.split_from;
    return group;
  }
  void set_group(Graph& graph, NodeId id, StringId group) {
    std::vector<Arg> args = args_of(id);
    args[group_position(*body_.nodes[id].op)] = Arg::text(group);
    set_args(graph, id, args);
  }
  bool exchange_groups(Graph& graph, NodeId id) {
    const StringId group = group_of(id);
    if (!group) return false;
    for (auto at = std::ranges::find(body_.order, id); at != body_.order.end(); ++at) {
      const StringId other = group_of(*at);
      if (!other || source_of(other) == source_of(group)) continue;
      set_group(graph, id, other);
      set_group(graph, *at, group);
      return true;
    }
    return false;
  }

  bool exchange_tables(Graph& graph, NodeId id) {
    std::vector<Arg> args = args_of(id);
    if (!is_launch(body_.nodes[id])) return false;
    std::vector<std::size_t> lists;
    for (std::size_t i = 0; i < args.size(); ++i)
      if (args[i].is_list()) lists.push_back(i);
    if (lists.size() != 2 || items_of(args[lists[0]]) == items_of(args[lists[1]])) return false;
    std::swap(args[lists[0]], args[lists[1]]);
    set_args(graph, id, args);
    return true;
  }

  bool change_scale(Graph& graph, NodeId id) {
    if (!is_whole_or_part(id) || body_.nodes[id].kind != NodeKind::kCall) return false;
    bool done = false;
    graph.step().nodes[id].args = context().args.map(body_.nodes[id].args, [&](Arg arg) {
      if (done || !(arg.is(ArgKind::kReal) || arg.is(ArgKind::kBool))) return arg;
      done = true;
      return arg.is(ArgKind::kBool) ? Arg::boolean(!arg.as_bool()) : Arg::real(arg.as_real() * 2 + 1);
    });
    return done;
  }

  // What the user's operand was computed from.
  bool leave_out(Graph& graph, NodeId id) {
    static const std::set<std::string_view> kComputing = {
        "aten.silu.default", "aten.neg.default",  "aten.mul.Tensor", "aten.add.Tensor",
        "aten.sub.Tensor",   "aten.relu.default", "aten.div.Tensor", "aten.sigmoid.default",
        "aten.mul.Scalar",   "aten.rsub.Scalar"};
    if (!is_whole_or_part(id)) return false;
    for (NodeId input : inputs_of(id)) {
      const std::vector<NodeId> from = inputs_of(input);
      if (!kComputing.contains(b_.text(body_.nodes[input].target)) || !is_whole_or_part(input) ||
          from.empty() || body_.nodes[from.front()].type != body_.nodes[input].type)
        continue;
      replace_value(graph, id, input, from.front());
      return true;
    }
    return false;
  }

  // A second call of the same origin, on the first one's result, which all users take.
  bool do_twice(Graph& graph, NodeId id) {
    const Node& node = body_.nodes[id];
    const std::vector<Arg> args = args_of(id);
    const bool repeats = is_whole_or_part(id) && node.op != nullptr && !node.op->writes && !is_wait(node) &&
                         !users_[id].empty() && !args.empty() && args[0].is_node() && node.type &&
                         body_.nodes[args[0].as_node()].type == node.type;
    if (!repeats) return false;
    Node again = node;
    again.name = graph.intern(fmt::format("{}_again", b_.text(node.name)));
    std::vector<Arg> changed = args;
    changed[0] = Arg::node(id);
    again.args = context().args.add(changed);
    again.extra = nullptr;
    Body& step = graph.step();
    const NodeId added(static_cast<std::uint32_t>(step.nodes.size()));
    for (NodeId user : users_[id]) replace_value(graph, user, id, added);
    step.nodes.push_back(std::move(again));
    step.order.insert(std::ranges::find(step.order, id) + 1, added);
    return true;
  }

  // All items of the join are parts of one other value, in order.
  bool join_others(Graph& graph, NodeId id) {
    if (!is_cat(id) && !is_sum(id)) return false;
    const bool cat = is_cat(id);
    const std::vector<Arg> old = cat ? items_of(args_of(id)[0]) : args_of(id);
    const auto is_mine = [&](Arg arg) { return arg.is_node() && is_part(arg.as_node()); };
    if (!std::ranges::all_of(old, is_mine)) return false;
    for (NodeId first : body_.order) {
      if (first == id) return false;
      const Lineage& lineage = lineages_[first];
      if (!is_part(first) || lineage.part != 0 || lineage.origins == lineages_[old[0].as_node()].origins ||
          body_.nodes[first].type != body_.nodes[old[0].as_node()].type)
        continue;
      std::vector<Arg> items;
      for (Arg item : old) {
        const auto found = part_.find({lineage.origins.front(), lineages_[item.as_node()].part});
        const bool fits = found != part_.end() && is_before(found->second, id) &&
                          body_.nodes[found->second].type == body_.nodes[item.as_node()].type;
        if (fits) items.push_back(Arg::node(found->second));
      }
      if (items.size() != old.size()) continue;
      std::vector<Arg> args = args_of(id);
      if (cat) {
        args[0] = list(items);
      } else {
        args = items;
      }
      set_args(graph, id, args);
      return true;
    }
    return false;
  }

  // Joins the parts of a value right behind the last of them; none: something needs it earlier.
  NodeId add_join(Graph& graph, NodeId part, std::string_view target, const std::vector<Arg>& args) {
    const Lineage& lineage = lineages_[part];
    Body& step = graph.step();
    const NodeId added(static_cast<std::uint32_t>(step.nodes.size()));
    Node join{.name = graph.intern(fmt::format("joined_{}", b_.text(lineage.origins.front()))),
              .target = graph.intern(target),
              .args = context().args.add(args)};
    for (NodeId id : a_.step().order)
      if (a_.step().nodes[id].name == lineage.origins.front()) join.type = a_.step().nodes[id].type;
    std::vector<Provenance> records(body_.nodes[part].provenance.begin(), body_.nodes[part].provenance.end());
    records.back().role = ProvenanceRole::kMaterialize;
    records.back().parts = 0;
    join.provenance = context().own(std::move(records));
    resolve_op(context(), join);
    step.nodes.push_back(std::move(join));
    const NodeId last = part_[{lineage.origins.front(), lineage.parts - 1}];
    step.order.insert(std::ranges::find(step.order, last) + 1, added);
    return added;
  }
  std::vector<NodeId> parts_of(NodeId part) {
    std::vector<NodeId> parts;
    for (std::uint32_t k = 0; k < lineages_[part].parts; ++k)
      if (const auto found = part_.find({lineages_[part].origins.front(), k}); found != part_.end())
        parts.push_back(found->second);
    return parts.size() == lineages_[part].parts ? parts : std::vector<NodeId>();
  }
  // Parts of one value, and parts of another that use them, all behind the last of the first.
  bool follow(const std::vector<NodeId>& values, const std::vector<NodeId>& users) {
    return !values.empty() && values.size() == users.size() &&
           std::ranges::all_of(users, [&](NodeId user) { return is_before(values.back(), user); });
  }

  // Each summand takes all rows of every operand.
  bool sum_of_copies(Graph& graph, NodeId id) {
    if (!is_sum(id) || !args_of(id)[1].is_node() || !is_part(args_of(id)[1].as_node())) return false;
    const std::vector<NodeId> users = parts_of(args_of(id)[1].as_node());
    if (users.empty()) return false;
    std::vector<std::pair<NodeId, NodeId>> replaced;  // what part 0 takes, and all of it
    for (NodeId input : inputs_of(users[0])) {
      if (lineages_[input].is_whole()) continue;
      if (lineages_[input].origins.empty()) return graph = b_, false;
      NodeId whole;
      const auto kept = whole_.find(lineages_[input].origins.front());
      if (kept != whole_.end()) {
        whole = kept->second;
      } else if (is_part(input)) {
        const std::vector<NodeId> values = parts_of(input);
        const TensorType* type = tensor_of(context(), body_.nodes[input].type);
        if (!follow(values, users) || type == nullptr) return graph = b_, false;
        std::vector<Arg> items;
        for (NodeId value : values) items.push_back(Arg::node(value));
        whole = add_join(graph, input, "aten.cat.default", {list(items), Arg::integer(divided_dim(input))});
      }
      if (!whole) return graph = b_, false;
      replaced.emplace_back(input, whole);
    }
    for (NodeId user : users)
      for (std::size_t i = 0; i < replaced.size(); ++i)
        replace_value(graph, user, inputs_like(user, users[0], replaced[i].first), replaced[i].second);
    return !replaced.empty();
  }
  // What `user` takes where `first` takes `input`.
  NodeId inputs_like(NodeId user, NodeId first, NodeId input) {
    const std::vector<NodeId> theirs = inputs_of(first), mine = inputs_of(user);
    const auto at = static_cast<std::size_t>(std::ranges::find(theirs, input) - theirs.begin());
    return at < mine.size() ? mine[at] : NodeId();
  }
  std::int64_t divided_dim(NodeId part) {
    const TensorType* piece = tensor_of(context(), body_.nodes[part].type);
    for (NodeId id : a_.step().order) {
      if (a_.step().nodes[id].name != lineages_[part].origins.front()) continue;
      const TensorType* whole = tensor_of(context(), a_.step().nodes[id].type);
      for (std::size_t i = 0; i < piece->sizes.size(); ++i)
        if (whole->sizes[i] != piece->sizes[i]) return static_cast<std::int64_t>(i);
    }
    return 0;
  }

  // Of a chain of updates: the second part's update comes first.
  bool reorder_update(Graph& graph, NodeId id) {
    const Node& node = body_.nodes[id];
    if (!is_part(id) || lineages_[id].part != 1 || node.op == nullptr || !node.op->writes || is_wait(node))
      return false;
    const std::vector<NodeId> parts = parts_of(id);
    std::vector<Arg> args = args_of(id);
    if (parts.empty() || args.size() < 2 || args[0] != Arg::node(parts[0]) || !args[1].is_node())
      return false;
    if (!is_before(args[1].as_node(), parts[0])) return false;
    std::vector<Arg> first = args_of(parts[0]);
    std::swap(first[0], args[0]);
    first[0] = Arg::node(id);
    set_args(graph, id, args);
    set_args(graph, parts[0], first);
    if (parts.size() > 2) replace_value(graph, parts[2], id, parts[0]);
    std::vector<NodeId>& order = graph.step().order;
    std::erase(order, id);
    order.insert(std::ranges::find(order, parts[0]), id);
    return true;
  }

  // Each part of an update adds the sum of all parts.
  bool add_all(Graph& graph, NodeId id) {
    const Node& node = body_.nodes[id];
    if (!is_part(id) || lineages_[id].part != 0 || lineages_[id].parts != 2 || node.op == nullptr ||
        !node.op->writes || is_wait(node) || args_of(id).size() < 2 || !args_of(id)[1].is_node())
      return false;
    const std::vector<NodeId> users = parts_of(id);
    const NodeId first = args_of(id)[1].as_node();
    if (users.empty() || !is_part(first) || !lineages_[args_of(id)[0].as_node()].is_whole()) return false;
    const std::vector<NodeId> addends = parts_of(first);
    if (!follow(addends, users)) return false;
    const NodeId sum =
        add_join(graph, first, "aten.add.Tensor", {Arg::node(addends[0]), Arg::node(addends[1])});
    for (std::size_t k = 0; k < users.size(); ++k) replace_value(graph, users[k], addends[k], sum);
    return true;
  }

  bool piece_for_whole(Graph& graph, NodeId id) {
    if (!lineages_[id].is_whole() || (body_.nodes[id].op != nullptr && body_.nodes[id].op->reads_types_only))
      return false;
    for (NodeId input : inputs_of(id)) {
      if (!lineages_[input].is_whole()) continue;
      for (NodeId other : body_.order) {
        if (other == id) break;
        const Lineage& lineage = lineages_[other];
        if (lineage.role != ProvenanceRole::kSplit || !is_target(other, "operator.getitem") ||
            lineage.origins != lineages_[input].origins)
          continue;
        replace_value(graph, id, input, other);
        return true;
      }
    }
    return false;
  }

  // Two neighbours of the same type.
  bool exchange_inputs(Graph& graph, NodeId id) {
    if (body_.nodes[id].kind != NodeKind::kPlaceholder) return false;
    std::vector<NodeId>& order = graph.step().order;
    const std::size_t at = position(id);
    if (at + 1 >= order.size() || body_.nodes[order[at + 1]].kind != NodeKind::kPlaceholder) return false;
    std::swap(order[at], order[at + 1]);
    return true;
  }

  bool exchange_roles(Graph& graph, NodeId) {
    for (int i = 0; i < 100 && graph.outputs.size() > 1; ++i) {
      OutputRole& x = graph.outputs[random_() % graph.outputs.size()];
      OutputRole& y = graph.outputs[random_() % graph.outputs.size()];
      if (x.role == y.role && x.fqn == y.fqn) continue;
      return std::swap(x, y), true;
    }
    return false;
  }

  bool exchange_provenance(Graph& graph, NodeId id) {
    const NodeId other = is_part(id) ? sibling(id) : NodeId();
    if (!other || inputs_of(id) == inputs_of(other)) return false;
    std::swap(graph.step().nodes[id].provenance, graph.step().nodes[other].provenance);
    std::swap(graph.step().nodes[id].chunk, graph.step().nodes[other].chunk);
    return true;
  }

  // Says that it is another node of the first graph, of the same op.
  bool claim_other(Graph& graph, NodeId id) {
    if (!is_whole_or_part(id) || body_.nodes[id].kind != NodeKind::kCall) return false;
    for (NodeId other : body_.order) {
      const bool is_like = other != id && body_.nodes[other].target == body_.nodes[id].target &&
                           lineages_[other].is_whole() == lineages_[id].is_whole() &&
                           lineages_[other].part == lineages_[id].part &&
                           lineages_[other].parts == lineages_[id].parts &&
                           body_.nodes[other].type == body_.nodes[id].type &&
                           lineages_[other].origins != lineages_[id].origins;
      if (!is_like) continue;
      std::swap(graph.step().nodes[id].provenance, graph.step().nodes[other].provenance);
      return true;
    }
    return false;
  }

  bool change_chunk_field(Graph& graph, NodeId id) {
    if (!is_part(id) || !body_.nodes[id].chunk.part) return false;
    auto& part = *graph.step().nodes[id].chunk.part;
    part = (part + 1) % static_cast<std::int32_t>(lineages_[id].parts);
    return true;
  }

  // None: there is none, or it is not one of the first graph's.
  Symbol* pick_symbol(Graph& graph) {
    if (graph.symbols.empty()) return nullptr;
    Symbol& symbol = graph.symbols[random_() % graph.symbols.size()];
    const bool is_old =
        std::ranges::any_of(a_.symbols, [&](const Symbol& s) { return s.name == symbol.name; });
    return is_old ? &symbol : nullptr;
  }
  bool narrow_range(Graph& graph, NodeId) {
    Symbol* symbol = pick_symbol(graph);
    const auto lower = symbol != nullptr && symbol->lower ? context().exprs.constant(*symbol->lower)
                                                          : std::optional<std::int64_t>();
    if (!lower) return false;
    symbol->lower = context().exprs.number(*lower + 1 + static_cast<std::int64_t>(random_() % 7));
    return true;
  }
  bool change_hint(Graph& graph, NodeId) {
    Symbol* symbol = pick_symbol(graph);
    if (symbol == nullptr || !symbol->hint) return false;
    *symbol->hint += 1 + static_cast<std::int64_t>(random_() % 7);
    return true;
  }

  std::map<StringId, NodeId> whole_;
  IdVector<NodeId, std::uint32_t> positions_;
};

}  // namespace epweave
