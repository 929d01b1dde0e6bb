#include "replay_commands.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <fstream>

#include "graphs.h"
#include "replay/check.h"
#include "replay/cpu/kernels.h"
#include "replay/inputs.h"
#include "replay/memory_need.h"
#include "replay/steps.h"
#include "report.h"

namespace epweave::cli {
namespace {

using replay::NamedTensor;
using replay::Rank;

replay::RunOptions make_options(const ReplayOptions& options) {
  replay::RunOptions result;
  result.deadline = std::chrono::milliseconds(static_cast<std::int64_t>(options.deadline * 1000));
  if (options.poison) result.fill = replay::HostMemory::Fill::kPoison;
  result.jitter = options.jitter;
  if (options.report_types) result.types = replay::RecordedTypes::kReport;
  return result;
}

// Recorded types that values contradicted, of all ranks; says the first on standard error.
std::uint64_t report_contradictions(const replay::RunResult& run, std::string_view graph, Console& console) {
  std::uint64_t count = 0;
  std::string first;
  for (const replay::RankResult& rank : run.ranks) {
    count += rank.contradictions;
    if (first.empty()) first = rank.first_contradiction;
  }
  if (count != 0)
    console.warn(fmt::format("{}: {} values are not what is recorded; first: {}", graph, count, first));
  return count;
}

// A missing kernel is known before anything is allocated.
void require_kernels(const Graph& graph, const replay::KernelTable& kernels, const InputOptions& input) {
  const auto missing = replay::find_missing_kernels(graph, kernels);
  if (missing.empty()) return;
  throw PassError("replay.no-kernel",
                  fmt::format("{}: {} of the graph's ops cannot be executed: {}", display_name(input),
                              missing.size(), fmt::join(missing, ", ")),
                  Site{}, "add a row for each to the kernel table (src/replay/cpu/)");
}

// What inputs are made of, with the files that it refers to.
struct InputSource {
  replay::InputFiles files;
  replay::Recipe recipe;
  replay::InputData data;

  explicit InputSource(const ReplayOptions& options)
      : recipe(options.recipe.empty() ? replay::torchtitan_recipe()
                                      : replay::parse_recipe(read_bytes(options.recipe), options.recipe)),
        data(options.seed, options.data == "integer" ? replay::DataKind::kInteger : replay::DataKind::kReal) {
    for (const std::string& path : options.inputs) files.add(path);
    data.recipe = &recipe;
    data.files = &files;
  }
  InputSource(const InputSource&) = delete;
  InputSource& operator=(const InputSource&) = delete;
};

// `rank0/NAME` for each tensor that a rank takes.
void save_inputs(const Graph& graph, const std::vector<replay::RankInputs>& inputs, const std::string& path) {
  const std::vector<replay::InputName> names = replay::list_input_names(graph);
  std::vector<replay::TensorToStore> tensors;
  for (std::size_t rank = 0; rank < inputs.size(); ++rank)
    for (std::size_t i = 0; i < names.size(); ++i)
      if (inputs[rank][i].is_tensor())
        tensors.push_back({fmt::format("rank{}/{}", rank, names[i].name), inputs[rank][i].tensor()});
  write_pieces(path, [&](const GiveBytes& give) { replay::encode_safetensors(std::move(tensors), give); });
}

// `rank0/loss`, `rank0/grad/NAME`; a name that a rank has twice is numbered: `rank0/output/1#2`.
void save_outputs(const std::vector<std::vector<NamedTensor>>& results, const std::string& path) {
  std::vector<replay::TensorToStore> tensors;
  for (std::size_t rank = 0; rank < results.size(); ++rank) {
    std::map<std::string, int> uses;
    for (const NamedTensor& result : results[rank]) {
      std::string name = fmt::format("rank{}/{}", rank, result.name);
      std::replace(name.begin(), name.end(), ' ', '/');
      if (const int use = ++uses[name]; use > 1) name += fmt::format("#{}", use);
      tensors.push_back({std::move(name), result.tensor});
    }
  }
  write_pieces(path, [&](const GiveBytes& give) { replay::encode_safetensors(std::move(tensors), give); });
}

// Bytes of memory of this machine, or that the container allows.
double find_memory() {
  double bytes = static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGE_SIZE));
  double allowed = 0;
  if (std::ifstream limit("/sys/fs/cgroup/memory.max"); limit >> allowed) bytes = std::min(bytes, allowed);
  return bytes;
}

