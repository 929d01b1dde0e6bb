#include "io/pt2/pt2_archive.h"

#include <fmt/format.h>
#include <zip.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/error.h"

namespace epweave {
namespace {

// Far more than the JSON of a program of a million nodes; what a small archive may grow to when
// unpacked.
constexpr zip_uint64_t kMaxProgramBytes = zip_uint64_t{1} << 29;
constexpr zip_uint64_t kMaxConfigBytes = zip_uint64_t{1} << 26;

struct Discard {
  void operator()(zip_t* archive) const { zip_discard(archive); }
  void operator()(zip_file_t* file) const { zip_fclose(file); }
};

struct Entry {
  zip_uint64_t index;
  std::string name;
};

class Archive {
 public:
  explicit Archive(const Pt2Source& source) : path_(source.path), zip_(open(source)) {
    const zip_int64_t count = zip_get_num_entries(zip_.get(), 0);
    for (zip_int64_t i = 0; i < count; ++i) {
      const auto index = static_cast<zip_uint64_t>(i);
      if (const char* const name = zip_get_name(zip_.get(), index, ZIP_FL_ENC_RAW))
        entries_.push_back({index, name});
    }
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

  std::string read(const Entry& entry, zip_uint64_t limit) const {
    zip_stat_t status;
    if (zip_stat_index(zip_.get(), entry.index, 0, &status) != 0 || (status.valid & ZIP_STAT_SIZE) == 0)
      fail(fmt::format("{} is damaged", entry.name));
    if (status.size > limit)
      fail(fmt::format("{} has {} bytes, more than {}", entry.name, status.size, limit));
    const std::unique_ptr<zip_file_t, Discard> file(zip_fopen_index(zip_.get(), entry.index, 0));
    if (!file) fail(fmt::format("cannot read {}: {}", entry.name, zip_strerror(zip_.get())));
    // The recorded size may lie: memory grows with what is there.
    constexpr std::size_t kBlock = 1 << 16;
    std::string bytes;
    for (;;) {
      const std::size_t end = bytes.size();
      bytes.resize(end + kBlock);
      const zip_int64_t count = zip_fread(file.get(), bytes.data() + end, kBlock);
      if (count < 0) fail(fmt::format("{} is damaged: {}", entry.name, zip_file_strerror(file.get())));
      bytes.resize(end + static_cast<std::size_t>(count));
      if (count == 0) return bytes;
      if (bytes.size() > limit) fail(fmt::format("{} unpacks to more than {} bytes", entry.name, limit));
    }
  }

  [[noreturn]] void fail(const std::string& what) const {
    throw InputError(fmt::format("{}: {}", path_, what));
  }

 private:
  std::unique_ptr<zip_t, Discard> open(const Pt2Source& source) const {
    zip_error_t error;
    zip_error_init(&error);
    zip_source_t* const from =
        source.bytes.empty() ? zip_source_file_create(source.path.c_str(), 0, -1, &error)
                             : zip_source_buffer_create(source.bytes.data(), source.bytes.size(), 0, &error);
    zip_t* const zip =
        from == nullptr ? nullptr : zip_open_from_source(from, ZIP_RDONLY | ZIP_CHECKCONS, &error);
    if (zip == nullptr && from != nullptr) zip_source_free(from);
    const std::string what = zip_error_strerror(&error);
    zip_error_fini(&error);
    if (zip == nullptr) fail(fmt::format("not a .pt2 archive: {}", what));
    return std::unique_ptr<zip_t, Discard>(zip);
  }

  std::string path_;
  std::unique_ptr<zip_t, Discard> zip_;
  std::vector<Entry> entries_;
};

void refuse_pickles(const Archive& archive) {
  if (const auto objects = archive.find("data/constants/custom_obj_", ""); !objects.empty())
    archive.fail(fmt::format("{} is a pickled object; pickles are not read", objects.front().name));
  for (const std::string_view folder : {"data/weights/", "data/constants/"}) {
    for (const Entry& entry : archive.find(folder, "_config.json")) {
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
  std::vector<Entry> programs = archive.find("models/", ".json");
  if (programs.empty())
    archive.fail("has no program (ROOT/models/NAME.json): was it written by torch.export.save?");
  if (programs.size() > 1)
    archive.fail(fmt::format("has {} programs, {} and {} among them", programs.size(), programs[0].name,
                             programs[1].name));
  refuse_pickles(archive);
  return archive.read(programs.front(), kMaxProgramBytes);
}

}  // namespace epweave
