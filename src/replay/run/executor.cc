#include <fmt/format.h>

#include <cstring>
#include <map>
#include <memory>
#include <thread>
#include <unordered_map>

#include "replay/run/device_wait.h"
#include "replay/run/node_runner.h"
#include "replay/run/placed_inputs.h"
#include "replay/run/rank_clock.h"
#include "replay/run/rank_errors.h"
#include "replay/run/rank_runner.h"

namespace epweave::replay {
namespace {

// The stretches of a run, each in its turn, as the steps come to them.
class StretchCursor {
 public:
  StretchCursor(const Program& program, const RunOptions& options, RankDevice* device)
      : stretches_(program.stretches), options_(options), device_(device) {}

  void enter(std::uint32_t step) {
    if (next_ < stretches_.size() && stretches_[next_].first == step) device_->begin_stretch(next_);
  }
  void leave(std::uint32_t step) {
    if (next_ == stretches_.size() || stretches_[next_].end != step + 1) return;
    if (options_.names_ranges) device_->open_range(fmt::format("stretch {}", next_));
    device_->end_stretch();
    if (options_.names_ranges) device_->close_range();
    ++next_;
  }

 private:
  const std::vector<Stretch>& stretches_;
  const RunOptions& options_;
  RankDevice* device_;
  std::uint32_t next_ = 0;
};

class RankRunner {
 public:
  // `placed`: as for PlacedInputs.
  RankRunner(const Program& program, const RankSetup& setup, const RunOptions& options,
             std::vector<Value>* placed = nullptr)
      : program_(program),
        setup_(setup),
        options_(options),
        device_(setup.device),
        errors_(program, setup, options),
        clock_(options, setup.rank, setup.device),
        inputs_(program, setup, placed),
        stretches_(program, options, setup.device),
        nodes_(program, setup, options, {clock_, errors_, result_}) {}

  RankResult run(const RankInputs& inputs) {
    try {
      clock_.start();
      for (std::uint32_t i = 0; i < program_.steps.list.size(); ++i) take(i, inputs);
      end_work();
      bring_results(inputs);
      end_measuring();
      return std::move(result_);
    } catch (const DeviceError& error) {
      throw errors_.locate(error);
    }
  }

 private:
  void take(std::uint32_t i, const RankInputs& inputs) {
    const Step& step = program_.steps.list[i];
    errors_.begin(i);
    setup_.counter.advance();
    if (step.kind != StepKind::kInput) clock_.start_working();
    stretches_.enter(i);
    if (!step.node) {
      is_joined_ = step.kind == StepKind::kJoin && step.stream == 0;
      if (device_ != nullptr) run_on_stream(step);
      return;  // on the CPU all streams run in order: events and syncs hold already
    }
    if (device_ != nullptr) device_->set_node(step.node);
    if (options_.jitter) delay(step);
    const Node& node = program_.body.nodes[step.node];
    try {
      if (step.kind == StepKind::kInput)
        nodes_.define(step.node, inputs_.place_next(inputs));
      else if (has_ranges(step))
        run_in_range(step, node);
      else
        run_step(step, node);
      stretches_.leave(i);
    } catch (...) {
      errors_.rethrow(node);
    }
  }

  void run_on_stream(const Step& step) {
    if (step.kind == StepKind::kRecord) return device_->record(step);
    if (step.kind == StepKind::kJoin) return device_->join(step);
    synchronize();
    errors_.check_fault();
  }

  void synchronize() {
    const DeviceWait wait(options_.process);
    device_->synchronize();
  }

  bool has_ranges(const Step& step) const {
    return options_.names_ranges && device_ != nullptr && step.kind != StepKind::kFree;
  }
  void run_in_range(const Step& step, const Node& node) {
    device_->open_range(
        fmt::format("{} %{}", program_.graph.text(node.module), program_.graph.text(node.name)));
    run_step(step, node);
    device_->close_range();
  }

  // One step in eight, by seed, rank and node: up to half a millisecond.
  void delay(const Step& step) const {
    std::uint64_t x =
        (*options_.jitter * 0x9e3779b97f4a7c15 + setup_.rank) * 0xbf58476d1ce4e5b9 + step.node.index();
    x = (x ^ x >> 31) * 0x94d049bb133111eb;
    if (x >> 61 == 0) std::this_thread::sleep_for(std::chrono::microseconds(x >> 32 & 0x1ff));
  }

  void run_step(const Step& step, const Node& node) {
    if (step.kind == StepKind::kFree) return nodes_.drop(step.node);
    if (step.kind == StepKind::kOutput) {
      is_joined_ = false;
      result_.outputs = nodes_.take_outputs(node);
      return;
    }
    const double start = clock_.host_seconds();
    switch (step.kind) {
      case StepKind::kComm:
        nodes_.launch(step);
        break;
      case StepKind::kWait:
        nodes_.define(step.node, nodes_.wait(step.node, is_joined_ ? Joined::kYes : Joined::kNo));
        break;
      case StepKind::kLaunch:
        clock_.measure(step.node, step.stream, [&] { nodes_.define(step.node, nodes_.call(step.node)); });
        break;
      default:
        nodes_.define(step.node,
                      node.kind == NodeKind::kGetAttr ? nodes_.read_attribute(node) : nodes_.call(step.node));
        break;
    }
    OpTime& time = times_[node.target];
    time.seconds += clock_.host_seconds() - start;
    ++time.calls;
  }

