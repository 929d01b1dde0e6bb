#include "testing/wrong_rewrites.h"

#include <fmt/format.h>

#include <algorithm>

#include "testing/call_changes.h"
#include "testing/paired_nodes.h"
#include "testing/record_changes.h"
#include "testing/returned_copies.h"
#include "testing/rewrite_lies.h"
#include "testing/wrong_chains.h"

namespace epweave {
namespace {

std::string describe(const Graph& graph, NodeId id) {
  const Node& node = graph.step().nodes[id];
  return fmt::format("{} at %{}", graph.text(node.target), graph.text(node.name));
}

NodeId draw_call(const Graph& graph, Dice& dice) {
  const Body& step = graph.step();
  for (std::size_t tries = 0; tries < 20; ++tries) {
    const NodeId id = dice.pick(step.order);
    if (step.nodes[id].kind == NodeKind::kCall) return id;
  }
  return {};
}

// Applies the change; false: it does not fit.
bool apply(const CallChange& change, const CallSite& site) {
  if (!change.apply(site)) return false;
  const std::vector<NodeId>& order = site.editor.step().order;
  return std::ranges::find(order, site.call) == order.end() || site.editor.retype(site.call);
}

// The change of a node of A in every call that B has for it.
class CounterpartChange {
 public:
  CounterpartChange(const PairedNodes& paired, GraphEditor& b) : paired_(paired), b_(b) {}

  bool run(const CallChange& change, NodeId node) {
    const std::vector<NodeId> calls = paired_.computed(node);
    const auto parts = static_cast<std::uint32_t>(paired_.parts(node).size());
    for (std::uint32_t i = 0; i < calls.size(); ++i) {
      const auto find = [&, i](NodeId value) {
        const NodeId part = i < parts ? paired_.part(value, i) : NodeId();
        return part ? part : paired_.whole(value);
      };
      if (!apply(change, {b_, calls[i], i < parts ? parts : 1, find})) return false;
    }
    return !calls.empty();
  }

 private:
  const PairedNodes& paired_;
  GraphEditor& b_;
};

NodeId find_itself(NodeId value) {
  return value;
}

}  // namespace

WrongRewrites::WrongRewrites(const Graph& a, const Graph& b, std::uint64_t seed)
    : a_(a),
      b_(b),
      dice_(seed),
      copies_dice_(seed),
      paired_(std::make_unique<PairedNodes>(a, b)),
      faults_(std::make_unique<LieMaker>(a, b, static_cast<std::uint32_t>(seed))) {}
WrongRewrites::~WrongRewrites() = default;

std::optional<Mutant> WrongRewrites::make() {
  if (copies_dice_.one_in(11)) return return_copies();
  switch (dice_.below(10)) {
    case 0:
      return make_fault();
    case 1:
    case 2:
      return change_records();
    case 3:
    case 4:
    case 5:
    case 6:
      return change_calls();
    default:
      return WrongChain(a_, b_, *paired_, dice_).make();
  }
}

std::optional<Mutant> WrongRewrites::change_calls() {
  enum class Where : std::uint8_t { kOneOfB, kAllParts, kBoth, kOriginal };
  static constexpr std::string_view kNames[] = {"", " in all parts", " in both", " in the original"};
  static constexpr Where kChoices[] = {Where::kOneOfB, Where::kOneOfB,   Where::kAllParts, Where::kAllParts,
                                       Where::kBoth,   Where::kOriginal, Where::kBoth};
  const Where where = kChoices[dice_.below(std::size(kChoices))];
  const Graph& drawn_in = where == Where::kOneOfB ? b_ : a_;
  const bool needs_parts = where == Where::kAllParts || where == Where::kBoth;
  if (needs_parts && paired_->divided().empty()) return std::nullopt;
  const NodeId call = needs_parts ? dice_.pick(paired_->divided()) : draw_call(drawn_in, dice_);
  if (!call || drawn_in.step().nodes[call].kind != NodeKind::kCall) return std::nullopt;
  const std::optional<CallChange> change = CallChanges(drawn_in, dice_).draw(call);
  if (!change) return std::nullopt;
  GraphEditor a(a_), b(b_);
  const auto parts = static_cast<std::uint32_t>(
      std::max<std::size_t>(2, where == Where::kOneOfB ? 2 : paired_->parts(call).size()));
  if (where == Where::kOneOfB && !apply(*change, {b, call, parts, find_itself})) return std::nullopt;
  if ((where == Where::kBoth || where == Where::kOriginal) && !apply(*change, {a, call, parts, find_itself}))
    return std::nullopt;
  if (needs_parts && !CounterpartChange(*paired_, b).run(*change, call)) return std::nullopt;
  if (where == Where::kBoth) {
    // What the provenance says of a node's op.
    const Node& changed = a.node(call);
    for (Origin& origin : b.graph().origins)
      if (origin.name == changed.name) origin.target = changed.target;
  }
  return Mutant{a.take(), b.take(),
                fmt::format("{}{}", change->name, kNames[static_cast<std::size_t>(where)]),
                describe(drawn_in, call), where == Where::kBoth || where == Where::kOriginal};
}

std::optional<Mutant> WrongRewrites::make_fault() {
  const std::vector<std::string>& kinds = dice_.one_in(2) ? LieMaker::kinds() : fault_kinds();
  const std::string& kind = dice_.pick(kinds);
  std::optional<Fault> fault = faults_->make(kind);
  if (!fault) return std::nullopt;
  return Mutant{a_, std::move(fault->graph), "fault: " + kind, "%" + fault->where};
}

std::optional<Mutant> WrongRewrites::return_copies() {
  ReturnedCopies copies(a_, b_, *paired_, copies_dice_);
  if (!copies.make()) return std::nullopt;
  return Mutant{copies.take_a(), copies.take_b(), "returned copy", copies.what(), true};
}

std::optional<Mutant> WrongRewrites::change_records() {
  std::optional<RecordChange> change = draw_record_change(b_, dice_);
  if (!change) return std::nullopt;
  return Mutant{a_, std::move(change->graph), std::move(change->kind), std::move(change->place)};
}

}  // namespace epweave
