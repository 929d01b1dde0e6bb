#include "replay_fit.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <fstream>
#include <map>
#include <thread>

#include "common/graphs.h"
#include "io/file.h"
#include "replay/cublas/products.h"
#include "replay/need/step_work.h"

namespace epweave::cli {
namespace {

using replay::NeedOf;
using replay::RankNeed;

// Assumed (docs/gpu.md).
constexpr double kContextBytes = 512.0 * (1 << 20), kNcclBytesOfGroup = 128.0 * (1 << 20);
constexpr double kHostLink = 20e9;             // bytes in a second between host and device
constexpr double kMostKept = 4.0 * (1 << 30);  // CheckSetup::kept_bytes

replay::Rates rates_of(const FitPlace& place, const ReplayOptions& options) {
  const double cores = std::max(1U, std::thread::hardware_concurrency());
  if (place.is_cpu()) return {100e9 * cores, 5e9 * cores, 5e9 * cores, 5e-6};
  const bool is_emulated = place.device != nullptr && place.device->memory_bytes() == 0;
  if (is_emulated) return {5e9, 1e9, 1e9, 20e-6};
  if (options.math == "native") return {400e12, 0.8e12, 50e9, 5e-6};
  return {5e12, 0.8e12, 50e9, 5e-6};
}

// Bytes of memory of this machine that nothing else takes, or that the container allows.
double find_host_memory() {
  double bytes = static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGE_SIZE));
  std::ifstream facts("/proc/meminfo");
  for (std::string line; std::getline(facts, line);)
    if (line.starts_with("MemAvailable:")) bytes = std::min(bytes, 1024 * std::stod(line.substr(13)));
  double allowed = 0;
  if (std::ifstream limit("/sys/fs/cgroup/memory.max"); limit >> allowed) bytes = std::min(bytes, allowed);
  return bytes;
}

// "51.4 TiB": the largest unit of which there is at least one.
std::string format_bytes(double bytes) {
  constexpr std::array kUnits = {"KiB", "MiB", "GiB", "TiB"};
  if (bytes < 1024) return fmt::format("{:.0f} bytes", bytes);
  std::size_t unit = 0;
  for (bytes /= 1024; bytes >= 1024 && unit + 1 < kUnits.size(); bytes /= 1024) ++unit;
  return fmt::format("{:.1f} {}", bytes, kUnits[unit]);
}

std::string format_seconds(double seconds) {
  if (seconds < 120) return fmt::format("{:.3g} s", seconds);
  if (seconds < 7200) return fmt::format("{:.0f} minutes", seconds / 60);
  return fmt::format("{:.1f} hours", seconds / 3600);
}

double number(std::uint64_t value) {
  return static_cast<double>(value);
}

// "layers.3.moe" of "layers.3.moe.router.gate": a module that can be extracted.
std::string_view block_of(std::string_view module) {
  std::size_t end = 0, elements = 0;
  while (end < module.size() && elements < 3) {
    end = std::min(module.find('.', end + 1), module.size());
    ++elements;
  }
  return module.substr(0, end);
}

// The block of most nodes: part of a layer that can be looked at alone.
std::string find_module(const Graph& graph) {
  std::map<std::string_view, std::size_t> counts;
  for (const NodeId id : graph.step().order) {
    const std::string_view name = block_of(graph.text(graph.step().nodes[id].module));
    if (std::count(name.begin(), name.end(), '.') == 2) ++counts[name];
  }
  const auto most = std::max_element(counts.begin(), counts.end(),
                                     [](const auto& a, const auto& b) { return a.second < b.second; });
  return most == counts.end() ? "" : std::string(most->first);
}

Json describe_lines(const std::vector<std::pair<const char*, double>>& lines) {
  Json json = Json::object();
  for (const auto& [name, bytes] : lines) json[name] = static_cast<std::uint64_t>(bytes);
  return json;
}

}  // namespace

double Fit::Memory::sum() const {
  double bytes = 0;
  for (const Line& line : lines) bytes += line.bytes;
  return bytes;
}

Fit::Fit(const FitCommand& command) : command_(command) {
  find_needs();
  add_device();
  add_host();
}

