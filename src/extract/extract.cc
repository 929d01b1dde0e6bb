#include "extract/extract.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <unordered_map>

#include "analysis/collectives.h"
#include "analysis/effects.h"
#include "analysis/module_names.h"
#include "analysis/module_path.h"
#include "analysis/type_symbols.h"
#include "analysis/value_numbers.h"
#include "analysis/verify.h"
#include "analysis/verify_host_reads.h"
#include "analysis/world.h"
#include "extract/storage_conflict.h"
#include "ops/bind.h"
#include "ops/op.h"
#include "ops/random_draws.h"

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

class Selection {
 public:
  Selection(const Graph& graph, const ExtractOptions& options)
      : graph_(graph),
        context_(*graph.context),
        body_(graph.step()),
        options_(options),
        effects_(context_, body_) {}

  void run() {
    select();
    find_constants();
    find_border();
    const auto conflict = find_storage_conflict(graph_, effects_, taken_);
    if (conflict) refuse_conflict(*conflict);
    bind_symbols();
    sort_inputs();
    merge_equal_inputs();
  }

  bool is_taken(NodeId id) const { return taken_.contains(id); }
  bool is_inside(NodeId id) const { return inside_.contains(id); }
  const std::vector<NodeId>& step_inputs() const { return step_inputs_; }  // of the step, that are read
  const std::vector<NodeId>& entering() const { return entering_; }        // values from outside
  // Those that compute again what one of these computes, with it.
  const std::vector<std::pair<NodeId, NodeId>>& repeated() const { return repeated_; }
  const IdSet<NodeId>& leaving() const { return leaving_; }  // values that are used outside
  const std::vector<std::string>& modules() const { return modules_; }
  const IdSet<StringId>& mentioned() const { return mentioned_; }
  bool has_binder(StringId symbol) const { return binder_[symbol].valid(); }

  std::string remedy(const Node& a, const Node& b) const {
    const std::string_view both = common_module(context_.text(a.module), context_.text(b.module));
    const std::string with_both =
        both.empty() ? "name the modules of both, one --module each" : fmt::format("--module {}", both);
    return fmt::format("extract both nodes: {}{}", with_both,
                       options_.direction == ExtractDirection::kBoth ? "" : ", or --direction both");
  }

