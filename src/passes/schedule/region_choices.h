// Of a step that is best divided alike: which modules are better divided otherwise.
//
//   layers.* in 2 parts is best    layers.0 (dense): whole?  in 4 parts?
//                                  layers.{1..25}: MoE alone?  layers.26: whole?  ..
//
// Modules that do the same (module_classes.h) are decided once. What a class can gain is measured
// first: dividing it may hide what is exposed of its collectives, leaving it whole saves the kernel
// time that dividing it adds. Where that is less than one part in 500 of the step, which is what a
// quick look can tell apart, nothing is tried; else each other choice is made for this class alone
// (chunk_trials.h), in the order of what they can gain, and the best is kept for the next. What was
// longer for all modules by more than half of the time of all other classes is longer for this one,
// too, and not tried again.
//
// Where a division of all modules would take less, but not fit into the budget of memory, as many
// of the last modules get it as fit, by halves: what they add is gone before the backward of the
// others.
#pragma once

#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "passes/schedule/chunk_trials.h"

namespace epweave {

// Choices that are the same for all modules.
struct UniformTrials {
  const ChunkTrial& whole;  // nothing divided
  const ChunkTrial& best;
  const std::vector<std::pair<ChunkChoice, double>>& seconds;  // of each
  const std::optional<ChunkChoice>& too_large;  // would take less than the best, but does not fit
};

// What is better than the best of them, if that was found.
std::optional<ChunkTrial> choose_regions(ChunkTrials& trials, const UniformTrials& uniform);

// The choices that are the same for all modules: what is given, or the MoE of each layer, or each
// layer, in 2 or 4 parts.
std::vector<ChunkChoice> list_uniform_choices(const ChunkTrials& trials);

}  // namespace epweave
