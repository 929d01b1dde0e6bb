// Against torchtitan: dce, canonicalize and dedup-unshard on each NAME.0_traced graph give the nodes, order
// and arguments of NAME.1_norm, and leave graphs alone that are already normal. The graphs are the files
// `NAME.STAGE.epw` of the directory in EPWEAVE_REFERENCE_GRAPHS (scripts/compare_reference.py makes them).
#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstdlib>
#include <filesystem>

#include "io/file.h"
#include "passes/canonicalize.h"
#include "passes/dce.h"
#include "passes/dedup_unshard.h"
#include "passes/runner.h"

namespace epweave {
namespace {

std::string print_range(const Graph& graph, const Body& body, ArgRange range);

// Enough to tell arguments of two contexts apart.
std::string print_arg(const Graph& graph, const Body& body, Arg arg) {
  const Context& context = *graph.context;
  if (arg.is_node()) return fmt::format("%{}", context.text(body.nodes[arg.as_node()].name));
  if (arg.is(ArgKind::kSymbolic)) return std::string(context.exprs.text(arg.as_expr()));
  const int kind = static_cast<int>(arg.kind());
  if (arg.is_tree()) return fmt::format("{}({})", kind, print_range(graph, body, arg.children()));
  switch (arg.kind()) {
    case ArgKind::kNone:
    case ArgKind::kBool:
    case ArgKind::kInt:
    case ArgKind::kReal:
    case ArgKind::kEllipsis:
      return fmt::format("{}:{}", kind, arg.bits());
    case ArgKind::kTypeRef:
      return "type";
    default:
      return fmt::format("{}:{}", kind, context.text(arg.as_name()));
  }
}

std::string print_range(const Graph& graph, const Body& body, ArgRange range) {
  std::string text;
  for (Arg arg : graph.context->args[range]) text += print_arg(graph, body, arg) + ", ";
  return text;
}

// The first inputs of dropped or differing nodes are what one wants to see.
std::vector<std::string> print_code(const Graph& graph) {
  std::vector<std::string> lines;
  for (const Body& body : graph.bodies) {
    lines.push_back(fmt::format("graph {}", graph.text(body.name)));
    for (NodeId id : body.order) {
      const Node& node = body.nodes[id];
      lines.push_back(fmt::format("{} = {}({} {}) {}", graph.text(node.name), graph.text(node.target),
                                  print_range(graph, body, node.args), print_range(graph, body, node.kwargs),
                                  print_arg(graph, body, node.attr)));
    }
  }
  return lines;
}

std::vector<std::string> files_of_stage(const std::string& stage) {
  std::vector<std::string> files;
  if (const char* directory = std::getenv("EPWEAVE_REFERENCE_GRAPHS"))
    for (const auto& entry : std::filesystem::directory_iterator(directory))
      if (entry.path().string().ends_with("." + stage + ".epw")) files.push_back(entry.path().string());
  std::sort(files.begin(), files.end());
  return files;
}

Graph normalise(const Graph& graph) {
  return dedup_unshard(canonicalize(dce(graph)));
}

std::size_t count_differences(const std::string& name, const std::vector<std::string>& ours,
                              const std::vector<std::string>& theirs) {
  std::vector<std::string> a = ours, b = theirs, only_ours, only_theirs;
  std::sort(a.begin(), a.end());
  std::sort(b.begin(), b.end());
  std::set_difference(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(only_ours));
  std::set_difference(b.begin(), b.end(), a.begin(), a.end(), std::back_inserter(only_theirs));
  for (std::size_t i = 0; i < std::min<std::size_t>(3, only_ours.size()); ++i)
    WARN(name << ": only ours: " << only_ours[i]);
  for (std::size_t i = 0; i < std::min<std::size_t>(3, only_theirs.size()); ++i)
    WARN(name << ": only theirs: " << only_theirs[i]);
  return std::max(only_ours.size(), only_theirs.size());
}

TEST_CASE("normalising gives torchtitan's normal form", "[reference]") {
  for (const std::string& path : files_of_stage("0_traced")) {
    const std::string name = std::filesystem::path(path).filename().string();
    const std::string norm_path = path.substr(0, path.size() - 12) + "1_norm.epw";
    if (!std::filesystem::exists(norm_path)) continue;
    const Graph traced = read_graph(path);
    const auto start = std::chrono::steady_clock::now();
    const Graph ours = normalise(traced);
    const double ms =
        std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
    const auto ours_code = print_code(ours), theirs_code = print_code(read_graph(norm_path));
    const std::size_t differences = count_differences(name, ours_code, theirs_code);
    fmt::print("{:<45} {:>6} -> {:>6} nodes, {} differ, {}, {:.1f} ms\n", name, traced.step().order.size(),
               ours.step().order.size(), differences,
               ours_code == theirs_code ? "identical" : "not identical", ms);
    CHECK(ours_code == theirs_code);
  }
}

TEST_CASE("normal graphs are left alone", "[reference]") {
  for (const char* stage : {"1_norm", "1b_remat"})
    for (const std::string& path : files_of_stage(stage)) {
      const std::string name = std::filesystem::path(path).filename().string();
      const Graph graph = read_graph(path);
      const auto start = std::chrono::steady_clock::now();
      const Graph ours = normalise(graph);
      const double ms =
          std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
      fmt::print("{:<45} {:>6} -> {:>6} nodes, {:.1f} ms\n", name, graph.step().order.size(),
                 ours.step().order.size(), ms);
      CHECK(count_differences(name, print_code(ours), print_code(graph)) == 0);
      CHECK(same_code(graph, ours));
    }
}

}  // namespace
}  // namespace epweave
