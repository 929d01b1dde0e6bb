// The plan of the chunk pass: `epweave rewrite --print-plan`, and the decisions that -v logs.
#pragma once

#include <optional>

#include "commands.h"
#include "passes/chunk/chunk_report.h"
#include "pipeline/runner.h"

namespace epweave::cli {

// Runs the pipeline up to its first chunk or choose-chunks and prints what that decides. Throws
// UsageError if there is none.
int show_plan(const RewriteOptions& options, const Pipeline& pipeline, Console& console);

// What a call of chunk decided: one line for each cut, join, proof and assumption.
std::vector<std::string> list_plan_decisions(const PassReport& pass);

// What the chunk or choose-chunks among the passes that made `b` of `a` decided; none where nothing
// was divided. Runs the passes in front of it again. Throws what they throw.
std::optional<ChunkReport> plan_of_rewrite(const Graph& a, const Graph& b);

// Whether a note of a pass says what it chose and what it predicts of it.
bool is_choice_note(std::string_view note);
// Whether it says what was tried and priced on the way: not what was taken, declined, or is
// predicted of the result.
bool is_trial_note(std::string_view note);

}  // namespace epweave::cli
