// Watches the passes of a rewrite: what --print-after, --print-changed, --dump-dir, --time-passes
// and -v show, and what the report says about each pass.
#pragma once

#include "commands.h"
#include "common/report.h"
#include "pipeline/runner.h"
#include "ticking.h"

namespace epweave::cli {

// Seconds.
struct FileTimes {
  double read = 0, write = 0;
};

class Watch {
 public:
  // Throws UsageError if --print-after names a pass that the pipeline does not have.
  Watch(const RewriteOptions& options, const Pipeline& pipeline, Console& console);

  RunnerHooks hooks();

  // One object per pass that ran.
  const Json& report() const { return report_; }
  // What each pass cost, as a table and as JSON.
  std::string times_text(const FileTimes& files) const;
  Json times_report(const FileTimes& files) const;
  // The input of the pass that failed and the pipeline from it on; none if none failed.
  const std::optional<std::pair<Graph, std::string>>& failure() const { return failure_; }

 private:
  struct Time {
    std::string pass;
    double run = 0, verify = 0;  // seconds
    double peak_mib = 0;         // memory of the process so far
    std::size_t before = 0, after = 0;
  };
  bool is_printed(std::string_view pass) const;
  void show(const PassReport& pass);
  void dump(const PassReport& pass);

  const RewriteOptions& options_;
  Console& console_;
  std::size_t started_ = 0, count_;
  Json report_ = Json::array();
  std::vector<Time> times_;
  std::optional<std::pair<Graph, std::string>> failure_;
  std::optional<Ticking> ticking_;  // while a pass runs
};

}  // namespace epweave::cli
