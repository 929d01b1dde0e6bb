#include "compare/ranks/modules_alike.h"

#include <cctype>

namespace epweave {

std::string name_of_modules_alike(std::string_view module) {
  std::string name;
  bool is_in_word = false;  // whose digits belong to it
  for (char c : module) {
    const auto byte = static_cast<unsigned char>(c);
    const bool is_digit = std::isdigit(byte) != 0;
    is_in_word = is_digit ? is_in_word : std::isalpha(byte) != 0 || c == '_';
    if (!is_digit || is_in_word) name += c;
  }
  return name;
}

}  // namespace epweave
