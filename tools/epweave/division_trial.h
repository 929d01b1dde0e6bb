// Whether chunk divides modules of a graph. It is asked: chunk runs, and its result is thrown away.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "ir/graph.h"
#include "passes/symbolize.h"
#include "placement/token_extent.h"

namespace epweave::cli {

struct DivisionQuestion {
  std::vector<std::string> patterns;        // of modules that exchange tokens, or of any where `dense`
  std::optional<SymbolizeOptions> symbols;  // symbolize runs ahead of chunk
  GridDim dim = GridDim::kBatch;
  bool dense = false;
};

struct DivisionTrial {
  // Of each pattern the smallest module, it or one around it, that chunk divides; the pattern where
  // it declines all.
  std::vector<std::string> roots;
  std::size_t modules = 0;           // that are divided
  std::optional<PassError> refusal;  // the first

  bool is_accepted() const { return modules != 0; }
};

DivisionTrial try_division(const Graph& graph, const DivisionQuestion& question);

// "chunk{roots=layers.*.moe,dim=seq}"
std::string print_division(const DivisionQuestion& question, const DivisionTrial& trial);

}  // namespace epweave::cli
