#include "reproducer.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "common/version.h"
#include "io/file.h"

namespace epweave::cli {
namespace {

constexpr int kMostFiles = 100;
constexpr std::string_view kKey = "reproducer";

// "a/out.epw", 2: "a/out.2.epw".
std::string numbered(const std::string& path, int number) {
  const std::size_t dot = path.find('.', path.rfind('/') == path.npos ? 1 : path.rfind('/') + 2);
  if (dot == path.npos) return fmt::format("{}.{}", path, number);
  const std::size_t last = path.ends_with(".gz") ? path.rfind('.', path.size() - 4) : path.rfind('.');
  const std::size_t at = last == path.npos || last < dot ? dot : last;
  return fmt::format("{}.{}{}", path.substr(0, at), number, path.substr(at));
}

std::string free_path(const std::string& path) {
  for (int i = 0; i < kMostFiles; ++i) {
    std::string name = i == 0 ? path : numbered(path, i);
    if (!file_exists(name)) return name;
  }
  throw InputError(fmt::format("{}: {} reproducers are there already; remove some", path, kMostFiles));
}

std::vector<Arg> entries_of(const Graph& graph) {
  if (!graph.info.is(ArgKind::kDict)) return {};
  const auto items = graph.context->args.children(graph.info);
  return {items.begin(), items.end()};
}

Arg text_arg(const Graph& graph, std::string_view text) {
  return Arg::text(graph.intern(text));
}

}  // namespace

std::string write_reproducer(Reproducer reproducer, const std::string& path) {
  Graph& graph = reproducer.input;
  const std::pair<std::string_view, std::string> fields[] = {{"pipeline", reproducer.pipeline},
                                                             {"verify", reproducer.verify},
                                                             {"versions", version_text("epweave")},
                                                             {"error", reproducer.error}};
  std::vector<Arg> record;
  for (const auto& [name, text] : fields) {
    record.push_back(text_arg(graph, name));
    record.push_back(text_arg(graph, text));
  }
  std::vector<Arg> entries = entries_of(graph);
  entries.push_back(text_arg(graph, kKey));
  entries.push_back(graph.context->args.add_tree(ArgKind::kDict, record));
  graph.info = graph.context->args.add_tree(ArgKind::kDict, entries);
  std::string name = free_path(path);
  write_graph(graph, name);
  return name;
}

std::optional<Reproducer> take_reproducer(Graph graph) {
  const Context& context = *graph.context;
  std::vector<Arg> entries = entries_of(graph);
  for (std::size_t i = 0; i + 1 < entries.size(); i += 2) {
    if (!entries[i].is(ArgKind::kText) || context.text(entries[i].as_name()) != kKey ||
        !entries[i + 1].is(ArgKind::kDict))
      continue;
    Reproducer reproducer;
    const auto record = context.args.children(entries[i + 1]);
    for (std::size_t k = 0; k + 1 < record.size(); k += 2) {
      if (!record[k].is(ArgKind::kText) || !record[k + 1].is(ArgKind::kText)) continue;
      const std::string_view name = context.text(record[k].as_name());
      const std::string text(context.text(record[k + 1].as_name()));
      if (name == "pipeline") reproducer.pipeline = text;
      if (name == "verify") reproducer.verify = text;
      if (name == "error") reproducer.error = text;
    }
    entries.erase(entries.begin() + static_cast<long>(i), entries.begin() + static_cast<long>(i) + 2);
    graph.info = entries.empty() ? Arg() : graph.context->args.add_tree(ArgKind::kDict, entries);
    reproducer.input = std::move(graph);
    return reproducer;
  }
  return std::nullopt;
}

}  // namespace epweave::cli
