#include "compare/rewrite/verify_halves.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <tuple>

#include "analysis/returned_values.h"
#include "analysis/seeds.h"
#include "compare/lineage.h"
#include "compare/rewrite/verify_interface.h"

namespace epweave {
namespace {

class HalfJoiner {
 public:
  HalfJoiner(const Graph& joint, const Graph& forward, const Graph& backward,
             std::vector<Violation>& violations)
      : joint_(joint),
        forward_(forward),
        backward_(backward),
        violations_(violations),
        context_(*joint.context),
        result_(joint),
        saved_(joint.intern("saved")),
        tangent_(joint.intern("tangent")) {
    std::size_t position = 0;
    for (NodeId id : joint.step().order) {
      const Node& node = joint.step().nodes[id];
      names_.at(node.name) = id;
      if (node.kind != NodeKind::kPlaceholder || position >= joint.inputs.size()) continue;
      const InputRole& role = joint.inputs[position++];
      roles_.emplace(node.name, key_of(role));
      said_.emplace(key_of(role), role.more);
    }
    find_seeds();
  }

  Graph run() {
    Body& body = result_.step();
    body.nodes = {};
    body.order.clear();
    result_.origins.clear();
    for (NodeId id : joint_.step().order)
      result_.origins.push_back({joint_.step().nodes[id].name, joint_.step().nodes[id].target});
    add_forward();
    add_backward();
    place_seeds();
    add_output();
    return std::move(result_);
  }

 private:
  using RoleKey = std::tuple<StringId, StringId, StringId, StringId>;
  struct HalfOutput {
    Arg value;      // of the result
    ArgRange more;  // what the half says of it
  };
  using OutputKey = std::pair<StringId, StringId>;  // role, fqn
  struct KeyOutputs {                               // not yet taken, in the order of each half
    std::deque<HalfOutput> forward, backward;
  };
  static RoleKey key_of(const InputRole& role) { return {role.role, role.name, role.fqn, role.which}; }

  void find_seeds() {
    const NodeLists inputs = list_inputs(context_, joint_.step());
    const NodeLists users = invert(inputs, joint_.step().order);
    for (NodeId id : epweave::find_seeds(joint_, inputs, users)) seeds_.insert(joint_.step().nodes[id].name);
  }

  void fail(std::string_view invariant, std::string message, std::string node) {
    violations_.push_back({std::string(invariant), std::move(message), {.node = std::move(node)}, {}});
  }

  // What the node says that it is, in names of the joint graph.
  Provenance claim(const Node& node, bool is_in_forward) const {
    Provenance record{.pass = result_.intern("partition"), .origins = NameList(node.name)};
    if (!node.provenance.empty()) {
      const Provenance& last = node.provenance.back();
      const bool is_known =
          std::ranges::all_of(last.origins, [&](StringId name) { return names_[name].valid(); });
      if (is_known && !last.origins.empty()) record.origins = last.origins;
      if (const ProvenanceRole role = find_lineage(node).role; is_known && is_of_pass(role)) {
        record.role = role;
      }
    }
    if (is_in_forward || is_of_pass(record.role)) return record;
    for (StringId origin : record.origins)
      if (claimed_.contains(origin)) {
        record.role = ProvenanceRole::kBody;
        record.parts = 1;
        record.origins = NameList(record.origins.front());
        return record;
      }
    return record;
  }

  // What a pass over the half made to hold its values, as a bucket and what is cut out of it:
  // repeats.h says which are made twice.
  static bool is_of_pass(ProvenanceRole role) {
    return role == ProvenanceRole::kAdded || role == ProvenanceRole::kMaterialize;
  }

  void add(const Graph& half, NodeId id, SideTable<NodeId, NodeId>& made) {
    Node node = half.step().nodes[id];
    const bool is_in_forward = &half == &forward_;
    Provenance record = claim(node, is_in_forward);
    if (record.role == ProvenanceRole::kKept && record.origins.size() > 1)
      record.role = ProvenanceRole::kMerged;
    for (StringId origin : record.origins)
      if (is_in_forward && !is_of_pass(record.role)) claimed_.insert(origin);
    const auto redirect = [&](Arg arg) {
      if (!arg.is_node()) return arg;
      const NodeId value = made[arg.as_node()];
      return value ? Arg::node(value)
                   : Arg::named(ArgKind::kUnresolved, half.step().nodes[arg.as_node()].name);
    };
    map_arguments(context_, node, redirect);
    // What a pass made keeps all its records: later passes may have merged values into it.
    if (!is_of_pass(record.role)) node.provenance = context_.own(std::span<const Provenance>(&record, 1));
    if (record.role == ProvenanceRole::kBody || !taken_.insert(node.name))
      node.name = make_name(fmt::format("{}_of_backward", result_.text(node.name)));
    made.at(id) = push(node);
  }

