#include "passes/computed_slices.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <map>
#include <set>
#include <tuple>

#include "ir/walk.h"
#include "ops/bind.h"
#include "ops/op.h"
#include "ops/type_rules.h"
#include "passes/node_names.h"
#include "passes/pieces.h"
#include "passes/rank_elements.h"
#include "passes/record.h"

namespace epweave {
namespace {

constexpr std::string_view kElementTarget = "operator.getitem";

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
      map_arguments(context_, body_, id, follow);
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

}  // namespace

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

void take_elements(Graph& graph, Body& body, std::span<const NodeId> slices) {
  if (!slices.empty()) ElementFinder(graph, body, slices).replace();
}

}  // namespace epweave
