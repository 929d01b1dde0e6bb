#include <fmt/format.h>

#include <memory>

#include "analysis/world.h"
#include "commands.h"
#include "common/graphs.h"
#include "common/report.h"
#include "common/version.h"
#include "output_folder.h"
#include "output_names.h"
#include "pipeline/pipeline.h"
#include "pipeline/runner.h"

namespace epweave::cli {
namespace {

std::string extension_of(const OutputOptions& output) {
  if (output.to == "text") return ".txt";
  if (output.to == "json") return ".json";
  return output.to.starts_with("onnx") ? ".onnx" : ".epw";
}

class Specialize {
 public:
  Specialize(const SpecializeCommand& command, Console& console)
      : command_(command),
        console_(console),
        folder_(command.all ? std::make_unique<OutputFolder>(command.output.path,
                                                             "--all writes one file for each rank")
                            : nullptr),
        graph_(read_sound_input(command.input, nullptr, Soundness::kStructure)),
        sha256_(sha256_of_graph(graph_)) {}

  int run_one(std::int64_t rank) {
    const Graph made = specialize_to(rank);
    write_output(made, command_.output);
    report(rank, command_.output.path, made);
    return finish();
  }

  int run_all() {
    const std::uint32_t size = read_world(graph_).size;
    const std::string given = size > kRanksOfContext ? encode_binary(graph_) : std::string();
    for (std::uint32_t rank = 0; rank < size; ++rank) {
      if (rank > 0 && rank % kRanksOfContext == 0)
        graph_ = decode(given, Format::kBinary, command_.input.path);
      console_.progress(fmt::format("rank {} of {}", rank, size));
      const Graph made = specialize_to(rank);
      const std::string name = fmt::format("rank-{:05}{}", rank, extension_of(command_.output));
      OutputOptions output = command_.output;
      output.path = folder_->place(name);
      write_output(made, output);
      report(rank, command_.output.path + "/" + name, made);
    }
    folder_->commit();
    return finish();
  }

 private:
  // What ranks' graphs intern stays in their context. So that memory does not grow with the number
  // of ranks, the graph is read into a new one for each few.
  static constexpr std::uint32_t kRanksOfContext = 16;

  Graph specialize_to(std::int64_t rank) const {
    return run_pipeline(graph_, parse_pipeline(fmt::format("specialize{{rank={}}}", rank)),
                        {.tool = tool_name(), .input_sha256 = sha256_, .verify = VerifyPolicy::kOff});
  }

  void report(std::int64_t rank, const std::string& path, const Graph& made) {
    const std::vector<std::string>& notes = made.passes.back().notes;
    for (const std::string& note : notes) console_.detail(note);
    files_.push_back({{"rank", rank}, {"file", path}, {"nodes", made.step().order.size()}, {"notes", notes}});
  }

  int finish() {
    if (console_.json())
      console_.print(report_text({{"input", file_report(command_.input.path)},
                                  {"world_size", read_world(graph_).size},
                                  {"outputs", std::move(files_)}}));
    return kFine;
  }

  const SpecializeCommand& command_;
  Console& console_;
  std::unique_ptr<OutputFolder> folder_;  // of --all; made before the graph is read
  Graph graph_;
  std::string sha256_;
  Json files_ = Json::array();
};

}  // namespace

int specialize(const SpecializeCommand& command, Console& console) {
  if (command.rank.has_value() == command.all)
    throw UsageError("give one of --rank R (one rank's graph to -o OUT) and --all (every rank's to -o DIR)");
  require_plain_name(command.output.path);
  if (command.all && command.output.path == "-") throw UsageError("--all writes to a folder: give -o DIR");
  if (console.json() && command.output.path == "-")
    throw UsageError("--json and the graph cannot both go to standard output: give -o FILE");
  if (!command.all) check_output(command.output);
  Specialize run(command, console);
  return command.all ? run.run_all() : run.run_one(*command.rank);
}

}  // namespace epweave::cli
