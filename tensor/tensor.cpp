#include "tensor.h"

#include <new>

#include "kernels/elementwise.h"
#include "raise.h"

namespace heed {
namespace detail {
namespace {

/// Ids come in blocks, so that threads do not fight over one counter.
std::uint64_t next_id() {
  constexpr std::uint64_t block = 1024;
  static std::atomic<std::uint64_t> blocks{1};
  thread_local std::uint64_t next = 0, end = 0;
  if (next == end) {
    next = blocks.fetch_add(1, std::memory_order_relaxed) * block;
    end = next + block;
  }
  return next++;
}

}  // namespace

TensorImpl::TensorImpl(DType type, Layout where, Ref<Storage> bytes)
    : dtype(type), contiguous(is_contiguous(where)), layout(where), numel(detail::numel(where.shape)), id(next_id()), storage(std::move(bytes)) {
  count_tensor(1);
}

TensorImpl::TensorImpl(DType type, const Dims& shape, Index count, Ref<Storage> bytes)
    : dtype(type), contiguous(true), layout{shape, row_major_strides(shape), 0}, numel(count), id(next_id()), storage(std::move(bytes)) {
  count_tensor(1);
}

void TensorImpl::dispose() noexcept {
  this->~TensorImpl();
  deallocate(this, sizeof(TensorImpl));
}

Tensor make_tensor(DType dtype, const Layout& layout, Ref<Storage> storage) {
  return Tensor(Ref<TensorImpl>::adopt(new (allocate(sizeof(TensorImpl))) TensorImpl(dtype, layout, std::move(storage))));
}

Tensor make_empty(const Dims& shape, DType dtype, const OpName& op) {
  const Index count = numel(shape);
  const std::size_t bytes = static_cast<std::size_t>(count) * size_of(dtype);
  Ref<Storage> storage;
  try {
    storage = Storage::make(bytes);
  } catch (const std::bad_alloc&) {
    raise<Error>(op, "no memory for {} bytes: shape {}", bytes, shape);
  }
  return Tensor(Ref<TensorImpl>::adopt(new (allocate(sizeof(TensorImpl))) TensorImpl(dtype, shape, count, std::move(storage))));
}

Tensor make_view(const Tensor& x, const Layout& layout) {
  const TensorImpl& impl = x.impl("view");
  return make_tensor(impl.dtype, layout, impl.storage);
}

Tensor contiguous_data(const Tensor& x) {
  if (x.is_contiguous()) return x;
  Tensor out = make_empty(x.shape(), x.dtype());
  dispatch(x.dtype(), [&]<class T>() { kernels::copy<T, T>(out.mutable_data<T>(), out.strides(), {x.data<T>(), x.strides()}, x.shape()); });
  return out;
}

void wrong_data_type(const OpName& op, DType have, DType asked) { raise<DTypeError>(op, "the tensor is {}, asked for as {}", have, asked); }
void cannot_hold(const char* op, const Number& value, const Number& least, const Number& largest) {
  raise<DTypeError>("{}: {} is not within {} and {}, what the integer that is asked for can hold", op, value, least, largest);
}
void use_of_undefined(const OpName& op) {
  raise<Error>(op, "an undefined tensor: one that was never given a value, or the .grad() of one that no backward has reached");
}

}  // namespace detail

Index Tensor::size(Index d) const {
  const Dims& sizes = impl("size").layout.shape;
  const std::size_t wrapped = detail::wrap_dim("size", d, sizes);
  if (sizes.empty()) detail::raise<ShapeError>("size: a 0-d tensor has no dim {}", d);
  return sizes[wrapped];
}

void Tensor::require_one_element() const {
  if (numel() != 1) detail::raise<ShapeError>("item: wants exactly one element: shape {}", shape());
}

}  // namespace heed
