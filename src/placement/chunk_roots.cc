#include "placement/chunk_roots.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "analysis/all_to_alls.h"
#include "analysis/eager_chunks.h"
#include "analysis/layers.h"
#include "analysis/module_names.h"
#include "ir/walk.h"
#include "ops/bind.h"

namespace epweave {
namespace {

constexpr std::string_view kDenseModel =
    "a dense model, or one traced without expert parallelism, has no token exchange to hide; preset overlap "
    "hides other communication, and chunk{dense=true} divides modules that exchange none";

class RootSelection {
 public:
  RootSelection(const Graph& graph, const PlacementOptions& options, ModuleMatcher& matcher)
      : graph_(graph), step_(graph.step()), options_(options), matcher_(matcher) {}

  ChunkRoots run() {
    collect([&](const Node& node) { return options_.dense || is_row_exchange(*graph_.context, node); });
    if (const auto& overlap = matcher_.overlap())
      throw PassError("chunk.overlapping-roots",
                      fmt::format("the patterns select '{}' and '{}', one inside the other",
                                  graph_.text(overlap->first), graph_.text(overlap->second)),
                      {}, "select each module once");
    sort_out_patterns();
    if (!found_.empty()) return std::move(result_);
    if (module_paths().empty())
      throw PassError("chunk.no-modules", "no call of the graph says which module it belongs to", {},
                      std::string(kNameModules));
    if (result_.unused_patterns.empty()) fail_unmatched();
    if (options_.require_exchange) fail_without_exchange();
    collect([](const Node& node) { return node.ep.ep || node.ep.token_exchange; });
    if (found_.empty())
      throw PassError(
          "chunk.no-region",
          fmt::format("no module selected by '{}' has expert-parallel labels{}",
                      fmt::join(result_.unused_patterns, ", "), describe_unmatched("; ")),
          {}, fmt::format("{}; dense=true takes all modules of a pattern, labelled or not", kCheckPattern));
    sort_out_patterns();
    return std::move(result_);
  }

 private:
  template <class Wanted>
  void collect(Wanted&& wanted) {
    result_.noted.clear();
    for (const auto [id, node] : walk_extras(*graph_.context, step_)) {
      if (node.kind != NodeKind::kCall) continue;
      const StringId root = matcher_.root_of(node.module);
      if (!root) continue;
      if (node.chunk.part || find_eager_notes(*graph_.context, node)) result_.noted.push_back(id);
      if (!wanted(node) || !result_.modules.insert(root)) continue;
      found_.push_back(root);
      result_.division.at(root) = division_of(root);
    }
  }

  [[noreturn]] void fail_without_exchange() const {
    throw PassError(
        "chunk.no-exchange",
        fmt::format("no module selected by '{}' exchanges tokens between ranks{}",
                    fmt::join(result_.unused_patterns, ", "), describe_unmatched("; ")),
        {},
        has_row_exchange(graph_)
            ? fmt::format("{}{}; require-exchange=false divides selected modules that have EP labels, "
                          "dense=true all selected modules",
                          kCheckPattern, name_exchanging_modules())
            : std::string(kDenseModel));
  }

  bool selects(const std::string& pattern, StringId root) const {
    return match_module(pattern, graph_.text(root)) == graph_.text(root);
  }

  // The division of the one pattern that selects the root.
  std::uint32_t division_of(StringId root) const {
    std::optional<std::size_t> first;
    for (std::size_t i = 0; i < options_.roots.size(); ++i) {
      if (!selects(options_.roots[i], root)) continue;
      if (first)
        throw PassError("chunk.overlapping-roots",
                        fmt::format("the patterns '{}' and '{}' both select '{}'", options_.roots[*first],
                                    options_.roots[i], graph_.text(root)),
                        {}, "select each module once");
      first = i;
    }
    return options_.divisions.empty() ? 0 : options_.divisions[*first];
  }

  // Lists the patterns that nothing was found for.
  void sort_out_patterns() {
    result_.unused_patterns.clear();
    result_.unmatched_patterns.clear();
    // Where no module exchanges tokens, another name is no better.
    const bool suggests = options_.dense || !options_.require_exchange || has_row_exchange(graph_);
    for (const std::string& pattern : options_.roots) {
      if (std::ranges::any_of(found_, [&](StringId root) { return selects(pattern, root); })) continue;
      const std::vector<std::string_view>& paths = module_paths();
      const bool matches = std::ranges::any_of(
          paths, [&](std::string_view path) { return !match_module(pattern, path).empty(); });
      if (matches) {
        result_.unused_patterns.push_back(pattern);
      } else {
        result_.unmatched_patterns.push_back(
            {pattern, suggests ? nearest_module(pattern, module_paths()) : std::string()});
      }
    }
  }