void Fit::find_needs() {
  std::optional<MeasuredCosts> costs;
  const std::string& path = command_.options.costs_from;
  if (!path.empty()) costs = MeasuredCosts::parse(read_bytes(path), path);
  const double ranks = command_.ranks;
  for (const FitGraph& run : command_.graphs) {
    replay::NeedFinder finder(run.graph);
    GraphNeed& entry = needs_.emplace_back();
    entry.run = &run;
    entry.need = finder.find(run.place.is_cpu()        ? NeedOf::kHost
                             : command_.has_own_device ? NeedOf::kOwnDevice
                                                       : NeedOf::kDevice);
    if (run.bounded != 0) entry.bounded = finder.find(NeedOf::kBounded);
    if (!command_.options.dry_run) continue;
    const replay::StepWork work =
        replay::find_step_work(run.graph, rates_of(run.place, command_.options), costs ? &*costs : nullptr);
    const double runs = run.runs + run.bounded;
    entry.flops = static_cast<double>(work.flops) * ranks * runs;
    entry.kernels = work.kernels;
    entry.measured = work.measured;
    entry.seconds = work.seconds * ranks * run.runs;
    if (!run.place.is_cpu()) {
      entry.copied = number(entry.need.inputs + entry.need.outputs) * ranks * run.runs;
      // Every value that is compared goes to the host.
      if (command_.compares) entry.copied += number(entry.need.made) * ranks;
      entry.seconds += entry.copied / kHostLink;
    }
    // With bounds and in float64 the CPU computes everything about three times.
    constexpr double kBoundedWork = 3;
    if (run.bounded != 0)
      entry.seconds += kBoundedWork * run.bounded * ranks *
                       replay::find_step_work(run.graph, rates_of({}, command_.options), nullptr).seconds;
  }
}

const Fit::GraphNeed& Fit::largest() const {
  return *std::max_element(needs_.begin(), needs_.end(), [](const GraphNeed& a, const GraphNeed& b) {
    return a.need.inputs + a.need.at_peak() < b.need.inputs + b.need.at_peak();
  });
}

// What a device holds at a time: one graph runs after the other.
void Fit::add_device() {
  const GraphNeed* most = nullptr;
  for (const GraphNeed& entry : needs_)
    if (!entry.run->place.is_cpu() && (most == nullptr || entry.need.inputs + entry.need.at_peak() >
                                                              most->need.inputs + most->need.at_peak()))
      most = &entry;
  if (most == nullptr) return;
  const double ranks = command_.ranks;
  const replay::Device* device = most->run->place.device;
  const bool is_gpu = device == nullptr || device->memory_bytes() != 0;
  constexpr double kOfRank = 512;  // where kernels report what they refuse
  Memory memory{"device",
                {{"inputs", ranks * number(most->need.inputs)},
                 {"values", ranks * number(most->need.values)},
                 {"scratch", ranks * number(most->need.scratch)},
                 {"rounding", ranks * (number(most->need.rounding) + kOfRank)}},
                {},
                false};
  if (command_.options.math == "native")
    memory.lines.push_back({"workspace", ranks * static_cast<double>(replay::cublas::kWorkspaceBytes)});
  if (command_.has_own_device && is_gpu)
    memory.lines.push_back({"nccl", kNcclBytesOfGroup * number(most->run->graph.groups.size() + 1)});
  // A context that is there is no longer among what is free.
  if (device == nullptr) memory.lines.push_back({"context", kContextBytes});
  if (device != nullptr && device->memory_bytes() != 0) memory.there = number(device->free_bytes());
  if (command_.options.memory != 0) {
    memory.there = command_.options.memory * (1 << 30);
    memory.is_allowed = true;
  }
  memories_.push_back(std::move(memory));
}

void Fit::add_host() {
  const double ranks = command_.ranks, processes = command_.processes;
  const GraphNeed* most = nullptr;  // the run that takes most beside what is kept
  double inputs = 0, copies = 0, values = 0, scratch = 0, rounding = 0, kept = 0, outputs = 0;
  for (const GraphNeed& entry : needs_) {
    inputs = std::max(inputs, number(entry.need.inputs));
    // check makes the inputs of each run anew; run starts again from the same ones.
    if (!command_.compares && entry.run->runs > 1) copies = number(entry.need.written);
    outputs += number(entry.need.outputs) * (entry.run->bounded != 0 ? 2 : 1);
    for (const RankNeed* need : {&entry.need, &entry.bounded}) {
      if (need == &entry.need && !entry.run->place.is_cpu()) continue;
      if (most != nullptr && number(need->at_peak()) <= values + scratch + rounding) continue;
      most = &entry;
      values = number(need->values), scratch = number(need->scratch), rounding = number(need->rounding);
    }
    if (entry.run->bounded != 0)
      kept = std::max(kept, std::min(kMostKept, ranks * number(entry.bounded.made)));
  }
  Memory memory{"host", {{"inputs", ranks * inputs}}, find_host_memory(), false};
  if (copies != 0) memory.lines.push_back({"copies", ranks * copies});
  if (most != nullptr) {
    memory.lines.push_back({"values", ranks * values});
    memory.lines.push_back({"scratch", ranks * scratch});
    memory.lines.push_back({"rounding", ranks * rounding});
  }
  if (command_.compares || most == nullptr) memory.lines.push_back({"outputs", ranks * outputs});
  if (kept != 0) memory.lines.push_back({"kept", kept});
  for (Line& line : memory.lines) line.bytes *= processes;
  for (const Memory& device : memories_)  // an emulated device's is the host's
    if (!device.there && std::any_of(needs_.begin(), needs_.end(), [](const GraphNeed& entry) {
          return entry.run->place.device != nullptr;
        }))
      memory.lines.push_back({"device", processes * device.sum()});
  const bool is_first = memories_.empty();
  if (command_.options.memory != 0 && is_first) {
    memory.there = command_.options.memory * (1 << 30);
    memory.is_allowed = true;
  }
  memories_.push_back(std::move(memory));
}

