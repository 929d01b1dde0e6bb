#include "cost/unique_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <vector>

#include "base/error.h"

namespace epweave {
namespace {

// `byte` is counted from 1; behind the text: it ends too early.
std::string describe_place(std::string_view text, std::size_t byte) {
  const std::string_view before = text.substr(0, byte == 0 ? 0 : byte - 1);
  const auto line = std::ranges::count(before, '\n') + 1;
  const std::size_t column = before.size() - (before.rfind('\n') + 1) + 1;  // npos + 1 is 0
  // What Python writes for numbers that are not finite.
  const std::string_view rest = text.substr(std::min(text.size(), before.size()));
  const bool is_finite = !rest.starts_with("NaN") && !rest.starts_with("Infinity");
  return fmt::format("{} at line {}, column {}{}",
                     byte > text.size() ? "it ends too early," : "unexpected text", line, column,
                     is_finite ? "" : ": give a finite number");
}

}  // namespace

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
  } catch (const Json::parse_error& error) {
    throw InputError(fmt::format("{}: not JSON: {}", path, describe_place(text, error.byte)));
  } catch (const Json::out_of_range&) {
    throw InputError(fmt::format("{}: a number is larger than 64 bits hold", path));
  }
}

}  // namespace epweave
