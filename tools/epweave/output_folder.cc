#include "output_folder.h"

#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>
#include <system_error>

#include "base/error.h"
#include "common/command_files.h"

namespace epweave::cli {

namespace fs = std::filesystem;

namespace {

// The folders above the path that are not there, the innermost first.
std::vector<fs::path> find_missing_above(const fs::path& path) {
  std::error_code error;
  std::vector<fs::path> missing;
  for (fs::path at = fs::absolute(path).parent_path(); !fs::exists(at, error) && at.has_relative_path();
       at = at.parent_path())
    missing.push_back(at);
  return missing;
}

}  // namespace

OutputFolder::OutputFolder(std::string path, std::string_view why, Existing existing)
    : path_(std::move(path)), existing_(existing) {
  require_no_stream("-o", path_, why);
  while (path_.size() > 1 && path_.ends_with('/')) path_.pop_back();
  std::error_code error;
  if (fs::exists(path_, error) && !fs::is_directory(path_, error))
    throw InputError(fmt::format("{}: not a folder; {}", path_, why));
  staging_ = fmt::format("{}.{}.partial", path_, getpid());
  made_above_ = find_missing_above(staging_);
  if (fs::create_directories(staging_, error) && !error) return;
  remove();
  throw InputError(fmt::format("{}: cannot be made: {}", path_, error.message()));
}

OutputFolder::~OutputFolder() {
  if (!staging_.empty()) remove();
}

void OutputFolder::remove() {
  std::error_code error;
  fs::remove_all(staging_, error);
  for (const fs::path& folder : made_above_) fs::remove(folder, error);  // those that are empty
}

void OutputFolder::commit() {
  std::error_code error;
  if (existing_ == Existing::kReplaced) fs::remove_all(path_, error);
  if (!fs::exists(path_)) {
    fs::rename(staging_, path_, error);
  } else {
    for (const auto& entry : fs::directory_iterator(staging_)) {
      fs::rename(entry.path(), fs::path(path_) / entry.path().filename(), error);
      if (error) break;
    }
  }
  if (error) throw InputError(fmt::format("{}: {}", path_, error.message()));
  if (!fs::exists(staging_)) staging_.clear();
}

}  // namespace epweave::cli
