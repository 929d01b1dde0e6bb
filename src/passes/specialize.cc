#include "passes/specialize.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <limits>
#include <map>
#include <set>
#include <string_view>
#include <tuple>

#include "analysis/devices_on_rank.h"
#include "analysis/random_draws.h"
#include "analysis/rank_literals.h"
#include "analysis/rank_view.h"
#include "ir/walk.h"
#include "ops/bind.h"
#include "ops/mesh_calls.h"
#include "ops/op.h"
#include "ops/type_rules.h"
#include "passes/extra_group.h"
#include "passes/node_names.h"
#include "passes/pieces.h"
#include "passes/rank_devices.h"
#include "passes/rank_elements.h"
#include "passes/record.h"
#include "passes/replace_symbols.h"
#include "passes/short_shards.h"

namespace epweave {
namespace {

// --------------------------------------------------------------------------- the rank's groups

// The rank's rows of the group table, and the name of each of the file's groups on that rank.
class RankGroups {
 public:
  RankGroups(const Graph& graph, const World& world, Rank rank) {
    for (const ProcessGroup& group : graph.groups) {
      auto here = group_on_rank(graph, world, group, rank);
      if (here && here->is_numbered) numbered_.emplace_back(graph.text(here->name));
      if (!here) {
        names_.emplace(group.name, StringId());
        continue;
      }
      if (!names_.emplace(group.name, here->name).second) continue;
      ProcessGroup& row = rows_.emplace_back(group);
      row.name = here->name;
      row.ranks = std::move(here->ranks);
    }
    for (ProcessGroup& row : rows_)
      if (row.split_from) row.split_from = find(row.split_from).value_or(row.split_from);
  }

  // None: not in the table, or its members on that rank do not follow.
  std::optional<StringId> find(StringId name) const {
    const auto found = names_.find(name);
    if (found == names_.end() || !found->second) return std::nullopt;
    return found->second;
  }
  bool is_listed(StringId name) const { return names_.contains(name); }
  const std::vector<ProcessGroup>& rows() const { return rows_; }
  const std::vector<std::string>& numbered() const { return numbered_; }

 private:
  std::map<StringId, StringId> names_;  // none: does not follow
  std::vector<ProcessGroup> rows_;
  std::vector<std::string> numbered_;
};

// --------------------------------------------------------------------------- constants of ranks

// What only serves to compute coordinates: integers on the host, from a constant by calls of one
// operand each.
class RankConstants {
 public:
  RankConstants(const Graph& graph, const Body& body) : graph_(graph), context_(*graph.context) {
    for (const auto [id, node] : walk(context_, body)) {
      const TensorType* tensor = tensor_of(context_, node.type);
      if (tensor == nullptr || !is_integral(tensor->dtype) || context_.text(tensor->device) != "cpu")
        continue;
      if (node.kind == NodeKind::kGetAttr && node.attr.is(ArgKind::kTensor)) source_.at(id) = id;
      if (node.kind == NodeKind::kCall) add_call(body, id, node);
    }
  }

  bool contains(NodeId id) const { return source_[id].valid(); }

  // The elements of a contiguous value, or none.
  std::optional<std::vector<std::int64_t>> elements(const Body& body, NodeId id) const {
    const TensorType* tensor = tensor_of(context_, body.nodes[id].type);
    if (!contains(id) || tensor == nullptr || tensor->offset) return std::nullopt;
    std::int64_t count = 1;
    for (std::size_t d = tensor->rank(); d-- > 0;) {
      const auto size = context_.exprs.constant(tensor->sizes[d]);
      if (!size || d >= tensor->strides.size()) return std::nullopt;
      if (*size != 1 && context_.exprs.constant(tensor->strides[d]) != count) return std::nullopt;
      count *= *size;
    }
    std::vector<std::int64_t> elements;
    const auto fields = context_.args.children(body.nodes[source_[id]].attr);
    if (fields.size() == 3) collect(fields[2], elements);
    if (static_cast<std::int64_t>(elements.size()) != count) return std::nullopt;
    return elements;
  }

