#include "replay/inputs/safetensors.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>

#include "replay/values/block_cache.h"

namespace epweave::replay {
namespace {

static_assert(std::endian::native == std::endian::little, "elements are copied as they lie in memory");

constexpr std::uint64_t kLengthBytes = 8;
constexpr std::uint64_t kLongestHeader = 100'000'000;
constexpr std::size_t kMostDimensions = 64;
constexpr std::string_view kMetadata = "__metadata__";

struct StoredName {
  std::string_view name;
  DType dtype;
};
constexpr StoredName kStoredNames[] = {
    {"BOOL", DType::kBool},
    {"U8", DType::kUint8},
    {"I8", DType::kInt8},
    {"U16", DType::kUint16},
    {"I16", DType::kInt16},
    {"U32", DType::kUint32},
    {"I32", DType::kInt32},
    {"U64", DType::kUint64},
    {"I64", DType::kInt64},
    {"F16", DType::kFloat16},
    {"BF16", DType::kBfloat16},
    {"F32", DType::kFloat32},
    {"F64", DType::kFloat64},
    {"C64", DType::kComplex64},
    {"F8_E4M3", DType::kFloat8E4m3fn},
    {"F8_E4M3FNUZ", DType::kFloat8E4m3fnuz},
    {"F8_E5M2", DType::kFloat8E5m2},
    {"F8_E5M2FNUZ", DType::kFloat8E5m2fnuz},
    {"F8_E8M0", DType::kFloat8E8m0fnu},
};

std::optional<DType> find_stored_dtype(std::string_view name) {
  for (const StoredName& stored : kStoredNames)
    if (stored.name == name) return stored.dtype;
  return std::nullopt;
}

std::optional<std::string_view> find_stored_name(DType dtype) {
  for (const StoredName& stored : kStoredNames)
    if (stored.dtype == dtype) return stored.name;
  return std::nullopt;
}

// Receives the header's JSON token by token, so that nothing but the tensors' entries is kept,
// however the text is nested.
class HeaderReader : public nlohmann::json_sax<nlohmann::json> {
 public:
  StoredTensors take() { return std::move(tensors_); }

  bool start_object(std::size_t) override {
    if (place_ == JsonLevel::kNothing) return go(JsonLevel::kTop);
    if (place_ != JsonLevel::kTop || !has_key_) fail("has an object where none belongs");
    has_key_ = false;
    if (key_ == kMetadata) return go(JsonLevel::kTexts);
    tensor_ = {};
    has_dtype_ = has_shape_ = has_offsets_ = false;
    return go(JsonLevel::kTensor);
  }
  bool end_object() override {
    if (place_ == JsonLevel::kTop) return go(JsonLevel::kEnd);
    if (place_ == JsonLevel::kTensor) finish_tensor();
    return go(JsonLevel::kTop);
  }
  bool key(string_t& name) override {
    if (place_ == JsonLevel::kTop) {
      if (tensors_.contains(name) || (name == kMetadata && has_metadata_))
        fail(fmt::format("has the name `{}` twice", name));
      has_metadata_ = has_metadata_ || name == kMetadata;
      key_ = name;
    } else {
      field_ = name;
    }
    has_key_ = true;
    return true;
  }
  bool start_array(std::size_t) override {
    bool* given = !is_in_tensor()            ? nullptr
                  : field_ == "shape"        ? &has_shape_
                  : field_ == "data_offsets" ? &has_offsets_
                                             : nullptr;
    if (given == nullptr || *given) fail_field();
    *given = true;
    has_key_ = false;
    numbers_.clear();
    return go(JsonLevel::kNumbers);
  }
  bool end_array() override {
    if (field_ == "shape") {
      tensor_.sizes.assign(numbers_.begin(), numbers_.end());
    } else {
      if (numbers_.size() != 2) fail_field();
      tensor_.first = numbers_[0];
      tensor_.last = numbers_[1];
    }
    return go(JsonLevel::kTensor);
  }
  bool number_unsigned(number_unsigned_t number) override {
    if (place_ != JsonLevel::kNumbers || number > INT64_MAX || numbers_.size() == kMostDimensions)
      fail_field();
    numbers_.push_back(number);
    return true;
  }
  bool string(string_t& text) override {
    if (place_ == JsonLevel::kTexts && has_key_) return has_key_ = false, true;
    if (!is_in_tensor() || field_ != "dtype" || has_dtype_) fail_field();
    const auto dtype = find_stored_dtype(text);
    if (!dtype) fail(fmt::format("tensor `{}` has the dtype {:.40}, which graphs do not have", key_, text));
    tensor_.dtype = *dtype;
    has_dtype_ = true;
    return has_key_ = false, true;
  }
  bool null() override { fail_field(); }
  bool boolean(bool) override { fail_field(); }
  bool number_integer(number_integer_t) override { fail_field(); }
  bool number_float(number_float_t, const string_t&) override { fail_field(); }
  bool binary(binary_t&) override { fail_field(); }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception&) override {
    fail(fmt::format("is not valid JSON at byte {}", position));
  }

