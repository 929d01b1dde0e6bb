// A rank's values, and how a node makes its own of them.
#pragma once

#include <span>
#include <vector>

#include "replay/run/call_bounds.h"
#include "replay/run/call_values.h"
#include "replay/run/draw_numbers.h"
#include "replay/run/rank_clock.h"
#include "replay/run/rank_collectives.h"
#include "replay/run/rank_errors.h"
#include "replay/run/rank_runner.h"
#include "replay/run/recorded_values.h"
#include "replay/values/evaluate.h"

namespace epweave::replay {

class NodeRunner {
 public:
  struct Around {
    RankClock& clock;
    const RankErrors& errors;
    RankResult& result;  // takes what is measured, and values that are not what is recorded
  };
  // All must outlive it.
  NodeRunner(const Program& program, const RankSetup& setup, const RunOptions& options, const Around& around);

  // The node's value is this.
  void define(NodeId id, Value value);
  // Its value is used no more.
  void drop(NodeId id) { values_[id.index()] = Value(); }

  Value call(NodeId id);
  Value read_attribute(const Node& node);
  // Of a collective, which defines the node.
  void launch(const Step& step);
  Value wait(NodeId id, Joined joined);
  // What the output node names, everything being there.
  std::vector<Value> take_outputs(const Node& node);

  const ErrorBounds* bounds() const { return bounds_.bounds(); }  // null where nothing is bounded

 private:
  void check_recorded(const Node& node, const Value& value);
  void forget_written(const OpInfo& op, std::span<const Value> args);

  const Program& program_;
  const RankSetup& setup_;
  const RunOptions& options_;
  const Around around_;
  std::vector<Value> values_;  // by node
  CallBounds bounds_;
  RankCollectives collectives_;
  Symbols symbols_;
  RecordedValues recorded_;
  Environment environment_;
  DrawNumbers draws_;
};

}  // namespace epweave::replay