 private:
  void add_call(const Body& body, NodeId id, const Node& node) {
    if (node.op == nullptr || node.op->is_effectful || draws_random(graph_, body, node)) return;
    std::size_t count = 0;
    NodeId input;
    for_each_input(context_, node, [&](NodeId operand) { ++count, input = operand; });
    if (count != 1 || !contains(input)) return;
    // A constant that is written is somebody's state.
    if (node.op->writes && body.nodes[input].kind == NodeKind::kGetAttr) return;
    const NodeId source = source_[input];  // `at` may move the table
    source_.at(id) = source;
  }

  void collect(Arg list, std::vector<std::int64_t>& elements) const {
    if (list.is_int()) elements.push_back(list.as_int());
    if (!list.is_list()) return;
    for (Arg item : context_.args.children(list)) collect(item, elements);
  }

  const Graph& graph_;
  const Context& context_;
  SideTable<NodeId, NodeId> source_;  // the constant that a value is made of
};

// --------------------------------------------------------------------------- elements of splits

constexpr std::string_view kElementTarget = "operator.getitem";

// Slices whose bounds the graph computes.
std::vector<NodeId> find_computed_slices(const Context& context, const Body& body) {
  std::vector<NodeId> found;
  for (const auto [id, node] : walk(context, body)) {
    if (!has_family(node, OpFamily::kSlice)) continue;
    std::size_t inputs = 0;
    for_each_input(context, node, [&](NodeId) { ++inputs; });
    if (inputs > 1) found.push_back(id);
  }
  return found;
}

// Of such slices, takes those whose bounds are numbers now from the split, or from the slice that
// had numbers before, that gives the same piece, where there is one: each reader the nearest before
// it, as equal pieces may stand before and behind. Where passes have left none, the slice becomes
// the call with which ranks take the piece, as it says itself (passes/rank_elements.h).
class ElementFinder {
 public:
  ElementFinder(Graph& graph, Body& body, std::span<const NodeId> slices)
      : graph_(graph),
        context_(*graph.context),
        facts_(graph),
        names_(graph, body),
        body_(body),
        calls_(context_, body),
        finder_(context_),
        slices_(slices) {
    IdSet<NodeId> computed;
    for (NodeId id : slices) computed.insert(id);
    std::uint32_t count = 0;
    for (const auto [id, node] : walk(context_, body)) {
      const std::uint32_t here = count++;
      position_.at(id) = here;
      for_each_input(context_, node, [&](NodeId input) {
        if (first_use_[input] == kUnused) first_use_.at(input) = here;
      });
      if (computed.contains(id)) continue;
      if (const auto piece = finder_.find(body, node)) elements_[*piece].push_back(id);
      if (has_family(node, OpFamily::kSplit)) splits_[whole_of(node)].push_back(id);
    }
  }

  void replace() {
    SideTable<NodeId, const std::vector<NodeId>*> elements_of{
        nullptr};  // those that a slice is equal to, in order
    for (NodeId id : slices_) {
      const auto call = calls_.read(body_.nodes[id]);
      body_.nodes[id].extra = without_element(context_, body_.nodes[id].extra);
      const std::vector<NodeId>* equal = find_elements(id, call);
      if (equal != nullptr && nearest_before(*equal, first_use_[id]))
        elements_of.at(id) = equal;
      else if (call && call->op != nullptr)
        elements_of.at(id) = restore(id, *call);
    }
    std::erase_if(body_.order, [&](NodeId id) { return elements_of[id] != nullptr; });
    insert_splits();
    if (!beside_others_.empty()) put_in_order();
    for (NodeId id : body_.order) {
      const auto follow = [&](Arg arg) {
        const std::vector<NodeId>* equal = arg.is_node() ? elements_of[arg.as_node()] : nullptr;
        return equal == nullptr ? arg : Arg::node(nearest_before(*equal, position_[id]));
      };
      map_arguments(context_, body_.nodes[id], follow);
    }
  }

 private:
  NodeId whole_of(const Node& node) const {
    const Arg whole = arg_of(context_, node, 0);
    return whole.is_node() ? whole.as_node() : NodeId();
  }

