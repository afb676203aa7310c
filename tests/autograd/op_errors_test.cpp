#include <gmock/gmock.h>
#include <heed/autograd/attention.h>
#include <heed/autograd/ops.h>
#include <heed/tensor/kernels/sanitizers.h>

#include <cmath>
#include <functional>

#include "close.h"

// Misuse of every op: the right kind of exception, a text that begins with the op's name, has the values in it and ends with the line of the call,
// and nothing changed.

namespace heed::test {
namespace {

using testing::EndsWith;
using testing::HasSubstr;
using testing::StartsWith;

std::string called_at(int line) { return " (called at " __FILE__ ":" + std::to_string(line) + ")"; }

/// The op is called on the line that says what is expected, or on the line that is given.
template <class E>
struct ExpectError {
  void operator()(const std::string& op, const std::function<void()>& call, const std::vector<const char*>& parts,
                  int line = __builtin_LINE()) const {
    SCOPED_TRACE(op);
    const detail::MemoryCounters before = detail::memory_counters();
    const std::string text = thrown<E>(call);
    EXPECT_THAT(text, StartsWith(op + ": "));
    for (const char* part : parts) EXPECT_THAT(text, HasSubstr(part));
    EXPECT_THAT(text, EndsWith(called_at(line)));
    const detail::MemoryCounters after = detail::memory_counters();
    EXPECT_EQ(after.live_tensors, before.live_tensors);
    EXPECT_EQ(after.live_nodes, before.live_nodes);
  }
};
constexpr ExpectError<ShapeError> shape_error;
constexpr ExpectError<DTypeError> dtype_error;
constexpr ExpectError<IndexError> index_error;
constexpr ExpectError<Error> error;

/// A tensor that asks for gradients: misuse must not leave nodes behind.
Tensor floats(const Dims& shape) { return leaf(ones(shape)); }
Tensor doubles(const Dims& shape) { return leaf(ones(shape, f64)); }
Tensor whole(const Dims& shape) { return ones(shape, i64); }
Tensor truth(const Dims& shape) { return ones(shape, boolean); }

TEST(OpErrors, of_two_operands) {
  const std::pair<const char*, Tensor (*)(const Tensor&, const Operand&)> ops[] = {
      {"add", [](const Tensor& a, const Operand& b) { return a + b; }},
      {"sub", [](const Tensor& a, const Operand& b) { return a - b; }},
      {"mul", [](const Tensor& a, const Operand& b) { return a * b; }},
      {"div", [](const Tensor& a, const Operand& b) { return a / b; }},
      {"pow", [](const Tensor& a, const Operand& b) { return pow(a, b); }},
      {"maximum", [](const Tensor& a, const Operand& b) { return maximum(a, b); }},
      {"minimum", [](const Tensor& a, const Operand& b) { return minimum(a, b); }},
      {"eq", [](const Tensor& a, const Operand& b) { return eq(a, b); }},
      {"ne", [](const Tensor& a, const Operand& b) { return ne(a, b); }},
      {"lt", [](const Tensor& a, const Operand& b) { return lt(a, b); }},
      {"le", [](const Tensor& a, const Operand& b) { return le(a, b); }},
      {"gt", [](const Tensor& a, const Operand& b) { return gt(a, b); }},
      {"ge", [](const Tensor& a, const Operand& b) { return ge(a, b); }}};
  for (const auto& [name, f] : ops) {
    const std::string op = name;
    shape_error(op, [f = f] { (void)f(floats({2, 3}), floats({2, 4})); }, {"(2, 3)", "(2, 4)"});
    dtype_error(op, [f = f] { (void)f(floats({2}), doubles({2})); }, {"f32", "f64"});
    dtype_error(op, [f = f] { (void)f(whole({2}), floats({2})); }, {"i64", "f32"});
    error(op, [f = f] { (void)f(Tensor(), floats({2})); }, {"an undefined tensor"});
    error(op, [f = f] { (void)f(floats({2}), Tensor()); }, {"an undefined tensor"});
    const bool compares = op.size() == 2;
    if (!compares) dtype_error(op, [f = f] { (void)f(truth({2}), truth({2})); }, {"boolean"});
    if (op == "div" || op == "pow") dtype_error(op, [f = f] { (void)f(whole({2}), whole({2})); }, {"i64"});
  }
  dtype_error("&", [] { (void)(floats({2}) & truth({2})); }, {"boolean", "f32"});
  dtype_error("|", [] { (void)(truth({2}) | whole({2})); }, {"boolean", "i64"});
  dtype_error("!", [] { (void)!floats({2}); }, {"boolean", "f32"});
  shape_error("&", [] { (void)(truth({2}) & truth({3})); }, {"(2,)", "(3,)"});
  shape_error("allclose", [] { (void)allclose(floats({2}), floats({3})); }, {"(2,)", "(3,)"});
  dtype_error("allclose", [] { (void)allclose(floats({2}), doubles({2})); }, {"f32", "f64"});
  error("allclose", [] { (void)allclose(floats({2}), floats({2}), -1); }, {"-1"});
  error("allclose", [] { (void)allclose(floats({2}), floats({2}), 0, NAN); }, {"nan"});
  error("add", [] { (void)(1 + Tensor()); }, {"an undefined tensor"});
  error("neg", [] { (void)-Tensor(); }, {"an undefined tensor"});
  error("maximum", [] { (void)maximum(Tensor(), 0); }, {"an undefined tensor"});
}

TEST(OpErrors, of_two_dtypes_name_the_one_to_convert_to) {
  const Tensor f = floats({2}), d = doubles({2}), i = whole({2}), b = truth({2});
  dtype_error("add", [&] { (void)(f + d); }, {"dtypes differ: f32 and f64; convert one with .to(f64)"});
  dtype_error("add", [&] { (void)(d + f); }, {"dtypes differ: f64 and f32; convert one with .to(f64)"});
  dtype_error("add", [&] { (void)(i + f); }, {".to(f32)"});
  dtype_error("add", [&] { (void)(d + i); }, {".to(f64)"});
  dtype_error("add", [&] { (void)(b + i); }, {".to(i64)"});
  dtype_error("matmul", [&] { (void)matmul(doubles({2, 2}), floats({2, 2})); }, {".to(f64)"});
}

TEST(OpErrors, of_one_operand) {
  using Unary = Tensor (*)(const Tensor&, Caller);
  for (const auto& [name, f] : {std::pair<const char*, Unary>{"exp", exp},
                                {"log", log},
                                {"log1p", log1p},
                                {"sqrt", sqrt},
                                {"rsqrt", rsqrt},
                                {"tanh", tanh},
                                {"sigmoid", sigmoid},
                                {"silu", silu}}) {
    dtype_error(name, [f = f] { (void)f(whole({2}), Caller::here()); }, {"i64"});
    dtype_error(name, [f = f] { (void)f(truth({2}), Caller::here()); }, {"boolean"});
    error(name, [f = f] { (void)f(Tensor(), Caller::here()); }, {"an undefined tensor"});
  }
  for (const auto& [name, f] : {std::pair<const char*, Unary>{"square", square}, {"abs", abs}, {"relu", relu}}) {
    dtype_error(name, [f = f] { (void)f(truth({2}), Caller::here()); }, {"boolean"});
    EXPECT_EQ(f(whole({2}), {}).dtype(), i64);
  }
  dtype_error("neg", [] { (void)-truth({2}); }, {"boolean"});
  dtype_error("gelu", [] { (void)gelu(whole({2})); }, {"i64"});
}

TEST(OpErrors, of_choosing) {
  dtype_error("where", [] { (void)where(floats({2}), floats({2}), 0); }, {"boolean", "f32"});
  dtype_error("where", [] { (void)where(truth({2}), floats({2}), doubles({2})); }, {"f32", "f64"});
  dtype_error("where", [] { (void)where(truth({2}), 1, 0); }, {"tensor"});
  shape_error("where", [] { (void)where(truth({2}), floats({3}), 0); }, {"(2,)", "(3,)"});
  dtype_error("masked_fill", [] { (void)masked_fill(floats({2}), floats({2}), 0); }, {"boolean", "f32", "eq(mask, 0)"});
  dtype_error("masked_fill", [] { (void)masked_fill(floats({2}), truth({2}), doubles({})); }, {"f32", "f64"});
  shape_error("masked_fill", [] { (void)masked_fill(floats({2}), truth({3}), 0); }, {"(3,)", "(2,)"});
  shape_error("masked_fill", [] { (void)masked_fill(floats({2}), truth({4, 2}), 0); }, {"(4, 2)", "(2,)"});
  shape_error("masked_fill", [] { (void)masked_fill(floats({2}), truth({2}), floats({2})); }, {"2 elements"});
  error("clamp", [] { (void)clamp(floats({2}), 1, -1); }, {"1", "-1"});
  error("clamp", [] { (void)clamp(floats({2}), NAN, 1); }, {"nan"});
  dtype_error("clamp", [] { (void)clamp(whole({2}), 0, 1); }, {"i64"});
  shape_error("tril", [] { (void)tril(floats({3})); }, {"(3,)"});
  shape_error("triu", [] { (void)triu(floats({})); }, {"()"});
}

TEST(OpErrors, of_reductions) {
  using Reduction = Tensor (*)(const Tensor&, const Dims&, bool, Caller);
  const auto variance = [](const Tensor& x, const Dims& dims, bool keepdim, Caller caller) { return var(x, dims, 1, keepdim, caller); };
  for (const auto& [name, f] : {std::pair<const char*, Reduction>{"sum", sum},
                                {"mean", mean},
                                {"max", max},
                                {"min", min},
                                {"var", variance},
                                {"logsumexp", logsumexp},
                                {"norm", norm}}) {
    shape_error(name, [f = f] { (void)f(floats({2, 3}), 2, false, Caller::here()); }, {"dim 2", "[-2, 1]", "(2, 3)"});
    shape_error(name, [f = f] { (void)f(floats({2, 3}), -3, false, Caller::here()); }, {"dim -3"});
    shape_error(name, [f = f] { (void)f(floats({2, 3}), {0, -2}, false, Caller::here()); }, {"twice"});
    dtype_error(name, [f = f] { (void)f(truth({2}), {}, false, Caller::here()); }, {"boolean"});
    error(name, [f = f] { (void)f(Tensor(), {}, false, Caller::here()); }, {"an undefined tensor"});
  }
  for (const auto& [name, f] : {std::pair<const char*, Reduction>{"mean", mean}, {"var", variance}, {"logsumexp", logsumexp}, {"norm", norm}})
    dtype_error(name, [f = f] { (void)f(whole({2}), {}, false, Caller::here()); }, {"i64"});
  for (const auto& [name, f] : {std::pair<const char*, Reduction>{"any", any}, {"all", all}}) {
    dtype_error(name, [f = f] { (void)f(floats({2}), {}, false, Caller::here()); }, {"boolean", "f32"});
    shape_error(name, [f = f] { (void)f(truth({2}), 1, false, Caller::here()); }, {"dim 1"});
  }
  shape_error("max", [] { (void)max(floats({0, 3}), 0); }, {"(0, 3)"});
  shape_error("argmax", [] { (void)argmax(floats({0})); }, {"(0,)"});
  shape_error("argmax", [] { (void)argmax(floats({2}), 1); }, {"dim 1"});
  dtype_error("argmax", [] { (void)argmax(truth({2})); }, {"boolean"});
}

TEST(OpErrors, of_views) {
  shape_error("reshape", [] { (void)reshape(floats({2, 3}), {4}); }, {"6", "(4,)"});
  shape_error("flatten", [] { (void)flatten(floats({2, 3}), 1, 0); }, {"1", "0"});
  shape_error("flatten", [] { (void)flatten(floats({2, 3}), 2); }, {"dim 2"});
  shape_error("transpose", [] { (void)transpose(floats({2, 3}), 0, 2); }, {"dim 2", "(2, 3)"});
  shape_error("permute", [] { (void)permute(floats({2, 3}), {0, 0}); }, {"twice"});
  shape_error("permute", [] { (void)permute(floats({2, 3}), {0}); }, {"(0,)", "(2, 3)"});
  shape_error("permute", [] { (void)permute(floats({2, 3}), {0, 2}); }, {"dim 2"});
  shape_error("squeeze", [] { (void)squeeze(floats({2, 3}), 2); }, {"dim 2"});
  shape_error("unsqueeze", [] { (void)unsqueeze(floats({2, 3}), 3); }, {"dim 3"});
  shape_error("expand", [] { (void)expand(floats({2, 3}), {2, 4}); }, {"(2, 3)", "(2, 4)"});
  shape_error("expand", [] { (void)expand(floats({3}), {-1, 3}); }, {"(3,)"});
  shape_error("expand", [] { (void)expand(floats({2, 3}), 3); }, {"(2, 3)"});
  shape_error("expand", [] { (void)expand(floats({1}), {Index{1} << 40, Index{1} << 40}); }, {"elements"});
  shape_error("slice", [] { (void)slice(floats({3}), 0, 0, 2, 0); }, {"step 0"});
  shape_error("slice", [] { (void)slice(floats({3}), 1, 0, 2); }, {"dim 1"});
  shape_error("slice", [] { (void)slice(floats({}), 0, 0, 2); }, {"0-d"});
  index_error("select", [] { (void)select(floats({3}), 0, 3); }, {"3", "(3,)"});
  index_error("select", [] { (void)select(floats({3}), 0, -4); }, {"-4"});
  index_error("select", [] { (void)floats({3})[5]; }, {"5"});
  index_error("select", [] { (void)floats({})[0]; }, {"0-d"});
  for (const auto& [name, f] : {std::pair<const char*, Tensor (*)(const Tensor&, Caller)>{
                                    "transpose", [](const Tensor&x, Caller caller) { return transpose(x, 0, 0, caller); }},
                                {"permute", [](const Tensor&x, Caller caller) { return permute(x, {}, caller); }},
                                {"squeeze", [](const Tensor&x, Caller caller) { return squeeze(x, {}, caller); }},
                                {"expand", [](const Tensor&x, Caller caller) { return expand(x, {}, caller); }},
                                {"reshape", [](const Tensor&x, Caller caller) { return reshape(x, {}, caller); }},
                                {"unsqueeze", [](const Tensor&x, Caller caller) { return unsqueeze(x, 0, caller); }},
                                {"slice", [](const Tensor&x, Caller caller) { return slice(x, 0, 0, 1, 1, caller); }},
                                {"select", [](const Tensor&x, Caller caller) { return select(x, 0, 0, caller); }},
                                {"flatten", [](const Tensor&x, Caller caller) { return flatten(x, 0, -1, caller); }},
                                {"to", [](const Tensor&x, Caller caller) { return x.to(f64, caller); }},
                                {"clone", [](const Tensor&x, Caller caller) { return x.clone(caller); }},
                                {"contiguous", [](const Tensor&x, Caller caller) { return x.contiguous(caller); }}})
    error(name, [f = f] { (void)f(Tensor(), Caller::here()); }, {"an undefined tensor", "no backward has reached"});
  shape_error("unsqueeze", [] { (void)unsqueeze(floats({1, 1, 1, 1, 1, 1, 1, 1}), 0); }, {"at most 8 dims", "(1, 1, 1, 1, 1, 1, 1, 1)"});
}

TEST(OpErrors, of_joining) {
  shape_error("cat", [] { (void)cat({}); }, {});
  shape_error("cat", [] { (void)cat({floats({2, 3}), floats({2, 4})}); }, {"(2, 3)", "(2, 4)", "tensor 1"});
  shape_error("cat", [] { (void)cat({floats({2, 3}), floats({2})}); }, {"(2,)"});
  shape_error("cat", [] { (void)cat({floats({})}); }, {"stack"});
  shape_error("cat", [] { (void)cat({floats({2}), floats({2})}, 1); }, {"dim 1"});
  dtype_error("cat", [] { (void)cat({floats({2}), doubles({2})}); }, {"f32", "f64"});
  error("cat", [] { (void)cat({floats({2}), Tensor()}); }, {"an undefined tensor"});
  error("cat", [] { (void)cat({Tensor()}); }, {"an undefined tensor"});
  shape_error("stack", [] { (void)stack({}); }, {});
  shape_error("stack", [] { (void)stack({floats({2}), floats({3})}); }, {"(2,)", "(3,)"});
  error("stack", [] { (void)stack({floats({2}), Tensor()}); }, {"an undefined tensor"});
  shape_error("split", [] { (void)split(floats({4}), 0); }, {"0"});
  shape_error("split", [] { (void)split(floats({4}), 2, 1); }, {"dim 1"});
  shape_error("split", [] { (void)split(floats({}), 2); }, {"0-d"});
  shape_error("split", [] { (void)split(floats({70'000}), 1); }, {"70000", "65535"});
  shape_error("chunk", [] { (void)chunk(floats({4}), -1); }, {"-1"});
  shape_error("chunk", [] { (void)chunk(floats({}), 2); }, {"0-d"});
}

TEST(OpErrors, of_products) {
  shape_error("matmul", [] { (void)matmul(floats({2, 3}), floats({2, 3})); }, {"(2, 3)", "3", "2"});
  shape_error("matmul", [] { (void)matmul(floats({2, 3}), floats({4})); }, {"(2, 3)", "(4,)"});
  shape_error("matmul", [] { (void)matmul(floats({}), floats({4})); }, {"()"});
  shape_error("matmul", [] { (void)matmul(floats({2, 1, 3}), floats({4, 3, 1})); }, {"(2,)", "(4,)"});
  dtype_error("matmul", [] { (void)matmul(floats({2, 2}), doubles({2, 2})); }, {"f32", "f64"});
  dtype_error("matmul", [] { (void)matmul(whole({2, 2}), whole({2, 2})); }, {"i64"});
  error("matmul", [] { (void)matmul(Tensor(), floats({2, 2})); }, {"an undefined tensor"});
  shape_error("linear", [] { (void)linear(floats({2, 3}), floats({4, 2})); }, {"(2, 3)", "(4, 2)"});
  shape_error("linear", [] { (void)linear(floats({2, 3}), floats({3})); }, {"(3,)"});
  shape_error("linear", [] { (void)linear(floats({2, 3}), floats({4, 3}), floats({3})); }, {"(3,)", "4"});
  shape_error("linear", [] { (void)linear(floats({}), floats({4, 3})); }, {"()"});
  dtype_error("linear", [] { (void)linear(floats({2, 3}), doubles({4, 3})); }, {"f32", "f64"});
  dtype_error("linear", [] { (void)linear(floats({2, 3}), floats({4, 3}), doubles({4})); }, {"f32", "f64"});
  dtype_error("linear", [] { (void)linear(whole({2, 3}), whole({4, 3})); }, {"i64"});
}

TEST(OpErrors, of_normalization) {
  for (const auto& [name, f] : {std::pair{"softmax", &softmax}, {"log_softmax", &log_softmax}}) {
    shape_error(name, [f = f] { (void)f(floats({2, 3}), 2, Caller::here()); }, {"dim 2", "[-2, 1]"});
    dtype_error(name, [f = f] { (void)f(whole({2}), 0, Caller::here()); }, {"i64"});
    error(name, [f = f] { (void)f(Tensor(), 0, Caller::here()); }, {"an undefined tensor"});
  }
  shape_error("layer_norm", [] { (void)layer_norm(floats({2, 3}), 4); }, {"(2, 3)", "(4,)"});
  shape_error("layer_norm", [] { (void)layer_norm(floats({3}), {2, 3}); }, {"(3,)", "(2, 3)"});
  shape_error("layer_norm", [] { (void)layer_norm(floats({3}), {}); }, {"(3,)"});
  shape_error("layer_norm", [] { (void)layer_norm(floats({2, 3}), 3, floats({2})); }, {"weight", "(2,)", "(3,)"});
  shape_error("layer_norm", [] { (void)layer_norm(floats({2, 3}), 3, {}, floats({2})); }, {"bias", "(2,)"});
  dtype_error("layer_norm", [] { (void)layer_norm(floats({2, 3}), 3, doubles({3})); }, {"f32", "f64"});
  dtype_error("layer_norm", [] { (void)layer_norm(whole({2, 3}), 3); }, {"i64"});
}

TEST(OpErrors, of_looking_up) {
  shape_error("embedding", [] { (void)embedding(whole({2}), floats({4})); }, {"(4,)"});
  dtype_error("embedding", [] { (void)embedding(floats({2}), floats({4, 2})); }, {"i64", "f32"});
  index_error("embedding", [] { (void)embedding(whole({2}) * 4, floats({4, 2})); }, {"4"});
  index_error("embedding", [] { (void)embedding(whole({2}), floats({0, 2})); }, {"1", "0"});
  error("embedding", [] { (void)embedding(Tensor(), floats({4, 2})); }, {"an undefined tensor"});
  shape_error("gather", [] { (void)gather(floats({2, 3}), 0, whole({2})); }, {"(2,)", "(2, 3)"});
  shape_error("gather", [] { (void)gather(floats({2, 3}), 0, whole({2, 4})); }, {"(2, 4)", "(2, 3)"});
  shape_error("gather", [] { (void)gather(floats({2, 3}), 2, whole({2, 3})); }, {"dim 2"});
  shape_error("gather", [] { (void)gather(floats({}), 0, whole({})); }, {"0-d"});
  index_error("gather", [] { (void)gather(floats({2, 3}), 0, whole({1, 3}) * 2); }, {"2"});
  dtype_error("gather", [] { (void)gather(floats({2, 3}), 0, floats({2, 3})); }, {"i64"});
  error("dropout", [] { (void)dropout(floats({2}), 1.5, true); }, {"1.5"});
  error("dropout", [] { (void)dropout(floats({2}), -0.5, false); }, {"-0.5"});
  dtype_error("dropout", [] { (void)dropout(whole({2}), 0.5, true); }, {"i64"});
}

TEST(OpErrors, of_attention) {
  const auto attend = [](const Tensor& q, const AttentionOptions& o, Caller caller) { (void)scaled_dot_product_attention(q, q, q, o, caller); };
  for (Kernel k : {Kernel::composed, Kernel::tiled}) {
    const char* op = "scaled_dot_product_attention";
    shape_error(op, [=] { attend(floats({3}), {.kernel = k}, Caller::here()); }, {"(3,)"});
    error(op, [=] { attend(Tensor(), {.kernel = k}, Caller::here()); }, {"an undefined tensor"});
    error(op, [=] { attend(floats({2, 3}), {.dropout_p = 2, .kernel = k}, Caller::here()); }, {"2"});
    shape_error(op, [=] { attend(floats({2, 3}), {.mask = truth({3, 3}), .kernel = k}, Caller::here()); }, {"(3, 3)"});
    dtype_error(op, [=] { attend(floats({2, 3}), {.mask = Mask::bias(doubles({2, 2})), .kernel = k}, Caller::here()); }, {".to(f32)"});
  }
  error("Mask", [] { (void)Mask::causal(2).at(3, Caller::here()); }, {"2", "3"});
}

TEST(OpErrors, of_too_little_memory) {
#ifdef HEED_ADDRESS_SANITIZER
  GTEST_SKIP() << "the sanitizer ends the program";
#endif
  // 2^53 bytes from inputs of one element.
  const Tensor column = expand(ones({1, 1}), {Index{1} << 24, 1}), row = expand(ones({1, 1}), {1, Index{1} << 27});
  error("add", [&] { (void)(column + row); }, {"no memory for 9007199254740992 bytes", "(16777216, 134217728)"});
  error("matmul", [&] { (void)matmul(column, row); }, {"no memory for 9007199254740992 bytes"});
  error("eq", [&] { (void)eq(column, row); }, {"no memory for 2251799813685248 bytes"});
}

TEST(OpErrors, of_losses) {
  shape_error("cross_entropy", [] { (void)cross_entropy(floats({2, 3}), whole({3})); }, {"(3,)", "(2, 3)"});
  shape_error("cross_entropy", [] { (void)cross_entropy(floats({}), whole({})); }, {"()"});
  shape_error("cross_entropy", [] { (void)cross_entropy(floats({2, 3, 4}), whole({2, 3})); }, {"(2, 3, 4)"});
  dtype_error("cross_entropy", [] { (void)cross_entropy(floats({2, 3}), floats({2})); }, {"i64", "f32"});
  dtype_error("cross_entropy", [] { (void)cross_entropy(whole({2, 3}), whole({2})); }, {"i64"});
  index_error("cross_entropy", [] { (void)cross_entropy(floats({2, 3}), whole({2}) * 3); }, {"3"});
  error("cross_entropy", [] { (void)cross_entropy(floats({2, 3}), whole({2}), {.label_smoothing = 1.5}); }, {"1.5"});
  shape_error("mse_loss", [] { (void)mse_loss(floats({2}), floats({3})); }, {"(2,)", "(3,)"});
  shape_error("mse_loss", [] { (void)mse_loss(floats({2, 1}), floats({2})); }, {"(2, 1)", "(2,)"});
  dtype_error("mse_loss", [] { (void)mse_loss(floats({2}), doubles({2})); }, {"f32", "f64"});
}

}  // namespace
}  // namespace heed::test