  // --- behind the last step ---

  bool has_turns() const { return setup_.turn != nullptr; }

  void end_work() {
    if (const ErrorBounds* bounds = nodes_.bounds()) {
      if (options_.bounded->at_end)
        options_.bounded->at_end(setup_.rank, result_.outputs, inputs_.list(), *bounds);
      result_.without_bound = bounds->without_bound();
    }
    if (device_ != nullptr) synchronize();
    if (options_.measuring != nullptr && !has_turns()) result_.step_seconds = {clock_.working_seconds()};
    errors_.check_fault();
  }

  void bring_results(const RankInputs& inputs) {
    if (options_.shown) return show_results();
    if (device_ == nullptr) return;
    const DeviceWait wait(options_.process);
    result_.log = device_->take_log();
    for (Value& output : result_.outputs) output = on_host(device_, output);
    inputs_.bring_back(inputs);
  }

  void show_results() {
    const ShowResults& shown = *options_.shown;
    ResultHashes results(device_);
    if (shown.observer) {
      const auto add = [&](const std::string&, const Tensor& tensor, ResultKind) { results.add(tensor); };
      for (const Value& output : result_.outputs) for_each_result(output, {}, add);
      const std::vector<Value>& inputs = inputs_.list();
      for (std::size_t i = 0; i < inputs.size() && i < shown.inputs.size(); ++i)
        if (shown.inputs[i] && inputs[i].is_tensor()) results.add(inputs[i].tensor());
    }
    if (device_ != nullptr) result_.log = device_->take_log();
    for (std::size_t i = 0; i < results.size(); ++i)
      shown.observer(setup_.rank, i, results.at(i, result_.log));
    for (Value& output : result_.outputs) output = without_memory(output);
  }

  void end_measuring() {
    if (device_ != nullptr && options_.graphs != Graphs::kNone) result_.graphs = device_->find_graph_use();
    if (device_ != nullptr) result_.products = device_->take_products();
    if (clock_.takes_spans()) clock_.hand_over(result_);
    for (const auto& [target, time] : times_) result_.times[std::string(program_.graph.text(target))] = time;
    if (has_turns() && device_ != nullptr) device_->drain();
  }

  const Program& program_;
  const RankSetup& setup_;
  const RunOptions& options_;
  RankDevice* device_;
  RankResult result_;
  RankErrors errors_;
  RankClock clock_;
  PlacedInputs inputs_;
  StretchCursor stretches_;
  NodeRunner nodes_;
  std::unordered_map<StringId, OpTime> times_;
  bool is_joined_ = false;  // the step before made the compute stream wait
};

// The same, those that a run writes in memory of their own.
RankInputs copy_inputs(const RankInputs& inputs, const std::vector<bool>& written, Memory& memory) {
  RankInputs copies = inputs;
  std::map<const Storage*, std::shared_ptr<Storage>> copied;  // inputs may share memory
  for (std::size_t i = 0; i < inputs.size(); ++i)
    if (inputs[i].is_tensor() && (i >= written.size() || written[i]))
      copied[inputs[i].tensor().storage.get()] = nullptr;
  for (Value& value : copies) {
    if (!value.is_tensor() || !copied.contains(value.tensor().storage.get())) continue;
    Tensor tensor = value.tensor();
    std::shared_ptr<Storage>& copy = copied[tensor.storage.get()];
    if (copy == nullptr) {
      copy = memory.allocate(tensor.storage->bytes());
      if (copy->bytes() != 0) std::memcpy(copy->data(), tensor.storage->data(), copy->bytes());
    }
    tensor.storage = copy;
    value = std::move(tensor);
  }
  return copies;
}

}  // namespace

RankResult run_rank(const Program& program, const RankSetup& setup, const RankInputs& inputs,
                    const RunOptions& options) {
  if (options.measuring == nullptr) return RankRunner(program, setup, options).run(inputs);
  HostMemory memory;
  std::vector<std::vector<StepSpan>> spans;
  std::vector<double> seconds;
  std::vector<Value> placed;
  Measuring no_spans = *options.measuring;
  no_spans.spans = Spans::kNone;
  RunOptions warming = options;
  warming.measuring = &no_spans;
  const std::uint32_t runs = options.measuring->warm_up + options.measuring->repeat;
  for (std::uint32_t i = 0;; ++i) {
    const bool is_last = i + 1 == runs;
    RunOptions used = i < options.measuring->warm_up ? warming : options;
    if (!is_last) used.shown = ShowResults();  // no one sees what it makes
    // On a device a run that brings nothing back leaves the inputs as they are.
    const bool is_clean = is_last || setup.device != nullptr;
    RankResult result = RankRunner(program, setup, used, &placed)
                            .run(is_clean ? inputs : copy_inputs(inputs, program.written, memory));
    if (i >= options.measuring->warm_up) {
      seconds.insert(seconds.end(), result.step_seconds.begin(), result.step_seconds.end());
      if (!result.spans.empty()) spans.push_back(std::move(result.spans[0]));
    }
    if (!is_last) continue;
    result.spans = std::move(spans);
    result.step_seconds = std::move(seconds);
    return result;
  }
}

}  // namespace epweave::replay
