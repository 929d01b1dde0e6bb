// Builds a training graph call by call, types by rule: for tests and generators that need graphs
// which nobody traced.
//
//   StepBuilder build;
//   build.symbol({.name = "u0", .hint = 48, .divisor = 8});
//   NodeId x = build.input("tokens", build.tensor("torch.int64", {"u0"}), {.role = "user", .which =
//   "tokens"}); build.in_module("layers.0.moe"); NodeId y = build.call("aten.add.Tensor", {build.arg(x),
//   build.arg(1)}); Graph graph = build.finish({{y, "loss", ""}});
//
// The graph is one rank's view of `world` ranks that all share the process groups "0" (all ranks,
// mesh axis "dp") and "1" (expert parallel; the same ranks).
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ir/facts.h"
#include "ir/graph.h"

namespace epweave {

inline constexpr std::string_view kF32 = "torch.float32", kI64 = "torch.int64";

class StepBuilder {
 public:
  explicit StepBuilder(std::uint32_t world);

  struct SymbolSpec {
    std::string_view name;
    std::optional<std::int64_t> hint = {};
    std::int64_t divisor = 1;               // recorded as a fact
    std::vector<std::string> asserts = {};  // more of them
  };
  void symbol(const SymbolSpec& spec);  // before the first call

  struct Role {
    std::string_view role;  // parameter, buffer, user
    std::string_view fqn = {}, which = {};
    std::int64_t bound_dim = 0;
  };
  // `bound`: the symbol that the input's extent along `role.bound_dim` defines.
  NodeId input(std::string_view name, TypeId type, const Role& role, std::string_view bound = {});

  // Labels of the calls that follow.
  void in_module(std::string_view module);
  void in_backward() { backward_ = true; }

  using Keywords = std::vector<std::pair<std::string_view, Arg>>;
  // Throws TypeMismatch where the arguments do not fit.
  NodeId call(std::string_view target, const std::vector<Arg>& args, const Keywords& keywords = {});
  // A call that reads a number nobody knows before: `symbol`.
  NodeId call_binding(std::string_view target, const std::vector<Arg>& args, std::string_view symbol);
  Node& node(NodeId id) { return body().nodes[id]; }

  // A nested graph of scalars, such as a mask function: the inputs and calls that follow are in it,
  // until it is ended with what it returns.
  void begin_function(std::string_view name) { start_body(name); }
  NodeId parameter(std::string_view dtype, const std::vector<std::string>& sizes = {});
  NodeId end_function(Arg result);  // the node of the step that stands for it

  struct Result {
    NodeId value;
    std::string_view role;  // loss, grad, other
    std::string fqn;
  };
  Graph finish(const std::vector<Result>& results);

  // Arguments.
  Arg arg(NodeId id) const { return Arg::node(id); }
  Arg arg(std::int64_t value) const { return Arg::integer(value); }
  Arg arg(double value) const { return Arg::real(value); }
  Arg flag(bool value) const { return Arg::boolean(value); }
  Arg text(std::string_view value) const { return Arg::text(graph_.intern(value)); }
  Arg dtype(std::string_view name) const { return Arg::named(ArgKind::kDType, graph_.intern(name)); }
  StringId word(std::string_view value) const { return graph_.intern(value); }
  Arg memory_format(std::string_view name) const {
    return Arg::named(ArgKind::kMemoryFormat, graph_.intern(name));
  }
  Arg device(std::string_view name) const { return Arg::named(ArgKind::kDevice, graph_.intern(name)); }
  Arg list(const std::vector<Arg>& items) const {
    return graph_.context->args.add_tree(ArgKind::kList, items);
  }
  Arg tuple(const std::vector<Arg>& items) const {
    return graph_.context->args.add_tree(ArgKind::kTuple, items);
  }
  Arg record(const std::vector<Arg>& keys_and_values) const {
    return graph_.context->args.add_tree(ArgKind::kDict, keys_and_values);
  }

  // Types. Extents are expressions.
  TypeId tensor(std::string_view dtype, const std::vector<std::string>& sizes);
  const TensorType& type_of(NodeId id) const;  // of a tensor
  std::string extent(NodeId id, std::size_t dim) const;
  std::optional<std::int64_t> number(NodeId id, std::size_t dim) const;  // an extent that is no symbol
  std::size_t rank_of(NodeId id) const { return type_of(id).rank(); }

 private:
  Body& body() { return graph_.bodies[body_]; }
  const Body& body() const { return graph_.bodies[body_]; }
  void start_body(std::string_view name);
  Node make(std::string_view target, const std::vector<Arg>& args, const Keywords& keywords);
  NodeId add(Node node);
  Facts& facts();

  Graph graph_;
  std::optional<Facts> facts_;
  StringId module_;
  bool backward_ = false;
  std::uint32_t made_ = 0;
  std::size_t body_ = 0;  // that calls are added to: 0 is the step
};

}  // namespace epweave
