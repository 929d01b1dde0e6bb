#include "graphs.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>

#include "analysis/fused_products.h"
#include "analysis/missing_types.h"

namespace epweave::cli {
namespace {

constexpr std::size_t kShownViolations = 10;

// Graphs that torchtitan chunked keep symbols of the unchunked graph in recorded types
// (docs/verify_findings.md). They are legal input, also after other passes of ours.
bool is_chunked_elsewhere(const Graph& graph) {
  const Body& step = graph.step();
  return std::any_of(step.order.begin(), step.order.end(),
                     [&](NodeId id) { return step.nodes[id].chunk.region.valid(); }) &&
         std::none_of(graph.passes.begin(), graph.passes.end(),
                      [](const PassRun& run) { return run.name == "chunk"; });
}

// Without those that reading lets pass. That a recorded type disagrees with the op table is for
// `epweave verify` to tell: a pass that depends on the type says better what the matter is.
std::vector<Violation> list_refused(const Graph& graph, std::vector<Violation> violations) {
  // Found only where the structure is sound.
  const bool has_unbound =
      std::ranges::find(violations, "symbols-bound", &Violation::invariant) != violations.end();
  const bool is_foreign = has_unbound && is_chunked_elsewhere(graph);
  std::erase_if(violations, [&](const Violation& v) {
    return v.invariant == "type" || (is_foreign && v.invariant == "symbols-bound");
  });
  return violations;
}

void refuse(const Graph& graph, const InputOptions& input, const std::vector<Violation>& violations) {
  if (violations.empty()) return;
  std::string text = fmt::format("{}: the graph breaks {} {}:", display_name(input), violations.size(),
                                 violations.size() == 1 ? "invariant" : "invariants");
  for (std::size_t i = 0; i < std::min(kShownViolations, violations.size()); ++i)
    text += "\n  " + print_violation(graph, violations[i]);
  if (violations.size() > kShownViolations)
    text +=
        fmt::format("\n  and {} more: `epweave verify` lists them all", violations.size() - kShownViolations);
  throw InputError(text);
}

}  // namespace

std::optional<Format> format_named(const std::string& name) {
  if (name.empty()) return std::nullopt;
  const std::optional<Format> format = find_format(name);
  if (!format)
    throw UsageError(fmt::format("unknown format '{}': one of {}", name, fmt::join(format_names(), ", ")));
  return format;
}

std::string display_name(const InputOptions& options) {
  return options.path == "-" ? "standard input" : options.path;
}

Graph read_input(const InputOptions& options, std::shared_ptr<Context> context) {
  return read_graph(options.path, format_named(options.from), std::move(context));
}

Graph read_sound_input(const InputOptions& options, std::shared_ptr<Context> context, Soundness soundness) {
  if (soundness == Soundness::kAll) return read_verified_input(options, std::move(context)).graph;
  Graph graph = read_input(options, std::move(context));
  std::vector<Violation> violations;
  verify_structure(graph, violations);
  refuse(graph, options, violations);
  return graph;
}

Graph read_written_out(const InputOptions& options) {
  Graph graph = read_sound_input(options);
  if (std::optional<Graph> typed = write_missing_types(graph)) graph = std::move(*typed);
  std::vector<Violation> violations;
  for (FusedFault& fault : find_fused_faults(graph, WrittenOut::kAll))
    violations.push_back(std::move(fault.violation));
  refuse(graph, options, violations);
  return expand_fused_products(std::move(graph));
}

VerifiedInput read_verified_input(const InputOptions& options, std::shared_ptr<Context> context) {
  Graph graph = read_input(options, std::move(context));
  std::vector<Violation> violations = verify_graph(graph);
  refuse(graph, options, list_refused(graph, violations));
  return {std::move(graph), std::move(violations)};
}

namespace {

// The ending of a file's name that names no form: "xyz" of "o.xyz" and "o.xyz.gz". Longer ones are
// no endings but names, such as those of mktemp.
std::optional<std::string> find_unknown_ending(std::string_view path) {
  constexpr std::size_t kLongest = 5;
  if (path.ends_with(".gz")) path.remove_suffix(3);
  path.remove_prefix(path.rfind('/') + 1);  // npos + 1 is 0
  const std::size_t dot = path.rfind('.');
  if (dot == std::string_view::npos || dot == 0) return std::nullopt;
  const std::string_view ending = path.substr(dot + 1);
  if (ending == "epw" || ending.empty() || ending.size() > kLongest ||
      format_of_path(path) != Format::kBinary)
    return std::nullopt;
  return std::string(ending);
}

}  // namespace

void check_output(const OutputOptions& options) {
  if (const auto ending = find_unknown_ending(options.path); ending && options.to.empty())
    throw UsageError(
        fmt::format("{}: the ending .{} names no form: end the name in .epw, .txt, .json or .onnx (and .gz "
                    "behind it), or say --to",
                    options.path, *ending));
  const Format format = format_named(options.to).value_or(format_of_path(options.path));
  if (format == Format::kPt2)
    throw UsageError(
        fmt::format("{}: archives of torch.export can only be read: write another form", options.path));
  const bool is_binary = format != Format::kText && format != Format::kJson;
  if (is_binary && options.path == "-" && !options.force && ::isatty(STDOUT_FILENO) == 1)
    throw UsageError(
        "standard output is a terminal and the output is binary: give -o FILE, --to text, or --force");
}

void write_output(const Graph& graph, const OutputOptions& options) {
  OutputFile file(options.path);
  encode_output(graph, options, file);
  file.commit();
}

void encode_output(const Graph& graph, const OutputOptions& options, OutputFile& file) {
  encode_file(graph, options.path, format_named(options.to),
              [&](std::string_view bytes) { file.write(bytes); });
}

}  // namespace epweave::cli
