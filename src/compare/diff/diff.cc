#include "compare/diff/diff.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <unordered_map>

#include "compare/diff/diff_tables.h"
#include "compare/lineage.h"
#include "compare/rebase.h"
#include "compare/specialization.h"
#include "ir/text/text_printer.h"
#include "ops/type_rules.h"

namespace epweave {
namespace {

// Positions in the longest increasing subsequence of `values`.
std::vector<std::uint8_t> find_longest_increasing(const std::vector<std::uint32_t>& values) {
  std::vector<std::size_t> best;  // best[l]: position that ends a chain of l + 1
  std::vector<std::size_t> previous(values.size(), values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto at = std::lower_bound(best.begin(), best.end(), values[i],
                                     [&](std::size_t p, std::uint32_t v) { return values[p] < v; });
    if (at != best.begin()) previous[i] = *(at - 1);
    if (at == best.end()) {
      best.push_back(i);
    } else {
      *at = i;
    }
  }
  std::vector<std::uint8_t> stays(values.size());
  for (std::size_t i = best.empty() ? values.size() : best.back(); i < values.size(); i = previous[i])
    stays[i] = 1;
  return stays;
}

class BodyDiffer {
 public:
  BodyDiffer(const Graph& graph_a, const Body& a, const Graph& graph_b, const Body& b,
             const BodyPairing& pairing, const DiffOptions& options, Specialization& special)
      : graph_a_(graph_a),
        graph_b_(graph_b),
        context_(*graph_a.context),
        a_(a),
        b_(b),
        pairing_(pairing),
        options_(options),
        special_(special),
        printer_a_(graph_a, text::find_default_device(graph_a)),
        printer_b_(graph_b, text::find_default_device(graph_b)),
        images_(a.nodes.size()) {
    for (NodeId id : b.order)
      if (pairing.origin[id]) images_[pairing.origin[id]].push_back(id);
  }

  BodyDiff run() {
    for (NodeId id : a_.order)
      if (a_.nodes[id].kind == NodeKind::kPlaceholder && images_[id].size() == 1)
        special_.learn(a_.nodes[id].type, b_.nodes[images_[id].front()].type);
    find_moves();
    list_nodes();
    BodyDiff result{.name = a_.name, .a = &a_, .b = &b_, .origin = pairing_.origin, .part = pairing_.part};
    for (NodeDiff& diff : nodes_) {
      if (diff.changes.none()) {
        ++result.same;
      } else {
        result.nodes.push_back(std::move(diff));
      }
    }
    return result;
  }

 private:
  void find_moves() {
    if (!options_.order) return;
    IdVector<NodeId, std::uint32_t> position(a_.nodes.size());
    for (std::size_t i = 0; i < a_.order.size(); ++i) position[a_.order[i]] = static_cast<std::uint32_t>(i);
    std::map<std::uint32_t, std::vector<NodeId>> streams;  // by part
    for (NodeId id : b_.order)
      if (pairing_.origin[id]) streams[pairing_.part[id]].push_back(id);
    for (const auto& [part, nodes] : streams) {
      std::vector<std::uint32_t> places;
      for (NodeId id : nodes) places.push_back(position[pairing_.origin[id]]);
      const std::vector<std::uint8_t> stays = find_longest_increasing(places);
      for (std::size_t i = 0; i < nodes.size(); ++i)
        if (stays[i] == 0) moved_.insert(nodes[i]);
    }
  }

  // In the order of B; a removed node behind the one it stood behind in A.
  void list_nodes() {
    IdSet<NodeId> done(a_.nodes.size());
    std::vector<NodeId> next(a_.nodes.size());
    for (std::size_t i = 0; i + 1 < a_.order.size(); ++i) next[a_.order[i].index()] = a_.order[i + 1];
    auto add_removed = [&](NodeId id) {
      for (; id && images_[id].empty(); id = next[id.index()])
        if (done.insert(id)) add_removed_node(id);
    };
    if (!a_.order.empty()) add_removed(a_.order.front());
    for (NodeId id : b_.order) {
      const NodeId origin = pairing_.origin[id];
      if (!origin) {
        add_added_node(id);
      } else if (done.insert(origin)) {
        compare(origin);
        add_removed(next[origin.index()]);
      }
    }
  }

