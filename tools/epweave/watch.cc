#include "watch.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "common/command_files.h"
#include "compare/diff/diff_text.h"
#include "ir/text/text.h"
#include "plan_view.h"

namespace epweave::cli {
namespace {

void require_known_pass(const Pipeline& pipeline, const std::string& name) {
  if (name == "all") return;
  std::vector<std::string_view> names;
  for (const PassCall& call : pipeline.calls) names.push_back(call.pass->name);
  if (std::ranges::find(names, name) != names.end()) return;
  throw UsageError(fmt::format("--print-after {}: the pipeline has no such pass: all, or one of {}", name,
                               fmt::join(names, ", ")));
}

double peak_mib() {
  struct rusage usage {};
  ::getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / 1024;
}

// Every pass adds a record to every node, which says nothing about what it changed.
std::string changes_text(const PassReport& pass, const std::string& place) {
  const std::string before = "before " + place, after = "after " + place;
  const DiffSides sides{pass.before, pass.after, before, after};
  return print_diff(sides, diff_graphs(pass.before, pass.after, {.provenance = false}), Listing::kReadable);
}

}  // namespace

Watch::Watch(const RewriteOptions& options, const Pipeline& pipeline, Console& console)
    : options_(options), console_(console), count_(pipeline.calls.size()) {
  for (const std::string& name : options.print_after) require_known_pass(pipeline, name);
  if (options.dump_dir.empty()) return;
  require_no_stream("--dump-dir", options.dump_dir, "it gets a file for each pass");
  if (::mkdir(options.dump_dir.c_str(), 0777) != 0 && errno != EEXIST)
    throw InputError(fmt::format("{}: cannot create the folder: {}", options.dump_dir, std::strerror(errno)));
  if (!std::filesystem::is_directory(options.dump_dir))
    throw InputError(fmt::format("{}: not a folder", options.dump_dir));
}

RunnerHooks Watch::hooks() {
  return {.before_pass =
              [this](const PassCall& call) {
                ticking_.emplace(console_,
                                 fmt::format("[{}/{}] {} ...", ++started_, count_, call.pass->name));
              },
          .after_pass =
              [this](const PassReport& pass) {
                ticking_.reset();
                times_.push_back({.pass = std::string(pass.call.pass->name),
                                  .run = pass.seconds,
                                  .verify = pass.verify_seconds,
                                  .peak_mib = peak_mib(),
                                  .before = pass.before.step().order.size(),
                                  .after = pass.after.step().order.size()});
                report_.push_back({{"name", pass.call.pass->name},
                                   {"options", print_options(pass.call.options)},
                                   {"nodes_before", times_.back().before},
                                   {"nodes_after", times_.back().after},
                                   {"changed", pass.changed},
                                   {"notes", pass.notes}});
                show(pass);
                if (!options_.dump_dir.empty()) dump(pass);
              },
          .on_failure =
              [this](const FailureReport& failure) {
                ticking_.reset();
                failure_.emplace(failure.input, failure.remaining);
              }};
}

bool Watch::is_printed(std::string_view pass) const {
  return std::ranges::any_of(options_.print_after,
                             [&](const std::string& name) { return name == "all" || name == pass; });
}

void Watch::show(const PassReport& pass) {
  const std::string_view name = pass.call.pass->name;
  // With -v the decisions of chunk are listed one by one, the notes that only count them are not.
  const bool has_plan = console_.verbose() && name == "chunk";
  for (const std::string& note : pass.notes) {
    if (has_plan && (note.starts_with("region ") || note.starts_with("proved"))) continue;
    const std::string line = fmt::format("{}: {}", name, note);
    // What the result rests on, and what it is predicted to gain, is said always; the rest of the
    // plan, with what else could have been taken, on request.
    if (note.starts_with("assumption") || note.starts_with("unused") ||
        (is_choice_note(note) && !is_trial_note(note)))
      console_.info(line);
    else
      console_.detail(line);
  }
  if (has_plan)
    for (const std::string& line : list_plan_decisions(pass))
      if (line.find("assumes ") == line.npos) console_.detail(fmt::format("{}: {}", name, line));
  console_.detail(fmt::format("{}: {} -> {} nodes{}", name, times_.back().before, times_.back().after,
                              pass.changed ? "" : ", unchanged"));
  const std::string place = fmt::format("{} ({} of {})", name, pass.position + 1, pass.count);
  if (options_.print_changed)
    console_.requested(pass.changed ? changes_text(pass, place)
                                    : fmt::format("# after {}: no change", place));
  if (is_printed(name))
    console_.requested(fmt::format("# after {}\n{}", place, print_text(pass.after, TextMode::kShort)));
}

void Watch::dump(const PassReport& pass) {
  write_graph(pass.after,
              fmt::format("{}/{:02}-{}.txt", options_.dump_dir, pass.position + 1, pass.call.pass->name));
}

std::string Watch::times_text(const FileTimes& files) const {
  std::string text = fmt::format("{:<16}{:>10}{:>11}{:>10}{:>10}{:>10}\n", "pass", "run ms", "verify ms",
                                 "peak MiB", "nodes", "after");
  const auto row = [](std::string_view name, double seconds) {
    return fmt::format("{:<16}{:>10.2f}\n", name, seconds * 1e3);
  };
  text += row("(read)", files.read);
  double total = files.read + files.write;
  for (const Time& time : times_) {
    text += fmt::format("{:<16}{:>10.2f}{:>11.2f}{:>10.1f}{:>10}{:>10}\n", time.pass, time.run * 1e3,
                        time.verify * 1e3, time.peak_mib, time.before, time.after);
    total += time.run + time.verify;
  }
  return text + row("(write)", files.write) + row("total", total);
}

Json Watch::times_report(const FileTimes& files) const {
  Json passes = Json::array();
  for (const Time& time : times_)
    passes.push_back({{"name", time.pass},
                      {"run_ms", time.run * 1e3},
                      {"verify_ms", time.verify * 1e3},
                      {"peak_mib", time.peak_mib}});
  return {{"read_ms", files.read * 1e3},
          {"passes", std::move(passes)},
          {"write_ms", files.write * 1e3},
          {"peak_mib", peak_mib()}};
}

}  // namespace epweave::cli
