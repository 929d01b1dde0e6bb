#include "compare/ranks/rank_program.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include "analysis/collectives.h"
#include "analysis/effects.h"
#include "analysis/missing_types.h"
#include "ir/facts.h"
#include "ops/collective_arguments.h"
#include "ops/op.h"

namespace epweave {
namespace {

constexpr std::string_view kAllToAll = "all_to_all_single";

// "all_reduce" of "_c10d_functional.all_reduce_.default".
std::string kind_of(std::string_view target) {
  const std::size_t begin = target.find('.') + 1;
  std::string_view kind = target.substr(begin, target.find('.', begin) - begin);
  if (kind.ends_with("_out")) kind.remove_suffix(4);
  if (kind.ends_with('_')) kind.remove_suffix(1);
  return std::string(kind);
}

// Calls that run the one nested graph they take once.
bool runs_once(std::string_view target) {
  static constexpr std::string_view kTargets[] = {"higher_order.invoke_subgraph",
                                                  "higher_order.wrap",
                                                  "higher_order.wrap_activation_checkpoint",
                                                  "higher_order.tag_activation_checkpoint",
                                                  "higher_order.wrap_with_set_grad_enabled",
                                                  "higher_order.wrap_with_autocast",
                                                  "higher_order.hints_wrapper"};
  return std::ranges::find(kTargets, target) != std::end(kTargets);
}

// PyTorch's, and those of the token exchanges that torchtitan offers: any of their ops that has no
// row may communicate.
bool is_communication_library(std::string_view target) {
  static constexpr std::string_view kLibraries[] = {
      "c10d",   "_c10d_functional", "_c10d_functional_autograd", "c10d_functional", "symm_mem", "_dtensor",
      "deepep", "hybridep",         "minimal_async_ep"};
  return std::ranges::find(kLibraries, target.substr(0, target.find('.'))) != std::end(kLibraries);
}

class ProgramReader {
 public:
  explicit ProgramReader(const Graph& graph) : graph_(graph), context_(*graph.context), facts_(graph) {}

  RankProgram read() {
    program_.rank = find_info("rank");
    program_.world_size = find_info("world_size");
    for (const ProcessGroup& group : graph_.groups)
      program_.groups.push_back({std::string(graph_.text(group.name)), group.ranks});
    read_body(graph_.step());
    program_.calls = std::make_shared<const RankCalls>(std::move(calls_));
    return std::move(program_);
  }

 private:
  // A body that was read, or is.
  struct Frame {
    Frame(const Body& b, std::string p, Frame* frame_of_call, NodeId call_of_body)
        : body(b), prefix(std::move(p)), outer(frame_of_call), call(call_of_body) {}

    const Body& body;
    std::string prefix;  // of its nodes' names: "subgraph_0/"
    Frame* outer;        // of a nested graph: who calls it, and by which call
    NodeId call;
    std::map<NodeId, Frame*> nested;                      // by the call
    std::map<NodeId, NodeId> given;                       // what the call gives, by placeholder
    std::optional<Effects> effects;                       // where launches write their operands
    std::map<NodeId, std::vector<std::size_t>> in_place;  // by storage: launches that write it
    SideTable<NodeId, std::size_t> first;                 // of the launches of a node: position + 1
    SideTable<NodeId, std::size_t> count;  // how many it stands for: more than one if it is a nested graph's
  };

  void read_body(const Body& body, Frame* outer = nullptr, NodeId call = {}) {
    Frame& frame = frames_.emplace_back(body, prefix_, outer, call);
    if (outer != nullptr) enter(frame);
    if (launches_in_place(graph_.step()) || launches_in_place(body)) frame.effects.emplace(graph_, body);
    active_.push_back(body.name);
    const std::vector<Launch> launches = find_launches(context_, body);
    std::size_t next = 0;
    for (NodeId id : body.order) {
      const Node& node = body.nodes[id];
      if (node.kind != NodeKind::kCall) continue;
      const std::size_t first = calls_.launches.size();
      if (is_launch(node)) {
        add_launch(frame, launches[next++]);
        note_in_place(frame, node, first);
      } else if (is_synchronous(node)) {
        const Arg* group = find_arg(context_, node, group_position(*node.op), "group_name");
        add_launch(frame, {id, group != nullptr ? *group : Arg()});
        add_wait_event(frame, id, first);
      } else if (is_wait(node)) {
        add_wait(frame, id);
      } else {
        read_call(frame, id);
      }
      frame.first.at(id) = first + 1;
      frame.count.at(id) = calls_.launches.size() - first;
    }
    active_.pop_back();
  }