  const std::vector<std::string_view>& module_paths() {
    if (paths_.empty()) paths_ = list_module_paths(graph_);
    return paths_;
  }

  std::string describe_unmatched(std::string_view before) const {
    std::string text;
    for (const UnmatchedPattern& pattern : result_.unmatched_patterns) {
      text += before;
      text += print_unmatched(pattern);
      before = "; ";
    }
    return text;
  }

  // The pattern of the modules in which tokens are exchanged, as the end of a remedy; none where no
  // block exchanges any.
  std::string name_exchanging_modules() const {
    const BlockNames blocks = find_block_names(graph_);
    const std::string pattern = blocks.pattern + blocks.exchanging;
    const bool exchanges = std::ranges::any_of(step_.order, [&](NodeId id) {
      const Node& node = step_.nodes[id];
      return is_row_exchange(*graph_.context, node) && node.module &&
             !match_module(pattern, graph_.text(node.module)).empty();
    });
    return exchanges ? fmt::format("; tokens are exchanged in {0}: roots={0}", pattern) : std::string();
  }

  // In a dense model no other pattern is better, unless its modules are to be divided all the same.
  [[noreturn]] void fail_unmatched() {
    if (options_.dense || has_row_exchange(graph_)) {
      std::vector<std::string> problems;
      for (const UnmatchedPattern& unmatched : result_.unmatched_patterns)
        problems.push_back(describe_no_module(unmatched.pattern, module_paths()));
      throw PassError("chunk.no-region", fmt::format("{}", fmt::join(problems, "; ")), {},
                      options_.dense ? std::string(kCheckPattern)
                                     : std::string(kCheckPattern) + name_exchanging_modules());
    }
    std::string text;
    for (const UnmatchedPattern& unmatched : result_.unmatched_patterns)
      text += fmt::format(
          "{}'{}'{}", text.empty() ? "" : ", ", unmatched.pattern,
          unmatched.nearest.empty() ? "" : fmt::format(" (did you mean '{}'?)", unmatched.nearest));
    throw PassError("chunk.no-region",
                    fmt::format("no module matches {}, and no module of the graph exchanges tokens", text),
                    {}, std::string(kDenseModel));
  }

  const Graph& graph_;
  const Body& step_;
  const PlacementOptions& options_;
  ModuleMatcher& matcher_;
  std::vector<StringId> found_;
  std::vector<std::string_view> paths_;
  ChunkRoots result_;
};

}  // namespace

ChunkRoots select_roots(const Graph& graph, const PlacementOptions& options, ModuleMatcher& matcher) {
  return RootSelection(graph, options, matcher).run();
}

void require_unchunked(const Graph& graph, const ChunkRoots& roots, ModuleMatcher& matcher) {
  for (const auto [id, node] : walk(graph.step(), roots.noted)) {
    // Fields, or what torchtitan's eager chunker noted and mark-eager-chunks would make fields of.
    const std::optional<ChunkInfo> notes =
        node.chunk.part ? std::nullopt : find_eager_notes(*graph.context, node);
    const ChunkInfo& chunk = notes ? *notes : node.chunk;
    if (!chunk.part) continue;
    const StringId root = matcher.root_of(node.module);
    if (!roots.modules.contains(root)) continue;
    throw PassError(
        "chunk.already-chunked",
        fmt::format("'{}' is already divided into parts: this operation belongs to part {} of '{}'{}",
                    graph.text(root), *chunk.part, graph.text(chunk.region),
                    notes ? ", which was chunked in eager mode" : ""),
        site_of(graph, node),
        fmt::format("to schedule the parts that it has: -p {}isolate-ep-pg,overlap-ep,concretize; to divide "
                    "it otherwise: chunk the graph it was made from, with all patterns in one list "
                    "(roots=[A,B])",
                    notes ? "mark-eager-chunks," : ""));
  }
}

std::string print_unmatched(const UnmatchedPattern& unmatched) {
  return describe_no_module(unmatched.pattern, unmatched.nearest);
}

}  // namespace epweave
