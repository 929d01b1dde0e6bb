#include "passes/fresh_symbols.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <utility>

namespace epweave {
namespace {

// Letters and number.
std::pair<std::string_view, std::uint64_t> split(std::string_view name) {
  const std::size_t digits = name.find_last_not_of("0123456789") + 1;
  std::uint64_t number = 0;
  std::from_chars(name.data() + digits, name.data() + name.size(), number);
  return {name.substr(0, digits), number};
}

}  // namespace

FreshSymbols::FreshSymbols(const Graph& graph) : strings_(graph.context->strings) {
  for (const Symbol& symbol : graph.symbols) {
    const auto [letters, number] = split(strings_[symbol.name]);
    std::uint64_t& next = next_[std::string(letters)];
    next = std::max(next, number + 1);
  }
}

StringId FreshSymbols::next(std::string_view letters) {
  return strings_.intern(fmt::format("{}{}", letters, next_[std::string(letters)]++));
}

StringId FreshSymbols::like(StringId symbol) {
  return next(split(strings_[symbol]).first);
}

}  // namespace epweave
