#include "exit_codes.h"

#include <fmt/format.h>

#include <string_view>

namespace epweave::cli {
namespace {

struct ExitCodeRow {
  ExitCode code;
  std::string_view epweave, replay;  // what it means; empty: the program does not have it
};

constexpr ExitCodeRow kExitCodes[] = {
    {kFine, "fine; diff: the graphs are the same", "fine; check: the same"},
    {kDifferent,
     "verify: there are violations; diff: the graphs differ; overlap: more is exposed than --max-exposed; "
     "report: not proved; simulate: worse than the baseline; bisect: no pass is found; doctor: something is "
     "missing; generalize: a difference is not explained; artifact check: a field does not agree",
     "the run failed; check: different, or not verified"},
    {kUsage, "the command line or a pipeline is wrong; diff: any error", "the command line is wrong"},
    {kInvalidInput, "a file cannot be read or written, or is not a valid graph",
     "a file cannot be read or written, is not a valid graph, or its inputs cannot be made"},
    {kDeclined, "a pass declined the graph",
     "the graph cannot be executed: an op has no kernel, or none for 8-bit floats, it is too large, or the "
     "CUDA part is of another "
     "build"},
    {kInternal, "a bug of epweave", "a bug of epweave"},
    {kNoDevice, "", "the device is not there"},
    {kInterrupted, "reduce, bisect: interrupted; the same command of reduce goes on", ""},
};

}  // namespace

std::string exit_codes_text(Program program) {
  std::string text;
  for (const ExitCodeRow& row : kExitCodes) {
    const std::string_view meaning = program == Program::kEpweave ? row.epweave : row.replay;
    if (!meaning.empty()) text += fmt::format("  {:<4} {}\n", static_cast<int>(row.code), meaning);
  }
  return text;
}

}  // namespace epweave::cli
