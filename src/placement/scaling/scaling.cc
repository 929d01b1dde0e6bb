#include "placement/scaling/scaling.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "placement/scaling/scaling_rules.h"
#include "placement/scaling/scaling_solver.h"

namespace epweave {
namespace {

// Parameters and buffers have the same extents whatever the token count is; so have the other
// dimensions of the inputs that bring it.
void mark_inputs(const Graph& graph, const std::vector<TokenInput>& inputs, const ExtentTable& extents,
                 ScalingOptions options, ScalingSolver& solver) {
  auto counts_tokens = [&](NodeId node, std::size_t dim) {
    return std::any_of(inputs.begin(), inputs.end(),
                       [&](const TokenInput& input) { return input.node == node && input.dim == dim; });
  };
  for (const TokenInput& input : inputs) {
    const auto of_input = extents.of(input.node);
    for (std::size_t dim = 0; dim < of_input.size(); ++dim) {
      const std::string reason = fmt::format("dimension {} of input '{}'", dim, input.name);
      if (dim == input.dim) {
        solver.mark(of_input[dim], input.factor, input.node, reason);
      } else if (options.fixed_parameters && !counts_tokens(input.node, dim)) {
        solver.fix(of_input[dim], input.node, reason);
      }
    }
  }
  std::size_t position = 0;
  for (NodeId id : graph.step().order) {
    const Node& node = graph.step().nodes[id];
    if (node.kind != NodeKind::kPlaceholder || position >= graph.inputs.size()) break;
    const InputRole& role = graph.inputs[position++];
    const std::string_view kind = graph.text(role.role);
    const bool is_state = kind == "parameter" || kind == "buffer";
    if (is_state != options.fixed_parameters) continue;
    const auto of_input = extents.of(id);
    for (std::size_t dim = 0; dim < of_input.size(); ++dim)
      solver.fix(
          of_input[dim], id,
          fmt::format("dimension {} of {} '{}'", dim, kind, graph.text(role.fqn ? role.fqn : node.name)));
  }
}

// Slices of a value along a dimension, between numbers.
class SliceTable {
 public:
  SliceTable(ScalingSolver& solver, std::vector<SizeLiteral>& literals)
      : solver_(solver), literals_(literals) {}

  void add(const ScalingCall& call) {
    const std::span<const ExtentId> in = call.in(std::size_t{0}), out = call.out();
    const std::size_t dim = call.dim(1, in.size());
    if (!call.arg(0).is_node() || dim >= in.size() || out.size() != in.size() || !in[dim] || !out[dim])
      return;
    const std::int64_t whole = solver_.number(in[dim]), length = solver_.number(out[dim]);
    const auto number = [&](std::size_t param, std::int64_t otherwise) {
      return call.arg(param).is_none() ? otherwise : call.integer(param).value_or(-1);
    };
    const std::int64_t start = number(2, 0);
    if (start < 0 || number(3, whole) < 0 || number(4, 1) != 1 || length == 0) return;
    Slice slice{call.id, in[dim], out[dim], start, {}};
    for (const std::size_t param : {std::size_t{2}, std::size_t{3}})
      if (const auto place = call.integer(param)) slice.places.emplace_back(param, *place);
    slices_[{call.arg(0).as_node(), dim}].push_back(std::move(slice));
  }

  // Where they lie one behind the other, from the first element to the last, their lengths add up
  // to the extent, as those of a split's results do: backward of a join.
  void relate_tiles() {
    for (auto& [of, slices] : slices_) {
      std::ranges::stable_sort(slices, {}, &Slice::start);
      Extents lengths;
      std::int64_t end = 0;
      for (const Slice& slice : slices) {
        if (slice.start != end) break;
        lengths.push_back(slice.length);
        end += solver_.number(slice.length);
      }
      if (lengths.size() == slices.size() && end == solver_.number(slices[0].whole))
        solver_.relate_sum(slices[0].whole, lengths, slices[0].node);
    }
  }

  // Of an input that holds micro-batches one behind the other: so many as a slice takes.
  void relate_micro_batches(const TokenInput& input, std::int64_t micro_batches) {
    const auto found = slices_.find({input.node, input.dim});
    if (found == slices_.end() || micro_batches == 1) return;
    for (const Slice& slice : found->second) {
      const std::int64_t one = solver_.number(slice.whole) / micro_batches;
      const std::int64_t length = solver_.number(slice.length);
      if (one == 0 || slice.start % one != 0 || length % one != 0) continue;
      const auto relate = [&](ExtentId to, std::int64_t count) {
        solver_.relate_products({slice.whole, solver_.add_fixed(count)},
                                {to, solver_.add_fixed(micro_batches)}, slice.node);
      };
      relate(slice.length, length / one);
      for (const auto& [param, place] : slice.places) {
        if (place == 0 || place > solver_.number(slice.whole)) continue;
        const ExtentId extent = solver_.add(place);
        relate(extent, place / one);
        literals_.push_back({slice.node, param, std::nullopt, extent});
      }
    }
  }

 private:
  struct Slice {
    NodeId node;
    ExtentId whole, length;
    std::int64_t start = 0;
    std::vector<std::pair<std::size_t, std::int64_t>> places;  // parameters that say where it begins and ends
  };

  ScalingSolver& solver_;
  std::vector<SizeLiteral>& literals_;
  std::map<std::pair<NodeId, std::size_t>, std::vector<Slice>> slices_;
};

}  // namespace

ScalingFactors infer_scaling(const Graph& graph, Facts& facts, const std::vector<TokenInput>& inputs,
                             ScalingOptions options) {
  ScalingSolver solver(graph, options.micro_batches);
  ExtentTable extents(graph, facts, solver);
  std::vector<SizeLiteral> literals;
  SliceTable slices(solver, literals);
  const Body& step = graph.step();
  for (NodeId id : step.order) {
    const Node& node = step.nodes[id];
    if (node.op == nullptr) continue;
    ScalingCall call(graph, id, extents, solver, literals, options.equal_pieces);
    const ScalingRule rule = find_scaling_rule(*node.op);
    if (rule != nullptr) rule(call);
    if (rule == scaling::slice) slices.add(call);
  }
  slices.relate_tiles();
  for (const TokenInput& input : inputs) slices.relate_micro_batches(input, options.micro_batches);
  mark_inputs(graph, inputs, extents, options, solver);
  solver.solve();

  ScalingFactors result;
  if (!inputs.empty()) result.tokens = solver.number(extents.of(inputs[0].node)[inputs[0].dim]);
  for (NodeId id : step.order) {
    ScalingFactors::Dimensions dimensions;
    bool any = false;
    for (std::size_t e = 0; e < extents.tensor_count(id); ++e) {
      auto& tensor = dimensions.tensors.emplace_back();
      for (ExtentId extent : extents.of(id, e)) {
        tensor.push_back(solver.factor(extent));
        any |= tensor.back().has_value();
      }
    }
    if (any) result.of.at(id) = std::move(dimensions);
  }
  for (const SizeLiteral& literal : literals)
    if (const auto factor = solver.factor(literal.extent))
      result.arguments.push_back({literal.node, literal.param, literal.item, *factor});
  for (const auto& [poly, extent] : extents.sums())
    if (const auto factor = solver.factor(extent)) result.sums.emplace_back(poly, *factor);
  return result;
}

}  // namespace epweave
