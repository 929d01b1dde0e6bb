#include "compare/rank_program.h"

#include <fmt/format.h>

#include <algorithm>

#include "analysis/collectives.h"
#include "ir/op.h"

namespace epweave {
namespace {

constexpr std::int64_t kMostRanks = 1 << 16;  // a larger number is no rank

// "all_reduce" of "_c10d_functional.all_reduce_.default".
std::string kind_of(std::string_view target) {
  const std::size_t begin = target.find('.') + 1;
  std::string_view kind = target.substr(begin, target.find('.', begin) - begin);
  if (kind.ends_with("_out")) kind.remove_suffix(4);
  if (kind.ends_with('_')) kind.remove_suffix(1);
  return std::string(kind);
}

class Reader {
 public:
  explicit Reader(const Graph& graph) : graph_(graph), context_(*graph.context), body_(graph.step()) {}

  RankProgram read() {
    program_.rank = find_info("rank");
    program_.world_size = find_info("world_size");
    for (const ProcessGroup& group : graph_.groups)
      program_.groups.push_back({std::string(graph_.text(group.name)), group.ranks});
    const std::vector<Launch> launches = find_launches(context_, body_);
    std::size_t next = 0;
    for (NodeId id : body_.order) {
      const Node& node = body_.nodes[id];
      if (is_launch(node)) add_launch(launches[next++]);
      if (is_wait(node)) add_wait(id);
    }
    program_.calls = std::make_shared<const RankCalls>(std::move(calls_));
    return std::move(program_);
  }

 private:
  std::optional<std::uint32_t> find_info(std::string_view key) const {
    if (!graph_.info.is(ArgKind::kDict)) return std::nullopt;
    const auto items = context_.args.children(graph_.info);
    for (std::size_t i = 0; i + 1 < items.size(); i += 2)
      if (items[i].is(ArgKind::kText) && context_.text(items[i].as_name()) == key && items[i + 1].is_int() &&
          items[i + 1].as_int() >= 0 && items[i + 1].as_int() <= kMostRanks)
        return static_cast<std::uint32_t>(items[i + 1].as_int());
    return std::nullopt;
  }

  void add_launch(const Launch& launch) {
    const Node& node = body_.nodes[launch.node];
    launch_of_.at(launch.node) = calls_.launches.size() + 1;
    calls_.events.push_back({.launch = static_cast<std::uint32_t>(calls_.launches.size()),
                             .node = std::string(graph_.text(node.name))});
    RankLaunch& made = calls_.launches.emplace_back();
    made.node = graph_.text(node.name);
    made.kind = kind_of(graph_.text(node.target));
    made.group = find_group(node, launch.group);
    for (std::size_t i = 0; i < node.op->params.size(); ++i) add_argument(node, i, made);
  }

  void add_argument(const Node& node, std::size_t position, RankLaunch& made) {
    const OpParam& param = node.op->params[position];
    const Arg* arg = find_arg(context_, node, position, param.name);
    if (arg == nullptr) return;
    if (param.name == "output_split_sizes") {
      made.receives = extents_of(*arg);
    } else if (param.name == "input_split_sizes") {
      made.sends = extents_of(*arg);
    } else if (param.name == "group_size") {
      made.group_size = extent_of(*arg);
    } else if (param.name == "input" || param.name == "inputs" || param.name == "self") {
      add_tensors(*arg, made);
    } else if (param.name == "reduce_op" || param.name == "src") {
      made.agreement += fmt::format("{}{}={}", made.agreement.empty() ? "" : ", ", param.name, word(*arg));
    }
  }
  std::string word(Arg arg) const {
    if (arg.is(ArgKind::kText)) return std::string(context_.text(arg.as_name()));
    const Extent number = extent_of(arg);
    return number ? std::to_string(*number) : "?";
  }

  void add_tensors(Arg arg, RankLaunch& made) {
    context_.args.for_each_node(arg, [&](NodeId id) {
      const TensorType* tensor = tensor_of(context_, body_.nodes[id].type);
      if (tensor == nullptr) return made.elements.push_back(std::nullopt);
      made.agreement +=
          fmt::format("{}{}", made.agreement.empty() ? "" : ", ", info(tensor->dtype).short_name);
      Extent elements = 1;
      const std::size_t skipped = made.kind == "all_to_all_single" ? 1 : 0;
      for (std::size_t i = skipped; i < tensor->sizes.size(); ++i) {
        const Extent extent = context_.exprs.constant(tensor->sizes[i]);
        elements = elements && extent ? Extent(*elements * *extent) : std::nullopt;
      }
      made.elements.push_back(elements);
    });
  }

  Extent extent_of(Arg arg) const {
    if (arg.is_int()) return arg.as_int();
    return arg.is(ArgKind::kSymbolic) ? context_.exprs.constant(arg.as_expr()) : std::nullopt;
  }
  std::vector<Extent> extents_of(Arg arg) const {
    std::vector<Extent> extents;
    if (arg.is_list())
      for (Arg item : context_.args.children(arg)) extents.push_back(extent_of(item));
    return extents;
  }

  std::uint32_t find_group(const Node& node, Arg group) const {
    StringId name;
    if (group.is(ArgKind::kText) || group.is(ArgKind::kProcessGroup)) name = group.as_name();
    if (group.is_node()) {  // looked up in a mesh: the recorded value says what it was
      const TypeId type = body_.nodes[group.as_node()].type;
      if (type && context_.types[type].kind == TypeKind::kValue &&
          context_.types[type].value.is(ArgKind::kProcessGroup))
        name = context_.types[type].value.as_name();
    }
    for (std::size_t i = 0; name && i < graph_.groups.size(); ++i)
      if (graph_.groups[i].name == name) return static_cast<std::uint32_t>(i);
    throw InputError(fmt::format("%{}: the graph does not say which ranks the group {} has",
                                 graph_.text(node.name), name_of_group(context_, body_, group)));
  }

  void add_wait(NodeId id) {
    const std::size_t launch = launch_of_[find_waited_launch(context_, body_, id)];
    if (launch == 0) return;
    calls_.events.push_back({.is_wait = true,
                             .launch = static_cast<std::uint32_t>(launch - 1),
                             .node = std::string(graph_.text(body_.nodes[id].name))});
  }

  const Graph& graph_;
  const Context& context_;
  const Body& body_;
  RankProgram program_;
  RankCalls calls_;
  SideTable<NodeId, std::size_t> launch_of_;  // position + 1
};

}  // namespace

RankProgram list_rank_program(const Graph& graph) {
  return Reader(graph).read();
}

std::optional<std::vector<std::uint32_t>> translate_members(const std::vector<std::uint32_t>& members,
                                                            std::uint32_t rank, std::uint32_t world_size) {
  const auto n = static_cast<std::uint32_t>(members.size());
  if (n == 0 || rank >= world_size) return std::nullopt;
  if (n == 1) return std::vector<std::uint32_t>{rank};
  if (members[1] <= members[0]) return std::nullopt;
  const std::uint32_t stride = members[1] - members[0];
  if (stride > world_size / n) return std::nullopt;
  const std::uint32_t block = stride * n;
  const auto members_of = [&](std::uint32_t r) {
    std::vector<std::uint32_t> found;
    for (std::uint32_t i = 0; i < n; ++i) found.push_back(r / block * block + r % stride + i * stride);
    return found;
  };
  if (world_size % block != 0 || members_of(members[0]) != members) return std::nullopt;
  return members_of(rank);
}

}  // namespace epweave
