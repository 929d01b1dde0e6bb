// Names for new symbols: letters, and the number behind the largest that a symbol of the graph has
// with them. torch tells symbols' kinds by the letters (u7 is unbacked, s3 is backed). A number in
// between may be that of a symbol that a pass before took away: with another meaning it would be
// taken for that one.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "ir/graph.h"

namespace epweave {

class FreshSymbols {
 public:
  explicit FreshSymbols(const Graph& graph);

  StringId next(std::string_view letters);
  // With the letters of another symbol.
  StringId like(StringId symbol);

 private:
  StringTable& strings_;
  std::map<std::string, std::uint64_t, std::less<>> next_;
};

}  // namespace epweave
