#pragma once

#include <optional>
#include <type_traits>
#include <vector>

#include "../tensor/factory.h"
#include "../tensor/random.h"
#include "../tensor/tensor.h"

// Every differentiable op, one comment each: formula, shapes, what it throws. PyTorch's names and meaning. Shapes broadcast by NumPy's rule where two
// tensors meet element by element; tensors of different dtypes never mix (DTypeError names both). Ops on i64 and boolean tensors are not
// differentiated.

namespace heed {

/// A tensor operand that remembers the line it was written on: how operators know where they were called.
struct Located {
  const Tensor& tensor;  ///< the operand
  Caller caller;         ///< of the operator
  /// How the operand of `-x` or `!x` is passed.
  Located(const Tensor& t, Caller from = Caller::here()) : tensor(t), caller(from) {}
};

/// A tensor or a plain number beside a tensor; the number is rounded to the tensor's dtype: beside f32, 1e300 is infinite and 1e-300 is 0. DTypeError
/// for a fractional number beside an i64 tensor.
class Operand {
 public:
  /// A tensor: not copied.
  Operand(const Tensor& t, Caller from = Caller::here()) : caller(from), tensor_(&t) {}
  /// A plain number.
  template <class N>
  requires std::is_arithmetic_v<N> Operand(N n, Caller from = Caller::here()) : caller(from), number_(n) {}

  /// The tensor, or the number as a tensor without dims beside one of `dtype`.
  Tensor beside(const OpName& op, DType dtype) const;
  const Tensor* tensor() const { return tensor_; }  ///< null for a number

  Caller caller;  ///< of the op

