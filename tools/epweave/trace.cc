#include "trace.h"

#include <fmt/format.h>

#include <map>

#include "analysis/collectives.h"
#include "analysis/users.h"
#include "common/report.h"
#include "cost/cost.h"

namespace epweave::cli {
namespace {

constexpr int kHost = 1, kCompute = 2, kFirstGroup = 3;  // tracks

class Tracer {
 public:
  Tracer(const TracedGraph& traced, int process, std::string& text)
      : graph_(*traced.graph),
        body_(graph_.step()),
        extents_(graph_),
        costs_(graph_, extents_),
        process_(process),
        text_(text) {
    name_track("process_name", 0, traced.name);
    name_track("thread_name", kHost, "host");
    name_track("thread_name", kCompute, "compute");
  }

  void run() {
    for (std::size_t i = 0; i < body_.order.size(); ++i) {
      const Node& node = body_.nodes[body_.order[i]];
      if (is_kernel(node)) {
        add_slice(body_.order[i], kCompute, {i, i + 1});
      } else if (node.op != nullptr && node.op->cost != CostClass::kFree) {
        add_slice(body_.order[i], kHost, {i, i + 1});
      }
    }
    add_groups();
  }

 private:
  struct Span {
    std::size_t begin, end;
  };
  struct Carried {
    NodeId launch;
    Span span;
  };

  void event(const Json& event) {
    text_ += text_.ends_with("[\n") ? "" : ",\n";
    text_ += report_line(event);
  }

  void name_track(const char* kind, int track, const std::string& name) {
    event({{"name", kind}, {"ph", "M"}, {"pid", process_}, {"tid", track}, {"args", {{"name", name}}}});
  }

  void add_slice(NodeId id, int track, Span span) {
    const Node& node = body_.nodes[id];
    Json args = {{"op", graph_.text(node.target)}, {"module", text_or_null(site_of(graph_, node).module)}};
    if (node.chunk.region) args["region"] = graph_.text(node.chunk.region);
    if (node.chunk.part) args["part"] = *node.chunk.part;
    args["direction"] = node.is_backward() ? "backward" : "forward";
    add_cost(id, args);
    for (const auto label : {node.ep.token_exchange, node.ep.token_exchange_wait})
      if (label) args["token_exchange"] = graph_.text(label);
    event({{"name", graph_.text(node.name)},
           {"cat", node.op != nullptr ? name_of(node.op->cost) : "unknown"},
           {"ph", "X"},
           {"ts", span.begin},
           {"dur", span.end - span.begin},
           {"pid", process_},
           {"tid", track},
           {"args", std::move(args)}});
  }

  // The bytes of a launch are those of its message.
  void add_cost(NodeId id, Json& args) {
    const Node& node = body_.nodes[id];
    if (!is_kernel(node) && !is_launch(node)) return;
    const std::optional<Cost> cost = costs_.cost_of(id);
    if (cost && cost->flops > 0) args["flops"] = cost->flops;
    args["bytes"] = cost ? Json(is_launch(node) ? cost->message : cost->bytes) : Json();
  }

  // Collectives with a wait, by group, in launch order.
  void add_groups() {
    const NodeLists users = list_users(*graph_.context, body_);
    const auto position = find_positions(body_, body_.order);
    std::map<std::pair<ArgKind, std::uint64_t>, std::size_t> index;
    std::vector<std::pair<Arg, std::vector<Carried>>> groups;
    for (const Launch& launch : find_launches(*graph_.context, body_)) {
      std::size_t end = 0;
      for (NodeId user : users[launch.node])
        if (end == 0 && is_wait(body_.nodes[user])) end = position[user];
      if (end == 0) continue;
      const auto [at, is_new] = index.try_emplace({launch.group.kind(), launch.group.bits()}, groups.size());
      if (is_new) groups.push_back({launch.group, {}});
      groups[at->second].second.push_back({launch.node, {position[launch.node], end}});
    }
    for (std::size_t g = 0; g < groups.size(); ++g) {
      const int track = kFirstGroup + static_cast<int>(g);
      name_track("thread_name", track,
                 fmt::format("group {}", name_of_group(*graph_.context, body_, groups[g].first)));
      serialize(groups[g].second);
      for (const Carried& carried : groups[g].second) add_slice(carried.launch, track, carried.span);
    }
  }

  // A group carries its collectives one by one: each is done when it or one behind it was waited
  // for.
  static void serialize(std::vector<Carried>& group) {
    for (std::size_t i = group.size(); i-- > 1;)
      group[i - 1].span.end = std::min(group[i - 1].span.end, group[i].span.end);
    for (std::size_t i = 1; i < group.size(); ++i)
      group[i].span.begin = std::max(group[i].span.begin, group[i - 1].span.end);
  }

  const Graph& graph_;
  const Body& body_;
  Extents extents_;
  CostModel costs_;
  int process_;
  std::string& text_;
};

}  // namespace

std::string trace_text(const std::vector<TracedGraph>& graphs) {
  std::string text = "{\"displayTimeUnit\": \"ms\", \"traceEvents\": [\n";
  for (std::size_t i = 0; i < graphs.size(); ++i) Tracer(graphs[i], static_cast<int>(i) + 1, text).run();
  return text + "\n]}\n";
}

}  // namespace epweave::cli
