// Fuzzes the parser of pipelines: any text gives a resolved pipeline, a UsageError, or an
// InputError of a file that an option names. What is printed of a pipeline parses again, to the
// same text.
#include <cstdint>
#include <string>
#include <string_view>

#include "base/error.h"
#include "pipeline/pipeline.h"

namespace {

using namespace epweave;

template <class Parse>
void check(std::string_view text, const Parse& parse) {
  Pipeline pipeline;
  try {
    pipeline = parse(text);
  } catch (const UsageError&) {
    return;
  } catch (const InputError&) {
    return;
  }
  const std::string printed = print_pipeline(pipeline);
  EPWEAVE_CHECK(print_pipeline(parse_pipeline(printed)) == printed);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  check(text, [](std::string_view t) { return parse_pipeline(t); });
  check(text, [](std::string_view t) { return expand_preset(t); });
  return 0;
}
