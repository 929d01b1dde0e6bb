#include "passes/bucket/new_nodes.h"

#include <fmt/format.h>

#include <algorithm>

#include "ir/types/layout.h"
#include "ops/op.h"
#include "ops/type_rules.h"
#include "passes/pass.h"

namespace epweave {
namespace {

// "split_with_sizes_copy" of "aten.split_with_sizes_copy.out".
std::string_view base_name(std::string_view target) {
  const std::size_t first = target.find('.') + 1;
  return target.substr(first, target.find('.', first) - first);
}

}  // namespace

NewNodes::NewNodes(MergedGraph& merged)
    : merged_(merged), graph_(merged.graph()), context_(*graph_.context), facts_(graph_), types_(facts_) {
  for (NodeId id : graph_.step().order) names_.insert(graph_.step().nodes[id].name);
}

NodeId NewNodes::add(std::string_view target, std::vector<Arg> args, std::vector<Arg> kwargs) {
  Node node = *model_;
  node.name = fresh_name(base_name(target));
  node.target = graph_.intern(target);
  node.args = context_.args.add(args);
  node.kwargs = context_.args.add(kwargs);
  resolve_op(context_, node);
  try {
    node.type = types_.infer(graph_, graph_.step(), node);
  } catch (const TypeMismatch& error) {
    throw PassError("bucket.type", fmt::format("packing it does not type-check: {}", error.what()),
                    site_of(graph_, graph_.step().nodes[site_]),
                    "leave bucket out; what the graph records of its collectives contradicts itself");
  }
  const NodeId id = merged_.add(node);
  made_.push_back(id);
  return id;
}

StringId NewNodes::fresh_name(std::string_view base) {
  int& number = last_number_.try_emplace(std::string(base), -1).first->second;
  for (;;) {
    ++number;
    const StringId name = graph_.intern(number == 0 ? std::string(base) : fmt::format("{}_{}", base, number));
    if (names_.insert(name)) return name;
  }
}

Arg NewNodes::list(std::span<const Arg> items) {
  return context_.args.add_tree(ArgKind::kList, items);
}

Arg NewNodes::numbers(std::span<const std::int64_t> items) {
  std::vector<Arg> args;
  for (std::int64_t item : items) args.push_back(Arg::integer(item));
  return list(args);
}

std::vector<Arg> NewNodes::keyword(std::string_view name, Arg value) {
  return {Arg::text(graph_.intern(name)), value};
}

std::vector<std::int64_t> NewNodes::sizes_of(NodeId value) const {
  std::vector<std::int64_t> sizes;
  for (ExprId size : tensor_of(context_, graph_.step().nodes[value].type)->sizes)
    sizes.push_back(*context_.exprs.constant(size));
  return sizes;
}

NodeId NewNodes::add_view(NodeId of, const std::vector<std::int64_t>& sizes) {
  return add("aten.view.default", {Arg::node(of), numbers(sizes)});
}

NodeId NewNodes::add_wait(NodeId result) {
  return add("_c10d_functional.wait_tensor.default", {Arg::node(result)});
}

NodeId NewNodes::add_buffer(std::int64_t elements, DType dtype) {
  const TensorType& type = *tensor_of(context_, graph_.step().nodes[site_].type);
  std::vector<Arg> kwargs = keyword("dtype", Arg::named(ArgKind::kDType, graph_.intern(info(dtype).name)));
  for (Arg arg : keyword("device", Arg::named(ArgKind::kDevice, type.device))) kwargs.push_back(arg);
  for (Arg arg : keyword("pin_memory", Arg::boolean(false))) kwargs.push_back(arg);
  return add("aten.empty.memory_format", {numbers(std::array{elements})}, std::move(kwargs));
}

NodeId NewNodes::add_bit_view(NodeId of, DType dtype) {
  const Arg name = Arg::named(ArgKind::kDType, graph_.intern(info(dtype).name));
  const NodeId view = add("aten.view.dtype", {Arg::node(of), name});
  return add("aten.alias.default", {Arg::node(view)});
}

NodeId NewNodes::add_reshape(NodeId of, const std::vector<std::int64_t>& sizes) {
  const TensorType& type = *tensor_of(context_, graph_.step().nodes[of].type);
  if (is_contiguous(type) || (type.rank() <= 1 && sizes.size() == 1)) return add_view(of, sizes);
  std::int64_t elements = 1;
  for (std::int64_t size : sizes_of(of)) elements *= size;
  std::vector<std::int64_t> whole = sizes;
  for (std::int64_t size : sizes)
    if (size > 0) elements /= size;
  std::ranges::replace(whole, -1, elements);
  const Arg format = Arg::named(ArgKind::kMemoryFormat, graph_.intern("torch.contiguous_format"));
  const NodeId copy = add("aten.clone.default", {Arg::node(of)}, keyword("memory_format", format));
  return add("aten._unsafe_view.default", {Arg::node(copy), numbers(whole)});
}

bool NewNodes::is_contiguous(const TensorType& type) {
  return epweave::is_contiguous(facts_, layout_of(type));
}

}  // namespace epweave
