// Pipelines as text.
//
//     canonicalize,chunk{roots=[layers.*.moe:4,layers.*.feed_forward:2],dim=batch},overlap-ep
//
//   pipeline  call, ...                 white space between tokens means nothing
//   call      name or name{option, ...}
//   option    name=value, or name alone for a flag
//   value     word, "quoted \" text", or [value, ...] for a list
//
// A parsed pipeline is resolved: every option of every pass has its value, and printing shows them
// all, so that the text of a pipeline says everything about what it does. parse(print(p)) == p.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "pipeline/registry.h"

namespace epweave {

struct Pipeline {
  std::vector<PassCall> calls;
};

// Throws UsageError: what is wrong, the text with a caret below the place, what was expected there,
// and the nearest known name for one that is not known.
Pipeline parse_pipeline(std::string_view text, const Registry& known = registry());

// Options of a pass that are the value of an option, without braces: then="memory=2%,order=kept".
// Throws UsageError, which shows OPTION=VALUE.
Options parse_value_as_options(std::string_view option, std::string_view value, const PassInfo& pass);

// The pipeline that a preset stands for: "ep-overlap" or "ep-overlap{roots=layers.*.moe,parts=2}".
// Throws UsageError.
Pipeline expand_preset(std::string_view text, const Registry& known = registry());

std::string print_pipeline(const Pipeline& pipeline);
std::string print_call(const PassCall& call);
std::string print_options(const Options& options);  // "roots=layers.*.moe,parts=2"

// A value as a pipeline writes it: bare where it is a word, quoted where not.
std::string print_value(const OptionValue& value);

}  // namespace epweave
