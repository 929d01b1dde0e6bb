// Fuzzes the reader of one form of graphs (FUZZED_FORMAT). Any bytes give a graph or an InputError.
// A graph that was read is verified, which must not fail, and what is written of it reads back as
// the same; one sound graph in sixteen also goes through the other forms, which takes long.
//
// In binary form the input lacks its checksum, which is added here: nothing else would get past it.
#include <zlib.h>

#include <cstdint>
#include <string>

#include "analysis/verify.h"
#include "base/error.h"
#include "io/file.h"
#include "ir/text/text.h"

namespace epweave {
namespace {

constexpr Format kFormat = Format::FUZZED_FORMAT;

std::string with_checksum(std::string bytes) {
  const auto crc = crc32(0, reinterpret_cast<const Bytef*>(bytes.data()), static_cast<uInt>(bytes.size()));
  bytes += '\x7d';
  for (int shift = 0; shift < 32; shift += 8) bytes += static_cast<char>(crc >> shift & 0xff);
  return bytes;
}

// Some graphs cannot be written in some forms; that is said by an InputError.
void check_round_trip(const Graph& graph, Format format) {
  std::string bytes;
  try {
    bytes = encode(graph, format);
  } catch (const InputError&) {
    return;
  }
  EPWEAVE_CHECK(encode(decode(bytes, format, "written"), format) == bytes);
}

void check_input(std::string bytes) {
  if (kFormat == Format::kBinary) bytes = with_checksum(std::move(bytes));
  Graph graph;
  try {
    graph = decode(bytes, kFormat, "input");
  } catch (const InputError&) {
    return;
  }
  const bool is_sound = verify_graph(graph).empty();
  check_round_trip(graph, kFormat);
  if (!is_sound ||
      crc32(0, reinterpret_cast<const Bytef*>(bytes.data()), static_cast<uInt>(bytes.size())) % 16 != 0)
    return;
  const std::string binary = encode_binary(graph);
  for (const Format format : {Format::kText, Format::kJson, Format::kOnnx}) {
    std::string other;
    try {
      other = encode(graph, format);
    } catch (const InputError&) {
      continue;
    }
    EPWEAVE_CHECK(encode_binary(decode(other, format, "written")) == binary);
  }
}

}  // namespace
}  // namespace epweave

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  epweave::check_input(std::string(reinterpret_cast<const char*>(data), size));
  return 0;
}
