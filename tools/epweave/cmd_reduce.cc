// Shrinks a graph while a command exits 0.
#include <fmt/format.h>

#include "base/counted.h"
#include "commands.h"
#include "common/graphs.h"
#include "common/report.h"
#include "graph_command.h"
#include "reduce/reduce.h"

namespace epweave::cli {
namespace {

constexpr std::string_view kMark = "reduced_from";

// The content of which graph this one was reduced from, as its info says.
std::string mark_of(const Graph& graph) {
  if (!graph.info.is(ArgKind::kDict)) return "";
  const auto items = graph.context->args.children(graph.info);
  for (std::size_t i = 0; i + 1 < items.size(); i += 2)
    if (items[i].is(ArgKind::kText) && items[i + 1].is(ArgKind::kText) &&
        graph.text(items[i].as_name()) == kMark)
      return std::string(graph.text(items[i + 1].as_name()));
  return "";
}

Graph marked(Graph graph, const std::string& sha256) {
  std::vector<Arg> items;
  if (graph.info.is(ArgKind::kDict)) {
    const auto known = graph.context->args.children(graph.info);
    items.assign(known.begin(), known.end());
  }
  for (std::size_t i = 0; i + 1 < items.size(); i += 2)
    if (items[i] == Arg::text(graph.intern(kMark)))
      items.erase(items.begin() + static_cast<long>(i), items.begin() + static_cast<long>(i) + 2);
  items.push_back(Arg::text(graph.intern(kMark)));
  items.push_back(Arg::text(graph.intern(sha256)));
  graph.info = graph.context->args.add_tree(ArgKind::kDict, items);
  return graph;
}

class Reduce {
 public:
  Reduce(const ReduceOptions& options, Console& console)
      : options_(options),
        console_(console),
        command_({.words = options.command,
                  .timeout = options.timeout,
                  .is_verbose = console.verbose(),
                  .extension = extension_of_path(options.output.path),
                  .format = format_named(options.output.to),
                  .lanes = options.jobs}) {}

  int run() {
    Graph input = read_sound_input(options_.input, nullptr, Soundness::kStructure);
    nodes_before_ = input.step().order.size();
    sha256_ = sha256_of_graph(input);
    const Graph start = find_start(std::move(input));
    nodes_ = start.step().order.size();
    catch_interrupts();
    const Reduction reduction = reduce_graph(
        start, {.on_smaller = [&](const Graph& graph) { keep(graph); },
                .is_stopped = is_interrupted,
                .width = options_.jobs,
                .find_first = [&](std::span<const Graph> graphs) { return find_first(graphs); }});
    if (!file_exists(options_.output.path)) keep(reduction.graph);
    report(reduction);
    return reduction.is_finished ? kFine : kInterrupted;
  }

 private:
  // What an earlier run left in the output, if it is a reduction of this input that still holds.
  Graph find_start(Graph input) {
    const std::string& path = options_.output.path;
    if (file_exists(path)) {
      Graph earlier =
          read_sound_input({.path = path, .from = options_.output.to}, nullptr, Soundness::kStructure);
      if (mark_of(earlier) != sha256_)
        throw UsageError(fmt::format("{} exists and is no reduction of {}: remove it, or give another -o",
                                     path, display_name(options_.input)));
      if (holds(earlier)) {
        console_.info(fmt::format("{}: going on from {} nodes", path, earlier.step().order.size()));
        return earlier;
      }
      console_.warn(fmt::format("{}: the command fails on it; starting anew", path));
    }
    if (!holds(input))
      throw UsageError(
          fmt::format("the command does not exit 0 on {}: nothing to keep while it shrinks (-v shows "
                      "what it says)",
                      display_name(options_.input)));
    return input;
  }

  bool holds(const Graph& graph) { return find_first({&graph, 1}).has_value(); }

  // Runs in vain ahead of one that holds are not counted, so that the number does not depend on how
  // many run at once.
  std::optional<std::size_t> find_first(std::span<const Graph> graphs) {
    for (std::size_t i = 0; i < graphs.size(); ++i) command_.put(i, marked(graphs[i], sha256_));
    console_.progress(fmt::format("{} -> {} nodes, run {}", nodes_before_, nodes_, runs_ + 1));
    const std::optional<std::size_t> found = command_.find_first(graphs.size());
    runs_ += found ? *found + 1 : graphs.size();
    return found;
  }

  void keep(const Graph& graph) {
    write_output(marked(graph, sha256_), options_.output);
    nodes_ = graph.step().order.size();
    console_.detail(fmt::format("run {}: {} nodes", runs_, nodes_));
  }

  void report(const Reduction& reduction) {
    const std::size_t nodes = reduction.graph.step().order.size();
    if (console_.json())
      console_.print(report_text({{"input", file_report(options_.input.path)},
                                  {"output", file_report(options_.output.path)},
                                  {"nodes_before", nodes_before_},
                                  {"nodes_after", nodes},
                                  {"runs", runs_},
                                  {"finished", reduction.is_finished}}));
    console_.info(fmt::format("{}: {} -> {} in {}{}", options_.output.path, nodes_before_,
                              counted(nodes, "node"), counted(runs_, "run"),
                              reduction.is_finished ? "" : "; interrupted, the same command goes on"));
  }

  const ReduceOptions& options_;
  Console& console_;
  GraphCommand command_;
  std::string sha256_;  // of the input
  std::size_t nodes_before_ = 0, nodes_ = 0, runs_ = 0;
};

}  // namespace

int reduce(const ReduceOptions& options, Console& console) {
  if (options.output.path == "-") throw UsageError("give a file to write: -o OUT");
  if (options.command.empty())
    throw UsageError("give the command behind --: epweave reduce IN -o OUT -- CMD {}");
  if (options.input.path != "-" && is_same_file(options.input.path, options.output.path))
    throw UsageError("the output is the input: reduce never changes its input");
  check_output(options.output);
  return Reduce(options, console).run();
}

}  // namespace epweave::cli