// What a run needs is known before anything is allocated.
void require_memory(const Graph& graph, const InputOptions& input, const ReplayOptions& options) {
  constexpr double kGib = 1073741824;
  const replay::MemoryNeed need = replay::find_memory_need(graph);
  const replay::Rank ranks = replay::derive_world(graph, options.ranks).size;
  const double needed = static_cast<double>(need.bytes()) * ranks;
  const double limit = options.memory != 0 ? options.memory * kGib : find_memory();
  if (needed <= limit) return;
  throw PassError(
      "replay.memory",
      fmt::format("{}: {} ranks need {:.0f} bytes ({:.1f} GiB): each {} bytes of inputs and at most {} "
                  "bytes of values at a time; {:.1f} GiB are allowed",
                  display_name(input), ranks, needed, needed / kGib, need.inputs, need.values, limit / kGib),
      Site{}, "use a smaller configuration of the model, or allow more with --memory");
}

Json number_or_text(double number) {
  if (std::isfinite(number)) return number;
  return fmt::format("{}", number);  // JSON has no inf and NaN
}

struct OpTimes {
  std::string target;
  replay::OpTime time;  // of all ranks together
};

// Members of each group, as seen by each rank; null where they could not be derived.
Json describe_groups(const replay::World& world) {
  Json groups = Json::object();
  for (const auto& [name, members] : world.groups)
    groups[name] = members.of_rank.empty() ? Json() : Json(members.of_rank);
  return groups;
}

std::vector<OpTimes> sum_times(const replay::RunResult& run) {
  std::map<std::string, replay::OpTime> sums;
  for (const replay::RankResult& rank : run.ranks) {
    for (const auto& [target, time] : rank.times) {
      sums[target].seconds += time.seconds;
      sums[target].calls += time.calls;
    }
  }
  std::vector<OpTimes> times;
  for (const auto& [target, time] : sums) times.push_back({target, time});
  std::stable_sort(times.begin(), times.end(),
                   [](const OpTimes& a, const OpTimes& b) { return a.time.seconds > b.time.seconds; });
  return times;
}

bool is_loss(const NamedTensor& result) {
  return result.name == "loss" && result.tensor.numel() == 1;
}

Json describe_result(const NamedTensor& result) {
  Json entry = {{"name", result.name},
                {"dtype", info(result.tensor.dtype).short_name},
                {"sizes", result.tensor.sizes},
                {"hash", fmt::format("{:016x}", replay::hash_tensor(result.tensor))}};
  const auto norm = replay::find_norm(result.tensor);
  entry["norm"] = norm ? number_or_text(*norm) : Json();
  return entry;
}

// What a rank computed, for people: its loss, and gradients and buffers together.
std::string summarise(Rank rank, const std::vector<NamedTensor>& results) {
  std::string text = fmt::format("rank {}:", rank);
  double squares = 0;
  std::size_t gradients = 0, buffers = 0, others = 0;
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const NamedTensor& result : results) {
    hash = (hash ^ replay::hash_tensor(result.tensor)) * 0x100000001b3;
    if (is_loss(result)) {
      const double sign = *replay::find_norm(result.tensor);  // a loss is not negative
      text += fmt::format(" loss {:.9g},", sign);
    } else if (result.name.starts_with("grad")) {
      ++gradients;
      const double norm = replay::find_norm(result.tensor).value_or(0);
      squares += norm * norm;
    } else {
      ++(result.name.starts_with("buffer") ? buffers : others);
    }
  }
  if (gradients != 0) text += fmt::format(" {} gradients of norm {:.9g},", gradients, std::sqrt(squares));
  if (buffers != 0) text += fmt::format(" {} buffers,", buffers);
  if (others != 0) text += fmt::format(" {} outputs,", others);
  return text + fmt::format(" hash {:016x}\n", hash);
}

