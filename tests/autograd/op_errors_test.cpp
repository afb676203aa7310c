#include <gmock/gmock.h>
#include <heed/autograd/ops.h>

#include <cmath>
#include <functional>

#include "close.h"

// Misuse of every op: the right kind of exception, a text that begins with the op's name and has the values in it, and nothing changed.

namespace heed::test {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

template <class E>
void expect_error(const std::string& op, const std::function<void()>& call, const std::vector<const char*>& parts) {
  SCOPED_TRACE(op);
  const detail::MemoryCounters before = detail::memory_counters();
  const std::string text = thrown<E>(call);
  EXPECT_THAT(text, StartsWith(op + ": "));
  for (const char* part : parts) EXPECT_THAT(text, HasSubstr(part));
  const detail::MemoryCounters after = detail::memory_counters();
  EXPECT_EQ(after.live_tensors, before.live_tensors);
  EXPECT_EQ(after.live_nodes, before.live_nodes);
}
constexpr auto shape_error = expect_error<ShapeError>;
constexpr auto dtype_error = expect_error<DTypeError>;
constexpr auto index_error = expect_error<IndexError>;
constexpr auto error = expect_error<Error>;

/// A tensor that asks for gradients: misuse must not leave nodes behind.
Tensor floats(const Dims& shape) { return leaf(ones(shape)); }
Tensor doubles(const Dims& shape) { return leaf(ones(shape, f64)); }
Tensor whole(const Dims& shape) { return ones(shape, i64); }
Tensor truth(const Dims& shape) { return ones(shape, boolean); }

TEST(OpErrors, of_two_operands) {
  const std::pair<const char*, Tensor (*)(const Tensor&, const Tensor&)> ops[] = {
      {"add", [](const Tensor& a, const Tensor& b) { return a + b; }},
      {"sub", [](const Tensor& a, const Tensor& b) { return a - b; }},
      {"mul", [](const Tensor& a, const Tensor& b) { return a * b; }},
      {"div", [](const Tensor& a, const Tensor& b) { return a / b; }},
      {"pow", [](const Tensor& a, const Tensor& b) { return pow(a, b); }},
      {"maximum", [](const Tensor& a, const Tensor& b) { return maximum(a, b); }},
      {"minimum", [](const Tensor& a, const Tensor& b) { return minimum(a, b); }},
      {"eq", [](const Tensor& a, const Tensor& b) { return eq(a, b); }},
      {"ne", [](const Tensor& a, const Tensor& b) { return ne(a, b); }},
      {"lt", [](const Tensor& a, const Tensor& b) { return lt(a, b); }},
      {"le", [](const Tensor& a, const Tensor& b) { return le(a, b); }},
      {"gt", [](const Tensor& a, const Tensor& b) { return gt(a, b); }},
      {"ge", [](const Tensor& a, const Tensor& b) { return ge(a, b); }}};
  for (const auto& [name, f] : ops) {
    const std::string op = name;
    shape_error(op, [f = f] { (void)f(floats({2, 3}), floats({2, 4})); }, {"(2, 3)", "(2, 4)"});
    dtype_error(op, [f = f] { (void)f(floats({2}), doubles({2})); }, {"f32", "f64"});
    dtype_error(op, [f = f] { (void)f(whole({2}), floats({2})); }, {"i64", "f32"});
    error(op, [f = f] { (void)f(Tensor(), floats({2})); }, {"undefined"});
    error(op, [f = f] { (void)f(floats({2}), Tensor()); }, {"undefined"});
    const bool compares = op.size() == 2;
    if (!compares) dtype_error(op, [f = f] { (void)f(truth({2}), truth({2})); }, {"boolean"});
    if (op == "div" || op == "pow") dtype_error(op, [f = f] { (void)f(whole({2}), whole({2})); }, {"i64"});
  }
  dtype_error("&", [] { (void)(floats({2}) & truth({2})); }, {"boolean", "f32"});
  dtype_error("|", [] { (void)(truth({2}) | whole({2})); }, {"boolean", "i64"});
  dtype_error("!", [] { (void)!floats({2}); }, {"boolean", "f32"});
  shape_error("&", [] { (void)(truth({2}) & truth({3})); }, {"(2,)", "(3,)"});
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
                                {"silu", silu},
                                {"erf", detail::erf}}) {
    dtype_error(name, [f = f] { (void)f(whole({2}), {}); }, {"i64"});
    dtype_error(name, [f = f] { (void)f(truth({2}), {}); }, {"boolean"});
    error(name, [f = f] { (void)f(Tensor(), {}); }, {"undefined"});
  }
  for (const auto& [name, f] : {std::pair<const char*, Unary>{"square", square}, {"abs", abs}, {"relu", relu}}) {
    dtype_error(name, [f = f] { (void)f(truth({2}), {}); }, {"boolean"});
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
  const auto variance = [](const Tensor& x, const Dims& dims, bool keepdim, Caller) { return var(x, dims, 1, keepdim); };
  for (const auto& [name, f] : {std::pair<const char*, Reduction>{"sum", sum},
                                {"mean", mean},
                                {"max", max},
                                {"min", min},
                                {"var", variance},
                                {"logsumexp", logsumexp},
                                {"norm", norm}}) {
    shape_error(name, [f = f] { (void)f(floats({2, 3}), 2, false, {}); }, {"dim 2", "[-2, 1]", "(2, 3)"});
    shape_error(name, [f = f] { (void)f(floats({2, 3}), -3, false, {}); }, {"dim -3"});
    shape_error(name, [f = f] { (void)f(floats({2, 3}), {0, -2}, false, {}); }, {"twice"});
    dtype_error(name, [f = f] { (void)f(truth({2}), {}, false, {}); }, {"boolean"});
    error(name, [f = f] { (void)f(Tensor(), {}, false, {}); }, {"undefined"});
  }
  for (const auto& [name, f] : {std::pair<const char*, Reduction>{"mean", mean}, {"var", variance}, {"logsumexp", logsumexp}, {"norm", norm}})
    dtype_error(name, [f = f] { (void)f(whole({2}), {}, false, {}); }, {"i64"});
  for (const auto& [name, f] : {std::pair<const char*, Reduction>{"any", any}, {"all", all}}) {
    dtype_error(name, [f = f] { (void)f(floats({2}), {}, false, {}); }, {"boolean", "f32"});
    shape_error(name, [f = f] { (void)f(truth({2}), 1, false, {}); }, {"dim 1"});
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
  for (const auto& [name, f] :
       {std::pair<const char*, std::function<Tensor(const Tensor&)>>{"transpose", [](const Tensor& x) { return transpose(x, 0, 0); }},
        {"permute", [](const Tensor& x) { return permute(x, {}); }},
        {"squeeze", [](const Tensor& x) { return squeeze(x); }},
        {"expand", [](const Tensor& x) { return expand(x, {}); }},
        {"reshape", [](const Tensor& x) { return reshape(x, {}); }},
        {"unsqueeze", [](const Tensor& x) { return unsqueeze(x, 0); }},
        {"slice", [](const Tensor& x) { return slice(x, 0, 0, 1); }},
        {"select", [](const Tensor& x) { return select(x, 0, 0); }},
        {"flatten", [](const Tensor& x) { return flatten(x); }}})
    EXPECT_THAT(thrown<Error>([f = f] { (void)f(Tensor()); }), HasSubstr("undefined")) << name;
  EXPECT_THROW((void)unsqueeze(floats({1, 1, 1, 1, 1, 1, 1, 1}), 0), ShapeError) << "rank 9";
}

TEST(OpErrors, of_joining) {
  shape_error("cat", [] { (void)cat({}); }, {});
  shape_error("cat", [] { (void)cat({floats({2, 3}), floats({2, 4})}); }, {"(2, 3)", "(2, 4)", "tensor 1"});
  shape_error("cat", [] { (void)cat({floats({2, 3}), floats({2})}); }, {"(2,)"});
  shape_error("cat", [] { (void)cat({floats({})}); }, {"stack"});
  shape_error("cat", [] { (void)cat({floats({2}), floats({2})}, 1); }, {"dim 1"});
  dtype_error("cat", [] { (void)cat({floats({2}), doubles({2})}); }, {"f32", "f64"});
  error("cat", [] { (void)cat({floats({2}), Tensor()}); }, {"undefined"});
  error("cat", [] { (void)cat({Tensor()}); }, {"undefined"});
  shape_error("stack", [] { (void)stack({}); }, {});
  shape_error("stack", [] { (void)stack({floats({2}), floats({3})}); }, {"(2,)", "(3,)"});
  error("stack", [] { (void)stack({floats({2}), Tensor()}); }, {"undefined"});
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
  error("matmul", [] { (void)matmul(Tensor(), floats({2, 2})); }, {"undefined"});
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
    shape_error(name, [f = f] { (void)f(floats({2, 3}), 2, {}); }, {"dim 2", "[-2, 1]"});
    dtype_error(name, [f = f] { (void)f(whole({2}), 0, {}); }, {"i64"});
    error(name, [f = f] { (void)f(Tensor(), 0, {}); }, {"undefined"});
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
  error("embedding", [] { (void)embedding(Tensor(), floats({4, 2})); }, {"undefined"});
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