  // Of what the slice says that it stands for; of slices that say nothing, any. Slices that say the
  // same share one list.
  const std::vector<NodeId>* find_elements(NodeId id, const std::optional<Node>& call) {
    const Node& slice = body_.nodes[id];
    const auto piece = finder_.find(body_, slice);
    const auto found = piece ? elements_.find(*piece) : elements_.end();
    if (found == elements_.end()) return nullptr;
    Said said{*piece, slice.type};
    if (call)
      said = {*piece,           slice.type,       call->name,          call->target,
              call->args.begin, call->args.count, call->is_backward(), call->chunk.part};
    const auto [known, is_new] = equal_.try_emplace(said);
    if (!is_new) return &known->second;
    for (NodeId element : found->second)
      if (body_.nodes[element].type == slice.type && (!call || is_taken_by(*call, body_.nodes[element])))
        known->second.push_back(element);
    return &known->second;
  }
  bool is_taken_by(const Node& call, const Node& element) const {
    const auto tuple = tuple_element(context_, body_, element);
    if (has_family(call, OpFamily::kSplit)) return tuple && calls_.is_call(body_.nodes[tuple->tuple], call);
    return calls_.is_beside(element, call);
  }

  // The last of the nodes, which are in order, that stands before a position; or none.
  NodeId nearest_before(const std::vector<NodeId>& nodes, std::uint32_t position) const {
    const auto behind = first_at(nodes, position);
    return behind == nodes.begin() ? NodeId() : *std::prev(behind);
  }

  // The first of the nodes, which are in order, that stands at a position or behind it.
  std::vector<NodeId>::const_iterator first_at(const std::vector<NodeId>& nodes,
                                               std::uint32_t position) const {
    return std::ranges::lower_bound(nodes, position, {}, [&](NodeId id) { return position_[id]; });
  }

  void add_in_order(std::vector<NodeId>& nodes, NodeId id) const {
    nodes.insert(first_at(nodes, position_[id]), id);
  }

  // Makes the slice the call by which ranks take its piece, if that gives the piece. Returns what
  // was made so for another slice by the same call.
  const std::vector<NodeId>* restore(NodeId id, Node call) {
    const auto piece = finder_.find(body_, body_.nodes[id]);
    const NodeId known = has_family(call, OpFamily::kSplit) ? find_split(id, call) : NodeId();
    call.type = known ? body_.nodes[known].type : infer_type(facts_, graph_, body_, call);
    if (!piece || !call.type) return nullptr;
    std::vector<NodeId>& made = restored_[{*piece, call.name, call.is_backward(), call.chunk.part}];
    if (!made.empty()) return &made;
    made.push_back(id);
    if (call.op->family == OpFamily::kSplit) take_from_split(id, *piece, call, known);
    if (call.op->family == OpFamily::kSlice && finder_.find(body_, call) == piece)
      body_.nodes[id].args = call.args;
    return nullptr;
  }

  // `known`: a split by that call, or none.
  void take_from_split(NodeId id, const TakenPiece& piece, const Node& call, NodeId known) {
    const auto index = finder_.find_index(call, piece);
    if (!index) return;
    const auto place = static_cast<std::size_t>(*index);
    if (context_.types[call.type].elements[place] != body_.nodes[id].type) return;
    const NodeId split = known ? known : body_.nodes.push_back(call);
    Node element = body_.nodes[id];
    element.target = graph_.intern(kElementTarget);
    element.kwargs = {};
    resolve_op(context_, element);
    const Arg args[] = {Arg::node(split), Arg::integer(*index)};
    element.args = context_.args.add(args);
    if (known)
      beside_others_.insert(id);
    else
      add_split(id, split);
    body_.nodes[id] = element;
  }

  // A call of the same arguments that stands before the slice.
  NodeId find_split(NodeId id, const Node& call) const {
    const auto found = splits_.find(whole_of(call));
    if (found == splits_.end()) return {};
    const std::vector<NodeId>& splits = found->second;
    for (auto at = first_at(splits, position_[id]); at != splits.begin();)
      if (const NodeId split = *--at; calls_.is_call(body_.nodes[split], call)) return split;
    return {};
  }

