#include "passes/pass.h"

#include <fmt/format.h>

#include <algorithm>

namespace epweave {
namespace {

template <class T>
const T& expect(std::string_view name, const OptionValue& value) {
  if (const T* held = std::get_if<T>(&value)) return *held;
  throw CheckError(fmt::format("option '{}' read as another kind than its row says", name));
}

}  // namespace

void Options::set(std::string_view name, OptionValue value) {
  for (auto& [known, held] : values_)
    if (known == name) {
      held = std::move(value);
      return;
    }
  values_.emplace_back(name, std::move(value));
}

void Options::set_fallback(std::string_view name, OptionValue value) {
  set(name, std::move(value));
  fallbacks_.emplace_back(name);
}

bool Options::is_given(std::string_view name) const {
  return has(name) && std::ranges::find(fallbacks_, name) == fallbacks_.end();
}

bool Options::has(std::string_view name) const {
  return std::any_of(values_.begin(), values_.end(), [&](const auto& value) { return value.first == name; });
}

const OptionValue& Options::find(std::string_view name) const {
  for (const auto& [known, value] : values_)
    if (known == name) return value;
  throw CheckError(fmt::format("a pass reads option '{}', which its row does not have", name));
}

const std::string& Options::text(std::string_view name) const {
  return expect<std::string>(name, find(name));
}
std::int64_t Options::integer(std::string_view name) const {
  return expect<std::int64_t>(name, find(name));
}
bool Options::flag(std::string_view name) const {
  return expect<bool>(name, find(name));
}
const std::vector<std::string>& Options::list(std::string_view name) const {
  return expect<std::vector<std::string>>(name, find(name));
}

}  // namespace epweave
