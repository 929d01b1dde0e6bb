// Passes that prepare a graph for kernels of PyTorch's compiler, in listings and pipelines.
#pragma once

#include "passes/pass.h"

namespace epweave {

PassInfo async_tp_row();
PassInfo tag_regional_row();

}  // namespace epweave