  // ------------------------------------------------------------------------- nested graphs,
  // unknown calls

  // The last arguments of the call are what the body takes.
  void enter(Frame& frame) {
    frame.outer->nested[frame.call] = &frame;
    std::vector<NodeId> taken;
    for (NodeId id : frame.body.order)
      if (frame.body.nodes[id].kind == NodeKind::kPlaceholder) taken.push_back(id);
    const auto args = context_.args[frame.outer->body.nodes[frame.call].args];
    if (args.size() < taken.size()) return;
    for (std::size_t i = 0; i < taken.size(); ++i)
      if (const Arg arg = args[args.size() - taken.size() + i]; arg.is_node())
        frame.given[taken[i]] = arg.as_node();
  }

  void read_call(Frame& frame, NodeId id) {
    const Node& node = frame.body.nodes[id];
    std::vector<const Body*> nested;
    for_each_input(context_, node, [&](NodeId input) {
      const Arg& attr = frame.body.nodes[input].attr;
      const Body* body = attr.is(ArgKind::kGraph) ? graph_.find_body(attr.as_name()) : nullptr;
      if (body != nullptr && communicates(*body)) nested.push_back(body);
    });
    const std::string_view target = graph_.text(node.target);
    if (!nested.empty()) {
      const bool is_again = std::ranges::find(active_, nested.front()->name) != active_.end();
      if (nested.size() > 1 || is_again || !runs_once(target))
        return add_unknown(frame, id,
                           fmt::format("{} takes nested graph '{}', which communicates; how often it runs is "
                                       "not known",
                                       target, graph_.text(nested.front()->name)));
      const std::string outside =
          std::exchange(prefix_, fmt::format("{}{}/", prefix_, graph_.text(frame.body.nodes[id].name)));
      read_body(*nested.front(), &frame, id);
      prefix_ = outside;
    } else if (node.op == nullptr) {
      const StringId group = find_named_group(frame.body, node);
      if (group)
        add_unknown(frame, id,
                    fmt::format("{} is an unknown op and takes group {}", target, graph_.text(group)));
      else if (is_communication_library(target))
        add_unknown(frame, id, fmt::format("{} is an unknown op of a communication library", target));
    }
  }
  void add_unknown(const Frame& frame, NodeId id, std::string why) {
    calls_.faults.push_back({"ranks-unknown", name_in(frame, id), std::move(why)});
  }

  // Whether it has launches, waits, or calls of which that is not known.
  bool communicates(const Body& body) {
    const auto [found, is_new] = communicates_.try_emplace(body.name, false);
    if (!is_new) return found->second;
    const bool result = std::ranges::any_of(body.order, [&](NodeId id) {
      const Node& node = body.nodes[id];
      if (node.attr.is(ArgKind::kGraph)) {
        const Body* inner = graph_.find_body(node.attr.as_name());
        return inner != nullptr && communicates(*inner);
      }
      if (node.kind != NodeKind::kCall) return false;
      return is_launch(node) || is_wait(node) || is_synchronous(node) ||
             (node.op == nullptr &&
              (find_named_group(body, node) || is_communication_library(graph_.text(node.target))));
    });
    return communicates_[body.name] = result;
  }

  // A group of the table among the arguments.
  StringId find_named_group(const Body& body, const Node& node) const {
    StringId found;
    const auto visit = [&](Arg arg) {
      StringId name;
      if (arg.is(ArgKind::kText) || arg.is(ArgKind::kProcessGroup)) name = arg.as_name();
      if (arg.is_node()) name = recorded_group(context_, body, arg);
      for (const ProcessGroup& group : graph_.groups)
        if (name && group.name == name) found = name;
    };
    for (const Arg& arg : context_.args[node.args]) visit(arg);
    for (const Arg& arg : context_.args[node.kwargs]) visit(arg);
    return found;
  }

