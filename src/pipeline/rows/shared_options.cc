#include "pipeline/rows/shared_options.h"

#include <fmt/format.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

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

std::string read_option_file(std::string_view option, const std::string& path) {
  const auto fail = [&](std::string_view what) {
    throw InputError(fmt::format("option '{}': {}: {}: {}", option, path, what, std::strerror(errno)));
  };
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rbe"), std::fclose);
  if (!file) fail("cannot open");
  std::string text;
  std::array<char, 1 << 16> block;
  while (const std::size_t n = std::fread(block.data(), 1, block.size(), file.get()))
    text.append(block.data(), n);
  if (std::ferror(file.get()) != 0) fail("cannot read");
  return text;
}

Cluster read_cluster(const Options& options) {
  const auto read = [](const std::string& path) { return read_option_file("cluster", path); };
  return options.has("cluster") ? parse_cluster(options.text("cluster"), read) : Cluster{};
}

std::shared_ptr<const CostFile> read_costs(const Options& options) {
  if (!options.has("costs")) return nullptr;
  const std::string& path = options.text("costs");
  return std::make_shared<const CostFile>(
      CostFile{MeasuredCosts::parse(read_option_file("costs", path), path), path});
}

Unpriced read_unpriced(const Options& options) {
  return is_chosen(options, "unpriced", "free") ? Unpriced::kFree : Unpriced::kDecline;
}

}  // namespace epweave