// --- words ---

std::string Fit::describe_live(const Graph& graph, const replay::LiveValue& value) const {
  const Node& node = graph.step().nodes[value.node];
  std::string text = fmt::format("%{}", graph.text(node.name));
  if (node.kind == NodeKind::kPlaceholder) {
    std::size_t i = 0;
    for (const NodeId id : graph.step().order) {
      if (id == value.node) break;
      if (graph.step().nodes[id].kind == NodeKind::kPlaceholder) ++i;
    }
    if (i < graph.inputs.size() && graph.inputs[i].fqn)
      text = fmt::format("{} {}", graph.text(graph.inputs[i].role), graph.text(graph.inputs[i].fqn));
  } else {
    text += fmt::format(" = {}", graph.text(node.target));
    if (node.module) text += fmt::format(" in {}", graph.text(node.module));
  }
  return fmt::format("{} {}", format_bytes(number(value.bytes)), text);
}

std::string Fit::describe_peak(const GraphNeed& entry) const {
  if (!entry.need.peak) return "no node";
  const Site site = site_of(entry.run->graph, entry.run->graph.step().nodes[entry.need.peak]);
  std::string text = fmt::format("%{} = {}", site.node, site.op);
  if (!site.module.empty()) text += " in " + site.module;
  if (!site.source.empty()) text += " (" + site.source + ")";
  return text;
}

std::string Fit::find_remedy(const Memory& memory) const {
  const GraphNeed& most = largest();
  const std::string name = display_name(most.run->input);
  std::vector<std::string> ways;
  if (const std::string module = find_module(most.run->graph); !module.empty())
    ways.push_back(fmt::format("run one module (epweave extract {} --module {} -o PART.epw)", name, module));
  ways.push_back(fmt::format("take fewer tokens (epweave resize {} --set tokens=N -o SMALL.epw)", name));
  if (command_.ranks > 1 && memory.there && memory.sum() / command_.ranks <= *memory.there)
    ways.push_back(
        "give each rank a process of its own on a GPU or a host of its own (--transport nccl): one fits");
  if (command_.ranks > 1) ways.push_back("trace the model on fewer ranks");
  ways.push_back("allow more with --memory");
  return fmt::format("{}", fmt::join(ways, "; "));
}

void Fit::refuse(const Memory& memory) const {
  const GraphNeed& most = largest();
  std::vector<std::string> parts, live;
  for (const Line& line : memory.lines)
    if (line.bytes >= 1) parts.push_back(fmt::format("{} of {}", format_bytes(line.bytes), line.name));
  for (std::size_t i = 0; i < std::min<std::size_t>(most.need.largest.size(), 4); ++i)
    live.push_back(describe_live(most.run->graph, most.need.largest[i]));
  const Site site =
      most.need.peak ? site_of(most.run->graph, most.run->graph.step().nodes[most.need.peak]) : Site{};
  throw PassError(
      "replay.memory",
      fmt::format("{}: {} rank{} need{} {} of the {}'s memory ({}), {} are {}; each rank needs most at {}; "
                  "the largest values there: {}",
                  display_name(most.run->input), command_.ranks, command_.ranks == 1 ? "" : "s",
                  command_.ranks == 1 ? "s" : "", format_bytes(memory.sum()), memory.of,
                  fmt::join(parts, ", "), format_bytes(memory.there.value_or(0)),
                  memory.is_allowed ? "allowed" : "free", describe_peak(most), fmt::join(live, ", ")),
      site, find_remedy(memory));
}

void Fit::require() const {
  for (const Memory& memory : memories_)
    if (!memory.fits()) refuse(memory);
}