  std::string name_in(const Frame& frame, NodeId id) const {
    return frame.prefix + std::string(graph_.text(frame.body.nodes[id].name));
  }

  std::optional<std::uint32_t> find_info(std::string_view key) const {
    if (!graph_.info.is(ArgKind::kDict)) return std::nullopt;
    const auto items = context_.args.children(graph_.info);
    for (std::size_t i = 0; i + 1 < items.size(); i += 2)
      if (items[i].is(ArgKind::kText) && context_.text(items[i].as_name()) == key && items[i + 1].is_int() &&
          items[i + 1].as_int() >= 0 && std::cmp_less_equal(items[i + 1].as_int(), kMostRanks))
        return static_cast<std::uint32_t>(items[i + 1].as_int());
    return std::nullopt;
  }

  // ------------------------------------------------------------------------- launches

  void add_launch(const Frame& frame, const Launch& launch) {
    const Node& node = frame.body.nodes[launch.node];
    calls_.events.push_back(
        {.launch = static_cast<std::uint32_t>(calls_.launches.size()), .node = name_in(frame, launch.node)});
    is_waited_.push_back(false);
    RankLaunch& made = calls_.launches.emplace_back();
    made.node = calls_.events.back().node;
    made.kind = kind_of(graph_.text(node.target));
    made.group = find_group(frame, launch);
    for (std::size_t i = 0; i < node.op->params.size(); ++i) add_argument(frame.body, node, i, made);
    // What is scattered is a product that no node has: its factors may be cut otherwise on each
    // rank.
    if (node.op->family == OpFamily::kMatmulScatter) add_tensors(frame.body, Arg::node(launch.node), made);
    if (made.kind == kAllToAll) share_rows(frame.body, node, made);
    const ProcessGroup& group = graph_.groups[made.group];
    add_faults(made, find_argument_problems(context_, frame.body, node, group));
    add_faults(made, find_split_problems(context_, frame.body, node, group));
  }
  void add_faults(RankLaunch& made, std::vector<std::string> problems) {
    made.is_faulty = made.is_faulty || !problems.empty();
    for (std::string& problem : problems)
      calls_.faults.push_back({"ranks-call", made.node, std::move(problem)});
  }

  // Equal shares, as numbers: rows that one rank lists may meet those that another leaves to their
  // number.
  void share_rows(const Body& body, const Node& node, RankLaunch& made) {
    if (!made.sends.empty() && !made.receives.empty()) return;
    const auto members = static_cast<std::int64_t>(graph_.groups[made.group].ranks.size());
    const Arg* input = find_arg(context_, node, 0, "input");
    const TensorType* tensor = input != nullptr && input->is_node()
                                   ? tensor_of(context_, body.nodes[input->as_node()].type)
                                   : nullptr;
    if (members == 0) return;
    Extent share;
    if (tensor != nullptr && !tensor->sizes.empty()) share = extent_of(tensor->sizes[0], made);
    if (share) share = *share / members;
    for (std::vector<Extent>* rows : {&made.sends, &made.receives})
      if (rows->empty()) rows->assign(static_cast<std::size_t>(members), share);
  }

  void add_argument(const Body& body, const Node& node, std::size_t position, RankLaunch& made) {
    const OpParam& param = node.op->params[position];
    const Arg* arg = find_arg(context_, node, position, param.name);
    if (arg == nullptr) return;
    if (param.name == "output_split_sizes") {
      made.receives = extents_of(body, *arg, made);
    } else if (param.name == "input_split_sizes") {
      made.sends = extents_of(body, *arg, made);
    } else if (param.name == "group_size") {
      made.group_size = constant_of(*arg);
    } else if (is_sent(node, param)) {
      add_tensors(body, *arg, made);
    } else if (is_agreed(param.name)) {
      made.agreement += fmt::format("{}{}={}", made.agreement.empty() ? "" : ", ", param.name, word(*arg));
    }
  }
  static bool is_sent(const Node& node, const OpParam& param) {
    const OpFamily family = node.op->family;
    if (family == OpFamily::kGatherPair || family == OpFamily::kScatterPair) return param.type == "Tensor";
    return param.name == "input" || param.name == "inputs" || param.name == "self" ||
           (param.name == "A" && family == OpFamily::kGatherMatmul);
  }
  static bool is_agreed(std::string_view param) {
    return param == "reduce_op" || param == "src" || param == "gather_dim" || param == "scatter_dim" ||
           param == "seq_dim";
  }
  std::string word(Arg arg) const {
    if (arg.is(ArgKind::kText)) return std::string(context_.text(arg.as_name()));
    const Extent number = constant_of(arg);
    return number ? std::to_string(*number) : "?";
  }

