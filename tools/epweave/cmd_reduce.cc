// Shrinks a graph while a command exits 0. The command runs in a process group of its own, so that an
// interrupt ends the reduction and not the file it works on.
#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "commands.h"
#include "common/graphs.h"
#include "common/report.h"
#include "reduce/reduce.h"

extern char** environ;

namespace epweave::cli {
namespace {

constexpr std::string_view kMark = "reduced_from";

volatile sig_atomic_t is_interrupted = 0;
void interrupt(int) {
  is_interrupted = 1;
}

// A folder that goes away with its one file.
class Scratch {
 public:
  explicit Scratch(const std::string& output) {
    const char* root = std::getenv("TMPDIR");
    folder_ = fmt::format("{}/epweave-reduce-XXXXXX", root != nullptr && *root != '\0' ? root : "/tmp");
    if (::mkdtemp(folder_.data()) == nullptr)
      throw InputError(fmt::format("{}: cannot create the folder: {}", folder_, std::strerror(errno)));
    // The form that the result will have.
    const std::size_t slash = output.rfind('/');
    const std::size_t dot = output.find('.', slash == output.npos ? 0 : slash);
    file_ = fmt::format("{}/candidate{}", folder_, dot == output.npos ? ".epw" : output.substr(dot));
  }
  ~Scratch() {
    ::unlink(file_.c_str());
    ::rmdir(folder_.c_str());
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  const std::string& file() const { return file_; }

 private:
  std::string folder_, file_;
};

class Command {
 public:
  Command(const ReduceOptions& options, std::string file, bool is_verbose)
      : timeout_(options.timeout), is_verbose_(is_verbose) {
    bool has_place = false;
    for (std::string word : options.command) {
      for (std::size_t at = word.find("{}"); at != word.npos; at = word.find("{}", at + file.size())) {
        word.replace(at, 2, file);
        has_place = true;
      }
      words_.push_back(std::move(word));
    }
    if (!has_place) words_.push_back(std::move(file));
  }

  // The exit status; -1 if it ended otherwise or ran too long.
  int run() const {
    std::vector<char*> arguments;
    for (const std::string& word : words_) arguments.push_back(const_cast<char*>(word.c_str()));
    arguments.push_back(nullptr);
    posix_spawnattr_t attributes;
    posix_spawn_file_actions_t actions;
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    for (int stream : {STDOUT_FILENO, STDERR_FILENO})
      if (!is_verbose_) posix_spawn_file_actions_addopen(&actions, stream, "/dev/null", O_WRONLY, 0);
    if (is_verbose_) posix_spawn_file_actions_adddup2(&actions, STDERR_FILENO, STDOUT_FILENO);
    pid_t child = 0;
    const int trouble =
        ::posix_spawnp(&child, arguments[0], &actions, &attributes, arguments.data(), environ);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    if (trouble != 0) throw UsageError(fmt::format("cannot run {}: {}", words_[0], std::strerror(trouble)));
    return wait_for(child);
  }

