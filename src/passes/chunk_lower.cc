#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <unordered_map>

#include "analysis/effects.h"
#include "ir/op.h"
#include "ir/type_rules.h"
#include "passes/chunk_plan.h"

namespace epweave {
namespace {

constexpr std::string_view kPass = "chunk";

// Names for new symbols: the old one's letters and the next free number, since torch tells symbols' kinds by
// their names (u7 is unbacked, s3 is backed).
class FreshSymbols {
 public:
  explicit FreshSymbols(const Graph& graph) : strings_(graph.context->strings) {
    for (const Symbol& symbol : graph.symbols) {
      const auto [prefix, number] = split(strings_[symbol.name]);
      std::uint64_t& next = next_[std::string(prefix)];
      next = std::max(next, number + 1);
    }
  }
  StringId like(StringId symbol) {
    const std::string prefix(split(strings_[symbol]).first);
    return strings_.intern(fmt::format("{}{}", prefix, next_[prefix]++));
  }

 private:
  static std::pair<std::string_view, std::uint64_t> split(std::string_view name) {
    const std::size_t digits = name.find_last_not_of("0123456789") + 1;
    std::uint64_t number = 0;
    std::from_chars(name.data() + digits, name.data() + name.size(), number);
    return {name.substr(0, digits), number};
  }

  StringTable& strings_;
  std::map<std::string, std::uint64_t> next_;
};

// One forward walk with two memoised accessors:
//
//   not divided:  whole[node]   = the node with arg -> whole(arg)
//   divided:      part[node][k] = a copy with arg -> part(arg, k), for each k
//
//   whole(v)    Split(d) -> cat(parts, d)   Partial -> add(parts)   Local -> refused
//   part(v, k)  Whole -> whole(v)           Split(d) from outside -> slice of whole(v)
//
// Joins and splits are written at first demand, so they stand in front of their first user and nothing
// needless is written. Rows of the input's node table keep their ids; new nodes are appended to it.
class Lowering {
 public:
  Lowering(const Graph& graph, const ChunkPlan& plan)
      : in_(graph),
        plan_(plan),
        placements_(plan.placements),
        effects_(*graph.context, graph.step()),
        out_(with_part_symbols(graph)),
        facts_(out_),
        tokens_(out_, facts_) {
    pass_ = out_.intern(kPass);
    for (const Node& node : in_.step().nodes) used_names_.insert(node.name);
  }

  Graph run() {
    for (NodeId id : in_.step().order) {
      if (placements_.region[id] && placements_.is_divided(id)) {
        write_parts(id);
      } else {
        write_whole(id);
      }
    }
    place_size_nodes();
    step().order = std::move(order_);
    drop_divided_symbols();
    return std::move(out_);
  }

 private:
  Body& step() { return out_.step(); }
  Context& context() { return *out_.context; }
  std::size_t parts() const { return static_cast<std::size_t>(plan_.parts); }

  // In-place write. Times count the nodes written so far.
  struct Write {
    std::size_t time = 0;
    NodeId writer, value;
  };
  struct Slices {
    std::size_t time = 0;
    std::vector<NodeId> pieces;
  };

  // ------------------------------------------------------------------------- symbols

  // A symbol that a divided node binds gets a twin per part, with what was known about it restated for the
  // part.
  Graph with_part_symbols(const Graph& graph) {
    Graph result = graph;
    for (Symbol& symbol : result.symbols)
      for (const auto& assumed : plan_.assumed)
        if (assumed.symbol == symbol.name) symbol.assumptions.push_back(assumed.statement);
    std::vector<StringId> bound;
    for (NodeId id : graph.step().order) {
      const Node& node = graph.step().nodes[id];
      if (!node.extra || !placements_.region[id] || !placements_.is_divided(id)) continue;
      for (const Binding& binding : node.extra->bindings) {
        bound.push_back(binding.symbol);
        is_divided_symbol_.insert(binding.symbol);
      }
    }
    twins_.resize(parts());
    FreshSymbols fresh_symbols(graph);
    for (StringId symbol : bound)
      for (std::size_t k = 0; k < parts(); ++k) twins_[k].at(symbol) = fresh_symbols.like(symbol);
    Facts facts(result);
    std::vector<Symbol> fresh;
    for (const Symbol& symbol : graph.symbols) {
      if (!is_divided_symbol_.contains(symbol.name)) continue;
      for (std::size_t k = 0; k < parts(); ++k) fresh.push_back(part_symbol(facts, symbol, k));
    }
    result.symbols.insert(result.symbols.end(), fresh.begin(), fresh.end());
    return result;
  }

