// Files of a folder that appear together: they are written to a folder beside it, which takes its
// place, or moves its files there where the folder exists.
#pragma once

#include <string>
#include <string_view>

namespace epweave::cli {

class OutputFolder {
 public:
  // Throws InputError where the path is no folder; `why` then says what wants one.
  OutputFolder(std::string path, std::string_view why);
  OutputFolder(const OutputFolder&) = delete;
  OutputFolder& operator=(const OutputFolder&) = delete;
  ~OutputFolder();

  std::string place(const std::string& name) const { return staging_ + "/" + name; }
  void commit();  // throws InputError

 private:
  std::string path_, staging_;
};

}  // namespace epweave::cli
