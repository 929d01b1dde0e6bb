#include "pipeline/pipeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "base/nearest_name.h"
#include "ir/text/text_spelling.h"

namespace epweave {
namespace {

constexpr std::string_view kSpace = " \t\r\n";
constexpr std::string_view kNotInWord = " \t\r\n,{}[]=\"\\", kNotInValue = " \t\r\n,{}[]\"\\";

bool is_word(std::string_view text) {
  return !text.empty() && text.find_first_of(kNotInWord) == std::string_view::npos;
}

std::string quote(std::string_view text) {
  std::string quoted = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += c;
  }
  return quoted + '"';
}

std::string print_text_value(std::string_view text) {
  return is_word(text) ? std::string(text) : quote(text);
}

template <class Rows>
std::vector<std::string_view> names_of(const Rows& rows) {
  std::vector<std::string_view> names;
  for (const auto& row : rows) names.push_back(row.name);
  return names;
}

std::string expected_one_of(const std::vector<std::string_view>& names) {
  return fmt::format("one of {}", fmt::join(names, ", "));
}

// A value as read, before its option's kind gives it a meaning.
struct Written {
  std::size_t at = 0;
  bool is_list = false;
  std::vector<std::string> items;  // one if not a list
};

class Parser {
 public:
  Parser(std::string_view text, const Registry& known) : text_(text), known_(known) {}

  Pipeline parse_calls() {
    // A graph records the options, such as names of files.
    if (const std::size_t valid = text::count_valid_utf8(text_); valid < text_.size())
      throw UsageError(fmt::format("column {}: not UTF-8, as what a graph records must be", valid + 1));
    Pipeline pipeline;
    do {
      pipeline.calls.push_back(parse_call());
    } while (take(','));
    if (!at_end()) fail(at_, fmt::format("unexpected '{}'", text_[at_]), "',' and another pass, or the end");
    return pipeline;
  }

  // The options of a pass, from a place in the text to its end.
  Options parse_options_from(std::size_t at, const PassInfo& pass) {
    at_ = at;
    std::vector<std::optional<OptionValue>> given(pass.options.size());
    if (!at_end()) {
      do {
        parse_option(pass.name, pass.options, given);
      } while (take(','));
    }
    if (!at_end())
      fail(at_, fmt::format("unexpected '{}'", text_[at_]), "',' and another option, or the end");
    return complete_options(at, pass.name, pass.options, std::move(given));
  }

  // The preset and the values of its options.
  std::pair<const PresetInfo*, Options> parse_preset() {
    const auto [at, name] = parse_name("a preset");
    const PresetInfo* preset = known_.find_preset(name);
    if (!preset) fail_unknown(at, "preset", name, names_of(known_.presets));
    Options options = parse_options(at, preset->name, preset->options);
    if (!at_end()) fail(at_, fmt::format("unexpected '{}'", text_[at_]), "the end: a preset stands alone");
    return {preset, std::move(options)};
  }

 private:
  PassCall parse_call() {
    const auto [at, name] = parse_name("a pass");
    const PassInfo* pass = known_.find_pass(name);
    if (!pass && known_.find_preset(name))
      fail(at, fmt::format("'{}' is a preset, not a pass", name), "a pass; give a preset with --preset");
    // chunk(parts=4), chunk:overlap-ep
    const std::size_t mark = std::min(name.find_first_of("(:"), name.size());
    if (!pass && known_.find_pass(name.substr(0, mark)))
      fail(at + mark, fmt::format("unexpected '{}'", name[mark]),
           fmt::format("options in braces, {}{{..}}, or ',' and another pass", name.substr(0, mark)));
    if (!pass) fail_unknown(at, "pass", name, names_of(known_.passes));
    PassCall call{pass, parse_options(at, pass->name, pass->options)};
    if (pass->settle) pass->settle(call.options);
    return call;
  }

  Options parse_options(std::size_t owner_at, std::string_view owner, const std::vector<OptionSpec>& specs) {
    open_list_ = {};
    std::vector<std::optional<OptionValue>> given(specs.size());
    if (take('{') && !take('}')) {
      do {
        parse_option(owner, specs, given);
      } while (take(','));
      if (!take('}'))
        fail(at_, at_end() ? "missing '}'" : fmt::format("unexpected '{}'", text_[at_]), "',' or '}'");
    }
    return complete_options(owner_at, owner, specs, std::move(given));
  }

