// JSON in which no object has a key twice.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace epweave {

using Json = nlohmann::ordered_json;

// Throws InputError naming `path`: no JSON (NaN is none), or a key that an object has twice.
Json parse_unique_json(std::string_view text, const std::string& path);

}  // namespace epweave
