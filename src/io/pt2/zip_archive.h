// The files in a zip archive: stored or deflated, of any size (ZIP64). An archive of several
// volumes and encrypted files are refused. PKWARE's APPNOTE.TXT describes the form.
//
// Only what is asked for is read: an archive may hold many gigabytes of weights. Any bytes give
// files or an InputError.
#pragma once

#include <cstdint>
#include <istream>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace epweave {

class ZipArchive {
 public:
  struct File {
    std::string name;
    std::uint64_t size = 0;         // unpacked
    std::uint64_t packed_size = 0;  // in the archive
    std::uint64_t header = 0;       // where its local header begins
    std::uint32_t crc = 0;
    std::uint16_t method = 0;
    std::uint16_t flags = 0;
  };

  // Of `bytes`, which must outlive it, or of the file at `path` where they are empty. `path` names
  // the archive in errors.
  ZipArchive(std::string path, std::string_view bytes);

  const std::vector<File>& files() const { return files_; }  // in the directory's order
  // Unpacked and compared with its checksum. Refuses a file of more than `limit` bytes.
  std::string read(const File& file, std::uint64_t limit) const;

  [[noreturn]] void fail(std::string_view what) const;

 private:
  std::string bytes_at(std::uint64_t offset, std::uint64_t size) const;
  void read_directory();
  void read_entries(std::string_view directory, std::uint64_t count);
  std::string inflate_file(const File& file, std::uint64_t offset) const;

  std::string path_;
  std::string_view bytes_;
  std::unique_ptr<std::istream> stream_;  // null where `bytes_` are the archive
  std::uint64_t size_ = 0;
  std::uint64_t directory_ = 0;  // where the directory begins: files end before
  std::vector<File> files_;
};

}  // namespace epweave
