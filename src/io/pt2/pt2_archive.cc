#include "io/pt2/pt2_archive.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <vector>

#include "io/pt2/zip_archive.h"

namespace epweave {
namespace {

// Far more than the JSON of a program of a million nodes; what a small archive may grow to when
// unpacked.
constexpr std::uint64_t kMaxProgramBytes = std::uint64_t{1} << 29;
constexpr std::uint64_t kMaxConfigBytes = std::uint64_t{1} << 26;

// Files ROOT/FOLDER*SUFFIX.
std::vector<ZipArchive::File> find(const ZipArchive& archive, std::string_view folder,
                                   std::string_view suffix) {
  std::vector<ZipArchive::File> found;
  for (const ZipArchive::File& file : archive.files()) {
    const std::string_view name =
        std::string_view(file.name).substr(std::min(file.name.find('/'), file.name.size()));
    if (name.starts_with('/') && name.substr(1).starts_with(folder) && name.ends_with(suffix))
      found.push_back(file);
  }
  return found;
}

void refuse_pickles(const ZipArchive& archive) {
  if (const auto objects = find(archive, "data/constants/custom_obj_", ""); !objects.empty())
    archive.fail(fmt::format("{} is a pickled object; pickles are not read", objects.front().name));
  for (const std::string_view folder : {"data/weights/", "data/constants/"}) {
    for (const ZipArchive::File& file : find(archive, folder, "_config.json")) {
      const auto config = nlohmann::json::parse(archive.read(file, kMaxConfigBytes), nullptr, false);
      if (!config.is_object() || !config.contains("config") || !config["config"].is_object())
        archive.fail(fmt::format("{} is not a list of payloads", file.name));
      for (const auto& [name, payload] : config["config"].items())
        if (payload.is_object() && payload.value("use_pickle", nlohmann::json(false)) != false)
          archive.fail(fmt::format("'{}' is stored as a pickle; pickles are not read", name));
    }
  }
}

}  // namespace

std::string read_pt2_program(const Pt2Source& source) {
  const ZipArchive archive(source.path, source.bytes);
  const std::vector<ZipArchive::File> programs = find(archive, "models/", ".json");
  if (programs.empty())
    archive.fail("has no program (ROOT/models/NAME.json): was it written by torch.export.save?");
  if (programs.size() > 1)
    archive.fail(fmt::format("has {} programs, {} and {} among them", programs.size(), programs[0].name,
                             programs[1].name));
  refuse_pickles(archive);
  return archive.read(programs.front(), kMaxProgramBytes);
}

}  // namespace epweave
