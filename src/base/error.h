// The three kinds of error, never mixed. Thrown anywhere, caught once in main.
//
//   InputError   their file or option is unreadable or invalid   exit 3 (UsageError: exit 2)
//   PassError    a legal graph that a pass declines              exit 4
//   CheckError   our bug                                         exit 5
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

namespace epweave {

// The file cannot be read or its content breaks the format. The message names file, place and what
// is wrong.
class InputError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The command line or a pipeline text is wrong.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Where a declined construct is in the user's model. Empty fields are left out of the message.
struct Site {
  std::string node;
  std::string op;
  std::string module;
  std::string source;  // last frame of the user's code: "file:line in function: text"
};

// A legal graph that a pass declines to rewrite. `id` is a stable short name of the
// refusal ("chunk.no-rule"); `remedy` says what the user can change.
class PassError : public std::runtime_error {
 public:
  PassError(std::string id, std::string problem, Site site, std::string remedy);

  const std::string& id() const { return id_; }
  const std::string& problem() const { return problem_; }
  const Site& site() const { return site_; }
  const std::string& remedy() const { return remedy_; }

 private:
  std::string id_, problem_;
  Site site_;
  std::string remedy_;
};

// A broken invariant of ours.
class CheckError : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

[[noreturn]] void fail_check(const char* condition, const char* file, int line);

}  // namespace epweave

#define EPWEAVE_CHECK(condition) \
  ((condition) ? static_cast<void>(0) : ::epweave::fail_check(#condition, __FILE__, __LINE__))

#ifdef NDEBUG
#define EPWEAVE_DCHECK(condition) static_cast<void>(0)
#else
#define EPWEAVE_DCHECK(condition) EPWEAVE_CHECK(condition)
#endif