 private:
  const Tensor* tensor_ = nullptr;
  detail::Number number_{0};
};

/// A plain number as the left operand.
struct LeftNumber {
  detail::Number number;  ///< as written: whole numbers stay exact
  Caller caller;          ///< of the operator
  /// Any arithmetic type.
  template <class N>
  requires std::is_arithmetic_v<N> LeftNumber(N n, Caller from = Caller::here()) : number(n), caller(from) {}
};

// Element by element, two operands (autograd/ops/arithmetic.cpp). i64: all but `/` and pow, exact; what is out of its range wraps, as in NumPy.

Tensor operator+(const Tensor& a, const Operand& b);     ///< da = dy, db = dy
Tensor operator-(const Tensor& a, const Operand& b);     ///< da = dy, db = -dy
Tensor operator*(const Tensor& a, const Operand& b);     ///< da = dy b, db = dy a
Tensor operator/(const Tensor& a, const Operand& b);     ///< da = dy / b, db = -dy a / b^2; f32 and f64
Tensor operator+(const LeftNumber& a, const Tensor& b);  ///< db = dy
Tensor operator-(const LeftNumber& a, const Tensor& b);  ///< db = -dy
Tensor operator*(const LeftNumber& a, const Tensor& b);  ///< db = dy a
Tensor operator/(const LeftNumber& a, const Tensor& b);  ///< db = -dy a / b^2; f32 and f64
Tensor operator-(const Located& x);                      ///< dx = -dy
/// a^b. d/da = b a^(b-1), 0 at a = b = 0; d/db = a^b log a, 0 where a is 0 and b >= 0.
Tensor pow(const Tensor& a, const Operand& b);
Tensor pow(const LeftNumber& a, const Tensor& b);  ///< as above
/// The larger one, NaN if either is; a tie gives half of the gradient to each.
Tensor maximum(const Tensor& a, const Operand& b);
Tensor minimum(const Tensor& a, const Operand& b);  ///< the smaller one, else as maximum

// Element by element, one operand (autograd/ops/pointwise.cpp). f32 and f64; neg, abs, square and relu also i64.

Tensor exp(const Tensor& x, Caller = Caller::here());      ///< dx = dy y
Tensor log(const Tensor& x, Caller = Caller::here());      ///< natural; -inf at 0, NaN below; dx = dy / x
Tensor log1p(const Tensor& x, Caller = Caller::here());    ///< log(1 + x), exact near 0
Tensor sqrt(const Tensor& x, Caller = Caller::here());     ///< gradient inf at 0
Tensor rsqrt(const Tensor& x, Caller = Caller::here());    ///< 1 / sqrt(x)
Tensor square(const Tensor& x, Caller = Caller::here());   ///< x^2, dx = 2 x dy
Tensor abs(const Tensor& x, Caller = Caller::here());      ///< gradient 0 at 0
Tensor tanh(const Tensor& x, Caller = Caller::here());     ///< dx = dy (1 - y^2), computed from x: exact far out too
Tensor sigmoid(const Tensor& x, Caller = Caller::here());  ///< 1 / (1 + exp(-x))
Tensor relu(const Tensor& x, Caller = Caller::here());     ///< max(x, 0), gradient 0 at 0
Tensor silu(const Tensor& x, Caller = Caller::here());     ///< x sigmoid(x)
/// Hendrycks and Gimpel, "Gaussian error linear units", 2016. erf: x/2 (1 + erf(x / sqrt 2)); tanh: x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))).
enum class Gelu {
  erf,  ///< exact
  tanh  ///< the approximation that GPT-2 uses
};
/// x Phi(x), Phi being the normal distribution: in full, or approximated by tanh.
Tensor gelu(const Tensor& x, Gelu = Gelu::erf, Caller = Caller::here());

// Choosing between elements (autograd/ops/choose.cpp).

/// Into [low, high]; gradient 1 inside and on the bounds, 0 outside. NaN stays. An absent bound does not bind.
Tensor clamp(const Tensor& x, std::optional<double> low, std::optional<double> high = {}, Caller = Caller::here());
/// cond ? a : b, cond boolean; the three broadcast.
Tensor where(const Tensor& cond, const Operand& a, const Operand& b);
/// x, with `value` where the boolean mask is true; the mask broadcasts to x's shape.
Tensor masked_fill(const Tensor& x, const Tensor& mask, const Operand& value);
Tensor tril(const Tensor& x, Index diagonal = 0, Caller = Caller::here());  ///< 0 above the diagonal of the last two dims
Tensor triu(const Tensor& x, Index diagonal = 0, Caller = Caller::here());  ///< 0 below it

// Comparisons and logic, to boolean (autograd/ops/logic.cpp).

Tensor eq(const Tensor& a, const Operand& b);               ///< a == b; false beside NaN
Tensor ne(const Tensor& a, const Operand& b);               ///< a != b; true beside NaN
Tensor lt(const Tensor& a, const Operand& b);               ///< a < b; false beside NaN
Tensor le(const Tensor& a, const Operand& b);               ///< a <= b; false beside NaN
Tensor gt(const Tensor& a, const Operand& b);               ///< a > b; false beside NaN
Tensor ge(const Tensor& a, const Operand& b);               ///< a >= b; false beside NaN
Tensor isnan(const Tensor& x, Caller = Caller::here());     ///< false everywhere for i64 and boolean
Tensor isfinite(const Tensor& x, Caller = Caller::here());  ///< neither NaN nor infinite
Tensor operator&(const Tensor& a, const Operand& b);        ///< both; boolean only
Tensor operator|(const Tensor& a, const Operand& b);        ///< either or both; boolean only
Tensor operator!(const Located& x);                         ///< boolean only
/// Over the whole tensor, or over dims; any of nothing is false, all of nothing is true.
Tensor any(const Tensor& x, const Dims& dims = {}, bool keepdim = false, Caller = Caller::here());
/// As any: whether no element is false.
Tensor all(const Tensor& x, const Dims& dims = {}, bool keepdim = false, Caller = Caller::here());
/// Whether |a - b| <= atol + rtol |b| everywhere, as PyTorch has it: b is what is expected. NaN is close to nothing, an infinity to the same one.
/// Shapes broadcast (ShapeError), dtypes are equal (DTypeError), any of them; Error for a tolerance that is negative or NaN.
bool allclose(const Tensor& a, const Tensor& b, double rtol = 1e-5, double atol = 1e-8, Caller = Caller::here());

// Reductions (autograd/ops/reduce.cpp): over the whole tensor when `dims` is empty, to a tensor without dims or, with keepdim, with sizes of 1. What
// fits the dtype comes out right, gradients included, also where sums and squares on the way do not fit; so it does in layer_norm and the losses.

/// Also i64, which wraps as `+` does.
Tensor sum(const Tensor& x, const Dims& dims = {}, bool keepdim = false, Caller = Caller::here());
Tensor mean(const Tensor& x, const Dims& dims = {}, bool keepdim = false, Caller = Caller::here());  ///< NaN of nothing; f32 and f64
/// Values only; NaN if there is one. The first of equal elements gets the gradient. ShapeError over nothing. Also i64.
Tensor max(const Tensor& x, const Dims& dims = {}, bool keepdim = false, Caller = Caller::here());
/// As max, the smallest.
Tensor min(const Tensor& x, const Dims& dims = {}, bool keepdim = false, Caller = Caller::here());
/// sum (x - mean)^2 / (n - correction), NaN where that is 0 / 0.
Tensor var(const Tensor& x, const Dims& dims = {}, double correction = 1, bool keepdim = false, Caller = Caller::here());
/// log sum exp(x), computed around the maximum; -inf of nothing and of all -inf.
Tensor logsumexp(const Tensor& x, const Dims& dims = {}, bool keepdim = false, Caller = Caller::here());
/// sqrt(sum x^2); gradient 0 at 0.
Tensor norm(const Tensor& x, const Dims& dims = {}, bool keepdim = false, Caller = Caller::here());
/// Position of the first largest element along `dim`, or in the flattened tensor; i64. NaN counts as largest. ShapeError over nothing.
Tensor argmax(const Tensor& x, std::optional<Index> dim = {}, bool keepdim = false, Caller = Caller::here());

// Views and copies (autograd/ops/views.cpp, autograd/ops/join.cpp): views share storage with x.

/// Same elements in row-major order under another shape; one size may be -1. A view where the strides allow, else a copy. ShapeError quotes the
/// element count.
Tensor reshape(const Tensor& x, const Dims& shape, Caller = Caller::here());
/// Dims `start` to `end`, both included, as one: a reshape.
Tensor flatten(const Tensor& x, Index start = 0, Index end = -1, Caller = Caller::here());
Tensor transpose(const Tensor& x, Index a, Index b, Caller = Caller::here());  ///< two dims change places
Tensor permute(const Tensor& x, const Dims& order, Caller = Caller::here());   ///< dim i of the result is dim order[i] of x
/// Without the size-1 dim `dim` (itself when its size is not 1), or without all size-1 dims.
Tensor squeeze(const Tensor& x, std::optional<Index> dim = {}, Caller = Caller::here());
Tensor unsqueeze(const Tensor& x, Index dim, Caller = Caller::here());  ///< with a new dim of size 1 that becomes dim `dim`
/// Size-1 and missing leading dims repeated without copying; -1 keeps a size.
Tensor expand(const Tensor& x, const Dims& shape, Caller = Caller::here());
/// Elements start, start + step, ... before end along dim; negative counts from the end, out of range is clamped.
Tensor slice(const Tensor& x, Index dim, Index start, Index end, Index step = 1, Caller = Caller::here());
Tensor select(const Tensor& x, Index dim, Index i, Caller = Caller::here());  ///< what stands at i along dim, which goes; IndexError
/// Along an existing dim: the other sizes are equal.
Tensor cat(const std::vector<Tensor>& tensors, Index dim = 0, Caller = Caller::here());
/// Along a new dim: all shapes are equal.
Tensor stack(const std::vector<Tensor>& tensors, Index dim = 0, Caller = Caller::here());
/// Views of `size` elements along dim, the last one shorter where it does not divide.
std::vector<Tensor> split(const Tensor& x, Index size, Index dim = 0, Caller = Caller::here());
/// At most `count` views of equal size along dim, the last one shorter where it does not divide.
std::vector<Tensor> chunk(const Tensor& x, Index count, Index dim = 0, Caller = Caller::here());

// Products (autograd/ops/matmul.cpp).

/// (..., m, k) x (..., k, n) -> (..., m, n), batch dims broadcast; a 1-D operand is a row (left) or a column (right) whose dim is dropped from the
/// result. Sums over k = 0 are 0. da = dy b^T, db = a^T dy, summed over broadcast dims. Products are added in the operands' dtype: where one, or
/// a sum on the way, leaves its range, the result is infinite or NaN, also where the rest would have brought it back.
Tensor matmul(const Tensor& a, const Tensor& b, Caller = Caller::here());
/// x weight^T + bias: x (..., in), weight (out, in), bias (out) or absent -> (..., out).
Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias = {}, Caller = Caller::here());

