#include "replay_commands.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "graphs.h"
#include "replay/check.h"
#include "replay/cpu/kernels.h"
#include "replay/inputs.h"
#include "replay/steps.h"
#include "replay_setup.h"

namespace epweave::cli {
namespace {

using replay::NamedTensor;
using replay::Rank;

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

// Members of each group, as seen by each rank; null where they could not be derived.
Json describe_groups(const replay::World& world) {
  Json groups = Json::object();
  for (const auto& [name, members] : world.groups)
    groups[name] = members.of_rank.empty() ? Json() : Json(members.of_rank);
  return groups;
}

struct OpTimes {
  std::string target;
  replay::OpTime time;  // of all ranks together
};

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

}  // namespace

int replay_run(const RunCommandOptions& options, Console& console) {
  const Graph graph = read_sound_input(options.input);
  const replay::KernelTable kernels = replay::make_cpu_kernels();
  const std::unique_ptr<replay::Device> device = open_device(options.replay.device);
  require_runnable({graph, options.input, options.replay, device.get()}, kernels);
  const replay::World world = replay::derive_world(graph, options.replay.ranks);
  const InputSource source(options.replay);
  source.files.require_all_used({{graph, world.size}});
  const auto inputs = replay::make_inputs(graph, world, kernels, source.data);
  if (!options.save_inputs.empty()) save_inputs(graph, inputs, options.save_inputs);
  replay::RunOptions run_options = make_options(options.replay);
  run_options.device = device.get();
  if (device != nullptr) console.detail("device: " + device->describe());
  const replay::RunResult run = replay::run_ranks(graph, world, kernels, inputs, run_options);
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
                             {"device", device == nullptr ? "cpu" : device->describe()},
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
