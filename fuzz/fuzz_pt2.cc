// Fuzzes the reader of torch.export archives: whole archives, and their programs without the zip
// around them. Any bytes give a graph or an InputError; a graph is verified, which must not fail,
// and comes back from binary form as it was.
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "analysis/verify.h"
#include "base/error.h"
#include "io/file.h"
#include "io/pt2/pt2_codec.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace epweave;
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  Graph graph;
  try {
    graph = bytes.starts_with("PK") ? decode(bytes, Format::kPt2, "input")
                                    : decode_pt2(bytes, "input", std::make_shared<Context>());
  } catch (const InputError&) {
    return 0;
  }
  verify_graph(graph);
  const std::string binary = encode_binary(graph);
  EPWEAVE_CHECK(encode_binary(decode(binary, Format::kBinary, "written")) == binary);
  return 0;
}
