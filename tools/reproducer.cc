#include "reproducer.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>

#include "io/file.h"
#include "version.h"

namespace epweave::cli {
namespace {

constexpr int kMostFolders = 100;

std::string make_folder(const std::string& path) {
  for (int i = 0; i < kMostFolders; ++i) {
    const std::string name = i == 0 ? path : fmt::format("{}.{}", path, i);
    if (::mkdir(name.c_str(), 0777) == 0) return name;
    if (errno != EEXIST)
      throw InputError(fmt::format("{}: cannot create the folder: {}", name, std::strerror(errno)));
  }
  throw InputError(fmt::format("{}: {} reproducers are there already; remove some", path, kMostFolders));
}

std::string shell_quote(std::string_view text) {
  std::string quoted = "'";
  for (char c : text) {
    if (c == '\'')
      quoted += "'\\''";
    else
      quoted += c;
  }
  return quoted + "'";
}

std::string as_comment(std::string_view text) {
  std::string comment = "# ";
  for (char c : text) {
    comment += c;
    if (c == '\n') comment += "#   ";
  }
  return comment + "\n";
}

}  // namespace

std::string write_reproducer(const Reproducer& reproducer, const std::string& path) {
  const std::string folder = make_folder(path);
  write_graph(reproducer.input, folder + "/input.epw");
  std::string script = "#!/bin/sh\n";
  script += as_comment(reproducer.error);
  script += as_comment(version_text());
  script += fmt::format(
      "cd \"$(dirname \"$0\")\" || exit 3\n"
      "exec \"${{EPWEAVE:-epweave}}\" rewrite input.epw -p {} --verify {} -o \"${{1:-output.epw}}\"\n",
      shell_quote(reproducer.pipeline), reproducer.verify);
  write_bytes(folder + "/run.sh", script);
  ::chmod((folder + "/run.sh").c_str(), 0755);
  return folder;
}

}  // namespace epweave::cli
