// What is kept between forward and backward, in listings and pipelines.
#pragma once

#include "passes/pass.h"

namespace epweave {

PassInfo memory_policy_row();
PassInfo cpu_offload_row();
PassInfo recompute_row();

}  // namespace epweave
