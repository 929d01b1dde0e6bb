#include <fmt/format.h>

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

template <class Rows>
std::string rows_text(std::string_view title, const Rows& rows) {
  std::string text(title);
  for (const auto& row : rows) {
    text += fmt::format("  {}\n      {}\n", row.name, row.summary);
    for (const OptionSpec& option : row.options) text += option_line(option);
  }
  return text;
}

}  // namespace

int list_passes(Console& console) {
  const Registry& known = registry();
  if (console.json())
    console.print(
        report_text({{"passes", rows_report(known.passes)}, {"presets", rows_report(known.presets)}}));
  else
    console.print(rows_text("passes (-p 'NAME{option=value,...},...')\n", known.passes) +
                  rows_text("\npresets (--preset 'NAME{option=value,...}')\n", known.presets));
  return kFine;
}

}  // namespace epweave::cli
