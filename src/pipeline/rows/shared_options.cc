#include "pipeline/rows/shared_options.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>
#include <utility>

#include "cost/measured_costs.h"

namespace epweave {

const OptionSpec kMemory{
    "memory", OptionKind::kText, "2%",
    "how much device memory the result may need: a share above the input's peak (2%), above that of the "
    "pipeline's input (run+2%), or bytes (32.1GiB)"};

const OptionSpec kCluster{"cluster", OptionKind::kText, "h100",
                          "the machine: a built-in shape or a file, and changes to it (h100+nic=400e9)"};

const OptionSpec kCosts{
    .name = "costs",
    .kind = OptionKind::kText,
    .help = "times that `epweave-replay run --costs FILE` measured on this graph: they win",
    .is_optional = true};

const OptionSpec kUnpriced{
    .name = "unpriced",
    .kind = OptionKind::kChoice,
    .help = "calls that nothing prices: decline them (the default), or take them to be free",
    .choices = {"decline", "free"},
    .is_optional = true};

const OptionSpec kThen{
    .name = "then",
    .kind = OptionKind::kText,
    .help =
        "options of the schedule that follows: a merge must pay there; by default those of the pipeline's",
    .is_optional = true};

const OptionSpec kSymbolize{"symbolize",
                            OptionKind::kList,
                            "no",
                            "for graphs whose token count is a plain number: give it a symbol first; a list "
                            "says which inputs and dimensions count tokens ([tokens:0,labels:0])",
                            {"yes", "no"}};

OptionSpec left_out(OptionSpec spec) {
  spec.fallback.reset();
  spec.is_optional = true;
  return spec;
}

bool is_chosen(const Options& options, std::string_view name, std::string_view value) {
  return options.has(name) && options.text(name) == value;
}

std::string read_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  if (!file || !(text << file.rdbuf()))
    throw InputError(fmt::format("{}: cannot read: {}", path, std::strerror(errno)));
  return std::move(text).str();
}

Cluster read_cluster(const Options& options) {
  return options.has("cluster") ? parse_cluster(options.text("cluster"), read_text) : Cluster{};
}

std::shared_ptr<const CostFile> read_costs(const Options& options) {
  if (!options.has("costs")) return nullptr;
  const std::string& path = options.text("costs");
  return std::make_shared<const CostFile>(CostFile{MeasuredCosts::parse(read_text(path), path), path});
}

Unpriced read_unpriced(const Options& options) {
  return is_chosen(options, "unpriced", "free") ? Unpriced::kFree : Unpriced::kDecline;
}

}  // namespace epweave
