// A chunk plan for people and scripts: what is decided about every region, in the words of
// docs/chunking.md.
//
//   region layers.1.moe forward: 2 parts of u0 = 1024 tokens: 512 + 512
//     cut      %getitem_28 bf16[u0, 256] along 0
//     joined   %add_5 bf16[u0, 256]: cat along 0, for %add_6
//     %mm_11   Split(0)   rows of %_to_copy_29   chunk-equal
//
// What is cut and joined is read off the lowered graph, which makes slices and joins at first
// demand.
#pragma once

#include <string>
#include <vector>

#include "passes/chunk/chunk_plan.h"

namespace epweave {

struct RegionReport {
  std::string root;
  bool backward = false;
  std::size_t parts = 0;
  struct PartRows {
    std::string symbol;
    std::vector<std::string> extents;        // of each part
    std::vector<std::int64_t> numbers = {};  // the same with the symbol's hint; empty without one
  };
  std::vector<PartRows> rows;  // of each token symbol
  struct Value {
    std::string name, type, how, why;
  };
  std::vector<Value> cut, joined;
  struct Placed {
    std::string name, target, placement, reason, numerics;
  };
  std::vector<Placed> nodes;    // the divided ones
  std::size_t handed_over = 0;  // values of other regions that are taken in parts
  std::size_t once = 0;         // nodes that run once, on whole values
  std::size_t proved = 0, proved_exchanges = 0;
  std::vector<std::string> assumptions;
};

struct ChunkReport {
  std::vector<std::string> assumptions;  // about the tokens
  std::vector<RegionReport> regions;
};

// `lowered` is what lower_chunks made of the plan.
ChunkReport report_chunks(const Graph& graph, const ChunkPlan& plan, const Graph& lowered);

// One line per cut, join, proof and assumption.
std::vector<std::string> list_decisions(const ChunkReport& report);
std::string print_region_title(const RegionReport& region);

}  // namespace epweave
