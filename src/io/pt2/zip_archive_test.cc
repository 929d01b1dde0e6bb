#include "io/pt2/zip_archive.h"

#include <zlib.h>

#include <catch2/catch.hpp>
#include <fstream>
#include <map>

#include "base/error.h"

using namespace epweave;

namespace {

using Contents = std::map<std::string, std::string>;

void put(std::string& to, std::uint64_t value, int width) {
  for (int i = 0; i < width; ++i) to += static_cast<char>(value >> (8 * i) & 0xff);
}

std::string deflated(const std::string& bytes) {
  z_stream state{};
  REQUIRE(deflateInit2(&state, 9, Z_DEFLATED, -MAX_WBITS, 9, Z_DEFAULT_STRATEGY) == Z_OK);
  std::string packed(deflateBound(&state, bytes.size()), '\0');
  std::string input = bytes;
  state.next_in = reinterpret_cast<Bytef*>(input.data());
  state.avail_in = static_cast<uInt>(input.size());
  state.next_out = reinterpret_cast<Bytef*>(packed.data());
  state.avail_out = static_cast<uInt>(packed.size());
  REQUIRE(deflate(&state, Z_FINISH) == Z_STREAM_END);
  packed.resize(packed.size() - state.avail_out);
  REQUIRE(deflateEnd(&state) == Z_OK);
  return packed;
}

struct Writing {
  bool deflate = false;
  bool zip64 = false;        // sizes, offsets and the directory's place in ZIP64 fields
  std::string comment = {};  // behind the end
};

std::string zip_of(const Contents& contents, const Writing& how = {}) {
  std::string archive;
  std::string directory;
  for (const auto& [name, bytes] : contents) {
    const std::string packed = how.deflate ? deflated(bytes) : bytes;
    const std::uint64_t header = archive.size();
    std::string common;
    put(common, how.zip64 ? 45 : 20, 2);  // version
    put(common, 0, 2);                    // flags
    put(common, how.deflate ? 8u : 0u, 2);
    put(common, 0, 4);  // time
    put(common, crc32(0, reinterpret_cast<const Bytef*>(bytes.data()), static_cast<uInt>(bytes.size())), 4);
    put(common, how.zip64 ? 0xffffffff : packed.size(), 4);
    put(common, how.zip64 ? 0xffffffff : bytes.size(), 4);
    put(common, name.size(), 2);

    std::string extra = "XX";  // a field that is passed over
    put(extra, 3, 2);
    extra += "abc";
    if (how.zip64) {
      put(extra, 1, 2);
      put(extra, 24, 2);
      put(extra, bytes.size(), 8);
      put(extra, packed.size(), 8);
      put(extra, header, 8);
    }
    archive += "PK\3\4" + common;
    put(archive, 5, 2);
    archive += name + "local" + packed;

    directory += "PK\1\2";
    put(directory, 20, 2);
    directory += common;
    put(directory, extra.size(), 2);
    put(directory, 4, 2);
    put(directory, 0, 8);  // volume, attributes
    put(directory, how.zip64 ? 0xffffffff : header, 4);
    directory += name + extra + "note";
  }
  const std::uint64_t start = archive.size();
  archive += directory;
  if (how.zip64) {
    const std::uint64_t end = archive.size();
    archive += "PK\6\6";
    put(archive, 44, 8);
    put(archive, 45, 2);
    put(archive, 45, 2);
    put(archive, 0, 8);  // volumes
    put(archive, contents.size(), 8);
    put(archive, contents.size(), 8);
    put(archive, directory.size(), 8);
    put(archive, start, 8);
    archive += "PK\6\7";
    put(archive, 0, 4);
    put(archive, end, 8);
    put(archive, 1, 4);
  }
  archive += "PK\5\6";
  put(archive, 0, 4);  // volumes
  put(archive, how.zip64 ? 0xffff : contents.size(), 2);
  put(archive, how.zip64 ? 0xffff : contents.size(), 2);
  put(archive, how.zip64 ? 0xffffffff : directory.size(), 4);
  put(archive, how.zip64 ? 0xffffffff : start, 4);
  put(archive, how.comment.size(), 2);
  return archive + how.comment;
}

Contents read_all(const std::string& bytes) {
  const ZipArchive archive("a.zip", bytes);
  Contents contents;
  for (const ZipArchive::File& file : archive.files()) {
    const bool is_new = contents.emplace(file.name, archive.read(file, 1 << 20)).second;
    CHECK(is_new);
  }
  return contents;
}

// Of the archive with `bytes` in place of those at `at`.
std::string refusal(std::string archive, std::size_t at, const std::string& bytes) {
  archive.replace(at, bytes.size(), bytes);
  try {
    read_all(archive);
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

std::string long_text() {
  std::string text;
  for (int i = 0; i < 30000; ++i) text += std::to_string(i * 7919);
  return text;
}

}  // namespace

TEST_CASE("the files of a zip archive are those that were put in") {
  const Contents contents{
      {"", "no name"}, {"a/empty", ""}, {"a/long", long_text()}, {"b", "PK\5\6 in a file"}};
  for (const bool deflate : {false, true})
    for (const bool zip64 : {false, true})
      for (const std::string comment :
           {"", "a comment", "PK\5\6 in a comment of more bytes than an end has"}) {
        CAPTURE(deflate, zip64, comment);
        const std::string bytes = zip_of(contents, {deflate, zip64, comment});
        CHECK(read_all(bytes) == contents);

        const std::string path = "zip_archive_test.zip";
        std::ofstream(path, std::ios::binary) << bytes;
        const ZipArchive archive(path, {});
        Contents read;
        for (const ZipArchive::File& file : archive.files()) read[file.name] = archive.read(file, 1 << 20);
        CHECK(read == contents);
        std::remove(path.c_str());
      }
  CHECK(read_all(zip_of({})).empty());
}

TEST_CASE("a zip archive with a changed or missing byte is refused or has the files that were put in") {
  const Contents contents{{"a/one", "some text, some text, some text"}, {"two", "x"}};
  for (const bool deflate : {false, true})
    for (const bool zip64 : {false, true}) {
      const std::string bytes = zip_of(contents, {deflate, zip64, "note"});
      std::size_t refused = 0;
      for (std::size_t i = 0; i < bytes.size(); ++i)
        for (const int change : {1, 0x80, 0xff}) {
          CAPTURE(deflate, zip64, i, change);
          std::string changed = bytes;
          changed[i] = static_cast<char>(changed[i] ^ change);
          try {
            const Contents read = read_all(changed);
            CHECK(read == contents);
          } catch (const InputError&) {
            ++refused;
          }
        }
      CHECK(refused > bytes.size());
      for (std::size_t size = 1; size < bytes.size(); ++size)
        CHECK_THROWS_AS(read_all(bytes.substr(0, size)), InputError);
      CHECK_THROWS_AS(read_all("x" + bytes), InputError);
    }
}

TEST_CASE("what is wrong with a zip archive is said") {
  const std::string bytes = zip_of({{"a", "text"}, {"b", "more"}});
  const std::size_t file = bytes.find("PK\3\4");
  const std::size_t entry = bytes.find("PK\1\2");
  const std::size_t end = bytes.find("PK\5\6");
  CHECK(refusal(bytes, end, "xx") ==
        "a.zip: not a zip archive, or cut off: it does not end with a directory");
  CHECK(refusal(bytes, end + 4, "\1") == "a.zip: an archive of several volumes cannot be read");
  CHECK(refusal(bytes, end + 16, "\1") == "a.zip: damaged archive: its directory does not lie where it says");
  CHECK(refusal(bytes, end + 8, std::string("\1\0\1", 3)) ==
        "a.zip: damaged archive: its directory has more entries than it says");
  CHECK(refusal(bytes, end + 8, std::string("\3\0\3", 3)) ==
        "a.zip: damaged archive: entry 2 of its directory");
  CHECK(refusal(bytes, entry, "xx") == "a.zip: damaged archive: entry 0 of its directory");
  CHECK(refusal(bytes, entry + 8, "\1") == "a.zip: a is encrypted");
  CHECK(refusal(bytes, entry + 10, "\14") ==
        "a.zip: a is compressed by method 12; only stored and deflated files are read");
  CHECK(refusal(bytes, entry + 10, "\10") == "a.zip: a is damaged: it does not unpack to 4 bytes");
  CHECK(refusal(bytes, entry + 20, "\5") == "a.zip: a is damaged: it has two sizes");
  CHECK(refusal(bytes, entry + 20, "\5\5") == "a.zip: a is damaged: it reaches into the directory");
  CHECK(refusal(bytes, entry + 24, "\xff\xff\xff") == "a.zip: a has 16777215 bytes, more than 1048576");
  CHECK(refusal(bytes, entry + 24, "\xff\xff\xff\xff") == "a.zip: a is damaged: its size is missing");
  CHECK(refusal(bytes, entry + 42, "\1") == "a.zip: a is damaged: its header is that of another file");
  CHECK(refusal(bytes, entry + 42, "\xff\xff") ==
        "a.zip: damaged archive: what it points to lies behind its end");
  CHECK(refusal(bytes, file + 30, "c") == "a.zip: a is damaged: its header is that of another file");
  CHECK(refusal(bytes, bytes.find("text"), "t3xt") == "a.zip: a is damaged: the checksum does not match");
  CHECK_THROWS_WITH(ZipArchive("nowhere.zip", {}), "nowhere.zip: cannot open: No such file or directory");
  CHECK_THROWS_WITH(ZipArchive("/", {}), "/: cannot be read");

  // A file that unpacks to more than it says takes no more memory than a block of it.
  const std::string bomb = zip_of({{"a", std::string(1 << 20, ' ')}}, {.deflate = true});
  CHECK(refusal(bomb, bomb.find("PK\1\2") + 24, std::string("\7\0\0\0", 4)) ==
        "a.zip: a is damaged: it does not unpack to 7 bytes");
}
