#include "passes/bucket/schedule_like_inductor.h"

#include <fmt/format.h>

#include <algorithm>

#include "analysis/rank_view.h"
#include "base/memory_text.h"
#include "cost/simulate.h"
#include "passes/bucket/group_coordinates.h"
#include "passes/bucket/inductor_rewriter.h"
#include "passes/coordinates.h"
#include "passes/schedule/apply_order.h"
#include "passes/schedule/inductor_facts.h"
#include "passes/schedule/inductor_order.h"

namespace epweave {
namespace {

std::string_view reason_of_likeness(StepKind) {
  return "where PyTorch's overlap scheduler has it";
}

bool has_wait(const StepModel& model) {
  return std::ranges::find(model.kinds, StepKind::kWait) != model.kinds.end();
}

Packing packing_of(InductorBucketMode mode) {
  switch (mode) {
    case InductorBucketMode::kDefault:
      return Packing::kPlain;
    case InductorBucketMode::kCoalesced:
      return Packing::kListed;
    case InductorBucketMode::kCustomOps:
    case InductorBucketMode::kCustomOpsMultidtype:
      break;
  }
  return Packing::kOneCall;
}

// Merges in `pass.graph`, which has the order that was found.
void merge_like_inductor(PassResult& pass, const StepModel& model, const ScheduleProblem& problem,
                         const InductorFacts& facts, const InductorOrder& found,
                         const GroupCoordinates& coordinates, const ScheduleOptions& options) {
  const Graph ordered = pass.graph;
  InductorRewriter rewriter(pass.graph, model, problem, facts, coordinates,
                            packing_of(options.like_inductor->bucket_mode));
  InductorBuckets buckets =
      find_inductor_buckets(model, problem, facts, found, *options.like_inductor, rewriter.may_merge());
  rewriter.write(buckets);
  drop_unread_coordinates(pass.graph, coordinates);
  const StepModel before = model_decision(ordered, options.prices()).step;
  const StepModel after = model_rewritten(pass.graph, options.prices()).step;
  pass.notes.push_back(fmt::format("predicted with its buckets: {} -> {}",
                                   describe(predict(before, given_order(before))),
                                   describe(predict(after, given_order(after)))));
  for (std::string& note : rewriter.list_notes()) pass.notes.push_back(std::move(note));
}

}  // namespace

PassResult schedule_like_inductor(const Graph& given_graph, const ScheduleOptions& options) {
  const InductorKnobs& knobs = *options.like_inductor;
  Graph graph = given_graph;
  hoist_rank_nodes(graph);
  GroupCoordinates coordinates;
  if (knobs.buckets && is_rank_agnostic(graph))
    coordinates = write_group_coordinates(graph, MergeScope::kAll, "schedule");
  const DecisionModel decision = model_decision(graph, options.prices());
  const StepModel& model = decision.step;
  PassResult pass{given_graph};
  if (!has_wait(model)) {
    pass.notes.push_back("like=inductor: nothing is waited for, so it stays");
    return pass;
  }
  const ScheduleRules rules{.launches = LaunchOrder::kFree, .recompute = RecomputeOrder::kFree};
  const ScheduleProblem problem = make_schedule_problem(graph, decision, rules);
  const bool is_any_dtype = knobs.bucket_mode == InductorBucketMode::kCustomOpsMultidtype;
  const InductorFacts facts =
      find_inductor_facts(graph, model, problem, is_any_dtype ? GatherKey::kAnyDtype : GatherKey::kByDtype);
  const InductorOrder found = order_like_inductor(graph, model, problem, facts, knobs);
  const Predicted given = predict(model, given_order(model)), result = predict(model, found.order);
  pass.graph = graph;
  const std::size_t moved = apply_order(graph, model, found.order, rules, reason_of_likeness, pass.graph);
  pass.notes.push_back(fmt::format("predicted: {} -> {}; {} of {} nodes moved, like=inductor",
                                   describe(given), describe(result), moved, model.size()));
  pass.notes.push_back(fmt::format(
      "predicted by its own arithmetic: {} of {} collectives exposed, {:.2f} of {:.2f} ms; peak {} -> {}",
      found.exposed, found.collectives, found.exposed_ms, found.collective_ms, memory_text(found.given_peak),
      memory_text(found.peak)));
  if (knobs.buckets) merge_like_inductor(pass, model, problem, facts, found, coordinates, options);
  if (decision.other_nodes)
    pass.notes.push_back(fmt::format(
        "predicted: {}, and may get another order (epweave verify --ranks shows it)", *decision.other_nodes));
  pass.notes.push_back(describe_assumptions(decision, options.prices()));
  return pass;
}

}  // namespace epweave
