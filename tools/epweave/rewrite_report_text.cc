#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "assumption_kinds.h"
#include "base/counted.h"
#include "base/error.h"
#include "base/memory_text.h"
#include "epweave/report_page.h"
#include "figures.h"
#include "rewrite_report.h"

namespace epweave::cli {
namespace {

constexpr std::string_view kDataMark = "/*DATA*/";

// What Markdown and HTML in it would read as their own.
std::string escape(std::string_view text) {
  constexpr std::string_view kMarks = "\\|*_<&`[~$";
  std::string out;
  for (const char c : text) {
    if (kMarks.find(c) != kMarks.npos) out += '\\';
    out += c == '\n' || c == '\r' ? ' ' : c;
  }
  return out;
}

// Text in a fence that is longer than the backticks in it.
std::string code(std::string_view text) {
  std::string line(text);
  std::ranges::replace_if(
      line, [](char c) { return c == '\n' || c == '\r'; }, ' ');
  std::string fence = "`";
  while (line.find(fence) != line.npos) fence += '`';
  return fence.size() == 1 ? fence + line + fence : fmt::format("{} {} {}", fence, line, fence);
}

// Lists of symbols grow with the ranks.
std::string shortened(std::string text) {
  constexpr std::size_t kMost = 160;
  if (text.size() <= kMost) return text;
  std::size_t end = kMost;
  while (end > 0 && text[end] != ' ') --end;
  return text.substr(0, end == 0 ? kMost : end) + " …";
}

std::string text_of(const Json& value) {
  return value.is_string() ? escape(value.get<std::string>()) : std::string();
}

// Of page["a"] or page["b"]; the second for Markdown.
std::string file_of_side(const Json& side) {
  const auto file = side["file"].get<std::string>();
  return file == "-" ? "standard input" : file;
}
std::string name_of_side(const Json& side) {
  return escape(file_of_side(side));
}

double number(const Json& value) {
  return value.get<double>();
}

// Figures of one row, in the unit of the largest of them: "10.95 s", "5.51 s".
struct TimeUnit {
  std::string_view name;
  double milliseconds;

