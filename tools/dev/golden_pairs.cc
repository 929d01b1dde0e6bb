#include "golden_pairs.h"

#include <filesystem>
#include <map>
#include <sstream>

#include "base/error.h"
#include "io/file.h"
#include "ir/text/text.h"

namespace epweave {
namespace {

struct GoldenTest {
  std::vector<std::string> command;
  std::map<std::string, std::string> files;
};

GoldenTest read_test(const std::string& path) {
  std::istringstream text(read_bytes(path));
  GoldenTest test;
  std::string* section = nullptr;
  for (std::string line; std::getline(text, line);) {
    if (line.starts_with("=== ") && line.ends_with(" ===")) {
      section = &test.files[line.substr(4, line.size() - 8)];
    } else if (section != nullptr) {
      *section += line + "\n";
    } else if (line.starts_with("RUN:")) {
      std::istringstream words(line.substr(4));
      for (std::string word; words >> word;) test.command.push_back(word);
    }
  }
  return test;
}

}  // namespace

std::optional<GoldenPair> read_golden_pair(const std::string& path) {
  const GoldenTest test = read_test(path);
  std::vector<const std::string*> graphs;
  if (test.command.size() < 2 || test.command[1] != "verify") return {};
  for (const std::string& word : test.command)
    if (const auto file = test.files.find(word); file != test.files.end()) graphs.push_back(&file->second);
  if (graphs.size() != 2) return {};
  try {
    Graph a = parse_text(*graphs[0], "a");
    Graph b = parse_text(*graphs[1], "b", a.context);
    return GoldenPair{std::filesystem::path(path).stem().string(), std::move(a), std::move(b)};
  } catch (const InputError&) {
    return {};
  }
}

}  // namespace epweave
