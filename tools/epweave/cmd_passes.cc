#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>

#include "base/error.h"
#include "base/nearest_name.h"
#include "commands.h"
#include "common/report.h"
#include "pipeline/registry.h"

namespace epweave::cli {
namespace {

std::string_view kind_word(OptionKind kind) {
  switch (kind) {
    case OptionKind::kText:
      return "text";
    case OptionKind::kInt:
      return "integer";
    case OptionKind::kFlag:
      return "flag";
    case OptionKind::kChoice:
      return "choice";
    case OptionKind::kList:
      return "list";
  }
  return "";
}

Json option_report(const OptionSpec& option) {
  return {{"name", option.name},
          {"kind", kind_word(option.kind)},
          {"default", option.fallback ? Json(*option.fallback) : Json()},
          {"choices", option.choices},
          {"help", option.help}};
}

template <class Rows>
Json rows_report(const Rows& rows) {
  Json list = Json::array();
  for (const auto& row : rows) {
    Json options = Json::array();
    for (const OptionSpec& option : row.options) options.push_back(option_report(option));
    list.push_back({{"name", row.name}, {"summary", row.summary}, {"options", std::move(options)}});
  }
  return list;
}

// The help stands in its column, below the option where that is too long.
std::string option_line(const OptionSpec& option) {
  constexpr std::size_t kColumn = 28;
  std::string value(kind_word(option.kind));
  if (option.kind == OptionKind::kChoice) value = fmt::format("{}", fmt::join(option.choices, "|"));
  if (option.kind == OptionKind::kList && !option.choices.empty())
    value = fmt::format("{}|list", fmt::join(option.choices, "|"));
  const std::string shape = fmt::format("{}=<{}>", option.name, value);
  const std::string gap = shape.size() <= kColumn ? std::string(kColumn + 1 - shape.size(), ' ')
                                                  : "\n" + std::string(kColumn + 7, ' ');
  return fmt::format("      {}{}{} ({})\n", shape, gap, option.help,
                     option.fallback      ? fmt::format("default {}", *option.fallback)
                     : option.is_optional ? "optional"
                                          : "required");
}

// The rows of these names; all, where there are none.
template <class Row>
std::vector<Row> select_rows(const std::vector<Row>& rows, const std::vector<std::string>& names) {
  std::vector<Row> selected;
  std::ranges::copy_if(rows, std::back_inserter(selected), [&](const Row& row) {
    return names.empty() || std::ranges::find(names, row.name) != names.end();
  });
  return selected;
}

void require_known(const std::vector<std::string>& names) {
  std::vector<std::string_view> known;
  for (const PassInfo& pass : registry().passes) known.push_back(pass.name);
  for (const PresetInfo& preset : registry().presets) known.push_back(preset.name);
  for (const std::string& name : names) {
    if (std::ranges::find(known, name) != known.end()) continue;
    const std::string_view near = nearest_name(name, known);
    throw UsageError(fmt::format("no pass or preset is called '{}'{} `epweave passes` lists them", name,
                                 near.empty() ? ";" : fmt::format("; did you mean '{}'?", near)));
  }
}

template <class Rows>
std::string rows_text(std::string_view title, const Rows& rows) {
  if (rows.empty()) return "";
  std::string text(title);
  for (const auto& row : rows) {
    text += fmt::format("  {}\n      {}\n", row.name, row.summary);
    for (const OptionSpec& option : row.options) text += option_line(option);
  }
  return text;
}

}  // namespace

int list_passes(const std::vector<std::string>& names, Console& console) {
  require_known(names);
  const std::vector<PassInfo> passes = select_rows(registry().passes, names);
  const std::vector<PresetInfo> presets = select_rows(registry().presets, names);
  if (console.json()) {
    console.print(report_text({{"passes", rows_report(passes)}, {"presets", rows_report(presets)}}));
    return kFine;
  }
  console.print(rows_text("passes (-p 'NAME{option=value,...},...')\n", passes) +
                (passes.empty() || presets.empty() ? "" : "\n") +
                rows_text("presets (--preset 'NAME{option=value,...}')\n", presets));
  return kFine;
}

}  // namespace epweave::cli
