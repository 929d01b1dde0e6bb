#include "command_files.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "io/file.h"

namespace epweave::cli {

void check_files(const CommandFiles& files) {
  if (std::ranges::count(files.inputs, "-") > 1) throw UsageError("only one input can be standard input");
  const auto refuse = [](const NamedFile& file, const std::string& what) {
    throw UsageError(
        fmt::format("{} {} would replace {}: give it a file of its own", file.option, file.path, what));
  };
  for (auto file = files.beside.begin(); file != files.beside.end(); ++file) {
    if (is_same_file(file->path, files.result)) refuse(*file, "the result");
    for (const std::string& input : files.inputs)
      if (is_same_file(file->path, input)) refuse(*file, "an input");
    for (auto earlier = files.beside.begin(); earlier != file; ++earlier) {
      if (file->path == "-" && earlier->path == "-")
        throw UsageError(fmt::format("{} - and {} - share standard output: give one of them a file",
                                     earlier->option, file->option));
      if (is_same_file(file->path, earlier->path))
        refuse(*file, fmt::format("what {} writes", earlier->option));
    }
  }
}

void require_all_writable(const CommandFiles& files) {
  if (!files.result.empty()) require_writable(files.result);
  for (const NamedFile& file : files.beside)
    if (!file.path.empty()) require_writable(file.path);
}

std::string read_file_of(std::string_view option, const std::string& path) {
  try {
    return read_bytes(path);
  } catch (const InputError& error) {
    throw InputError(fmt::format("{} {}", option, error.what()));
  }
}

std::string read_cluster_file(const std::string& path) {
  return read_file_of("--cluster", path);
}

void require_no_stream(std::string_view option, std::string_view folder, std::string_view why) {
  if (folder == "-") throw UsageError(fmt::format("{} -: standard output is no folder; {}", option, why));
}

}  // namespace epweave::cli
