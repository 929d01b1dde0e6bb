#include "passes/schedule/module_classes.h"

#include <fmt/format.h>

#include <bit>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string_view>

#include "analysis/all_to_alls.h"
#include "analysis/module_path.h"
#include "ir/walk.h"

namespace epweave {
namespace {

std::uint64_t mix(std::uint64_t a, std::uint64_t b) {
  std::uint64_t x = a * 0x9e3779b97f4a7c15 + b + 0x7f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  return x ^ (x >> 27);
}

// Whatever the order of its calls: passes in front may have moved some.
struct Module {
  std::string_view path;
  std::uint64_t work = 0;
  bool exchanges = false;
};

// "layers.12.moe" is 12 between "layers." and ".moe"; the last number of the path.
struct Numbered {
  std::string_view before, behind;
  std::optional<std::uint64_t> number;
};
Numbered split_number(std::string_view path) {
  constexpr std::string_view kDigits = "0123456789";
  const std::size_t last = path.find_last_of(kDigits);
  if (last == path.npos) return {path, {}, {}};
  const std::size_t before = path.find_last_not_of(kDigits, last);
  const std::size_t first = before == path.npos ? 0 : before + 1;
  constexpr std::size_t kMostDigits = 18;
  if (last - first >= kMostDigits) return {path, {}, {}};
  std::uint64_t number = 0;
  for (char digit : path.substr(first, last + 1 - first))
    number = number * 10 + static_cast<unsigned>(digit - '0');
  return {path.substr(0, first), path.substr(last + 1), number};
}

}  // namespace

std::vector<ModuleClass> list_module_classes(const Graph& graph, const std::vector<std::string>& patterns,
                                             const NodeTimes& times) {
  ModuleMatcher matcher(patterns, graph.context->strings);
  std::vector<Module> modules;
  SideTable<StringId, std::size_t> places(~std::size_t{0});
  for (const auto [id, node] : walk(graph.step())) {
    if (node.kind != NodeKind::kCall) continue;
    const StringId root = matcher.root_of(node.module);
    if (!root) continue;
    if (places[root] == ~std::size_t{0}) {
      places.at(root) = modules.size();
      modules.push_back({graph.text(root)});
    }
    Module& module = modules[places[root]];
    if (is_row_exchange(*graph.context, node)) module.exchanges = true;
    const double seconds = times.kernel[id] + times.collective[id];
    if (seconds == 0) continue;
    module.work +=
        mix(mix(node.target.index(), node.is_backward() ? 1 : 0), std::bit_cast<std::uint64_t>(seconds));
  }
  std::vector<ModuleClass> classes;
  std::map<std::uint64_t, std::size_t> known;
  for (const Module& module : modules) {
    const auto [entry, is_new] = known.try_emplace(module.work, classes.size());
    if (is_new) classes.emplace_back();
    ModuleClass& same = classes[entry->second];
    same.modules.emplace_back(module.path);
    same.exchanges |= module.exchanges;
  }
  return classes;
}

std::string print_modules(const std::vector<std::string>& modules) {
  std::string text;
  for (std::size_t i = 0; i < modules.size();) {
    const Numbered first = split_number(modules[i]);
    Numbered last = first;
    std::size_t end = i + 1;
    for (; first.number && end < modules.size(); ++end) {
      const Numbered next = split_number(modules[end]);
      if (next.before != first.before || next.behind != first.behind || next.number != *last.number + 1)
        break;
      last = next;
    }
    if (!text.empty()) text += ", ";
    text += end == i + 1
                ? modules[i]
                : fmt::format("{}{{{}..{}}}{}", first.before, *first.number, *last.number, first.behind);
    i = end;
  }
  return text;
}

}  // namespace epweave
