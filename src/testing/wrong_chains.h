// Random calls behind a divided value, the same in the original and in each part, joined and read
// behind the join: what somebody would write who thinks that these calls can be divided.
//
//   A   %y = cumsum(%x, 0)          B   %y_chunk0 = cumsum(%x_chunk0, 0)   %y_chunk1 = cumsum(%x_chunk1, 0)
//       output([.., %y])                %y_whole = cat([%y_chunk0, %y_chunk1], 0)   output([.., %y_whole])
//
// Or the chain goes between the value and its users, where it gives a value of the same type. Calls
// read and write other values of the step, too.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "testing/call_changes.h"
#include "testing/paired_nodes.h"
#include "testing/wrong_rewrites.h"

namespace epweave {

class WrongChain {
 public:
  WrongChain(const Graph& a, const Graph& b, const PairedNodes& paired, Dice& dice);
  std::optional<Mutant> make();

 private:
  // One of the programs that get the calls: the original, a part, or what is behind the join.
  struct Lane {
    GraphEditor* editor = nullptr;
    std::optional<std::uint32_t> part;
    std::vector<NodeId> values;  // the operand, then each call's value
    NodeId last;                 // the next call goes behind it
    Node model;                  // whose module, provenance, ... the calls get
  };
  // An argument before it is known for which lane.
  struct Operand {
    std::optional<std::size_t> value;  // of the lane
    NodeId outside;                    // else a value of A
    Arg literal;                       // else this; of the whole, where parts have another
    std::optional<Arg> of_part;
    bool is_list = false;  // the value, and this one of the lane
    std::size_t next = 0;
  };
  struct Call {
    const OpInfo* op = nullptr;
    std::vector<Operand> positional;
    std::vector<std::pair<StringId, Arg>> keywords;
  };

  NodeId draw_base();
  void open_lanes();
  bool add_call(std::vector<Lane*> lanes);
  Call draw_call(std::size_t values);
  std::optional<Operand> draw_operand(const OpParam& param, std::size_t values);
  std::optional<Node> make_node(Lane& lane, const Call& call, StringId name);
  Arg resolve(Lane& lane, const Operand& operand);
  void append(Lane& lane, const Node& node);
  bool join();
  NodeId add_join(std::string_view target, const std::vector<Arg>& args);
  std::optional<std::int64_t> find_divided_dim();
  bool can_splice();
  void splice();

  const Graph& a_;
  const Graph& b_;
  const PairedNodes& paired_;
  Dice& dice_;
  Context& context_;
  GraphEditor editor_a_, editor_b_;
  NodeId base_;
  Lane original_;
  std::vector<Lane> parts_;
  Lane joined_;
  StringId name_;              // of A's last call
  bool side_by_side_ = false;  // each part's calls are right behind the part
  std::size_t made_ = 0;
  std::string what_;
};

}  // namespace epweave
