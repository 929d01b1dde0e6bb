// Options that several passes and presets have, and how they are read.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "cost/cluster.h"
#include "passes/pass.h"
#include "passes/schedule/decision.h"

namespace epweave {

extern const OptionSpec kMemory, kCluster, kCosts, kUnpriced, kThen, kSymbolize;

// The same without a fallback: a preset passes on what it is given.
OptionSpec left_out(OptionSpec spec);

// Whether an option that may be left out has this value.
bool is_chosen(const Options& options, std::string_view name, std::string_view value);

// The bytes of a file that a pass's option names. Throws InputError, with the option, where it
// cannot be read.
std::string read_option_file(std::string_view option, const std::string& path);

Cluster read_cluster(const Options& options);
std::shared_ptr<const CostFile> read_costs(const Options& options);  // or none
Unpriced read_unpriced(const Options& options);

}  // namespace epweave
