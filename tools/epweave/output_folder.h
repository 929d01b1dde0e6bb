// Files of a folder that appear together: they are written to a folder beside it, which takes its
// place, or whose files move there where the folder exists. It is made at once, so that a place
// that cannot be written is found before the work; what nothing came of is removed, with the
// folders above it that were made for it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace epweave::cli {

class OutputFolder {
 public:
  // A folder that is there: it gets the files beside its own, or is replaced.
  enum class Existing : std::uint8_t { kKept, kReplaced };
  // Throws InputError where the path is no folder; `why` then says what wants one.
  OutputFolder(std::string path, std::string_view why, Existing existing = Existing::kKept);
  OutputFolder(const OutputFolder&) = delete;
  OutputFolder& operator=(const OutputFolder&) = delete;
  ~OutputFolder();

  std::string place(const std::string& name) const { return staging_ + "/" + name; }
  void commit();  // throws InputError

 private:
  void remove();

  std::string path_, staging_;
  Existing existing_;
  std::vector<std::filesystem::path> made_above_;  // the innermost first
};

}  // namespace epweave::cli