  // The expression for part k: token symbols become the part's share, symbols bound inside their twins.
  PolyId part_poly(ExprPool& pool, PolyId poly, std::size_t k) {
    return pool.substitute(poly, [&](StringId symbol) -> std::optional<PolyId> {
      if (StringId twin = twins_[k][symbol]) return pool.poly_symbol(twin);
      if (is_token(symbol)) return pool.scale(pool.poly_symbol(symbol), Rational{1, plan_.parts});
      return std::nullopt;
    });
  }
  PolyId with_twins(ExprPool& pool, PolyId poly, std::size_t k) {
    return pool.substitute(poly, [&](StringId symbol) -> std::optional<PolyId> {
      if (StringId twin = twins_[k][symbol]) return pool.poly_symbol(twin);
      return std::nullopt;
    });
  }
  bool is_token(StringId symbol) const {
    return std::find(plan_.token_symbols.begin(), plan_.token_symbols.end(), symbol) !=
           plan_.token_symbols.end();
  }

  Symbol part_symbol(Facts& facts, const Symbol& symbol, std::size_t k) {
    ExprPool& pool = facts.pool();
    Symbol result = symbol;
    result.name = twins_[k][symbol.name];
    result.part_of = symbol.name;
    if (symbol.hint) result.hint = *symbol.hint / plan_.parts;
    if (symbol.asserts)
      for (ExprId& statement : *result.asserts)
        statement = facts.expr(part_poly(pool, pool.poly(statement), k));
    result.assumptions.clear();
    result.unknown_fields.clear();
    return result;
  }

  // The whole's data-dependent symbols are bound nowhere any more.
  void drop_divided_symbols() {
    std::erase_if(out_.symbols, [&](const Symbol& s) { return is_divided_symbol_.contains(s.name); });
    IdSet<TypeId> checked;
    for (NodeId id : step().order) {
      const Node& node = step().nodes[id];
      if (!node.type || !checked.insert(node.type)) continue;
      if (mentions_divided_symbol(node.type))
        throw PassError(
            "chunk.outside-symbol",
            "its recorded size depends on a number that is read inside a divided region, once per part",
            site_of(out_, node), "select roots that contain this operation, or leave the module out");
    }
  }
  bool mentions_divided_symbol(TypeId id) {
    const Type& type = context().types[id];
    auto mentions = [&](ExprId e) {
      if (!e) return false;
      const auto& symbols = context().exprs.symbols(e);
      return std::any_of(symbols.begin(), symbols.end(),
                         [&](StringId s) { return is_divided_symbol_.contains(s); });
    };
    return mentions(type.expr) || std::any_of(type.tensor.sizes.begin(), type.tensor.sizes.end(), mentions) ||
           std::any_of(type.elements.begin(), type.elements.end(),
                       [&](TypeId e) { return e && mentions_divided_symbol(e); });
  }

  // ------------------------------------------------------------------------- new nodes

  StringId fresh_name(const std::string& base) {
    StringId name = out_.intern(base);
    for (int i = 1; !used_names_.insert(name); ++i) name = out_.intern(fmt::format("{}_{}", base, i));
    return name;
  }

  // Types the node and appends it to the table; the caller puts it into the order.
  NodeId add(Node node) {
    try {
      node.type = infer_type(facts_, out_, step(), node);
    } catch (const TypeMismatch& error) {
      throw PassError(
          "chunk.part-type", fmt::format("a part of this operation does not type-check: {}", error.what()),
          site_of(out_, node),
          "the sizes of the parts do not fit together here; select roots that leave this operation outside");
    }
    return step().nodes.push_back(std::move(node));
  }
  NodeId append(Node node) {
    const NodeId id = add(std::move(node));
    order_.push_back(id);
    return id;
  }
  // A value that stands for the whole `original`: the recorded type is kept where it says the same.
  NodeId append_whole(Node node, NodeId original) {
    const NodeId id = append(std::move(node));
    const TypeId recorded = in_.step().nodes[original].type;
    Node& made = step().nodes[id];
    if (recorded && made.type && says_the_same(made.type, recorded)) made.type = recorded;
    return id;
  }
  // Whether `recorded` can stay: it is equal, and all its symbols stay.
  bool says_the_same(TypeId type, TypeId recorded) {
    return same_type(facts_, context(), type, recorded) && !mentions_divided_symbol(recorded);
  }

