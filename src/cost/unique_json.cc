#include "cost/unique_json.h"

#include <fmt/format.h>

#include <set>
#include <vector>

#include "base/error.h"

namespace epweave {

Json parse_unique_json(std::string_view text, const std::string& path) {
  std::vector<std::set<std::string>> keys;  // of the objects that are open
  const auto on_event = [&](int, Json::parse_event_t event, Json& value) {
    if (event == Json::parse_event_t::object_start) keys.emplace_back();
    if (event == Json::parse_event_t::object_end) keys.pop_back();
    if (event == Json::parse_event_t::key && !keys.back().insert(value.get<std::string>()).second)
      throw InputError(fmt::format("{}: \"{}\" is given twice", path, value.get<std::string>()));
    return true;
  };
  try {
    return Json::parse(text, on_event);
  } catch (const Json::exception& error) {
    throw InputError(fmt::format("{}: no JSON: {}", path, error.what()));
  }
}

}  // namespace epweave
