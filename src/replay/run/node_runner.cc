#include "replay/run/node_runner.h"

#include "ops/bind.h"
#include "ops/op.h"
#include "replay/collectives/mesh_ops.h"
#include "replay/run/device_wait.h"
#include "replay/run/placed_inputs.h"

namespace epweave::replay {
namespace {

// The op reads an element of a tensor on the host.
bool reads_element(const OpInfo& op) {
  return op.family == OpFamily::kHostRead;
}

}  // namespace

NodeRunner::NodeRunner(const Program& program, const RankSetup& setup, const RunOptions& options,
                       const Around& around)
    : program_(program),
      setup_(setup),
      options_(options),
      around_(around),
      values_(program.body.nodes.size()),
      bounds_(program, options, setup.memory, values_),
      collectives_(program.graph, setup, options, around.clock, bounds_.bounds()),
      symbols_(program.graph),
      recorded_(*program.graph.context, symbols_),
      environment_{program.graph, symbols_,
                   [this](NodeId id) -> const Value& { return values_[id.index()]; }},
      draws_(program.body, setup.rank) {}

void NodeRunner::define(NodeId id, Value value) {
  check_recorded(program_.body.nodes[id], value);
  const bool is_there = !collectives_.is_pending(value);
  if (options_.observer && is_there) options_.observer(setup_.rank, id, value, setup_.device);
  if (is_bounded(options_, id) && options_.bounded->observer && is_there)
    options_.bounded->observer(setup_.rank, id, value, *bounds_.bounds());
  values_[id.index()] = std::move(value);
}

void NodeRunner::check_recorded(const Node& node, const Value& value) {
  try {
    recorded_.check(node, value);
  } catch (const KernelError& error) {
    if (options_.types == RecordedTypes::kMustHold) throw;
    if (around_.result.contradictions++ == 0)
      around_.result.first_contradiction = around_.errors.describe(node, error.what());
  }
}

Value NodeRunner::read_attribute(const Node& node) {
  const Graph& graph = program_.graph;
  if (node.attr.is(ArgKind::kTensor)) return place_constant(graph, symbols_, node.attr, setup_.memory);
  if (!node.attr.is(ArgKind::kGraph)) return evaluate(environment_, node.attr);
  const Body* nested = graph.find_body(node.attr.as_name());
  if (nested == nullptr) throw KernelError("the nested graph is not in the file");
  return make_function(graph, *nested, program_.kernels, setup_.memory);
}

Value NodeRunner::call(NodeId id) {
  const Node& node = program_.body.nodes[id];
  RankDevice* device = setup_.device;
  BoundCall bound = bind_values(environment_, node);
  if (is_mesh_op(*node.op))
    return evaluate_mesh_op(program_.graph, program_.world,
                            {node, setup_.rank, bound.args.empty() ? Value() : bound.args[0]});
  if (node.op->cost != CostClass::kFree)
    for (const Value& arg : bound.args) collectives_.require_complete(arg);
  if (device != nullptr) forget_written(*node.op, bound.args);
  const DeviceWait wait(device == nullptr ? nullptr : options_.process);  // some kernels wait, too
  if (reads_element(*node.op))
    for (Value& arg : bound.args) arg = on_host(device, arg);
  if (around_.clock.takes_spans()) around_.result.measured[id].operands = describe_operands(bound.args);
  KernelCall kernel(*node.op, std::move(bound.args), bound.given, setup_.memory);
  kernel.set_results(evaluate_results(program_.graph, symbols_, node.type));
  if (node.op->is_random) kernel.set_draw(draws_.find(id));
  const CallBounds::How how = bounds_.begin(id, kernel);
  Value result = program_.kernels.find(*node.op)(kernel);
  bounds_.end(id, how, {kernel.op(), kernel.args(), result});
  return result;
}

// What an op writes in place, and, as its nested graphs are not looked into, all where it runs
// one.
void NodeRunner::forget_written(const OpInfo& op, std::span<const Value> args) {
  for (const Value& arg : args) {
    if (arg.is<Function>()) setup_.device->forget(nullptr);
    if (!op.writes) continue;
    if (arg.is_tensor()) setup_.device->forget(arg.tensor().storage.get());
    if (arg.is<List>()) forget_written(op, arg.items());
  }
}

void NodeRunner::launch(const Step& step) {
  const Node& node = program_.body.nodes[step.node];
  const BoundCall bound = bind_values(environment_, node);
  for (const Value& arg : bound.args) collectives_.require_complete(arg);
  if (setup_.device != nullptr) forget_written(*node.op, bound.args);
  if (around_.clock.takes_spans())
    around_.result.measured[step.node] = collectives_.describe(*node.op, bound);
  const Known numbers = bounds_.takes_number_in_doubt(node) ? Known::kNo : Known::kYes;
  bounds_.hand_on_doubt(step.node);
  define(step.node, collectives_.launch(step, node, bound, numbers));
}

Value NodeRunner::wait(NodeId id, Joined joined) {
  const Node& node = program_.body.nodes[id];
  const Value operand = evaluate(environment_, arg_of(*program_.graph.context, node, 0));
  collectives_.complete(operand.tensor().storage.get(), joined);
  bounds_.hand_on_doubt(id);
  return operand;
}

std::vector<Value> NodeRunner::take_outputs(const Node& node) {
  collectives_.complete_all();
  const Value all = evaluate(environment_, program_.graph.context->args[node.args][0]);
  return all.is<List>() ? all.items() : std::vector<Value>{all};
}

}  // namespace epweave::replay