  std::string say(double value) const {
    const double size = std::abs(value) / milliseconds;
    const int places = size < 1 ? places_below_one(size) : size < 10 || name == "s" ? 2 : size < 1000 ? 1 : 0;
    return fmt::format("{:.{}f} {}", value / milliseconds, places, name);
  }
};

TimeUnit time_unit(std::initializer_list<double> row) {
  double largest = 0;
  for (const double value : row) largest = std::max(largest, std::abs(value));
  if (largest >= 10000) return {"s", 1e3};
  return largest != 0 && largest < 1 ? TimeUnit{"µs", 1e-3} : TimeUnit{"ms", 1};
}

std::string change_text(double before, double after) {
  if (before == after) return "same";
  if (before == 0) return "new";
  if (std::abs(after / before - 1) < 0.0005) return "same to 0.1 %";
  return fmt::format("{:+.1f} %", 100 * (after / before - 1));
}

// "mm_3 in layers.1.moe: "; "" of a violation at no node.
std::string place_text(const Json& row) {
  if (row["node"].is_null()) return "";
  return fmt::format("{}{}: ", text_of(row["node"]),
                     row["module"].is_null() ? "" : fmt::format(" in {}", text_of(row["module"])));
}

void add_verdict(const Json& page, std::string& text) {
  const Json& verdict = page["verdict"];
  if (!verdict["proved"].get<bool>()) {
    const auto n = verdict["violation_count"].get<std::size_t>();
    text += fmt::format("**Not proved**: {}.\n\n", counted(n, "violation"));
    for (const Json& row : verdict["violations"])
      text += fmt::format("- `{}` {}{}\n", row["invariant"].get<std::string>(), place_text(row),
                          text_of(row["message"]));
    if (const std::size_t shown = verdict["violations"].size(); shown < n)
      text += fmt::format("- {} more: `epweave verify A B`\n", n - shown);
    text += "\n";
    return;
  }
  text += fmt::format("**Proved**: {} computes what {} computes", name_of_side(page["b"]),
                      name_of_side(page["a"]));
  const auto n = verdict["assumption_count"].get<std::size_t>();
  text += fmt::format(", {}.\n\n", count_assumptions(verdict["assumption_kinds"].get<std::size_t>(), n));
  if (n == 0) return;
  text += "<details><summary>Assumptions</summary>\n\n";
  std::size_t shown = 0;
  for (const Json& row : verdict["assumptions"]) {
    const auto count = row["count"].get<std::size_t>();
    shown += count;
    text += fmt::format("- {}{}\n", shortened(text_of(row["assumption"])),
                        count == 1 ? "" : fmt::format("; {} more like it", count - 1));
    if (!row["why"].is_null()) text += fmt::format("  - why: {}\n", text_of(row["why"]));
    if (!row["spelling"].is_null())
      text += fmt::format("  - spelling that is proved: {}\n", row["spelling"].get<std::string>());
  }
  if (shown < n) text += fmt::format("- {} more: `epweave verify A B -v`\n", n - shown);
  text += "\n</details>\n\n";
}

void add_times(const Json& page, std::string& text) {
  const Json& predicted = page["predicted"];
  const std::string changed = text_of(predicted["changed"]);
  text +=
      fmt::format("Predicted on {}{}{}{}.\n\n| | before | after | |\n|---|---:|---:|---:|\n",
                  text_of(predicted["cluster"]), changed.empty() ? "" : fmt::format(" ({})", changed),
                  predicted["planned_for"].is_null()
                      ? ""
                      : ", while the plan was made for " + text_of(predicted["planned_for"]),
                  predicted["costs"].is_null() ? "; not measured"
                                               : ", by prices measured in " + text_of(predicted["costs"]));
  static constexpr std::pair<const char*, const char*> kRows[] = {{"step", "makespan_ms"},
                                                                  {"exposed communication", "exposed_ms"},
                                                                  {"communication", "comm_ms"},
                                                                  {"compute", "compute_ms"}};
  for (const auto& [what, key] : kRows) {
    const double a = number(predicted["a"][key]), b = number(predicted["b"][key]);
    text += fmt::format("| {} | {} | {} | {} |\n", what, time_unit({a, b}).say(a), time_unit({a, b}).say(b),
                        change_text(a, b));
  }
  const auto peak = [&](const char* side) { return number(predicted[side]["peak_bytes"]); };
  const double largest = std::max(peak("a"), peak("b"));
  text += fmt::format("| peak memory | {} | {} | {} |\n", memory_text(peak("a"), largest),
                      memory_text(peak("b"), largest), change_text(peak("a"), peak("b")));
  for (const Json& row : page["stats"]) {
    const auto a = row["a"].get<std::int64_t>(), b = row["b"].get<std::int64_t>();
    const auto unit = row["unit"].get<std::string>();
    const auto say = [&](std::int64_t n) {
      return unit.empty() ? std::to_string(n) : metric(n, unit, std::max(a, b));
    };
    text += fmt::format("| {} | {} | {} | {} |\n", row["what"].get<std::string>(), say(a), say(b),
                        change_text(static_cast<double>(a), static_cast<double>(b)));
  }
  text += "\n";
}

void add_exchanges(const Json& page, std::string& text) {
  if (page["exchanges"].empty()) {
    text += "No token exchange.\n\n";
    return;
  }
  text +=
      "| token exchanges of | parts | before | exposed | after | exposed |\n|---|---:|---:|---:|---:|---:|\n";
  for (const Json& row : page["exchanges"]) {
    const auto n = row["count"].get<std::size_t>();
    const Json &a = row["a"], &b = row["b"];
    const double before = number(a["comm_ms"]), after = number(b["comm_ms"]);
    const TimeUnit unit = time_unit({before, after});  // what is exposed is a share of it
    text += fmt::format("| {} {}{} | {} | {} | {} | {} | {} |\n", text_of(row["region"]),
                        text_of(row["direction"]), n == 1 ? "" : fmt::format(" × {}", n),
                        row["parts"].get<std::size_t>(), unit.say(before), unit.say(number(a["exposed_ms"])),
                        unit.say(after), unit.say(number(b["exposed_ms"])));
  }
  text += "\n";
}

// As the page in HTML says it.
std::string reason_text(const Json& row) {
  const auto why = row["why"].get<std::string>();
  const std::string blame = text_of(row["blame"]), by = text_of(row["hidden_by"]);
  const std::string under = by.empty() ? "" : fmt::format("; {} could run under it", by);
  if (why == "dependence")
    return fmt::format("{} needs it, and nothing else is ready", blame.empty() ? "nothing" : blame);
  if (why == "queue") return fmt::format("its group was busy with {}", blame);
  if (why == "launched-late") return fmt::format("launched behind {}{}", blame, under);
  if (why == "waited-early") return fmt::format("waited for early, by {}{}", blame, under);
  if (why == "memory") return "launched earlier, it would exceed the peak of memory";
  if (why == "no-compute") return "every kernel comes before it or needs it";
  return escape(why);
}

void add_exposed(const Json& page, std::string& text) {
  const Json& rows = page["exposed"]["b"];
  if (rows.empty()) return;
  text +=
      "<details><summary>What is still exposed</summary>\n\n| collective | in | exposed | why "
      "|\n|---|---|---:|---|\n";
  for (const Json& row : rows) {
    const auto n = row["count"].get<std::size_t>();
    const TimeUnit unit = time_unit({number(row["of_ms"])});
    text +=
        fmt::format("| {} | {}{} {} | {} of {} | {} |\n", text_of(row["what"]), text_of(row["where"]),
                    n == 1 ? "" : fmt::format(" × {}", n), text_of(row["source"]),
                    unit.say(number(row["exposed_ms"])), unit.say(number(row["of_ms"])), reason_text(row));
  }
  text += "\n</details>\n\n";
}

// "choose-chunks: taken: .." of "choose-chunks: choice: taken: ..", and of a trial likewise.
std::string without_label(std::string note) {
  for (const std::string_view label : {": choice: ", ": trial: "})
    if (const auto at = note.find(label); at != note.npos) return note.replace(at, label.size(), ": ");
  return note;
}

void add_plan(const Json& page, std::string& text) {
  if (page["plan"]["passes"].empty()) return;
  text += "<details><summary>Plan</summary>\n\n";
  for (const Json& pass : page["plan"]["passes"])
    text += fmt::format(
        "- {}: {} → {} nodes\n",
        code(fmt::format("{}{{{}}}", pass["name"].get<std::string>(), pass["options"].get<std::string>())),
        pass["nodes_before"].get<std::size_t>(), pass["nodes_after"].get<std::size_t>());
  text += "\n";
  for (const Json& note : page["plan"]["notes"])
    text += fmt::format("- {}\n", shortened(escape(without_label(note.get<std::string>()))));
  if (!page["plan"]["notes"].empty()) text += "\n";
  for (const Json& region : page["plan"]["regions"]) {
    const auto n = region["count"].get<std::size_t>();
    text += fmt::format("- {} {}{}: {} parts; {} nodes divided, {} run once, {} cut, {} joined\n",
                        text_of(region["region"]), text_of(region["direction"]),
                        n == 1 ? "" : fmt::format(" × {}", n), region["parts"].get<std::size_t>(),
                        region["divided"].get<std::size_t>(), region["runs_once"].get<std::size_t>(),
                        counted(region["cut"].size(), "value"), region["joined"].size());
  }
  text += "\n</details>\n\n";
}

void add_difference(const Json& page, std::string& text) {
  const Json& diff = page["diff"];
  if (diff["same"].get<bool>()) {
    text += "No difference.\n";
    return;
  }
  text += fmt::format("<details><summary>Difference: {} nodes are the same</summary>\n\n",
                      diff["same_nodes"].get<std::size_t>());
  for (const auto& [change, n] : diff["changes"].items())
    text += fmt::format("- {} {}\n", n.get<std::size_t>(), change);
  text +=
      "\n| module | before | after | divided | added | removed | changed | moved "
      "|\n|---|---:|---:|---:|---:|---:|---:|---:|\n";
  for (const Json& row : diff["modules"]) {
    text += fmt::format("| {} |", text_of(row["name"]));
    for (const char* key : {"before", "after", "divided", "added", "removed", "changed", "moved"})
      text += fmt::format(" {} |", row[key].get<std::size_t>());
    text += "\n";
  }
  const auto modules = diff["module_count"].get<std::size_t>(), shown = diff["modules"].size();
  if (shown < modules) text += fmt::format("\n{} more: `epweave diff A B --summary`\n", modules - shown);
  text += "\n</details>\n";
}

}  // namespace

std::string verdict_text(const Json& page) {
  const Json& verdict = page["verdict"];
  const std::string a = file_of_side(page["a"]), b = file_of_side(page["b"]);
  if (!verdict["proved"].get<bool>())
    return fmt::format("{}: {}; it is not shown to compute what {} computes", b,
                       counted(verdict["violation_count"].get<std::size_t>(), "violation"), a);
  return fmt::format("{}: proved to compute what {} computes, {}", b, a,
                     count_assumptions(verdict["assumption_kinds"].get<std::size_t>(),
                                       verdict["assumption_count"].get<std::size_t>()));
}

std::string page_markdown(const Json& page) {
  if (page.is_null()) return "";
  std::string text = fmt::format("# {} → {}\n\n", name_of_side(page["a"]), name_of_side(page["b"]));
  add_verdict(page, text);
  add_times(page, text);
  add_exchanges(page, text);
  add_exposed(page, text);
  add_plan(page, text);
  add_difference(page, text);
  return text;
}

std::string page_html(const Json& page) {
  // JSON that may stand inside a <script>: no "<" that could end it.
  std::string data;
  for (const char c : report_line(page))
    if (c == '<')
      data += "\\u003c";
    else
      data += c;
  std::string out = kReportPage;
  const std::size_t mark = out.find(kDataMark);
  EPWEAVE_CHECK(mark != out.npos);
  return out.replace(mark, kDataMark.size(), data);
}

}  // namespace epweave::cli
