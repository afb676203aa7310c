// Everything that prints, through fmt.
#include <heed/fmt.h>
#include <heed/heed.h>

#include <fmt/format.h>

int main() {
  const heed::Tensor x = heed::tensor({{1, 2}, {3, 4}}, heed::f64);
  const std::string line = fmt::format("{} of {} and {}: {}", x[0], x.shape(), x.dtype(), heed::Mask::causal());
  const std::string expected = "[1, 2], f64 of (2, 2) and f64: " + to_string(heed::Mask::causal());
  fmt::print("{}\n", line);
  if (line != expected) fmt::print("expected: {}\n", expected);
  return line == expected ? 0 : 1;
}