  StringId make_name(const std::string& wanted) {
    StringId name = result_.intern(wanted);
    for (std::size_t i = 1; !taken_.insert(name); ++i) name = result_.intern(fmt::format("{}_{}", wanted, i));
    return name;
  }
  NodeId push(const Node& node) {
    const NodeId id = result_.step().nodes.push_back(node);
    result_.step().order.push_back(id);
    return id;
  }

  void add_forward() {
    std::size_t input = 0;
    for (NodeId id : forward_.step().order) {
      const Node& node = forward_.step().nodes[id];
      if (node.kind == NodeKind::kOutput) continue;
      add(forward_, id, forward_nodes_);
      if (node.kind == NodeKind::kPlaceholder) add_forward_input(id, input++);
    }
    const std::vector<Arg> results = list_returned(forward_);
    for (std::size_t i = 0; i < results.size() && i < forward_.outputs.size(); ++i)
      if (forward_.outputs[i].role == saved_ && results[i].is_node())
        add_saved(forward_.outputs[i].fqn, forward_nodes_[results[i].as_node()]);
  }

  // The input has the role of what it claims to be: callers go by roles, the proof by claims.
  void add_forward_input(NodeId id, std::size_t position) {
    const std::string name(forward_.text(forward_.step().nodes[id].name));
    if (position >= forward_.inputs.size()) return fail("halves-input", "it has no role", name);
    const RoleKey role = key_of(forward_.inputs[position]);
    const NodeId value = forward_nodes_[id];
    const NameList& origins = result_.step().nodes[value].provenance.back().origins;
    const bool is_same = std::ranges::all_of(origins, [&](StringId origin) {
      const auto found = roles_.find(origin);
      return found != roles_.end() && found->second == role;
    });
    if (!is_same)
      fail("halves-input", "it has another role than what it stands for in the joint graph", name);
    if (!inputs_.emplace(role, value).second) fail("halves-input", "another input has the same role", name);
    check_said(forward_.inputs[position], name);
  }

  void add_saved(StringId name, NodeId value) {
    if (!saved_values_.emplace(name, value).second)
      fail("halves-output", fmt::format("the forward half returns saved {} twice", result_.text(name)), "");
  }

  void add_backward() {
    std::size_t input = 0;
    for (NodeId id : backward_.step().order) {
      const Node& node = backward_.step().nodes[id];
      if (node.kind == NodeKind::kOutput) continue;
      if (node.kind != NodeKind::kPlaceholder) {
        add(backward_, id, backward_nodes_);
        continue;
      }
      add_backward_input(id, input++);
    }
  }

  void add_backward_input(NodeId id, std::size_t position) {
    const Node& node = backward_.step().nodes[id];
    const std::string name(backward_.text(node.name));
    if (position >= backward_.inputs.size()) return fail("halves-input", "it has no role", name);
    const NodeId value = find_input(backward_.inputs[position]);
    if (!value)
      return fail("halves-input",
                  "by its role it is nothing that the forward half returns or takes, and no seed", name);
    check_type(node, result_.step().nodes[value]);
    check_said(backward_.inputs[position], name);
    backward_nodes_.at(id) = value;
  }

  // Of which tensor of which subclass an input of the joint graph is a piece, and the like.
  void check_said(const InputRole& role, const std::string& name) {
    const auto said = said_.find(key_of(role));
    if (said != said_.end() && !context_.args.equal(said->second, role.more))
      fail("halves-input", "what is said of it is not what the joint graph says", name);
  }

  NodeId find_input(const InputRole& role) {
    if (role.role == saved_) {
      const auto found = saved_values_.find(role.name);
      return found == saved_values_.end() ? NodeId() : found->second;
    }
    if (role.role == tangent_) return add_seed(role.name);
    const auto found = inputs_.find(key_of(role));
    return found == inputs_.end() ? NodeId() : found->second;
  }

