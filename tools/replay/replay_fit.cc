#include "replay_fit.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <thread>

#include "common/command_files.h"
#include "replay/cublas/products.h"
#include "replay/kernels/device/value_log.h"
#include "replay/need/step_work.h"

namespace epweave::cli {
namespace {

using replay::NeedOf;
using replay::RankNeed;

// Assumed (docs/gpu.md).
constexpr double kContextBytes = 512.0 * (1 << 20), kNcclBytesOfGroup = 128.0 * (1 << 20);
constexpr double kHostLink = 20e9;  // bytes in a second between host and device
// Of what is in use, what lies between it and is too small (kernels/device/pool.h).
constexpr double kGaps = 1;
// The same of the host's blocks (values/block_cache.h) where ranks are in different runs.
constexpr double kHostGaps = 0.5;
constexpr double kLogged = 16;  // bytes of a value that is compared (run/rank_device.h)
constexpr double kProgramBytes = 16.0 * (1 << 20);
constexpr double kKept =
    4.0 * (1 << 30);  // CheckSetup::kept_bytes in host memory, and where nothing else is known
constexpr double kLeastKept = 1.0 * (1 << 30);  // of a device, however little is left

// Of a GPU: what an H200 did (docs/gpu.md), in round numbers; those of the network, and of
// attention on tensor cores, are assumed.
replay::Rates rates_of(const FitPlace& place, const FitCommand& command) {
  const double cores = std::max(1U, std::thread::hardware_concurrency());
  if (place.is_cpu()) return {100e9 * cores, 100e9 * cores, 100e9 * cores, 5e9 * cores, 5e9 * cores, 5e-6};
  if (place.is_emulated()) return {5e9, 5e9, 5e9, 1e9, 1e9, 20e-6};
  const double collectives = command.has_own_device ? 50e9 : 1e12;  // virtual ranks copy
  constexpr double kOwnKernels = 35e12;
  replay::Rates rates{kOwnKernels, kOwnKernels, kOwnKernels, 1.5e12, collectives, 5e-6};
  if (command.options.math == "native")
    rates.products = 400e12, rates.wide_products = 50e12, rates.attention = 100e12;
  return rates;
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

double number(std::uint64_t value) {
  return static_cast<double>(value);
}

}  // namespace

double Fit::Memory::sum() const {
  double bytes = 0;
  for (const Line& line : lines) bytes += line.bytes;
  return bytes;
}

double Fit::Memory::least() const {
  double bytes = 0;
  for (const Line& line : lines) bytes += line.least;
  return bytes;
}

Fit::Fit(const FitCommand& command) : command_(command) {
  find_needs();
  add_devices();
  add_host();
  if (command_.options.dry_run) count_lots();
}

void Fit::find_needs() {
  std::optional<MeasuredCosts> costs;
  const std::string& path = command_.options.costs_from;
  if (!path.empty()) costs = MeasuredCosts::parse(read_file_of("--costs-from", path), path);
  const double ranks = command_.ranks;
  for (const FitGraph& run : command_.graphs) {
    replay::NeedFinder finder(run.graph);
    GraphNeed& entry = needs_.emplace_back();
    entry.run = &run;
    const auto need_of = [&](const FitPlace& place) {
      return place.is_cpu() ? NeedOf::kHost : command_.has_own_device ? NeedOf::kOwnDevice : NeedOf::kDevice;
    };
    entry.need = finder.find(need_of(run.place));
    if (run.has_bounds) entry.bounded = finder.find(need_of(run.bounded_place), &run.followed);
    const replay::StepWork work =
        replay::find_step_work(run.graph, rates_of(run.place, command_), costs ? &*costs : nullptr);
    entry.longest = work.seconds * count_sharing(run.place);
    if (run.has_bounds)
      entry.longest = std::max(entry.longest, bounded_work(run).seconds * count_sharing(run.bounded_place));
    if (!command_.options.dry_run) continue;
    entry.flops = static_cast<double>(work.flops) * ranks * run.runs;
    entry.kernels = work.kernels;
    entry.measured = work.measured;
    entry.seconds = work.seconds * ranks * run.runs;
    if (!run.place.is_cpu()) {
      // check makes inputs for each run, and brings to the host, once, what differs. run places
      // once what no run writes, and brings back what the last one gave.
      const double again = number(command_.compares ? entry.need.inputs : entry.need.written);
      entry.copied = (number(entry.need.inputs + entry.need.outputs) + again * (run.runs - 1)) * ranks;
      entry.seconds += entry.copied / kHostLink;
      // Every value that is compared is hashed where it lies; a number for each goes to the host.
      if (command_.compares) {
        entry.copied += kLogged * number(run.graph.step().order.size()) * ranks;
        entry.seconds += number(entry.need.made) * ranks / rates_of(run.place, command_).bytes;
      }
    }
  }
}

// The runs with bounds: about once for each lot of A's values that may be kept at a time. Which
// values differ is not known, so they may be fewer; lots are filled in order and not to the brim,
// so they may be more.
void Fit::count_lots() {
  const double kept = command_.ranks * number(needs_[0].bounded.bounded);
  for (GraphNeed& entry : needs_) {
    if (!entry.run->has_bounds) continue;
    entry.bounded_runs = static_cast<std::uint32_t>(std::max(1.0, std::ceil(kept / kept_)));
    const replay::StepWork work = bounded_work(*entry.run);
    entry.flops += static_cast<double>(work.flops) * command_.ranks * entry.bounded_runs;
    entry.seconds += work.seconds * command_.ranks * entry.bounded_runs;
  }
}

// With bounds and in float64 everything is computed about three times.
replay::StepWork Fit::bounded_work(const FitGraph& run) const {
  constexpr double kBoundedWork = 3;
  replay::StepWork work = replay::find_step_work(run.graph, rates_of(run.bounded_place, command_), nullptr);
  work.seconds *= kBoundedWork;
  return work;
}

// Ranks that share what computes: those of all processes where the host's cores do.
double Fit::count_sharing(const FitPlace& place) const {
  return static_cast<double>(command_.ranks) *
         (place.is_cpu() || place.is_emulated() ? command_.processes : 1);
}

double Fit::deadline() const {
  constexpr double kLeast = 60, kMost = 1e9, kSlower = 10;  // the most that --deadline takes
  double longest = 0;
  for (const GraphNeed& entry : needs_) longest = std::max(longest, entry.longest);
  return std::clamp(std::ceil(kSlower * longest), kLeast, kMost);
}

const Fit::GraphNeed& Fit::largest() const {
  return *std::max_element(needs_.begin(), needs_.end(), [](const GraphNeed& a, const GraphNeed& b) {
    return a.need.inputs + a.need.at_peak() < b.need.inputs + b.need.at_peak();
  });
}

// That all ranks hold at a time.
double Fit::certain_values(const GraphNeed& entry) const {
  return number(command_.ranks > 1 ? entry.need.together : entry.need.values);
}

// A device, or one of A and one of B.
void Fit::add_devices() {
  std::vector<const FitPlace*> places;
  for (const GraphNeed& entry : needs_) {
    const FitPlace& place = entry.run->place;
    const bool is_known =
        std::ranges::any_of(places, [&](const FitPlace* other) { return other->name == place.name; });
    if (!place.is_cpu() && !is_known) places.push_back(&place);
  }
  for (const FitPlace* place : places) add_device(*place);
  if (places.size() < 2) return;
  memories_[0].name = "A's device";
  memories_[1].name = "B's device";
  memories_[1].of = "device_b";
}

// What it holds at a time: one graph runs after the other.
void Fit::add_device(const FitPlace& place) {
  const GraphNeed* most = nullptr;
  const auto bytes_of = [](const GraphNeed& entry) { return entry.most().inputs + entry.most().at_peak(); };
  double bounded = 0;  // of all values that have bounds
  for (const GraphNeed& entry : needs_) {
    if (entry.run->place.is_cpu() || entry.run->place.name != place.name) continue;
    if (most == nullptr || bytes_of(entry) > bytes_of(*most)) most = &entry;
    if (entry.is_bounded_there()) bounded = std::max(bounded, command_.ranks * number(entry.bounded.bounded));
  }
  const double ranks = command_.ranks;
  const replay::Device* device = place.device;
  const RankNeed& need = most->most();
  constexpr double kOfRank = 512;  // where kernels report what they refuse
  Memory memory{"device",
                "the device",
                {{"inputs", ranks * number(need.inputs), ranks * number(most->need.inputs)},
                 {"values", ranks * number(need.values), certain_values(*most)},
                 {"scratch", ranks * number(need.scratch)},
                 {"rounding", ranks * (number(need.rounding) + kOfRank)},
                 {"gaps", ranks * kGaps * number(need.at_peak())}},
                {},
                false};
  memory.is_absent = place.is_absent;
  memory.is_emulated = place.is_emulated();
  if (command_.compares) memory.lines.push_back({"log", ranks * number(replay::device::kLogBytes)});
  if (command_.options.math == "native")
    memory.lines.push_back({"workspace", ranks * static_cast<double>(replay::cublas::kWorkspaceBytes)});
  if (command_.has_own_device && !place.is_emulated())
    memory.lines.push_back({"nccl", kNcclBytesOfGroup * number(most->run->graph.groups.size() + 1)});
  // A context that is there is no longer among what is free.
  if (device == nullptr) memory.lines.push_back({"context", kContextBytes});
  if (device != nullptr && !place.is_emulated()) memory.there = number(device->free_bytes());
  if (command_.options.memory != 0) {
    memory.there = command_.options.memory * (1 << 30);
    memory.is_allowed = true;
  }
  if (bounded != 0) {
    kept_ = memory.there ? std::max(*memory.there - memory.sum(), kLeastKept) : kKept;
    memory.lines.push_back({"kept", std::min(kept_, bounded)});
  }
  memories_.push_back(std::move(memory));
}

// How often the outputs of a graph lie on the host. check keeps
// B's where they differ, and all where they are compared with a reference's.
double Fit::count_kept(const GraphNeed& entry) const {
  const bool is_b = needs_.size() > 1 && &entry == &needs_[1];
  return !command_.compares || needs_.size() > 2 || is_b ? 1 : 0;
}

// Memory of the host is compared with what is free, or with --memory where that is not a device's.
void Fit::add_host() {
  const double ranks = command_.ranks, processes = command_.processes;
  const GraphNeed* most = nullptr;  // the run that takes most beside what is kept
  bool repeats = false;
  double inputs = 0, copies = 0, values = 0, certain = 0, scratch = 0, rounding = 0, kept = 0, outputs = 0;
  for (const GraphNeed& entry : needs_) {
    inputs = std::max(inputs, number(entry.need.inputs));
    // check makes the inputs of each run anew; run starts again from the same ones, which a device
    // leaves as they are.
    if (!command_.compares && entry.run->place.is_cpu() && entry.run->runs > 1) {
      copies = number(entry.need.written);
      repeats = true;
    }
    const bool has_bounds = entry.run->has_bounds && entry.run->bounded_place.is_cpu();
    outputs += number(entry.need.outputs) * count_kept(entry);
    if (entry.run->place.is_cpu()) certain = std::max(certain, certain_values(entry));
    for (const RankNeed* need : {&entry.need, &entry.bounded}) {
      if (need == &entry.need ? !entry.run->place.is_cpu() : !has_bounds) continue;
      if (most != nullptr && number(need->at_peak()) <= values + scratch + rounding) continue;
      most = &entry;
      values = number(need->values), scratch = number(need->scratch), rounding = number(need->rounding);
    }
    if (has_bounds) kept = std::max(kept, std::min(kKept, ranks * number(entry.bounded.bounded)));
  }
  if (kept_ == 0) kept_ = kKept;
  Memory memory{"host", "the host", {{"inputs", ranks * inputs, ranks * inputs}}, {}, false};
  if (copies != 0) memory.lines.push_back({"copies", ranks * copies});
  memory.lines.push_back({"program", kProgramBytes});
  if (most != nullptr) {
    memory.lines.push_back({"values", ranks * values, certain});
    memory.lines.push_back({"scratch", ranks * scratch});
    memory.lines.push_back({"rounding", ranks * rounding});
    if (repeats) memory.lines.push_back({"gaps", ranks * kHostGaps * values});
  }
  if (command_.compares || most == nullptr) memory.lines.push_back({"outputs", ranks * outputs});
  if (kept != 0) memory.lines.push_back({"kept", kept});
  bool is_elsewhere = false;
  for (const GraphNeed& entry : needs_) is_elsewhere = is_elsewhere || entry.run->place.is_absent;
  for (const Memory& device : memories_)
    if (device.is_emulated) memory.lines.push_back({"device", device.sum(), device.least()});
  for (Line& line : memory.lines) line.bytes *= processes, line.least *= processes;
  if (command_.options.memory == 0) {
    if (!is_elsewhere) memory.there = find_host_memory();
  } else if (memories_.empty()) {
    memory.there = command_.options.memory * (1 << 30);
    memory.is_allowed = true;
  }
  memories_.push_back(std::move(memory));
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

Fitting fit(const FitCommand& command, Console& console) {
  const Fit found(command);
  found.require();
  if (command.require_inputs) command.require_inputs();
  if (command.options.dry_run)
    console.print(console.json() ? report_text(found.json()) : found.text());
  else
    found.warn(console);
  return {command.options.dry_run, static_cast<std::size_t>(found.kept_bytes()), found.deadline()};
}

void take_deadline(const Fitting& fitting, ReplayOptions& options) {
  if (options.deadline != 0) return;
  options.deadline = fitting.deadline;
  options.deadline_grows = true;
}

}  // namespace epweave::cli
