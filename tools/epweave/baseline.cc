#include "baseline.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

namespace epweave::cli {
namespace {

constexpr double kHidden = 0.01;  // exposed share of a collective's time up to which it counts as hidden

[[noreturn]] void fail(const std::string& path, std::string_view what) {
  throw InputError(fmt::format("{}: no report of `epweave simulate --json`: {}", path, what));
}

// The value of the key; `where` begins what is said of it: "", "collectives[3]: ".
const Json& require(const Json& object, const char* key, bool (Json::*is)() const, std::string_view kind,
                    const std::string& path, const std::string& where = "") {
  if (!object.contains(key)) fail(path, fmt::format("{}\"{}\" is missing", where, key));
  const Json& value = object.at(key);
  if (!(value.*is)()) fail(path, fmt::format("{}\"{}\" is no {}", where, key, kind));
  return value;
}

// What list_regressions reads of the baseline.
void require_report(const Json& before, const std::string& path) {
  if (!before.is_object()) fail(path, "it is no object");
  if (before.contains("schema") && before.at("schema") != kReportSchema)
    fail(path, fmt::format("its schema is {}, this program's is {}: predict the baseline again",
                           before.at("schema").dump(), kReportSchema));
  for (const char* key : {"makespan_ms", "peak_bytes"})
    require(before, key, &Json::is_number, "number", path);
  const Json& collectives = require(before, "collectives", &Json::is_array, "list", path);
  for (std::size_t i = 0; i < collectives.size(); ++i) {
    const std::string where = fmt::format("collectives[{}]: ", i);
    for (const char* key : {"start_ms", "end_ms", "exposed_ms"})
      require(collectives[i], key, &Json::is_number, "number", path, where);
    const Json& origins = require(collectives[i], "origins", &Json::is_array, "list", path, where);
    if (!std::ranges::all_of(origins, [](const Json& origin) { return origin.is_string(); }))
      fail(path, where + "\"origins\" are not all names");
  }
}

double exposed_share(const Json& collective) {
  const double seconds = collective.at("end_ms").get<double>() - collective.at("start_ms").get<double>();
  return seconds > 0 ? collective.at("exposed_ms").get<double>() / seconds : 0;
}

// Of the collectives by each node that they stand for: the most exposed one's share.
std::unordered_map<std::string, double> shares_of(const Json& report) {
  std::unordered_map<std::string, double> shares;
  for (const Json& collective : report.at("collectives"))
    for (const Json& origin : collective.at("origins")) {
      double& share = shares[origin.get<std::string>()];
      share = std::max(share, exposed_share(collective));
    }
  return shares;
}

void compare_figure(const Json& before, const Json& now, const char* key, double tolerance,
                    std::vector<std::string>& worse) {
  const double was = before.at(key).get<double>(), is = now.at(key).get<double>();
  if (is > was * (1 + tolerance)) worse.push_back(fmt::format("{} grew from {} to {}", key, was, is));
}

// Figures of a step that has none of the same collectives say nothing.
void require_same_step(const Json& before, const Json& now, const std::string& path) {
  const auto shares = shares_of(before);
  const Json& collectives = now.at("collectives");
  const bool any_known = std::ranges::any_of(collectives, [&](const Json& collective) {
    return std::ranges::any_of(collective.at("origins"), [&](const Json& origin) {
      return shares.contains(origin.get<std::string>());
    });
  });
  if (!any_known && (!collectives.empty() || !shares.empty()))
    throw InputError(
        fmt::format("{}: none of its {} collectives is one of this graph's: it is of another step", path,
                    before.at("collectives").size()));
}

}  // namespace

std::vector<std::string> list_regressions(const Json& before, const Json& now, double tolerance,
                                          const std::string& path) {
  require_report(before, path);
  std::vector<std::string> worse;
  compare_figure(before, now, "makespan_ms", tolerance, worse);
  compare_figure(before, now, "peak_bytes", tolerance, worse);
  require_same_step(before, now, path);
  const auto shares = shares_of(before);
  for (const Json& collective : now.at("collectives")) {
    const double share = exposed_share(collective);
    if (share <= kHidden) continue;
    for (const Json& origin : collective.at("origins")) {
      const auto was = shares.find(origin.get<std::string>());
      if (was == shares.end() || was->second > kHidden) continue;
      worse.push_back(fmt::format(
          "%{} was hidden and has {:.1f} % exposed ({})", collective.at("node").get<std::string>(),
          100 * share, collective.at("why").is_null() ? "?" : collective.at("why").get<std::string>()));
      break;
    }
  }
  return worse;
}

}  // namespace epweave::cli