std::string Fit::text() const {
  std::string text;
  for (const Memory& memory : memories_) {
    text += fmt::format("memory of the {:<7} {:>12}", memory.of, format_bytes(memory.sum()));
    if (memory.there)
      text += fmt::format(" of {} {}: it fits", format_bytes(*memory.there),
                          memory.is_allowed ? "allowed" : "free");
    else
      text += memory.of == "device" && command_.graphs[0].place.is_absent
                  ? "; no such device is here: --memory GIB says how much there is"
                  : ", of the host's";
    text += '\n';
    for (const Line& line : memory.lines)
      text += fmt::format("  {:<17} {:>12}\n", line.name, format_bytes(line.bytes));
  }
  double copied = 0, flops = 0, seconds = 0;
  std::size_t kernels = 0, measured = 0, assumed = 0;
  for (const GraphNeed& entry : needs_) {
    copied += entry.copied, flops += entry.flops, seconds += entry.seconds;
    kernels += entry.kernels, measured += entry.measured, assumed += entry.need.assumed;
  }
  text += fmt::format("copied between host and device {}\n", format_bytes(copied));
  text += fmt::format("flops               {:.3g}\n", flops);
  text += fmt::format(
      "time                about {}, {}\n", format_seconds(seconds),
      measured == 0 ? std::string("by assumed rates")
                    : fmt::format("{} of {} kernels and collectives by measured costs", measured, kernels));
  const GraphNeed& most = largest();
  text += fmt::format("a rank needs most at {}\n", describe_peak(most));
  for (const replay::LiveValue& value : most.need.largest)
    text += fmt::format("  {}\n", describe_live(most.run->graph, value));
  if (assumed != 0)
    text +=
        fmt::format("{} symbols without a number: rows that experts get are taken to be balanced\n", assumed);
  return text;
}

Json Fit::json() const {
  Json memory = Json::object(), graphs = Json::array();
  for (const Memory& one : memories_) {
    std::vector<std::pair<const char*, double>> lines;
    for (const Line& line : one.lines) lines.emplace_back(line.name, line.bytes);
    memory[one.of] = {{"bytes", static_cast<std::uint64_t>(one.sum())},
                      {"free", one.there ? Json(static_cast<std::uint64_t>(*one.there)) : Json()},
                      {"parts", describe_lines(lines)}};
  }
  for (const GraphNeed& entry : needs_) {
    Json largest = Json::array();
    for (const replay::LiveValue& value : entry.need.largest)
      largest.push_back({{"node", entry.run->graph.text(entry.run->graph.step().nodes[value.node].name)},
                         {"bytes", value.bytes}});
    Json peak = Json::object();
    if (entry.need.peak)
      add_site(peak, site_of(entry.run->graph, entry.run->graph.step().nodes[entry.need.peak]));
    graphs.push_back({{"file", entry.run->input.path},
                      {"runs", entry.run->runs},
                      {"runs_with_bounds", entry.run->bounded},
                      {"rank",
                       {{"inputs", entry.need.inputs},
                        {"outputs", entry.need.outputs},
                        {"values", entry.need.values},
                        {"scratch", entry.need.scratch},
                        {"rounding", entry.need.rounding}}},
                      {"peak", std::move(peak)},
                      {"largest", std::move(largest)},
                      {"copied_bytes", static_cast<std::uint64_t>(entry.copied)},
                      {"flops", entry.flops},
                      {"seconds", entry.seconds},
                      {"measured", entry.measured},
                      {"assumed_symbols", entry.need.assumed}});
  }
  return {{"fits", true},
          {"ranks", command_.ranks},
          {"processes", command_.processes},
          {"memory", std::move(memory)},
          {"graphs", std::move(graphs)}};
}

OpenedDevice open_for(const ReplayOptions& options,
                      const std::function<std::unique_ptr<replay::Device>()>& open) {
  try {
    return {open(), false};
  } catch (const PassError& error) {
    if (!options.dry_run || error.id() != "replay.no-device") throw;
    return {nullptr, true};
  }
}

std::uint32_t count_processes_here(const replay::nccl::Place& place) {
  for (const char* name : {"LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS"})
    if (const char* text = std::getenv(name))
      if (const int count = std::atoi(text); count > 0) return static_cast<std::uint32_t>(count);
  return place.ranks;
}

bool fit(const FitCommand& command, Console& console) {
  const Fit found(command);
  found.require();
  if (!command.options.dry_run) return false;
  console.print(console.json() ? report_text(found.json()) : found.text());
  return true;
}

}  // namespace epweave::cli
