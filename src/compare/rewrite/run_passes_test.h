// A graph after a pipeline, which need not be a legal one. For tests.
#pragma once

#include <string>

#include "pipeline/runner.h"

namespace epweave {

inline Graph rewrite(const Graph& graph, const std::string& pipeline) {
  const bool is_preset = pipeline.starts_with("ep-overlap");
  return run_pipeline(graph, is_preset ? expand_preset(pipeline) : parse_pipeline(pipeline),
                      {.verify = VerifyPolicy::kOff});
}

}  // namespace epweave
