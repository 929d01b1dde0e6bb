#include "passes/token_dimensions.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <numeric>
#include <string_view>

#include "analysis/token_inputs.h"
#include "analysis/user_inputs.h"
#include "base/parse_number.h"
#include "passes/pass.h"

namespace epweave {
namespace {

class InputFinder {
 public:
  explicit InputFinder(const Graph& graph) : graph_(graph), users_(list_user_inputs(graph)) {}

  TokenDimensions find(const std::vector<std::string>& names) const {
    if (names.empty()) return {find_known()};
    TokenDimensions result;
    for (const std::string& name : names) {
      const Named named = parse(name);
      result.inputs.push_back(find_named(named));
      result.micro_batches = std::lcm(result.micro_batches, named.micro_batches);
    }
    return result;
  }

 private:
  static constexpr std::size_t kShownUsers = 8;
  static constexpr std::int64_t kMostMicroBatches = 1 << 20;

  struct Named {
    std::string_view name;
    std::size_t dim = 0;
    std::int64_t micro_batches = 1;
  };

  std::vector<TokenInput> find_known() const {
    std::vector<TokenInput> result;
    for (const UserInput& user : users_)
      for (std::string_view name : kTokenInputs)
        if (user.which == name && user.type->rank() > 0)
          result.push_back({user.node, 0, std::string(user.which)});
    if (result.empty())
      throw PassError(
          "symbolize.no-inputs", "no user input is called tokens, inputs, input_ids, labels or positions", {},
          fmt::format("say which inputs count tokens: symbolize{{inputs=[NAME:DIMENSION]}}, of a preset "
                      "symbolize=[NAME:DIMENSION]; there are {}",
                      print_users()));
    return result;
  }

  // "tokens:0/2"
  static Named parse(std::string_view text) {
    const auto colon = text.rfind(':');
    if (colon == text.npos) return {text};
    const std::string_view numbers = text.substr(colon + 1);
    const auto slash = numbers.find('/');
    const auto dim = parse_number<std::size_t>(numbers.substr(0, slash));
    const auto micro_batches =
        slash == text.npos ? std::int64_t{1} : parse_number<std::int64_t>(numbers.substr(slash + 1));
    if (dim && micro_batches > 0 && micro_batches <= kMostMicroBatches)
      return {text.substr(0, colon), *dim, *micro_batches};
    throw PassError("symbolize.input", fmt::format("'{}' is not an input and a dimension", text), {},
                    "write inputs=[tokens:0], or inputs=[tokens:0/2] where the dimension holds two "
                    "micro-batches one behind the other");
  }

  TokenInput find_named(const Named& named) const {
    const auto& [name, dim, micro_batches] = named;
    for (const UserInput& user : users_) {
      if (!is_named(user, name)) continue;
      if (dim >= user.type->rank())
        throw PassError(
            "symbolize.input",
            fmt::format("input '{}' has {} dimensions and none numbered {}", name, user.type->rank(), dim),
            site_of(graph_, graph_.step().nodes[user.node]), "count dimensions from 0");
      const auto extent = graph_.context->exprs.constant(user.type->sizes[dim]);
      if (extent && *extent % micro_batches != 0)
        throw PassError(
            "symbolize.input",
            fmt::format("dimension {} of input '{}' is {}, which {} equal micro-batches do not make", dim,
                        name, *extent, micro_batches),
            site_of(graph_, graph_.step().nodes[user.node]),
            "give the number of micro-batches that the step cuts it into");
      return {user.node, dim, std::string(user.which)};
    }
    throw PassError("symbolize.input", fmt::format("there is no user input '{}'", name), {},
                    fmt::format("name one of {}", print_users()));
  }

  bool is_named(const UserInput& user, std::string_view name) const {
    return user.which == name || graph_.text(graph_.step().nodes[user.node].name) == name ||
           user.which.ends_with(fmt::format("['{}']", name)) ||
           user.which.ends_with(fmt::format(".{}", name));
  }

  std::string print_users() const {
    std::vector<std::string_view> names;
    for (const UserInput& user : users_)
      if (names.size() < kShownUsers) names.push_back(user.which);
    if (names.empty()) return "none";
    const std::string more =
        users_.size() > names.size() ? fmt::format(" and {} more", users_.size() - names.size()) : "";
    return fmt::format("{}{}", fmt::join(names, ", "), more);
  }

  const Graph& graph_;
  std::vector<UserInput> users_;
};

}  // namespace

TokenDimensions find_token_dimensions(const Graph& graph, const std::vector<std::string>& names) {
  return InputFinder(graph).find(names);
}

}  // namespace epweave
