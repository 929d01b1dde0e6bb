#include "extract/selection.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <string_view>
#include <unordered_map>

#include "analysis/collectives.h"
#include "analysis/effects.h"
#include "analysis/module_names.h"
#include "analysis/module_path.h"
#include "analysis/random_draws.h"
#include "analysis/type_symbols.h"
#include "analysis/value_numbers.h"
#include "extract/storage_conflict.h"
#include "ops/bind.h"
#include "ops/op.h"

namespace epweave {
namespace {

// The longest path that both begin with: "layers.1" of "layers.1.moe" and "layers.1.norm".
std::string_view common_module(std::string_view a, std::string_view b) {
  std::size_t end = 0;
  for (std::size_t i = 0;; ++i) {
    const bool a_ends = i == a.size() || a[i] == '.', b_ends = i == b.size() || b[i] == '.';
    if (a_ends && b_ends) end = i;
    if (i == a.size() || i == b.size() || a[i] != b[i]) return a.substr(0, end);
  }
}

class Selector {
 public:
  Selector(const Graph& graph, const ExtractOptions& options)
      : graph_(graph),
        context_(*graph.context),
        body_(graph.step()),
        options_(options),
        effects_(graph, body_) {}

  Selection run() {
    select();
    find_constants();
    find_border();
    const auto conflict = find_storage_conflict(graph_, effects_, result_.taken);
    if (conflict) refuse_conflict(*conflict);
    bind_symbols();
    sort_inputs();
    merge_equal_inputs();
    return std::move(result_);
  }

 private:
  std::string remedy(const Node& a, const Node& b) const {
    const std::string_view both = common_module(context_.text(a.module), context_.text(b.module));
    const std::string with_both =
        both.empty() ? "name the modules of both, one --module each" : fmt::format("--module {}", both);
    return fmt::format("extract both nodes: {}{}", with_both,
                       options_.direction == ExtractDirection::kBoth ? "" : ", or --direction both");
  }

  // ----- what is inside

  // The modules that patterns select, the first ones of the step where a count is given.
  IdSet<StringId> find_roots(ModuleMatcher& matcher) const {
    IdSet<StringId> roots;
    std::size_t left = options_.count.value_or(body_.order.size());
    for (NodeId id : body_.order) {
      const Node& node = body_.nodes[id];
      if (left == 0 || node.kind != NodeKind::kCall) continue;
      const StringId root = matcher.root_of(node.module);
      if (root && roots.insert(root)) --left;
    }
    return roots;
  }

  void select() {
    ModuleMatcher matcher(options_.modules, context_.strings);
    const IdSet<StringId> roots = find_roots(matcher);
    std::set<std::string> modules;
    for (NodeId id : body_.order) {
      const Node& node = body_.nodes[id];
      if (node.kind != NodeKind::kCall) continue;
      StringId root = matcher.root_of(node.module);
      if (root && !roots.contains(root)) root = StringId();
      if (const NodeId owner = owner_of(node)) {
        if (result_.inside.contains(owner)) result_.inside.insert(id);
        continue;
      }
      if (!has_direction(node) || !(root || is_between(node))) continue;
      result_.inside.insert(id);
      if (root) modules.emplace(context_.text(root));
    }
    require_matches();
    if (modules.empty()) refuse_direction();
    result_.modules.assign(modules.begin(), modules.end());
    result_.taken = result_.inside;
  }

  // A sum of gradients has no module: it is where what it adds is.
  bool is_between(const Node& node) const {
    bool has_input = false, all = true;
    for_each_input(context_, node, [&](NodeId input) {
      has_input = true;
      all = all && result_.inside.contains(input);
    });
    return !node.module && has_input && all;
  }

  bool has_direction(const Node& node) const {
    switch (options_.direction) {
      case ExtractDirection::kForward:
        return !node.is_backward();
      case ExtractDirection::kBackward:
        return node.is_backward();
      case ExtractDirection::kBoth:
        return true;
    }
    return true;
  }

  // The call that this one stays with: of an element of a tuple, of a wait, and of what reads the
  // type of a launch. None: the node's module says.
  NodeId owner_of(const Node& node) const {
    NodeId owner;
    if (const auto element = tuple_element(context_, body_, node)) owner = element->tuple;
    if (is_wait(node)) for_each_input(context_, node, [&](NodeId input) { owner = input; });
    if (find_described_launch(context_, body_, node)) owner = arg_of(context_, node, 0).as_node();
    return owner && body_.nodes[owner].kind == NodeKind::kCall ? owner : NodeId();
  }

  void require_matches() const {
    const std::vector<std::string_view> paths = list_module_paths(graph_);
    if (paths.empty())
      throw PassError("extract.no-modules", "no call of the graph says which module it belongs to", {},
                      std::string(kNameModules));
    std::string text;
    for (const std::string& pattern : options_.modules)
      if (std::ranges::none_of(paths,
                               [&](std::string_view path) { return !match_module(pattern, path).empty(); }))
        text += (text.empty() ? "" : "; ") + describe_no_module(pattern, paths);
    if (!text.empty()) throw PassError("extract.no-module", text, {}, std::string(kCheckPattern));
  }