  // A call that the pass makes up, in the name of `origin` for `region`.
  struct NewCall {
    std::string name;
    std::string_view target;
    std::vector<Arg> args;
    std::string_view chunk_role;
    ProvenanceRole role = ProvenanceRole::kAdded;
    NodeId origin;
    RegionId region;
    std::optional<std::size_t> part;
  };
  Node make(const NewCall& call) {
    Node node;
    node.name = fresh_name(call.name);
    node.target = out_.intern(call.target);
    node.args = context().args.add(call.args);
    resolve_op(context(), node);
    const Node& origin = in_.step().nodes[call.origin];
    Provenance record{.pass = pass_, .role = call.role, .origins = origins_of(origin)};
    if (call.part) {
      record.part = static_cast<std::uint32_t>(*call.part);
      record.parts = static_cast<std::uint32_t>(parts());
    }
    if (call.region) {
      const ChunkRegion& region = placements_.regions[call.region.index()];
      record.region = region.root;
      record.backward = region.backward;
      set_chunk(node, region, call.chunk_role, call.part);
      const std::string_view root = out_.text(region.root);
      if (auto dot = root.rfind('.'); dot != root.npos) node.module = out_.intern(root.substr(0, dot));
      node.has_custom = true;
      if (region.backward) node.backward = true;
    }
    append_provenance(context(), node, std::move(record));
    return node;
  }
  void set_chunk(Node& node, const ChunkRegion& region, std::string_view role,
                 std::optional<std::size_t> part) {
    node.chunk = ChunkInfo();
    node.chunk.region = region.root;
    node.chunk.role = out_.intern(role);
    node.chunk.backward = region.backward;
    node.chunk.producer = out_.intern("graph");
    if (part) node.chunk.part = static_cast<std::int32_t>(*part);
  }

  Arg list(const std::vector<Arg>& items) { return context().args.add_tree(ArgKind::kList, items); }

  // ------------------------------------------------------------------------- the walk

  void write_whole(NodeId id) {
    const Node& original = in_.step().nodes[id];
    std::size_t leaf = 0;
    bool retype = false;
    auto take = [&](Arg arg) {
      if (!arg.is_node()) return arg;
      const NodeId input = arg.as_node();
      const Access access =
          placements_.region[id] && has_divided_input(id) ? placements_.access(id, leaf) : Access();
      ++leaf;
      NodeId taken;
      if (access.kind == Access::Kind::kAny && needs_join(input)) {
        taken = part(input, 0, id);
      } else {
        taken = whole(input, id);
        retype |= step().nodes[taken].type != in_.step().nodes[input].type;
      }
      return Arg::node(taken);
    };
    const ArgRange args = context().args.map(original.args, take);
    const ArgRange kwargs = context().args.map(original.kwargs, take);
    Node& node = step().nodes[id];
    node.args = args;
    node.kwargs = kwargs;
    // Joins may have other strides than the value they rejoin.
    if (retype && node.kind == NodeKind::kCall && has_type_rule(node)) {
      const TypeId type = infer_type(facts_, out_, step(), node);
      if (type && !says_the_same(type, node.type)) node.type = type;
    }
    order_.push_back(id);
    whole_.at(id) = id;
    whole_at_.at(id) = order_.size();
    for_each_written(id, [&](NodeId value) {
      const NodeId storage = effects_.storage_of(value);
      const Write write{order_.size(), id, value};
      // The join of a view is a copy: what it is a view of would not be written.
      if (is_copied_by_join(value) && !is_divided_here(storage)) fail_stale(storage, write, id);
      whole_write_.at(storage) = write;
    });
  }

