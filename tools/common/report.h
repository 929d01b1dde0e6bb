// The JSON that --json gives.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "base/error.h"

namespace epweave::cli {

using Json = nlohmann::ordered_json;

// Indented, ending with a newline; bytes that are not UTF-8 are replaced.
std::string report_text(const Json& report);
// On one line, without newline.
std::string report_line(const Json& report);

// Adds node, op, module and source; null where there is none.
void add_site(Json& report, const Site& site);

// null for "".
Json text_or_null(std::string_view text);

}  // namespace epweave::cli