  [[noreturn]] void refuse_direction() const {
    const bool wants_forward = options_.direction == ExtractDirection::kForward;
    throw PassError("extract.direction",
                    fmt::format("no node of '{}' is of {}", fmt::join(options_.modules, "', '"),
                                wants_forward ? "forward" : "backward"),
                    {}, fmt::format("--direction {}, or both", wants_forward ? "bwd" : "fwd"));
  }

  // ----- what comes along: the same on its own as in the step

  void find_constants() {
    for (NodeId id : body_.order)
      for (const StorageAccess& access : effects_.accesses_of(id))
        if (access.writes && !is_wait(body_.nodes[id])) written_.insert(access.storage);
    for (NodeId id : body_.order) {
      const Node& node = body_.nodes[id];
      if (node.kind == NodeKind::kGetAttr || is_known_when_traced(node) ||
          (is_pure(node) && !written_.contains(effects_.storage_of(id)) && has_constant_inputs(node)))
        constant_.insert(id);
    }
  }
  bool is_known_when_traced(const Node& node) const {
    return node.kind == NodeKind::kPlaceholder && node.type &&
           context_.types[node.type].kind == TypeKind::kValue;
  }
  bool is_pure(const Node& node) const {
    return node.kind == NodeKind::kCall && node.op != nullptr && !node.op->writes && !node.op->is_effectful &&
           !draws_random(graph_, node) && !is_launch(node) && !is_wait(node);
  }
  bool has_constant_inputs(const Node& node) const {
    bool all = true;
    for_each_input(context_, node, [&](NodeId input) { all = all && constant_.contains(input); });
    return all;
  }

  // ----- the border

  void find_border() {
    for (NodeId id : body_.order) {
      const Node& node = body_.nodes[id];
      if (result_.inside.contains(id)) {
        for_each_input(context_, node, [&](NodeId input) { read(input); });
      } else if (node.kind == NodeKind::kCall) {
        for_each_input(context_, node, [&](NodeId input) {
          if (result_.inside.contains(input) && has_data(body_.nodes[input])) result_.leaving.insert(input);
        });
      }
    }
  }
  // Whether the value is more than what was known when the graph was traced.
  bool has_data(const Node& node) const {
    return !node.type || context_.types[node.type].kind != TypeKind::kValue;
  }

  void read(NodeId value) {
    std::vector<NodeId> pending = {value};
    while (!pending.empty()) {
      const NodeId id = pending.back();
      pending.pop_back();
      if (result_.taken.contains(id) || is_input_.contains(id)) continue;
      const Node& node = body_.nodes[id];
      if (node.kind == NodeKind::kPlaceholder || !constant_.contains(id)) {
        is_input_.insert(id);
        continue;
      }
      result_.taken.insert(id);
      for_each_input(context_, node, [&](NodeId input) { pending.push_back(input); });
    }
  }

  [[noreturn]] void refuse_conflict(const StorageConflict& conflict) const {
    const Node &node = body_.nodes[conflict.node], &other = body_.nodes[conflict.other];
    throw PassError("extract.write", conflict.problem, site_of(graph_, node), remedy(node, other));
  }

  // ----- symbols

  void bind_symbols() {
    TypeSymbols types(context_);
    std::vector<StringId> wanted;
    for (NodeId id : body_.order) {
      const Node& node = body_.nodes[id];
      if (node.extra != nullptr)
        for (const Binding& binding : node.extra->bindings) {
          if (!result_.binder[binding.symbol]) result_.binder.at(binding.symbol) = id;
          if (result_.taken.contains(id)) bound_inside_.insert(binding.symbol);
        }
      if (node.kind == NodeKind::kPlaceholder && node.type)
        for (StringId symbol : types.of(node.type))
          if (!brought_by_[symbol]) brought_by_.at(symbol) = id;
      if (!result_.taken.contains(id) && !is_input_.contains(id)) continue;
      if (is_input_.contains(id)) bring(id, types);
      if (node.type)
        for (StringId symbol : types.of(node.type)) mention(symbol, wanted);
      mention_all(node.args, wanted);
      mention_all(node.kwargs, wanted);
    }
    for (const Symbol& symbol : graph_.symbols)
      if (symbol.replaced_by) replaced_by_.emplace(symbol.name, *symbol.replaced_by);
    for (StringId symbol : wanted) require(symbol, types);
    for (NodeId id : body_.order)
      if (is_input_.contains(id)) refuse_computed_size(id, types);
  }

