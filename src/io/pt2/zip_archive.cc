#include "io/pt2/zip_archive.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>

#include "base/error.h"

namespace epweave {
namespace {

constexpr std::string_view kEndMark = "PK\5\6";
constexpr std::string_view kEnd64Mark = "PK\6\6";
constexpr std::string_view kLocatorMark = "PK\6\7";
constexpr std::string_view kEntryMark = "PK\1\2";
constexpr std::string_view kFileMark = "PK\3\4";
constexpr std::size_t kEndSize = 22;  // each without what has a length of its own
constexpr std::size_t kEnd64Size = 56;
constexpr std::size_t kLocatorSize = 20;
constexpr std::size_t kEntrySize = 46;
constexpr std::size_t kFileSize = 30;
constexpr std::size_t kMaxComment = 0xffff;
constexpr std::uint64_t kIn64 = 0xffffffff;  // a size or offset that the ZIP64 field has
constexpr std::uint16_t kZip64Field = 1;
constexpr std::uint16_t kEncrypted = 1;
constexpr std::uint16_t kStored = 0;
constexpr std::uint16_t kDeflated = 8;

// A number of `width` bytes, the lowest first. They must be there.
template <typename T>
T number(std::string_view bytes, std::size_t at) {
  std::uint64_t value = 0;
  for (std::size_t i = sizeof(T); i-- > 0;) value = value << 8 | static_cast<std::uint8_t>(bytes[at + i]);
  return static_cast<T>(value);
}
constexpr auto u16 = number<std::uint16_t>;
constexpr auto u32 = number<std::uint32_t>;
constexpr auto u64 = number<std::uint64_t>;

// Replaces what is kIn64 by the numbers of the ZIP64 field, which lie there in this order. False
// where they are missing.
bool take_zip64(std::string_view extra, std::array<std::uint64_t*, 3> values) {
  std::string_view field;
  while (extra.size() >= 4) {
    const std::size_t size = u16(extra, 2);
    if (size > extra.size() - 4) break;
    if (u16(extra, 0) == kZip64Field) field = extra.substr(4, size);
    extra.remove_prefix(4 + size);
  }
  for (std::uint64_t* const value : values) {
    if (*value != kIn64) continue;
    if (field.size() < sizeof(std::uint64_t)) return false;
    *value = u64(field, 0);
    field.remove_prefix(sizeof(std::uint64_t));
  }
  return true;
}

}  // namespace

ZipArchive::ZipArchive(std::string path, std::string_view bytes)
    : path_(std::move(path)), bytes_(bytes), size_(bytes.size()) {
  if (bytes.empty()) {
    stream_ = std::make_unique<std::ifstream>(path_, std::ios::binary | std::ios::ate);
    if (!*stream_) fail(fmt::format("cannot open: {}", std::strerror(errno)));
    const std::streamoff end = stream_->tellg();
    if (end < 0) fail("cannot be read");
    size_ = static_cast<std::uint64_t>(end);
  }
  read_directory();
}

void ZipArchive::fail(std::string_view what) const {
  throw InputError(fmt::format("{}: {}", path_, what));
}

std::string ZipArchive::bytes_at(std::uint64_t offset, std::uint64_t size) const {
  if (offset > size_ || size > size_ - offset) fail("damaged archive: what it points to lies behind its end");
  if (!stream_) return std::string(bytes_.substr(offset, size));
  std::string bytes(size, '\0');
  stream_->seekg(static_cast<std::streamoff>(offset));
  stream_->read(bytes.data(), static_cast<std::streamsize>(size));
  if (!*stream_) fail("cannot be read");
  return bytes;
}

void ZipArchive::read_directory() {
  const std::uint64_t tail_size = std::min<std::uint64_t>(size_, kLocatorSize + kEndSize + kMaxComment);
  const std::string tail = bytes_at(size_ - tail_size, tail_size);
  // The comment, if there is one, ends the archive.
  std::size_t at = tail.rfind(kEndMark);
  while (at != tail.npos &&
         (tail.size() - at < kEndSize || u16(tail, at + 20) != tail.size() - at - kEndSize))
    at = at == 0 ? tail.npos : tail.rfind(kEndMark, at - 1);
  if (at == tail.npos) fail("not a zip archive, or cut off: it does not end with a directory");

  std::uint64_t end = size_ - tail_size + at;
  std::uint64_t count = u16(tail, at + 10);
  std::uint64_t bytes = u32(tail, at + 12);
  directory_ = u32(tail, at + 16);
  bool one_volume = u16(tail, at + 4) == u16(tail, at + 6) && u16(tail, at + 8) == count;
  if (at >= kLocatorSize && std::string_view(tail).substr(at - kLocatorSize).starts_with(kLocatorMark)) {
    end = u64(tail, at - kLocatorSize + 8);
    const std::string end64 = bytes_at(end, kEnd64Size);
    if (!end64.starts_with(kEnd64Mark))
      fail("damaged archive: its ZIP64 directory does not end where it says");
    count = u64(end64, 32);
    bytes = u64(end64, 40);
    directory_ = u64(end64, 48);
    one_volume = u32(end64, 16) == u32(end64, 20) && u64(end64, 24) == count;
  }
  if (!one_volume) fail("an archive of several volumes cannot be read");
  if (directory_ > end || bytes != end - directory_)
    fail("damaged archive: its directory does not lie where it says");
  read_entries(bytes_at(directory_, bytes), count);
}

void ZipArchive::read_entries(std::string_view directory, std::uint64_t count) {
  for (std::uint64_t i = 0; i < count; ++i) {
    const bool whole = directory.size() >= kEntrySize && directory.starts_with(kEntryMark);
    const std::size_t name_size = whole ? u16(directory, 28) : 0;
    const std::size_t extra_size = whole ? u16(directory, 30) : 0;
    const std::size_t size = kEntrySize + name_size + extra_size + (whole ? u16(directory, 32) : 0);
    if (!whole || size > directory.size()) fail(fmt::format("damaged archive: entry {} of its directory", i));
    File& file = files_.emplace_back(File{.name = std::string(directory.substr(kEntrySize, name_size)),
                                          .size = u32(directory, 24),
                                          .packed_size = u32(directory, 20),
                                          .header = u32(directory, 42),
                                          .crc = u32(directory, 16),
                                          .method = u16(directory, 10),
                                          .flags = u16(directory, 8)});
    if (!take_zip64(directory.substr(kEntrySize + name_size, extra_size),
                    {&file.size, &file.packed_size, &file.header}))
      fail(fmt::format("{} is damaged: its size is missing", file.name));
    directory.remove_prefix(size);
  }
  if (!directory.empty()) fail("damaged archive: its directory has more entries than it says");
}

std::string ZipArchive::read(const File& file, std::uint64_t limit) const {
  if (file.size > limit) fail(fmt::format("{} has {} bytes, more than {}", file.name, file.size, limit));
  if ((file.flags & kEncrypted) != 0) fail(fmt::format("{} is encrypted", file.name));
  if (file.method != kStored && file.method != kDeflated)
    fail(fmt::format("{} is compressed by method {}; only stored and deflated files are read", file.name,
                     file.method));
  const std::string header = bytes_at(file.header, kFileSize);
  const std::uint64_t name = file.header + kFileSize;
  if (!header.starts_with(kFileMark) || u16(header, 26) != file.name.size() ||
      bytes_at(name, file.name.size()) != file.name)
    fail(fmt::format("{} is damaged: its header is that of another file", file.name));
  const std::uint64_t offset = name + file.name.size() + u16(header, 28);
  if (offset > directory_ || file.packed_size > directory_ - offset)
    fail(fmt::format("{} is damaged: it reaches into the directory", file.name));
  if (file.method == kStored && file.packed_size != file.size)
    fail(fmt::format("{} is damaged: it has two sizes", file.name));

  std::string bytes = file.method == kStored ? bytes_at(offset, file.size) : inflate_file(file, offset);
  // Below `limit`, which fits zlib's unsigned.
  if (crc32(0, reinterpret_cast<const Bytef*>(bytes.data()), static_cast<uInt>(bytes.size())) != file.crc)
    fail(fmt::format("{} is damaged: the checksum does not match", file.name));
  return bytes;
}

std::string ZipArchive::inflate_file(const File& file, std::uint64_t offset) const {
  constexpr std::size_t kBlock = 1 << 16;
  z_stream state{};
  EPWEAVE_CHECK(inflateInit2(&state, -MAX_WBITS) == Z_OK);  // negative: no header of zlib's
  const std::unique_ptr<z_stream, int (*)(z_stream*)> ended(&state, inflateEnd);
  std::string input;
  std::uint64_t left = file.packed_size;
  // The recorded size may lie: memory grows with what is there.
  std::string bytes;
  int status = Z_OK;
  while (status == Z_OK && bytes.size() <= file.size) {
    if (state.avail_in == 0) {
      input = bytes_at(offset + file.packed_size - left, std::min<std::uint64_t>(left, kBlock));
      left -= input.size();
      state.next_in = reinterpret_cast<Bytef*>(input.data());
      state.avail_in = static_cast<uInt>(input.size());
    }
    const std::size_t end = bytes.size();
    bytes.resize(end + kBlock);
    state.next_out = reinterpret_cast<Bytef*>(bytes.data() + end);
    state.avail_out = kBlock;
    status = inflate(&state, Z_NO_FLUSH);
    bytes.resize(end + kBlock - state.avail_out);
  }
  if (status != Z_STREAM_END || left + state.avail_in != 0 || bytes.size() != file.size)
    fail(fmt::format("{} is damaged: it does not unpack to {} bytes", file.name, file.size));
  return bytes;
}

}  // namespace epweave
