#include "io/pt2/pt2_archive.h"

#include <fmt/format.h>
#include <minizip/unzip.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/error.h"

namespace epweave {
namespace {

// Far more than the JSON of a program of a million nodes; what a small archive may grow to when
// unpacked.
constexpr std::uint64_t kMaxProgramBytes = std::uint64_t{1} << 29;
constexpr std::uint64_t kMaxConfigBytes = std::uint64_t{1} << 26;

// Bytes in memory, as minizip reads a file.
struct MemoryFile {
  std::string_view bytes;
  std::uint64_t at = 0;

  static MemoryFile& of(voidpf stream) { return *static_cast<MemoryFile*>(stream); }

  static uLong read(voidpf, voidpf stream, void* to, uLong size) {
    MemoryFile& file = of(stream);
    const std::size_t count = std::min<std::size_t>(size, file.bytes.size() - file.at);
    std::memcpy(to, file.bytes.data() + file.at, count);
    file.at += count;
    return count;
  }

  static long seek(voidpf, voidpf stream, ZPOS64_T offset, int origin) {
    MemoryFile& file = of(stream);
    const std::uint64_t from = origin == ZLIB_FILEFUNC_SEEK_SET   ? 0
                               : origin == ZLIB_FILEFUNC_SEEK_CUR ? file.at
                                                                  : file.bytes.size();
    if (offset > file.bytes.size() - from) return -1;
    file.at = from + offset;
    return 0;
  }

  zlib_filefunc64_def functions() {
    return {.zopen64_file = [](voidpf self, const void*, int) { return self; },
            .zread_file = read,
            .zwrite_file = [](voidpf, voidpf, const void*, uLong) { return uLong{0}; },
            .ztell64_file = [](voidpf, voidpf stream) { return ZPOS64_T{of(stream).at}; },
            .zseek64_file = seek,
            .zclose_file = [](voidpf, voidpf) { return 0; },
            .zerror_file = [](voidpf, voidpf) { return 0; },
            .opaque = this};
  }
};

class Archive {
 public:
  struct Entry {
    unz64_file_pos position;
    std::string name;
    std::uint64_t size;  // unpacked, as recorded
    unsigned long method;
    bool encrypted;
  };

  explicit Archive(const Pt2Source& source) : path_(source.path), memory_{source.bytes}, zip_(open(source)) {
    unz_global_info64 info;
    int status = unzGetGlobalInfo64(zip_.get(), &info);
    if (status == UNZ_OK && info.number_entry == 0) return;
    if (status == UNZ_OK) status = unzGoToFirstFile(zip_.get());
    for (; status == UNZ_OK; status = unzGoToNextFile(zip_.get())) entries_.push_back(current());
    if (status != UNZ_END_OF_LIST_OF_FILE) fail("damaged archive: its directory cannot be read");
  }

  // Entries ROOT/FOLDER*SUFFIX.
  std::vector<Entry> find(std::string_view folder, std::string_view suffix) const {
    std::vector<Entry> found;
    for (const Entry& entry : entries_) {
      const std::string_view name =
          std::string_view(entry.name).substr(std::min(entry.name.find('/'), entry.name.size()));
      if (name.starts_with('/') && name.substr(1).starts_with(folder) && name.ends_with(suffix))
        found.push_back(entry);
    }
    return found;
  }

  // Unpacked and compared with its checksum.
  std::string read(const Entry& entry, std::uint64_t limit) const {
    if (entry.size > limit) fail(fmt::format("{} has {} bytes, more than {}", entry.name, entry.size, limit));
    if (entry.method != 0 && entry.method != Z_DEFLATED)
      fail(fmt::format("{} is packed by method {}: only stored and deflated files are read", entry.name,
                       entry.method));
    if (entry.encrypted) fail(fmt::format("{} is encrypted", entry.name));
    if (unzGoToFilePos64(zip_.get(), &entry.position) != UNZ_OK || unzOpenCurrentFile(zip_.get()) != UNZ_OK)
      fail(fmt::format("{} is damaged: its header is not what the directory says", entry.name));
    // The recorded size may lie: memory grows with what is there, up to `limit`.
    constexpr unsigned kBlock = 1 << 16;
    std::string bytes;
    int count = 0;
    do {
      const std::size_t end = bytes.size();
      bytes.resize(end + kBlock);
      count = unzReadCurrentFile(zip_.get(), bytes.data() + end, kBlock);
      bytes.resize(end + static_cast<std::size_t>(std::max(count, 0)));
    } while (count > 0);
    if (unzCloseCurrentFile(zip_.get()) != UNZ_OK || count < 0 || bytes.size() != entry.size)
      fail(fmt::format("{} is damaged: it does not unpack to what its size and checksum say", entry.name));
    return bytes;
  }

  [[noreturn]] void fail(std::string_view what) const {
    throw InputError(fmt::format("{}: {}", path_, what));
  }

 private:
  using Zip = std::unique_ptr<void, int (*)(unzFile)>;

  Zip open(const Pt2Source& source) {
    zlib_filefunc64_def functions = memory_.functions();
    Zip zip(source.bytes.empty() ? unzOpen64(path_.c_str()) : unzOpen2_64(path_.c_str(), &functions),
            unzClose);
    if (!zip) fail("not a .pt2 archive, or cut off: no zip directory is found at its end");
    return zip;
  }

  Entry current() const {
    unz_file_info64 info;
    Entry entry;
    std::array<char, 1 << 16> name;  // a name has at most 65,535 bytes
    if (unzGetCurrentFileInfo64(zip_.get(), &info, name.data(), name.size(), nullptr, 0, nullptr, 0) !=
            UNZ_OK ||
        unzGetFilePos64(zip_.get(), &entry.position) != UNZ_OK)
      fail("damaged archive: its directory cannot be read");
    entry.name.assign(name.data(), info.size_filename);
    entry.size = info.uncompressed_size;
    entry.method = info.compression_method;
    entry.encrypted = (info.flag & 1) != 0;
    return entry;
  }

  std::string path_;
  MemoryFile memory_;
  Zip zip_;
  std::vector<Entry> entries_;
};

void refuse_pickles(const Archive& archive) {
  if (const auto objects = archive.find("data/constants/custom_obj_", ""); !objects.empty())
    archive.fail(fmt::format("{} is a pickled object; pickles are not read", objects.front().name));
  for (const std::string_view folder : {"data/weights/", "data/constants/"}) {
    for (const Archive::Entry& entry : archive.find(folder, "_config.json")) {
      const auto config = nlohmann::json::parse(archive.read(entry, kMaxConfigBytes), nullptr, false);
      if (!config.is_object() || !config.contains("config") || !config["config"].is_object())
        archive.fail(fmt::format("{} is not a list of payloads", entry.name));
      for (const auto& [name, payload] : config["config"].items())
        if (payload.is_object() && payload.value("use_pickle", nlohmann::json(false)) != false)
          archive.fail(fmt::format("'{}' is stored as a pickle; pickles are not read", name));
    }
  }
}

}  // namespace

std::string read_pt2_program(const Pt2Source& source) {
  const Archive archive(source);
  const std::vector<Archive::Entry> programs = archive.find("models/", ".json");
  if (programs.empty())
    archive.fail("has no program (ROOT/models/NAME.json): was it written by torch.export.save?");
  if (programs.size() > 1)
    archive.fail(fmt::format("has {} programs, {} and {} among them", programs.size(), programs[0].name,
                             programs[1].name));
  refuse_pickles(archive);
  return archive.read(programs.front(), kMaxProgramBytes);
}

}  // namespace epweave