  // The joint graph's own node: a gradient that the caller passes. Only where its backward begins:
  // all else is computed.
  NodeId add_seed(StringId name) {
    const NodeId seed = names_[name];
    if (!seed || !seeds_.contains(name) || !taken_.insert(name)) return {};
    Node node = joint_.step().nodes[seed];
    const auto redirect = [&](Arg arg) {
      if (!arg.is_node()) return arg;
      const StringId operand = joint_.step().nodes[arg.as_node()].name;
      const NodeId value = find_in_forward(operand);
      return value ? Arg::node(value) : Arg::named(ArgKind::kUnresolved, operand);
    };
    map_arguments(context_, node, redirect);
    const Provenance record{.pass = result_.intern("partition"), .origins = NameList(name)};
    node.provenance = context_.own(std::span<const Provenance>(&record, 1));
    return push(node);
  }

  // Seeds that are inputs take their places among the inputs; F's stay in F's order.
  void place_seeds() {
    Body& body = result_.step();
    const auto is_input = [](const Body& of, NodeId id) {
      return of.nodes[id].kind == NodeKind::kPlaceholder;
    };
    const auto is_seed = [&](NodeId id) {
      return is_input(body, id) && seeds_.contains(body.nodes[id].name);
    };
    std::vector<NodeId> inputs, others, placed;
    SideTable<StringId, NodeId> seeds;
    for (NodeId id : body.order) {
      if (is_seed(id))
        seeds.at(body.nodes[id].name) = id;
      else
        (is_input(body, id) ? inputs : others).push_back(id);
    }
    auto next = inputs.begin();
    for (NodeId id : joint_.step().order) {
      if (!is_input(joint_.step(), id)) continue;
      if (const NodeId seed = seeds[joint_.step().nodes[id].name])
        placed.push_back(seed);
      else if (next != inputs.end())
        placed.push_back(*next++);
    }
    placed.insert(placed.end(), next, inputs.end());
    placed.insert(placed.end(), others.begin(), others.end());
    body.order = std::move(placed);
  }

  // F's node of that name, else what claims to be it, as a call that equal ones were merged into.
  NodeId find_in_forward(StringId name) const {
    NodeId claimed;
    for (NodeId id : forward_.step().order) {
      const NodeId value = forward_nodes_[id];
      if (value && forward_.step().nodes[id].name == name) return value;
      if (value && !claimed && claims(value, name)) claimed = value;
    }
    return claimed;
  }
  bool claims(NodeId value, StringId name) const {
    const NameList& origins = result_.step().nodes[value].provenance.back().origins;
    return std::ranges::find(origins, name) != origins.end();
  }

  void check_type(const Node& input, const Node& value) {
    if (input.type != value.type)
      fail("halves-input",
           fmt::format("its recorded type is not that of {}, which the forward half returns",
                       result_.text(value.name)),
           std::string(backward_.text(input.name)));
  }

  // Outputs of the joint graph, from those of the halves that have the same role, in order.
  void add_output() {
    std::map<OutputKey, KeyOutputs> found;
    collect(forward_, forward_nodes_, found, &KeyOutputs::forward);
    collect(backward_, backward_nodes_, found, &KeyOutputs::backward);
    std::vector<Arg> results;
    const std::vector<Arg> wanted = list_returned(joint_);
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      const OutputKey key = i < joint_.outputs.size()
                                ? OutputKey{joint_.outputs[i].role, joint_.outputs[i].fqn}
                                : OutputKey{joint_.intern("other"), StringId()};
      if (const auto output = take(found[key], wanted[i])) {
        results.push_back(output->value);
        if (i < joint_.outputs.size() && !context_.args.equal(joint_.outputs[i].more, output->more))
          fail("halves-output",
               fmt::format("what is said of output {} of the joint graph ({} {}) is not what that says", i,
                           joint_.text(key.first), joint_.text(key.second)),
               "");
      } else {
        results.push_back(Arg::none());
        fail("halves-output",
             fmt::format("output {} of the joint graph ({} {}) is an output of neither half", i,
                         joint_.text(key.first), joint_.text(key.second)),
             "");
      }
    }
    for (const auto& [key, values] : found)
      if (!values.forward.empty() || !values.backward.empty())
        fail("halves-output",
             fmt::format("the halves return {} {} more often than the joint graph", joint_.text(key.first),
                         joint_.text(key.second)),
             "");
    Node output = joint_.step().nodes[joint_.step().order.back()];
    const Arg tree = rebuild(context_.args[output.args].front(), results);
    output.args = context_.args.add(std::span<const Arg>(&tree, 1));
    const Provenance record{.pass = result_.intern("partition"), .origins = NameList(output.name)};
    output.provenance = context_.own(std::span<const Provenance>(&record, 1));
    push(output);
  }