  void add_removed_node(NodeId id) {
    NodeDiff& diff = nodes_.emplace_back(NodeDiff{.a = id, .about = pairing_.absorbed_by[id]});
    diff.changes.add(Change::kRemoved);
    if (diff.about)
      diff.details.push_back(fmt::format("%{} stands for it", graph_b_.text(b_.nodes[diff.about].name)));
  }

  void add_added_node(NodeId id) {
    NodeDiff& diff = nodes_.emplace_back(NodeDiff{.b = {id}, .about = pairing_.made_for[id]});
    diff.changes.add(Change::kAdded);
    const Lineage lineage = find_lineage(b_.nodes[id]);
    if (diff.about && !lineage.is_whole())
      diff.details.push_back(
          fmt::format("{} for %{}", name_of(lineage.role), graph_a_.text(a_.nodes[diff.about].name)));
  }

  void compare(NodeId a) {
    NodeDiff& diff = nodes_.emplace_back(NodeDiff{.a = a, .b = images_[a]});
    const bool is_divided = diff.b.size() > 1 || std::ranges::any_of(diff.b, [&](NodeId b) {
                              return pairing_.part[b] != kNoPart;
                            });
    if (is_divided) diff.changes.add(Change::kDivided);
    for (NodeId b : diff.b) {
      if (moved_.contains(b)) diff.changes.add(Change::kMoved);
      compare_call(a, b, diff);
      if (!is_divided) {
        compare_types(a, b, diff);
        compare_metadata(a, b, diff);
      }
    }
    if (options_.names && !is_divided && a_.nodes[a].name != b_.nodes[diff.b[0]].name) {
      diff.changes.add(Change::kRenamed);
    }
    // What holds for one part holds for the others.
    std::vector<std::string> unique;
    for (std::string& detail : diff.details)
      if (std::ranges::find(unique, detail) == unique.end()) unique.push_back(std::move(detail));
    diff.details = std::move(unique);
  }

  // ------------------------------------------------------------------------- calls

  void compare_call(NodeId a, NodeId b, NodeDiff& diff) {
    const Node& before = a_.nodes[a];
    const Node& after = b_.nodes[b];
    if (before.kind == NodeKind::kCall && before.target != after.target) {
      diff.changes.add(Change::kArguments);
      diff.details.push_back(
          fmt::format("target: {} -> {}", graph_a_.text(before.target), graph_b_.text(after.target)));
    }
    if (before.kind == NodeKind::kGetAttr && !same_arg(before.attr, after.attr, b, diff.changes)) {
      diff.changes.add(Change::kArguments);
      diff.details.push_back(fmt::format("attribute: {} -> {}", print(printer_a_, a_, before.attr),
                                         print(printer_b_, b_, after.attr)));
    }
    const auto args_a = context_.args[before.args];
    const auto args_b = context_.args[after.args];
    for (std::size_t i = 0; i < std::max(args_a.size(), args_b.size()); ++i)
      compare_arg(fmt::format("argument {}", i), i < args_a.size() ? &args_a[i] : nullptr,
                  i < args_b.size() ? &args_b[i] : nullptr, b, diff);
    const auto kwargs_a = context_.args[before.kwargs];
    const auto kwargs_b = context_.args[after.kwargs];
    for (std::size_t i = 0; i + 1 < kwargs_a.size(); i += 2)
      compare_arg(context_.text(kwargs_a[i].as_name()), &kwargs_a[i + 1],
                  find_kwarg(context_, after, context_.text(kwargs_a[i].as_name())), b, diff);
    for (std::size_t i = 0; i + 1 < kwargs_b.size(); i += 2)
      if (find_kwarg(context_, before, context_.text(kwargs_b[i].as_name())) == nullptr)
        compare_arg(context_.text(kwargs_b[i].as_name()), nullptr, &kwargs_b[i + 1], b, diff);
  }

