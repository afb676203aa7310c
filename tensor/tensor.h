#pragma once

#include <functional>
#include <string>
#include <vector>

#include "caller.h"
#include "dtype.h"
#include "error.h"
#include "layout.h"
#include "number.h"
#include "storage.h"

namespace heed {

class Tensor;

namespace detail {

struct TensorImpl {
  std::atomic<std::uint32_t> refs{1};
  DType dtype;
  bool contiguous;
  std::uint16_t slot = 0;  ///< which output of `grad`'s node this is
  Layout layout;
  Index numel;
  std::uint64_t id;
  Ref<Storage> storage;
  Ref<GradData> grad;  ///< absent unless the tensor takes part in differentiation

  TensorImpl(DType, Layout, Ref<Storage>);
  /// Row-major: nothing has to be found out.
  TensorImpl(DType, const Dims& shape, Index count, Ref<Storage>);
  ~TensorImpl() { count_tensor(-1); }
  void dispose() noexcept;
};

/// A fresh tensor over given storage, without gradient data.
Tensor make_tensor(DType, const Layout&, Ref<Storage>);
/// Uninitialized and row-major; the shape has been checked. Error naming `op` where there is not so much memory.
Tensor make_empty(const Dims& shape, DType, const OpName& op = "tensor");
/// Another view of the same storage, without gradient data.
Tensor make_view(const Tensor&, const Layout&);
/// Row-major copy of the elements, without gradient data; the tensor itself when it is row-major already.
Tensor contiguous_data(const Tensor&);
[[noreturn]] void wrong_data_type(const OpName&, DType have, DType asked);
[[noreturn]] void use_of_undefined(const OpName&);

}  // namespace detail

/// What a backward leaves behind.
struct BackwardOptions {
  bool retain_graph = false;  ///< keep the graph for another backward
  bool create_graph = false;  ///< record the backward itself, for derivatives of derivatives; implies retain_graph
};

/// An n-dimensional array with optional history for reverse-mode differentiation.
///
/// A handle: copying it aliases, `clone()` copies the elements. A default-made tensor is undefined and stands for "absent".
/// Views (transpose, slice, ...) share storage with what they were made from. Concurrent reads are safe.
class Tensor {
 public:
  /// Undefined: an absent bias, a gradient that nobody has. Reading it is an Error.
  Tensor() = default;

  bool defined() const { return static_cast<bool>(impl_); }         ///< whether there is a tensor behind the handle
  const Dims& shape() const { return impl("shape").layout.shape; }  ///< sizes, outermost first; empty for a number
  /// Negative dims count from the end; ShapeError when out of range.
  Index size(Index dim) const;
  Index dim() const { return static_cast<Index>(impl("dim").layout.shape.size()); }  ///< the rank, 0 for a number
  Index numel() const { return impl("numel").numel; }                                ///< elements: the product of the sizes
  DType dtype() const { return impl("dtype").dtype; }                                ///< of the elements; never changes but by nn::to
  /// In elements; 0 where a dim repeats one element.
  const Dims& strides() const { return impl("strides").layout.strides; }
  bool is_contiguous() const { return impl("is_contiguous").contiguous; }  ///< row-major without gaps, so that `data` can be walked
  /// Unique among all tensors of the process; aliases of one handle share it, views do not.
  std::uint64_t id() const { return impl("id").id; }

  /// First element. No conversion: T must be the element type (DTypeError). Mind `strides()` unless contiguous.
  template <class T>
  const T* data() const {
    return static_cast<const T*>(address("data", detail::dtype_of<T>()));
  }
  /// As `data`, and tells values saved for backward that they changed. Writes through a pointer kept from an earlier call are unchecked.
  template <class T>
  T* mutable_data() {
    T* p = static_cast<T*>(address("mutable_data", detail::dtype_of<T>()));
    impl_->storage->bump_version();
    return p;
  }
  /// The only element, converted to T: to a float rounded, to an integer cut off at the point. ShapeError when there is not exactly one, DTypeError
  /// when an integer type cannot hold it: NaN, infinities, numbers out of its range.
  template <class T>
  T item() const;
  /// All elements in logical order, converted to T as `item` does; errors as there.
  template <class T>
  std::vector<T> to_vector() const;

  // Differentiable, so defined in autograd/ops/; members because that is where people look for them.

