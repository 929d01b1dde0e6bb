// choose-chunks: whether to divide modules into parts, which, and into how many, by what the
// schedule of each choice is predicted to take.
//
//   16B over 2 nodes of 4 GPUs     whole 1085 ms    layers.*.moe in 2 parts 977    layers.* in 2 parts 904: chosen
//   16B on one node                whole  881: chosen                    884                          889
//
// Dividing costs compute and hides exchanges; which of the two is more depends on the machine. Each
// choice is made for real (chunk, then isolate-ep-pg with counts apart), scheduled quickly and
// priced (schedule.h, chunk_trials.h). The least of those within the budget of memory is where the
// choice of each region starts: modules that do the same are decided once, and one that is better
// whole, or in other parts, than the rest gets that (region_choices.h). The result is not yet
// scheduled. Of it, collectives are merged (bucket{plan=overlap}) where the schedule is
// predicted to take less for it: the quick one, and the one that follows, where that is known. The
// notes list all of them. Choices that chunk declines are listed with its reason and remedy; where
// it declines all of them, a note says so. Where shards differ in size, all ranks take the prices
// of whole ones (whole_shards.h); where those cannot be known, nothing is chosen, and the note says
// what to give instead.
//
// Numerics: that of chunk, or reorder where nothing is divided; that of bucket where collectives
// are merged.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "passes/chunk/chunk.h"
#include "passes/schedule/schedule.h"

namespace epweave {

struct ChooseChunksOptions {
  ChunkOptions chunk;  // what it says of all choices; its roots are not taken
  // Modules to divide; none: what exchanges tokens in each block, or blocks.
  std::vector<std::string> roots;
  std::optional<std::int64_t> parts;  // none: 2 or 4
  ScheduleOptions schedule;
  std::optional<ScheduleOptions> then;  // of the schedule behind it: merging must pay there, too
};

PassResult choose_chunks(const Graph& graph, const ChooseChunksOptions& options);

}  // namespace epweave
