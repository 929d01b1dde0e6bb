// How the programs take memory from the system.
#pragma once

namespace epweave::cli {

// Makes allocations come from one region that grows in large steps, is not given back before the
// program ends, and uses large pages where the system has them. A graph is a few big arrays, which
// every pass copies: else the kernel hands out and clears the same pages over and over, and the
// processor's address translation misses on most accesses to a large graph. Does nothing with
// another C library than glibc, or under a sanitizer.
void prepare_memory();

}  // namespace epweave::cli
