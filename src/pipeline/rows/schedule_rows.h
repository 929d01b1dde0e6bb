// What is decided by predicted times, in listings and pipelines: schedule, choose-chunks, bucket.
#pragma once

#include "passes/pass.h"

namespace epweave {

extern const OptionSpec kEffort, kAutoParts;

PassInfo schedule_row();
PassInfo choose_chunks_row();
PassInfo bucket_row();

}  // namespace epweave
