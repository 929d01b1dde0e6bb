// What is kept from forward to backward and what is done again, as rows of JSON: of a cut that
// `partition` makes, or of a step as `stats` finds it.
#pragma once

#include "common/report.h"
#include "partition/value_costs.h"

namespace epweave::cli {

// [{`name`, `target`, `seconds`}] in the order of the step.
Json list_recomputed(const Graph& graph, const Cut& cut, const ValueCosts& costs);

// {`name`, `bytes`, `storage`, `kind`} of a kept value; bytes are those of its storage.
Json kept_row(const Graph& graph, NodeId id, const ValueCosts& costs);

}  // namespace epweave::cli
