#include "replay/check/check_runs.h"

#include <fmt/format.h>

#include <utility>

#include "replay/run/written_inputs.h"

namespace epweave::replay {
namespace {

RankRange find_ranks_here(const Process* process, Rank ranks) {
  return process == nullptr ? RankRange{0, ranks} : RankRange{process->rank, process->rank + 1};
}

std::vector<bool> find_inputs_of_either(const Graph& a, const Graph& b) {
  std::vector<bool> written = find_written_inputs(a);
  const std::vector<bool> of_b = find_written_inputs(b);
  for (std::size_t i = 0; i < written.size() && i < of_b.size(); ++i) written[i] = written[i] || of_b[i];
  return written;
}

}  // namespace

bool is_native(const CheckSetup& setup) {
  return (setup.device_a != nullptr && setup.device_a->math() == Math::kNative) ||
         (setup.device_b != nullptr && setup.device_b->math() == Math::kNative);
}

CheckRuns::CheckRuns(const PairedGraphs& graphs, const CheckSetup& setup)
    : graphs_(graphs),
      setup_(setup),
      world_a_(derive_world(graphs.a, setup.ranks)),
      world_b_(derive_world(graphs.b, setup.ranks)),
      here_(find_ranks_here(setup.options.process, world_a_.size)),
      written_inputs_(find_inputs_of_either(graphs.a, graphs.b)) {}

CheckRun CheckRuns::run_reference() {
  return run(*setup_.reference, derive_world(*setup_.reference, setup_.ranks), setup_.options);
}

RunOptions CheckRuns::on_device(Device* device, Observer observer, ShowResults shown) const {
  RunOptions options = setup_.options;
  options.device = device;
  options.observer = std::move(observer);
  options.shown = std::move(shown);
  return options;
}

CheckRun CheckRuns::run(const Graph& graph, const World& world, RunOptions options) {
  const auto number = ++runs_[&graph];
  options.run_name = fmt::format("{}{}",
                                 &graph == &graphs_.a   ? "A"
                                 : &graph == &graphs_.b ? "B"
                                                        : "reference",
                                 number == 1 ? "" : fmt::format(", run {}", number));
  InputData data = setup_.data;
  if (&graph != &graphs_.a) {
    data.original = &graphs_.a;
    data.original_path = setup_.path_a;
  }
  data.path = &graph == &graphs_.a   ? setup_.path_a
              : &graph == &graphs_.b ? setup_.path_b
                                     : setup_.path_reference;
  if (options.process != nullptr) data.only = options.process->rank;
  const std::vector<RankInputs> inputs = make_inputs(graph, world, setup_.kernels, data);
  CheckRun result{run_ranks(graph, world, setup_.kernels, inputs, options), {}};
  result.outputs.resize(world.size);
  for_each_rank([&](Rank rank) {
    result.outputs[rank] =
        list_results(graph, {result.run.ranks[rank].outputs, inputs[rank]}, written_inputs_);
    if (options.shown)  // of inputs, too, the names alone
      for (NamedTensor& output : result.outputs[rank]) output.tensor.storage = nullptr;
  });
  return result;
}

}  // namespace epweave::replay
