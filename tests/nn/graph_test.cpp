#include "support.h"

// The picture of a whole step: every parameter by its path, shapes, and what is kept for backward.

namespace heed {
namespace {

TEST(Graph, OfAStepNamesParametersShapesAndSavedBytes) {
  test::MultiHeadSelfAttention m(8, 2);
  const Tensor x = randn({2, 3, 8}), out = m(x, Mask::causal()).output;
  const Tensor loss = sum(square(out)).named("loss \"of\"\na step");
  const std::string dot = to_dot(loss, nn::named_parameters(m));
  for (const char* part : {"label=\"qkv.weight\\nf32 (24, 8)\", shape=ellipse", "label=\"qkv.bias\\nf32 (24,)\"", "label=\"proj.weight\\n",
                           "\\nf32 (2, 3, 8)", "sum loss \\\"of\\\" a step\\nf32 ()", "\\nsaves "})
    EXPECT_NE(dot.find(part), std::string::npos) << part << "\n" << dot;
  const std::string sums = dot.substr(dot.rfind("  label="));
  EXPECT_NE(sums.find(" ops, 4 leaves, saves " + std::to_string(saved_bytes(loss)) + " B\""), std::string::npos) << sums;
  EXPECT_NE(to_dot(loss).find("label=\"leaf\\nf32 (24, 8)\""), std::string::npos) << to_dot(loss);
  // A tensor's own name is used where none is given.
  m.qkv.weight.named("W");
  EXPECT_NE(to_dot(loss).find("label=\"W\\nf32 (24, 8)\""), std::string::npos);
}

}  // namespace
}  // namespace heed
