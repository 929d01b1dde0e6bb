// What generalize explains and what it refuses, as it is found.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "passes/generalize/job.h"

namespace epweave {

struct Explained {
  std::string node, argument, kind, expression;  // kind: group, mesh, device, coordinate, element
};

struct Unexplained {
  Site site;
  std::string argument, why;
  std::vector<std::string> values;  // per rank, in the order of the given ones
  std::optional<Rank> next;         // the rank whose trace would decide it
};

// An argument of a node, a leaf of one, or the node's type.
struct ArgumentPlace {
  std::size_t body = 0;
  NodeId node;
  std::string argument;
};

class Findings {
 public:
  // Nodes are named as `made` names them, the graph that is being made of the first rank's.
  Findings(const RankJob& job, const Graph& made) : job_(job), made_(made) {}

  void explain(const ArgumentPlace& place, std::string kind, std::string expression);
  // `leaves`: what stands there on each rank.
  void refuse(const ArgumentPlace& place, const std::vector<Arg>& leaves, std::string why,
              std::optional<Rank> next = {});
  void refuse(const ArgumentPlace& place, std::vector<std::string> values, std::string why);

  // Whether something of this node of the step is refused.
  bool is_refused(NodeId node) const { return refused_.contains(node); }

  std::vector<Explained> explained;
  std::vector<Unexplained> unexplained;

 private:
  void add(const ArgumentPlace& place, std::vector<std::string> values, std::string why,
           std::optional<Rank> next);
  std::string print_leaf(const Body& body, Arg leaf) const;
  std::string print_numbers(const Body& body, Arg values) const;

  const RankJob& job_;
  const Graph& made_;
  IdSet<NodeId> refused_;
};

}  // namespace epweave