  void add_tensors(const Body& body, Arg arg, RankLaunch& made) {
    for (const TensorType* tensor : tensors_of(context_, body, arg)) {
      Sizes& sizes = made.sizes.emplace_back();
      if (tensor == nullptr) continue;
      sizes.emplace();
      made.agreement +=
          fmt::format("{}{}", made.agreement.empty() ? "" : ", ", info(tensor->dtype).short_name);
      for (std::size_t i = made.kind == kAllToAll ? 1 : 0; i < tensor->sizes.size(); ++i)
        sizes->push_back(extent_of(tensor->sizes[i], made));
    }
  }

  Extent constant_of(Arg arg) const {
    if (arg.is_int()) return arg.as_int();
    return arg.is(ArgKind::kSymbolic) ? context_.exprs.constant(arg.as_expr()) : std::nullopt;
  }
  // As traced, where it is a symbol.
  Extent extent_of(ExprId size, RankLaunch& made) {
    const Extent number = context_.exprs.constant(size);
    if (number) return number;
    made.is_as_traced = true;
    return facts_.hint(size);
  }
  std::vector<Extent> extents_of(const Body& body, Arg arg, RankLaunch& made) {
    std::vector<Extent> extents;
    if (!arg.is_list()) return extents;
    for (Arg item : context_.args.children(arg)) extents.push_back(entry_of(body, item, made));
    return extents;
  }
  // Of a split table: a number, an expression, or a node that makes one.
  Extent entry_of(const Body& body, Arg item, RankLaunch& made) {
    if (item.is(ArgKind::kSymbolic)) return extent_of(item.as_expr(), made);
    if (!item.is_node()) return constant_of(item);
    const TypeId id = body.nodes[item.as_node()].type;
    if (!id) return std::nullopt;
    const Type& type = context_.types[id];
    if (type.kind == TypeKind::kScalar) return extent_of(type.expr, made);
    // What a call gave when it was traced: "=8".
    if (type.kind != TypeKind::kValue || !type.value.is_int()) return std::nullopt;
    made.is_as_traced = true;
    return type.value.as_int();
  }

  std::uint32_t find_group(const Frame& frame, const Launch& launch) const {
    const StringId name = recorded_group(context_, frame.body, launch.group);
    for (std::size_t i = 0; name && i < graph_.groups.size(); ++i)
      if (graph_.groups[i].name == name) return static_cast<std::uint32_t>(i);
    throw InputError(fmt::format("%{}: the graph does not say which ranks the group {} has",
                                 name_in(frame, launch.node),
                                 name_of_group(context_, frame.body, launch.group)));
  }

  // ------------------------------------------------------------------------- waits

  void add_wait_event(const Frame& frame, NodeId wait, std::size_t launch) {
    is_waited_[launch] = true;
    calls_.events.push_back(
        {.is_wait = true, .launch = static_cast<std::uint32_t>(launch), .node = name_in(frame, wait)});
  }

  // For the launch that the waited value comes from, and for all that were to write it in place.
  void add_wait(Frame& frame, NodeId id) {
    if (waits_for_copies(frame.body.nodes[id])) return;
    const auto [source, node] = find_source(&frame, id);
    if (source != nullptr)
      for (std::size_t i = 0; i < source->count[node]; ++i)
        add_wait_event(frame, id, source->first[node] - 1 + i);
    for_each_storage(frame, id, [&](Frame& of, NodeId storage) {
      const auto found = of.in_place.find(storage);
      if (found == of.in_place.end()) return;
      for (std::size_t launch : found->second)
        if (!is_waited_[launch]) add_wait_event(frame, id, launch);
      of.in_place.erase(found);
    });
  }

