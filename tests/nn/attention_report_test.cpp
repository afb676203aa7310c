#include "support.h"

// How sharp attention is, by hand; and the choice of a head to draw.

namespace heed {
namespace {

using test::message_of;
using test::near;
using test::values;

TEST(AttentionReport, MeasuresRows) {
  const Tensor weights = tensor({{.25, .25, .25, .25}, {1, 0, 0, 0}, {.5, .5, 0, 0}}, f64);
  const nn::AttentionReport r = nn::attention_report(weights);
  EXPECT_TRUE(near(r.entropy, tensor({std::log(4.0), 0, std::log(2.0)}, f64), 1e-14));
  EXPECT_EQ(values(r.largest), (std::vector<double>{.25, 1, .5}));
  EXPECT_TRUE(near(r.gauge, tensor({.1875, 0, .125}, f64), 1e-14));
  ASSERT_EQ(r.heads.size(), 1u);
  EXPECT_NEAR(r.heads[0].entropy, std::log(8.0) / 3, 1e-14);
  EXPECT_NEAR(r.heads[0].largest, 1.75 / 3, 1e-14);
  EXPECT_NEAR(r.heads[0].gauge, .3125 / 3, 1e-14);
  EXPECT_NEAR(r.heads[0].passed, (1 + 0 + .5 / .75) / 3, 1e-14);
  EXPECT_FALSE(r.saturated);
}

TEST(AttentionReport, SeparatesHeadsAndSaysWhichAreSaturated) {
  const Tensor open = full({2, 3, 4}, 0.25), shut = expand(tensor({{0, 1, 0, 0}}), {2, 3, 4});
  const nn::AttentionReport r = nn::attention_report(stack({open, shut}, 1));  // (2, 2, 3, 4)
  EXPECT_EQ(r.entropy.shape(), (Dims{2, 2, 3}));
  ASSERT_EQ(r.heads.size(), 2u);
  EXPECT_EQ(r.heads[0].rows, 6);
  EXPECT_NEAR(r.heads[0].passed, 1, 1e-6);
  EXPECT_EQ(r.heads[1].passed, 0);
  EXPECT_FALSE(r.heads[0].saturated);
  EXPECT_TRUE(r.heads[1].saturated && r.saturated);
  EXPECT_NE(r.text.find("1 of 2 heads saturated"), std::string::npos) << r.text;
  EXPECT_NE(r.text.find("0.188"), std::string::npos) << "the gauge of the open head\n" << r.text;
  EXPECT_EQ(nn::attention_report(stack({open[0], shut[0]})).heads.size(), 2u) << "(H, Tq, Tk)";
}

/// Rows with one key have no choice: under a causal mask the first row is not saturation.
TEST(AttentionReport, CountsOnlyTheKeysThatTheMaskAllows) {
  const Mask mask = Mask::causal() & Mask::lengths({3, 1});
  const Tensor q = zeros({2, 1, 3, 2}, f64), weights = scaled_dot_product_attention(q, q, q, {.mask = mask}).weights;
  const nn::AttentionReport r = nn::attention_report(weights, mask);
  EXPECT_EQ(r.heads[0].rows, 2) << "rows 1 and 2 of the first entry";
  EXPECT_NEAR(r.heads[0].passed, 1, 1e-14);
  EXPECT_TRUE(near(r.gauge[0][0], tensor({0, .25, 2. / 9}, f64), 1e-14));
  const nn::AttentionReport none = nn::attention_report(ones({1, 1}));
  EXPECT_FALSE(none.saturated);
  EXPECT_NE(none.text.find("no row"), std::string::npos) << none.text;
  const Tensor bias = tensor({{0, 0}, {0, -HUGE_VAL}}, f64);
  EXPECT_EQ(nn::attention_report(tensor({{.5, .5}, {1, 0}}, f64), Mask::bias(bias)).heads[0].rows, 1) << "-inf forbids";
}

/// Unscaled scores of standard normal queries and keys saturate; the scale of 1 / sqrt(d_k) mends that.
TEST(AttentionReport, SeesWhatTheScaleIsFor) {
  manual_seed(1);
  const Tensor q = randn({64, 1024}), k = randn({64, 1024});
  EXPECT_TRUE(nn::attention_report(scaled_dot_product_attention(q, k, k, {.scale = 1.0}).weights).saturated);
  EXPECT_FALSE(nn::attention_report(scaled_dot_product_attention(q, k, k).weights).saturated);
}

TEST(AttentionReport, RefusesAndTakesNothing) {
  EXPECT_THROW(nn::attention_report(zeros({3})), ShapeError);
  EXPECT_THROW(nn::attention_report(zeros({1, 1, 1, 3, 3})), ShapeError);
  EXPECT_THROW(nn::attention_report(zeros({3, 3}, i64)), DTypeError);
  EXPECT_THROW(nn::attention_report(zeros({3, 3}), Mask::keep(ones({4, 4}))), ShapeError);
  EXPECT_EQ(nn::attention_report(zeros({2, 0, 0})).heads.size(), 2u);
  EXPECT_EQ(nn::attention_report(zeros({2, 3, 0})).entropy.shape(), (Dims{2, 3}));
}

TEST(HeatMap, DrawsTheHeadThatIsChosen) {
  const Tensor weights = rand({2, 3, 4, 5});
  EXPECT_EQ(nn::heat_map(weights, {.head = 2, .batch = 1}), nn::heat_map(weights[1][2]));
  EXPECT_EQ(nn::heat_map(weights[0], {.head = 1}), nn::heat_map(weights[0][1]));
  EXPECT_NE(message_of<ShapeError>([&] { nn::heat_map(weights); }).find(".head"), std::string::npos);
  EXPECT_NE(message_of<IndexError>([&] { nn::heat_map(weights, {.head = 3}); }).find("no head 3"), std::string::npos);
  EXPECT_THROW(nn::heat_map(weights, {.head = 0, .batch = 2}), IndexError);
}

}  // namespace
}  // namespace heed