Json describe_difference(const replay::TensorDifference& difference) {
  if (!difference.problem.empty()) return {{"problem", difference.problem}};
  return {{"differing", difference.differing},
          {"index", difference.index},
          {"bits", {difference.bits_a, difference.bits_b}},
          {"ulp", difference.ulp ? Json(*difference.ulp) : Json()},
          {"relative_error", number_or_text(difference.relative_error)}};
}

Json describe_rank(const replay::RankCheck& rank) {
  Json nodes = Json::object();
  for (std::size_t i = 0; i < replay::kVerdicts; ++i)
    nodes[std::string(replay::name_of(static_cast<replay::Verdict>(i)))] = rank.nodes[i];
  return {{"nodes", std::move(nodes)}, {"unverified", rank.unverified}, {"skipped", rank.skipped}};
}

Json describe_check(const replay::CheckReport& report, const Graph& b) {
  Json outputs = Json::array(), ranks = Json::array();
  for (const replay::OutputCheck& output : report.outputs) {
    if (output.verdict == replay::Verdict::kEqual) continue;
    Json entry = describe_difference(output.difference);
    entry["rank"] = output.rank;
    entry["name"] = output.name;
    entry["verdict"] = replay::name_of(output.verdict);
    if (output.bound) entry["share_of_bound"] = number_or_text(output.bound->largest_share);
    outputs.push_back(std::move(entry));
  }
  for (const replay::RankCheck& rank : report.ranks) ranks.push_back(describe_rank(rank));
  Json result = {{"verdict", name_of(report.conclusion())},
                 {"same", report.is_same()},
                 {"baseline_is_deterministic", report.baseline_is_deterministic},
                 {"outputs", report.outputs.size()},
                 {"outputs_not_equal", std::move(outputs)},
                 {"largest_share_of_bound", number_or_text(report.largest_share)},
                 {"ops_without_bound", report.ops_without_bound},
                 {"ranks", std::move(ranks)},
                 {"first_divergence", nullptr},
                 {"seconds", {report.run_a.seconds, report.run_b.seconds}}};
  if (report.reference) {
    const replay::ReferenceCheck& found = *report.reference;
    result["reference"] = {{"outputs", found.outputs},
                           {"equal_to_a", found.equal_to_a},
                           {"equal_to_b", found.equal_to_b},
                           {"largest_relative_error", number_or_text(found.largest_error)},
                           {"largest_relative_error_of_b", number_or_text(found.largest_error_of_b)},
                           {"first_unlike_b", text_or_null(found.first_unlike_b)}};
  }
  if (report.first) {
    Json first = {
        {"rank", report.first->rank}, {"origin", report.first->origin}, {"reason", report.first->reason}};
    if (report.first->difference) first["difference"] = describe_difference(*report.first->difference);
    add_site(first, site_of(b, b.step().nodes[report.first->node]));
    result["first_divergence"] = std::move(first);
  }
  return result;
}

std::string list_verdicts(const std::array<std::uint64_t, replay::kVerdicts>& counts) {
  std::string line;
  for (std::size_t i = 0; i < replay::kVerdicts; ++i)
    line += fmt::format("{}{} {}", i == 0 ? "" : ", ", counts[i],
                        replay::name_of(static_cast<replay::Verdict>(i)));
  return line;
}

std::string list_reasons(std::string_view what, const std::map<std::string, std::uint64_t>& reasons) {
  std::string text;
  for (const auto& [reason, count] : reasons) text += fmt::format("    {} {}: {}\n", count, what, reason);
  return text;
}

