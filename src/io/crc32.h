// The checksum of files (zlib's CRC-32), much faster than zlib computes it where the processor
// multiplies without carries.
#pragma once

#include <cstdint>
#include <string_view>

namespace epweave {

// Of `bytes` behind others that have the checksum `before`.
std::uint32_t crc32_of(std::string_view bytes, std::uint32_t before = 0);

}  // namespace epweave
