// Numbers of one rank in a graph that others run: ranks-baked of verify_ranks.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "analysis/rank_literals.h"
#include "compare/ranks/verify_ranks.h"

namespace epweave {

// Of a graph that all ranks run: a number stands where each rank needs its own.
std::vector<RankViolation> find_baked(const Graph& graph, const RankLiterals& literals, std::uint32_t rank);

// Of one rank's own graph: the number that stands there is not this rank's.
std::vector<RankViolation> find_foreign(const Graph& graph, const RankLiterals& literals, std::uint32_t rank);

// The numbers of several ranks' graphs, each of which is its rank's along some axis: one axis must
// explain a number on all of these ranks, and all numbers of one lookup.
class NumbersOfRanks {
 public:
  void add(const Graph& graph, const RankLiterals& literals, std::uint32_t rank);
  // Nothing where the graphs have other numbers: then they are other programs.
  std::vector<RankViolation> find_contradictions() const;

 private:
  // offset + scale * coordinate
  struct Function {
    RankAxis axis;
    std::string axis_name;
    std::int64_t offset = 0, scale = 0;

    bool is_along(const Function& other) const {
      return axis.stride == other.axis.stride && axis.extent == other.axis.extent;
    }
    bool operator==(const Function& other) const {
      return is_along(other) && offset == other.offset && scale == other.scale;
    }
    std::int64_t at(std::uint32_t rank) const { return offset + scale * axis.coordinate(rank); }
  };
  struct Number {
    std::string node, place, expression;
    std::uint32_t argument = 0, lookup = 0;
    std::optional<std::int64_t> value;  // none: the graph computes it
    std::vector<Function> functions;    // what it may be

    void keep_axes_of(const Number& other);
    std::string print_axes() const;
  };
  struct OfRank {
    std::uint32_t rank = 0;
    std::vector<Number> numbers;
  };

  bool are_one_program() const;
  // On each rank it is right by some axis; others are said of their rank.
  bool is_own(std::size_t i) const;
  // The i-th number of the first rank, with the functions that are right on all ranks.
  Number fit_all(std::size_t i) const;
  RankViolation violation(std::size_t i, std::string message) const;

  std::vector<OfRank> ranks_;
};

// "(aten.ge.Scalar, tok_embeddings, embedding.py:50 in forward: ..)", of a node of the step
std::string print_place(const Graph& graph, NodeId id);

// "%sub_4 (aten.sub.Tensor, loss, loss.py:12): 512 looks like 512 * c_tp"
std::string print_similar(const Graph& graph, const RankLiteral& literal);

}  // namespace epweave