// The ranks' nodes: one entry for ranks with the same counts.
std::string summarise_nodes(const std::vector<replay::RankCheck>& ranks) {
  std::string text;
  for (std::size_t first = 0; first < ranks.size();) {
    const replay::RankCheck& rank = ranks[first];
    std::size_t next = first + 1;
    while (next < ranks.size() && ranks[next].nodes == rank.nodes && ranks[next].skipped == rank.skipped &&
           ranks[next].unverified == rank.unverified)
      ++next;
    std::uint64_t skipped = 0;
    for (const auto& [reason, count] : rank.skipped) skipped += count;
    text += fmt::format("nodes of rank {}: {}; {} skipped\n",
                        next == first + 1 ? fmt::format("{}", first) : fmt::format("{}-{}", first, next - 1),
                        list_verdicts(rank.nodes), skipped);
    text += list_reasons("unverified", rank.unverified) + list_reasons("skipped", rank.skipped);
    first = next;
  }
  return text;
}

std::string describe_first(const replay::NodeCheck& first, const Graph& b) {
  const Site site = site_of(b, b.step().nodes[first.node]);
  std::string text =
      fmt::format("first node that differs: rank {}: %{} = {} for %{}{}{}: {}\n", first.rank, site.node,
                  site.op, first.origin, site.module.empty() ? "" : " in " + site.module,
                  site.source.empty() ? "" : " (" + site.source + ")", first.reason);
  if (first.difference) text += fmt::format("  {}\n", replay::describe(*first.difference));
  return text;
}

std::string summarise_check(const replay::CheckReport& report, const Graph& b) {
  std::string text;
  std::array<std::uint64_t, replay::kVerdicts> counts{};
  for (const replay::OutputCheck& output : report.outputs) {
    ++counts[static_cast<std::size_t>(output.verdict)];
    if (output.verdict == replay::Verdict::kEqual || output.verdict == replay::Verdict::kSumOrder) continue;
    text += fmt::format("rank {}: {} {}: {}{}\n", output.rank, output.name, replay::name_of(output.verdict),
                        replay::describe(output.difference),
                        output.bound ? "; " + replay::describe(*output.bound) : "");
  }
  if (report.first) text += describe_first(*report.first, b);
  if (!report.baseline_is_deterministic)
    text += "A is not deterministic: it gave other bits the second time\n";
  text += fmt::format("outputs: {}\n", list_verdicts(counts));
  if (counts[static_cast<std::size_t>(replay::Verdict::kSumOrder)] != 0)
    text +=
        fmt::format("sum-order outputs: at most {:.3g} of what their summands allow\n", report.largest_share);
  if (!report.ops_without_bound.empty())
    text += fmt::format("ops without a bound for regrouped sums: {}\n",
                        fmt::join(report.ops_without_bound, ", "));
  text += summarise_nodes(report.ranks);
  if (report.reference) {
    const replay::ReferenceCheck& found = *report.reference;
    text += fmt::format(
        "reference: {} of {} outputs equal to A's, {} to B's; largest relative error to A: its {:.3g}, B's "
        "{:.3g}\n",
        found.equal_to_a, found.outputs, found.equal_to_b, found.largest_error, found.largest_error_of_b);
    if (!found.first_unlike_b.empty()) text += fmt::format("  unlike B: {}\n", found.first_unlike_b);
  }
  return text + fmt::format("{}\n", name_of(report.conclusion()));
}

}  // namespace

