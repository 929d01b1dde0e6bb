// What `epweave-replay check` finds, for people and as JSON.
#pragma once

#include <string>

#include "common/report.h"
#include "ir/graph.h"
#include "replay/check/check_report.h"

namespace epweave::cli {

Json describe_check(const replay::CheckReport& report, const Graph& b);
std::string summarise_check(const replay::CheckReport& report, const Graph& b);

}  // namespace epweave::cli
