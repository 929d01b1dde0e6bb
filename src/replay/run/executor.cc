#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <thread>
#include <unordered_map>

#include "ops/bind.h"
#include "ops/op.h"
#include "ops/type_rules.h"
#include "replay/collectives/mesh_ops.h"
#include "replay/run/call_bounds.h"
#include "replay/run/call_values.h"
#include "replay/run/host_exchange.h"
#include "replay/run/rank_clock.h"
#include "replay/run/rank_collectives.h"
#include "replay/run/rank_runner.h"
#include "replay/run/recorded_values.h"
#include "replay/values/block_cache.h"
#include "replay/values/evaluate.h"
#include "replay/values/random_numbers.h"

namespace epweave::replay {
namespace {

// The op reads an element of a tensor on the host.
bool reads_element(const OpInfo& op) {
  return op.family == OpFamily::kHostRead;
}

class RankRunner {
 public:
  // `placed`: by input, what earlier runs placed of those that no run writes; grows. Null: one run.
  RankRunner(const Program& program, const RankSetup& setup, const RunOptions& options,
             std::vector<Value>* placed = nullptr)
      : program_(program),
        graph_(program.graph),
        context_(*program.graph.context),
        body_(program.body),
        rank_(setup.rank),
        counter_(setup.counter),
        host_exchange_(setup.host_exchange),
        memory_(setup.memory),
        device_(setup.device),
        turn_(setup.turn),
        options_(options),
        placed_(placed),
        values_(program.body.nodes.size()),
        bounds_(program, options, setup.memory, values_),
        clock_(options, setup.rank, setup.device),
        collectives_(program.graph, setup, options, clock_, bounds_.bounds()),
        symbols_(program.graph),
        recorded_(context_, symbols_),
        environment_{program.graph, symbols_,
                     [this](NodeId id) -> const Value& { return values_[id.index()]; }} {}

  RankResult run(const RankInputs& inputs) {
    try {
      return run_steps(inputs);
    } catch (const DeviceError& error) {
      throw locate(error);
    }
  }

 private:
  RankResult run_steps(const RankInputs& inputs) {
    clock_.start();
    std::size_t next_input = 0;
    for (std::uint32_t i = 0; i < program_.steps.list.size(); ++i) {
      const Step& step = program_.steps.list[i];
      begun_ = i + 1;
      counter_.advance();
      if (step.kind != StepKind::kInput) clock_.start_working();
      enter_stretch(i);
      if (!step.node) {
        is_joined_ = step.kind == StepKind::kJoin && step.stream == 0;
        if (device_ != nullptr) run_on_stream(step);
        continue;  // on the CPU all streams run in order: events and syncs hold already
      }
      const Node& node = body_.nodes[step.node];
      if (device_ != nullptr) device_->set_node(step.node);
      if (options_.jitter) delay(step);
      try {
        if (step.kind == StepKind::kInput) {
          EPWEAVE_CHECK(next_input < inputs.size());
          kept_.push_back(place(inputs, next_input++));
          define(step.node, kept_.back());
        } else if (has_ranges(step)) {
          device_->open_range(fmt::format("{} %{}", graph_.text(node.module), graph_.text(node.name)));
          run_step(step, node);
          device_->close_range();
        } else {
          run_step(step, node);
        }
        leave_stretch(i);
      } catch (const KernelError& error) {
        // What an earlier kernel of the device refused may be why.
        if (device_ != nullptr) check_fault();
        throw RunError(describe(node, error.what()));
      } catch (const DeviceError&) {
        throw;
      } catch (const RunError& error) {
        throw RunError(describe(node, error.what()));
      } catch (const CollectiveError& error) {
        throw CollectiveError(describe(node, error.what()));
      } catch (const CheckError& error) {
        if (device_ != nullptr) check_fault();
        require_arguments(node);
        throw CheckError(describe(node, error.what()));
      }
    }
    if (bounds_.bounds() != nullptr) end_bounds(*bounds_.bounds());
    if (device_ != nullptr) device_->synchronize();
    if (options_.measuring != nullptr && !has_turns()) result_.step_seconds = {clock_.working_seconds()};
    if (device_ != nullptr) check_fault();
    if (options_.shown)
      show_results();
    else if (device_ != nullptr)
      bring_back(inputs);
    if (device_ != nullptr && options_.graphs != Graphs::kNone) result_.graphs = device_->find_graph_use();
    if (device_ != nullptr) result_.products = device_->take_products();
    if (clock_.takes_spans()) clock_.hand_over(result_);
    for (const auto& [target, time] : times_) result_.times[std::string(graph_.text(target))] = time;
    if (has_turns() && device_ != nullptr) device_->drain();
    return std::move(result_);
  }

