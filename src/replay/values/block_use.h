// How much memory the blocks take that are given out (block_cache.h): tensors of host memory and
// kernels' scratch.
#pragma once

#include <cstddef>

namespace epweave::replay {

// Bytes given out at a time, at most, since the last restart; of the whole process.
std::size_t peak_block_bytes();
void restart_block_peak();  // the peak is what is given out now

}  // namespace epweave::replay
