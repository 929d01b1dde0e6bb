// What would fit where a graph does not: a module of it, or the same program at other sizes. Each
// is made, and counted as the graph itself.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "common/graphs.h"
#include "extract/extract.h"
#include "replay_fit.h"
#include "resize/resize.h"

namespace epweave::cli {
namespace {

// "layers.3.moe" of "layers.3.moe.router.gate": a module that can be extracted.
std::string_view block_of(std::string_view module) {
  std::size_t end = 0, elements = 0;
  while (end < module.size() && elements < 3) {
    end = std::min(module.find('.', end + 1), module.size());
    ++elements;
  }
  return module.substr(0, end);
}

struct Block {
  std::string_view module;
  std::size_t calls = 0;
};

// Parts of layers that can be looked at alone: of each kind (`moe` of layers.3.moe) the one of most
// calls, the largest first. A graph that is one of them has no other.
std::vector<Block> list_blocks(const Graph& graph) {
  std::map<std::string_view, std::size_t> counts;
  for (const NodeId id : graph.step().order) {
    const Node& node = graph.step().nodes[id];
    if (node.kind != NodeKind::kCall) continue;
    const std::string_view name = block_of(graph.text(node.module));
    if (std::count(name.begin(), name.end(), '.') == 2) ++counts[name];
  }
  if (counts.size() < 2) return {};
  std::map<std::string_view, Block> kinds;
  for (const auto& [module, calls] : counts) {
    Block& largest = kinds[module.substr(module.rfind('.'))];
    if (calls > largest.calls) largest = {module, calls};
  }
  std::vector<Block> blocks;
  for (const auto& [kind, block] : kinds) blocks.push_back(block);
  std::ranges::stable_sort(blocks, std::greater(), &Block::calls);
  return blocks;
}

}  // namespace

bool Fit::would_fit(const Graph& graph) const {
  FitCommand other{
      {}, command_.options, command_.ranks, command_.processes, command_.has_own_device, command_.compares};
  for (const FitGraph& run : command_.graphs) {
    FitGraph& made = other.graphs.emplace_back(
        FitGraph{graph, run.input, run.place, run.runs, run.has_bounds, run.bounded_place, {}});
    if (run.has_bounds)  // which it would be is not known: all
      for (const NodeId id : graph.step().order) made.followed.insert(id);
  }
  const Fit found(other);
  return std::ranges::all_of(found.memories_, [](const Memory& memory) { return memory.fits(); });
}

std::string Fit::find_part(const std::string& name) const {
  const Graph& graph = largest().run->graph;
  constexpr std::size_t kTried = 4;
  std::size_t tried = 0;
  for (const Block& block : list_blocks(graph)) {
    if (++tried > kTried) break;
    try {
      if (!would_fit(extract(graph, {.modules = {std::string(block.module)}}).graph)) continue;
    } catch (const PassError&) {
      continue;  // it cannot be looked at alone
    }
    return fmt::format("run one module (epweave extract {} --module {} -o PART.epw)", name, block.module);
  }
  return "";
}

// The largest of a size's halves, and of some numbers between, with which the graph fits; of one
// layer where it fits with none.
std::string Fit::find_size(const std::string& name) const {
  const Graph& graph = largest().run->graph;
  const std::vector<NamedSize> sizes = list_sizes(graph);
  const auto layers = std::ranges::find(sizes, std::string_view("layers"), &NamedSize::name);
  const auto first = std::ranges::find_if(
      sizes, [](const NamedSize& size) { return size.name != "layers" && size.value > 1; });
  const auto fits = [&](const std::vector<SizeSetting>& settings) {
    try {
      return would_fit(resize(graph, settings).graph);
    } catch (const PassError&) {
      return false;  // it has no such size
    }
  };
  const auto say = [&](const std::vector<SizeSetting>& settings) {
    std::string text;
    for (const SizeSetting& setting : settings)
      text += fmt::format(" --set {}={}", setting.name, setting.value);
    return fmt::format("make it smaller (epweave resize {}{} -o SMALL.epw)", name, text);
  };
  std::vector<SizeSetting> settings;
  for (const bool of_one_layer : {false, true}) {
    if (of_one_layer) {
      if (layers == sizes.end() || layers->value < 2) break;
      settings = {{"layers", 1}};
      if (fits(settings)) return say(settings);
    }
    if (first == sizes.end()) continue;
    const std::int64_t step = std::max<std::int64_t>(1, first->divisor);
    std::int64_t most = first->value, least = 0;
    for (std::int64_t size = most / 2 / step * step; size >= step && least == 0;
         size = size / 2 / step * step) {
      settings.push_back({first->name, size});
      (fits(settings) ? least : most) = size;
      settings.pop_back();
    }
    for (int i = 0; i < 3 && least != 0; ++i) {
      const std::int64_t size = (least + most) / 2 / step * step;
      if (size == least) break;
      settings.push_back({first->name, size});
      (fits(settings) ? least : most) = size;
      settings.pop_back();
    }
    if (least == 0) continue;
    settings.push_back({first->name, least});
    return say(settings);
  }
  return "";
}

std::string Fit::find_remedy(const Memory& memory) const {
  const std::string name = display_name(largest().run->input);
  std::vector<std::string> ways;
  for (const std::string& way : {find_part(name), find_size(name)})
    if (!way.empty()) ways.push_back(way);
  if (ways.empty()) ways.emplace_back("no module of it and no smaller size was found that fits");
  if (command_.ranks > 1 && memory.there) {
    double bytes = 0;
    for (const Line& line : memory.lines) bytes += line.bytes / command_.ranks;
    if (bytes <= *memory.there)
      ways.emplace_back(
          "give each rank a process of its own on a GPU or a host of its own (--transport nccl): one fits");
  }
  if (command_.ranks > 1) ways.emplace_back("trace the model on fewer ranks");
  ways.emplace_back("allow more with --memory");
  return fmt::format("{}", fmt::join(ways, "; "));
}

}  // namespace epweave::cli
