#include "support.h"

// The encoder layer: against PyTorch, names and start, gradients, masks and caches, and what is refused.

namespace heed {
namespace {

using test::Golden;
using test::message_of;
using test::near;
using test::values;
using Layer = nn::TransformerEncoderLayer;
using Options = nn::TransformerEncoderLayerOptions;

/// In f64, with no part at its start, so that everything counts.
Layer in_f64(Index d_model, Index nhead, const Options& options) {
  Layer m(d_model, nhead, options);
  nn::to(m, f64);
  const NoGrad off;
  for (auto& [name, p] : nn::named_parameters(m)) Tensor(p).copy_(p + 0.3 * randn(p.shape(), f64));
  return m;
}

class EncoderLayerFloats : public ::testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(EncoderLayer, EncoderLayerFloats, ::testing::Values(f32, f64), [](const auto& p) { return p.param == f32 ? "f32" : "f64"; });

TEST_P(EncoderLayerFloats, MatchesPyTorch) {
  const DType dtype = GetParam();
  const double tol = test::tolerance(dtype);
  for (const char* file : {"pre_relu", "pre_gelu", "post_relu", "post_gelu"}) {
    SCOPED_TRACE(file);
    const Golden golden(std::string("encoder_layer_") + file);
    const bool is_relu = golden.text("activation") == "relu";
    Layer m(golden.get("x").size(-1), static_cast<Index>(golden.number("nhead")),
            {.dim_feedforward = golden.get("param.linear1.weight").size(0),
             .dropout = 0,
             .activation = is_relu ? nn::Activation::relu : nn::Activation::gelu,
             .norm_first = golden.text("norm_first") == "True"});
    nn::to(m, dtype);
    std::map<std::string, Tensor> state;
    for (const auto& [name, p] : nn::named_parameters(m)) state[name] = golden.get("param." + name);
    nn::load_state_dict(m, state);
    ASSERT_EQ(golden.text("causal"), "True");
    Tensor x = golden.get("x", dtype).clone().requires_grad_();
    const Tensor out = m(x, Mask::causal());
    EXPECT_TRUE(near(out, golden.get("out"), tol));
    sum(out * golden.get("g", dtype)).backward();
    EXPECT_TRUE(near(x.grad(), golden.get("dx"), tol));
    EXPECT_TRUE(nn::missing_grads(m).empty());
    for (const auto& [name, p] : nn::named_parameters(m)) EXPECT_TRUE(near(p.grad(), golden.get("grad." + name), tol)) << name;
  }
}

TEST(EncoderLayer, HasPyTorchsNames) {
  const Layer m(4, 2, {.dim_feedforward = 6});
  EXPECT_EQ(test::listed(m),
            (std::vector<std::string>{"self_attn.in_proj_weight (12, 4)", "self_attn.in_proj_bias (12,)", "self_attn.out_proj.weight (4, 4)",
                                      "self_attn.out_proj.bias (4,)", "linear1.weight (6, 4)", "linear1.bias (6,)", "linear2.weight (4, 6)",
                                      "linear2.bias (4,)", "norm1.weight (4,)", "norm1.bias (4,)", "norm2.weight (4,)", "norm2.bias (4,)"}));
  EXPECT_EQ(Layer(4, 2).linear1.weight.shape(), (Dims{2048, 4}));
  EXPECT_EQ(Layer(4, 2).dropout.p, 0.1);
  EXPECT_EQ(Layer(4, 2).self_attn.dropout, 0.1);
  EXPECT_EQ(Layer(4, 2).activation, nn::Activation::relu);
  EXPECT_FALSE(Layer(4, 2).norm_first);
}

TEST(EncoderLayer, GradientsOfInputAndEveryParameter) {
  manual_seed(1);
  for (const bool first : {false, true})
    for (const nn::Activation activation : {nn::Activation::relu, nn::Activation::gelu}) {
      const Layer m = in_f64(6, 2, {.dim_feedforward = 5, .dropout = 0, .activation = activation, .norm_first = first});
      Tensor x = randn({2, 3, 6}, f64).requires_grad_();
      NamedTensors inputs = nn::named_parameters(m);
      inputs.emplace_back("x", x);
      const auto out = [&] { return m(x, Mask::causal()); };
      for (const GradcheckMode& mode : {GradcheckMode::directional(), GradcheckMode::sampled(8)}) {
        const GradcheckReport report = gradcheck(out, inputs, {.mode = mode});
        EXPECT_TRUE(report.ok) << report.message;
      }
      const GradcheckReport second = gradgradcheck(out, inputs, {.mode = GradcheckMode::directional(1)});
      EXPECT_TRUE(second.ok) << second.message;
    }
}

TEST(EncoderLayer, F32IsF64Rounded) {
  manual_seed(2);
  for (const bool first : {false, true}) {
    const Layer exact = in_f64(8, 4, {.dim_feedforward = 12, .dropout = 0, .activation = nn::Activation::gelu, .norm_first = first});
    Layer m = nn::clone(exact);
    nn::to(m, f32);
    Tensor x = randn({2, 7, 8}, f64).requires_grad_(), y = x.detach().to(f32).clone().requires_grad_();
    const Tensor g = randn({2, 7, 8}, f64);
    const Tensor want = exact(x, Mask::causal()), got = m(y, Mask::causal());
    EXPECT_TRUE(near(got, want, 1e-5));
    sum(want * g).backward();
    sum(got * g.to(f32)).backward();
    EXPECT_TRUE(near(y.grad(), x.grad(), 2e-5));
    const auto wanted = nn::named_parameters(exact);
    std::size_t i = 0;
    for (const auto& [name, p] : nn::named_parameters(m)) EXPECT_TRUE(near(p.grad(), wanted[i++].second.grad(), 5e-5)) << name;
  }
}

TEST(EncoderLayer, IsCausalAndCachesUnderACausalMask) {
  manual_seed(3);
  for (const bool first : {false, true}) {
    const Layer m = in_f64(6, 2, {.dim_feedforward = 5, .dropout = 0, .norm_first = first});
    const Tensor x = randn({2, 6, 6}, f64);
    const auto report = nn::check_causality([&](const Tensor& t) { return m(t, Mask::causal()); }, x);
    EXPECT_TRUE(report.ok) << report.message;
    EXPECT_FALSE(nn::check_causality([&](const Tensor& t) { return m(t); }, x).ok) << "without a mask every position sees all";
    const auto cached = nn::check_cache_equivalence(m, x);
    EXPECT_TRUE(cached.ok) << cached.message;
  }
}

TEST(EncoderLayer, TakesOneSequenceAndPaddedBatches) {
  manual_seed(4);
  const Layer m = in_f64(6, 2, {.dim_feedforward = 5, .dropout = 0});
  const Tensor x = randn({2, 5, 6}, f64);
  EXPECT_TRUE(near(m(x[0]), m(x)[0], 1e-12));
  // What stands behind the end of a sequence changes nothing in front of it.
  const Mask lengths = Mask::lengths({5, 3});
  const Tensor short_one = m(slice(x[1], 0, 0, 3));
  EXPECT_TRUE(near(slice(m(x, lengths)[1], 0, 0, 3), short_one, 1e-12));
}

TEST(EncoderLayer, DropsInTrainingOnly) {
  manual_seed(5);
  Layer m(6, 2, {.dim_feedforward = 5, .dropout = 0.5});
  const Tensor x = randn({2, 5, 6});
  EXPECT_NE(values(m(x)), values(m(x)));
  nn::train(m, false);
  EXPECT_EQ(values(m(x)), values(m(x)));
  for (bool* place : {&m.self_attn.training, &m.dropout.training, &m.dropout1.training, &m.dropout2.training}) {
    *place = true;
    EXPECT_NE(values(m(x)), values(m(x))) << "each of the four places drops by itself";
    nn::train(m, false);
  }
}

TEST(EncoderLayer, KeepsNoWeights) {
  const Layer m(4, 1, {.dim_feedforward = 4, .dropout = 0});
  // A matrix of 512 x 512 alone would hold a megabyte.
  EXPECT_LT(saved_bytes(m(randn({1, 512, 4}))), 512 * 512 * 4);
}

TEST(EncoderLayer, RefusesWhatMakesNoSense) {
  EXPECT_NE(message_of<ShapeError>([] { Layer(6, 4); }).find("embed_dim=6, num_heads=4"), std::string::npos);
  EXPECT_NE(message_of<ShapeError>([] { Layer(6, 2, {.dim_feedforward = -1}); }), "");
  EXPECT_NE(message_of<Error>([] { Layer(6, 2, {.dropout = 2}); }), "");
  const Layer m(6, 2, {.dim_feedforward = 5});
  EXPECT_NE(message_of<ShapeError>([&] { m(zeros({2, 3, 5})); }), "");
  EXPECT_NE(message_of<DTypeError>([&] { m(zeros({2, 3, 6}, f64)); }), "");
}

}  // namespace
}  // namespace heed
