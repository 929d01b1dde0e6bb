// Random changes of a call that look legal: of a literal, an operand, a list, a keyword, the op. A
// change is drawn once and applied in the same way to each call that stands for one node
// (wrong_rewrites.h).
#pragma once

#include <functional>
#include <optional>
#include <string_view>

#include "ops/op.h"
#include "testing/dice.h"
#include "testing/graph_editor.h"

namespace epweave {

struct CallSite {
  GraphEditor& editor;
  NodeId call;
  std::uint32_t parts;  // into how many its node is divided
  std::function<NodeId(NodeId)>
      find;  // what stands here for a value of the graph that the change was drawn in
};

struct CallChange {
  std::string_view name;
  std::function<bool(const CallSite&)>
      apply;  // false: no place for it here; does not check that arguments fit
};

// Of a call of this graph, given what precedes it there.
class CallChanges {
 public:
  CallChanges(const Graph& graph, Dice& dice) : graph_(graph), context_(*graph.context), dice_(dice) {}
  std::optional<CallChange> draw(NodeId call);

 private:
  std::optional<CallChange> change_literal(NodeId call);
  std::optional<CallChange> replace_operand(NodeId call);
  std::optional<CallChange> exchange_operands(NodeId call);
  std::optional<CallChange> change_list(NodeId call);
  std::optional<CallChange> change_keyword(NodeId call);
  std::optional<CallChange> change_target(NodeId call);
  std::optional<CallChange> leave_out(NodeId call);
  Arg another_text(Arg text);
  NodeId draw_value_like(NodeId value, NodeId user);

  const Graph& graph_;
  Context& context_;
  Dice& dice_;
};

// A value for a parameter of an op that is no tensor; none: there is none for a parameter of this
// type.
std::optional<Arg> draw_literal(const Graph& graph, Dice& dice, const OpParam& param);

}  // namespace epweave
