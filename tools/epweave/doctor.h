// What a graph has and lacks of what passes, proofs and the replay read beyond its calls.
//
//   topic       lacking where                                  needed by
//   modules     no call says its module                        chunk, bucket, memory-policy, ...
//   directions  gradients are returned, and no call is backward   memory-policy, recompute, ...
//   roles       no input is a parameter, or no output a loss or gradient
//   tokens      no extent of the user inputs is a symbol       chunk
//   exchanges   an all-to-all has no label                     chunk, isolate-ep-pg, overlap-ep
//   division    chunk, which is tried, declines the modules that exchange tokens
//   groups      a launch's group has no members, or not those of other ranks
//   operators   the op table lacks a call's target             chunk, replay
//   inputs      the replay has no recipe for an input          epweave-replay
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ir/graph.h"

namespace epweave::cli {

enum class Health : std::uint8_t { kHas, kLacks, kNone };  // kNone: there is nothing to have

struct Finding {
  std::string_view topic;
  Health health = Health::kHas;
  std::string found;               // in a line
  std::string costs;               // what the lack costs; empty but for kLacks
  std::vector<std::string> add;    // lines that add it: Python, an option, or a recipe
  std::vector<std::string> cases;  // the first few things that lack it
};

// A pass that this graph gives nothing to do, whatever it has: overlap-ep in front of chunk.
struct IdlePass {
  std::string_view name;
  std::string why;
};

struct Diagnosis {
  std::vector<Finding> findings;   // in the order of the table above
  std::vector<std::string> roots;  // patterns of the modules that chunk divides, or declines
  bool is_divisible = false;       // chunk divides them, with a token symbol where that is lacking
  std::vector<IdlePass> idle;      // in the order of the registry

  const Finding& of(std::string_view topic) const;
};

Diagnosis diagnose(const Graph& graph);

// The topics that a pass, `partition` or `replay` reads and the graph lacks; none for a name that
// is none of these.
std::vector<std::string_view> list_lacks(const Diagnosis& diagnosis, std::string_view name);

}  // namespace epweave::cli