  // What a launch writes in place.
  void note_in_place(Frame& frame, const Node& node, std::size_t launch) {
    const auto note = [&](Arg arg) {
      if (!arg.is_node()) return;
      for_each_storage(frame, arg.as_node(),
                       [&](Frame& of, NodeId storage) { of.in_place[storage].push_back(launch); });
    };
    for (std::size_t i = 0; i < node.op->params.size(); ++i) {
      const OpParam& param = node.op->params[i];
      const Arg* arg = param.is_written ? find_arg(context_, node, i, param.name) : nullptr;
      if (arg == nullptr) continue;
      note(*arg);
      if (arg->is_list())
        for (Arg item : context_.args.children(*arg)) note(item);
    }
  }
  // Where a value lies: in a nested graph, and there where it is called.
  template <class Visit>
  void for_each_storage(Frame& frame, NodeId value, const Visit& visit) {
    for (Frame* at = &frame; at != nullptr && at->effects; at = at->outer) {
      const NodeId storage = at->effects->storage_of(value);
      visit(*at, storage);
      const auto given = std::ranges::find_if(
          at->given, [&](const auto& item) { return at->effects->storage_of(item.first) == storage; });
      if (given == at->given.end()) return;
      value = given->second;
    }
  }

  // Behind views, elements of tuples, other waits, and what a nested graph takes and gives: a
  // launch, or a call of a nested graph with launches.
  std::pair<Frame*, NodeId> find_source(Frame* frame, NodeId wait) {
    NodeId at = wait;
    for (;;) {
      const Node& node = frame->body.nodes[at];
      if (node.kind == NodeKind::kPlaceholder) {
        const auto given = frame->given.find(at);
        if (given == frame->given.end()) return {};
        at = given->second;
        frame = frame->outer;
        continue;
      }
      if (frame->count[at] != 0) return {frame, at};
      const bool hands_on = node.op != nullptr && (node.op->cost == CostClass::kFree || is_wait(node));
      const auto args = context_.args[node.args];
      if (!hands_on || args.empty() || !args[0].is_node()) return {};
      at = args[0].as_node();
      if (const auto found = find_given_back(*frame, node)) std::tie(frame, at) = *found;
    }
  }
  // What a nested graph gives as the element that is taken.
  std::optional<std::pair<Frame*, NodeId>> find_given_back(const Frame& frame, const Node& element) const {
    const auto args = context_.args[element.args];
    const auto nested = frame.nested.find(args[0].as_node());
    if (nested == frame.nested.end() || args.size() != 2 || !args[1].is_int() || args[1].as_int() < 0)
      return {};
    for (NodeId id : nested->second->body.order) {
      const Node& node = nested->second->body.nodes[id];
      if (node.kind != NodeKind::kOutput) continue;
      const auto outputs = context_.args[node.args];
      if (outputs.empty() || !outputs[0].is_list()) return {};
      const auto items = context_.args.children(outputs[0]);
      const auto place = static_cast<std::size_t>(args[1].as_int());
      if (place < items.size() && items[place].is_node())
        return std::pair(nested->second, items[place].as_node());
    }
    return {};
  }

  // By itself, or in a nested graph.
  bool launches_in_place(const Body& body) {
    const auto [found, is_new] = launches_in_place_.try_emplace(body.name, false);
    if (!is_new) return found->second;
    const bool result = std::ranges::any_of(body.order, [&](NodeId id) {
      const Node& node = body.nodes[id];
      if (node.attr.is(ArgKind::kGraph)) {
        const Body* inner = graph_.find_body(node.attr.as_name());
        return inner != nullptr && launches_in_place(*inner);
      }
      return is_launch(node) && node.op->writes;
    });
    return launches_in_place_[body.name] = result;
  }

  const Graph& graph_;
  const Context& context_;
  Facts facts_;
  RankProgram program_;
  RankCalls calls_;
  std::vector<bool> is_waited_;                                // of each launch
  std::string prefix_;                                         // of the names in the body that is being read
  std::vector<StringId> active_;                               // the bodies that are being read
  std::map<StringId, bool> communicates_, launches_in_place_;  // by body
  std::deque<Frame> frames_;
};

}  // namespace

RankProgram list_rank_program(const Graph& graph) {
  const std::optional<Graph> typed = write_missing_types(graph);
  return ProgramReader(typed ? *typed : graph).read();
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
