#include "passes/node_names.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/parse_number.h"

namespace epweave {

namespace {

// torch.fx's: words that begin with a capital are parted by underscores, all is lower case.
std::string snake_case(std::string_view target) {
  constexpr auto kIsLower = [](char c) { return 'a' <= c && c <= 'z'; };
  constexpr auto kIsUpper = [](char c) { return 'A' <= c && c <= 'Z'; };
  std::string name;
  char before = 0;
  for (char c : target) {
    if (kIsUpper(c) && kIsLower(before)) name += '_';
    name += kIsUpper(c) ? static_cast<char>(c - 'A' + 'a') : c == '.' ? '_' : c;
    before = c;
  }
  return name;
}

}  // namespace

NodeNames::NodeNames(Graph& graph, const Body& body) : graph_(graph) {
  for (NodeId id : body.order) taken_.insert(body.nodes[id].name);
}

StringId NodeNames::make(std::string_view wanted) {
  StringId name = graph_.intern(wanted);
  for (std::size_t i = 1; !taken_.insert(name); ++i) name = graph_.intern(fmt::format("{}_{}", wanted, i));
  return name;
}

StringId NodeNames::make_like(std::string_view target) {
  std::string base = snake_case(target);
  std::uint32_t number = 0;
  const std::size_t at = base.rfind('_');
  if (at != std::string::npos && at != 0) {
    if (const auto counted = parse_number<std::uint32_t>(std::string_view(base).substr(at + 1))) {
      number = *counted;
      base.resize(at);
    }
  }
  StringId name = graph_.intern(number == 0 ? base : fmt::format("{}_{}", base, number));
  if (taken_.insert(name)) return name;
  std::uint32_t& last = last_number_.at(graph_.intern(base));  // smaller ones are taken
  last = std::max(last, number);
  do {
    name = graph_.intern(fmt::format("{}_{}", base, ++last));
  } while (!taken_.insert(name));
  return name;
}

}  // namespace epweave