  void compare_arg(std::string_view name, const Arg* before, const Arg* after, NodeId user, NodeDiff& diff) {
    if (before != nullptr && after != nullptr && same_arg(*before, *after, user, diff.changes)) return;
    diff.changes.add(Change::kArguments);
    if (before != nullptr && after != nullptr && before->is_list() && after->is_list() &&
        before->children().count == after->children().count) {
      // Only the elements that differ: gradients are one long list.
      for (std::uint32_t i = 0; i < before->children().count; ++i)
        compare_arg(fmt::format("{}[{}]", name, i), &context_.args.children(*before)[i],
                    &context_.args.children(*after)[i], user, diff);
      return;
    }
    diff.details.push_back(fmt::format("{}: {} -> {}", name,
                                       before == nullptr ? "(not given)" : print(printer_a_, a_, *before),
                                       after == nullptr ? "(not given)" : print(printer_b_, b_, *after)));
  }

  bool same_arg(Arg a, Arg b, NodeId user, Changes& changes) {
    if (a.is_node() && b.is_node()) return same_node(a.as_node(), b.as_node(), user, changes);
    if (a.is_node() && b.is_int()) return is_number_now(a.as_node(), b.as_int(), user, changes);
    if (a.kind() != b.kind()) return false;
    if (a.is_tree()) {
      const ArgRange x = a.children(), y = b.children();
      if (x.count != y.count) return false;
      for (std::uint32_t i = 0; i < x.count; ++i)
        if (!same_arg(context_.args[x][i], context_.args[y][i], user, changes)) return false;
      return true;
    }
    if (a == b) return true;
    if (!a.is(ArgKind::kSymbolic)) return false;
    if (context_.exprs.poly(a.as_expr()) == context_.exprs.poly(b.as_expr())) return true;
    const bool is_special = special_.same(a.as_expr(), b.as_expr());
    if (is_special) changes.add(Change::kSpecialized);
    return is_special || pairing_.part[user] != kNoPart;
  }

  bool same_node(NodeId a, NodeId b, NodeId user, Changes& changes) {
    if (pairing_.origin[b] == a) {
      if (pairing_.part[b] == kNoPart || pairing_.part[user] != kNoPart) return true;
      changes.add(Change::kRejoined);  // its last part holds it all, or only its type is read
      return true;
    }
    if (pairing_.absorbed_by[a] && pairing_.absorbed_by[a] == b) return true;
    if (const NodeId merged = pairing_.absorbed_by[a];
        merged && pairing_.origin[b] == pairing_.origin[merged])
      return true;
    if (serves(pairing_.made_for[b], a)) {
      if (pairing_.part[user] == kNoPart) changes.add(Change::kRejoined);
      return true;
    }
    // A part takes the extent of a part for the extent of the whole.
    return pairing_.part[user] != kNoPart && !pairing_.origin[b] && is_scalar(a_.nodes[a]) &&
           is_scalar(b_.nodes[b]);
  }
  bool serves(NodeId made_for, NodeId a) const {
    return made_for && (made_for == a ||
                        (pairing_.absorbed_by[a] && pairing_.origin[pairing_.absorbed_by[a]] == made_for));
  }
  bool is_scalar(const Node& node) const {
    return node.type && context_.types[node.type].kind == TypeKind::kScalar;
  }

  bool is_number_now(NodeId a, std::int64_t number, NodeId user, Changes& changes) {
    if (!is_scalar(a_.nodes[a])) return false;
    const ExprId expr = context_.types[a_.nodes[a].type].expr;
    if (!special_.same(expr, context_.exprs.number(number)) && pairing_.part[user] == kNoPart) return false;
    changes.add(Change::kSpecialized);
    return true;
  }

  // ------------------------------------------------------------------------- facts