  bool has_divided_input(NodeId id) const {
    bool any = false;
    for_each_input(*in_.context, in_.step().nodes[id],
                   [&](NodeId input) { any |= placements_.of(input).is_divided(); });
    return any;
  }
  bool needs_join(NodeId id) const {
    return placements_.region[id] && placements_.is_divided(id) && !whole_[id];
  }

  void write_parts(NodeId id) {
    for (std::size_t k = 0; k < parts(); ++k) {
      // Arguments first: what they demand stands in front of the part.
      const Node& original = in_.step().nodes[id];
      std::size_t leaf = 0;
      auto take = [&](Arg arg) {
        if (arg.is(ArgKind::kSymbolic)) {  // token counts in there are the whole's
          ExprPool& pool = context().exprs;
          return Arg::symbolic(facts_.expr(with_twins(pool, pool.poly(arg.as_expr()), k)));
        }
        return arg.is_node() ? Arg::node(argument(id, arg.as_node(), leaf++, k)) : arg;
      };
      const ArgRange args = context().args.map(original.args, take);
      const ArgRange kwargs = context().args.map(original.kwargs, take);
      Node node = original;
      node.args = args;
      node.kwargs = kwargs;
      node.name = fresh_name(fmt::format("{}_chunk{}", out_.text(original.name), k));
      const ChunkRegion& region = placements_.regions[placements_.region[id].index()];
      set_chunk(node, region, "body", k);
      node.chunk.original_name = original.name;
      if (region.backward) node.backward = true;
      append_provenance(context(), node,
                        {.pass = pass_,
                         .role = ProvenanceRole::kBody,
                         .origins = origins_of(original),
                         .part = static_cast<std::uint32_t>(k),
                         .parts = static_cast<std::uint32_t>(parts()),
                         .region = region.root,
                         .backward = region.backward});
      if (node.extra && !node.extra->bindings.empty()) {
        NodeExtra extra = *node.extra;
        for (Binding& binding : extra.bindings) binding.symbol = twins_[k][binding.symbol];
        node.extra = context().own(std::move(extra));
      }
      set_part(id, k, append(std::move(node)));
    }
    if (is_made_of_sizes(id)) made_of_sizes_.insert(id);
    made_at_.at(id) = order_.size();
    for_each_written(id, [&](NodeId value) {
      part_write_.at(effects_.storage_of(value)) = {order_.size(), id, value};
    });
  }

  // ------------------------------------------------------------------------- in-place writes
  //
  // Joins, and contiguous copies of slices, are storage of their own: they show what was written before they
  // were made only.

  template <class Visit>
  void for_each_written(NodeId id, Visit&& visit) {
    const Node& node = in_.step().nodes[id];
    if (node.op == nullptr || !node.op->writes) return;
    for (std::size_t i = 0; i < node.op->params.size(); ++i)
      if (node.op->params[i].is_written)
        if (const Arg* arg = find_arg(*in_.context, node, i, node.op->params[i].name))
          in_.context->args.for_each_node(*arg, visit);
  }
  bool is_divided_here(NodeId id) const { return placements_.region[id] && placements_.is_divided(id); }
  bool is_copied_by_join(NodeId id) const {
    return is_divided_here(id) && !placements_.of(id).is(PlacementKind::kCarried);
  }

  // The parts of a region's value miss what was written to the whole of it.
  void require_fresh_parts(NodeId id, NodeId user) {
    if (placements_.of(id).is(PlacementKind::kCarried)) return;
    const Write& write = whole_write_[effects_.storage_of(id)];
    if (write.time > made_at_[id]) fail_stale(id, write, user);
  }
  [[noreturn]] void fail_stale(NodeId id, const Write& write, NodeId user) {
    auto name = [&](NodeId node) { return out_.text(in_.step().nodes[node].name); };
    throw PassError(
        "chunk.written-apart",
        fmt::format(
            "'{}' and its parts are stored apart, '{}' writes one of them in place, and '{}' needs the other",
            name(id), name(write.writer), name(user)),
        site_of(in_, in_.step().nodes[write.writer]),
        "use the form of the operation that makes a new value, or select roots that contain it");
  }