 private:
  int wait_for(pid_t child) const {
    const auto start = std::chrono::steady_clock::now();
    auto pause = std::chrono::microseconds(200);
    int status = 0;
    while (::waitpid(child, &status, WNOHANG) == 0) {
      const bool is_late =
          timeout_ > 0 && std::chrono::steady_clock::now() - start > std::chrono::duration<double>(timeout_);
      if (is_interrupted != 0 || is_late) {
        ::kill(-child, SIGKILL);
        ::waitpid(child, &status, 0);
        return -1;
      }
      std::this_thread::sleep_for(pause);
      pause = std::min(pause * 2, std::chrono::microseconds(20000));
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

  std::vector<std::string> words_;
  double timeout_;
  bool is_verbose_;
};

// The content of which graph this one was reduced from, as its info says.
std::string mark_of(const Graph& graph) {
  if (!graph.info.is(ArgKind::kDict)) return "";
  const auto items = graph.context->args.children(graph.info);
  for (std::size_t i = 0; i + 1 < items.size(); i += 2)
    if (items[i].is(ArgKind::kText) && items[i + 1].is(ArgKind::kText) &&
        graph.text(items[i].as_name()) == kMark)
      return std::string(graph.text(items[i + 1].as_name()));
  return "";
}

Graph marked(Graph graph, const std::string& sha256) {
  std::vector<Arg> items;
  if (graph.info.is(ArgKind::kDict)) {
    const auto known = graph.context->args.children(graph.info);
    items.assign(known.begin(), known.end());
  }
  for (std::size_t i = 0; i + 1 < items.size(); i += 2)
    if (items[i] == Arg::text(graph.intern(kMark)))
      items.erase(items.begin() + static_cast<long>(i), items.begin() + static_cast<long>(i) + 2);
  items.push_back(Arg::text(graph.intern(kMark)));
  items.push_back(Arg::text(graph.intern(sha256)));
  graph.info = graph.context->args.add_tree(ArgKind::kDict, items);
  return graph;
}

class Reduce {
 public:
  Reduce(const ReduceOptions& options, Console& console)
      : options_(options),
        console_(console),
        scratch_(options.output.path),
        command_(options, scratch_.file(), console.verbose()) {}

  int run() {
    Graph input = read_sound_input(options_.input, nullptr, Soundness::kStructure);
    nodes_before_ = input.step().order.size();
    sha256_ = sha256_hex(encode_binary(input));
    const Graph start = find_start(std::move(input));
    nodes_ = start.step().order.size();
    struct sigaction action {};
    action.sa_handler = interrupt;
    for (int signal : {SIGINT, SIGTERM, SIGHUP}) ::sigaction(signal, &action, nullptr);
    const Reduction reduction =
        reduce_graph(start, {.holds = [&](const Graph& graph) { return holds(graph); },
                             .on_smaller = [&](const Graph& graph) { keep(graph); },
                             .is_stopped = [] { return is_interrupted != 0; }});
    if (!file_exists(options_.output.path)) keep(reduction.graph);
    report(reduction);
    return reduction.is_finished ? kFine : kInterrupted;
  }

 private:
  // What an earlier run left in the output, if it is a reduction of this input that still holds.
  Graph find_start(Graph input) {
    const std::string& path = options_.output.path;
    if (file_exists(path)) {
      Graph earlier =
          read_sound_input({.path = path, .from = options_.output.to}, nullptr, Soundness::kStructure);
      if (mark_of(earlier) != sha256_)
        throw UsageError(fmt::format("{} exists and is no reduction of {}: remove it, or give another -o",
                                     path, display_name(options_.input)));
      if (holds(earlier)) {
        console_.info(fmt::format("{}: going on from {} nodes", path, earlier.step().order.size()));
        return earlier;
      }
      console_.warn(fmt::format("{}: the command fails on it; starting anew", path));
    }
    if (!holds(input))
      throw UsageError(
          fmt::format("the command does not exit 0 on {}: nothing to keep while it shrinks (-v shows "
                      "what it says)",
                      display_name(options_.input)));
    return input;
  }

  bool holds(const Graph& graph) {
    write_graph(marked(graph, sha256_), scratch_.file(), format_named(options_.output.to));
    ++runs_;
    console_.progress(fmt::format("{} -> {} nodes, run {}", nodes_before_, nodes_, runs_));
    return command_.run() == 0;
  }

  void keep(const Graph& graph) {
    write_output(marked(graph, sha256_), options_.output);
    nodes_ = graph.step().order.size();
    console_.detail(fmt::format("run {}: {} nodes", runs_, nodes_));
  }

  void report(const Reduction& reduction) {
    const std::size_t nodes = reduction.graph.step().order.size();
    if (console_.json())
      console_.print(report_text({{"input", file_report(options_.input.path)},
                                  {"output", file_report(options_.output.path)},
                                  {"nodes_before", nodes_before_},
                                  {"nodes_after", nodes},
                                  {"runs", runs_},
                                  {"finished", reduction.is_finished}}));
    console_.info(fmt::format("{}: {} -> {} nodes in {} runs{}", options_.output.path, nodes_before_, nodes,
                              runs_, reduction.is_finished ? "" : "; interrupted, the same command goes on"));
  }

  const ReduceOptions& options_;
  Console& console_;
  Scratch scratch_;
  Command command_;
  std::string sha256_;  // of the input
  std::size_t nodes_before_ = 0, nodes_ = 0, runs_ = 0;
};

}  // namespace

int reduce(const ReduceOptions& options, Console& console) {
  if (options.output.path == "-") throw UsageError("give a file to write: -o OUT");
  if (options.command.empty())
    throw UsageError("give the command behind --: epweave reduce IN -o OUT -- CMD {}");
  if (options.input.path != "-" && is_same_file(options.input.path, options.output.path))
    throw UsageError("the output is the input: reduce never changes its input");
  return Reduce(options, console).run();
}

}  // namespace epweave::cli