  void compare_types(NodeId a, NodeId b, NodeDiff& diff) {
    const TypeId before = a_.nodes[a].type, after = b_.nodes[b].type;
    if (!options_.types || before == after) return;
    if (before && after && special_.same(before, after)) {
      if (!special_.none()) diff.changes.add(Change::kSpecialized);
      return;
    }
    diff.changes.add(Change::kType);
    auto text = [&](TypeId id) { return id ? print_type(context_, id) : std::string("(none)"); };
    diff.details.push_back(fmt::format("type: {} -> {}", text(before), text(after)));
  }

  void compare_metadata(NodeId a, NodeId b, NodeDiff& diff) {
    const Node& before = a_.nodes[a];
    const Node& after = b_.nodes[b];
    if (options_.provenance && !same_provenance(before, after)) diff.changes.add(Change::kProvenance);
    if (!options_.metadata) return;
    auto text = [&](std::string_view name, StringId x, StringId y) {
      if (x != y) add_metadata(diff, name, quote(x), quote(y));
    };
    text("module", before.module, after.module);
    text("recompute", before.recompute, after.recompute);
    text("EP", before.ep.ep, after.ep.ep);
    text("token_count_exchange", before.ep.token_count_exchange, after.ep.token_count_exchange);
    text("token_count_sync", before.ep.token_count_sync, after.ep.token_count_sync);
    text("token_exchange", before.ep.token_exchange, after.ep.token_exchange);
    text("token_exchange_wait", before.ep.token_exchange_wait, after.ep.token_exchange_wait);
    if (before.source != after.source) add_metadata(diff, "source", "", "");
    if (before.backward != after.backward) add_metadata(diff, "direction", "", "");
    if (before.seq_nr != after.seq_nr) add_metadata(diff, "seq_nr", "", "");
    if (!(before.chunk == after.chunk)) add_metadata(diff, "chunk", "", "");
    if (before.has_custom != after.has_custom) add_metadata(diff, "custom", "", "");
    if (before.extra != after.extra) compare_extra(text::extra_of(before), text::extra_of(after), diff);
  }

  void compare_extra(const NodeExtra& before, const NodeExtra& after, NodeDiff& diff) {
    const ArgPool& args = context_.args;
    auto same_binding = [&](const Binding& x, const Binding& y) {
      return x.symbol == y.symbol && args.equal(x.path, y.path);
    };
    if (!std::ranges::equal(before.bindings, after.bindings, same_binding))
      add_metadata(diff, "bindings", "", "");
    if (before.chunk_hints != after.chunk_hints) add_metadata(diff, "hints", "", "");
    if (!same_constants(before.custom, after.custom)) add_metadata(diff, "custom", "", "");
    if (!same_constants(before.meta, after.meta)) add_metadata(diff, "meta", "", "");
    if (before.py_type != after.py_type) add_metadata(diff, "py_type", "", "");
    if (before.example_type != after.example_type &&
        !(before.example_type && after.example_type &&
          special_.same(before.example_type, after.example_type)))
      add_metadata(diff, "example_value", "", "");
    if (before.unknown_fields != after.unknown_fields) add_metadata(diff, "unknown fields", "", "");
  }
  // Metadata may name nodes.
  bool same_constants(ArgRange before, ArgRange after) {
    if (before.count != after.count) return false;
    for (std::uint32_t i = 0; i < before.count; ++i)
      if (!same_plain(context_.args[before][i], context_.args[after][i])) return false;
    return true;
  }
  bool same_plain(Arg a, Arg b) {
    if (a.is_node() && b.is_node()) return pairing_.origin[b.as_node()] == a.as_node();
    if (a.is_tree() && b.is_tree()) return a.kind() == b.kind() && same_constants(a.children(), b.children());
    return a == b;
  }

  static bool same_provenance(const Node& a, const Node& b) {
    return std::ranges::equal(a.provenance, b.provenance, [](const Provenance& x, const Provenance& y) {
      return x.pass == y.pass && x.role == y.role && x.origins == y.origins && x.part == y.part &&
             x.parts == y.parts && x.region == y.region && x.backward == y.backward && x.reason == y.reason;
    });
  }