  NodeId argument(NodeId user, NodeId input, std::size_t leaf, std::size_t k) {
    const Access access = placements_.access(user, leaf);
    switch (access.kind) {
      case Access::Kind::kWhole:
        return whole(input, user);
      case Access::Kind::kSlice:
        return slice(input, access.dim, k, user);
      case Access::Kind::kChain:
        return k == 0 ? whole(input, user) : parts_of(user)[k - 1];
      case Access::Kind::kAny:
      case Access::Kind::kPart:
        break;
    }
    return placements_.of(input).is_divided() ? part(input, k, user) : whole(input, user);
  }

  // ------------------------------------------------------------------------- accessors

  NodeId* parts_of(NodeId id) {
    std::uint32_t& begin = part_begin_.at(id);
    if (begin == kNoParts) {
      begin = static_cast<std::uint32_t>(part_ids_.size());
      part_ids_.resize(part_ids_.size() + parts());
    }
    return &part_ids_[begin];
  }
  void set_part(NodeId id, std::size_t k, NodeId part) { parts_of(id)[k] = part; }

  // Part k of a divided value. `user` is the node that wants it, in a region.
  NodeId part(NodeId id, std::size_t k, NodeId user) {
    const bool is_made_here = is_divided_here(id);
    if (is_made_here) require_fresh_parts(id, user);
    const bool is_stale = !is_made_here && last_write(id) > made_at_[id];
    if (NodeId known = parts_of(id)[k]; known && !is_stale) return known;
    const Placement& placement = placements_.of(id);
    const Node& node = in_.step().nodes[id];
    const Type* type = node.type ? &context().types[node.type] : nullptr;
    if (type != nullptr && type->kind == TypeKind::kScalar) {
      if (!placement.is_partial()) fail_part(id, user);
      const auto multiple = input_extent(type->expr);
      const NodeId size = multiple ? extent(*multiple) : share(whole(id, user), id, placements_.region[user]);
      for (std::size_t j = 0; j < parts(); ++j) set_part(id, j, size);
      return size;
    }
    if (!placement.is(PlacementKind::kSplit)) fail_part(id, user);
    const std::vector<NodeId> cut = split(id, placement.dim, user);
    for (std::size_t j = 0; j < parts(); ++j) set_part(id, j, cut[j]);
    made_at_.at(id) = order_.size();
    return cut[k];
  }
  [[noreturn]] void fail_part(NodeId id, NodeId user) {
    const Node& node = in_.step().nodes[id];
    throw PassError("chunk.no-part",
                    fmt::format("'{}' ({}) is placed {} and cannot be cut into parts", out_.text(node.name),
                                print_type(context(), node.type), print_placement(placements_.of(id))),
                    site_of(in_, in_.step().nodes[user]), "select roots that contain what makes this value");
  }

  NodeId slice(NodeId id, int dim, std::size_t k, NodeId user) {
    const std::uint64_t key = std::uint64_t{id.index()} << 8 | static_cast<std::uint64_t>(dim);
    const auto found = slices_.find(key);
    if (found != slices_.end() && found->second.time >= last_write(id)) return found->second.pieces[k];
    // Demanding the whole may write other slices: fill in through a fresh look-up.
    std::vector<NodeId> pieces = split(id, dim, user);
    return (slices_[key] = {order_.size(), std::move(pieces)}).pieces[k];
  }
  std::size_t last_write(NodeId id) const {
    const NodeId storage = effects_.storage_of(id);
    return std::max(whole_write_[storage].time, part_write_[storage].time);
  }