// Normalization (autograd/ops/softmax.cpp, autograd/ops/layer_norm.cpp).

/// exp(x - max) / sum exp(x - max) along dim. A row of all -inf gives NaN, as in NumPy. dx = y (dy - sum y dy)
Tensor softmax(const Tensor& x, Index dim, Caller = Caller::here());
/// (x - max) - log sum exp(x - max) along dim. dx = dy - exp(y) sum dy
Tensor log_softmax(const Tensor& x, Index dim, Caller = Caller::here());
/// (x - mean) / sqrt(var + eps) * weight + bias over the trailing dims `normalized_shape`, var without Bessel's correction; weight and bias of that
/// shape, or absent. Ba, Kiros and Hinton, 2016.
Tensor layer_norm(const Tensor& x, const Dims& normalized_shape, const Tensor& weight = {}, const Tensor& bias = {}, double eps = 1e-5,
                  Caller = Caller::here());

// Look-up and noise (autograd/ops/lookup.cpp).

/// Rows of `weight` (n, d): ids of any shape (i64) -> (..., d). IndexError names a bad id and the table's size before anything is read.
Tensor embedding(const Tensor& ids, const Tensor& weight, Caller = Caller::here());
/// out[i][j] = x[index[i][j]][j] for dim 0, and so on: index (i64) has x's rank and at most its sizes in the other dims. IndexError for a bad index.
Tensor gather(const Tensor& x, Index dim, const Tensor& index, Caller = Caller::here());
/// Zero with probability p, else x / (1 - p); x itself when p = 0 or not training, then without drawing random numbers. What is dropped is exactly 0
/// whatever it was, an infinity or NaN too, in value and in gradients of every order. Error for p outside [0, 1].
Tensor dropout(const Tensor& x, double p, bool training, Caller = Caller::here());