  void add_metadata(NodeDiff& diff, std::string_view name, std::string_view before, std::string_view after) {
    diff.changes.add(Change::kMetadata);
    diff.details.push_back(before.empty() && after.empty()
                               ? fmt::format("metadata: {}", name)
                               : fmt::format("metadata: {} {} -> {}", name, before, after));
  }
  std::string quote(StringId id) const { return id ? std::string(context_.text(id)) : "(none)"; }

  static std::string print(text::Printer& printer, const Body& body, Arg arg) {
    printer.arg(&body, arg);
    return printer.take();
  }

  const Graph& graph_a_;
  const Graph& graph_b_;
  Context& context_;
  const Body& a_;
  const Body& b_;
  const BodyPairing& pairing_;
  const DiffOptions& options_;
  Specialization& special_;
  text::Printer printer_a_, printer_b_;
  IdVector<NodeId, std::vector<NodeId>> images_;
  IdSet<NodeId> moved_;
  std::vector<NodeDiff> nodes_;
};

std::size_t count_same_names(const Body& a, const Body& b, const BodyPairing& pairing) {
  return static_cast<std::size_t>(std::ranges::count_if(b.order, [&](NodeId id) {
    return pairing.origin[id] && a.nodes[pairing.origin[id]].name == b.nodes[id].name;
  }));
}

}  // namespace

std::string_view name_of(Change change) {
  static constexpr std::array<std::string_view, kChangeKinds> kNames = {
      "divided",  "added",       "removed", "arguments changed", "type changed", "moved",
      "rejoined", "specialized", "renamed", "metadata",          "provenance"};
  for (std::size_t i = 0; i < kNames.size(); ++i)
    if (static_cast<unsigned>(change) == 1U << i) return kNames[i];
  return "";
}

bool GraphDiff::is_same() const {
  return tables.empty() && std::ranges::all_of(bodies, [](const BodyDiff& body) {
           return body.a != nullptr && body.b != nullptr && body.nodes.empty();
         });
}

GraphDiff diff_graphs(const Graph& a, const Graph& b, const DiffOptions& options) {
  EPWEAVE_CHECK(a.context == b.context);
  GraphDiff result;
  const bool is_chain = !derives_from(a, b) && share_origins(a, b);
  const bool is_derived = is_chain || derives_from(a, b);
  Specialization special(b);
  if (!a.bodies.empty() && !b.bodies.empty()) {
    const BodyPairing pairing = is_chain     ? pair_by_provenance(a.step(), rebase_provenance(a, b).step())
                                : is_derived ? pair_by_provenance(a.step(), b.step())
                                             : pair_by_structure(a, a.step(), b, b.step(), {options.names});
    if (is_derived) {
      result.pairing = PairingKind::kProvenance;
    } else if (options.names && 2 * count_same_names(a.step(), b.step(), pairing) >= b.step().order.size()) {
      result.pairing = PairingKind::kNames;
    }
    result.bodies.push_back(BodyDiffer(a, a.step(), b, b.step(), pairing, options, special).run());
  }
  for (std::size_t i = 1; i < a.bodies.size(); ++i) {
    const Body* other = b.find_body(a.bodies[i].name);
    if (other == nullptr) {
      result.bodies.push_back({.name = a.bodies[i].name, .a = &a.bodies[i]});
      continue;
    }
    const BodyPairing pairing = pair_by_structure(a, a.bodies[i], b, *other, {options.names});
    BodyDiff diff = BodyDiffer(a, a.bodies[i], b, *other, pairing, options, special).run();
    if (diff.nodes.empty()) {
      result.same_nested += diff.same;
    } else {
      result.bodies.push_back(std::move(diff));
    }
  }
  for (std::size_t i = 1; i < b.bodies.size(); ++i)
    if (a.find_body(b.bodies[i].name) == nullptr)
      result.bodies.push_back({.name = b.bodies[i].name, .b = &b.bodies[i]});
  result.tables = diff_tables(a, b, options);
  return result;
}

}  // namespace epweave