 private:
  enum class JsonLevel : std::uint8_t { kNothing, kTop, kTexts, kTensor, kNumbers, kEnd };

  bool go(JsonLevel place) {
    place_ = place;
    return true;
  }
  bool is_in_tensor() const { return place_ == JsonLevel::kTensor && has_key_; }
  [[noreturn]] static void fail(std::string_view what) {
    throw InputError(fmt::format("the header {}", what));
  }
  [[noreturn]] void fail_field() const {
    if (place_ == JsonLevel::kNothing || place_ == JsonLevel::kTop) fail("is not an object of objects");
    if (place_ == JsonLevel::kTexts) fail("has metadata that is not text");
    fail(
        fmt::format("has an entry `{:.40}` of tensor `{}` that is given twice or is not what the format says",
                    field_, key_));
  }

  void finish_tensor() {
    if (!has_dtype_ || !has_shape_ || !has_offsets_)
      fail(fmt::format("lacks dtype, shape or data_offsets of tensor `{}`", key_));
    std::uint64_t bytes = info(tensor_.dtype).bytes;
    bool is_empty = false;
    for (std::int64_t size : tensor_.sizes) is_empty = is_empty || size == 0;
    for (std::int64_t size : tensor_.sizes)
      if (is_empty || __builtin_mul_overflow(bytes, static_cast<std::uint64_t>(size), &bytes)) {
        if (!is_empty) fail(fmt::format("has a shape of tensor `{}` that no file can hold", key_));
        bytes = 0;
      }
    if (tensor_.last < tensor_.first || tensor_.last - tensor_.first != bytes)
      fail(fmt::format("gives tensor `{}` the bytes {} to {}; its dtype and shape take {}", key_,
                       tensor_.first, tensor_.last, bytes));
    tensors_.emplace(key_, std::move(tensor_));
  }