// Losses (autograd/ops/loss.cpp).

/// What becomes of the losses of single elements.
enum class Reduction {
  none,  ///< they are returned
  mean,  ///< over those that count
  sum    ///< of them
};
/// Which targets count, and how.
struct CrossEntropyOptions {
  Reduction reduction = Reduction::mean;  ///< what becomes of the losses of single rows
  Index ignore_index = -100;              ///< targets of this value count neither in the sum nor in the mean
  double label_smoothing = 0;             ///< this share of the target is spread evenly over all classes
};
/// -log softmax(logits)[target] per row: logits (N, C) with targets (N), or (C) with a target without dims; targets i64. Mean is over the targets
/// that count: NaN when none does, with gradients of 0. IndexError for a target outside [0, C).
Tensor cross_entropy(const Tensor& logits, const Tensor& targets, CrossEntropyOptions = {}, Caller = Caller::here());
/// (a - b)^2, shapes equal; mean over all elements unless told otherwise.
Tensor mse_loss(const Tensor& a, const Tensor& b, Reduction = Reduction::mean, Caller = Caller::here());

namespace detail {

// Parts of the ops above that are ops themselves, so that every rule can be differentiated again.

/// The same elements as a new output: a slot of its own in the graph.
Tensor alias(const Tensor& x, Caller = Caller::here());
/// Sums over the dims along which `shape` broadcasts to x's.
Tensor sum_to(const Tensor& x, const Dims& shape, Caller = Caller::here());
/// Zeros of `shape` with x written at the slice: the derivative of slice.
Tensor slice_backward(const Tensor& x, const Dims& shape, Index dim, Index start, Index step, Caller = Caller::here());
/// Zeros of `shape` with every x[..., i, ...] added at index[..., i, ...] along dim: the derivative of gather.
Tensor scatter_add(const Tensor& x, const Dims& shape, Index dim, const Tensor& index, Caller = Caller::here());
/// Zeros (n, d) with every row of x (..., d) added at its id: the derivative of embedding.
Tensor embedding_backward(const Tensor& x, const Tensor& ids, Index n, Caller = Caller::here());
/// dropout in training with the random numbers from `state` on, whatever has been drawn since; 0 < p <= 1.
Tensor dropout_from(const Tensor& x, double p, const RngState& state, Caller = Caller::here());
/// Softmax over the last dim in which a row of all -inf gives zeros: attention to nothing.
Tensor softmax_or_zero(const Tensor& x, Caller = Caller::here());

}  // namespace detail
}  // namespace heed
