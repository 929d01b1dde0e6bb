// The JSON that --json gives.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "base/error.h"

namespace epweave::cli {

using Json = nlohmann::ordered_json;

// Of every document that --json gives, under "schema". It grows when a key changes its name or
// meaning, or goes.
inline constexpr int kReportSchema = 1;

// A document of --json: `report` with the schema first, indented, ending with a newline; bytes that
// are not UTF-8 are replaced.
std::string report_text(Json report);
// The same of a file that has a version of its own.
std::string indented_text(const Json& report);
// On one line, without newline.
std::string report_line(const Json& report);

// Adds node, op, module and source; null where there is none.
void add_site(Json& report, const Site& site);

// {"file": path}: a graph's file always stands under this key, as the command line has it.
Json file_report(std::string_view path);

// null for "".
Json text_or_null(std::string_view text);

}  // namespace epweave::cli
