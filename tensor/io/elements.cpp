#include "elements.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

#include "../raise.h"

namespace heed::detail {

static_assert(std::endian::native == std::endian::little, "elements are read and written as they lie in memory");

namespace {

constexpr std::size_t chunk = 4096;  ///< elements converted at a time, on the stack

template <class T>
void swap_bytes(T& x) {
  auto* p = reinterpret_cast<unsigned char*>(&x);
  std::reverse(p, p + sizeof x);
}

template <class T>
std::span<std::byte> bytes_of(T* p, Index n) {
  return std::as_writable_bytes(std::span(p, static_cast<std::size_t>(n)));
}

/// Elements that a tensor holds with the same bits.
template <class T>
Tensor read_same(Source& in, std::uint64_t offset, ByteOrder order, const Dims& shape) {
  Tensor out = make_empty(shape, dtype_of<T>());
  T* p = out.mutable_data<T>();
  in.read(offset, bytes_of(p, out.numel()));
  if (order == ByteOrder::big)
    for (Index i = 0; i < out.numel(); ++i) swap_bytes(p[i]);
  return out;
}

/// Elements of a narrower type, through `convert`.
template <class From, class To, class F>
Tensor read_wider(Source& in, std::uint64_t offset, ByteOrder order, const Dims& shape, F convert) {
  Tensor out = make_empty(shape, dtype_of<To>());
  To* p = out.mutable_data<To>();
  From buffer[chunk];
  for (Index left = out.numel(); left > 0;) {
    const Index n = std::min(left, static_cast<Index>(chunk));
    in.read(offset, bytes_of(buffer, n));
    for (Index i = 0; i < n; ++i) {
      if (order == ByteOrder::big) swap_bytes(buffer[i]);
      *p++ = convert(buffer[i]);
    }
    offset += static_cast<std::uint64_t>(n) * sizeof(From);
    left -= n;
  }
  return out;
}

Tensor read_boolean(Source& in, std::uint64_t offset, const Dims& shape, const std::string& what) {
  Tensor out = make_empty(shape, boolean);
  static_assert(sizeof(bool) == 1);
  // Another byte in a bool would be undefined behavior wherever it is looked at.
  const auto* p = reinterpret_cast<unsigned char*>(out.mutable_data<bool>());
  in.read(offset, bytes_of(out.mutable_data<bool>(), out.numel()));
  for (Index i = 0; i < out.numel(); ++i)
    if (p[i] > 1) raise<IoError>("{}: {}: a boolean is neither 0 nor 1: element {} is {}", in.where(), what, i, p[i]);
  return out;
}

}  // namespace

std::uint32_t widen_f16(std::uint16_t half) {
  const std::uint32_t sign = std::uint32_t{half} >> 15 << 31, exponent = half >> 10 & 31u, fraction = half & 0x3ffu;
  if (exponent == 31) return sign | 0x7f800000u | fraction << 13;                       // infinities and NaN
  if (exponent != 0) return sign | (exponent + 127 - 15) << 23 | fraction << 13;        // 2^(exponent - 15)
  return sign | std::bit_cast<std::uint32_t>(static_cast<float>(fraction) * 0x1p-24f);  // zeros and subnormals, normal in f32
}

std::size_t size_of(Element e) {
  switch (e) {
    case Element::i8:
    case Element::u8:
    case Element::boolean: return 1;
    case Element::f16:
    case Element::bf16:
    case Element::i16: return 2;
    case Element::f32:
    case Element::i32: return 4;
    case Element::f64:
    case Element::i64: break;
  }
  return 8;
}

DType dtype_of(Element e) {
  switch (e) {
    case Element::f16:
    case Element::bf16:
    case Element::f32: return DType::f32;
    case Element::f64: return DType::f64;
    case Element::boolean: return DType::boolean;
    case Element::i8:
    case Element::u8:
    case Element::i16:
    case Element::i32:
    case Element::i64: break;
  }
  return DType::i64;
}

std::optional<std::uint64_t> byte_count(std::span<const std::uint64_t> shape, Element element) {
  // Sizes of 0 are left out of the limit, for strides are computed from the other ones.
  const std::uint64_t limit = std::numeric_limits<Index>::max() / size_of(DType::f64);
  std::uint64_t nonzero = 1;
  bool is_empty = false;
  for (std::uint64_t size : shape) {
    if (size == 0)
      is_empty = true;
    else if (nonzero > limit / size)
      return std::nullopt;
    else
      nonzero *= size;
  }
  return is_empty ? 0 : nonzero * size_of(element);
}

std::string shape_text(std::span<const std::uint64_t> shape) {
  std::string out = "(";
  for (std::size_t i = 0; i < shape.size(); ++i) out += fmt::format("{}{}", i == 0 ? "" : ", ", shape[i]);
  return out + (shape.size() == 1 ? ",)" : ")");
}

Tensor read_tensor(Source& in, std::uint64_t offset, Element element, ByteOrder order, const Dims& shape, const std::string& what) {
  const auto to_index = [](auto x) { return static_cast<Index>(x); };
  const auto to_float = [](std::uint32_t bits) { return std::bit_cast<float>(bits); };
  switch (element) {
    case Element::f16: return read_wider<std::uint16_t, float>(in, offset, order, shape, [&](auto x) { return to_float(widen_f16(x)); });
    case Element::bf16: return read_wider<std::uint16_t, float>(in, offset, order, shape, [&](auto x) { return to_float(widen_bf16(x)); });
    case Element::f32: return read_same<float>(in, offset, order, shape);
    case Element::f64: return read_same<double>(in, offset, order, shape);
    case Element::i8: return read_wider<std::int8_t, Index>(in, offset, order, shape, to_index);
    case Element::u8: return read_wider<std::uint8_t, Index>(in, offset, order, shape, to_index);
    case Element::i16: return read_wider<std::int16_t, Index>(in, offset, order, shape, to_index);
    case Element::i32: return read_wider<std::int32_t, Index>(in, offset, order, shape, to_index);
    case Element::i64: return read_same<Index>(in, offset, order, shape);
    case Element::boolean: break;
  }
  return read_boolean(in, offset, shape, what);
}

void write_elements(Sink& out, const Tensor& t) {
  const Tensor flat = contiguous_data(t);
  dispatch(flat.dtype(), [&]<class T>() { out.write(std::as_bytes(std::span(flat.data<T>(), static_cast<std::size_t>(flat.numel())))); });
}

}  // namespace heed::detail