  Options complete_options(std::size_t owner_at, std::string_view owner, const std::vector<OptionSpec>& specs,
                           std::vector<std::optional<OptionValue>> given) const {
    Options options;
    for (std::size_t i = 0; i < specs.size(); ++i) {
      if (!given[i]) {
        if (specs[i].is_optional) continue;
        if (!specs[i].fallback)
          fail(owner_at, fmt::format("'{}' needs option '{}'", owner, specs[i].name),
               fmt::format("{}{{{}=...}}: {}", owner, specs[i].name, specs[i].help));
        Parser fallback(*specs[i].fallback, known_);
        options.set_fallback(specs[i].name, fallback.convert(specs[i], fallback.parse_value()));
      } else {
        options.set(specs[i].name, std::move(*given[i]));
      }
    }
    return options;
  }

  void parse_option(std::string_view owner, const std::vector<OptionSpec>& specs,
                    std::vector<std::optional<OptionValue>>& given) {
    const auto [at, name] = parse_name("an option");
    const auto spec =
        std::find_if(specs.begin(), specs.end(), [name = name](const auto& s) { return s.name == name; });
    if (spec == specs.end()) {
      if (specs.empty()) fail(at, fmt::format("'{}' has no options", owner), "'}'");
      skip_space();
      if (!open_list_.empty() && (at_end() || text_[at_] != '='))
        fail(at, fmt::format("'{}' has no option '{}'", owner, name),
             fmt::format("{}=[...] around a list of several", open_list_));
      fail_unknown(at, fmt::format("option of '{}':", owner), name, names_of(specs));
    }
    std::optional<OptionValue>& value = given[static_cast<std::size_t>(spec - specs.begin())];
    if (value) fail(at, fmt::format("option '{}' is given twice", name), "it once");
    if (take('=')) {
      const Written written = parse_value();
      open_list_ = spec->kind == OptionKind::kList && !written.is_list ? spec->name : std::string_view();
      value = convert(*spec, written);
    } else if (spec->kind == OptionKind::kFlag) {
      value = true;
    } else {
      fail(at_, fmt::format("option '{}' has no value", name), fmt::format("{}=VALUE", name));
    }
  }

  Written parse_value() {
    skip_space();
    Written written{.at = at_};
    if (take('[')) {
      written.is_list = true;
      if (take(']')) return written;
      do {
        written.items.push_back(parse_item());
      } while (take(','));
      if (!take(']'))
        fail(at_, at_end() ? "missing ']'" : fmt::format("unexpected '{}'", text_[at_]), "',' or ']'");
    } else {
      written.items.push_back(parse_item());
    }
    return written;
  }

  std::string parse_item() {
    skip_space();
    if (take('"')) return parse_quoted(at_ - 1);
    // Of a value, `=` is a letter like others, but for the first: cluster=h100+nic=400e9.
    const bool begins = at_ < text_.size() && text_[at_] != '=';
    const std::string_view word = begins ? take_until(kNotInValue) : std::string_view();
    if (word.empty()) fail(at_, "a value is missing", "a word, a quoted text, or a list in brackets");
    return std::string(word);
  }

  std::string parse_quoted(std::size_t opened_at) {
    std::string item;
    while (at_ < text_.size() && text_[at_] != '"') {
      if (text_[at_] == '\\' && at_ + 1 < text_.size()) ++at_;
      item += text_[at_++];
    }
    if (at_ == text_.size()) fail(opened_at, "a quoted text does not end", "'\"'");
    ++at_;
    return item;
  }

  OptionValue convert(const OptionSpec& spec, Written written) const {
    if (spec.kind == OptionKind::kList) return std::move(written.items);
    if (written.is_list)
      fail(written.at, fmt::format("option '{}' takes one value", spec.name), "no brackets");
    std::string& item = written.items.front();
    switch (spec.kind) {
      case OptionKind::kInt:
        return convert_int(spec, written.at, item);
      case OptionKind::kFlag:
        if (item != "true" && item != "false")
          fail(written.at, fmt::format("'{}' is not a value of flag '{}'", item, spec.name), "true or false");
        return item == "true";
      case OptionKind::kChoice:
        if (std::find(spec.choices.begin(), spec.choices.end(), item) == spec.choices.end())
          fail_unknown(written.at, fmt::format("value of option '{}':", spec.name), item, spec.choices);
        return std::move(item);
      case OptionKind::kText:
      case OptionKind::kList:
        break;
    }
    return std::move(item);
  }

