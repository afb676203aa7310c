// Whatever is loaded must be saved and loaded again as the same file; everything else is a heed::Error.

#include <heed/tensor/io/npy.h>

#include <cstdlib>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace heed;
  try {
    const Tensor loaded = detail::read_npy(std::as_bytes(std::span(data, size)));
    const std::vector<std::byte> saved = detail::write_npy(loaded);
    if (detail::write_npy(detail::read_npy(saved)) != saved) std::abort();
  } catch (const Error&) {
  }
  return 0;
}
