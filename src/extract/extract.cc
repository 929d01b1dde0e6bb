#include "extract/extract.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>
#include <unordered_map>

#include "analysis/type_symbols.h"
#include "analysis/verify.h"
#include "analysis/world.h"
#include "extract/selection.h"
#include "ops/bind.h"

namespace epweave {
namespace {

class Writer {
 public:
  Writer(const Graph& graph, const Selection& selection)
      : graph_(graph),
        context_(*graph.context),
        body_(graph.step()),
        selection_(selection),
        pass_(graph.intern("extract")) {}

  Extraction run() {
    result_.modules = selection_.modules;
    begin();
    for (NodeId id : selection_.step_inputs) copy(id);
    for (NodeId id : selection_.entering) add_input(id);
    for (const auto& [again, first] : selection_.repeated) made_.at(again) = made_[first];
    bind_extents();
    for (NodeId id : body_.order)
      if (selection_.taken.contains(id)) copy(id);
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
    for (NodeId id : selection_.step_inputs) is_kept.insert(id);
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
      if (!symbol || !selection_.binder[symbol] || !known.insert(symbol)) continue;
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
      if (!selection_.leaving.contains(id) || is_returned_.contains(id)) continue;
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
      has_last = id && selection_.inside.contains(id);
      if (!has_last && !is_mesh) continue;
      is_returned_.insert(id);
      results.push_back(Arg::node(made_[id]));
      made().outputs.push_back(i < graph_.outputs.size() ? graph_.outputs[i]
                                                         : OutputRole{.role = graph_.intern("other")});
    }
  }

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
      if (selection_.mentioned.contains(symbol.name) || is_bound_or_named(symbol.name)) keep(symbol.name);
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
  const std::vector<Violation> violations = verify_graph(made);
  if (violations.empty()) return;
  std::set<std::pair<std::string, std::string>> known;
  for (const Violation& violation : verify_graph(graph))
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
  const Selection selection = select_nodes(graph, options);
  Extraction made = Writer(graph, selection).run();
  require_sound_extraction(graph, made.graph);
  return made;
}

}  // namespace epweave