  void add_split(NodeId slice, NodeId split) {
    split_calls_[split] = body_.nodes[split].name;
    body_.nodes[split].name = names_.make(graph_.text(body_.nodes[split].name));
    record_added(body_.nodes[split]);
    position_.at(split) = position_[slice];
    add_in_order(splits_[whole_of(body_.nodes[split])], split);
    split_before_[slice] = split;
  }

  // The element is what the slice was, such as one part of a node; the split is there for it.
  void record_added(Node& split) {
    if (split.provenance.empty()) return;
    Provenance record = split.provenance.back();
    record.role = ProvenanceRole::kAdded;
    record.part = record.parts = 0;
    split.provenance = {};
    append_provenance(context_, split, record);
  }

  // Each in front of its element. Parts of one element stand side by side, as a pass has made them;
  // of the rank's own graph it makes the parts of the split first, so they stand in front.
  void insert_splits() {
    if (split_before_.empty()) return;
    std::vector<NodeId> order;
    const auto split_of = [&](NodeId id) {
      const auto found = split_before_.find(id);
      return found == split_before_.end() ? NodeId() : found->second;
    };
    for (auto at = body_.order.begin(); at != body_.order.end();) {
      const NodeId split = split_of(*at);
      const auto is_part_beside = [&](NodeId id) {
        return split && split_of(id) && split_calls_.at(split_of(id)) == split_calls_.at(split) &&
               body_.nodes[id].chunk.part != body_.nodes[*at].chunk.part;
      };
      const auto end = std::find_if_not(std::next(at), body_.order.end(), is_part_beside);
      for (auto part = at; split && part != end; ++part) order.push_back(split_of(*part));
      order.insert(order.end(), at, end);
      at = end;
    }
    body_.order = std::move(order);
  }

  // Elements of one split that stand beside each other are in the order of their indices.
  void put_in_order() {
    const auto element_of = [&](NodeId id) { return tuple_element(context_, body_, body_.nodes[id]); };
    const auto is_taken = [&](NodeId id) { return beside_others_.contains(id); };
    const auto index_of = [&](NodeId id) { return element_of(id)->index; };
    for (auto at = body_.order.begin(); at != body_.order.end();) {
      const auto first = element_of(*at);
      const auto end = std::find_if_not(std::next(at), body_.order.end(), [&](NodeId id) {
        const auto beside = first ? element_of(id) : std::nullopt;
        return beside && beside->tuple == first->tuple;
      });
      std::vector<NodeId> taken, others;
      std::partition_copy(at, end, std::back_inserter(taken), std::back_inserter(others), is_taken);
      if (!taken.empty()) {
        std::ranges::stable_sort(taken, {}, index_of);
        std::ranges::merge(others, taken, at, {}, index_of, index_of);
      }
      at = end;
    }
  }

  Graph& graph_;
  Context& context_;
  Facts facts_;
  NodeNames names_;
  Body& body_;
  const ElementCalls calls_;
  PieceFinder finder_;
  std::span<const NodeId> slices_;
  std::map<TakenPiece, std::vector<NodeId>> elements_;  // in order
  // What a slice says: its piece and type, and its call's name, target, arguments, direction and
  // part.
  struct Said {
    TakenPiece piece;
    TypeId type;
    StringId name, target;
    std::uint32_t first_argument = 0, arguments = 0;  // equal ones are one range
    bool is_backward = false;
    std::optional<std::int32_t> part;
    friend auto operator<=>(const Said&, const Said&) = default;
  };
  std::map<Said, std::vector<NodeId>> equal_;     // the elements that such slices may be, in order
  std::map<NodeId, std::vector<NodeId>> splits_;  // by what they divide, in order
  using Restored = std::tuple<TakenPiece, StringId, bool, std::optional<std::int32_t>>;
  std::map<Restored, std::vector<NodeId>> restored_;  // by piece, name of the call, direction and part
  std::map<NodeId, NodeId> split_before_;             // by the slice that it is made for
  std::map<NodeId, StringId> split_calls_;            // by such a split: the name of the call that it is
  std::set<NodeId> beside_others_;                    // elements taken from splits that were there
  static constexpr auto kUnused = std::numeric_limits<std::uint32_t>::max();
  SideTable<NodeId, std::uint32_t> position_, first_use_{kUnused};  // in the order
};

// --------------------------------------------------------------------------- one body

class BodySpecializer {
 public:
  BodySpecializer(Graph& graph, const RankGroups& groups, RankChange change)
      : graph_(graph), context_(*graph.context), groups_(groups), change_(change) {
    pass_ = graph.intern("specialize");
    reason_ = graph.intern(fmt::format("rank {}", change.to));
  }