 private:
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
        if (inside_.contains(owner)) inside_.insert(id);
        continue;
      }
      if (!has_direction(node) || !(root || is_between(node))) continue;
      inside_.insert(id);
      if (root) modules.emplace(context_.text(root));
    }
    require_matches();
    if (modules.empty()) refuse_direction();
    modules_.assign(modules.begin(), modules.end());
    taken_ = inside_;
  }

  // A sum of gradients has no module: it is where what it adds is.
  bool is_between(const Node& node) const {
    bool has_input = false, all = true;
    for_each_input(context_, node, [&](NodeId input) {
      has_input = true;
      all = all && inside_.contains(input);
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

  // The call that this one stays with: of an element of a tuple, and of a wait. None: the node's
  // module says.
  NodeId owner_of(const Node& node) const {
    NodeId owner;
    if (const auto element = tuple_element(context_, body_, node)) owner = element->tuple;
    if (is_wait(node)) for_each_input(context_, node, [&](NodeId input) { owner = input; });
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
           !draws_random(context_, node) && !is_launch(node) && !is_wait(node);
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
      if (inside_.contains(id)) {
        for_each_input(context_, node, [&](NodeId input) { read(input); });
      } else if (node.kind == NodeKind::kCall) {
        for_each_input(context_, node, [&](NodeId input) {
          if (inside_.contains(input) && has_data(body_.nodes[input])) leaving_.insert(input);
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
      if (taken_.contains(id) || is_input_.contains(id)) continue;
      const Node& node = body_.nodes[id];
      if (node.kind == NodeKind::kPlaceholder || !constant_.contains(id)) {
        is_input_.insert(id);
        continue;
      }
      taken_.insert(id);
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
          if (!binder_[binding.symbol]) binder_.at(binding.symbol) = id;
          if (taken_.contains(id)) bound_inside_.insert(binding.symbol);
        }
      if (node.kind == NodeKind::kPlaceholder && node.type)
        for (StringId symbol : types.of(node.type))
          if (!brought_by_[symbol]) brought_by_.at(symbol) = id;
      if (!taken_.contains(id) && !is_input_.contains(id)) continue;
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
    if (mentioned_.insert(symbol)) wanted.push_back(symbol);
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
        mentioned_.insert(other);
        require(other, types);
      }
      return;
    }
    const NodeId binder = binder_[symbol] ? binder_[symbol] : brought_by_[symbol];
    if (!binder) return;  // the whole graph does not bind it either
    is_input_.insert(binder);
    bring(binder, types);
    if (!body_.nodes[binder].type) return;
    for (StringId other : types.of(body_.nodes[binder].type)) mentioned_.insert(other);
  }

  // A number that is computed inside cannot be known before, when the input comes.
  void refuse_computed_size(NodeId id, TypeSymbols& types) const {
    const Node& node = body_.nodes[id];
    if (!node.type) return;
    for (StringId symbol : types.of(node.type)) {
      if (!bound_inside_.contains(symbol)) continue;
      const Node& binder = body_.nodes[binder_[symbol]];
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
      (body_.nodes[id].kind == NodeKind::kPlaceholder ? step_inputs_ : entering_).push_back(id);
    }
    // Numbers bind the symbols that sizes of tensors are made of.
    std::stable_partition(entering_.begin(), entering_.end(), [&](NodeId id) {
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
    if (entering_.size() < 2) return;
    const ValueNumbers numbers(graph_, effects_);
    SideTable<NodeId, NodeId> first;  // of a number
    std::vector<NodeId> kept;
    for (NodeId id : entering_) {
      const NodeId known = first[numbers[id]];
      const bool is_written = written_.contains(effects_.storage_of(id));
      if (known && !is_written && body_.nodes[known].type == body_.nodes[id].type) {
        repeated_.emplace_back(id, known);
        continue;
      }
      if (!known && !is_written) first.at(numbers[id]) = id;
      kept.push_back(id);
    }
    entering_ = std::move(kept);
  }

  const Graph& graph_;
  Context& context_;
  const Body& body_;
  const ExtractOptions& options_;
  Effects effects_;
  std::vector<std::string> modules_;
  IdSet<NodeId> inside_;    // the nodes of the modules
  IdSet<NodeId> constant_;  // what can come along
  IdSet<NodeId> taken_;     // inside, or comes along
  IdSet<NodeId> written_;   // storage
  IdSet<NodeId> is_input_, leaving_;
  SideTable<StringId, NodeId> binder_, brought_by_;  // of a symbol
  IdSet<StringId> mentioned_, brought_, bound_inside_;
  std::unordered_map<StringId, ExprId> replaced_by_;
  std::vector<NodeId> step_inputs_, entering_;
  std::vector<std::pair<NodeId, NodeId>> repeated_;
};

class Writer {
 public:
  Writer(const Graph& graph, const Selection& selection)
      : graph_(graph),
        context_(*graph.context),
        body_(graph.step()),
        selection_(selection),
        pass_(graph.intern("extract")) {}

  Extraction run() {
    result_.modules = selection_.modules();
    begin();
    for (NodeId id : selection_.step_inputs()) copy(id);
    for (NodeId id : selection_.entering()) add_input(id);
    for (const auto& [again, first] : selection_.repeated()) made_.at(again) = made_[first];
    bind_extents();
    for (NodeId id : body_.order)
      if (selection_.is_taken(id)) copy(id);
    add_outputs();
    drop_unnamed_bodies(made());
    keep_symbols();
    keep_origins();
    return std::move(result_);
  }

 private:
  Graph& made() { return result_.graph; }

  void begin() {
    result_.graph = graph_;
    made().step().nodes = {};
    made().step().order.clear();
    made().inputs.clear();
    made().outputs.clear();
    std::size_t place = 0, kept = 0;
    const std::optional<std::int64_t> states = count_states();
    IdSet<NodeId> is_kept;
    for (NodeId id : selection_.step_inputs()) is_kept.insert(id);
    for (NodeId id : body_.order) {
      if (body_.nodes[id].kind != NodeKind::kPlaceholder) continue;
      if (is_kept.contains(id)) {
        made().inputs.push_back(graph_.inputs[place]);
        if (states && static_cast<std::int64_t>(place) < *states) ++kept;
      }
      ++place;
    }
    if (states) replace_states(static_cast<std::int64_t>(kept));
  }

  static constexpr std::string_view kStates = "num_static_inputs";
  std::optional<std::int64_t> count_states() const {
    const Arg* states = find_entry(context_, graph_.info, kStates);
    return states != nullptr && states->is_int() ? std::optional(states->as_int()) : std::nullopt;
  }
  void replace_states(std::int64_t count) {
    const auto known = context_.args.children(graph_.info);
    std::vector<Arg> items(known.begin(), known.end());
    for (std::size_t i = 0; i + 1 < items.size(); i += 2)
      if (items[i] == Arg::text(graph_.intern(kStates))) items[i + 1] = Arg::integer(count);
    made().info = context_.args.add_tree(ArgKind::kDict, items);
  }

  NodeId add(NodeId from, const Node& node) {
    const NodeId id = made().step().nodes.push_back(node);
    made().step().order.push_back(id);
    made_.at(from) = id;
    return id;
  }

  void copy(NodeId id) {
    Node node = body_.nodes[id];
    const auto redirect = [&](Arg arg) {
      if (!arg.is_node()) return arg;
      EPWEAVE_CHECK(made_[arg.as_node()].valid());
      return Arg::node(made_[arg.as_node()]);
    };
    map_arguments(context_, node, redirect);
    record_kept(node);
    add(id, node);
  }

  void record_kept(Node& node) const {
    if (node.provenance.empty())
      append_provenance(context_, node,
                        {.pass = pass_, .role = ProvenanceRole::kKept, .origins = NameList(node.name)});
  }

  void add_input(NodeId id) {
    const Node& value = body_.nodes[id];
    Node node;
    node.kind = NodeKind::kPlaceholder;
    node.name = node.target = value.name;
    node.type = value.type;
    node.module = value.module;
    node.source = value.source;
    node.backward = value.backward;
    if (value.extra != nullptr && !value.extra->bindings.empty())
      node.extra = context_.own(NodeExtra{.bindings = value.extra->bindings});
    const Provenance record{.pass = pass_, .role = ProvenanceRole::kAdded, .origins = origins_of(value)};
    node.provenance = context_.own(std::span<const Provenance>(&record, 1));
    add(id, node);
    made().inputs.push_back({.name = value.name,
                             .role = graph_.intern(value.is_backward() ? "tangent" : "user"),
                             .which = value.name});
    result_.entering.emplace_back(context_.text(value.name));
  }

  // A symbol that the step reads off an input that is gone is read off the first one that mentions
  // it, if that has it as an extent.
  void bind_extents() {
    IdSet<StringId> known;
    TypeSymbols types(context_);
    Body& body = made().step();
    for (NodeId id : body.order)
      if (const NodeExtra* extra = body.nodes[id].extra)
        for (const Binding& binding : extra->bindings) known.insert(binding.symbol);
    for (NodeId id : body.order) {
      Node& node = body.nodes[id];
      if (const TensorType* type = tensor_of(context_, node.type)) bind_extents_of(node, *type, known);
      if (node.type)
        for (StringId symbol : types.of(node.type)) known.insert(symbol);
    }
  }
  void bind_extents_of(Node& node, const TensorType& type, IdSet<StringId>& known) {
    for (std::size_t d = 0; d < type.rank(); ++d) {
      const StringId symbol = context_.strings.find(context_.exprs.text(type.sizes[d]));
      if (!symbol || !selection_.has_binder(symbol) || !known.insert(symbol)) continue;
      NodeExtra extra = node.extra == nullptr ? NodeExtra() : *node.extra;
      extra.bindings.push_back({symbol, path_of_extent(d)});
      node.extra = context_.own(std::move(extra));
    }
  }
  // As torch writes it: value.size()[d].
  ArgRange path_of_extent(std::size_t d) {
    const Arg size = dict({{"kind", text("CallMethodKey")}, {"name", text("size")}});
    const Arg element =
        dict({{"kind", text("SequenceKey")}, {"idx", Arg::integer(static_cast<std::int64_t>(d))}});
    return context_.args.add(std::array{size, element});
  }
  Arg text(std::string_view word) const { return Arg::text(graph_.intern(word)); }
  Arg dict(std::initializer_list<std::pair<std::string_view, Arg>> entries) {
    std::vector<Arg> items;
    for (const auto& [key, value] : entries) {
      items.push_back(text(key));
      items.push_back(value);
    }
    return context_.args.add_tree(ArgKind::kDict, items);
  }

  void add_outputs() {
    const Node& output = body_.nodes[body_.order.back()];
    std::vector<Arg> results;
    add_step_outputs(output, results);
    for (NodeId id : body_.order) {
      if (!selection_.leaving().contains(id) || is_returned_.contains(id)) continue;
      results.push_back(Arg::node(made_[id]));
      made().outputs.push_back({.role = graph_.intern("other"), .fqn = body_.nodes[id].name});
      result_.leaving.emplace_back(context_.text(body_.nodes[id].name));
    }
    Node node = output;
    const auto known = context_.args[output.args];
    const Arg list = context_.args.add_tree(
        known.size() == 1 && known[0].is_list() ? known[0].kind() : ArgKind::kTuple, results);
    node.args = context_.args.add({&list, 1});
    node.kwargs = {};
    record_kept(node);
    add(body_.order.back(), node);
  }

  // What the step returns of the nodes inside, and behind each its mesh, where that is an input.
  void add_step_outputs(const Node& output, std::vector<Arg>& results) {
    const auto args = context_.args[output.args];
    std::vector<Arg> items(args.begin(), args.end());
    if (items.size() == 1 && items[0].is_list()) {
      const auto children = context_.args.children(items[0]);
      items.assign(children.begin(), children.end());
    }
    bool has_last = false;
    for (std::size_t i = 0; i < items.size(); ++i) {
      const NodeId id = items[i].is_node() ? items[i].as_node() : NodeId();
      const bool is_mesh = has_last && i < graph_.outputs.size() && graph_.outputs[i].fqn && id &&
                           graph_.outputs[i].fqn == graph_.outputs[i - 1].fqn && made_[id] &&
                           body_.nodes[id].kind == NodeKind::kPlaceholder;
      has_last = id && selection_.is_inside(id);
      if (!has_last && !is_mesh) continue;
      is_returned_.insert(id);
      results.push_back(Arg::node(made_[id]));
      made().outputs.push_back(i < graph_.outputs.size() ? graph_.outputs[i]
                                                         : OutputRole{.role = graph_.intern("other")});
    }
  }

  // Nested graphs that are named, and those that these name.
  // Symbols that are mentioned, and those that what is known of these mentions.
  void keep_symbols() {
    std::unordered_map<StringId, const Symbol*> rows;
    for (const Symbol& symbol : graph_.symbols) rows.emplace(symbol.name, &symbol);
    IdSet<StringId> kept;
    std::vector<StringId> pending;
    const auto keep = [&](StringId name) {
      if (name && kept.insert(name)) pending.push_back(name);
    };
    for (const Symbol& symbol : graph_.symbols)
      if (selection_.mentioned().contains(symbol.name) || is_bound_or_named(symbol.name)) keep(symbol.name);
    while (!pending.empty()) {
      const auto row = rows.find(pending.back());
      pending.pop_back();
      if (row != rows.end()) visit_symbols(*row->second, keep);
    }
    std::erase_if(made().symbols, [&](const Symbol& symbol) { return !kept.contains(symbol.name); });
  }
  // Bound by a node, or mentioned in a nested graph.
  bool is_bound_or_named(StringId symbol) {
    if (!has_nested_symbols_) {
      has_nested_symbols_ = true;
      TypeSymbols types(context_);
      for (std::size_t b = 0; b < made().bodies.size(); ++b)
        for (NodeId id : made().bodies[b].order) {
          const Node& node = made().bodies[b].nodes[id];
          if (node.extra != nullptr)
            for (const Binding& binding : node.extra->bindings) nested_symbols_.insert(binding.symbol);
          if (b > 0 && node.type)
            for (StringId name : types.of(node.type)) nested_symbols_.insert(name);
        }
    }
    return nested_symbols_.contains(symbol);
  }
  template <class Keep>
  void visit_symbols(const Symbol& symbol, const Keep& keep) {
    const auto visit = [&](ExprId expr) {
      for (StringId name : context_.exprs.symbols(expr)) keep(name);
    };
    if (symbol.lower) visit(*symbol.lower);
    if (symbol.upper) visit(*symbol.upper);
    if (symbol.replaced_by) visit(*symbol.replaced_by);
    if (symbol.asserts)
      for (ExprId expr : *symbol.asserts) visit(expr);
    for (ExprId expr : symbol.assumptions) visit(expr);
    keep(symbol.part_of);
  }

  // Of the nodes that records name; of the step's own where no pass has run.
  void keep_origins() {
    std::vector<Origin> known = graph_.origins;
    if (known.empty())
      for (NodeId id : body_.order) known.push_back({body_.nodes[id].name, body_.nodes[id].target});
    IdSet<StringId> named;
    for (NodeId id : made().step().order)
      for (const Provenance& record : made().step().nodes[id].provenance)
        for (StringId name : record.origins) named.insert(name);
    std::erase_if(known, [&](const Origin& origin) { return !named.contains(origin.name); });
    made().origins = std::move(known);
  }

  const Graph& graph_;
  Context& context_;
  const Body& body_;
  const Selection& selection_;
  StringId pass_;
  SideTable<NodeId, NodeId> made_;  // of a node of the step
  IdSet<NodeId> is_returned_;
  IdSet<StringId> nested_symbols_;
  bool has_nested_symbols_ = false;
  Extraction result_;
};

// What the whole graph keeps, its nodes alone must keep, too.
void require_sound_extraction(const Graph& graph, const Graph& made) {
  const std::vector<Violation> violations = verify_all(made);
  if (violations.empty()) return;
  std::set<std::pair<std::string, std::string>> known;
  for (const Violation& violation : verify_all(graph))
    known.emplace(violation.invariant, violation.site.node);
  for (const Violation& violation : violations)
    if (!known.contains({violation.invariant, violation.site.node}))
      throw PassError(
          "extract.cut",
          fmt::format("without the rest of the step, the nodes break '{}': {}", violation.invariant,
                      violation.message),
          violation.site,
          "extract a larger module, with what the node needs: --module of the one that contains it");
}

}  // namespace

Extraction extract(const Graph& graph, const ExtractOptions& options) {
  Selection selection(graph, options);
  selection.run();
  Extraction made = Writer(graph, selection).run();
  require_sound_extraction(graph, made.graph);
  return made;
}

}  // namespace epweave
