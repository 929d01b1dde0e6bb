#include "passes/chunk_plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>

namespace epweave {
namespace {

// The parts are equal, so their number must divide every token symbol: by a recorded fact, else by the value
// it had when the graph was traced, which then becomes an assumption.
void require_divisible(const Graph& graph, Facts& facts, StringId symbol, ChunkPlan& plan) {
  if (facts.divides(plan.parts, symbol)) return;
  const std::string_view name = graph.text(symbol);
  const auto hint = facts.hint(symbol);
  if (!hint)
    throw PassError(
        "chunk.unknown-extent",
        fmt::format("nothing recorded says that {} divides the token count {}, and it has no hint",
                    plan.parts, name),
        {},
        fmt::format("export the graph with a hint for {}, or with an assertion such as Eq(Mod({}, {}), 0)",
                    name, name, plan.parts));
  if (*hint % plan.parts != 0)
    throw PassError(
        "chunk.uneven",
        fmt::format("{} parts do not divide the token count {} = {}: {} = {}*{} + {}", plan.parts, name,
                    *hint, *hint, plan.parts, *hint / plan.parts, *hint % plan.parts),
        {}, "choose a number of parts that divides it; parts of different sizes are not supported yet");
  const std::string statement = fmt::format("Eq({}, {})", name, *hint);
  plan.assumed.push_back({symbol, graph.context->exprs.parse(statement)});
}

// A [batch, sequence] grid cut along the sequence makes the divided dimension an inner factor of merged rows.
void require_flat_grid(const Graph& graph, const TokenExtents& tokens) {
  for (StringId symbol : tokens.symbols()) {
    const NodeId source = tokens.source(symbol).node;
    const TensorType* grid = source ? tensor_of(*graph.context, graph.step().nodes[source].type) : nullptr;
    if (grid == nullptr) continue;
    // Token numbers [batch, sequence], or activations [batch, sequence, width].
    if (grid->rank() < (is_floating(grid->dtype) ? 3U : 2U)) continue;
    throw PassError("chunk.seq-grid",
                    "the tokens come as a grid of more than one dimension, and dim=seq cuts an inner one",
                    site_of(graph, graph.step().nodes[source]),
                    "use dim=batch; dim=seq on such a grid is not supported yet");
  }
}

}  // namespace

ChunkPlan plan_chunks(const Graph& graph, const ChunkOptions& options) {
  ChunkPlan plan;
  plan.parts = options.parts;
  Facts facts(graph);
  TokenExtents tokens(graph, facts);
  plan.token_symbols = tokens.symbols();
  if (plan.token_symbols.empty())
    throw PassError("chunk.no-token-symbol",
                    "no user input has a symbolic first dimension: the token count is a plain number", {},
                    "trace with the token dimension marked dynamic (scripts/trace_torchtitan.py does so "
                    "unless --static is given)");
  if (options.dim == ChunkDim::kSeq) require_flat_grid(graph, tokens);
  plan.placements =
      infer_placements(graph, {options.roots, options.require_exchange, options.exact_casts}, tokens, facts);
  for (StringId symbol : plan.token_symbols) require_divisible(graph, facts, symbol, plan);
  plan.claims = prove_frames(graph, plan.placements);
  return plan;
}

std::vector<std::string> print_plan(const Graph& graph, const ChunkPlan& plan) {
  std::vector<std::string> lines;
  const Body& step = graph.step();
  std::vector<std::size_t> divided(plan.placements.regions.size());
  for (NodeId id : step.order)
    if (plan.placements.region[id] && plan.placements.is_divided(id))
      ++divided[plan.placements.region[id].index()];
  for (std::size_t i = 0; i < plan.placements.regions.size(); ++i) {
    const ChunkRegion& region = plan.placements.regions[i];
    lines.push_back(fmt::format("region {} {}: {} nodes in {} parts", graph.text(region.root),
                                region.backward ? "backward" : "forward", divided[i], plan.parts));
  }
  for (const auto& [symbol, statement] : plan.assumed) {
    const auto hint = Facts(graph).hint(symbol);
    lines.push_back(fmt::format("assumption: {} = {}", graph.text(symbol), hint.value_or(0)));
  }
  if (plan.claims.proved > 0)
    lines.push_back(fmt::format("proved: rows keep to their tokens in {} row writes and sums over rows",
                                plan.claims.proved));
  for (const Assumption& assumption : plan.placements.assumptions)
    if (assumption.is_open)
      lines.push_back(fmt::format("assumption: {} is right in parts, though it {}",
                                  graph.text(step.nodes[assumption.node].name), assumption.text));
  for (const FrameClaims::Open& open : plan.claims.open)
    lines.push_back(fmt::format("assumption: {} is right in parts, though {}",
                                graph.text(step.nodes[open.node].name), open.why));
  if (plan.claims.proved > 0)
    lines.push_back("assumption: the group sizes of each grouped_mm count the rows of each expert");
  return lines;
}

PassResult chunk(const Graph& graph, const ChunkOptions& options) {
  const ChunkPlan plan = plan_chunks(graph, options);
  return {lower_chunks(graph, plan), print_plan(graph, plan)};
}

}  // namespace epweave