  // The error with the rank and the node that the host was at. A kernel runs behind the host: where
  // the device is lost, an earlier one may be the cause.
  DeviceError locate(const DeviceError& error) {
    std::string problem = error.what();
    RankDevice* device = device_ != nullptr ? device_ : &host_exchange_->device();
    const Aftermath aftermath = device->is_lost() ? Aftermath::kLost : Aftermath::kGoesOn;
    if (aftermath == Aftermath::kLost)
      problem += "; the device takes no more work: a kernel queued earlier, of any rank, may be the cause";
    const std::vector<Step>& steps = program_.steps.list;
    std::uint32_t end = begun_;  // behind the last step that began and makes something
    while (end != 0 && (!steps[end - 1].node || steps[end - 1].kind == StepKind::kFree)) --end;
    if (end == 0)
      return DeviceError(fmt::format("rank {}: before the first node: {}", rank_, problem), aftermath);
    if (end != begun_) problem = "behind it " + problem;
    return DeviceError(describe(body_.nodes[steps[end - 1].node], problem), aftermath);
  }

  std::string describe(const Node& node, std::string_view problem) const {
    const Site site = site_of(graph_, node);
    std::string text = fmt::format("rank {}: %{} = {}", rank_, site.node, site.op);
    if (!site.module.empty()) text += " in " + site.module;
    if (!site.source.empty()) text += " (" + site.source + ")";
    return fmt::format("{}: {}", text, problem);
  }

  // --- stretches ---

  void enter_stretch(std::uint32_t step) {
    const std::vector<Stretch>& stretches = program_.stretches;
    if (next_stretch_ < stretches.size() && stretches[next_stretch_].first == step)
      device_->begin_stretch(next_stretch_);
  }
  void leave_stretch(std::uint32_t step) {
    const std::vector<Stretch>& stretches = program_.stretches;
    if (next_stretch_ == stretches.size() || stretches[next_stretch_].end != step + 1) return;
    if (options_.names_ranges) device_->open_range(fmt::format("stretch {}", next_stretch_));
    device_->end_stretch();
    if (options_.names_ranges) device_->close_range();
    ++next_stretch_;
  }

  // --- turns ---

  bool has_turns() const { return turn_ != nullptr; }

  bool has_ranges(const Step& step) const {
    return options_.names_ranges && device_ != nullptr && step.kind != StepKind::kFree;
  }

  // --- devices ---

  void run_on_stream(const Step& step) {
    if (step.kind == StepKind::kRecord) return device_->record(step);
    if (step.kind == StepKind::kJoin) return device_->join(step);
    device_->synchronize();
    check_fault();
  }
  void check_fault() const {
    if (options_.process != nullptr) options_.process->exchange->require_sound();
    if (const auto fault = device_->take_fault())
      throw RunError(describe(body_.nodes[fault->node], fault->problem));
  }

  Value place(const RankInputs& inputs, std::size_t i) {
    if (!inputs[i].is_tensor()) return inputs[i];
    if (placed_ == nullptr || i >= program_.written.size() || program_.written[i])
      return memory_.place(inputs[i].tensor());
    placed_->resize(inputs.size());
    Value& placed = (*placed_)[i];
    if (placed.is_none()) placed = memory_.place(inputs[i].tensor());
    return placed;
  }

  // Tensors in host memory; on a device the host waits.
  Value on_host(const Value& value) const {
    if (device_ == nullptr) return value;
    return replace_tensors(value, [&](const Tensor& tensor) { return device_->download(tensor); });
  }

  // What the run returns and what it left in the inputs that it writes; after the device's work.
  void bring_back(const RankInputs& inputs) {
    result_.log = device_->take_log();
    for (Value& output : result_.outputs) output = on_host(output);
    std::size_t next = 0;
    for (const Step& step : program_.steps.list) {
      if (step.kind != StepKind::kInput) continue;
      const std::size_t i = next++;
      if (i >= program_.written.size() || !program_.written[i]) continue;
      const Value value = on_host(kept_[i]);
      if (!value.is_tensor()) continue;
      Buffer<std::byte> bytes(static_cast<std::size_t>(value.tensor().numel()) *
                              value.tensor().element_bytes());
      gather_elements(value.tensor(), bytes.data());
      scatter_elements(bytes.data(), inputs[i].tensor());
    }
  }