  // Everything but coordinates, whose numbers go to `numbers`.
  void run(Body& body, SymbolNumbers& numbers) {
    const RankConstants constants(graph_, body);
    folded_ = SideTable<NodeId, std::optional<Arg>>();
    for (const auto [id, row] : walk(context_, body)) {
      Node& node = body.nodes[id];
      const MeshCall call = mesh_call_of(node);
      const Node before = node;
      rename_group(node);
      node.args = arguments(node, node.args);
      node.kwargs = arguments(node, node.kwargs);
      node.type = recorded(node);
      if (call == MeshCall::kGroup) folded_.at(id) = look_up(body, node);
      if (call == MeshCall::kDevice) folded_.at(id) = recorded_device(node);
      if (call == MeshCall::kCoordinate) add_coordinate(body, node, constants, numbers);
      const bool is_changed =
          before.args != node.args || before.kwargs != node.kwargs || before.type != node.type;
      if (is_changed && &body == &graph_.step() && call == MeshCall::kNone)
        record_specialized(context_, node, pass_, reason_);
    }
  }

  // Drops lookups, coordinates and constants of ranks that nothing reads any more.
  void drop_unread(Body& body) const {
    const RankConstants constants(graph_, body);
    IdSet<NodeId> read(body.nodes.size());
    std::vector<NodeId> kept;
    for (const auto [id, node] : walk_back(context_, body)) {
      const bool served = mesh_call_of(node) != MeshCall::kNone || constants.contains(id);
      if (served && !read.contains(id)) continue;
      for_each_input(context_, node, [&](NodeId input) { read.insert(input); });
      kept.push_back(id);
    }
    std::ranges::reverse(kept);
    body.order = std::move(kept);
  }

 private:
  ArgRange arguments(const Node& node, ArgRange range) {
    return map_meshes(node, context_.args.map(range, [&](Arg arg) { return leaf(node, arg); }));
  }

  Arg leaf(const Node& node, Arg arg) const {
    if (arg.is_node()) return folded_[arg.as_node()].value_or(arg);
    if (arg.is(ArgKind::kProcessGroup))
      return Arg::named(ArgKind::kProcessGroup, name_of(node, arg.as_name()));
    return arg;
  }

  // Mesh constants among arguments; those within lists stand for no rank's part of the program.
  ArgRange map_meshes(const Node& node, ArgRange range) {
    std::vector<Arg> args;
    for (std::uint32_t i = 0; i < range.count; ++i) {
      const Arg arg = context_.args[range][i];
      if (args.empty() && !arg.is(ArgKind::kMesh)) continue;
      if (args.empty()) args.assign(context_.args[range].begin(), context_.args[range].end());
      if (arg.is(ArgKind::kMesh)) args[i] = mesh_here(node, arg);
    }
    return args.empty() ? range : context_.args.add(args);
  }

  // Collectives name their group by a text.
  void rename_group(Node& node) {
    const auto position = node.op != nullptr ? node.op->find_param("group_name") : std::nullopt;
    if (!position) return;
    const Arg* group = find_arg(context_, node, *position, "group_name");
    if (group == nullptr || !group->is(ArgKind::kText)) return;
    const StringId before = group->as_name(), name = name_of(node, before);
    if (name != before) set_group(context_, node, name);
  }