int replay_run(const RunCommandOptions& options, Console& console) {
  const Graph graph = read_sound_input(options.input);
  const replay::KernelTable kernels = replay::make_cpu_kernels();
  require_kernels(graph, kernels, options.input);
  require_memory(graph, options.input, options.replay);
  const replay::World world = replay::derive_world(graph, options.replay.ranks);
  const InputSource source(options.replay);
  source.files.require_all_used({{graph, world.size}});
  const auto inputs = replay::make_inputs(graph, world, kernels, source.data);
  if (!options.save_inputs.empty()) save_inputs(graph, inputs, options.save_inputs);
  const replay::RunResult run =
      replay::run_ranks(graph, world, kernels, inputs, make_options(options.replay));
  std::string text;
  Json ranks = Json::array();
  bool is_finite = true;
  std::vector<std::vector<NamedTensor>> of_ranks;
  for (Rank rank = 0; rank < world.size; ++rank) {
    const auto& results = of_ranks.emplace_back(replay::list_results(graph, run.ranks[rank], inputs[rank]));
    text += summarise(rank, results);
    Json entries = Json::array();
    for (const NamedTensor& result : results) {
      if (is_loss(result)) is_finite = is_finite && replay::has_only_finite(result.tensor);
      entries.push_back(describe_result(result));
    }
    ranks.push_back({{"rank", rank}, {"results", std::move(entries)}});
  }
  if (!options.outputs.empty()) save_outputs(of_ranks, options.outputs);
  const auto times = sum_times(run);
  for (const OpTimes& op : times)
    console.detail(fmt::format("{:9.3f} s {:6} {}", op.time.seconds, op.time.calls, op.target));
  if (!is_finite) console.warn("the loss is not finite");
  const std::uint64_t contradictions = report_contradictions(run, display_name(options.input), console);
  const auto expected = replay::find_expected_loss(graph, world);
  console.info(fmt::format("{} ranks, {:.2f} s, {:.1f} MiB at most", world.size, run.seconds,
                           static_cast<double>(run.peak_bytes) / 1048576));
  if (!console.json()) return console.print(text), kFine;
  Json ops = Json::array();
  for (const OpTimes& op : times)
    ops.push_back({{"target", op.target}, {"calls", op.time.calls}, {"seconds", op.time.seconds}});
  console.print(report_text({{"seed", options.replay.seed},
                             {"ranks", std::move(ranks)},
                             {"groups", describe_groups(world)},
                             {"loss_is_finite", is_finite},
                             {"expected_loss", expected ? Json(*expected) : Json()},
                             {"contradicted_types", contradictions},
                             {"seconds", run.seconds},
                             {"peak_bytes", run.peak_bytes},
                             {"ops", std::move(ops)}}));
  return kFine;
}

int replay_check(const CheckCommandOptions& options, Console& console) {
  const Graph a = read_sound_input(options.a), b = read_sound_input(options.b);
  std::optional<Graph> reference;
  if (!options.reference.path.empty()) reference = read_sound_input(options.reference);
  const replay::KernelTable kernels = replay::make_cpu_kernels();
  const auto require_runnable = [&](const Graph& graph, const InputOptions& input) {
    require_kernels(graph, kernels, input);
    require_memory(graph, input, options.replay);
  };
  require_runnable(a, options.a);
  require_runnable(b, options.b);
  if (reference) require_runnable(*reference, options.reference);
  const InputSource source(options.replay);
  const auto ranks_of = [&](const Graph& graph) {
    return replay::derive_world(graph, options.replay.ranks).size;
  };
  source.files.require_all_used({{a, ranks_of(a)}, {b, ranks_of(b)}});
  const replay::CheckReport report =
      replay::check_graphs(a, b,
                           {kernels, options.replay.ranks, source.data, make_options(options.replay),
                            reference ? &*reference : nullptr});
  report_contradictions(report.run_a, display_name(options.a), console);
  report_contradictions(report.run_b, display_name(options.b), console);
  for (const replay::OutputCheck& output : report.outputs)
    if (output.verdict == replay::Verdict::kSumOrder)
      console.detail(fmt::format("rank {}: {}: {}; {}", output.rank, output.name,
                                 replay::describe(output.difference), replay::describe(*output.bound)));
  console.print(console.json() ? report_text(describe_check(report, b)) : summarise_check(report, b));
  return report.is_same() ? kFine : kDifferent;
}

int replay_steps(const InputOptions& options, Console& console) {
  const Graph graph = read_sound_input(options);
  const replay::Steps steps = replay::plan_steps(graph, graph.step());
  if (!console.json()) return console.print(replay::print_steps(graph, graph.step(), steps)), kFine;
  console.print(
      report_text({{"streams", steps.streams}, {"events", steps.events}, {"steps", steps.list.size()}}));
  return kFine;
}

int replay_recipe(Console& console) {
  return console.print(replay::torchtitan_recipe_text()), kFine;
}

}  // namespace epweave::cli
