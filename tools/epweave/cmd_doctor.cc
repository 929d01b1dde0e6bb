// doctor: what a graph has, what it lacks for which pass, what that costs, and the line that adds
// it.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "commands.h"
#include "common/report.h"
#include "doctor.h"
#include "pipeline/registry.h"

namespace epweave::cli {
namespace {

struct GraphReader {
  std::string_view name;
  std::vector<std::string_view> lacks;  // topics
  std::string_view idle;                // why it has nothing to do, or empty
};

// The passes, and what else reads a graph, each with what it lacks here.
std::vector<GraphReader> list_readers(const Diagnosis& diagnosis) {
  std::vector<GraphReader> readers;
  const auto add = [&](std::string_view name) {
    GraphReader& reader = readers.emplace_back(GraphReader{name, list_lacks(diagnosis, name), {}});
    const auto idle = std::ranges::find(diagnosis.idle, name, &IdlePass::name);
    if (idle != diagnosis.idle.end()) reader.idle = idle->why;
  };
  for (const PassInfo& pass : registry().passes) add(pass.name);
  add("partition");
  add("replay");
  return readers;
}

std::string_view health_word(Health health) {
  switch (health) {
    case Health::kHas:
      return "has";
    case Health::kLacks:
      return "lacks";
    case Health::kNone:
      return "none";
  }
  return "";
}

std::vector<std::string_view> needed_by(std::string_view topic, const std::vector<GraphReader>& readers) {
  std::vector<std::string_view> names;
  for (const GraphReader& reader : readers)
    if (std::ranges::find(reader.lacks, topic) != reader.lacks.end()) names.push_back(reader.name);
  return names;
}

Json doctor_report(const std::string& file, const Diagnosis& diagnosis,
                   const std::vector<GraphReader>& readers, bool is_complete) {
  Json findings = Json::array(), passes = Json::array();
  for (const Finding& finding : diagnosis.findings)
    findings.push_back({{"topic", finding.topic},
                        {"state", health_word(finding.health)},
                        {"found", finding.found},
                        {"cases", finding.cases},
                        {"needed_by", needed_by(finding.topic, readers)},
                        {"costs", text_or_null(finding.costs)},
                        {"add", finding.add}});
  for (const GraphReader& reader : readers)
    passes.push_back({{"name", reader.name}, {"lacks", reader.lacks}, {"idle", text_or_null(reader.idle)}});
  return {{"file", file},
          {"complete", is_complete},
          {"findings", std::move(findings)},
          {"passes", std::move(passes)},
          {"roots", diagnosis.roots}};
}

std::string doctor_text(const Diagnosis& diagnosis, const std::vector<GraphReader>& readers,
                        bool is_complete) {
  std::string text, ready;
  for (const Finding& finding : diagnosis.findings) {
    text += fmt::format("{:<6} {:<11} {}\n", health_word(finding.health), finding.topic, finding.found);
    for (const std::string& line : finding.cases) text += fmt::format("                     {}\n", line);
    if (finding.health == Health::kLacks) {
      text += fmt::format("         needed by   {}\n", fmt::join(needed_by(finding.topic, readers), ", "));
      text += fmt::format("         costs       {}\n", finding.costs);
    }
    for (std::size_t i = 0; i < finding.add.size(); ++i)
      text += fmt::format("         {}         {}\n", i == 0 ? "add" : "or ", finding.add[i]);
  }
  for (const GraphReader& reader : readers)
    if (reader.lacks.empty() && reader.idle.empty())
      ready += fmt::format("{}{}", ready.empty() ? "" : ", ", reader.name);
  text += fmt::format("\nready for: {}\n", ready);
  for (const GraphReader& reader : readers)
    if (!reader.lacks.empty())
      text += fmt::format("{} lacks {}\n", reader.name, fmt::join(reader.lacks, ", "));
    else if (!reader.idle.empty())
      text += fmt::format("{} has nothing to do: {}\n", reader.name, reader.idle);
  if (is_complete) text += "nothing is missing\n";
  return text;
}

}  // namespace

int doctor(const InputOptions& options, Console& console) {
  const Graph graph = read_sound_input(options, nullptr, Soundness::kStructure);
  const Diagnosis diagnosis = diagnose(graph);
  const bool is_complete = std::ranges::none_of(
      diagnosis.findings, [](const Finding& finding) { return finding.health == Health::kLacks; });
  const std::vector<GraphReader> readers = list_readers(diagnosis);
  console.print(console.json() ? report_text(doctor_report(options.path, diagnosis, readers, is_complete))
                               : doctor_text(diagnosis, readers, is_complete));
  return is_complete ? kFine : kDifferent;
}

}  // namespace epweave::cli