  void mention(StringId symbol, std::vector<StringId>& wanted) {
    if (result_.mentioned.insert(symbol)) wanted.push_back(symbol);
  }
  void mention_all(ArgRange range, std::vector<StringId>& wanted) {
    for (std::uint32_t i = 0; i < range.count; ++i) {
      const Arg arg = context_.args[range][i];
      if (arg.is(ArgKind::kSymbolic))
        for (StringId symbol : context_.exprs.symbols(arg.as_expr())) mention(symbol, wanted);
      if (arg.is_tree()) mention_all(arg.children(), wanted);
    }
  }

  // An input brings the symbols of its value.
  void bring(NodeId id, TypeSymbols& types) {
    const Node& node = body_.nodes[id];
    if (node.type)
      for (StringId symbol : types.of(node.type)) brought_.insert(symbol);
    if (node.extra != nullptr)
      for (const Binding& binding : node.extra->bindings) brought_.insert(binding.symbol);
  }

  void require(StringId symbol, TypeSymbols& types) {
    if (brought_.contains(symbol) || bound_inside_.contains(symbol)) return;
    if (const auto replaced = replaced_by_.find(symbol); replaced != replaced_by_.end()) {
      const std::vector<StringId> others = context_.exprs.symbols(replaced->second);
      brought_.insert(symbol);  // by these
      for (StringId other : others) {
        result_.mentioned.insert(other);
        require(other, types);
      }
      return;
    }
    const NodeId binder = result_.binder[symbol] ? result_.binder[symbol] : brought_by_[symbol];
    if (!binder) return;  // the whole graph does not bind it either
    is_input_.insert(binder);
    bring(binder, types);
    if (!body_.nodes[binder].type) return;
    for (StringId other : types.of(body_.nodes[binder].type)) result_.mentioned.insert(other);
  }

  // A number that is computed inside cannot be known before, when the input comes.
  void refuse_computed_size(NodeId id, TypeSymbols& types) const {
    const Node& node = body_.nodes[id];
    if (!node.type) return;
    for (StringId symbol : types.of(node.type)) {
      if (!bound_inside_.contains(symbol)) continue;
      const Node& binder = body_.nodes[result_.binder[symbol]];
      throw PassError(
          "extract.symbol",
          fmt::format("%{} comes from outside and its size depends on {}, which %{} computes inside",
                      context_.text(node.name), context_.text(symbol), context_.text(binder.name)),
          site_of(graph_, node), remedy(node, binder));
    }
  }

  // ----- inputs

  void sort_inputs() {
    add_meshes();
    for (NodeId id : body_.order) {
      if (!is_input_.contains(id)) continue;
      (body_.nodes[id].kind == NodeKind::kPlaceholder ? result_.step_inputs : result_.entering).push_back(id);
    }
    // Numbers bind the symbols that sizes of tensors are made of.
    std::stable_partition(result_.entering.begin(), result_.entering.end(), [&](NodeId id) {
      const TypeId type = body_.nodes[id].type;
      return type && context_.types[type].kind == TypeKind::kScalar;
    });
  }

  // A sharded tensor's mesh is the input behind it, of the same name.
  void add_meshes() {
    std::size_t place = 0;
    NodeId before;
    for (NodeId id : body_.order) {
      const Node& node = body_.nodes[id];
      if (node.kind != NodeKind::kPlaceholder) break;
      if (place > 0 && place < graph_.inputs.size() && is_input_.contains(before) &&
          is_known_when_traced(node) && graph_.inputs[place].fqn &&
          graph_.inputs[place].fqn == graph_.inputs[place - 1].fqn)
        is_input_.insert(id);
      before = id;
      ++place;
    }
  }

  // What forward made and backward computes again is one input.
  void merge_equal_inputs() {
    if (result_.entering.size() < 2) return;
    const ValueNumbers numbers(graph_, effects_);
    SideTable<NodeId, NodeId> first;  // of a number
    std::vector<NodeId> kept;
    for (NodeId id : result_.entering) {
      const NodeId known = first[numbers[id]];
      const bool is_written = written_.contains(effects_.storage_of(id));
      if (known && !is_written && body_.nodes[known].type == body_.nodes[id].type) {
        result_.repeated.emplace_back(id, known);
        continue;
      }
      if (!known && !is_written) first.at(numbers[id]) = id;
      kept.push_back(id);
    }
    result_.entering = std::move(kept);
  }

  const Graph& graph_;
  Context& context_;
  const Body& body_;
  const ExtractOptions& options_;
  Effects effects_;
  IdSet<NodeId> constant_;  // what can come along
  IdSet<NodeId> written_;   // storage
  IdSet<NodeId> is_input_;
  SideTable<StringId, NodeId> brought_by_;  // the first input that mentions a symbol
  IdSet<StringId> brought_, bound_inside_;
  std::unordered_map<StringId, ExprId> replaced_by_;
  Selection result_;
};

}  // namespace

Selection select_nodes(const Graph& graph, const ExtractOptions& options) {
  return Selector(graph, options).run();
}

}  // namespace epweave