  // The whole value cut along `dim`, in the region of `user`.
  std::vector<NodeId> split(NodeId id, int dim, NodeId user) {
    const RegionId region = placements_.region[user];
    const NodeId source = whole(id, user);
    const std::string name(out_.text(in_.step().nodes[id].name));
    const TensorType* type = tensor_of(context(), step().nodes[source].type);
    if (type == nullptr || !tokens_.is_linear(type->sizes[static_cast<std::size_t>(dim)]))
      throw PassError("chunk.extent",
                      fmt::format("dimension {} of '{}' is not a multiple of the token count", dim, name),
                      site_of(in_, in_.step().nodes[user]),
                      "give the dimension a size that is a multiple of the token count");
    const auto multiple = input_extent(type->sizes[static_cast<std::size_t>(dim)]);
    const NodeId size = multiple ? extent(*multiple) : share_of_dimension(source, dim, id, region);
    const std::vector<Arg> sizes(parts(), Arg::node(size));
    const NodeId cut = append(make({.name = name + "_split",
                                    .target = "aten.split_with_sizes.default",
                                    .args = {Arg::node(source), list(sizes), Arg::integer(dim)},
                                    .chunk_role = "split_boundary",
                                    .role = ProvenanceRole::kSplit,
                                    .origin = id,
                                    .region = region}));
    std::vector<NodeId> result;
    for (std::size_t k = 0; k < parts(); ++k) {
      NodeId piece = append(make({.name = fmt::format("{}_split_{}", name, k),
                                  .target = "operator.getitem",
                                  .args = {Arg::node(cut), Arg::integer(static_cast<std::int64_t>(k))},
                                  .chunk_role = "split_boundary",
                                  .role = ProvenanceRole::kSplit,
                                  .origin = id,
                                  .region = region,
                                  .part = k}));
      // Kernels read the parts of an eager chunked run contiguous, and which kernel runs decides bits.
      if (!is_contiguous(piece)) piece = append(contiguous(piece, id, region, k));
      result.push_back(piece);
    }
    return result;
  }

  Node contiguous(NodeId piece, NodeId origin, RegionId region, std::size_t k) {
    Node node = make({.name = fmt::format("{}_contiguous", out_.text(step().nodes[piece].name)),
                      .target = "aten.clone.default",
                      .args = {Arg::node(piece)},
                      .chunk_role = "chunk_input",
                      .role = ProvenanceRole::kPartInput,
                      .origin = origin,
                      .region = region,
                      .part = k});
    node.kwargs = context().args.add(
        std::vector{Arg::text(out_.intern("memory_format")),
                    Arg::named(ArgKind::kMemoryFormat, out_.intern("torch.contiguous_format"))});
    return node;
  }
  bool is_contiguous(NodeId id) {
    const TensorType* type = tensor_of(context(), step().nodes[id].type);
    if (type == nullptr || type->strides.size() != type->sizes.size()) return true;
    ExprPool& pool = context().exprs;
    PolyId expected = pool.poly_number(1);
    for (std::size_t i = type->sizes.size(); i-- > 0;) {
      if (pool.constant(type->sizes[i]) == 1) continue;
      if (!facts_.equal(pool.poly(type->strides[i]), expected)) return false;
      expected = pool.mul(expected, pool.poly(type->sizes[i]));
    }
    return true;
  }

  NodeId whole(NodeId id, NodeId user) {
    const bool is_made_here = is_divided_here(id);
    if (NodeId known = whole_[id]) {
      const NodeId storage = effects_.storage_of(id);
      if (!is_made_here) {
        // A view of a join.
        const Write& write = part_write_[storage];
        if (write.time > whole_at_[id] && is_copied_by_join(storage)) fail_stale(id, write, user);
        return known;
      }
      const Write& write = whole_write_[storage];
      if (write.time > whole_at_[id] && write.value != id) fail_stale(id, write, user);
      if (part_write_[storage].time <= whole_at_[id]) return known;
    }
    if (is_made_here) require_fresh_parts(id, user);
    NodeId made;
    if (made_of_sizes_.contains(id) && last_write(id) == 0) {
      made = write_again(id, user);
    } else {
      made = join(id, user);
    }
    whole_.at(id) = made;
    whole_at_.at(id) = order_.size();
    return made;
  }