  void show_results() {
    const ShowResults& shown = *options_.shown;
    ResultHashes results(device_);
    if (shown.observer) {
      const auto add = [&](const std::string&, const Tensor& tensor, ResultKind) { results.add(tensor); };
      for (const Value& output : result_.outputs) for_each_result(output, {}, add);
      for (std::size_t i = 0; i < kept_.size() && i < shown.inputs.size(); ++i)
        if (shown.inputs[i] && kept_[i].is_tensor()) results.add(kept_[i].tensor());
    }
    if (device_ != nullptr) result_.log = device_->take_log();
    for (std::size_t i = 0; i < results.size(); ++i) shown.observer(rank_, i, results.at(i, result_.log));
    for (Value& output : result_.outputs) output = without_memory(output);
  }

  // One step in eight, by seed, rank and node: up to half a millisecond.
  void delay(const Step& step) const {
    std::uint64_t x =
        (*options_.jitter * 0x9e3779b97f4a7c15 + rank_) * 0xbf58476d1ce4e5b9 + step.node.index();
    x = (x ^ x >> 31) * 0x94d049bb133111eb;
    if (x >> 61 == 0) std::this_thread::sleep_for(std::chrono::microseconds(x >> 32 & 0x1ff));
  }

  void run_step(const Step& step, const Node& node) {
    if (step.kind == StepKind::kFree) {
      values_[step.node.index()] = Value();
      return;
    }
    if (step.kind == StepKind::kOutput) return take_outputs(node);
    const double start = clock_.host_seconds();
    switch (step.kind) {
      case StepKind::kComm:
        launch_collective(step, node);
        break;
      case StepKind::kWait:
        define(step.node, wait(step.node));
        break;
      case StepKind::kLaunch:
        clock_.measure(step.node, step.stream, [&] { define(step.node, call(step.node, node)); });
        break;
      default:
        define(step.node, node.kind == NodeKind::kGetAttr ? read_attribute(node) : call(step.node, node));
        break;
    }
    OpTime& time = times_[node.target];
    time.seconds += clock_.host_seconds() - start;
    ++time.calls;
  }

  Value read_attribute(const Node& node) {
    if (node.attr.is(ArgKind::kTensor)) return place_constant(graph_, symbols_, node.attr, memory_);
    if (!node.attr.is(ArgKind::kGraph)) return evaluate(environment_, node.attr);
    const Body* nested = graph_.find_body(node.attr.as_name());
    if (nested == nullptr) throw KernelError("the nested graph is not in the file");
    return make_function(graph_, *nested, program_.kernels, memory_);
  }

  Value call(NodeId id, const Node& node) {
    BoundCall bound = bind_values(environment_, node);
    if (is_mesh_op(*node.op))
      return evaluate_mesh_op(graph_, program_.world,
                              {node, rank_, bound.args.empty() ? Value() : bound.args[0]});
    if (node.op->cost != CostClass::kFree)
      for (const Value& arg : bound.args) collectives_.require_complete(arg);
    if (device_ != nullptr) forget_written(*node.op, bound.args);
    if (device_ != nullptr && reads_element(*node.op))
      for (Value& arg : bound.args) arg = on_host(arg);
    if (clock_.takes_spans()) result_.measured[id].operands = describe_operands(bound.args);
    KernelCall kernel(*node.op, std::move(bound.args), bound.given, memory_);
    kernel.set_results(evaluate_results(graph_, symbols_, node.type));
    if (node.op->is_random) kernel.set_draw(find_draw(id));
    const CallBounds::How how = bounds_.begin(id, kernel);
    Value result = program_.kernels.find(*node.op)(kernel);
    bounds_.end(id, how, {kernel.op(), kernel.args(), result});
    return result;
  }

