#include "pipeline/bind.h"

#include <fmt/format.h>

#include <catch2/catch.hpp>

#include "passes/schedule/decision.h"
#include "passes/test_text.h"

namespace epweave {
namespace {

// A step whose peak is that of a product of n rows and its operands.
Graph step_of(int rows) {
  return parse_test_graph(fmt::format(R"(device cuda:0
graph
  %x = placeholder : f32[{0}, 64] role=user which=x
  %w = placeholder : f32[64, 64] role=parameter fqn=w
  %y = aten.mm.default(%x, %w) : f32[{0}, 64]
  output([%y])
)",
                                      rows));
}

TEST_CASE("a share of the run's memory is above the peak of what the pipeline was given") {
  const Graph given = step_of(64), larger = step_of(96), largest = step_of(1024);
  const std::string twice = fmt::format("{}", 2 * find_given_peak(given));
  const Pipeline pipeline = parse_pipeline("choose-chunks{memory=run+100%},schedule{memory=run+100%}");
  Binder binder(given, pipeline);
  const Options choice = binder.bind(0, larger).options;
  CHECK(choice.text("memory") == twice);
  CHECK(choice.text("then") ==
        fmt::format("memory={},order=free,recompute=behind-forward,effort=fast,cluster=h100", twice));
  CHECK(binder.bind(1, largest).options.text("memory") == twice);
  // What the passes in front of the first that asks have come to is within it.
  CHECK(Binder(given, pipeline).bind(0, largest).options.text("memory") ==
        fmt::format("{}", find_given_peak(largest)));
}

TEST_CASE("what speaks of no other call stays as it is") {
  const Graph given = step_of(64);
  const Pipeline pipeline = parse_pipeline(
      "bucket,bucket{plan=overlap,then=\"effort=best\"},schedule{memory=2%},bucket{plan=overlap,memory="
      "1GiB}");
  Binder binder(given, pipeline);
  for (std::size_t i = 0; i < pipeline.calls.size(); ++i)
    CHECK(print_call(binder.bind(i, given)) == print_call(pipeline.calls[i]));
}

}  // namespace
}  // namespace epweave