  // Whether a divided value depends on no divided tensor's content: a size, a factory, a view of such. Then
  // it is cheaper to make again than to join.
  bool is_made_of_sizes(NodeId id) const {
    const Node& node = in_.step().nodes[id];
    if ((node.extra && !node.extra->bindings.empty()) || (node.op != nullptr && node.op->writes))
      return false;
    if (node.op == nullptr || node.op->cost == CostClass::kCollective || node.op->cost == CostClass::kWait)
      return false;
    const std::string_view target = out_.text(node.target);
    const bool reads_size = target == "aten.sym_size.int" || target == "aten.sym_numel.default";
    bool only_sizes = true;
    for_each_input(*in_.context, node, [&](NodeId input) {
      const bool is_outside_size = !placements_.region[input] && reads_size;
      only_sizes &= is_outside_size || is_made_of_sizes_input(input);
    });
    return only_sizes;
  }
  bool is_made_of_sizes_input(NodeId input) const {
    if (!placements_.of(input).is_divided()) return true;
    if (placements_.region[input]) return made_of_sizes_.contains(input);
    const TypeId type = in_.step().nodes[input].type;
    return type && in_.context->types[type].kind == TypeKind::kScalar;
  }
  NodeId write_again(NodeId id, NodeId user) {
    const Node& original = in_.step().nodes[id];
    auto take = [&](Arg arg) { return arg.is_node() ? Arg::node(whole(arg.as_node(), user)) : arg; };
    Node node = original;
    node.args = context().args.map(original.args, take);
    node.kwargs = context().args.map(original.kwargs, take);
    append_provenance(context(), node,
                      {.pass = pass_,
                       .role = ProvenanceRole::kKept,
                       .origins = origins_of(original),
                       .reason = out_.intern("made of sizes only: wanted whole as well as in parts")});
    return append(std::move(node));
  }

  NodeId join(NodeId id, NodeId user) {
    const Placement& placement = placements_.placement[id];
    switch (placement.kind) {
      case PlacementKind::kSplit:
        return concatenate(id, placement.dim);
      case PlacementKind::kPartial:
        return sum(id);
      case PlacementKind::kCarried:
        return parts_of(id)[parts() - 1];
      default:
        break;
    }
    const Node& node = in_.step().nodes[id];
    const Node& wanted_by = in_.step().nodes[user];
    throw PassError(
        "chunk.local-wanted-whole",
        fmt::format(
            "'{}' ({}) has its rows in an order of its part's own (placed {}), and '{}' ({}) wants it whole",
            out_.text(node.name), out_.text(node.target), print_placement(placement),
            out_.text(wanted_by.name), out_.text(wanted_by.target)),
        site_of(in_, node),
        "select roots that contain both, or write the rows back to token order inside the module");
  }

  NodeId concatenate(NodeId id, int dim) {
    std::vector<Arg> items;
    for (std::size_t k = 0; k < parts(); ++k) items.push_back(Arg::node(parts_of(id)[k]));
    return append_whole(
        make({.name = fmt::format("{}_chunk_materialized", out_.text(in_.step().nodes[id].name)),
              .target = "aten.cat.default",
              .args = {list(items), Arg::integer(dim)},
              .chunk_role = "materialization",
              .role = ProvenanceRole::kMaterialize,
              .origin = id,
              .region = placements_.region[id]}),
        id);
  }

  // Added from the first part to the last: ((p0 + p1) + p2) + ...
  NodeId sum(NodeId id) {
    const Node& original = in_.step().nodes[id];
    const bool is_scalar = tensor_of(context(), original.type) == nullptr;
    const RegionId region = placements_.region[id];
    NodeId total = parts_of(id)[0];
    for (std::size_t k = 1; k < parts(); ++k) {
      const bool is_last = k + 1 == parts();
      Node node = make({.name = is_last ? fmt::format("{}_chunk_materialized", out_.text(original.name))
                                        : fmt::format("{}_chunk_sum{}", out_.text(original.name), k),
                        .target = is_scalar ? "operator.add" : "aten.add.Tensor",
                        .args = {Arg::node(total), Arg::node(parts_of(id)[k])},
                        .chunk_role = "materialization",
                        .role = ProvenanceRole::kMaterialize,
                        .origin = id,
                        .region = region});
      if (is_scalar) {
        node.chunk.proof = out_.intern("symbolic_size");
      } else if (placements_.regions[region.index()].backward) {
        node.chunk.proof = out_.intern("backward_partial_sum");
      }
      total = is_last ? append_whole(std::move(node), id) : append(std::move(node));
    }
    return total;
  }

  // ------------------------------------------------------------------------- sizes

  // The multiple of a token symbol that an extent is, where an input has the symbol for an extent.
  std::optional<TokenMultiple> input_extent(ExprId extent) {
    const auto multiple = tokens_.multiple(extent);
    return multiple && tokens_.source(multiple->symbol).node ? multiple : std::nullopt;
  }