  // By rank, and by how many calls of the graph's order draw before: two graphs that draw in the
  // same order draw the same, in whatever order their steps are issued.
  std::uint64_t find_draw(NodeId id) {
    if (draws_.empty())
      for (NodeId other : body_.order)
        if (const OpInfo* op = body_.nodes[other].op; op != nullptr && op->is_random)
          draws_.emplace(other, draws_.size());
    return RandomNumbers(rank_, "draws").bits(draws_.at(id));
  }

  // What an op writes in place, and, as its nested graphs are not looked into, all where it runs
  // one.
  void forget_written(const OpInfo& op, std::span<const Value> args) {
    for (const Value& arg : args) {
      if (arg.is<Function>()) device_->forget(nullptr);
      if (!op.writes) continue;
      if (arg.is_tensor()) device_->forget(arg.tensor().storage.get());
      if (arg.is<List>()) forget_written(op, arg.items());
    }
  }

  void end_bounds(const ErrorBounds& bounds) {
    if (options_.bounded->at_end) options_.bounded->at_end(rank_, result_.outputs, kept_, bounds);
    result_.without_bound = bounds.without_bound();
  }

  // --- collectives ---

  void launch_collective(const Step& step, const Node& node) {
    const BoundCall bound = bind_values(environment_, node);
    for (const Value& arg : bound.args) collectives_.require_complete(arg);
    if (device_ != nullptr) forget_written(*node.op, bound.args);
    if (clock_.takes_spans()) result_.measured[step.node] = collectives_.describe(*node.op, bound);
    const Known numbers = bounds_.takes_number_in_doubt(node) ? Known::kNo : Known::kYes;
    bounds_.hand_on_doubt(step.node);
    define(step.node, collectives_.launch(step, node, bound, numbers));
  }

  Value wait(NodeId id) {
    const Node& node = body_.nodes[id];
    const Value operand = evaluate(environment_, arg_of(context_, node, 0));
    collectives_.complete(operand.tensor().storage.get(), is_joined_ ? Joined::kYes : Joined::kNo);
    bounds_.hand_on_doubt(id);
    return operand;
  }

  // --- results ---

  // A kernel takes what the type rule of its op accepts: where that refuses the call, as `verify`
  // does, the graph is wrong and not the kernel.
  void require_arguments(const Node& node) const {
    if (!has_type_rule(node)) return;
    try {
      Facts facts(graph_);
      infer_type(facts, graph_, body_, node);
    } catch (const TypeMismatch& mismatch) {
      throw RunError(describe(node, mismatch.what()));
    }
  }

  void define(NodeId id, Value value) {
    check_recorded(body_.nodes[id], value);
    if (options_.observer && !collectives_.is_pending(value)) options_.observer(rank_, id, value, device_);
    if (is_bounded(options_, id) && options_.bounded->observer && !collectives_.is_pending(value))
      options_.bounded->observer(rank_, id, value, *bounds_.bounds());
    values_[id.index()] = std::move(value);
  }

  void check_recorded(const Node& node, const Value& value) {
    try {
      recorded_.check(node, value);
    } catch (const KernelError& error) {
      if (options_.types == RecordedTypes::kMustHold) throw;
      if (result_.contradictions++ == 0) result_.first_contradiction = describe(node, error.what());
    }
  }

  void take_outputs(const Node& node) {
    is_joined_ = false;
    collectives_.complete_all();
    const Value all = evaluate(environment_, context_.args[node.args][0]);
    result_.outputs = all.is<List>() ? all.items() : std::vector<Value>{all};
  }

  const Program& program_;
  const Graph& graph_;
  const Context& context_;
  const Body& body_;
  Rank rank_;
  StepCounter& counter_;
  HostExchange* host_exchange_;
  Memory& memory_;
  RankDevice* device_;
  Turn* turn_;
  const RunOptions& options_;
  std::vector<Value>* placed_;
  std::vector<Value> values_;
  CallBounds bounds_;
  RankClock clock_;
  RankCollectives collectives_;
  std::vector<Value> kept_;  // inputs, where they are computed with
  Symbols symbols_;
  RecordedValues recorded_;
  Environment environment_;
  std::unordered_map<StringId, OpTime> times_;
  std::uint32_t next_stretch_ = 0;
  std::uint32_t begun_ = 0;                // steps, the one that is carried out included
  bool is_joined_ = false;                 // the step before made the compute stream wait
  std::map<NodeId, std::uint64_t> draws_;  // calls that draw random numbers, numbered in the graph's order
  RankResult result_;
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