  OptionValue convert_int(const OptionSpec& spec, std::size_t at, std::string_view item) const {
    std::int64_t number = 0;
    const auto [end, error] = std::from_chars(item.data(), item.data() + item.size(), number);
    if (error == std::errc::result_out_of_range)
      fail(at, fmt::format("{} does not fit in 64 bits", item), "an integer of 64 bits");
    if (error != std::errc() || end != item.data() + item.size())
      fail(at, fmt::format("'{}' is not a value of option '{}'", item, spec.name), "an integer");
    if (number < spec.at_least)
      fail(at, fmt::format("{} is too small for option '{}'", number, spec.name),
           fmt::format("at least {}", spec.at_least));
    return number;
  }

  std::pair<std::size_t, std::string_view> parse_name(std::string_view what) {
    skip_space();
    const std::size_t at = at_;
    const std::string_view name = take_word();
    if (name.empty())
      fail(at, at_end() ? fmt::format("{} is missing", what) : fmt::format("unexpected '{}'", text_[at]),
           fmt::format("{}'s name", what));
    return {at, name};
  }

  void skip_space() { at_ = std::min(text_.find_first_not_of(kSpace, at_), text_.size()); }
  bool at_end() {
    skip_space();
    return at_ == text_.size();
  }
  bool take(char c) {
    if (at_end() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  std::string_view take_word() { return take_until(kNotInWord); }
  std::string_view take_until(std::string_view ends) {
    const std::size_t end = std::min(text_.find_first_of(ends, at_), text_.size());
    const std::string_view word = text_.substr(at_, end - at_);
    at_ = end;
    return word;
  }

  [[noreturn]] void fail_unknown(std::size_t at, std::string_view what, std::string_view name,
                                 const std::vector<std::string_view>& known) const {
    std::string problem = fmt::format("unknown {} '{}'", what, name);
    if (const std::string_view near = nearest_name(name, known); !near.empty())
      problem += fmt::format(", did you mean '{}'?", near);
    fail(at, problem, known.empty() ? "none: there are no names to choose from" : expected_one_of(known));
  }

  [[noreturn]] void fail(std::size_t at, std::string_view problem, std::string_view expected) const {
    std::string shown(text_);
    for (char& c : shown)
      if (kSpace.find(c) != std::string_view::npos) c = ' ';
    throw UsageError(fmt::format("column {}: {}\n  {}\n  {:>{}}\n  expected {}", at + 1, problem, shown, '^',
                                 at + 1, expected));
  }

  std::string_view text_;
  std::string_view
      open_list_;  // the option read last, where it takes a list and has one item without brackets
  const Registry& known_;
  std::size_t at_ = 0;
};

}  // namespace

Pipeline parse_pipeline(std::string_view text, const Registry& known) {
  return Parser(text, known).parse_calls();
}

Options parse_value_as_options(std::string_view option, std::string_view value, const PassInfo& pass) {
  const std::string text = fmt::format("{}={}", option, value);
  return Parser(text, registry()).parse_options_from(option.size() + 1, pass);
}

Pipeline expand_preset(std::string_view text, const Registry& known) {
  const auto [preset, options] = Parser(text, known).parse_preset();
  const std::string expansion = preset->expand(options);
  return parse_pipeline(expansion, known);
}

std::string print_value(const OptionValue& value) {
  if (const auto* number = std::get_if<std::int64_t>(&value)) return std::to_string(*number);
  if (const auto* flag = std::get_if<bool>(&value)) return *flag ? "true" : "false";
  if (const auto* text = std::get_if<std::string>(&value)) return print_text_value(*text);
  const auto& items = std::get<std::vector<std::string>>(value);
  std::vector<std::string> printed;
  for (const std::string& item : items) printed.push_back(print_text_value(item));
  return items.size() == 1 ? printed.front() : fmt::format("[{}]", fmt::join(printed, ","));
}

std::string print_options(const Options& options) {
  std::vector<std::string> printed;
  for (const auto& [name, value] : options.values())
    printed.push_back(fmt::format("{}={}", name, print_value(value)));
  return fmt::format("{}", fmt::join(printed, ","));
}

std::string print_call(const PassCall& call) {
  const std::string options = print_options(call.options);
  return options.empty() ? std::string(call.pass->name) : fmt::format("{}{{{}}}", call.pass->name, options);
}

std::string print_pipeline(const Pipeline& pipeline) {
  std::vector<std::string> printed;
  for (const PassCall& call : pipeline.calls) printed.push_back(print_call(call));
  return fmt::format("{}", fmt::join(printed, ","));
}

}  // namespace epweave
