#include "base/error.h"

#include <fmt/format.h>

namespace epweave {
namespace {

std::string format_pass_error(const std::string& id, const std::string& problem, const Site& site,
                              const std::string& remedy) {
  std::string text = fmt::format("{} [{}]", problem, id);
  if (!site.node.empty()) text += fmt::format("\n  node:   {}", site.node);
  // An input is its own op.
  if (!site.op.empty() && site.op != site.node) text += fmt::format("\n  op:     {}", site.op);
  if (!site.module.empty()) text += fmt::format("\n  module: {}", site.module);
  if (!site.source.empty()) text += fmt::format("\n  source: {}", site.source);
  if (!remedy.empty()) text += fmt::format("\n  remedy: {}", remedy);
  return text;
}

}  // namespace

PassError::PassError(std::string id, std::string problem, Site site, std::string remedy)
    : std::runtime_error(format_pass_error(id, problem, site, remedy)),
      id_(std::move(id)),
      problem_(std::move(problem)),
      site_(std::move(site)),
      remedy_(std::move(remedy)) {}

void fail_check(const char* condition, const char* file, int line) {
  std::string_view path = file;
  if (auto slash = path.rfind("src/"); slash != std::string_view::npos) path.remove_prefix(slash);
  throw CheckError(fmt::format("{}:{}: internal check failed: {}", path, line, condition));
}

}  // namespace epweave
