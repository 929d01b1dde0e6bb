// Passes on token exchanges and their process groups, in listings and pipelines.
#pragma once

#include "passes/pass.h"

namespace epweave {

PassInfo mark_eager_chunks_row();
PassInfo isolate_ep_pg_row();
PassInfo reassign_pgs_row();
PassInfo overlap_ep_row();

}  // namespace epweave
