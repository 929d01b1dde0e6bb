// A simulation compared with an earlier one: `simulate --baseline REPORT.json`.
#pragma once

#include <string>
#include <vector>

#include "common/report.h"

namespace epweave::cli {

// What became worse, a line each: makespan or peak that grew by more than `tolerance` of what it
// was, and collectives that were hidden and are exposed. A collective is matched by the nodes that
// it stands for (provenance), so an earlier stage of the same graph can be the baseline. Throws
// InputError where `before` is no report; `path` names it.
std::vector<std::string> list_regressions(const Json& before, const Json& now, double tolerance,
                                          const std::string& path);

}  // namespace epweave::cli