  StoredTensors tensors_;
  JsonLevel place_ = JsonLevel::kNothing;
  std::string key_, field_;
  bool has_key_ = false, has_metadata_ = false;
  bool has_dtype_ = false, has_shape_ = false, has_offsets_ = false;
  StoredTensor tensor_;
  std::vector<std::uint64_t> numbers_;
};

std::string quote(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// The tensors lie one after the other, from the first byte to the last.
void require_all_bytes_used(const StoredTensors& tensors, std::uint64_t data_bytes) {
  std::vector<const StoredTensors::value_type*> ordered;
  for (const auto& entry : tensors) ordered.push_back(&entry);
  std::sort(ordered.begin(), ordered.end(), [](const auto* a, const auto* b) {
    return std::pair(a->second.first, a->second.last) < std::pair(b->second.first, b->second.last);
  });
  std::uint64_t end = 0;
  for (const auto* entry : ordered) {
    if (entry->second.first != end)
      throw InputError(fmt::format("tensor `{}` begins at byte {} of the data, the one before it ends at {}",
                                   entry->first, entry->second.first, end));
    end = entry->second.last;
  }
  if (end != data_bytes)
    throw InputError(fmt::format("the tensors end at byte {} of the data, the file has {}: {}", end,
                                 data_bytes,
                                 end > data_bytes ? "it is cut short" : "there is something behind them"));
}

}  // namespace

StoredTensors parse_safetensors_header(std::string_view header, std::uint64_t data_bytes) {
  if (header.empty() || header.front() != '{') throw InputError("the header does not begin with `{`");
  HeaderReader reader;
  nlohmann::json::sax_parse(header.begin(), header.end(), &reader);
  StoredTensors tensors = reader.take();
  require_all_bytes_used(tensors, data_bytes);
  return tensors;
}

SafetensorsFile::SafetensorsFile(std::string path)
    : path_(std::move(path)), file_(::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
  const auto refuse = [&](std::string_view why) {
    if (file_ >= 0) ::close(file_);
    throw InputError(fmt::format("{}: {}", path_, why));
  };
  if (file_ < 0) refuse(fmt::format("cannot open: {}", std::strerror(errno)));
  struct stat status {};
  if (::fstat(file_, &status) != 0 || !S_ISREG(status.st_mode)) refuse("is not a regular file");
  const auto bytes = static_cast<std::uint64_t>(status.st_size);
  if (bytes < kLengthBytes) refuse("is no safetensors file: it has fewer than 8 bytes");
  try {
    std::uint64_t length = 0;
    read_at(0, std::as_writable_bytes(std::span(&length, 1)));
    if (length > kLongestHeader)
      throw InputError(
          fmt::format("the header would have {} bytes; the format allows {}", length, kLongestHeader));
    if (length > bytes - kLengthBytes)
      throw InputError(fmt::format(
          "the header would have {} bytes, the file has {}: it is cut short or no safetensors file", length,
          bytes));
    std::string header(length, '\0');
    read_at(kLengthBytes, std::as_writable_bytes(std::span(header)));
    data_ = kLengthBytes + length;
    tensors_ = parse_safetensors_header(header, bytes - data_);
  } catch (const InputError& error) {
    refuse(error.what());
  }
}

SafetensorsFile::~SafetensorsFile() {
  ::close(file_);
}

void SafetensorsFile::read(const StoredTensor& tensor, std::uint64_t offset, std::span<std::byte> to) const {
  EPWEAVE_CHECK(offset + to.size() <= tensor.last - tensor.first);
  try {
    read_at(data_ + tensor.first + offset, to);
  } catch (const InputError& error) {
    throw InputError(fmt::format("{}: {}", path_, error.what()));
  }
}

void SafetensorsFile::read_at(std::uint64_t offset, std::span<std::byte> to) const {
  while (!to.empty()) {
    const ssize_t n = ::pread(file_, to.data(), to.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw InputError(fmt::format("cannot read: {}", std::strerror(errno)));
    if (n == 0) throw InputError("was cut short while it was read");
    to = to.subspan(static_cast<std::size_t>(n));
    offset += static_cast<std::uint64_t>(n);
  }
}

void encode_safetensors(std::vector<TensorToStore> tensors,
                        const std::function<void(std::string_view)>& give) {
  std::sort(tensors.begin(), tensors.end(), [](const TensorToStore& a, const TensorToStore& b) {
    const std::size_t bytes_a = a.tensor.element_bytes(), bytes_b = b.tensor.element_bytes();
    return bytes_a != bytes_b ? bytes_a > bytes_b : a.name < b.name;
  });
  std::string text = "{";
  std::uint64_t end = 0;
  for (const TensorToStore& entry : tensors) {
    const auto dtype = find_stored_name(entry.tensor.dtype);
    if (!dtype)
      throw InputError(fmt::format("{} of {} cannot be written: safetensors has no such dtype", entry.name,
                                   info(entry.tensor.dtype).short_name));
    const std::uint64_t first = end;
    end += static_cast<std::uint64_t>(entry.tensor.numel()) * entry.tensor.element_bytes();
    text += fmt::format(R"({}{}:{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})",
                        text.size() == 1 ? "" : ",", quote(entry.name), *dtype,
                        fmt::join(entry.tensor.sizes, ","), first, end);
  }
  text += '}';
  text.append((8 - text.size() % 8) % 8, ' ');
  if (text.size() > kLongestHeader) throw InputError("these are too many tensors for one safetensors file");
  const std::uint64_t length = text.size();
  std::array<char, kLengthBytes> prefix;
  std::memcpy(prefix.data(), &length, kLengthBytes);
  give({prefix.data(), prefix.size()});
  give(text);
  for (const TensorToStore& entry : tensors) {
    Buffer<char> bytes(static_cast<std::size_t>(entry.tensor.numel()) * entry.tensor.element_bytes());
    gather_elements(entry.tensor, reinterpret_cast<std::byte*>(bytes.data()));
    give({bytes.data(), bytes.size()});
  }
}

}  // namespace epweave::replay
