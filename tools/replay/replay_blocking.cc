#include "replay_blocking.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/failure.h"
#include "replay_commands.h"

namespace epweave::cli {
namespace {

constexpr const char* kBlocking = "CUDA_LAUNCH_BLOCKING=1";

// What the process printed, and how it ended.
struct Ended {
  std::string output;
  int status = 0;  // of waitpid
};

// None where no process can be started.
std::optional<Ended> run_process(std::vector<std::string> arguments, std::vector<std::string> variables) {
  const auto pointers = [](std::vector<std::string>& texts) {
    std::vector<char*> result;
    for (std::string& text : texts) result.push_back(text.data());
    result.push_back(nullptr);
    return result;
  };
  int ends[2];
  if (pipe(ends) != 0) return std::nullopt;
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_adddup2(&files, ends[1], STDOUT_FILENO);
  posix_spawn_file_actions_addclose(&files, ends[0]);
  posix_spawn_file_actions_addclose(&files, ends[1]);
  posix_spawn_file_actions_addopen(&files, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  pid_t process = 0;
  const int problem = posix_spawn(&process, "/proc/self/exe", &files, nullptr, pointers(arguments).data(),
                                  pointers(variables).data());
  posix_spawn_file_actions_destroy(&files);
  close(ends[1]);
  Ended ended;
  char bytes[4096];
  while (problem == 0) {
    const ssize_t count = read(ends[0], bytes, sizeof bytes);
    if (count > 0) ended.output.append(bytes, static_cast<std::size_t>(count));
    if (count == 0 || (count < 0 && errno != EINTR)) break;
  }
  close(ends[0]);
  if (problem != 0) return std::nullopt;
  while (waitpid(process, &ended.status, 0) < 0)
    if (errno != EINTR) return std::nullopt;
  return ended;
}

std::vector<std::string> list_variables() {
  std::vector<std::string> variables;
  for (char** at = environ; at != nullptr && *at != nullptr; ++at)
    if (!std::string_view(*at).starts_with("CUDA_LAUNCH_BLOCKING=")) variables.emplace_back(*at);
  variables.emplace_back(kBlocking);
  return variables;
}

bool is_blocking() {
  const char* set = std::getenv("CUDA_LAUNCH_BLOCKING");
  return set != nullptr && std::strcmp(set, "1") == 0;
}

BlockingRun describe_run(const Ended& ended) {
  const std::string once_more = fmt::format("once more with {}", kBlocking);
  if (!WIFEXITED(ended.status)) {
    const std::string message = fmt::format("signal {} ended the process", WTERMSIG(ended.status));
    return {once_more + ": " + message, {{"exit_code", nullptr}, {"message", message}}};
  }
  const Json report = Json::parse(ended.output, nullptr, false);
  const int code = WEXITSTATUS(ended.status);
  if (report.is_object() && report.contains("error")) {
    const auto message = report["error"]["message"].get<std::string>();
    return {once_more + ": " + message, {{"exit_code", code}, {"message", message}}};
  }
  const std::string message =
      "the device did not fail: kernels that ran at the same time may be the cause (compute-sanitizer --tool "
      "racecheck and initcheck look for that)";
  return {once_more + " " + message, {{"exit_code", code}, {"message", message}}};
}

}  // namespace

BlockingRun run_blocking(int argc, char** argv, Console& console) {
  if (is_blocking()) return {};
  if (!parse_replay_command_line(argc, argv).can_run_again)
    return {fmt::format("run it with {}, where each launch waits for its kernel, to learn which one it was",
                        kBlocking),
            nullptr};
  console.info("the device was lost; the command is run once more to name the kernel that was the cause");
  std::vector<std::string> arguments(argv, argv + argc);
  arguments.insert(arguments.begin() + 2, {"--json", "--write-nothing"});  // behind the command
  const std::optional<Ended> ended = run_process(std::move(arguments), list_variables());
  if (!ended) return {fmt::format("no second process could be started with {}", kBlocking), nullptr};
  return describe_run(*ended);
}

}  // namespace epweave::cli