  /// A place along dim 0 that remembers the line it was written on.
  struct At {
    Index i;        ///< as written, negative ones too
    Caller caller;  ///< of `operator[]`
    /// From any integer.
    template <std::integral I>
    At(I index, Caller from = Caller::here()) : i(detail::to_index(index)), caller(from) {}
  };
  /// Element or sub-tensor i of dim 0, a view; negative counts from the end. IndexError when out of range.
  Tensor operator[](At i) const;
  /// Converted to another element type; itself when it has it already. Gradients flow between float types. Floats take the nearest number that they
  /// hold; i64 cuts off at the point, takes its nearest number for what is out of range (infinities too), and 0 for NaN; boolean is x != 0.
  Tensor to(DType, Caller = Caller::here()) const;
  /// A row-major copy with storage of its own; differentiable: dx = dy.
  Tensor clone(Caller = Caller::here()) const;
  /// Itself, or a row-major copy.
  Tensor contiguous(Caller = Caller::here()) const;

  // Differentiation, defined in autograd/.

  /// Asks for gradients. GradError for tensors that are not leaves, DTypeError for i64 and boolean.
  Tensor& requires_grad_(bool = true);
  bool requires_grad() const;  ///< asked for, or made by a recorded op from what was
  /// Made by the user or under NoGrad, not by a recorded op.
  bool is_leaf() const;
  /// d(root)/d(this), summed over the backward passes since zero_grad; undefined before the first. Its storage is its own.
  Tensor grad() const;
  void zero_grad();  ///< makes `grad` undefined, so that the next backward starts afresh
  /// The same elements without history.
  Tensor detach() const;
  /// Gives the name that reports and graph pictures show; returns the tensor itself.
  Tensor& named(std::string name);
  /// The name given by `named`, or empty.
  std::string name() const;
  /// Adds d(this)/d(leaf) * gradient to the `.grad` of every leaf that this depends on.
  /// `gradient` may be absent for one element (then 1). GradError for a tensor without history, a gradient of another shape or
  /// dtype, or a graph that an earlier backward has freed.
  void backward(const Tensor& gradient = {}, BackwardOptions = {}) const;
  /// `f` sees the gradient of this tensor when it is complete and may return another in its place (undefined keeps it).
  void register_hook(std::function<Tensor(const Tensor&)> f) const;

  // In place, on leaves, under NoGrad where the leaf requires a gradient.

  /// Overwrites the elements with those of `source` (broadcast, float dtypes converted). GradError for recorded tensors, ShapeError for
  /// expanded or overlapping ones.
  Tensor& copy_(const Tensor& source);
  /// Overwrites every element, with any kind of number: whole ones are exact in i64. DTypeError for a value that i64 or boolean cannot hold; other
  /// errors as `copy_`.
  Tensor& fill_(const detail::Number& value);

  // For the library's own folders.

  /// The target of the handle; Error naming `op` when undefined.
  detail::TensorImpl& impl(const OpName& op) const {
    if (!impl_) detail::use_of_undefined(op);
    return *impl_;
  }
  /// As above for those who have no caller: costs nothing while all is well.
  detail::TensorImpl& impl(const char* op) const {
    if (!impl_) detail::use_of_undefined(op);
    return *impl_;
  }
  const detail::Ref<detail::TensorImpl>& ref() const { return impl_; }               ///< null when undefined
  explicit Tensor(detail::Ref<detail::TensorImpl> impl) : impl_(std::move(impl)) {}  ///< one more handle

 private:
  void* address(const char* op, DType asked) const {
    detail::TensorImpl& t = impl(op);
    if (t.dtype != asked) detail::wrong_data_type(op, t.dtype, asked);
    return static_cast<char*>(t.storage->data()) + t.layout.offset * static_cast<Index>(detail::size_of(t.dtype));
  }
  void require_one_element() const;

  detail::Ref<detail::TensorImpl> impl_;
};

template <class T>
T Tensor::item() const {
  require_one_element();
  return detail::dispatch(dtype(), [&]<class E>() { return detail::from_element<T>("item", *data<E>()); });
}

template <class T>
std::vector<T> Tensor::to_vector() const {
  const Tensor flat = detail::contiguous_data(*this);
  return detail::dispatch(dtype(), [&]<class E>() {
    const E* p = flat.data<E>();
    std::vector<T> out(static_cast<std::size_t>(numel()));
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = detail::from_element<T>("to_vector", p[i]);
    return out;
  });
}

/// Values in nested brackets, columns aligned, at most 1000 elements in all with "..." in between; a 0-d tensor prints without brackets, an
/// empty one as "empty (0, 3)". ", f64" and so on follow unless f32. Whole numbers below 1e8 are printed in full, other floats with 6
/// significant digits of the largest one; trailing zeros that all share are dropped. Stream flags neither matter nor change.
std::ostream& operator<<(std::ostream&, const Tensor&);

}  // namespace heed