  StringId name_of(const Node& node, StringId group) const {
    if (const auto name = groups_.find(group)) return *name;
    if (!groups_.is_listed(group))
      throw PassError("specialize.group",
                      fmt::format("process group {} is not in the graph's table", graph_.text(group)),
                      site_of(graph_, node), "export the graph with its process groups");
    throw PassError(
        "specialize.group",
        fmt::format("the members of process group {} on rank {} do not follow from those on rank {}",
                    graph_.text(group), change_.to, change_.from),
        site_of(graph_, node),
        "make the graph of traces of more ranks (epweave generalize), which list their groups");
  }

  Arg mesh_here(const Node& node, Arg mesh) {
    const auto value = read_mesh(context_, mesh);
    const auto moved = value ? mesh_through(*value, change_) : std::nullopt;
    if (!moved)
      throw PassError("specialize.mesh",
                      fmt::format("the mesh through rank {} does not follow from that through rank {}: its "
                                  "ranks are not evenly spaced, or do not hold rank {}",
                                  change_.to, change_.from, change_.from),
                      site_of(graph_, node), "export the graph with the meshes of its own rank");
    return moved->ranks == value->ranks ? mesh : write_mesh(context_, *moved);
  }

  TypeId recorded(const Node& node) {
    if (!node.type || context_.types[node.type].kind != TypeKind::kValue) return node.type;
    Type type = context_.types[node.type];
    if (type.value.is(ArgKind::kMesh)) {
      const Arg mesh = mesh_here(node, type.value);
      if (mesh == type.value) return node.type;
      type.value = mesh;
    } else if (type.value.is(ArgKind::kProcessGroup)) {
      type.value = Arg::named(ArgKind::kProcessGroup, name_of(node, type.value.as_name()));
    } else {
      return node.type;
    }
    return context_.types.intern(std::move(type));
  }

  // The name of a group that is looked up: as recorded, else by the members that the mesh gives.
  Arg look_up(const Body& body, const Node& node) {
    if (node.type && context_.types[node.type].kind == TypeKind::kValue &&
        context_.types[node.type].value.is(ArgKind::kProcessGroup))
      return Arg::text(context_.types[node.type].value.as_name());
    const Arg mesh_arg = arg_of(context_, node, 0), dim = arg_of(context_, node, 1);
    const auto mesh = mesh_arg.is_node() ? recorded_mesh(context_, body.nodes[mesh_arg.as_node()])
                                         : read_mesh(context_, mesh_arg);
    if (mesh && dim.is_int())
      if (const auto members = members_in(*mesh, dim.as_int()))
        for (const ProcessGroup& row : groups_.rows())
          if (row.ranks == *members) return Arg::text(row.name);
    throw PassError(
        "specialize.group",
        fmt::format("the group that is looked up on rank {} is not in the graph's table", change_.to),
        site_of(graph_, node), "export the graph with its process groups");
  }

  std::optional<std::vector<Rank>> members_in(const MeshValue& mesh, std::int64_t dim) const {
    const auto strides = strides_of(mesh);
    if (dim < 0) dim += static_cast<std::int64_t>(mesh.shape.size());
    if (!strides || dim < 0 || static_cast<std::size_t>(dim) >= mesh.shape.size()) return std::nullopt;
    const std::uint32_t extent = mesh.shape[static_cast<std::size_t>(dim)];
    const GroupRule rule{std::max((*strides)[static_cast<std::size_t>(dim)], 1U), extent};
    return rule.members(change_.to);
  }

  Arg recorded_device(const Node& node) const {
    const bool is_known = node.type && context_.types[node.type].kind == TypeKind::kValue &&
                          context_.types[node.type].value.is(ArgKind::kDevice);
    if (is_known) return context_.types[node.type].value;
    throw PassError("specialize.device", "the device that is looked up is not recorded",
                    site_of(graph_, node), "export the graph with recorded values");
  }