  // The node of the extent `factor * u/N`, behind the inputs, one for the whole graph.
  NodeId extent(TokenMultiple multiple) {
    auto key = std::pair(multiple.symbol.index(), multiple.factor);
    if (auto found = extents_.find(key); found != extents_.end()) return found->second;
    NodeId result;
    const TokenExtents::Source& source = tokens_.source(multiple.symbol);
    if (multiple.factor != 1) {
      const NodeId one = extent({multiple.symbol, 1});
      result = add_size({.name = fmt::format("{}_x{}", out_.text(step().nodes[one].name), multiple.factor),
                         .target = "operator.mul",
                         .args = {Arg::node(one), Arg::integer(multiple.factor)},
                         .role = ProvenanceRole::kSize,
                         .origin = source.node});
    } else {
      const NodeId size = add_size({.name = fmt::format("{}_tokens", out_.text(multiple.symbol)),
                                    .target = "aten.sym_size.int",
                                    .args = {Arg::node(source.node), Arg::integer(source.dim)},
                                    .role = ProvenanceRole::kSize,
                                    .origin = source.node});
      result = add_size({.name = fmt::format("{}_part", out_.text(multiple.symbol)),
                         .target = "operator.floordiv",
                         .args = {Arg::node(size), Arg::integer(plan_.parts)},
                         .role = ProvenanceRole::kSize,
                         .origin = source.node});
    }
    extents_.emplace(key, result);
    return result;
  }
  // A part's share of a size that is linear in the token count.
  NodeId share(NodeId size, NodeId origin, RegionId region) {
    return append(make({.name = fmt::format("{}_part", out_.text(step().nodes[size].name)),
                        .target = "operator.floordiv",
                        .args = {Arg::node(size), Arg::integer(plan_.parts)},
                        .chunk_role = "chunk_input",
                        .role = ProvenanceRole::kSize,
                        .origin = origin,
                        .region = region}));
  }
  NodeId share_of_dimension(NodeId tensor, int dim, NodeId origin, RegionId region) {
    const NodeId size =
        append(make({.name = fmt::format("{}_size{}", out_.text(step().nodes[tensor].name), dim),
                     .target = "aten.sym_size.int",
                     .args = {Arg::node(tensor), Arg::integer(dim)},
                     .chunk_role = "split_boundary",
                     .role = ProvenanceRole::kSize,
                     .origin = origin,
                     .region = region}));
    return share(size, origin, region);
  }
  NodeId add_size(const NewCall& call) {
    size_nodes_.push_back(add(make(call)));
    return size_nodes_.back();
  }
  void place_size_nodes() {
    auto behind_inputs = std::find_if(order_.begin(), order_.end(), [&](NodeId id) {
      return step().nodes[id].kind != NodeKind::kPlaceholder;
    });
    order_.insert(behind_inputs, size_nodes_.begin(), size_nodes_.end());
  }

  struct PairHash {
    std::size_t operator()(const std::pair<std::uint32_t, std::int64_t>& p) const {
      return std::hash<std::int64_t>()(p.second * 1000003 + p.first);
    }
  };
  static constexpr std::uint32_t kNoParts = UINT32_MAX;

  const Graph& in_;
  const ChunkPlan& plan_;
  const Placements& placements_;
  const Effects effects_;
  IdSet<StringId> is_divided_symbol_;                 // bound by a divided node
  std::vector<SideTable<StringId, StringId>> twins_;  // per part
  Graph out_;
  Facts facts_;
  TokenExtents tokens_;
  StringId pass_;
  IdSet<StringId> used_names_;
  std::vector<NodeId> order_;
  std::vector<NodeId> size_nodes_;
  SideTable<NodeId, NodeId> whole_;
  SideTable<NodeId, std::size_t> whole_at_, made_at_;  // when the whole and the parts were written
  SideTable<NodeId, Write> whole_write_, part_write_;  // by storage class
  SideTable<NodeId, std::uint32_t> part_begin_{kNoParts};
  std::vector<NodeId> part_ids_;
  std::unordered_map<std::uint64_t, Slices> slices_;
  std::unordered_map<std::pair<std::uint32_t, std::int64_t>, NodeId, PairHash> extents_;
  IdSet<NodeId> made_of_sizes_;  // divided nodes
};

}  // namespace

Graph lower_chunks(const Graph& graph, const ChunkPlan& plan) {
  return Lowering(graph, plan).run();
}

}  // namespace epweave
