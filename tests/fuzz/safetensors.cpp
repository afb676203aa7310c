// Whatever is loaded must be saved and loaded again as the same file; everything else is a heed::Error. The first byte says how the rest is
// read: as a whole file, or as a header to which a fitting length is added, so that the fuzzer need not guess lengths.

#include <heed/tensor/io/safetensors.h>

#include <cstdlib>
#include <string>

namespace {

void check(std::span<const std::byte> file) {
  using namespace heed;
  std::map<std::string, std::string> metadata;
  try {
    metadata = detail::read_safetensors_metadata(file);
    const auto loaded = detail::read_safetensors(file);
    const auto saved = detail::write_safetensors(loaded, metadata);
    if (detail::write_safetensors(detail::read_safetensors(saved), detail::read_safetensors_metadata(saved)) != saved) std::abort();
  } catch (const Error&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const auto bytes = std::as_bytes(std::span(data, size)).subspan(1);
  if (data[0] % 2 == 0) {
    check(bytes);
    return 0;
  }
  // The header ends with its last brace; what follows is data.
  std::string file(8, '\0');
  file.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const std::size_t end = file.rfind('}'), length = end == std::string::npos ? bytes.size() : end - 7;
  for (std::size_t i = 0; i < 8; ++i) file[i] = static_cast<char>(length >> (8 * i) & 0xff);
  check(std::as_bytes(std::span(file)));
  return 0;
}