  void add_coordinate(const Body& body, const Node& node, const RankConstants& constants,
                      SymbolNumbers& numbers) const {
    const auto decline = [&](const std::string& problem) {
      throw PassError(
          "specialize.coordinate", problem, site_of(graph_, node),
          "trace the graph in torchtitan's compile-on-one-rank mode, or generalize per-rank traces");
    };
    if (!node.type || context_.types[node.type].kind != TypeKind::kScalar)
      decline("no symbol is recorded for the coordinate");
    const std::vector<StringId> symbols = context_.exprs.symbols(context_.types[node.type].expr);
    const Arg of = arg_of(context_, node, 0), dim = arg_of(context_, node, 1);
    std::optional<std::int64_t> place;
    if (of.is_node() && dim.is_int()) place = find_place(body, of.as_node(), dim.as_int(), constants);
    if (!place)
      decline(fmt::format(
          "the coordinate of rank {} is not known: its mesh is no constant that holds the rank", change_.to));
    if (symbols.empty()) {
      if (context_.exprs.constant(context_.types[node.type].expr) != *place)
        decline("the coordinate is recorded as another number");
      return;
    }
    numbers.at(symbols.front()) = *place;
  }

  std::optional<std::int64_t> find_place(const Body& body, NodeId of, std::int64_t dim,
                                         const RankConstants& constants) const {
    std::vector<std::int64_t> shape, ranks;
    if (const auto mesh = recorded_mesh(context_, body.nodes[of])) {
      shape.assign(mesh->shape.begin(), mesh->shape.end());
      ranks.assign(mesh->ranks.begin(), mesh->ranks.end());
    } else if (auto elements = constants.elements(body, of)) {
      for (ExprId size : tensor_of(context_, body.nodes[of].type)->sizes)
        shape.push_back(*context_.exprs.constant(size));
      ranks = std::move(*elements);
    }
    if (dim < 0) dim += static_cast<std::int64_t>(shape.size());
    const auto at = std::ranges::find(ranks, static_cast<std::int64_t>(change_.to));
    if (at == ranks.end() || dim < 0 || dim >= static_cast<std::int64_t>(shape.size())) return std::nullopt;
    std::int64_t inner = 1;
    for (std::size_t d = static_cast<std::size_t>(dim) + 1; d < shape.size(); ++d) inner *= shape[d];
    return (at - ranks.begin()) / inner % shape[static_cast<std::size_t>(dim)];
  }

