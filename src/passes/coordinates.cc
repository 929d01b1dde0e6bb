#include "passes/coordinates.h"

#include <fmt/format.h>

#include <algorithm>

#include "analysis/random_draws.h"
#include "ir/facts.h"
#include "ir/walk.h"
#include "ops/mesh_calls.h"
#include "ops/op.h"
#include "ops/type_rules.h"
#include "passes/fresh_symbols.h"

namespace epweave {
namespace {

// Whole numbers on the host, such as the ranks of a mesh.
bool is_host_tensor(const Context& context, const TensorType& tensor) {
  return is_integral(tensor.dtype) && context.text(tensor.device) == "cpu";
}

}  // namespace

CoordinateWriter::CoordinateWriter(Graph& graph, std::uint32_t world_size, std::string_view pass)
    : graph_(graph), context_(*graph.context), world_size_(world_size), pass_(graph.intern(pass)) {
  for (NodeId id : graph.step().order) {
    const Node& node = graph.step().nodes[id];
    names_.insert(node.name);
    if (node.kind == NodeKind::kGetAttr) names_.insert(node.target);
  }
}

NodeId CoordinateWriter::coordinate(std::string_view axis_name, const GroupRule& axis) {
  const auto [known, is_new] = coordinates_.try_emplace({axis.stride, axis.extent});
  if (!is_new) return known->second;
  Node node;
  node.target = graph_.intern(target_of(MeshCall::kCoordinate));
  const Arg args[] = {Arg::node(write_ranks(axis_name, axis)), Arg::integer(1)};
  node.args = context_.args.add(args);
  const StringId symbol = add_symbol(axis);
  node.type = context_.types.intern({.kind = TypeKind::kScalar,
                                     .expr = context_.exprs.parse(graph_.text(symbol)),
                                     .py_type = graph_.intern("SymInt")});
  NodeExtra extra;
  extra.bindings.push_back({symbol, {}});
  node.extra = context_.own(std::move(extra));
  known->second = add(node, fmt::format("coordinate_{}", axis_name));
  made_.push_back(known->second);
  return known->second;
}

NodeId CoordinateWriter::number(std::string_view target, NodeId a, Arg b) {
  Node node;
  node.target = graph_.intern(target);
  const Arg args[] = {Arg::node(a), b};
  node.args = context_.args.add(args);
  const std::string_view what = target.substr(target.find('.') + 1);
  const NodeId id = add(node, fmt::format("{}_{}_{}", graph_.text(graph_.step().nodes[a].name), what,
                                          b.is_int() ? std::to_string(b.as_int()) : "c"));
  Facts facts(graph_);
  graph_.step().nodes[id].type = infer_type(facts, graph_, graph_.step(), graph_.step().nodes[id]);
  made_.push_back(id);
  return id;
}

NodeId CoordinateWriter::add(Node node, const std::string& name) {
  node.name = fresh_name(name);
  return add(node);
}

NodeId CoordinateWriter::add(Node node) {
  resolve_op(context_, node);
  if (!graph_.origins.empty())
    append_provenance(context_, node, {.pass = pass_, .role = ProvenanceRole::kAdded});
  return graph_.step().nodes.push_back(node);
}

void CoordinateWriter::place() {
  std::vector<NodeId>& order = graph_.step().order;
  const auto at = std::ranges::find_if(
      order, [&](NodeId id) { return graph_.step().nodes[id].kind != NodeKind::kPlaceholder; });
  order.insert(at, made_.begin(), made_.end());
}

StringId CoordinateWriter::fresh_name(const std::string& base) {
  StringId name = graph_.intern(base);
  for (int i = 1; !names_.insert(name).second; ++i) name = graph_.intern(fmt::format("{}_{}", base, i));
  return name;
}

// All ranks, with the axis as dimension 1.
NodeId CoordinateWriter::write_ranks(std::string_view axis_name, const GroupRule& axis) {
  const std::uint32_t outer = world_size_ / (axis.stride * axis.extent);
  TensorType type{.dtype = DType::kInt32, .device = graph_.intern("cpu")};
  for (std::int64_t size : {outer, axis.extent, axis.stride})
    type.sizes.push_back(context_.exprs.number(size));
  for (std::int64_t stride : {axis.extent * axis.stride, axis.stride, 1U})
    type.strides.push_back(context_.exprs.number(stride));
  std::vector<Arg> planes;
  for (std::uint32_t o = 0, rank = 0; o < outer; ++o) {
    std::vector<Arg> rows;
    for (std::uint32_t e = 0; e < axis.extent; ++e) {
      std::vector<Arg> row;
      for (std::uint32_t s = 0; s < axis.stride; ++s) row.push_back(Arg::integer(rank++));
      rows.push_back(context_.args.intern_tree(ArgKind::kList, row));
    }
    planes.push_back(context_.args.intern_tree(ArgKind::kList, rows));
  }
  Node node;
  node.kind = NodeKind::kGetAttr;
  node.type = context_.types.tensor(std::move(type));
  // Two meshes may have axes of one name: the path of each table is its node's own name.
  node.name = node.target = fresh_name(fmt::format("_ranks_by_{}", axis_name));
  const Arg fields[] = {Arg::text(node.target), Arg::type_ref(node.type),
                        context_.args.intern_tree(ArgKind::kList, planes)};
  node.attr = context_.args.add_tree(ArgKind::kTensor, fields);
  const NodeId id = add(node);
  made_.push_back(id);
  return id;
}

StringId CoordinateWriter::add_symbol(const GroupRule& axis) {
  Symbol symbol;
  symbol.name = FreshSymbols(graph_).next("u");
  symbol.lower = context_.exprs.number(0);
  symbol.upper = context_.exprs.number(axis.extent - 1);
  symbol.size_like = true;
  symbol.unbacked = true;
  graph_.symbols.push_back(symbol);
  return symbol.name;
}

IdSet<NodeId> find_rank_nodes(const Graph& graph) {
  const Context& context = *graph.context;
  const Body& body = graph.step();
  // What reads no tensor of the step, and which of that follows the rank.
  IdSet<NodeId> apart(body.nodes.size()), of_rank(body.nodes.size());
  for (const auto [id, node] : walk(context, body)) {
    const TensorType* tensor = tensor_of(context, node.type);
    if (tensor != nullptr && !is_host_tensor(context, *tensor)) continue;
    if ((tensor != nullptr && node.kind == NodeKind::kGetAttr) || recorded_mesh(context, node))
      apart.insert(id);
    if (node.kind != NodeKind::kCall || node.op == nullptr || node.op->is_effectful ||
        draws_random(graph, node))
      continue;
    const MeshCall call = mesh_call_of(node);
    std::size_t inputs = 0, inputs_apart = 0, inputs_of_rank = 0;
    for_each_input(context, node, [&](NodeId input) {
      ++inputs;
      inputs_apart += apart.contains(input) ? 1U : 0U;
      inputs_of_rank += of_rank.contains(input) ? 1U : 0U;
    });
    if (inputs != inputs_apart || (inputs == 0 && call == MeshCall::kNone)) continue;
    apart.insert(id);
    if (call != MeshCall::kNone || inputs_of_rank != 0) of_rank.insert(id);
  }
  // And what of it nothing else reads.
  IdSet<NodeId> read(body.nodes.size());
  for (const auto [id, node] : walk_back(context, body)) {
    if (node.kind == NodeKind::kPlaceholder) break;
    const bool is_of_rank = of_rank.contains(id) || (apart.contains(id) && !read.contains(id));
    if (is_of_rank) of_rank.insert(id);
    for_each_input(context, node, [&](NodeId input) {
      const bool is_input = body.nodes[input].kind == NodeKind::kPlaceholder;
      if (!is_of_rank) read.insert(input);
      if (is_of_rank && !is_input) of_rank.insert(input);
    });
  }
  return of_rank;
}

void hoist_rank_nodes(Graph& graph) {
  Body& step = graph.step();
  const IdSet<NodeId> of_rank = find_rank_nodes(graph);
  const auto rest = std::ranges::find_if(
      step.order, [&](NodeId id) { return step.nodes[id].kind != NodeKind::kPlaceholder; });
  std::stable_partition(rest, step.order.end(), [&](NodeId id) { return of_rank.contains(id); });
}

}  // namespace epweave
