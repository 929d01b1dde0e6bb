#include <fmt/format.h>

#include <chrono>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>

#include "replay/kernels/missing_kernels.h"
#include "replay/run/rank_runner.h"
#include "replay/run/written_inputs.h"
#include "replay/steps/issue_order.h"

namespace epweave::replay {
namespace {

std::unique_ptr<DeviceRun> start_run(Device* device, const DeviceSetup& setup) {
  if (device == nullptr) return nullptr;
  try {
    return device->start(setup);
  } catch (const DeviceError& error) {
    throw DeviceError(fmt::format("before the first node: {}", error.what()), error.aftermath());
  }
}

// Where another process failed first, what happens here follows from that. What a kernel refuses
// may be data that a lost device sent; a device that is lost here is the cause itself.
std::string find_cause(Transport& transport, const RunOptions& options, const std::exception& error) {
  const bool is_refused =
      dynamic_cast<const RunError*>(&error) != nullptr && dynamic_cast<const DeviceError*>(&error) == nullptr;
  if (options.process == nullptr || !is_refused) return transport.failure();
  return await_failure(transport, [] { return false; });
}

}  // namespace

RunResult run_ranks(const Graph& graph, const World& world, const KernelTable& kernels,
                    const std::vector<RankInputs>& inputs, const RunOptions& options) {
  const KernelTable& used = options.device == nullptr ? kernels : options.device->kernels();
  require_kernels(graph, used);
  EPWEAVE_CHECK(inputs.size() == world.size);
  // Of processes bounds are followed on the CPU.
  EPWEAVE_CHECK(options.device == nullptr || options.bounded == nullptr || options.process == nullptr);
  std::optional<Body> shuffled;
  if (options.jitter) {
    shuffled = graph.step();
    shuffled->order = shuffle_order(graph, graph.step(), *options.jitter);
  }
  const Body& body = shuffled ? *shuffled : graph.step();
  Program program{graph, body, used, world, plan_steps(graph, body), {}, find_written_inputs(graph)};
  if (options.graphs != Graphs::kNone) {
    EPWEAVE_CHECK(options.device != nullptr && !options.observer);
    EPWEAVE_CHECK(options.measuring == nullptr || options.measuring->spans == Spans::kNone);
    program.stretches = plan_stretches(
        body, program.steps, [&](const Node& node) { return options.device->find_host_wait(graph, node); });
  }
  const Rank first = options.process == nullptr ? 0 : options.process->rank;
  const Rank end = options.process == nullptr ? world.size : first + 1;
  Exchange* exchange = options.process == nullptr ? nullptr : options.process->exchange;
  // On the CPU, where the ranks are processes, the device only moves bytes.
  const bool computes_on_device = options.device != nullptr;
  Device* used_device =
      computes_on_device || options.process == nullptr ? options.device : options.process->device;
  const bool by_turns = options.measuring != nullptr && options.measuring->alone.has_value();
  EPWEAVE_CHECK(!by_turns || (options.process == nullptr && options.graphs == Graphs::kNone));
  const std::unique_ptr<DeviceRun> device =
      start_run(used_device, {program.steps, end - first, options.fill, exchange, options.graphs,
                              by_turns ? Launches::kHeld : Launches::kAtOnce});
  LocalTransport local(world, options.deadline);
  Transport& transport = options.process == nullptr ? local : *options.process->transport;
  transport.begin(world);
  RunResult result;
  const auto shared_memory = std::make_shared<HostMemory>(options.fill);
  HostMemory& memory = *shared_memory;
  result.memory = shared_memory;
  result.steps = program.steps;
  result.stretches = program.stretches;
  result.ranks.resize(world.size);
  const std::size_t runs =
      options.measuring == nullptr ? 1 : options.measuring->warm_up + options.measuring->repeat;
  StepCounter counter(options.progress, options.run_name, runs * program.steps.list.size() * (end - first));
  std::mutex mutex, computing;
  std::exception_ptr first_error;
  const auto start = std::chrono::steady_clock::now();
  std::vector<std::thread> threads;
  for (Rank rank = first; rank < end; ++rank) {
    threads.emplace_back([&, rank] {
      Turn turn = by_turns ? Turn(computing) : Turn();  // until a failure is known to all
      try {
        RankDevice* on_device = computes_on_device ? &device->rank(rank - first) : nullptr;
        std::optional<HostExchange> host_exchange;
        if (!computes_on_device && device != nullptr)
          host_exchange.emplace(device->rank(rank - first), *exchange);
        const RankSetup setup{rank,
                              counter,
                              on_device == nullptr ? memory : on_device->memory(),
                              on_device,
                              transport,
                              options.process == nullptr ? &local : nullptr,
                              host_exchange ? &*host_exchange : nullptr,
                              by_turns ? &turn : nullptr};
        result.ranks[rank] = run_rank(program, setup, inputs[rank], options);
        transport.finish(rank);
      } catch (const Aborted&) {
        // The rank that failed reports.
      } catch (const std::exception& error) {
        const std::string failure = find_cause(transport, options, error);
        {
          const std::lock_guard lock(mutex);
          if (first_error == nullptr)
            first_error = failure.empty() ? std::current_exception()
                                          : std::make_exception_ptr(CollectiveError(failure));
        }
        transport.abort(error.what());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (first_error != nullptr) std::rethrow_exception(first_error);
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  result.peak_bytes = computes_on_device ? device->peak_bytes() : memory.peak_bytes();
  return result;
}

}  // namespace epweave::replay
