// Watches the passes of a rewrite: what --print-after, --print-changed, --dump-dir, --time-passes and -v
// show, and what the report says about each pass.
#pragma once

#include "commands.h"
#include "passes/runner.h"
#include "report.h"

namespace epweave::cli {

class Watch {
 public:
  // Throws UsageError if --print-after names a pass that the pipeline does not have.
  Watch(const RewriteOptions& options, const Pipeline& pipeline, Console& console);

  RunnerHooks hooks();

  // One object per pass that ran.
  const Json& report() const { return report_; }
  // Seconds spent in and around each pass, as a table; `read` and `write` are of the files.
  std::string times_text(double read, double write) const;
  // The input of the pass that failed and the pipeline from it on; none if none failed.
  const std::optional<std::pair<Graph, std::string>>& failure() const { return failure_; }

 private:
  struct Time {
    std::string pass;
    double run = 0, verify = 0;
    std::size_t before = 0, after = 0;
  };
  bool is_printed(std::string_view pass) const;
  void show(const PassReport& pass, bool changed);
  void dump(const PassReport& pass);

  const RewriteOptions& options_;
  Console& console_;
  std::size_t started_ = 0, count_;
  Json report_ = Json::array();
  std::vector<Time> times_;
  std::optional<std::pair<Graph, std::string>> failure_;
};

}  // namespace epweave::cli
