// A real step whose best division is not the same for all modules: it would be in parts, were there
// the memory. What is made of small steps is shown by goldens in testdata/schedule.
#include "passes/schedule/choose_chunks.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>

#include "io/file.h"

namespace epweave {
namespace {

TEST_CASE("choose-chunks: as many modules as memory allows are divided", "[slow]") {
  const Graph graph =
      read_graph(std::filesystem::path(EPWEAVE_SOURCE_DIR) / "testdata/graphs/qwen3_moe_ep2.1b_remat.epw.gz");
  ChooseChunksOptions options;
  options.parts = 2;
  options.schedule.cluster.nvlink_a2a = 2e9;  // exchanges take as long as compute
  options.schedule.memory = {.bytes = std::nullopt, .growth = 0};
  options.then = options.schedule;
  const PassResult result = choose_chunks(graph, options);
  const auto has = [&](std::string_view text) {
    return std::ranges::any_of(result.notes,
                               [&](const std::string& note) { return note.find(text) != note.npos; });
  };
  CHECK(has("trial: layers.* in 2 parts: had it the memory,"));
  CHECK(has("choice: taken: layers.{0..3} whole; layers.{4..7} in 2 parts"));
  // The whole fits, too, and takes longer.
  const Prediction whole = predict_schedule(graph, *options.then, Look::kWhole);
  ScheduleOptions fixed = *options.then;
  fixed.memory = {.bytes = whole.given_peak, .growth = 0};
  const Prediction chosen = predict_schedule(result.graph, fixed, Look::kWhole);
  CHECK(whole.fits);
  CHECK(chosen.fits);
  CHECK(chosen.seconds < whole.seconds);
}

}  // namespace
}  // namespace epweave
