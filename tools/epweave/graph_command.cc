#include "graph_command.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <thread>

#include "io/file.h"

extern char** environ;

namespace epweave::cli {
namespace {

using std::chrono::steady_clock;

volatile sig_atomic_t interrupts = 0;
void remember_interrupt(int) {
  interrupts = 1;
}

// Processes that end with the object, if not before.
class Children {
 public:
  explicit Children(double timeout) : timeout_(timeout) {}
  ~Children() { end_from(0); }
  Children(const Children&) = delete;
  Children& operator=(const Children&) = delete;

  void add(pid_t process) { children_.push_back({.process = process, .start = steady_clock::now()}); }
  std::size_t size() const { return children_.size(); }
  bool runs(std::size_t i) const { return children_[i].is_running; }
  int status(std::size_t i) const { return children_[i].status; }

  // Looks which have ended, and ends those that are late; all of them where the user interrupts.
  void look() {
    for (Child& child : children_) {
      if (!child.is_running) continue;
      int status = 0;
      if (const pid_t ended = ::waitpid(child.process, &status, WNOHANG); ended != 0) {
        child.is_running = false;
        child.status = ended > 0 && WIFEXITED(status) ? WEXITSTATUS(status) : kNoExit;
      } else if (is_interrupted() || is_late(child)) {
        end(child);
      }
    }
  }

  void end_from(std::size_t first) {
    for (std::size_t i = first; i < children_.size(); ++i)
      if (children_[i].is_running) end(children_[i]);
  }

 private:
  struct Child {
    pid_t process = 0;
    steady_clock::time_point start;
    bool is_running = true;
    int status = kNoExit;
  };

  bool is_late(const Child& child) const {
    return timeout_ > 0 && steady_clock::now() - child.start > std::chrono::duration<double>(timeout_);
  }
  static void end(Child& child) {
    int status = 0;
    ::kill(-child.process, SIGKILL);
    ::waitpid(child.process, &status, 0);
    child.is_running = false;
    child.status = kNoExit;
  }

  double timeout_;
  std::vector<Child> children_;
};

// Looks until `is_done`, ever more seldom.
template <class IsDone>
void wait_until(Children& children, const IsDone& is_done) {
  auto pause = std::chrono::microseconds(200);
  for (children.look(); !is_done(); children.look()) {
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, std::chrono::microseconds(20000));
  }
}

}  // namespace

void catch_interrupts() {
  struct sigaction action {};
  action.sa_handler = remember_interrupt;
  for (int signal : {SIGINT, SIGTERM, SIGHUP}) ::sigaction(signal, &action, nullptr);
}

bool is_interrupted() {
  return interrupts != 0;
}

std::string extension_of_path(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  const std::size_t dot = path.find('.', slash == path.npos ? 0 : slash);
  return dot == path.npos ? ".epw" : path.substr(dot);
}

GraphCommand::GraphCommand(GraphCommandOptions options) : options_(std::move(options)) {
  ::signal(SIGCHLD, SIG_DFL);  // a parent may have it ignored, and then no exit status comes
  const char* root = std::getenv("TMPDIR");
  folder_ = fmt::format("{}/epweave-XXXXXX", root != nullptr && *root != '\0' ? root : "/tmp");
  if (::mkdtemp(folder_.data()) == nullptr)
    throw InputError(fmt::format("{}: cannot create the folder: {}", folder_, std::strerror(errno)));
  std::error_code error;
  for (std::size_t lane = 0; lane < options_.lanes && !error; ++lane)
    std::filesystem::create_directory(fmt::format("{}/{}", folder_, lane), error);
  if (!error) return;
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
  throw InputError(fmt::format("{}: cannot create a folder in it: {}", folder_, error.message()));
}

GraphCommand::~GraphCommand() {
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

std::string GraphCommand::file(std::size_t lane) const {
  return fmt::format("{}/{}/candidate{}", folder_, lane, options_.extension);
}

void GraphCommand::put(std::size_t lane, const Graph& graph) const {
  write_graph(graph, file(lane), options_.format);
}

std::vector<std::string> GraphCommand::words_on(const std::string& file) const {
  std::vector<std::string> words;
  bool has_place = false;
  for (std::string word : options_.words) {
    for (std::size_t at = word.find("{}"); at != word.npos; at = word.find("{}", at + file.size())) {
      word.replace(at, 2, file);
      has_place = true;
    }
    words.push_back(std::move(word));
  }
  if (!has_place) words.push_back(file);
  return words;
}

pid_t GraphCommand::spawn(std::size_t lane) const {
  const std::vector<std::string> words = words_on(file(lane));
  std::vector<char*> arguments;
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  posix_spawnattr_t attributes;
  posix_spawn_file_actions_t actions;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  for (int stream : {STDOUT_FILENO, STDERR_FILENO})
    if (!options_.is_verbose) posix_spawn_file_actions_addopen(&actions, stream, "/dev/null", O_WRONLY, 0);
  if (options_.is_verbose) posix_spawn_file_actions_adddup2(&actions, STDERR_FILENO, STDOUT_FILENO);
  pid_t child = 0;
  const int trouble = ::posix_spawnp(&child, arguments[0], &actions, &attributes, arguments.data(), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  if (trouble != 0) throw UsageError(fmt::format("cannot run {}: {}", words[0], std::strerror(trouble)));
  return child;
}

int GraphCommand::run() const {
  Children children(options_.timeout);
  children.add(spawn(0));
  wait_until(children, [&] { return !children.runs(0); });
  return children.status(0);
}

std::optional<std::size_t> GraphCommand::find_first(std::size_t lanes) const {
  Children children(options_.timeout);
  for (std::size_t lane = 0; lane < lanes; ++lane) children.add(spawn(lane));
  std::size_t first = 0;    // those before have failed
  std::size_t end = lanes;  // the first of those known to exit 0, behind the others
  wait_until(children, [&] {
    for (std::size_t i = first; i < end; ++i)
      if (!children.runs(i) && children.status(i) == 0) {
        children.end_from(i + 1);
        end = i;
      }
    while (first < end && !children.runs(first)) ++first;
    return first == end;
  });
  if (is_interrupted()) return std::nullopt;  // those before may have been ended by it
  return end < lanes ? std::optional(end) : std::nullopt;
}

}  // namespace epweave::cli
