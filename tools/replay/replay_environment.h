// On what a graph was run, for reports.
#pragma once

#include <string>

#include "common/report.h"
#include "replay/run/rank_device.h"

namespace epweave::cli {

// `device`: null is the CPU. `transport`: --transport.
Json describe_environment(const replay::Device* device, const std::string& transport);

}  // namespace epweave::cli
