// What passes that decide by the clock share: prices that are the same on every rank, a budget of
// memory, and how both are printed.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "cost/cluster.h"
#include "cost/measured_costs.h"
#include "cost/step_model.h"
#include "ir/graph.h"

namespace epweave {

// A budget of device memory: bytes, or a share above what the input needs. Which input: the pass's,
// or the one that the whole pipeline was given, which pipeline/bind.h turns into bytes before the
// first pass.
struct MemoryBudget {
  std::optional<std::int64_t> bytes;
  double growth = 0.02;
  bool is_of_run = false;

  std::int64_t above(std::int64_t given_peak) const {
    return bytes.value_or(static_cast<std::int64_t>(static_cast<double>(given_peak) * (1 + growth)));
  }
};
// "2%", "run+2%", "32.1GiB", "34000000000". Throws UsageError.
MemoryBudget parse_memory_budget(std::string_view text);

// A call that nothing prices: declined, or taken to be free. Nothing moves past one without a row
// in the op table.
enum class Unpriced : std::uint8_t { kDecline, kFree };

// Times that were measured, which win over the cluster's, and the file that they are of.
struct CostFile {
  MeasuredCosts costs;
  std::string path;
};

struct PriceOptions {
  Cluster cluster;
  std::shared_ptr<const CostFile> measured;  // or none
  MemoryBudget memory;
  Unpriced unpriced = Unpriced::kDecline;
};

// A step with prices that are the same on every rank that runs it.
struct DecisionModel {
  StepModel step;
  std::size_t uneven_groups = 0;
  std::size_t uneven_inputs = 0;  // priced as where shards are whole (whole_shards.h)
  IdSet<NodeId> padding;          // which ranks with whole shards have not got
  // "%p (w, 3 of 8) is cut unevenly (..), so other ranks have other prices". Passes then keep the
  // launches that all ranks have: in their order, and unmerged.
  std::optional<std::string> other_prices;
  // That, or why ranks may write other nodes in front of launches. Passes then merge none.
  std::optional<std::string> other_nodes;
};
// Throws PassError simulate.unpriced, and InputError where the measured costs are of another graph.
DecisionModel model_decision(const Graph& graph, const PriceOptions& options);
// Of what was made of a graph that the measured costs are of: none of them need apply to it.
DecisionModel model_rewritten(const Graph& graph, const PriceOptions& options);

// What the tool itself says of an order, with host and contention as the cluster has them.
struct Predicted {
  double seconds = 0;
  std::int64_t peak = 0;
};
Predicted predict(const StepModel& model, std::span<const Place> order);

// The peak of a step in the order that it has, on ranks with whole shards.
std::int64_t find_given_peak(const Graph& graph);

std::string describe(const Predicted& predicted);
// What a prediction rests on.
std::string describe_assumptions(const DecisionModel& decision, const PriceOptions& options);

}  // namespace epweave