  Graph& graph_;
  Context& context_;
  const RankGroups& groups_;
  RankChange change_;
  SideTable<NodeId, std::optional<Arg>> folded_;
  StringId pass_, reason_;
};

// Symbols of coordinates that a pass has dropped: of a coordinate's range, and bound by no node.
void drop_unbound_coordinates(Graph& graph, const World& world) {
  IdSet<StringId> bound;
  for (const Body& body : graph.bodies)
    for (const auto [id, node] : walk_extras(*graph.context, body))
      if (node.extra != nullptr)
        for (const Binding& binding : node.extra->bindings) bound.insert(binding.symbol);
  std::erase_if(graph.symbols, [&](const Symbol& symbol) {
    if (!symbol.unbacked.value_or(false) || !symbol.lower || !symbol.upper || bound.contains(symbol.name))
      return false;
    const auto lower = graph.context->exprs.constant(*symbol.lower),
               upper = graph.context->exprs.constant(*symbol.upper);
    return lower == 0 && upper && *upper >= 0 && world.size % (*upper + 1) == 0;
  });
}

// Numbers of the file's rank that the graph has where it must compute the rank's own.
void require_numbers_of(const Graph& graph, RankChange change) {
  if (change.from == change.to) return;
  for (const RankLiteral& literal : find_rank_literals(graph, change.from).proved) {
    if (!literal.value.is_int() || literal.values_at(change.to) == std::set{literal.value.as_int()}) continue;
    throw PassError(
        "specialize.baked",
        fmt::format("{} is rank {}'s; on rank {} it must be {} = {}", literal.value.as_int(), change.from,
                    change.to, print_expression(graph, literal), print_values(literal, change.to)),
        site_of(graph, graph.step().nodes[literal.node]),
        "replace such numbers first: epweave generalize G --repair -o OUT");
  }
}

// Which argument of an op without a row in the op table is a group's name, nobody knows.
void require_known_groups(const Graph& graph, const RankGroups& groups, RankChange change) {
  for (const auto [id, node] : walk(*graph.context, graph.step()))
    for (StringId group : list_guessed_groups(graph, node))
      if (groups.find(group) != group)
        throw PassError("specialize.group",
                        fmt::format("{} takes process group {} by name, which is another on rank {}, and is "
                                    "not in the op table",
                                    graph.text(node.target), graph.text(group), change.to),
                        site_of(graph, node), "trace the graph on that rank");
}

// The device on which the tracer says that the step runs.
void rename_device_of_info(Graph& graph, const DeviceNames& names) {
  const Arg* device = find_entry(*graph.context, graph.info, "device");
  if (device == nullptr || !device->is(ArgKind::kText)) return;
  if (const auto found = names.find(device->as_name()); found != names.end())
    set_info(graph, "device", Arg::text(found->second));
}

}  // namespace

PassResult specialize(const Graph& graph, const SpecializeOptions& options) {
  const World world = read_world(graph);
  if (options.rank < 0 || options.rank >= static_cast<std::int64_t>(world.size))
    throw PassError("specialize.rank",
                    fmt::format("there is no rank {} in a world of {}", options.rank, world.size), {},
                    fmt::format("name a rank from 0 to {}", world.size - 1));
  const RankChange change{world.file_rank, static_cast<Rank>(options.rank)};
  if (!is_rank_agnostic(graph)) {
    if (change.from == change.to) return {graph, {fmt::format("the graph is rank {}'s already", change.to)}};
    throw PassError(
        "specialize.one-rank",
        fmt::format("the graph was traced for rank {} alone; numbers of that rank may stand in it",
                    change.from),
        {},
        "make one graph for all ranks first: epweave generalize, of this graph with --repair, or "
        "of the traces of several ranks");
  }
  if (options.baked == BakedNumbers::kRefuse) require_numbers_of(graph, change);
  PassResult result{graph};
  Graph& made = result.graph;
  if (options.baked == BakedNumbers::kRefuse)
    take_shards_of(made, {change, "specialize", fmt::format("rank {}", change.to)});
  const RankGroups groups(graph, world, change.to);
  if (options.baked == BakedNumbers::kRefuse) require_known_groups(graph, groups, change);
  BodySpecializer specializer(made, groups, change);
  SymbolNumbers numbers;
  for (Body& body : made.bodies) specializer.run(body, numbers);
  made.groups = groups.rows();
  if (numbers.size() != 0) {
    std::vector<std::vector<NodeId>> slices;
    for (const Body& body : made.bodies) slices.push_back(find_computed_slices(*made.context, body));
    replace_symbols(made, numbers,
                    {.pass = "specialize",
                     .reason = fmt::format("rank {}", change.to),
                     .remedy = "trace the graph so that it holds for every rank",
                     .fold_all = false});
    for (std::size_t i = 0; i < made.bodies.size(); ++i)
      if (!slices[i].empty()) ElementFinder(made, made.bodies[i], slices[i]).replace();
  }
  for (Body& body : made.bodies) specializer.drop_unread(body);
  drop_unbound_coordinates(made, world);
  if (find_entry(*made.context, made.info, kRankDevicesKey) != nullptr) {
    if (const auto devices = devices_on_rank(graph, change.to)) {
      rename_devices(
          made, *devices,
          {.pass = made.intern("specialize"), .reason = made.intern(fmt::format("rank {}", change.to))});
      rename_device_of_info(made, *devices);
    } else {
      result.notes.push_back(fmt::format(
          "what rank {} calls its device is not recorded: it has rank {}'s name", change.to, change.from));
    }
  }
  set_info(made, "rank", Arg::integer(change.to));
  set_info(made, kRankGroupsKey, std::nullopt);
  set_info(made, kRankDevicesKey, std::nullopt);
  set_info(made, kRankAgnosticKey, std::nullopt);
  set_info(made, kFingerprintKey, std::nullopt);  // of the graph for all ranks
  if (find_entry(*made.context, made.info, kOneRankKey) != nullptr)
    set_info(made, kOneRankKey, Arg::boolean(false));
  if (!groups.numbered().empty())
    result.notes.push_back(
        fmt::format("process groups {} are named by torch's numbering: their names on rank {} "
                    "are not recorded",
                    fmt::join(groups.numbered(), ", "), change.to));
  return result;
}

}  // namespace epweave