  // The next of forward, else of backward; of backward where that alone claims to be the output.
  std::optional<HalfOutput> take(KeyOutputs& of, Arg wanted) {
    const auto is_wanted = [&](const std::deque<HalfOutput>& outputs) {
      if (outputs.empty()) return false;
      const Arg value = outputs.front().value;
      if (!wanted.is_node() || !value.is_node()) return context_.args.equal(value, wanted);
      return claims(value.as_node(), joint_.step().nodes[wanted.as_node()].name);
    };
    const bool is_of_backward = of.forward.empty() || (!is_wanted(of.forward) && is_wanted(of.backward));
    std::deque<HalfOutput>& outputs = is_of_backward ? of.backward : of.forward;
    if (outputs.empty()) return std::nullopt;
    HalfOutput next = outputs.front();
    outputs.pop_front();
    return next;
  }

  Arg rebuild(Arg shape, const std::vector<Arg>& results) {
    return shape.is_list()   ? context_.args.add_tree(shape.kind(), results)
           : results.empty() ? Arg()
                             : results.front();
  }

  void collect(const Graph& half, const SideTable<NodeId, NodeId>& made,
               std::map<OutputKey, KeyOutputs>& found, std::deque<HalfOutput> KeyOutputs::*of_half) {
    const std::vector<Arg> results = list_returned(half);
    for (std::size_t i = 0; i < results.size() && i < half.outputs.size(); ++i) {
      const OutputRole& role = half.outputs[i];
      if (role.role == saved_) continue;
      const NodeId value = results[i].is_node() ? made[results[i].as_node()] : NodeId();
      const Arg constant = results[i].is_node() ? Arg() : results[i];
      (found[{role.role, role.fqn}].*of_half).push_back({value ? Arg::node(value) : constant, role.more});
    }
  }

  const Graph& joint_;
  const Graph& forward_;
  const Graph& backward_;
  std::vector<Violation>& violations_;
  Context& context_;
  Graph result_;
  StringId saved_, tangent_;
  SideTable<StringId, NodeId> names_;  // of the joint graph
  std::map<StringId, RoleKey> roles_;  // of the joint graph's inputs
  std::map<RoleKey, ArgRange> said_;   // of them
  IdSet<StringId> seeds_;              // of the joint graph
  IdSet<StringId> claimed_, taken_;    // origins that a node of F has; names of the result
  SideTable<NodeId, NodeId> forward_nodes_, backward_nodes_;
  std::map<RoleKey, NodeId> inputs_;         // F's, by role
  std::map<StringId, NodeId> saved_values_;  // F's, by name
};

// The joint graph as the one that all began with.
Graph without_provenance(const Graph& graph) {
  Graph result = graph;
  result.origins.clear();
  Body& body = result.step();
  for (NodeId id : body.order) body.nodes[id].provenance = {};
  return result;
}

}  // namespace

Graph join_halves(const Graph& joint, const Graph& forward, const Graph& backward,
                  std::vector<Violation>& violations) {
  EPWEAVE_CHECK(joint.context == forward.context && joint.context == backward.context);
  return HalfJoiner(without_provenance(joint), forward, backward, violations).run();
}

namespace {

// What a half says of groups, nested graphs and symbols is what the joint graph says.
void check_tables(const Graph& joint, const Graph& half, std::string_view name,
                  std::vector<Violation>& violations) {
  std::vector<Violation> found;
  RewriteClaims claims(joint, half, {}, found);
  Numbers numbers(joint, half);
  check_world(claims);
  check_groups(claims);
  check_nested(claims, numbers);
  check_symbol_facts(claims, numbers);
  for (Violation& violation : found) {
    violation.message = fmt::format("{} half: {}", name, violation.message);
    violations.push_back(std::move(violation));
  }
}

}  // namespace

RewriteReport verify_halves(const Graph& joint, const Graph& forward, const Graph& backward) {
  const Graph plain = without_provenance(joint);
  std::vector<Violation> violations;
  const Graph joined = join_halves(joint, forward, backward, violations);
  check_tables(plain, forward, "forward", violations);
  check_tables(plain, backward, "backward", violations);
  RewriteReport report = verify_rewrite(plain, joined);
  report.violations.insert(report.violations.begin(), violations.begin(), violations.end());
  return report;
}

}  // namespace epweave
