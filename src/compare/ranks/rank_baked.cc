#include "compare/ranks/rank_baked.h"

#include <fmt/format.h>

namespace epweave {
namespace {

// "(aten.ge.Scalar, tok_embeddings, embedding.py:50 in forward: ..)"
std::string print_place(const Graph& graph, NodeId id) {
  const Site site = site_of(graph, graph.step().nodes[id]);
  std::string place = site.op;
  for (const std::string& part : {site.module, site.source})
    if (!part.empty()) place += ", " + part;
  return fmt::format("({})", place);
}

RankViolation violation(const Graph& graph, const RankLiteral& literal, std::uint32_t rank, std::string why) {
  RankViolation made{.invariant = "ranks-baked", .message = std::move(why), .ranks = {rank}};
  made.nodes = {std::string(graph.text(graph.step().nodes[literal.node].name))};
  made.expression = print_expression(graph, literal);
  made.argument = literal.argument;
  if (literal.value.is_int()) made.value = literal.value.as_int();
  return made;
}

}  // namespace

std::vector<RankViolation> find_baked(const Graph& graph, const RankLiterals& literals, std::uint32_t rank) {
  std::vector<RankViolation> found;
  for (const RankLiteral& literal : literals.proved)
    if (literal.value.is_int())
      found.push_back(
          violation(graph, literal, rank,
                    fmt::format("{} is one rank's; it must be {} {}", literal.value.as_int(),
                                print_expression(graph, literal), print_place(graph, literal.node))));
  return found;
}

std::vector<RankViolation> find_foreign(const Graph& graph, const RankLiterals& literals,
                                        std::uint32_t rank) {
  std::vector<RankViolation> found;
  for (const RankLiteral& literal : literals.proved)
    if (literal.value.is_int() && !literal.values_at(rank).contains(literal.value.as_int()))
      found.push_back(violation(graph, literal, rank,
                                fmt::format("{} is not this rank's; it must be {} = {} {}",
                                            literal.value.as_int(), print_expression(graph, literal),
                                            print_values(literal, rank), print_place(graph, literal.node))));
  return found;
}

std::string print_similar(const Graph& graph, const RankLiteral& literal) {
  return fmt::format("%{} {}: {} looks like {}, which is not proved",
                     graph.text(graph.step().nodes[literal.node].name), print_place(graph, literal.node),
                     literal.value.as_int(), print_expression(graph, literal));
}

}  // namespace epweave
