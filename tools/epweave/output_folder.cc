#include "output_folder.h"

#include <fmt/format.h>

#include <filesystem>

#include "base/error.h"

namespace epweave::cli {

namespace fs = std::filesystem;

OutputFolder::OutputFolder(std::string path, std::string_view why) : path_(std::move(path)) {
  while (path_.size() > 1 && path_.ends_with('/')) path_.pop_back();
  std::error_code error;
  if (fs::exists(path_, error) && !fs::is_directory(path_, error))
    throw InputError(fmt::format("{}: not a folder; {}", path_, why));
  staging_ = path_ + ".partial";
  fs::remove_all(staging_, error);
  if (!fs::create_directories(staging_, error) || error)
    throw InputError(fmt::format("{}: {}", staging_, error.message()));
}

OutputFolder::~OutputFolder() {
  std::error_code error;
  if (!staging_.empty()) fs::remove_all(staging_, error);
}

void OutputFolder::commit() {
  std::error_code error;
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
