#include <fmt/format.h>

#include <chrono>
#include <exception>
#include <mutex>
#include <optional>
#include <system_error>
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

Program make_program(const Graph& graph, const Body& body, const World& world, const KernelTable& kernels,
                     const RunOptions& options) {
  Program program{graph, body, kernels, world, plan_steps(graph, body), {}, find_written_inputs(graph)};
  if (options.graphs == Graphs::kNone) return program;
  EPWEAVE_CHECK(options.device != nullptr && !options.observer);
  EPWEAVE_CHECK(options.measuring == nullptr || options.measuring->spans == Spans::kNone);
  program.stretches = plan_stretches(
      body, program.steps, [&](const Node& node) { return options.device->find_host_wait(graph, node); });
  return program;
}

// The ranks that this process runs: all, or its own.
struct RanksHere {
  Rank first, end;
  RanksHere(const World& world, const RunOptions& options)
      : first(options.process == nullptr ? 0 : options.process->rank),
        end(options.process == nullptr ? world.size : first + 1) {}
  Rank count() const { return end - first; }
};

// Runs each of them on a thread of its own.
class RankThreads {
 public:
  RankThreads(const Program& program, const std::vector<RankInputs>& inputs, const RunOptions& options)
      : program_(program),
        inputs_(inputs),
        options_(options),
        here_(program.world, options),
        by_turns_(options.measuring != nullptr && options.measuring->alone.has_value()),
        memory_(std::make_shared<HostMemory>(options.fill)),
        device_(start_device()),
        local_(program.world, options.deadline),
        transport_(options.process == nullptr ? local_ : *options.process->transport),
        counter_(options.progress, options.run_name, count_steps()) {
    EPWEAVE_CHECK(!by_turns_ || (options.process == nullptr && options.graphs == Graphs::kNone));
  }

  RunResult run() {
    transport_.begin(program_.world);
    result_.memory = memory_;
    result_.steps = program_.steps;
    result_.stretches = program_.stretches;
    result_.ranks.resize(program_.world.size);
    const auto start = std::chrono::steady_clock::now();
    std::vector<std::thread> threads;
    try {
      for (Rank rank = here_.first; rank < here_.end; ++rank)
        threads.emplace_back([this, rank] { run_until_failure(rank); });
    } catch (const std::system_error& error) {
      fail(fmt::format("rank {}: the system gives no thread to run it, {} being there: {}",
                       here_.first + threads.size(), threads.size(), error.code().message()));
    }
    for (std::thread& thread : threads) thread.join();
    if (first_error_ != nullptr) std::rethrow_exception(first_error_);
    result_.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    result_.peak_bytes = computes_on_device() ? device_->peak_bytes() : memory_->peak_bytes();
    return std::move(result_);
  }

 private:
  bool computes_on_device() const { return options_.device != nullptr; }

  // On the CPU, where the ranks are processes, the device only moves bytes.
  std::unique_ptr<DeviceRun> start_device() const {
    const Process* process = options_.process;
    Device* device = computes_on_device() || process == nullptr ? options_.device : process->device;
    return start_run(device, {program_.steps, here_.count(), options_.fill,
                              process == nullptr ? nullptr : process->exchange, options_.graphs,
                              by_turns_ ? Launches::kHeld : Launches::kAtOnce});
  }

  std::size_t count_steps() const {
    const Measuring* measuring = options_.measuring;
    const std::size_t runs = measuring == nullptr ? 1 : measuring->warm_up + measuring->repeat;
    return runs * program_.steps.list.size() * here_.count();
  }

  void fail(const std::string& problem) {
    {
      const std::lock_guard lock(mutex_);
      if (first_error_ == nullptr) first_error_ = std::make_exception_ptr(RunError(problem));
    }
    transport_.abort(problem);
  }

  void run_until_failure(Rank rank) {
    Turn turn = by_turns_ ? Turn(computing_) : Turn();  // until a failure is known to all
    try {
      result_.ranks[rank] = run_one(rank, turn);
      transport_.finish(rank);
    } catch (const Aborted&) {
      // The rank that failed reports.
    } catch (const std::exception& error) {
      const std::string failure = find_cause(transport_, options_, error);
      {
        const std::lock_guard lock(mutex_);
        if (first_error_ == nullptr)
          first_error_ =
              failure.empty() ? std::current_exception() : std::make_exception_ptr(CollectiveError(failure));
      }
      transport_.abort(error.what());
    }
  }

  RankResult run_one(Rank rank, Turn& turn) {
    RankDevice* at = device_ == nullptr ? nullptr : &device_->rank(rank - here_.first);
    RankDevice* computing = computes_on_device() ? at : nullptr;
    std::optional<HostExchange> host_exchange;
    if (computing == nullptr && at != nullptr) host_exchange.emplace(*at, *options_.process);
    const RankSetup setup{rank,
                          counter_,
                          computing == nullptr ? *memory_ : computing->memory(),
                          computing,
                          transport_,
                          options_.process == nullptr ? &local_ : nullptr,
                          host_exchange ? &*host_exchange : nullptr,
                          by_turns_ ? &turn : nullptr};
    return run_rank(program_, setup, inputs_[rank], options_);
  }

  const Program& program_;
  const std::vector<RankInputs>& inputs_;
  const RunOptions& options_;
  const RanksHere here_;
  const bool by_turns_;
  const std::shared_ptr<HostMemory> memory_;
  const std::unique_ptr<DeviceRun> device_;
  LocalTransport local_;
  Transport& transport_;
  StepCounter counter_;
  RunResult result_;
  std::mutex mutex_, computing_;
  std::exception_ptr first_error_;  // under mutex_
};

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
  const Program program = make_program(graph, shuffled ? *shuffled : graph.step(), world, used, options);
  return RankThreads(program, inputs, options).run();
}

}  // namespace epweave::replay
